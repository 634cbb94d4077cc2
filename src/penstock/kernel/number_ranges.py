"""Numbers of messages as ranges, and ranges as they travel: [gap, length, gap, length, ...], the first gap from 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import InvalidHeader

NUMBER_MAX = 1 << 62
RANGES_MAX = 512  # in one message
NumberRange = tuple[int, int]  # first and last
WrittenRanges = tuple[int, ...]


def ranges_of(numbers: Iterable[int]) -> list[NumberRange]:
    """Rising numbers as ranges."""
    found: list[NumberRange] = []
    first = last = -2
    for number in numbers:
        if number == last + 1:
            last = number
            continue
        if last >= 0:
            found.append((first, last))
        first = last = number
    if last >= 0:
        found.append((first, last))
    return found


def written(ranges: Sequence[NumberRange]) -> WrittenRanges:
    """Rising ranges as they travel."""
    values: list[int] = []
    end = 0
    for first, last in ranges:
        values += (first - end, last - first + 1)
        end = last
    return tuple(values)


def read_ranges(values: WrittenRanges) -> list[NumberRange]:
    """Ranges that came; raises InvalidHeader."""
    if len(values) % 2 or len(values) > 2 * RANGES_MAX or min(values, default=1) <= 0:
        raise InvalidHeader(f"{len(values)} numbers are no ranges")
    found = []
    end = 0
    for gap, length in zip(values[::2], values[1::2], strict=True):
        first, end = end + gap, end + gap + length - 1
        if end > NUMBER_MAX:
            raise InvalidHeader("a range of numbers that no publisher reaches")
        found.append((first, end))
    return found


def count_of(ranges: Iterable[NumberRange]) -> int:
    """How many numbers they have."""
    return sum(last - first + 1 for first, last in ranges)

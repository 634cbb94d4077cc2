"""Ranges of ticks: a set of ticks kept as few ranges, never as single ticks.

State: two lists of the same length, the first and the last tick of each range. Ranges are in order, do not overlap and
do not touch: ranges that touch are one. Both ends of a range belong to it.

Cost, with n ranges: a question is a binary search and then as long as its answer; a change is a binary search and a
shift of the lists behind it. At the end of the lists, where a stream grows, both are O(1).
Bounds: none of its own; whoever adds asks `len()`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from penstock.streams.packets import Range, Tick


class TickRanges:
    """A set of ticks."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[Tick] = []
        self._lasts: list[Tick] = []

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """How many ranges there are, not how many ticks."""
        return len(self._firsts)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, tick: Tick) -> bool:
        place = bisect_left(self._lasts, tick)
        return place < len(self._firsts) and self._firsts[place] <= tick

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TickRanges):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"TickRanges({', '.join(f'{first}-{last}' for first, last in self)})"

    def copy(self) -> TickRanges:
        same = TickRanges()
        same._firsts, same._lasts = self._firsts[:], self._lasts[:]
        return same

    def lowest(self) -> Tick | None:
        return self._firsts[0] if self._firsts else None

    def highest(self) -> Tick | None:
        return self._lasts[-1] if self._lasts else None

    def add(self, first: Tick, last: Tick) -> None:
        """All ticks from `first` to `last` belong to it; nothing happens if there are none."""
        if first > last:
            return
        low = bisect_left(self._lasts, first - 1)  # the first range that touches or lies above
        high = bisect_right(self._firsts, last + 1)  # behind the last one that touches
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def remove(self, first: Tick, last: Tick) -> None:
        """No tick from `first` to `last` belongs to it."""
        if first > last:
            return
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if low >= high:
            return
        before, after = self._firsts[low], self._lasts[high - 1]
        kept = [(before, first - 1)] if before < first else []
        kept += [(last + 1, after)] if after > last else []
        self._firsts[low:high] = [begin for begin, _ in kept]
        self._lasts[low:high] = [end for _, end in kept]

    def overlap(self, first: Tick, last: Tick) -> list[Range]:
        """What belongs to it between `first` and `last`."""
        if first > last:
            return []
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        pairs = zip(self._firsts[low:high], self._lasts[low:high], strict=True)
        return [(max(first, begin), min(last, end)) for begin, end in pairs]

    def around(self, tick: Tick) -> Range | None:
        """The whole range that a tick belongs to; None if it belongs to none."""
        place = bisect_left(self._lasts, tick)
        if place == len(self._firsts) or self._firsts[place] > tick:
            return None
        return self._firsts[place], self._lasts[place]

    def missing(self, first: Tick, last: Tick) -> list[Range]:
        """What does not belong to it between `first` and `last`."""
        holes: list[Range] = []
        for begin, end in self.overlap(first, last):
            if first < begin:
                holes.append((first, begin - 1))
            first = end + 1
        if first <= last:
            holes.append((first, last))
        return holes

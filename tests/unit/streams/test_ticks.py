"""Ranges of ticks against a plain set of ticks."""

from __future__ import annotations

from random import Random

import pytest

from penstock.streams.packets import Range
from penstock.streams.ticks import TickRanges

UPTO = 40  # the highest tick of the random histories


def ranges_of(ticks: set[int]) -> list[Range]:
    """The same ticks as ranges, found one by one."""
    found: list[Range] = []
    for tick in sorted(ticks):
        if found and found[-1][1] == tick - 1:
            found[-1] = (found[-1][0], tick)
        else:
            found.append((tick, tick))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_it_holds_the_ticks_that_a_set_would_hold(seed: int) -> None:
    random = Random(seed)
    ranges, ticks = TickRanges(), set[int]()
    for _ in range(150):
        first = random.randint(1, UPTO)
        last = min(UPTO, first + random.choice([-1, 0, 0, 1, 3, 10]))
        asked = set(range(first, last + 1))
        if random.random() < 0.55:
            ranges.add(first, last)
            ticks |= asked
        else:
            ranges.remove(first, last)
            ticks -= asked
        assert list(ranges) == ranges_of(ticks)
        assert len(ranges) == len(ranges_of(ticks))
        assert bool(ranges) == bool(ticks)
        assert (ranges.lowest(), ranges.highest()) == (min(ticks, default=None), max(ticks, default=None))
        first = random.randint(1, UPTO)
        last = random.randint(first - 1, UPTO)
        asked = set(range(first, last + 1))
        assert ranges.overlap(first, last) == ranges_of(ticks & asked)
        assert ranges.missing(first, last) == ranges_of(asked - ticks)
        assert [tick in ranges for tick in range(UPTO + 2)] == [tick in ticks for tick in range(UPTO + 2)]


def test_ranges_that_touch_are_one() -> None:
    ranges = TickRanges()
    ranges.add(1, 5)
    ranges.add(7, 9)
    assert len(ranges) == 2
    ranges.add(6, 6)
    assert list(ranges) == [(1, 9)]
    assert repr(ranges) == "TickRanges(1-9)"


def test_a_copy_is_equal_and_its_own() -> None:
    ranges = TickRanges()
    ranges.add(1, 5)
    same = ranges.copy()
    assert same == ranges
    same.remove(2, 2)
    assert same != ranges
    assert list(ranges) == [(1, 5)]
    assert ranges != [(1, 5)]


def test_the_range_around_a_tick() -> None:
    ranges = TickRanges()
    ranges.add(5, 9)
    ranges.add(20, 20)
    assert [ranges.around(tick) for tick in (4, 5, 7, 9, 10, 20, 21)] == [
        None,
        (5, 9),
        (5, 9),
        (5, 9),
        None,
        (20, 20),
        None,
    ]

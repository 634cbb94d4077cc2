"""When unknown ticks are asked for: the rules one by one, and random histories against one entry per tick."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.streams.config import StreamsConfig
from penstock.streams.nacks import NackSchedule
from penstock.streams.packets import RANGES_MAX, Range
from penstock.streams.ticks import TickRanges


def schedule(**settings: Any) -> NackSchedule:
    return NackSchedule(StreamsConfig(**settings))


def sent_at(nacks: NackSchedule, wanted: list[Range], *, until: float, now: float = 0.0) -> list[float]:
    """When the ranges are asked for, if `due` is called whenever it should be."""
    times: list[float] = []
    while now <= until:
        if nacks.due(wanted, now):
            times.append(round(now, 6))
        following = nacks.next_at()
        assert following is not None
        assert following > now
        now = following
    return times


def test_a_gap_is_asked_for_after_a_moment() -> None:
    nacks = schedule()
    assert nacks.due([(5, 9)], 1.0) == []
    assert nacks.next_at() == 1.01
    assert nacks.due([(5, 9)], 1.01) == [(5, 9)]


def test_a_gap_that_closes_by_itself_is_not_asked_for() -> None:
    nacks = schedule()
    nacks.due([(5, 9)], 1.0)
    assert nacks.due([], 1.005) == []
    assert nacks.next_at() is None
    assert nacks.due([(5, 9)], 1.02) == []  # this is another one


def test_an_unanswered_request_is_repeated_and_the_wait_doubles_up_to_a_limit() -> None:
    times = sent_at(schedule(nack_delay=0.0), [(5, 9)], until=13.0)
    assert times == [0.0, 0.2, 0.6, 1.4, 3.0, 6.2, 11.2]


def test_after_two_round_trips_if_that_is_longer() -> None:
    nacks = schedule(nack_delay=0.0)
    nacks.due([(5, 9)], 0.0)
    nacks.answered(5, 9, 0.3)
    assert nacks.round_trip == 0.3
    assert sent_at(nacks, [(10, 12)], until=2.0, now=1.0) == [1.0, 1.6]


def test_the_round_trip_is_smoothed_and_only_first_requests_count() -> None:
    nacks = schedule(nack_delay=0.0)
    nacks.due([(5, 9)], 0.0)
    nacks.answered(5, 9, 0.08)
    nacks.due([(10, 12)], 1.0)
    nacks.answered(10, 12, 1.16)
    assert nacks.round_trip == pytest.approx(0.09)
    nacks.due([(20, 22)], 2.0)
    nacks.due([(20, 22)], 2.2)
    nacks.answered(20, 22, 2.9)  # to which of the two?
    assert nacks.round_trip == pytest.approx(0.09)


def test_what_was_never_asked_for_measures_nothing() -> None:
    nacks = schedule()
    nacks.due([(5, 9)], 0.0)
    nacks.answered(5, 9, 0.005)
    assert nacks.round_trip is None
    assert nacks.next_at() is None


def test_what_is_left_above_an_answered_part_waits_anew_for_the_answer_may_go_on() -> None:
    nacks = schedule(nack_delay=0.0)
    nacks.due([(1, 100)], 0.0)
    nacks.answered(1, 30, 0.05)
    nacks.answered(31, 60, 0.15)
    assert nacks.due([(61, 100)], 0.3) == []
    assert nacks.next_at() == pytest.approx(0.35)
    assert nacks.due([(61, 100)], 0.35) == [(61, 100)]
    assert nacks.round_trip == 0.05


def test_what_is_left_of_an_answer_that_was_cut_is_asked_for_at_once() -> None:
    nacks = schedule(nack_delay=0.0)
    nacks.due([(1, 100), (150, 160)], 0.0)
    nacks.due([(1, 100), (150, 160), (300, 310)], 0.04)
    nacks.answered(1, 30, 0.05)
    nacks.again(31)
    assert nacks.due([(31, 100), (150, 160), (300, 310)], 0.05) == [(31, 100), (150, 160)]
    nacks.answered(31, 100, 0.06)
    assert nacks.round_trip == 0.05  # the first answer might have gone on
    nacks.again(101)
    assert nacks.due([(150, 160), (300, 310)], 0.06) == [(150, 160)]


def test_what_is_left_below_an_answered_part_keeps_its_time() -> None:
    nacks = schedule(nack_delay=0.0)
    nacks.due([(1, 100)], 0.0)
    nacks.answered(40, 100, 0.05)
    assert nacks.next_at() == pytest.approx(0.2)
    assert nacks.due([(1, 39)], 0.2) == [(1, 39)]


def test_a_range_that_grows_is_asked_for_only_where_it_is_new() -> None:
    nacks = schedule(nack_delay=0.0)
    assert nacks.due([(5, 9)], 0.0) == [(5, 9)]
    assert nacks.due([(5, 12)], 0.1) == [(10, 12)]
    assert nacks.due([(3, 12)], 0.15) == [(3, 4)]


def test_neighbours_that_are_due_together_are_one_range() -> None:
    nacks = schedule(nack_delay=0.01)
    for count in range(10):
        nacks.due([(1, 10 + count)], count * 0.001)
    assert nacks.due([(1, 19)], 0.02) == [(1, 19)]
    assert nacks.due([(1, 19)], 0.3) == [(1, 19)]
    assert len(nacks) == 1


def test_no_more_ranges_are_outstanding_than_the_limit_and_the_lowest_come_first() -> None:
    nacks = schedule(nack_delay=0.0, outstanding_max=3)
    wanted = [(first, first) for first in range(10, 20, 2)]
    assert nacks.due(wanted, 0.0) == [(10, 10), (12, 12), (14, 14)]
    assert nacks.due([(8, 8), *wanted], 0.1) == []
    nacks.answered(12, 12, 0.15)
    assert nacks.due([(8, 8), (10, 10), (14, 14), (16, 16), (18, 18)], 0.15) == [(8, 8)]
    assert len(nacks) == 3


def test_one_packet_holds_what_is_due() -> None:
    nacks = schedule(nack_delay=0.0, outstanding_max=1_000)
    wanted = [(first, first) for first in range(10, 1_000, 2)]
    assert nacks.due(wanted, 0.0) == wanted[:RANGES_MAX]
    assert nacks.due(wanted, 0.0) == wanted[RANGES_MAX : 2 * RANGES_MAX]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_asked_for_that_is_known_too_often_or_never(seed: int) -> None:
    """One entry per tick: when it was seen, when it was asked for; the gaps between requests keep the rules."""
    random = Random(seed)
    nacks = schedule(outstanding_max=8, nack_retry_max=1.0)
    unknown = TickRanges()
    asked_at: dict[int, float] = {}
    now = 0.0
    for _ in range(300):
        now += random.choice([0.0, 0.005, 0.05, 0.3])
        first = random.randint(1, 60)
        last = first + random.choice([0, 2, 9])
        if random.random() < 0.5:
            unknown.add(first, last)
        else:
            unknown.remove(first, last)
            nacks.answered(first, last, now)
            asked_at = {tick: then for tick, then in asked_at.items() if tick in unknown}
        wanted = list(unknown)
        ranges = nacks.due(wanted, now)
        assert all(unknown.overlap(begin, end) == [(begin, end)] for begin, end in ranges)
        assert len(nacks) <= 8
        for tick in (tick for begin, end in ranges for tick in range(begin, end + 1)):
            assert now - asked_at.get(tick, -1.0) >= 0.01
            asked_at[tick] = now
        assert (nacks.next_at() is None) == (not wanted)
    quiet = now
    while (following := nacks.next_at()) is not None and now < quiet + 3.0:
        now = max(now, following)
        for begin, end in nacks.due(list(unknown), now):
            unknown.remove(begin, end)
            nacks.answered(begin, end, now)
    assert not unknown, "somebody answers, so all was asked for"

"""A link tells its rate while it is busy, at once if it falls, and not at all otherwise."""

from __future__ import annotations

from itertools import count

from penstock.rates.announcer import WORD_SHARE, Announcer
from penstock.rates.config import RatesConfig


def told(steps: list[tuple[float, float, bool]]) -> list[float]:
    """When a link tells, of what it sees: when, the rate, whether it is busy."""
    announcer = Announcer(RatesConfig(), count(1))
    return [at for at, rate, busy in steps if announcer.tells(rate, busy, at)]


def test_a_link_that_is_not_busy_says_nothing() -> None:
    assert told([(0.05 * step, 1000.0 + step, False) for step in range(200)]) == []


def test_a_busy_link_says_the_same_once_a_second() -> None:
    assert told([(float(step), 1000.0, True) for step in range(4)]) == [0.0, 1.0, 2.0, 3.0]
    assert told([(0.1 * step, 1000.0, True) for step in range(10)]) == [0.0]


def test_changes_are_told_ten_times_a_second_and_falls_sooner() -> None:
    assert told([(0.0, 1000.0, True), (0.05, 1200.0, True), (0.1, 1200.0, True)]) == [0.0, 0.1]
    assert told([(0.0, 1000.0, True), (0.05, 790.0, True), (0.1, 780.0, True)]) == [0.0, 0.05]


def test_a_rate_that_rises_is_told_while_the_old_one_may_be_obeyed() -> None:
    assert told([(0.0, 100.0, True), (1.5, 200.0, False), (2.0, 202.0, False), (5.0, 400.0, False)]) == [0.0, 1.5]


def test_a_clock_that_is_set_back_does_not_silence_it() -> None:
    assert told([(1000.0, 100.0, True), (10.0, 100.0, True)]) == [1000.0, 10.0]


def test_a_narrow_link_with_many_publishers_tells_changes_less_often() -> None:
    announcer = Announcer(RatesConfig(), count(1))
    announcer.pace(homes=100, capacity=2_300 / WORD_SHARE)  # 2,300 bytes of word take a second
    rates = [(0.25 * step, 1000.0 * 1.2**step) for step in range(10)]
    assert [at for at, rate in rates if announcer.tells(rate, True, at)] == [0.0, 1.0, 2.0]


def test_a_fall_is_told_sooner_and_a_great_one_at_once() -> None:
    falls = []
    for part in (0.85, 0.65):
        announcer = Announcer(RatesConfig(), count(1))
        announcer.pace(homes=100, capacity=2_300 / WORD_SHARE)
        rates = [(0.0, 1000.0), *((0.05 * step, 1000.0 * part) for step in range(1, 10))]
        falls.append([at for at, rate in rates if announcer.tells(rate, True, at)])
    assert falls == [[0.0, 0.25], [0.0, 0.05]]


def test_what_was_told_is_told_again_before_it_expires() -> None:
    announcer = Announcer(RatesConfig(), count(1))
    announcer.pace(homes=4_000, capacity=1_000.0)
    assert [0.5 * step for step in range(9) if announcer.tells(1000.0, True, 0.5 * step)] == [0.0, 2.0, 4.0]

"""Events per second: right from the start, fading, and unimpressed by clocks that are set."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.rate_estimator import RateEstimator, rate_text


def steady(rate: float, seconds: float, window: float = 5.0) -> RateEstimator:
    estimator = RateEstimator(window)
    for number in range(round(rate * seconds) + 1):
        estimator.add(number / rate)
    return estimator


def test_before_any_event_the_rate_is_zero() -> None:
    estimator = RateEstimator(5.0)
    assert estimator.rate(0.0) == estimator.rate(100.0) == 0.0


def test_one_event_begins_the_watch_and_is_no_rate_yet() -> None:
    estimator = RateEstimator(5.0)
    estimator.add(3.0)
    assert estimator.rate(3.0) == estimator.rate(4.0) == 0.0


@pytest.mark.parametrize("seconds", [0.02, 0.1, 1.0, 5.0, 50.0])
def test_it_is_right_from_the_first_events_on(seconds: float) -> None:
    assert steady(100.0, seconds).rate(seconds) == pytest.approx(100.0, rel=0.01)


def test_a_random_process_is_estimated_without_bias_from_the_start() -> None:
    random = Random(4)
    found = []
    for _ in range(2_000):
        estimator, now = RateEstimator(5.0), 0.0
        while now < 2.0:
            estimator.add(now)
            now += random.expovariate(20.0)
        found.append(estimator.rate(2.0))
    assert sum(found) / len(found) == pytest.approx(20.0, rel=0.02)


def test_it_fades_when_nothing_comes_and_follows_when_more_comes() -> None:
    estimator = steady(100.0, 50.0)
    assert estimator.rate(55.0) == pytest.approx(100.0 / 2.718, rel=0.02)
    for number in range(20_000):
        estimator.add(50.0 + number / 1_000.0)
    assert estimator.rate(70.0) == pytest.approx(1_000.0, rel=0.03)


def test_counts_are_events() -> None:
    estimator = RateEstimator(5.0)
    for number in range(101):
        estimator.add(number / 10.0, count=7)
    assert estimator.rate(10.0) == pytest.approx(70.0, rel=0.03)


def test_asking_changes_nothing() -> None:
    estimator = steady(100.0, 3.0)
    before = estimator.rate(3.0)
    assert estimator.rate(60.0) < before
    assert estimator.rate(3.0) == before


def test_a_clock_that_was_set_back_costs_nothing_but_that_moment() -> None:
    estimator = steady(100.0, 20.0)
    for number in range(1_000):
        estimator.add(-3_600.0 + number / 100.0)
    assert estimator.rate(-3_590.0) == pytest.approx(100.0, rel=0.02)


def test_a_window_must_be_a_time() -> None:
    for window in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="window"):
            RateEstimator(window)


times = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.tuples(times, st.integers(0, 1_000_000))), times, st.floats(1e-3, 1e3))
def test_whatever_the_clock_does_the_rate_is_finite_and_not_negative(
    events: list[tuple[float, int]], end: float, window: float
) -> None:
    estimator = RateEstimator(window)
    for now, count in events:
        estimator.add(now, count)
        assert 0.0 <= estimator.rate(now) < float("inf")
    assert 0.0 <= estimator.rate(end) < float("inf")


def test_a_rate_has_three_digits_and_no_exponent() -> None:
    rates = (2220.4, 22.46, 1_234_567.0, 999.6, 99.96, 9.996, 100.0, 10.0, 0.5, 0.000_012_34, 0.0, -1.0, float("inf"))
    shown = ("2,220", "22.5", "1,230,000", "1,000", "100", "10", "100", "10", "0.5", "0.0000123", "0", "0", "inf")
    assert tuple(map(rate_text, rates)) == shown

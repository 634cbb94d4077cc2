"""Suppression timers and their tuning: within their interval, within their bounds, and going the right way."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.recovery.suppression_timers import (
    FIRST_MAX,
    FIRST_MIN,
    SPREAD_MAX,
    SPREAD_MIN,
    SuppressionTimers,
)


@given(st.integers(0, 2**32), st.floats(0.0, 5.0), st.floats(0.0, 5.0), st.floats(1e-4, 10.0), st.integers(0, 8))
def test_a_wait_lies_in_its_interval(seed: int, first: float, spread: float, distance: float, doublings: int) -> None:
    wait = SuppressionTimers(first, spread, adaptive=False).draw(Random(seed), distance, doublings)
    scale = distance * 2**doublings
    assert first * scale * (1 - 1e-12) <= wait <= (first + spread) * scale * (1 + 1e-12)


def test_waits_are_spread_over_the_whole_interval() -> None:
    random, waits = Random(1), SuppressionTimers(2.0, 2.0, adaptive=False)
    drawn = [waits.draw(random, 0.1) for _ in range(2_000)]
    assert min(drawn) == pytest.approx(0.2, rel=0.01)
    assert max(drawn) == pytest.approx(0.4, rel=0.01)
    assert sum(drawn) / len(drawn) == pytest.approx(0.3, rel=0.01)


def test_constants_stay_as_given_unless_they_are_tuned() -> None:
    waits = SuppressionTimers(2.0, 2.0, adaptive=False)
    for _ in range(50):
        waits.first_sent(5.0, 0.1)
        waits.sent_here()
        waits.ended(9)
    assert (waits.first, waits.spread) == (2.0, 2.0)
    assert waits.duplicates == pytest.approx(9.0, rel=0.01)


def test_many_duplicates_raise_both() -> None:
    waits = SuppressionTimers(1.0, 2.0, adaptive=True)
    for _ in range(8):
        waits.ended(3)
    assert waits.first > 1.0
    assert waits.spread > 4.0


def test_late_and_alone_lowers_both() -> None:
    waits = SuppressionTimers(2.0, 4.0, adaptive=True)
    for _ in range(8):
        waits.first_sent(1.0, 0.1)
        waits.ended(0)
    assert waits.first < 2.0
    assert waits.spread < 4.0


def test_early_and_alone_changes_nothing() -> None:
    waits = SuppressionTimers(1.0, 1.5, adaptive=True)
    for _ in range(8):
        waits.first_sent(0.1, 0.1)
        waits.ended(0)
    assert (waits.first, waits.spread) == (1.0, 1.5)


def test_who_sends_will_be_earlier_next_time() -> None:
    waits = SuppressionTimers(2.0, 2.0, adaptive=True)
    waits.sent_here()
    assert waits.first == pytest.approx(1.95)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.0, 100.0), st.booleans()), max_size=300))
def test_constants_stay_within_bounds_whatever_happens(rounds: list[tuple[int, float, bool]]) -> None:
    waits = SuppressionTimers(2.0, 2.0, adaptive=True)
    for duplicates, after, ours in rounds:
        waits.first_sent(after, 0.1)
        if ours:
            waits.sent_here()
        waits.ended(duplicates)
        assert FIRST_MIN <= waits.first <= FIRST_MAX
        assert SPREAD_MIN <= waits.spread <= SPREAD_MAX


def test_who_starts_outside_of_the_bounds_is_not_thrown_back() -> None:
    waits = SuppressionTimers(0.1, 50.0, adaptive=True)
    waits.ended(0)
    assert (waits.first, waits.spread) == (0.1, 50.0)

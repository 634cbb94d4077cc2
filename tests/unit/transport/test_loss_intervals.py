"""Loss events: what begins one, how intervals grow, and the mean over the history."""

from __future__ import annotations

from itertools import pairwise
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.receiver.loss_intervals import GapRule, LossIntervals, tfrc_weights
from penstock.transport.receiver.tcp_equation import allowed_rate

ROUND_TRIP = 0.1


def deliver(
    events: LossIntervals, now: float, gap: int = 0, lost: bool = False, record: int = 2, match: float = 0.5
) -> bool:
    return events.delivered(
        gap, record, lost, match_probability=match, round_trip=ROUND_TRIP, reception_rate=100.0, now=now
    )


def drop(events: LossIntervals, now: float, reception_rate: float = 100.0) -> bool:
    return events.dropped_here(round_trip=ROUND_TRIP, reception_rate=reception_rate, now=now)


def with_history(*intervals: int, kept: int = 8, discounting: bool = False) -> LossIntervals:
    """A history of these intervals, newest first; more than are kept push out the seed of the first event."""
    events = LossIntervals(intervals=kept, discounting=discounting)
    for number, interval in enumerate((*reversed(intervals), 1)):
        drop(events, number * 10.0)
        for _ in range(interval - 1):
            deliver(events, number * 10.0 + 1.0)
    return events


def test_without_loss_there_is_no_loss_event_rate() -> None:
    events = LossIntervals()
    for number in range(1000):
        deliver(events, number * 0.01)
    assert events.rate == 0.0
    assert events.running_interval == 1001.0


def test_the_first_event_starts_from_half_of_the_present_rate() -> None:
    events = LossIntervals()
    for number in range(10_000):
        deliver(events, number * 0.01)
    assert deliver(events, 100.0, gap=1, lost=True)
    assert isclose(allowed_rate(events.rate, ROUND_TRIP), 50.0, rel_tol=1e-9)


def test_without_a_rate_to_go_by_the_first_event_takes_what_was_counted() -> None:
    events = LossIntervals()
    for number in range(19):
        deliver(events, number * 0.01)
    assert drop(events, 1.0, reception_rate=0.0)
    assert isclose(events.rate, 1.0 / 20.0)


def test_losses_within_a_round_trip_are_one_event() -> None:
    events = LossIntervals()
    assert deliver(events, 0.0, gap=1, lost=True)
    assert not deliver(events, 0.05, gap=1, lost=True)
    assert not drop(events, 0.09)
    assert deliver(events, 0.1, gap=1, lost=True)
    assert events.events == 2


def test_a_drop_in_the_own_queue_is_a_loss() -> None:
    events = LossIntervals()
    assert drop(events, 1.0)
    assert events.rate > 0.0
    assert events.running_interval == 1.0


def test_the_delivery_that_reveals_a_loss_counts_and_so_does_the_lost_one() -> None:
    events = LossIntervals()
    deliver(events, 1.0, gap=1, lost=True)
    assert events.running_interval == 2.0
    deliver(events, 1.01, gap=1, lost=True)
    assert events.running_interval == 3.0


@pytest.mark.parametrize(
    ("rule", "grows_by", "is_loss"),
    [("probable", 0.5**3, False), ("optimistic", 1.0, False), ("conservative", 0.0, True)],
)
def test_a_gap_that_the_record_does_not_cover(rule: GapRule, grows_by: float, is_loss: bool) -> None:
    events = LossIntervals(rule=rule)
    deliver(events, 0.0)
    before = events.running_interval
    assert deliver(events, 1.0, gap=5, record=2, match=0.5) is is_loss
    assert events.running_interval == before + grows_by


@pytest.mark.parametrize("rule", ["probable", "optimistic", "conservative"])
def test_a_gap_that_the_record_covers_is_no_matter_for_guesses(rule: GapRule) -> None:
    events = LossIntervals(rule=rule)
    assert not deliver(events, 0.0, gap=2, record=2)
    assert events.running_interval == 2.0
    assert events.rate == 0.0


@pytest.mark.parametrize("rule", ["probable", "optimistic", "conservative"])
def test_a_loss_that_is_known_counts_also_in_a_gap_that_is_not_covered(rule: GapRule) -> None:
    assert deliver(LossIntervals(rule=rule), 0.0, gap=50, record=2, lost=True)


@pytest.mark.parametrize(("match", "grows_by"), [(0.0, 1.0), (1.0, 0.0), (1.7, 0.0), (-0.2, 1.0)])
def test_a_match_probability_out_of_range_is_taken_as_the_end_of_the_range(match: float, grows_by: float) -> None:
    events = LossIntervals()
    deliver(events, 0.0, gap=1000, record=2, match=match)
    assert events.running_interval == 1.0 + grows_by


def test_the_weights_are_those_of_tfrc() -> None:
    assert tfrc_weights(8) == (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)


def test_the_mean_weighs_the_last_eight_intervals() -> None:
    events = with_history(10, 20, 30, 40, 50, 60, 70, 80, 90)
    weighed = 10 + 20 + 30 + 40 + 0.8 * 50 + 0.6 * 60 + 0.4 * 70 + 0.2 * 80
    assert isclose(events.mean_interval(), weighed / 6.0)
    assert isclose(events.rate, 6.0 / weighed)


def test_the_running_interval_counts_only_if_it_raises_the_mean() -> None:
    events = with_history(*[100] * 9)
    for number in range(99):
        deliver(events, 200.0 + number)
        assert isclose(events.mean_interval(), 100.0)
    deliver(events, 400.0)
    deliver(events, 400.0)
    assert isclose(events.mean_interval(), (5 * 100 + 102) / 6.0, rel_tol=1e-3)
    assert events.mean_interval() > 100.0


def test_discounting_finds_freed_capacity_sooner_and_is_not_forgotten_at_the_next_loss() -> None:
    plain, fading = with_history(*[20] * 9), with_history(*[20] * 9, discounting=True)
    assert isclose(plain.rate, fading.rate)
    for number in range(400):
        for events in (plain, fading):
            deliver(events, 200.0 + number * 0.01)
    assert fading.mean_interval() > 2.0 * plain.mean_interval()
    for events in (plain, fading):
        drop(events, 300.0)
    assert fading.mean_interval() > 1.5 * plain.mean_interval()


def test_a_shorter_history_forgets_sooner() -> None:
    assert isclose(with_history(10, 10, 1000, kept=2).mean_interval(), 10.0)
    assert with_history(10, 10, 1000, kept=8).mean_interval() > 100.0


def test_a_history_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LossIntervals(intervals=0)


def test_a_clock_that_steps_back_does_not_silence_losses() -> None:
    events = LossIntervals()
    assert drop(events, 1000.0)
    assert not drop(events, 5.0)
    assert drop(events, 5.2)


steps = st.lists(
    st.tuples(st.floats(0.0, 0.3), st.integers(0, 40), st.booleans(), st.floats(0.0, 1.0), st.booleans()), max_size=80
)


@given(steps, st.sampled_from(["probable", "optimistic", "conservative"]), st.booleans())
def test_the_rate_is_a_probability_and_events_are_a_round_trip_apart(
    story: list[tuple[float, int, bool, float, bool]], rule: GapRule, discounting: bool
) -> None:
    events, now, begun = LossIntervals(rule=rule, discounting=discounting), 0.0, []
    for wait, gap, lost, match, here in story:
        now += wait
        if drop(events, now) if here else deliver(events, now, gap, lost and gap > 0, 3, match):
            begun.append(now)
        assert 0.0 <= events.rate <= 1.0
        assert (events.rate > 0.0) == (events.events > 0)
        assert events.running_interval >= 1.0
    assert len(begun) == events.events
    assert all(later - earlier >= ROUND_TRIP for earlier, later in pairwise(begun))


@given(steps)
def test_the_guesses_stand_in_order_when_nothing_is_known_to_be_lost(
    story: list[tuple[float, int, bool, float, bool]],
) -> None:
    rules: list[GapRule] = ["conservative", "probable", "optimistic"]
    three = [LossIntervals(rule=rule) for rule in rules]
    now = 0.0
    for wait, gap, _, match, _ in story:
        now += wait
        for events in three:
            deliver(events, now, gap, False, 3, match)
    conservative, probable, optimistic = three
    assert conservative.rate >= probable.rate == optimistic.rate == 0.0
    assert probable.running_interval <= optimistic.running_interval


def test_the_first_event_halves_a_rate_only_if_it_is_our_own() -> None:
    """Beyond TFRC: what others let through says nothing about our way, but how many came before the loss does."""
    found = []
    for held in (False, True):
        events = LossIntervals()
        for number in range(500):
            deliver(events, number / 100.0)
        events.held_by_others = held
        drop(events, 5.0, reception_rate=10.0)
        found.append(events.mean_interval())
    assert found[0] < 100.0
    assert found[1] == pytest.approx(501.0, abs=1.0)

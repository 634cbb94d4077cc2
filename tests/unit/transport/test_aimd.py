"""Control by a window: halves with a loss event, grows by one message per round trip."""

from __future__ import annotations

from math import inf

import pytest

from penstock.transport.config import TransportConfig
from penstock.transport.receiver.aimd import Aimd
from penstock.transport.receiver.loss_intervals import LossIntervals
from penstock.transport.receiver.rate_controller import make_loss_intervals

TRIP = 0.1


def deliver(events: LossIntervals, count: int, start: float, *, rate: float = 100.0, lost: bool = False) -> float:
    """So many messages at this rate; the first shows a loss, if so wanted."""
    now = start
    for number in range(count):
        now += 1.0 / rate
        events.delivered(
            int(lost and number == 0),
            10,
            lost and number == 0,
            match_probability=1.0,
            round_trip=TRIP,
            reception_rate=rate,
            now=now,
        )
    return now


def test_without_a_loss_there_is_no_window() -> None:
    events = Aimd()
    deliver(events, 500, 0.0)
    assert events.allowed(TRIP) == inf
    assert events.window is None


def test_the_first_loss_leaves_half_of_what_comes() -> None:
    events = Aimd()
    deliver(events, 1, 0.0, lost=True)
    assert events.window == pytest.approx(5.0)
    assert events.allowed(TRIP) == pytest.approx(50.0)


def test_it_grows_by_one_message_per_round_trip_and_halves_with_each_event() -> None:
    events = Aimd()
    now = deliver(events, 1, 0.0, lost=True)
    now = deliver(events, 5, now, rate=50.0)  # what a window of five lets through in a round trip
    assert events.window == pytest.approx(6.0, rel=0.03)
    deliver(events, 1, now, lost=True)
    assert events.window == pytest.approx(3.0, rel=0.03)


def test_losses_within_a_round_trip_are_one_event() -> None:
    events = Aimd()
    now = deliver(events, 1, 0.0, lost=True)
    deliver(events, 1, now, lost=True)
    events.dropped_here(round_trip=TRIP, reception_rate=100.0, now=now + 0.02)
    assert events.events == 1
    assert events.window == pytest.approx(5.0)


def test_it_is_never_below_one_message() -> None:
    events = Aimd()
    for turn in range(20):
        events.dropped_here(round_trip=TRIP, reception_rate=100.0, now=float(turn))
    assert events.window == 1.0


def test_a_window_that_is_not_used_does_not_grow_without_end() -> None:
    events = Aimd()
    now = deliver(events, 1, 0.0, lost=True)
    deliver(events, 5000, now, rate=40.0)
    assert events.window is not None
    assert events.window <= 2.0 * 4.0 + 1.0


def test_the_setting_chooses() -> None:
    assert isinstance(make_loss_intervals(TransportConfig(control="window")), Aimd)
    assert type(make_loss_intervals(TransportConfig())) is LossIntervals

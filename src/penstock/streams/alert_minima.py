"""A relay's part of PDCC: one alert upstream for all that come from below (001 Figure 5, as corrected, erratum G5).

Of the alerts that answer one query the lowest values count. The first alert with a new number goes up at once, so that
the pubend hears of new congestion as soon as can be; those that come later with the same number go up with the next
one. The printed algorithm keeps one minimum without a number, and sends a value that is long past with an alert that
may come much later. So there are two slots here, for the last number that was sent and the one before; what is older
is left out.

State: two slots of three values for each pubend. At most one alert goes up for each query.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple


class Alert(NamedTuple):
    """What an edge can take, in seconds of ticks per second: the lowest of those that keep up, and of those behind; and
    the longest time that data wait on their way, if that was measured."""

    sequence: int
    keeping_up: float = inf
    recovering: float = inf
    lag: float = 0.0


class AlertMinima:
    """Gathers alerts of one pubend."""

    def __init__(self) -> None:
        self._sent = 0  # the highest number that went up
        self._slots: dict[int, Alert] = {}

    def add(self, alert: Alert) -> Alert | None:
        """One has come from below; returns the one that goes up for it, if any does."""
        if alert.sequence < self._sent - 1:
            return None
        self._slots[alert.sequence] = _worst(self._slots.get(alert.sequence, Alert(alert.sequence)), alert)
        if alert.sequence <= self._sent:
            return None
        before, fresh = self._slots.get(alert.sequence - 1), self._slots[alert.sequence]
        self._sent = alert.sequence
        self._slots = {}
        return fresh if before is None else _worst(fresh, before)


def _worst(one: Alert, other: Alert) -> Alert:
    """The lowest paces and the longest lag of both, under the number of the first."""
    paces = min(one.keeping_up, other.keeping_up), min(one.recovering, other.recovering)
    return Alert(one.sequence, *paces, max(one.lag, other.lag))

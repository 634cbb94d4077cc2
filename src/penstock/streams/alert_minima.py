"""A relay's part of PDCC: one alert upstream for all that come from below (001 Figure 5, as corrected, erratum G5).

Of the alerts that answer one query the lowest values count. The first alert with a new number goes up at once, so that
the pubend hears of new congestion as soon as can be; those that come later with the same number go up with the next
one. The printed algorithm keeps one minimum without a number, and sends a value that is long past with an alert that
may come much later. So there are two slots here, for the last number that was sent and the one before; what is older
is left out. Each value goes up with the broker that it is of, so that people can be told who it is.

State: two slots of three values for each pubend. At most one alert goes up for each query.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from penstock.overlay.packets import BrokerId

NOBODY: BrokerId = -1


class Alert(NamedTuple):
    """What an edge can take, in seconds of ticks per second: the lowest of those that keep up, and of those behind; and
    the longest time that data wait on their way, in seconds, if that was measured."""

    sequence: int
    keeping_up: float = inf
    recovering: float = inf
    keeping_up_edge: BrokerId = NOBODY
    recovering_edge: BrokerId = NOBODY
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
        self._slots[alert.sequence] = _worst(alert, self._slots.get(alert.sequence))
        if alert.sequence <= self._sent:
            return None
        up = _worst(self._slots[alert.sequence], self._slots.get(alert.sequence - 1))
        self._sent = alert.sequence
        self._slots = {}
        return up


def _worst(one: Alert, other: Alert | None) -> Alert:
    """The lowest paces and the longest lag of both, under the number of the first."""
    if other is None:
        return one
    keeping_up, keeping_up_edge = min((a.keeping_up, a.keeping_up_edge) for a in (one, other))
    recovering, recovering_edge = min((a.recovering, a.recovering_edge) for a in (one, other))
    lag = max(one.lag, other.lag)
    return Alert(one.sequence, keeping_up, recovering, keeping_up_edge, recovering_edge, lag)

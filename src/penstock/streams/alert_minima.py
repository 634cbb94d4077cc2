"""A relay's part of PDCC: one alert upstream for all that come from below (001 Figure 5, as corrected, erratum G5).

Of the alerts that answer one query the lowest values count. The first alert with a new number goes up at once, so that
the pubend hears of new congestion as soon as can be; those that come later with the same number go up with the next
one. The printed algorithm keeps one minimum without a number, and sends a value that is long past with an alert that
may come much later. So there are two slots here, for the last number that was sent and the one before; what is older
is left out. Each value goes up with the broker that it is of, so that people can be told who it is.

State: two slots of two values for each pubend. At most one alert goes up for each query.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from penstock.overlay.packets import BrokerId

NOBODY: BrokerId = -1
_NO_ALERT = (inf, NOBODY)


class Alert(NamedTuple):
    """What an edge can take, in seconds of ticks per second: the lowest of those that keep up, and of those behind."""

    sequence: int
    keeping_up: float = inf
    recovering: float = inf
    keeping_up_edge: BrokerId = NOBODY
    recovering_edge: BrokerId = NOBODY


class AlertMinima:
    """Gathers alerts of one pubend."""

    def __init__(self) -> None:
        self._sent = 0  # the highest number that went up
        self._slots: dict[int, tuple[tuple[float, BrokerId], tuple[float, BrokerId]]] = {}

    def add(self, alert: Alert) -> Alert | None:
        """One has come from below; returns the one that goes up for it, if any does."""
        if alert.sequence < self._sent - 1:
            return None
        keeping_up, recovering = self._slots.get(alert.sequence, (_NO_ALERT, _NO_ALERT))
        keeping_up = min(keeping_up, (alert.keeping_up, alert.keeping_up_edge))
        recovering = min(recovering, (alert.recovering, alert.recovering_edge))
        self._slots[alert.sequence] = (keeping_up, recovering)
        if alert.sequence <= self._sent:
            return None
        fresh = [self._slots[number] for number in (alert.sequence - 1, alert.sequence) if number in self._slots]
        self._sent = alert.sequence
        self._slots = {alert.sequence: (_NO_ALERT, _NO_ALERT)}
        keeping_up, recovering = min(one[0] for one in fresh), min(one[1] for one in fresh)
        return Alert(alert.sequence, keeping_up[0], recovering[0], keeping_up[1], recovering[1])

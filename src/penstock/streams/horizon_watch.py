"""An edge's part of PDCC: does our doubt horizon keep up (001 section 3.1, equations 4 to 8, as corrected)?

At each query the progress of the doubt horizon since the one before, in seconds of ticks, is divided by the time that
passed: 1 is the pace of real time (erratum G1). The quotient is smoothed, as if it had been sampled meanwhile every
`pace_interval`, which 001 does not name: after an outage it is near 0 (Figure 14). An edge that keeps up alerts if it
falls below 1 - `alert_below`, or lies more than `lag_max` seconds of ticks behind the pubend (erratum G2). One that is
recovering must be faster than real time, or it never arrives: it alerts below 1 + `recovery_gain`.

It is recovering from when knowledge beyond the receive window was ignored until its horizon is within that window of
the newest tick.

State: a smoothed quotient, a tick and a time.
"""

from __future__ import annotations

from math import inf

from penstock.streams.alert_minima import Alert
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Tick

SECOND = 1_000_000  # ticks


class HorizonWatch:
    """How one pubend's doubt horizon fares at one edge."""

    def __init__(self, config: StreamsConfig) -> None:
        self.pace: float | None = None  # smoothed; None: not measured yet
        self._config = config
        self._horizon: Tick = 0
        self._at = 0.0

    def queried(self, sequence: int, pubend_at: Tick, horizon: Tick, *, recovering: bool, now: float) -> Alert | None:
        """The pubend asks; returns an alert if we cannot keep up."""
        before, since = self._horizon, now - self._at
        self._horizon, self._at = horizon, now
        if not before or since <= 0.0:
            return None
        pace = (horizon - before) / SECOND / since
        kept = (1.0 - self._config.smoothing) ** (since / self._config.pace_interval)
        self.pace = pace if self.pace is None else kept * self.pace + (1.0 - kept) * pace
        if recovering:
            return Alert(sequence, inf, self.pace) if self.pace < 1.0 + self._config.recovery_gain else None
        behind = horizon < pubend_at - self._config.lag_max * SECOND
        return Alert(sequence, self.pace, inf) if behind or self.pace < 1.0 - self._config.alert_below else None

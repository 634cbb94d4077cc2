"""An edge's part of PDCC in the product: how long do data wait on their way to us, and how fast do we recover?

A query travels as control and overtakes data; just before it the pubend has told how far its stream goes. So what the
query names should have come `lag_alert` seconds later, if no data wait anywhere. If it has not, an alert goes up: with
the time that data wait (at least), and with how fast the newest tick that we heard of moves, in seconds of ticks per
second: what the way carries, as a share of what is sent.

Apart from that an edge may have a hole: it was cut off, or messages were lost. Then it recovers, and reports with every
answer how fast (`recovery_pace`).

001 takes one measure for both, the smoothed pace of the doubt horizon (`horizon_watch`): it needs seconds to notice a
queue, and a lost message looks like one.

State: the last query, and where the stream stood at the last look. Timer: EDGE_LAG, `lag_alert` after a
query.
"""

from __future__ import annotations

from math import inf

from penstock.streams.alert_minima import Alert
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Dcq, Tick

SECOND = 1_000_000  # ticks
GAP_MAX = 3.0  # queries: what was measured over a longer time says nothing of now


class LagWatch:
    """How one pubend's data fare on their way to one edge."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self.waits = False  # for the look at what the last query named
        self._query: Dcq | None = None
        self._queried_at = 0.0
        self._heard: Tick = 0
        self._at = 0.0

    def queried(self, packet: Dcq, *, now: float) -> None:
        """The pubend asks; if it asks again before the look that the last one led to, that one counts."""
        if not self.waits:
            self._query, self._queried_at, self.waits = packet, now, True

    def look(self, heard: Tick, *, now: float) -> float | None:
        """A while after the query; returns how fast we hear of new ticks, None if that cannot be told."""
        self.waits = False
        before, since = self._heard, now - self._at
        self._heard, self._at = heard, now
        if not before or not 0.0 < since <= GAP_MAX * self._config.query_interval:
            return None
        return (heard - before) / SECOND / since

    def alert(self, heard_pace: float | None, recovery_pace: float | None, *, now: float) -> Alert | None:
        """What to answer, if anything; `recovery_pace` is that of all pubends which recover over the same link."""
        query = self._query
        if query is None:
            return None
        lag = (query.newest - self._heard) / SECOND + now - self._queried_at
        waits = heard_pace is not None and self._heard < query.newest
        if not waits and recovery_pace is None:
            return None
        keeping_up = heard_pace if waits and heard_pace is not None else inf
        recovering = inf if recovery_pace is None else recovery_pace
        return Alert(query.sequence, keeping_up, recovering, lag=lag if waits else 0.0)

"""How fast an edge recovers over one link: the mean pace of all pubends that come over it and are behind.

A pubend is behind if its doubt horizon is more than `lag_max` below what we have heard of, or if we ignore what is
beyond the receive window. All of them are measured in one moment and over the same time, once in a query interval, and
all hear the same number. Each with the others' paces of another moment, as it was, they heard different ones, of a
recovery in which pubends take turns by chance: their rates came apart, up to a quarter at paper scale.

State: where the horizon of each stood, and the pace, smoothed. Bound: the pubends of the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Tick
from penstock.streams.relay import TICKS_PER_SECOND, Relay

SMOOTHING = 0.5
EARLY = 0.75  # of a query interval: pubends that ask within it hear what was measured
GAP_MAX = 3.0  # queries: what was measured over a longer time says nothing of now


class RecoveryPace:
    """That of the pubends behind one link."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._pace: float | None = None
        self._horizons: dict[str, Tick] = {}  # of those that were behind
        self._at = 0.0

    def is_behind(self, relay: Relay) -> bool:
        """Whether a pubend recovers here."""
        return relay.recovering or relay.newest - relay.horizon > self._config.lag_max * TICKS_PER_SECOND

    def look(self, relays: Sequence[Relay], *, now: float) -> float | None:
        """In seconds of ticks per second; None if that cannot be told yet."""
        since, interval = now - self._at, self._config.query_interval
        if self._horizons and 0.0 <= since < EARLY * interval:
            return self._pace
        before, behind = self._horizons, [relay for relay in relays if self.is_behind(relay)]
        self._horizons, self._at = {relay.pubend: relay.horizon for relay in behind}, now
        moved = [relay.horizon - before[relay.pubend] for relay in behind if relay.pubend in before]
        if not moved or not 0.0 < since <= GAP_MAX * interval:
            self._pace = None
            return None
        pace = fmean(moved) / TICKS_PER_SECOND / since
        self._pace = pace if self._pace is None else self._pace + SMOOTHING * (pace - self._pace)
        return self._pace

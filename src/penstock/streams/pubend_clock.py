"""The clock of a pubend, and the ticks that it gives.

A tick is a microsecond of the pubend's own clock, which is the node's clock and a skew. When the node's clock is set
back the skew grows by as much, so that the pubend's clock goes on at normal speed; when the node's clock leaps ahead
the pubend's goes with it. `elapsed` counts seconds of this life and leaps never: between two readings at most
`LEAP_SECONDS` count. What must last for some real time is measured by it.

The *lease* is a tick on disk: nothing beyond it was given to a message or told as silence. A new life begins above the
lease and above the last key of the log, so no tick is given twice, whatever was lost. The lease is written again when
less than half of it is left; until it is on disk ticks stop at the old one.

The *horizon* is the newest tick up to which all is settled: committed data, or silence for ever. It never goes back,
never passes a tick that is being written, and never the lease. Every tick that is given is above all horizons told.
"""

from __future__ import annotations

from penstock.streams.packets import Tick

SECOND = 1_000_000  # ticks
LEAP_SECONDS = 10.0


class PubendClock:
    """The node's clock, made to go forward only."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._now: float | None = None
        self._skew = 0
        self._reading: Tick = 0

    def begin(self, above: Tick, *, now: float) -> None:
        """A life begins; every reading is above this tick."""
        self._now = now
        self._skew = max(0, above + 1 - int(now * SECOND))
        self._reading = above + 1

    def read(self, now: float) -> Tick:
        if self._now is not None:
            passed = now - self._now
            if passed < 0.0:
                self._skew += round(-passed * SECOND)
            else:
                self.elapsed += min(passed, LEAP_SECONDS)
        self._now = now
        self._reading = max(self._reading, int(now * SECOND) + self._skew)
        return self._reading

    def went_back(self, now: float) -> bool:
        """Whether the node's clock stands before the last reading: timers that were set by it come too late."""
        return self._now is not None and now < self._now


class TickSource:
    """Gives ticks, and says which are settled."""

    def __init__(self, lease_seconds: float) -> None:
        self.clock = PubendClock()
        self.lease: Tick = 0  # on disk
        self.horizon_told: Tick = 0
        self._newest: Tick = 0  # given, or told as settled
        self._writing: Tick = 0  # the lowest tick that is on its way to disk; 0: none
        self._length = int(lease_seconds * SECOND)

    def begin(self, lease: Tick, last_key: Tick, *, now: float) -> None:
        """A new life: everything up to what the disk says is settled."""
        self.lease = self._newest = self.horizon_told = max(lease, last_key)
        self.clock.begin(self._newest, now=now)

    def give(self, wanted: int, *, now: float) -> range:
        """Up to so many ticks for one write; fewer, or none, if the lease does not reach. One write at a time."""
        first = max(self._newest + 1, self.clock.read(now))
        last = min(first + wanted - 1, self.lease)
        if last < first:
            return range(0)
        self._newest = last
        self._writing = first
        return range(first, last + 1)

    def left(self, *, now: float) -> int:
        """How many ticks `give` would give at most."""
        return max(0, self.lease + 1 - max(self._newest + 1, self.clock.read(now)))

    def settled(self) -> None:
        """The write has ended: its ticks are data, or silence if it failed."""
        self._writing = 0

    def horizon(self, now: float) -> Tick:
        upto = min(self.lease, max(self.clock.read(now), self._newest))
        if self._writing:
            upto = min(upto, self._writing - 1)
        self.horizon_told = max(self.horizon_told, upto)
        self._newest = max(self._newest, self.horizon_told)
        return self.horizon_told

    def lease_is_low(self, now: float) -> bool:
        """Whether less than half of the lease is left."""
        return self.lease - max(self._newest, self.clock.read(now)) < self._length // 2

    def next_lease(self, now: float) -> Tick:
        return max(self._newest, self.clock.read(now)) + self._length

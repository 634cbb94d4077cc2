"""What no home keeps to is kept to at the link: who sends more than its rate for long is held to it there.

Every publisher on a limited link has a bucket that fills at SLACK times the link's rate. An honest home hears of a
lower rate later, and sends too much for as long; so a bucket holds what the highest rate of the last *window* makes in
that time, and some packets. Who goes on with more than its rate empties it, and what is over is dropped: so it neither
fills the queue nor counts as offered, and the others do not pay for it.

The window is WINDOW, or TRIPS round trips to the farthest home, whichever is longer. Nobody is held to anything before
the link has been limited for as long. A publisher counts by the name in its messages: several that share a name share
one bucket. A home that invents names cannot be held; it can only be cut off.

State: the rates of one window, and a bucket for each publisher that was seen while there is a limit. Bounds: the
announcer's pace, PUBLISHERS_MAX; beyond it publishers are not held to anything.
"""

from __future__ import annotations

from collections import deque

from penstock.rates.meter import PUBLISHERS_MAX

SLACK = 1.05
DEPTH_PACKETS = 8.0
WINDOW, TRIPS = 0.5, 2.0


class Policer:
    """Of one link."""

    def __init__(self) -> None:
        self.dropped = self.dropped_bytes = 0  # since the link carries something
        self._told: deque[tuple[float, float]] = deque()  # since when which rate is in force, the latest last
        self._limited_since: float | None = None
        self._rate: float | None = None  # that a publisher is held to
        self._depth = 0.0
        self._purses: dict[str, tuple[float, float]] = {}  # tokens at a moment

    def told(self, rate: float, now: float) -> None:
        """The link has told this rate."""
        if self._limited_since is None:
            self._limited_since = now
        self._told.append((now, rate))

    def look(self, in_force: bool, packet_bytes: float, trip: float, now: float) -> None:
        """What publishers are held to until the next look; `trip` is the longest round trip."""
        if not in_force or (self._told and self._told[-1][0] > now):  # or the clock was set back
            self._told.clear()
            self._purses.clear()
            self._limited_since = self._rate = None
            return
        window = max(WINDOW, TRIPS * trip)
        while len(self._told) > 1 and self._told[1][0] <= now - window:
            self._told.popleft()
        if self._limited_since is None or now - self._limited_since < window:
            return
        self._rate = SLACK * self._told[-1][1]
        self._depth = window * max(rate for _, rate in self._told) + DEPTH_PACKETS * packet_bytes

    def admits(self, publisher: str, size_bytes: int, now: float) -> bool:
        """Whether this message may go out."""
        rate = self._rate
        if rate is None:
            return True
        purses = self._purses
        purse = purses.get(publisher)
        if purse is None:
            if len(purses) >= PUBLISHERS_MAX and not self._make_room(now):
                return True
            purse = (self._depth, now)
        tokens = min(self._depth, purse[0] + rate * max(0.0, now - purse[1]))
        if tokens <= 0.0:
            self.dropped += 1
            self.dropped_bytes += size_bytes
            purses[publisher] = (tokens, now)
            return False
        purses[publisher] = (tokens - size_bytes, now)
        return True

    def _make_room(self, now: float) -> bool:
        """Forget those whose buckets are full again."""
        rate = self._rate or 0.0
        for name, (tokens, at) in list(self._purses.items()):
            if tokens + rate * (now - at) >= self._depth:
                del self._purses[name]
        return len(self._purses) < PUBLISHERS_MAX

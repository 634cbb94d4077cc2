"""What one link is offered, by whom, and how much it can carry.

Publishers' messages are noted one by one (`note`). At each look the counters of the link (`kernel.link.LinkLoad`) say
what else was offered, what left, what waits, and for how long the link was busy. A look that comes before the interval
is over, or before three packets' time, changes nothing.

Capacity is what left over the busy time, where the link was busy for at least BUSY_LEAST of the time; less busy ones
may only raise it. So a link that is never busy has no capacity, and needs none. Where much leaves and the link is not
busy at all, capacity creeps up: a link that has become faster cannot show how fast while everybody obeys the old rate.

Counters that go back (a new connection) count from where they are.

State: an entry for each publisher seen in the last KNOWN_FOR seconds. Bound: PUBLISHERS_MAX; the others count together
as one.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.kernel.link import LinkLoad

SEEN_FOR = 1.0  # seconds in which a publisher that sent something counts
KNOWN_FOR = 10.0  # and after which it is a newcomer again
PUBLISHERS_MAX = 4_096
BUSY_LEAST = 0.3
HARDLY_BUSY = 0.05
CREEP = 1.05
GAIN = 0.5
OTHER_SECONDS = 0.5  # over which unregulated traffic is averaged
PACKETS_LEAST = 3
INTERVAL_MAX = 2.0
THE_REST = ""  # no client's name


class LinkSight(NamedTuple):
    """One look at a link. Rates are in bytes per second."""

    seconds: float  # since the look before
    offered: float  # by publishers
    other: float  # all else
    capacity: float
    backlog: float  # seconds
    publishers: int  # seen lately
    newcomers: int  # of them, since the look before
    packet_bytes: float


class LinkMeter:
    """Looks at one link."""

    def __init__(self, interval: float, load: LinkLoad, now: float) -> None:
        self.capacity: float | None = None
        self.packet_bytes = 300.0  # of a message, on average
        self._interval = interval
        self._load = load
        self._at = now
        self._bytes = self._packets = 0
        self._seen: dict[str, float] = {}  # publishers, the one that was silent for longest first
        self._newcomers = 0
        self._other = 0.0

    def note(self, publisher: str, size_bytes: int, now: float) -> None:
        """A publisher's message goes out over the link, or finds no room there."""
        self._bytes += size_bytes
        self._packets += 1
        seen = self._seen
        if publisher not in seen and len(seen) >= PUBLISHERS_MAX:
            publisher = THE_REST
        before = seen.pop(publisher, None)  # the latest stands at the end
        self._newcomers += before is None
        seen[publisher] = now

    def idle(self, now: float) -> bool:
        """Whether no publisher has sent anything for so long that nobody need look."""
        return not self._packets and not any(at > now - KNOWN_FOR for at in reversed(self._seen.values()))

    def look(self, load: LinkLoad, now: float) -> LinkSight | None:
        """What happened since the last look; None if it is too early to say, or capacity is not known."""
        seconds = now - self._at
        if seconds < 0.0 or seconds > INTERVAL_MAX:  # a clock that was set, or nobody looked for a while
            self._begin(load, now)
            return None
        if seconds < 0.99 * self._least_seconds():
            return None
        before = self._load
        offered = load.offered_bytes - before.offered_bytes
        left, busy = load.left_bytes - before.left_bytes, load.busy_seconds - before.busy_seconds
        if offered < 0 or left < 0:
            self._begin(load, now)
            return None
        self._measure_capacity(left, busy, seconds)
        if self._packets:
            self.packet_bytes += 0.1 * (self._bytes / self._packets - self.packet_bytes)
        weight = min(1.0, seconds / OTHER_SECONDS)
        self._other += weight * (max(0, offered - self._bytes) / seconds - self._other)
        sight = self._sight(load, seconds, now)
        self._begin(load, now)
        return sight

    def _sight(self, load: LinkLoad, seconds: float, now: float) -> LinkSight | None:
        self._forget(now)
        if self.capacity is None:
            return None
        publishers = sum(1 for at in self._seen.values() if at > now - SEEN_FOR)
        offered, backlog = self._bytes / seconds, load.waiting_bytes / self.capacity
        counts = (max(1, publishers), min(self._newcomers, publishers))
        return LinkSight(seconds, offered, self._other, self.capacity, backlog, *counts, self.packet_bytes)

    def _measure_capacity(self, left: int, busy: float, seconds: float) -> None:
        capacity, share = self.capacity, min(1.0, busy / seconds)
        if share >= BUSY_LEAST:
            measured = left / busy if left else 0.0
            if capacity is None:
                self.capacity = measured or None
            elif measured:
                self.capacity = capacity + GAIN * (measured - capacity)
        elif capacity is not None:
            if share >= HARDLY_BUSY and left / busy > capacity:
                self.capacity = capacity + GAIN * share / BUSY_LEAST * (left / busy - capacity)
            elif share < HARDLY_BUSY and left / seconds > 0.7 * capacity:
                self.capacity = CREEP * capacity
        if self.capacity is not None:
            self.capacity = max(self.capacity, left / seconds)

    def _least_seconds(self) -> float:
        if self.capacity is None:
            return self._interval
        return min(INTERVAL_MAX / 2.0, max(self._interval, PACKETS_LEAST * self.packet_bytes / self.capacity))

    def _forget(self, now: float) -> None:
        seen = self._seen
        while seen:
            first = next(iter(seen))
            if now - KNOWN_FOR < seen[first] <= now:
                return
            del seen[first]

    def _begin(self, load: LinkLoad, now: float) -> None:
        self._load, self._at = load, now
        self._bytes = self._packets = self._newcomers = 0

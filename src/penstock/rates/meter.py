"""What one link is offered, by whom, and how much it can carry.

Publishers' messages are noted one by one (`note`). At each look the counters of the link (`kernel.link.LinkLoad`) say
what else was offered, what left, what waits, and for how long the link was busy. A look that comes before the interval
is over, or before three packets' time, changes nothing.

Capacity is what left over the busy time, where the link was busy for at least BUSY_LEAST of the time; less busy ones
may only raise it. What leaves after a time in which nothing did has taken as long. A lump that leaves at once, as where
TCP has mended a hole, makes a link no faster than it was lately: that takes two looks. So a link that is never busy has
no capacity, and needs none. Where much leaves and the link is not busy at all, capacity creeps up: a link that has
become faster cannot show how fast while everybody obeys the old rate.

While nobody notes messages it is *blind*: it sees how much the link has to do, and no rate follows.

Counters that go back (a new connection) count from where they are.

State: for each publisher seen in the last SEEN_FOR seconds its rate, averaged over RATE_SECONDS. Bound: PUBLISHERS_MAX;
the others count together as one.
"""

from __future__ import annotations

from math import exp, inf
from typing import NamedTuple

from penstock.kernel.link import LinkLoad

SEEN_FOR = 1.0  # seconds in which a publisher that sent something counts
RATE_SECONDS = 0.2
PUBLISHERS_MAX = 4_096
BUSY_LEAST = 0.3
HARDLY_BUSY = 0.05
WHOLLY_BUSY = 0.9
SUDDEN = 0.7  # a link that was busy for two looks and carried less than this part of its capacity has become slower
CREEP = 1.05
LATELY = 4.0  # seconds
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
    publishers: tuple[float, ...]  # what each that was seen lately sends
    packet_bytes: float
    foreign: float = 0.0  # what others than this broker send over the same wire


class LinkMeter:
    """Looks at one link."""

    def __init__(self, interval: float, load: LinkLoad, now: float) -> None:
        self.capacity: float | None = None
        self.packet_bytes = 300.0  # of a message, on average
        self._interval = interval
        self._load = load
        self._at = now
        self._bytes = self._packets = 0
        # The rate of each publisher at a moment, and that moment; the one that was silent for longest first.
        self._seen: dict[str, tuple[float, float]] = {}
        self._other = self._foreign = 0.0
        self._blind = False
        self.strain = 1.0  # the part of the time, or of its capacity, that was used at the last look; 1 before any
        self._measured = inf  # capacity, at the last look that could measure it
        self._left = inf  # bytes per second that left, at the last look
        self._lately = 0.0  # the most that capacity was in the last LATELY seconds or so
        self._stood_busy = self._stood = 0.0  # seconds for which it was busy and nothing left, and of these looks

    def note(self, publisher: str, size_bytes: int, now: float) -> None:
        """A publisher's message goes out over the link, or finds no room there."""
        self._bytes += size_bytes
        self._packets += 1
        seen = self._seen
        if publisher not in seen and len(seen) >= PUBLISHERS_MAX:
            publisher = THE_REST
        rate, at = seen.pop(publisher, (0.0, now))  # the latest stands at the end
        seen[publisher] = (rate * _kept(now - at) + size_bytes / RATE_SECONDS, now)

    def seen(self, publisher: str, now: float) -> None:
        """A publisher's message came and did not go out: it counts among those who want the link."""
        if publisher in self._seen:
            rate, at = self._seen.pop(publisher)
            self._seen[publisher] = (rate * _kept(now - at), now)

    def idle(self, now: float) -> bool:
        """Whether no publisher has sent anything for so long that nobody need look."""
        self._forget(now)
        return not self._packets and not self._seen

    def look(self, load: LinkLoad, now: float) -> LinkSight | None:
        """What happened since the last look; None if it is too early to say, or capacity is not known."""
        seconds = now - self._at
        if seconds < 0.0 or seconds > INTERVAL_MAX:  # a clock that was set, or nobody looked for a while
            self._stood_busy = self._stood = 0.0
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
        full = offered / seconds / self.capacity if self.capacity else 0.0
        self.strain = max(busy / seconds, full)
        if self._blind:
            self._begin(load, now)
            return None
        if self._packets:
            self.packet_bytes += 0.1 * (self._bytes / self._packets - self.packet_bytes)
        weight = min(1.0, seconds / OTHER_SECONDS)
        foreign = max(0, load.foreign_bytes - before.foreign_bytes)
        self._foreign += weight * (foreign / seconds - self._foreign)
        self._other += weight * (max(0, offered - foreign - self._bytes) / seconds - self._other)
        sight = self._sight(load, seconds, now)
        self._begin(load, now)
        return sight

    def _sight(self, load: LinkLoad, seconds: float, now: float) -> LinkSight | None:
        self._forget(now)
        if self.capacity is None:
            return None
        rates = tuple(rate * _kept(now - at) for rate, at in self._seen.values())
        offered, backlog = self._bytes / seconds, load.waiting_bytes / self.capacity
        about = (self._other, self.capacity, backlog, rates, self.packet_bytes)
        return LinkSight(seconds, offered, *about, self._foreign)

    def _measure_capacity(self, left: int, busy: float, seconds: float) -> None:
        if busy > 0.0 and not left:  # what leaves next has taken as long
            self._stood_busy, self._stood = self._stood_busy + busy, self._stood + seconds
            return
        busy, seconds = busy + self._stood_busy, seconds + self._stood
        self._stood_busy = self._stood = 0.0
        capacity, share = self.capacity, min(1.0, busy / seconds)
        before, self._left = self._left, left / seconds
        self._lately = max(capacity or 0.0, self._lately * exp(-seconds / LATELY))
        if share >= BUSY_LEAST:
            measured = left / busy
            if capacity is None:
                self.capacity = measured
            else:
                likely = max(measured, self._measured) if share >= WHOLLY_BUSY else capacity
                sudden = likely < SUDDEN * capacity
                lasting = min(measured, max(capacity, self._measured, self._lately))
                self.capacity = likely if sudden else capacity + GAIN * (lasting - capacity)
            self._measured = measured
        elif capacity is not None:
            if share >= HARDLY_BUSY and left / busy > capacity:
                self.capacity = capacity + GAIN * share / BUSY_LEAST * (left / busy - capacity)
            elif share < HARDLY_BUSY and left / seconds > 0.7 * capacity:
                self.capacity = CREEP * capacity
        if self.capacity is not None:
            self.capacity = max(self.capacity, min(before, self._left))

    def _least_seconds(self) -> float:
        if self.capacity is None:
            return self._interval
        return min(INTERVAL_MAX / 2.0, max(self._interval, PACKETS_LEAST * self.packet_bytes / self.capacity))

    def _forget(self, now: float) -> None:
        seen = self._seen
        while seen:
            first = next(iter(seen))
            if now - SEEN_FOR < seen[first][1] <= now:
                return
            del seen[first]

    def begin(self, load: LinkLoad, now: float, *, blind: bool) -> None:
        """What was noted until now does not count; while blind, nothing will be."""
        self._blind = blind
        self._begin(load, now)

    def _begin(self, load: LinkLoad, now: float) -> None:
        self._load, self._at = load, now
        self._bytes = self._packets = 0


def _kept(seconds: float) -> float:
    """What is left of an average after so long."""
    return exp(-max(0.0, seconds) / RATE_SECONDS)

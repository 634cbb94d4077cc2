"""One link out of a broker, with its meter, its rate, when that is told, and how long its word takes.

A link is busy from `busy_from` of its load on, or with more backlog than is wanted. When it becomes busy, and what it
told before counts no longer, its rate begins anew with an equal share for each publisher.

State: that of the parts. No bound is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.kernel.link import LinkLoad
from penstock.rates.announcer import Announcer
from penstock.rates.config import RatesConfig
from penstock.rates.fair_rate import FairRate, backlog_wanted
from penstock.rates.meter import LinkMeter, LinkSight
from penstock.rates.policer import Policer
from penstock.rates.records import LinkRated
from penstock.rates.round_trips import RoundTrips
from penstock.rates.status import RatedLink

LOAD_SECONDS = 0.3  # a link is not busy because of two packets that came together
QUIET = 0.3
TRIPS = 1.5  # round trips until a change of rate shows


class RatedEgress:
    """A link that carries publishers' messages."""

    def __init__(
        self, config: RatesConfig, queue_packets: int, load: LinkLoad, now: float, versions: Iterator[int]
    ) -> None:
        self.meter = LinkMeter(config.interval, load, now)
        self.announcer = Announcer(config, versions)
        self.trips = RoundTrips()
        self.policer = Policer()
        self._response = config.response
        self._fair = FairRate(config.response, queue_packets)
        self._busy_from = config.busy_from
        self._queue_packets = queue_packets
        self._load = 0.0  # as a part of the capacity, averaged
        self._sight: LinkSight | None = None

    def note(self, publisher: str, size_bytes: int, now: float) -> bool:
        """A publisher's message comes; says whether it may go out."""
        if not self.policer.admits(publisher, size_bytes, now):
            self.meter.seen(publisher, now)
            return False
        self.meter.note(publisher, size_bytes, now)
        return True

    def look(self, load: LinkLoad, now: float) -> float | None:
        """Look at the link; the rate, if it is told now."""
        sight = self.meter.look(load, now)
        if sight is None:
            return None
        self.policer.look(self.announcer.in_force(now), sight.packet_bytes, self.trips.longest(), now)
        self._sight = sight
        busy = self._is_busy(sight)
        if busy and not self.announcer.in_force(now):
            self._fair.rate = None
        self._fair.response = max(self._response, TRIPS * self.trips.mean(now))
        rate = self._fair.update(sight)
        self.announcer.pace(len(sight.publishers), sight.capacity)
        if not self.announcer.tells(rate, busy, now):
            return None
        self.trips.told(self.announcer.version, now)
        self.policer.told(rate, now)
        return rate

    def quiet(self, now: float) -> bool:
        """Whether it has so little to do that nobody need know whose messages these are."""
        return self.meter.strain < QUIET and not self.announcer.in_force(now)

    def _is_busy(self, sight: LinkSight) -> bool:
        queue = self._queue_packets * sight.packet_bytes / sight.capacity
        weight = min(1.0, sight.seconds / LOAD_SECONDS)
        self._load += weight * ((sight.offered + sight.other) / sight.capacity - self._load)
        return self._load >= self._busy_from or sight.backlog > backlog_wanted(sight, queue)

    def status(self) -> RatedLink | None:
        """For reports; None if the link limits nobody."""
        sight, rate = self._sight, self._fair.rate
        if sight is None or rate is None:
            return None
        counts = (sight.capacity, sight.offered, sight.other, sight.backlog, len(sight.publishers))
        return RatedLink(rate, *counts, self.policer.dropped)

    def record(self, neighbour: int) -> LinkRated:
        """For the trace."""
        said = self.status()
        assert said is not None, "it has just been told"
        return LinkRated(neighbour, said.rate, said.capacity, said.offered, said.other, said.backlog, said.publishers)

"""One link to another broker: its share, when that is told, how long its word takes, and who does not keep to it.

When the link becomes busy, and what it told before counts no longer, its rate begins anew with an equal share for each
publisher.

State: that of the parts. No bound is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.kernel.link import LinkLoad
from penstock.rates.announcer import Announcer
from penstock.rates.config import RatesConfig
from penstock.rates.link_share import LinkShare
from penstock.rates.policer import Policer
from penstock.rates.records import LinkRated
from penstock.rates.round_trips import RoundTrips
from penstock.rates.status import RatedLink

QUIET = 0.3
TRIPS = 1.5  # round trips until a change of rate shows


class RatedEgress:
    """A link that carries publishers' messages."""

    def __init__(
        self, config: RatesConfig, queue_packets: int, load: LinkLoad, now: float, versions: Iterator[int]
    ) -> None:
        self.share = LinkShare(config, queue_packets, load, now)
        self.announcer = Announcer(config, versions)
        self.trips = RoundTrips()
        self.policer = Policer()
        self._response = config.response

    def note(self, publisher: str, size_bytes: int, now: float) -> bool:
        """A publisher's message comes; says whether it may go out."""
        meter = self.share.meter
        if not self.policer.admits(publisher, size_bytes, now):
            meter.seen(publisher, now)
            return False
        meter.note(publisher, size_bytes, now)
        return True

    def look(self, load: LinkLoad, now: float) -> float | None:
        """Look at the link; the rate, if it is told now."""
        share, announcer = self.share, self.announcer
        sight = share.see(load, now)
        if sight is None:
            return None
        self.policer.look(announcer.in_force(now), sight.packet_bytes, self.trips.longest(), now)
        if share.busy and not announcer.in_force(now):
            share.fair.rate = None
        share.fair.response = max(self._response, TRIPS * self.trips.mean(now))
        rate = share.fair.update(sight)
        announcer.pace(self.trips.homes, sight.capacity)
        if not announcer.tells(rate, share.busy, now):
            return None
        self.trips.told(announcer.version, now)
        self.policer.told(rate, now)
        return rate

    def quiet(self, now: float) -> bool:
        """Whether it has so little to do that nobody need know whose messages these are."""
        return self.share.meter.strain < QUIET and not self.announcer.in_force(now)

    def status(self) -> RatedLink | None:
        """For reports; None if the link limits nobody."""
        return self.share.status(self.policer.dropped)

    def record(self, neighbour: int) -> LinkRated:
        """For the trace."""
        said = self.status()
        assert said is not None, "it has just been told"
        return LinkRated(neighbour, said.rate, said.capacity, said.offered, said.other, said.backlog, said.publishers)

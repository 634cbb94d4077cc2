"""What a link carries, and what each publisher may send over it: the part that links to brokers and to clients share.

A link is busy from `busy_from` of its load on, or with more backlog than is wanted.

State: that of the parts. No bound is needed.
"""

from __future__ import annotations

from penstock.kernel.link import LinkLoad
from penstock.rates.config import RatesConfig
from penstock.rates.fair_rate import LEAST_SHARE, FairRate, backlog_wanted
from penstock.rates.meter import LinkMeter, LinkSight
from penstock.rates.status import RatedLink

LOAD_SECONDS = 0.3  # a link is not busy because of two packets that came together


class LinkShare:
    """Of one link."""

    def __init__(
        self,
        config: RatesConfig,
        queue_packets: int,
        load: LinkLoad,
        now: float,
        least_share: float = LEAST_SHARE,  # of an equal one, that each publisher gets although the queue is too long
    ) -> None:
        self.meter = LinkMeter(config.interval, load, now)
        self.fair = FairRate(config.response, queue_packets, least_share)
        self.busy = False  # at the last look
        self._busy_from = config.busy_from
        self._queue_packets = queue_packets
        self._load = 0.0  # as a part of the capacity, averaged
        self._sight: LinkSight | None = None

    def see(self, load: LinkLoad, now: float) -> LinkSight | None:
        """Look at the link; None if nothing can be said of it now."""
        sight = self.meter.look(load, now)
        if sight is not None:
            self._sight, self.busy = sight, self._is_busy(sight)
        return sight

    def _is_busy(self, sight: LinkSight) -> bool:
        queue = self._queue_packets * sight.packet_bytes / sight.capacity
        weight = min(1.0, sight.seconds / LOAD_SECONDS)
        self._load += weight * ((sight.offered + sight.other) / sight.capacity - self._load)
        return self._load >= self._busy_from or sight.backlog > backlog_wanted(sight, queue)

    def status(self, policed: int = 0) -> RatedLink | None:
        """For reports; None if the link limits nobody."""
        sight, rate = self._sight, self.fair.rate
        if sight is None or rate is None:
            return None
        counts = (sight.capacity, sight.offered, sight.other, sight.backlog, len(sight.publishers))
        return RatedLink(rate, *counts, policed)

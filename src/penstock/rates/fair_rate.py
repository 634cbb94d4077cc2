"""What each publisher may send over a link, so that it is full, its queue short, and nobody gets more than others.

The law is that of RCP: the rate R grows while less is offered than the link can carry, and falls while more is, or
while the queue is longer than it should be. All publishers are told the same R; whoever needs less leaves the rest to
others, because then R grows. So the shares are max-min fair, whatever the number of publishers and their round trips.

    R <- R clip(1 + (T/d) (0.5 (1 - y/A) - 0.5 (q - q0)/max(d, 0.3 Q)), 0.5, 1.25)

T seconds since the last look, y offered by publishers, A capacity without what is not regulated, q backlog and Q length
of the queue in seconds, q0 the backlog that is wanted, d how long a change takes to show.

R is never above the capacity, nor below LEAST_SHARE of A/N, where N publishers were seen lately: a queue that cannot be
helped by them must not starve them. Newcomers lower R at once, as if each wanted a full share.

State: R. No bound is needed.
"""

from __future__ import annotations

from penstock.rates.meter import LinkSight

GAIN_LOAD = GAIN_BACKLOG = 0.5
FALL_MAX, RISE_MAX = 0.5, 1.25
LEAST_SHARE = 0.7
REGULATED_LEAST = 0.05  # of the capacity, whatever else is sent
BACKLOG_WANTED = 0.02  # seconds
BACKLOG_PACKETS = 1.5
QUEUE_PART = 0.3


class FairRate:
    """The rate of one link, in bytes per second."""

    def __init__(self, response: float, queue_packets: int) -> None:
        self.rate: float | None = None
        self.response = response  # d
        self._queue_packets = queue_packets

    def update(self, sight: LinkSight) -> float:
        """The rate after this look."""
        regulated = max(REGULATED_LEAST * sight.capacity, sight.capacity - sight.other)
        share = regulated / sight.publishers
        if self.rate is None:
            self.rate = share
            return share
        queue = self._queue_packets * sight.packet_bytes / sight.capacity
        lack = 1.0 - sight.offered / regulated
        excess = (sight.backlog - backlog_wanted(sight, queue)) / max(self.response, QUEUE_PART * queue)
        step = sight.seconds / self.response * (GAIN_LOAD * lack - GAIN_BACKLOG * excess)
        rate = self.rate * min(RISE_MAX, max(FALL_MAX, 1.0 + step))
        rate *= (sight.publishers - sight.newcomers + 1) / (sight.publishers + 1)
        self.rate = min(sight.capacity, max(rate, LEAST_SHARE * share))
        return self.rate


def backlog_wanted(sight: LinkSight, queue: float) -> float:
    """Seconds of backlog that keep the link busy, and no more than a quarter of its queue."""
    packets = BACKLOG_PACKETS * sight.packet_bytes / sight.capacity
    return min(max(BACKLOG_WANTED, packets), queue / 4.0)

"""What each publisher may send over a link, so that it is full, its queue short, and nobody gets more than others.

The law is that of RCP: the rate R grows while less is offered than the link can carry, and falls while more is, or
while the queue is longer than it should be. All publishers are told the same R; whoever needs less leaves the rest to
others, because then R grows. So the shares are max-min fair, whatever the number of publishers and their round trips.

    R <- R clip(1 + (T/d) (0.5 (1 - y/A) - 0.5 (q - q0)/max(d, 0.3 Q)), 0.5, 1.25)

T seconds since the last look, y offered by publishers, A capacity without what is not regulated, q backlog and Q length
of the queue in seconds, q0 the backlog that is wanted, d how long a change takes to show.

When A changes R changes with it at once. The first 0.5 is 1 while more is offered than A and the queue is too long.
With half of the queue full R is cut to the part of it that fits, R A/y, once in d.

What others than this broker send over the same wire gets half of it at most: it yields to what we send, as TCP does.
Nor does the queue count then.

R begins with an equal share of A, and is never below LEAST_SHARE of one: a queue that publishers cannot help must not
starve them. It is never above the capacity, nor much above the *level* at which what publishers send would fill the
link: those that send about R are taken to want more, the others to want what they send. So newcomers lower R at once.
While the link has room R soon gets near that level: a few greedy publishers among many quiet ones get what these leave.

State: R, and A at the last look. No bound is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from penstock.rates.meter import LinkSight

GAIN_LOAD, GAIN_OVERLOAD, GAIN_BACKLOG = 0.5, 1.0, 0.5
FALL_MAX, RISE_MAX = 0.5, 1.25
NEAR_LEVEL = (0.95, 1.15)
LEAST_SHARE = 0.7
ROOM = 0.1  # so much less than A is offered: there is room
EXCESS = 0.05  # the queue is too long by this part of what is wanted: there is none
LIMITED_FROM = 0.75  # who sends this part of R is taken to want more
REGULATED_LEAST = 1 / 3  # of the capacity, whatever else is sent: lanes take turns
FOREIGN_MOST = 0.5  # of what is not taken otherwise: a TCP on the same wire takes all that it is left
FOREIGN_ROOM = 1.5  # and it is left more than it sends, so that it can grow to that
FOREIGN_LEAST = 0.05
BACKLOG_WANTED = 0.02  # seconds
BACKLOG_PACKETS = 8.0
QUEUE_PART = 0.3
QUEUE_MOST = 2.0  # seconds: a queue of thousands must not stand full either


class FairRate:
    """The rate of one link, in bytes per second."""

    def __init__(self, response: float, queue_packets: int, least_share: float = LEAST_SHARE) -> None:
        self.rate: float | None = None
        self._regulated = 0.0  # A, at the last look
        self.response = response  # d
        self._since_cut = inf  # seconds
        self._queue_packets = queue_packets
        self._least_share = least_share

    def update(self, sight: LinkSight) -> float:
        """The rate after this look."""
        ours = max(REGULATED_LEAST * sight.capacity, sight.capacity - sight.other)
        regulated = ours - min(FOREIGN_ROOM * sight.foreign, FOREIGN_MOST * ours)
        before, self._regulated = self._regulated, regulated
        share = regulated / max(1, len(sight.publishers))
        if self.rate is None:
            self.rate = share
            return share
        queue = self._queue_packets * sight.packet_bytes / sight.capacity
        lack = 1.0 - sight.offered / regulated
        excess = (sight.backlog - backlog_wanted(sight, queue)) / max(
            self.response, QUEUE_PART * min(queue, QUEUE_MOST)
        )
        if sight.foreign > FOREIGN_LEAST * sight.capacity:
            excess = 0.0  # whose queue it is nobody knows
        gain = GAIN_OVERLOAD if lack < 0.0 and excess > EXCESS else GAIN_LOAD
        step = sight.seconds / self.response * (gain * lack - GAIN_BACKLOG * excess)
        scaled = self.rate * regulated / before
        rate = scaled * min(RISE_MAX, max(FALL_MAX, 1.0 + step))
        self._since_cut += sight.seconds
        if lack < 0.0 and excess > EXCESS and sight.backlog > queue / 2.0 and self._since_cut >= self.response:
            self._since_cut = 0.0  # what follows from it shows only after a while
            rate = min(rate, scaled * regulated / sight.offered)
        level, (least, most) = fair_level(sight.publishers, self.rate, regulated), NEAR_LEVEL
        if lack > ROOM and excess < 0.0:
            rate = max(rate, min(RISE_MAX * scaled, least * level))
        self.rate = min(sight.capacity, max(self._least_share * share, min(most * level, rate)))
        return self.rate


def fair_level(publishers: Sequence[float], rate: float, capacity: float) -> float:
    """The rate at which those who want more and those who send less than it fill the capacity together.

    If nobody wants more, it is what the largest could send.
    """
    limit = LIMITED_FROM * rate
    left, remaining = len(publishers), capacity
    largest = 0.0
    for sent in sorted(publishers):
        if sent >= limit or sent * left > remaining:
            return remaining / left
        largest = sent
        remaining -= sent
        left -= 1
    return largest + remaining


def backlog_wanted(sight: LinkSight, queue: float) -> float:
    """Seconds of backlog that keep the link busy, and no more than a quarter of its queue."""
    packets = BACKLOG_PACKETS * sight.packet_bytes / sight.capacity
    return min(max(BACKLOG_WANTED, packets), queue / 4.0)

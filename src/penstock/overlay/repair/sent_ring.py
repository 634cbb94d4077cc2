"""The sending end: the datagrams of about the last second, sent again when the other end asks.

A datagram gets its number when it leaves for the wire. What a full queue of ours dropped before has none, and is not
repaired. A queue in the middle of the way may drop too: there repairs would only push out fresh datagrams, and hide
from the ends that they send too much. So repairs are paid from a purse: each datagram adds `share` of its size. Each
LinkNack that says the way is congested halves the share, and leaves little in the purse; each that does not adds
`share_step` again.

The other end finds a gap by the number after it. After the last datagram of a burst there is none, so the last number
is told (`LinkTail`): with whatever control leaves for the neighbour anyway (`untold_tail`), and, for `lossy_for` after
a LinkNack, by itself after a silence of `tail_gaps` mean gaps. So a link that loses nothing carries nothing for this.

State: the ring, bounded by age, count and bytes, and a few datagrams more; the purse. Timer: the tail.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from penstock.overlay.repair.config import RepairConfig
from penstock.overlay.repair.controls import LinkNack, LinkTail

Item = TypeVar("Item")

GAP_WEIGHT = 0.125  # of the latest gap between two datagrams in their mean
FORGET_EVERY = 16  # datagrams; and whenever somebody asks
NEVER = float("inf")


class Resend(NamedTuple, Generic[Item]):
    """A datagram to be sent again, under its number."""

    number: int
    item: Item


class SentRing(Generic[Item]):
    """What was sent on one link."""

    def __init__(self, config: RepairConfig) -> None:
        self.next_number = 0
        self.resent = 0  # datagrams
        self.resent_bytes = 0
        self.gone = 0  # asked for, and not kept any more
        self.withheld = 0  # asked for, and the purse was empty
        self.tail_at = NEVER
        self._config = config
        self._ring: deque[tuple[float, int, Item]] = deque()  # of all numbers before the next one
        self._ring_bytes = 0
        self._share = config.share
        self._purse = float(config.burst_bytes)
        self._sent_at = -NEVER
        self._mean_gap = config.tail_after_max
        self._told = 0  # the number after the last one that the other end was told, or is known to know of
        self._tail_told = 0  # how often, since something was sent
        self._lossy_until = -NEVER

    def sent(self, item: Item, size_bytes: int, now: float) -> int:
        """A datagram leaves; returns its number."""
        config, number = self._config, self.next_number
        self.next_number = number + 1
        self._ring.append((now, size_bytes, item))
        self._ring_bytes += size_bytes
        if not number % FORGET_EVERY:
            self._forget(now)
        if self._purse < config.burst_bytes:
            self._purse += self._share * size_bytes
        gap = now - self._sent_at
        self._mean_gap += GAP_WEIGHT * (
            (gap if gap < config.tail_after_max else config.tail_after_max) - self._mean_gap
        )
        self._sent_at = now
        if now < self._lossy_until:
            self._tail_told = 0
            self.tail_at = now + self._tail_after()
        return number

    def sent_at(self, number: int) -> float | None:
        """When this datagram left; None if that is forgotten."""
        place = number - (self.next_number - len(self._ring))
        return self._ring[place][0] if 0 <= place < len(self._ring) else None

    def asked(self, nack: LinkNack, now: float) -> list[Resend[Item]]:
        """The other end misses something; returns what goes out again."""
        config = self._config
        self._lossy_until = now + config.lossy_for
        if nack.congested:
            self._share = max(config.share_min, self._share / 2.0)
            self._purse = min(self._purse, float(config.burst_min_bytes))
        else:
            self._share = min(config.share, self._share + config.share_step)
        self._forget(now)
        found: list[Resend[Item]] = []
        first_kept = self.next_number - len(self._ring)
        for first, last in nack.ranges:
            self.gone += max(0, min(last + 1, first_kept) - first)
            for number in range(max(first, first_kept), min(last + 1, self.next_number)):
                _, size_bytes, item = self._ring[number - first_kept]
                if self._purse < size_bytes:
                    self.withheld += 1
                    continue
                self._purse -= size_bytes
                self.resent += 1
                self.resent_bytes += size_bytes
                found.append(Resend(number, item))
        return found

    def known(self, next_number: int) -> None:
        """The other end is known to know of all numbers below this one."""
        self._told = max(self._told, next_number)
        if self._told >= self.next_number:
            self.tail_at = NEVER

    def untold_tail(self) -> LinkTail | None:
        """The last number, if the other end may not know of it."""
        if self._told >= self.next_number:
            return None
        self._told = self.next_number
        return LinkTail(self.next_number - 1)

    def tail_due(self, now: float) -> LinkTail | None:
        """The last number, if it is time to tell it by itself."""
        if now < self.tail_at:
            return None
        self._tail_told += 1
        again = self._tail_told < self._config.tail_times
        self.tail_at = now + 2.0 * self._tail_after() if again else NEVER
        self._told = self.next_number
        return LinkTail(self.next_number - 1)

    def _tail_after(self) -> float:
        config = self._config
        return min(max(config.tail_gaps * self._mean_gap, config.tail_after_min), config.tail_after_max)

    def _forget(self, now: float) -> None:
        config, ring = self._config, self._ring
        oldest = now - config.keep_for
        while ring and (
            ring[0][0] < oldest or self._ring_bytes > config.keep_bytes or len(ring) > config.keep_datagrams
        ):
            self._ring_bytes -= ring.popleft()[1]

"""Whether datagrams are lost because a queue on the way is full: from how long they take.

Each datagram says when it left, on the clock of its sender, in milliseconds. The differences to our clock say nothing
by themselves; how they change says how long datagrams wait on the way. The least counts as no waiting; it rises by
`LEAST_RISE`, so that clocks may drift and ways may change, and a queue that is never empty is still known as one for
minutes. The longest wait falls towards it. A loss is noticed by the datagram after it: if that one waited long (above
`HIGH_MIN` and above half of the longest) the loss counts as high. A drop-tail queue drops when it is full and at no
other time, so there nearly all losses are high; losses of the wire fall anywhere. With `HIGH_SHARE` of the last losses
high, at least `LOSSES_MIN` of them, the way is congested.

State: the least, the longest, and one bit for each of the last losses.
"""

from __future__ import annotations

from collections import deque

STAMP_BITS = 18
STAMP_MASK = (1 << STAMP_BITS) - 1  # milliseconds: 262 s, then from the beginning
LEAST_RISE = 0.5  # milliseconds per second
LONGEST_FALL = 0.05  # of itself, per second
HIGH_MIN = 10  # milliseconds
HIGH_SHARE = 0.75
LOSSES_KEPT = 16
LOSSES_MIN = 8


def stamp_of(time: float) -> int:
    """When a datagram leaves, as it says itself."""
    return int(time * 1e3) & STAMP_MASK


class QueueDelay:
    """How long datagrams wait on the way, and how long those beside a loss did."""

    __slots__ = ("_at", "_high", "_least", "_longest", "_reference", "_waited")

    def __init__(self) -> None:
        self._reference: int | None = None
        self._at = 0.0
        self._least = self._longest = 0.0  # the least against the reference, the longest against the least
        self._waited = 0.0  # by the latest datagram, against the least
        self._high: deque[bool] = deque(maxlen=LOSSES_KEPT)

    def arrived(self, stamp: int, now: float) -> None:
        """A datagram that left at this time has come."""
        difference = int(now * 1e3) - stamp
        if self._reference is None:
            self._reference, self._at = difference, now
        shift = (difference - self._reference) & STAMP_MASK
        waited = float(shift if shift <= STAMP_MASK >> 1 else shift - STAMP_MASK - 1)
        passed, self._at = now - self._at, now
        least = self._least + LEAST_RISE * passed
        self._least = least = least if least < waited else waited
        self._waited = waited = waited - least
        longest = self._longest * (1.0 - LONGEST_FALL * passed) if passed < 1.0 else self._longest * 0.95
        self._longest = longest if longest > waited else waited

    def lost(self) -> None:
        """The latest datagram showed that some before it are missing."""
        self._high.append(self._waited > HIGH_MIN and 2.0 * self._waited > self._longest)

    @property
    def congested(self) -> bool:
        """Whether losses go with long waits."""
        return len(self._high) >= LOSSES_MIN and sum(self._high) >= HIGH_SHARE * len(self._high)

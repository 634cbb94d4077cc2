"""Whether datagrams are lost because a queue on the way is full: from how long they take.

Each datagram says when it left, on the clock of its sender, in milliseconds. The differences to our clock say nothing
by themselves; how they change says how long datagrams wait on the way. The least of the last 10 to 20 s counts as no
waiting. A loss is noticed by the datagram after it: if that one waited long (above `HIGH_MIN` and above half of the
longest wait of that time) the loss counts as high. A drop-tail queue drops when it is full and at no other time, so
there nearly all losses are high; losses of the wire fall anywhere. With `HIGH_SHARE` of the last losses high, at least
`LOSSES_MIN` of them, the way is congested.

State: two spans of least and longest, and one bit for each of the last losses.
"""

from __future__ import annotations

from collections import deque

STAMP_BITS = 18
STAMP_MASK = (1 << STAMP_BITS) - 1  # milliseconds: 262 s, then from the beginning
SPAN = 10.0  # seconds
HIGH_MIN = 10  # milliseconds
HIGH_SHARE = 0.75
LOSSES_KEPT = 16
LOSSES_MIN = 8


def stamp_of(time: float) -> int:
    """When a datagram leaves, as it says itself."""
    return int(time * 1e3) & STAMP_MASK


class QueueDelay:
    """How long datagrams wait on the way, and how long those beside a loss did."""

    __slots__ = ("_high", "_least", "_longest", "_past_least", "_past_longest", "_reference", "_span_ends", "_waited")

    def __init__(self) -> None:
        self._reference: int | None = None
        self._span_ends = 0.0
        self._least = self._past_least = 0
        self._longest = self._past_longest = 0
        self._waited = 0  # by the latest datagram, against the reference
        self._high: deque[bool] = deque(maxlen=LOSSES_KEPT)

    def arrived(self, stamp: int, now: float) -> None:
        """A datagram that left at this time has come."""
        difference = int(now * 1e3) - stamp
        if self._reference is None:
            self._reference, self._span_ends = difference, now + SPAN
        waited = (difference - self._reference) & STAMP_MASK
        if waited > STAMP_MASK >> 1:
            waited -= STAMP_MASK + 1
        self._waited = waited
        if now >= self._span_ends:
            self._past_least, self._past_longest = self._least, self._longest
            self._least = self._longest = waited
            self._span_ends = now + SPAN
        elif waited < self._least:
            self._least = waited
        elif waited > self._longest:
            self._longest = waited

    def lost(self) -> None:
        """The latest datagram showed that some before it are missing."""
        least = min(self._least, self._past_least)
        waited, longest = self._waited - least, max(self._longest, self._past_longest) - least
        self._high.append(waited > HIGH_MIN and 2 * waited > longest)

    @property
    def congested(self) -> bool:
        """Whether losses go with long waits."""
        return len(self._high) >= LOSSES_MIN and sum(self._high) >= HIGH_SHARE * len(self._high)

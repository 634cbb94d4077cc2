"""How fast datagrams may go where nobody knows the rate of the way: as fast as TCP would, by what the way loses.

A datagram link without a rate may cross a queue that is not ours, alone or beside others. Its neighbour asks for what
was lost (`overlay.repair`), so its sender can count: TCP's equation over loss events and round trips says what one TCP
connection would reach there. PART times that is the link's rate from then on: measured beside one TCP of the kernel,
which takes more than the equation says. So the queue stands at the port, where fair rates of links see it, and foreign
traffic gets its share.

A round trip is from when the last datagram of a gap left until it was asked for; that includes the queue on the way.
The equation counts packets: ours are datagrams, of their mean size, up to a frame where the link gathers them. The rate
is at least PACKETS_LEAST for each round trip. While nothing is lost the queue may be gone: what is above the shortest
round trip counts half every TRIP_HALVED. A way that has lost nothing for FORGOTTEN_AFTER has no rate. What is
asked for again is no further loss.

State: the loss history, a smoothed round trip, some numbers. No bound is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.overlay.repair.controls import Range
from penstock.transport.receiver.loss_intervals import LossIntervals

PACKET_BYTES = 500.0  # of a datagram, before anything is known
SIZE_WEIGHT = 0.1
PART = 1.5
PACKETS_LEAST = 2.0
INTERVALS = 4  # of the loss history: a link follows its way sooner than a receiver far away
SENT_SECONDS = 0.5  # over which what left is averaged
TRIP_MIN, TRIP_MAX, TRIP_WEIGHT = 0.001, 2.0, 0.25
TRIP_HALVED = 2.0
FORGOTTEN_AFTER = 30.0
RATE_MAX = 1e12


class PathPace:
    """Of one link."""

    def __init__(self) -> None:
        self.rate: float | None = None  # bytes per second; None: any
        self._losses = LossIntervals(INTERVALS, "optimistic", discounting=True)
        self._trip = 0.0
        self._shortest = TRIP_MAX
        self._lost_to = -1  # the highest number that was asked for
        self._counted = 0  # datagrams up to this number are in the history
        self._lost_at = 0.0
        self._sent_bytes = self._sent_datagrams = 0
        self._packet_bytes = PACKET_BYTES
        self._sent_rate = 0.0
        self._at = 0.0

    def sent(self, sent_bytes: int, next_number: int, now: float) -> None:
        """So much has left in all, in so many datagrams; to be told now and then."""
        datagrams = next_number - self._sent_datagrams
        if datagrams > 0:
            mean = (sent_bytes - self._sent_bytes) / datagrams
            self._packet_bytes += SIZE_WEIGHT * (mean - self._packet_bytes)
        self._sent_datagrams = next_number
        seconds = now - self._at
        if not seconds > 0.0:
            self._at, self._sent_bytes = now, sent_bytes
            return
        weight = min(1.0, seconds / SENT_SECONDS)
        self._sent_rate += weight * ((sent_bytes - self._sent_bytes) / seconds - self._sent_rate)
        self._at, self._sent_bytes = now, sent_bytes

    def lost(
        self, ranges: Sequence[Range], sent_at: Callable[[int], float | None], next_number: int, now: float
    ) -> None:
        """The neighbour asks for these numbers; `next_number` is that of the next datagram."""
        last = ranges[-1][1]
        if last <= self._lost_to or last >= next_number:
            return
        fresh = sum(max(0, end - max(first, self._lost_to + 1) + 1) for first, end in ranges)
        left_at = sent_at(last)
        if left_at is not None:
            trip = min(TRIP_MAX, max(TRIP_MIN, now - left_at))
            self._trip = trip if not self._trip else self._trip + TRIP_WEIGHT * (trip - self._trip)
            self._shortest = min(self._shortest, trip)
        self._came(last + 1 - fresh)
        self._counted = max(self._counted, last + 1)
        self._lost_to, self._lost_at = last, now
        trip = self._trip or TRIP_MIN
        self._losses.dropped_here(round_trip=trip, reception_rate=self._sent_rate / self._packet_bytes, now=now)
        self.update(next_number, now)

    def update(self, next_number: int, now: float) -> None:
        """Work the rate out anew; `next_number` is that of the next datagram."""
        if not self._losses.events:
            return
        if not 0.0 <= now - self._lost_at < FORGOTTEN_AFTER:
            self._losses = LossIntervals(INTERVALS, "optimistic", discounting=True)
            self.rate = None
            return
        self._came(next_number)
        trip = TRIP_MIN
        if self._trip:
            above = max(0.0, self._trip - self._shortest)
            trip = self._trip - above + above * 0.5 ** ((now - self._lost_at) / TRIP_HALVED)
        allowed = PART * self._packet_bytes * self._losses.allowed(trip)
        least = PACKETS_LEAST * self._packet_bytes / trip
        self.rate = min(RATE_MAX, max(least, allowed))

    def _came(self, below: int) -> None:
        """Datagrams below this number were not asked for."""
        if below > self._counted:
            self._losses.came(below - self._counted)
            self._counted = below

"""Others' messages, kept for those who may have lost them: a ring per publisher that sizes itself (002 section 4.2.4).

A message must be kept until a request for it may have come, and not much longer. How long that is depends on how far
the requesters are and how long they wait, which their requests carry, and on how fast messages come, which is measured
here. `next_size` is the rule (Algorithm 4.2, corrected); `RepairCache.tune` applies it to all rings once per interval.

State, per publisher and life: the messages in the order of arrival, the wanted size K as a real number, the rate of
reception, a running hit ratio, running means of what requests carried, and when we last sent a repair. The *active
repairer* of a publisher, which the paper calls the closest and does not define (erratum R5), is whoever sent a repair
for it in the last ACTIVE_FOR seconds: the suppression timers of SRM see to it that this is the nearest one.

The hit ratio counts every request that reached us and is about this publisher, as the paper says: also those for
messages that we never had, and which no size would help. It is 1 while nobody has asked.

A cache that is asked for what it has dropped grows too, by a tenth in each interval in which that happens: every
caching node increases its size while its hit ratio is low (section 4.2.4), where Algorithm 4.2 lets only the closest do
so. Who never hits never sends a repair, and would stay at the minimum for ever.

Bounds: `cache_max` messages per ring, `sessions_max` rings; the ring that was used least recently gives way, with a
record, and one that was idle for `session_idle` is forgotten. Requests make no rings: only messages do. No timers: the
owner calls `tune`.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import NamedTuple

from penstock.content.message import Message
from penstock.kernel.rate_estimator import RateEstimator
from penstock.kernel.trace import Counted, LimitReached, Record
from penstock.transport.config import TransportConfig
from penstock.transport.wire.control_messages import Key, Request

ACTIVE_FOR = 5.0  # seconds after a repair in which one counts as active repairer
RATE_WINDOW = 5.0
GROWTH, SHRINKAGE = 1.1, 0.9  # Algorithm 4.2
HITS_KEPT = 0.95  # of the hit statistics from one request to the next: the last 20 requests or so count
SMOOTHING = 0.1  # the weight of a new request in the running means


class Kept(NamedTuple):
    """A message as it was published, and when it left its publisher, by that one's clock."""

    message: Message
    departure: float


class RequestMeans(NamedTuple):
    """What requests carry about how long a message must be kept; running means."""

    to_publisher: float  # d_ZB, from the publisher to who asks
    first: float  # C1
    spread: float  # C2
    to_requester: float  # d_BA, from who asks to us


def needed_size(request_means: RequestMeans, rate: float) -> float:
    """How many messages of the last ones must be kept, so that a request still finds the one it is about.

    B, who lost a message, learns of it from the next one, d_ZB + 1/r after that left. It waits (C1 + C2/2) d_ZB on
    average, and its request takes d_BA. In a ring of K messages that come at rate r each stays K/r. So
        K/r >= d_ZB + 1/r + (C1 + C2/2) d_ZB + d_BA,   or   K >= r ((C1 + C2/2 + 1) d_ZB + d_BA) + 1.
    The paper's bound loses the 1, its algorithm has it (erratum R1). In the derivation 1/r is the time between two
    messages at B, which A cannot know: A takes its own, and d_ZB comes with the request by itself (erratum R5).
    """
    waits = request_means.first + request_means.spread / 2.0 + 1.0
    return rate * (waits * request_means.to_publisher + request_means.to_requester) + 1.0


def next_size(
    size: float,
    *,
    active: bool,
    hits_enough: bool,
    needed: float,
    size_min: int,
    size_max: int,
    missed: bool = False,  # somebody asked for what this ring has dropped
) -> float:
    """The corrected Algorithm 4.2: the wanted size, a real number, after one interval.

    The active repairer takes what is needed at once, and 10 % more than it had while too few requests hit. Who was
    asked in vain for what it once had takes 10 % more, too. Everybody else shrinks by 10 %. Departures (erratum R4): a
    result out of range is clamped, where the paper then leaves the size as it is and a ring could get stuck just above
    its minimum; the size is a real number between runs, for 1.1 times 5 truncated is 5 and would never grow; and an
    active repairer that hits enough also shrinks by no more than 10 % at a time, as the paper's text has it, where its
    algorithm would cut the ring to what is needed at once.
    """
    if not active:
        wanted = (GROWTH if missed and not hits_enough else SHRINKAGE) * size
    elif hits_enough:
        wanted = max(needed, SHRINKAGE * size)
    else:
        wanted = max(needed, GROWTH * size)
    return min(float(size_max), max(float(size_min), wanted))


class _Ring:
    """One publisher's messages in one of its lives."""

    __slots__ = (
        "bytes",
        "capacity",
        "dropped",
        "entries",
        "hits",
        "missed",
        "rate",
        "repaired_at",
        "request_means",
        "requests",
        "size",
        "used_at",
    )

    def __init__(self, size: float, now: float) -> None:
        self.entries: dict[int, Kept] = {}  # by sequence number, oldest arrival first
        self.size = size  # K
        self.capacity = ceil(size)  # how many messages it may hold
        self.rate = RateEstimator(RATE_WINDOW)
        self.bytes = 0
        self.used_at = now
        self.request_means: RequestMeans | None = None
        self.dropped = 0  # the highest number that had to go
        self.missed = False  # whether somebody asked for such a one since the size was given
        self.hits = 0.0
        self.requests = 0.0
        self.repaired_at: float | None = None

    @property
    def hit_ratio(self) -> float:
        """Which share of the requests found their message, lately; 1 while there were none."""
        return self.hits / self.requests if self.requests else 1.0

    def put(self, sequence: int, kept: Kept, now: float) -> None:
        """Keep it, in the place of the oldest if there is no room; one that is here already keeps its place."""
        self.used_at = now
        if sequence not in self.entries:
            self.rate.add(now)
            self.entries[sequence] = kept
            self.bytes += kept.message.size_bytes
            if len(self.entries) > self.capacity:
                self.drop_oldest()

    def drop_oldest(self) -> None:
        """Forget the one that came first."""
        oldest = next(iter(self.entries))
        self.dropped = max(self.dropped, oldest)
        self.bytes -= self.entries.pop(oldest).message.size_bytes

    def resize(self, size: float) -> None:
        """Hold no more than so many, rounded up."""
        self.size, self.capacity = size, ceil(size)
        while len(self.entries) > self.capacity:
            self.drop_oldest()


class RepairCache:
    """Messages of others, by publisher, life and sequence number."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._first_size = float(config.cache_max if config.cache_fixed else config.cache_min)
        self._rings: OrderedDict[tuple[str, int], _Ring] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(ring.entries) for ring in self._rings.values())

    def put(self, key: Key, message: Message, departure: float, now: float) -> list[Record]:
        """Keep a message that has come; one that is here already keeps its place."""
        place = (key.publisher, key.incarnation)
        ring = self._rings.get(place)
        records: list[Record] = []
        if ring is None:
            records = self._make_room()
            ring = self._rings[place] = _Ring(self._first_size, now)
        else:
            self._rings.move_to_end(place)
        ring.put(key.sequence, Kept(message, departure), now)
        if message.size_bytes * self._config.cache_max > self._config.kept_bytes_max:  # large messages: fewer are kept
            while ring.bytes > self._config.kept_bytes_max and len(ring.entries) > 1:
                ring.drop_oldest()
        return records

    def get(self, key: Key) -> Kept | None:
        """The message, if it is still here."""
        ring = self._rings.get((key.publisher, key.incarnation))
        return ring.entries.get(key.sequence) if ring is not None else None

    def note_request(self, request: Request, distance_to_requester: float, now: float) -> None:
        """A request has come: learn from what it carries, and whether we have what it asks for."""
        ring = self._rings.get((request.key.publisher, request.key.incarnation))
        if ring is None:
            return
        sequence = request.key.sequence
        here = sequence in ring.entries
        ring.missed = ring.missed or (not here and sequence <= ring.dropped)
        ring.hits = ring.hits * HITS_KEPT + here
        ring.requests = ring.requests * HITS_KEPT + 1.0
        reported = RequestMeans(request.distance, request.first, request.spread, distance_to_requester)
        old = ring.request_means
        if old is None:
            ring.request_means = reported
        else:
            ring.request_means = RequestMeans(
                *[mean + SMOOTHING * (new - mean) for mean, new in zip(old, reported, strict=True)]
            )

    def note_repair_sent(self, key: Key, now: float) -> None:
        """We sent this message again: for a while we are the active repairer of its publisher."""
        ring = self._rings.get((key.publisher, key.incarnation))
        if ring is not None:
            ring.repaired_at = now

    def tune(self, now: float) -> list[Record]:
        """Give every ring its size for the next interval, and forget those of publishers that have ended."""
        records: list[Record] = []
        for place, ring in list(self._rings.items()):
            if now - ring.used_at >= self._config.session_idle:
                del self._rings[place]
                continue
            before = ring.capacity
            if not self._config.cache_fixed:
                ring.resize(self._next_size(ring, now))
                ring.missed = False
            if ring.capacity != before or ring.capacity > self._config.cache_min:
                records.append(Counted("cache entries", place[0], ring.capacity))
        return records

    def capacity(self, publisher: str, incarnation: int) -> int:
        """How many messages of this publisher's life may be kept now; 0 if there is no ring for it."""
        ring = self._rings.get((publisher, incarnation))
        return ring.capacity if ring is not None else 0

    def hit_ratio(self, publisher: str, incarnation: int) -> float:
        """Which share of the requests about this publisher's life was answered from here, lately."""
        ring = self._rings.get((publisher, incarnation))
        return ring.hit_ratio if ring is not None else 1.0

    def _next_size(self, ring: _Ring, now: float) -> float:
        active = ring.repaired_at is not None and now - ring.repaired_at <= ACTIVE_FOR
        needed = (
            needed_size(ring.request_means, ring.rate.rate(now)) if active and ring.request_means is not None else 0.0
        )
        return next_size(
            ring.size,
            active=active,
            hits_enough=ring.hit_ratio >= self._config.cache_hit_ratio,
            needed=needed,
            size_min=self._config.cache_min,
            size_max=self._config.cache_max,
            missed=ring.missed,
        )

    def _make_room(self) -> list[Record]:
        limit = self._config.sessions_max
        if len(self._rings) < limit:
            return []
        self._rings.popitem(last=False)
        return [LimitReached("cached publishers", limit)]

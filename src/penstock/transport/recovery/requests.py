"""Who lacks a message requests it; suppression timers see to it that one asks for all (002 section 4.2; outside: SRM).

When a loss is declared a suppression timer starts, drawn from 2^i [C1 d, (C1 + C2) d], d being the distance to the
publisher and i zero. When it expires the request is sent, i grows by one and the timer is drawn anew. Whoever receives
another's request for what it waits for itself does the same without sending: one request is enough for all, if it is
answered. So as not to back off twice for one round of requests, what is received in the first half of a redrawn timer
is only counted. After `requests_max` requests and one more timer the message is given up: a Bloom filter's false
positive looks like a loss that nobody can repair (erratum R6, which also asks for the ignore window; 002 gives
neither).

Straight to the publisher (`request_to = "publisher"`) nobody else receives the request, so nothing can be suppressed
and a long timer would buy nothing. The first one is drawn from [0, 0.1 d]: enough that the requests for a burst, or of
many who lost the same message, do not leave in one instant, and at most a twentieth of the round trip that follows. The
next ones are drawn from 2^i [3 d, 4 d]: one and a half to two round trips, so that a repair on its way is not asked for
again. Where repairs go to the requester alone (`repair_to = "requester"`) another's request brings us nothing either:
requests are received and counted, but suppress nothing.

State: one entry per message that is asked for, and the keys that were given up lately, which are not begun again.
Timers: REQUEST (publisher, incarnation, sequence), exactly one per entry. Bounds:
`requests_pending_max` entries. When they are all taken a new loss is refused and recorded: those that have begun are
nearer to their repair, and have already cost others something. Others' requests move a timer at most `requests_max`
times, so that nobody can suppress a client for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from penstock.kernel.timers import Key as TimerKey
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.records import GaveUp, Recovered, RequestSent
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.recovery.suppression_timers import SuppressionTimers
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import (
    ControlIdentities,
    Key,
    Repair,
    Request,
    request_to_peers,
    request_to_publisher,
)

STRAIGHT = (0.0, 0.1)  # C1, C2 of the first request to the publisher itself
STRAIGHT_RETRY = (1.5, 0.5)  # of the next ones, doubled at least once: then they are in round trips
IGNORED = 0.5  # of a redrawn timer, in which others' requests move nothing (outside: SRM)


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How it went with a message that was asked for, or would have been."""

    detected_at: float
    first_request_at: float | None  # None: it came without a request of ours
    attempts: int


@dataclass(slots=True)
class _Pending:
    encoding: int
    detected_at: float
    distance: float = 0.0  # for which the present timer was drawn
    doublings: int = 0  # i
    attempts: int = 0
    backed_off: int = 0
    others: int = 0  # that asked for it, retries not counted
    requested: bool = False  # somebody has asked, we or another
    ignore_until: float = float("-inf")
    first_request_at: float | None = None


class Requests:
    """The requests of one client."""

    def __init__(
        self,
        name: str,
        config: TransportConfig,
        timers: ServiceTimers,
        random: Random,
        distances: DistanceEstimator,
        identities: ControlIdentities,
    ) -> None:
        self.sent = 0
        self.suppressed = 0  # timers that began anew because another had asked
        self.given_up = 0
        self.came_after_all = 0  # of those given up, how many were received later
        self.recovered = 0
        self.duplicates = 0  # requests received for what had been asked for already
        self.refused = 0  # losses for which there was no room
        self.suppression = SuppressionTimers(
            config.request_first, config.request_spread, adaptive=config.adaptive_suppression
        )
        self._name = name
        self._config = config
        self._timers = timers
        self._random = random
        self._distances = distances
        self._identities = identities
        self._straight = config.request_to == "publisher"
        self._holds_back = not self._straight and config.repair_to == "all"
        self._opening = SuppressionTimers(*STRAIGHT, adaptive=False) if self._straight else self.suppression
        self._retry = SuppressionTimers(*STRAIGHT_RETRY, adaptive=False) if self._straight else self.suppression
        self._pending: dict[Key, _Pending] = {}
        self._given_up_at: dict[Key, float] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._pending)

    def pending(self, key: Key) -> bool:
        """Whether it is being asked for."""
        return key in self._pending

    def encoding(self, key: Key) -> int | None:
        """What is known of the message that is being asked for; None if it is not."""
        entry = self._pending.get(key)
        return None if entry is None else entry.encoding

    def lost(self, key: Key, encoding: int, now: float) -> list[TransportEffect]:
        """A message did not come: ask for it soon, unless it is asked for already or was given up lately."""
        if key in self._pending or self._gave_up_lately(key, now):
            return []
        if len(self._pending) >= self._config.requests_pending_max:
            self.refused += 1
            return [LimitReached("requests", self._config.requests_pending_max)]
        entry = self._pending[key] = _Pending(encoding, now)
        self._set_timer(key, entry, self._opening, now)
        return self._distances.ask(key.publisher, now)

    def received(self, key: Key, now: float) -> RequestOutcome | None:
        """The message has come, late or as a repair: no more requests. None if it was not asked for."""
        entry = self._pending.pop(key, None)
        if entry is None:
            if self._given_up_at and self._given_up_at.pop(key, None) is not None:
                self.came_after_all += 1
            return None
        self._timers.cancel(TransportTimer.REQUEST, key.publisher, key.incarnation, key.sequence)
        self.recovered += 1
        self._ended(entry)
        return RequestOutcome(entry.detected_at, entry.first_request_at, entry.attempts)

    def request_received(self, request: Request, now: float) -> list[TransportEffect]:
        """Somebody asks for a message; if we were about to, one request is enough for now."""
        entry = self._pending.get(request.key)
        if entry is None or request.requester == self._name or self._straight:
            return []
        if request.attempt <= 1:
            entry.others += 1
            self.duplicates += entry.requested
        self._note_request(entry, now)
        if self._holds_back and now >= entry.ignore_until and entry.backed_off < self._config.requests_max:
            entry.backed_off += 1
            self.suppressed += 1
            self._double(request.key, entry, now)
        return []

    def expired(self, timer: TimerKey, now: float) -> list[TransportEffect]:
        """The suppression timer of a message has expired: ask, or give up."""
        key = Key(str(timer[0]), int(timer[1]), int(timer[2]))
        entry = self._pending.get(key)
        assert entry is not None, f"{timer} belongs to no request"
        if entry.attempts >= self._config.requests_max:
            return self._give_up(key, entry, now)
        self._note_request(entry, now)
        if entry.first_request_at is None:
            entry.first_request_at = now
            self.suppression.sent_here()
        entry.attempts += 1
        self.sent += 1
        self._double(key, entry, now)
        return self._send(key, entry, now)

    def forget(self, publisher: str, incarnation: int) -> None:
        """Ask for nothing more of this publisher's life; nothing of it is counted as given up."""
        for key in [key for key in self._pending if (key.publisher, key.incarnation) == (publisher, incarnation)]:
            del self._pending[key]
            self._timers.cancel(TransportTimer.REQUEST, key.publisher, key.incarnation, key.sequence)

    def _send(self, key: Key, entry: _Pending, now: float) -> list[TransportEffect]:
        suppression = self._opening
        request = Request(key, self._name, now, entry.distance, suppression.first, suppression.spread, entry.attempts)
        if self._straight:
            message = request_to_publisher(self._identities, request)
        else:
            message = request_to_peers(self._identities, request, entry.encoding, self._config.domain)
        return [RequestSent(key.publisher, key.incarnation, key.sequence, entry.attempts), BearerPublish(message)]

    def _give_up(self, key: Key, entry: _Pending, now: float) -> list[TransportEffect]:
        del self._pending[key]
        self.given_up += 1
        self._ended(entry)
        self._given_up_at[key] = now
        if len(self._given_up_at) > self._config.requests_pending_max:
            del self._given_up_at[next(iter(self._given_up_at))]
        return [GaveUp(key.publisher, key.incarnation, key.sequence, entry.attempts)]

    def _gave_up_lately(self, key: Key, now: float) -> bool:
        """Whether the same loss was reported, and given up, since the publisher's session may have begun."""
        while self._given_up_at:
            oldest = next(iter(self._given_up_at))
            if now - self._given_up_at[oldest] < self._config.session_idle:
                break
            del self._given_up_at[oldest]
        return key in self._given_up_at

    def _double(self, key: Key, entry: _Pending, now: float) -> None:
        """Wait again, twice as long. Requests that come early in that wait belong to the round that has just been."""
        entry.doublings += 1
        wait = self._set_timer(key, entry, self._retry, now)
        entry.ignore_until = now + IGNORED * wait

    def _set_timer(self, key: Key, entry: _Pending, suppression: SuppressionTimers, now: float) -> float:
        entry.distance = self._distances.to(key.publisher)
        wait = suppression.draw(self._random, entry.distance, entry.doublings)
        self._timers.set(TransportTimer.REQUEST, now + wait, key.publisher, key.incarnation, key.sequence)
        return wait

    def _note_request(self, entry: _Pending, now: float) -> None:
        if not entry.requested:
            entry.requested = True
            self.suppression.first_sent(now - entry.detected_at, entry.distance)

    def _ended(self, entry: _Pending) -> None:
        """The round is over. What came before anybody had asked tells nothing about the timers."""
        if entry.requested:
            self.suppression.ended(max(0, entry.others + (entry.attempts > 0) - 1))


def recovered_record(repair: Repair, asked: RequestOutcome | None, now: float) -> Recovered:
    """What a repair brought back, and after how long."""
    key = repair.key.publisher, repair.key.incarnation, repair.key.sequence
    if asked is None:
        return Recovered(*key, repair.count, detected=0.0, requested=-1.0, attempts=0)
    requested = -1.0 if asked.first_request_at is None else now - asked.first_request_at
    return Recovered(*key, repair.count, now - asked.detected_at, requested, asked.attempts)

"""Who has a message answers requests for it; suppression timers see to it that one answers for all (002 section 4.2).

On a request for a message that is here a suppression timer starts, drawn from [D1 d', (D1 + D2) d']. When it expires
the message is sent again. Who receives another's repair first does not send its own, and for 3 d' after a repair, sent
or received, requests for the same message are ignored: they crossed the repair on the way (outside: SRM; 002 is silent,
erratum R6). The distance d' is that to the requester, as in SRM; 002 prints that to the publisher (erratum R3), which
`repair_distance = "publisher"` gives. It has the nearest to the publisher answer, wherever the requester is.

A repair is republished with the attributes of the original, or goes to the requester's inbox alone (section 4.2.3,
`repair_to`). The second kind nobody else receives, so there is no suppression; whoever asks while the timer runs gets a
repair of its own, and requests are ignored per requester. A request that came straight to the publisher's inbox is
answered at once and to the requester alone: nobody else received it.

What is kept: others' messages in the repair cache (`repair_cache.py`), own messages in a ring of `published_kept`. A
message whose repair is pending is held by the timer's entry, so it is sent even if the ring has moved on.

State: an entry per pending repair, an entry per repair that was sent or received lately, and the two rings. Timers:
REPAIR (publisher, incarnation, sequence). Bounds: `requests_pending_max` of each kind of entry; a
request beyond it is not answered, with a record (others may answer, and it will come again); of repairs sent or
received the oldest is forgotten. A request whose values cannot be is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from penstock.content.envelope import control_name
from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel.timers import Key as TimerKey
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.records import RepairSent, RequestReceived
from penstock.transport.recovery.distance_estimator import ROUND_TRIP_MAX, DistanceEstimator, plausible_name
from penstock.transport.recovery.repair_cache import Kept, RepairCache
from penstock.transport.recovery.suppression_timers import SuppressionTimers
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import (
    ControlIdentities,
    Key,
    Repair,
    Request,
    repair_to_all,
    repair_to_requester,
)

IGNORED_FOR = 3.0  # times the distance to the requester (outside: SRM)
REQUESTERS_MAX = 16  # that get a repair of their own when one timer expires
CONSTANT_MAX = 1_000.0  # nobody waits for more than so many distances: C1 and C2 of a request
ALL = ""  # in the place of a requester's name: the repair was republished


@dataclass(slots=True)
class _PendingRepair:
    kept: Kept
    requesters: list[str]
    asked_at: float
    distance: float  # for which the timer was drawn


@dataclass(slots=True)
class _HoldDown:
    """A repair was sent or received; until then requests for it are ignored."""

    until: float
    duplicates: int = 0


class Repairs:
    """The repairs of one client."""

    def __init__(
        self,
        name: str,
        config: TransportConfig,
        timers: ServiceTimers,
        random: Random,
        distances: DistanceEstimator,
        identities: ControlIdentities,
    ) -> None:
        self._published_bytes = 0
        self.admit: Callable[[Message, float], bool] | None = None  # the rate limiter, with congestion control
        self.held_back = 0  # repairs for which there were no tokens
        self.sent = 0
        self.suppressed = 0  # repairs not sent because another's was received
        self.hits = 0
        self.misses = 0
        self.cache = RepairCache(config)
        self.suppression = SuppressionTimers(
            config.repair_first, config.repair_spread, adaptive=config.adaptive_suppression
        )
        self._name = name
        self._config = config
        self._timers = timers
        self._random = random
        self._distances = distances
        self._identities = identities
        self._published: OrderedDict[Key, Kept] = OrderedDict()
        self._pending: dict[Key, _PendingRepair] = {}
        self._quiet: OrderedDict[tuple[Key, str], _HoldDown] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def keep(self, key: Key, message: Message, departure: float, now: float) -> list[TransportEffect]:
        """A message of somebody else's is here."""
        if not self._config.answers or key.publisher == self._name:
            return []
        return [*self.cache.put(key, message, departure, now)]

    def keep_published(self, key: Key, message: Message, departure: float) -> None:
        """A message of our own has left."""
        if not self._config.publisher_answers:
            return
        self._published[key] = Kept(message, departure)
        self._published_bytes += message.size_bytes
        limit, limit_bytes = self._config.published_kept, self._config.kept_bytes_max
        while self._published and (len(self._published) > limit or self._published_bytes > limit_bytes):
            self._published_bytes -= self._published.popitem(last=False)[1].message.size_bytes

    def kept(self, key: Key) -> Kept | None:
        """The message, if it is here."""
        return self._published.get(key) if key.publisher == self._name else self.cache.get(key)

    def request_received(self, request: Request, now: float, *, direct: bool = False) -> list[TransportEffect]:
        """Somebody asks for a message; `direct`: in our inbox, so nobody else will answer."""
        key, requester = request.key, request.requester
        own = key.publisher == self._name
        if requester == self._name or not (self._config.publisher_answers if own else self._config.answers):
            return []
        if not _plausible(request):
            return [InputRefused(requester[:40], "a request whose names or distances cannot be")]
        kept = self.kept(key)
        self.cache.note_request(request, self._distances.to(requester), now)
        effects: list[TransportEffect] = [_request_received(request, hit=kept is not None)]
        if kept is None:
            self.misses += 1
            return effects
        self.hits += 1
        # Only who may answer needs the distance; if all who receive a request asked, echoes would flood the requester.
        effects += self._distances.ask(requester, now)
        # Who asks again may have received nothing because only the bits match its filter, and the repair does not: the
        # publisher then sends it straight to who asked, so that it can see that and stop asking.
        if own and (direct or request.attempt > 1):
            return effects + self._answer_directly(key, kept, requester, now)
        return effects + self._answer_later(key, kept, requester, now)

    def repair_received(self, key: Key, now: float, *, sender: str = "") -> list[TransportEffect]:
        """Another's repair was received. `sender` is who its identity names; our own, coming back, counts for
        nothing."""
        if sender == control_name(self._name):
            return []
        pending = self._pending.get(key)
        if pending is not None and self._config.repair_to == "all":
            self._timers.cancel(TransportTimer.REPAIR, key.publisher, key.incarnation, key.sequence)
            del self._pending[key]
            self.suppressed += 1
            self.suppression.first_sent(now - pending.asked_at, pending.distance)
        quiet = self._quiet.get((key, ALL))
        if quiet is not None and now < quiet.until:
            quiet.duplicates += 1
        else:
            distance = self._distances.to(pending.requesters[0] if pending is not None else key.publisher)
            self._be_quiet(key, ALL, distance, now)
        return []

    def expired(self, timer: TimerKey, now: float) -> list[TransportEffect]:
        """The suppression timer has expired and nobody else has answered."""
        key = Key(str(timer[0]), int(timer[1]), int(timer[2]))
        pending = self._pending.pop(key, None)
        assert pending is not None, f"{timer} belongs to no repair"
        self.suppression.first_sent(now - pending.asked_at, pending.distance)
        self.suppression.sent_here()
        effects: list[TransportEffect] = []
        for requester in pending.requesters:
            effects += self._send(key, pending.kept, requester, self._config.repair_to == "requester", now)
        return effects

    def tune(self, now: float) -> list[TransportEffect]:
        """Once per `cache_interval`: give the cache its size."""
        self._forget_quiet(now)
        return [*self.cache.tune(now)]

    def _answer_directly(self, key: Key, kept: Kept, requester: str, now: float) -> list[TransportEffect]:
        if self._is_quiet(key, requester, now):
            return []
        return self._send(key, kept, requester, True, now)

    def _answer_later(self, key: Key, kept: Kept, requester: str, now: float) -> list[TransportEffect]:
        """Start the timer; if it runs already, remember who else must get a repair of its own."""
        alone = self._config.repair_to == "requester"
        pending = self._pending.get(key)
        if pending is not None:
            asked = pending.requesters
            if alone and requester not in asked and len(asked) < REQUESTERS_MAX:
                asked.append(requester)
            return []
        if self._is_quiet(key, requester if alone else ALL, now):
            return []
        if len(self._pending) >= self._config.requests_pending_max:
            return [LimitReached("repairs", self._config.requests_pending_max)]
        distance = self._distances.to(requester if self._config.repair_distance == "requester" else key.publisher)
        self._pending[key] = _PendingRepair(kept, [requester], now, distance)
        self._timers.set(
            TransportTimer.REPAIR,
            now + self.suppression.draw(self._random, distance),
            key.publisher,
            key.incarnation,
            key.sequence,
        )
        return []

    def _send(self, key: Key, kept: Kept, requester: str, alone: bool, now: float) -> list[TransportEffect]:
        if self.admit is not None and not self.admit(kept.message, now):
            self.held_back += 1  # its flow has no tokens; who still needs it will ask again
            return []
        repair = Repair(key, kept.message.identity.count, kept.departure, requester)
        make = repair_to_requester if alone else repair_to_all
        self._be_quiet(key, requester if alone else ALL, self._distances.to(requester), now)
        try:
            message = make(self._identities, repair, kept.message)
        except (InvalidMessage, OverflowError) as error:
            # A message so large that it fills an envelope to the brim has no room for the header of a repair.
            return [InputRefused(key.publisher, f"message {key.sequence} cannot be sent again: {error}")]
        self.sent += 1
        self.cache.note_repair_sent(key, now)
        return [RepairSent(key.publisher, key.incarnation, key.sequence, requester), BearerPublish(message)]

    def _is_quiet(self, key: Key, requester: str, now: float) -> bool:
        quiet = self._quiet.get((key, requester))
        return quiet is not None and now < quiet.until

    def _be_quiet(self, key: Key, requester: str, distance: float, now: float) -> None:
        self._forget_quiet(now)
        replaced = self._quiet.pop((key, requester), None)
        if replaced is not None:
            self._round_ended(requester, replaced)
        self._quiet[key, requester] = _HoldDown(now + IGNORED_FOR * distance)
        if len(self._quiet) > self._config.requests_pending_max:
            self._quiet.popitem(last=False)

    def _forget_quiet(self, now: float) -> None:
        """Forget those at the front that are over; with each a round has ended."""
        while self._quiet:
            place = next(iter(self._quiet))
            quiet = self._quiet[place]
            if now < quiet.until:
                break
            del self._quiet[place]
            self._round_ended(place[1], quiet)

    def _round_ended(self, requester: str, quiet: _HoldDown) -> None:
        if requester == ALL:  # a repair for one alone is received by nobody else, so nobody learns from it either
            self.suppression.ended(quiet.duplicates)


def _request_received(request: Request, *, hit: bool) -> RequestReceived:
    key = request.key
    return RequestReceived(key.publisher, key.incarnation, key.sequence, request.requester, hit)


def _plausible(request: Request) -> bool:
    """Whether a client can have sent this: what it carries decides how much is kept here, and for how long."""
    return (
        plausible_name(request.requester)
        and plausible_name(request.key.publisher)
        and 0.0 <= request.distance <= ROUND_TRIP_MAX
        and 0.0 <= request.first <= CONSTANT_MAX
        and 0.0 <= request.spread <= CONSTANT_MAX
    )

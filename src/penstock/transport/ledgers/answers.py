"""A publisher's answers to requests: from its ring, to who asked, in replies of at most a datagram.

A request names numbers, and fills: ranges of which the requester wants what matches its filters. The first reply says
which fills are covered, that is hold nothing more that matches, and what is gone from the ring; messages follow, as
many in a reply as fit REPLY_BYTES. What has no room in REPLIES_MAX is asked for again, and counts as not asked for.

Those who lost the same message learn of it together, from the same record or ledger. So requests wait for GATHER
seconds, and are answered together: what one alone asks for goes to it alone, what several ask for goes once to all who
wanted the message, which is shorter than as many ways from here. Several are two, or more where many ask for one
message. Who asks for the first time soon after such a repair gets nothing, since it is on its way; who asks again does.
The requests that are answered together cause REPAIRS_BYTES of such repairs at most, so nobody makes a publisher send
its ring to all; and requesters have budgets (`answer_budget`). With congestion control a repair leaves only if its flow
can spare a token.

State: requests that wait; how often each number was asked for lately, and when it was repaired for all; parsed filters.
Bounds: WAITING_MAX requests, ASKED_MAX numbers, FILTERS_KEPT filters, WORK_MAX comparisons for one request. Timer:
ANSWER, while requests wait.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from math import inf, isqrt
from typing import Any

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Message
from penstock.content.predicate import Predicate
from penstock.errors import InvalidHeader, InvalidPredicate
from penstock.kernel.number_ranges import RANGES_MAX, NumberRange, count_of, ranges_of, read_ranges, written
from penstock.kernel.timers import ServiceTimers
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.ledgers.answer_budget import NUMBER_COST, REQUEST_COST, AnswerBudget
from penstock.transport.ledgers.messages import (
    Again,
    Fills,
    MessageRequest,
    Reply,
    Resent,
    again_message,
    reply_message,
)
from penstock.transport.ledgers.publisher import LedgerPublisher
from penstock.transport.ledgers.sketch_predicate import names_in
from penstock.transport.records import RepairSent, RequestReceived
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import ControlIdentities

REPLY_BYTES = 1_200
REPLIES_MAX = 16  # to one request
GATHER = 0.050  # seconds
SEVERAL = 2
REPAIRS_BYTES, REPAIRS_MIN = REPLIES_MAX * REPLY_BYTES, 4  # repairs for all at one time; so many of large ones
ON_ITS_WAY = 0.5  # seconds after a repair for all
LATELY = 1.0  # seconds in which requests for one number are counted
NUMBERS_MAX = 4_096  # in one request
WAITING_MAX = 64
ASKED_MAX = 10_000
FILTERS_KEPT = 256
WORK_MAX = 20_000
GROUP_MAX = 1_000_000
_RESENT_BYTES = 24  # of a message in a reply, beside attributes and body
_Sent = tuple[int, Message]


@dataclass(slots=True)
class _Request:
    """One that waits, and what is found for it."""

    requester: str
    ask: MessageRequest
    numbers: list[NumberRange]
    repeated: list[NumberRange]
    fills: list[NumberRange]
    sent: list[_Sent] = field(default_factory=list)
    covered: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def cost(self) -> int:
        """What it costs to look the numbers up, those of fills by each filter."""
        filters = len(self.ask.fills.filters) if self.ask.fills is not None else 0
        looks = self.named() + min(count_of(self.fills) * (1 + filters), WORK_MAX)
        return REQUEST_COST + NUMBER_COST * looks

    def expected(self) -> int:
        """Bytes of the replies, before anybody has looked."""
        return REPLY_BYTES * min(self.named() + count_of(self.fills), REPLIES_MAX)

    def named(self) -> int:
        """How many numbers it names."""
        return count_of(self.numbers) + count_of(self.repeated)


class Answers:
    """Answers requests for what one publisher sent."""

    def __init__(self, publisher: LedgerPublisher, identities: ControlIdentities, timers: ServiceTimers) -> None:
        self._publisher = publisher
        self._identities = identities
        self._timers = timers
        self._waiting: list[_Request] = []
        self._asked: OrderedDict[int, tuple[float, int]] = OrderedDict()  # number -> since when, how often
        self._repaired: OrderedDict[int, float] = OrderedDict()  # number -> when it was repaired for all
        self._filters: OrderedDict[str, Predicate | None] = OrderedDict()
        self.budget = AnswerBudget()

    def received(self, ask: MessageRequest, requester: str, now: float) -> list[TransportEffect]:
        """A request has come to our inbox; raises InvalidHeader."""
        fills = read_ranges(ask.fills.ranges) if ask.fills is not None else []
        request = _Request(requester, ask, read_ranges(ask.numbers), read_ranges(ask.repeated), fills)
        count = request.named() + count_of(fills)
        if count > NUMBERS_MAX:
            raise InvalidHeader(f"a request for {count} messages")
        if ask.incarnation > self._publisher.incarnation:
            raise InvalidHeader(f"a request for messages of life {ask.incarnation}, which has not begun")
        self._waiting.append(request)
        if len(self._waiting) >= WAITING_MAX:
            return self.due(now)
        if len(self._waiting) == 1:
            self._timers.set(TransportTimer.ANSWER, now + GATHER)
        return []

    def due(self, now: float) -> list[TransportEffect]:
        """Answer those that wait."""
        waiting, self._waiting = self._waiting, []
        self._timers.cancel(TransportTimer.ANSWER)
        effects: list[TransportEffect] = []
        admitted: list[_Request] = []
        for request in waiting:
            cost = request.cost() + request.expected()
            if self.budget.admits(request.requester, cost, now, self._publisher.ring.kept_bytes):
                admitted.append(request)
                self.budget.spend(request.requester, cost)
                effects += self._look_up(request, now)
        effects += self._repair_for_all(admitted, now)
        for request in admitted:
            answered = self._replies(request, now)
            sent = sum(effect.message.size_bytes for effect in answered if isinstance(effect, BearerPublish))
            self.budget.spend(request.requester, sent - request.expected())
            effects += answered
        return effects

    def _look_up(self, request: _Request, now: float) -> list[TransportEffect]:
        """What there is of what it asks for."""
        publisher, ask = self._publisher, request.ask
        if ask.incarnation < publisher.incarnation:  # of an earlier life nothing is left
            request.gone = [*_each(request.numbers), *_each(request.repeated), *_each(request.fills)]
            return []
        if ask.fills is not None:
            self._matching(request, ask.fills, now)
        lost = int(bool(request.fills))
        effects: list[TransportEffect] = []
        for ranges, first in ((request.numbers, True), (request.repeated, False)):
            for number in _each(ranges):
                kept = publisher.ring.get(number)
                effects.append(
                    RequestReceived(publisher.name, publisher.incarnation, number, request.requester, kept is not None)
                )
                if kept is None:
                    if number <= publisher.number:
                        request.gone.append(number)
                    continue
                if first:
                    times = self._times(number, now)
                    lost += times == 1
                    publisher.group = max(publisher.group, min(times, GROUP_MAX))
                if not first or not 0.0 <= now - self._repaired.get(number, -inf) < ON_ITS_WAY:
                    request.sent.append((number, kept[0]))
        texts = ask.fills.texts if ask.fills is not None else ()
        publisher.asked(texts, now, fills=bool(request.fills), lost=lost)
        return effects

    def _matching(self, request: _Request, fills: Fills, now: float) -> None:
        """Of the fills: what matches will be sent, what is not kept is gone, and the rest is covered."""
        predicates = [one for one in map(self._predicate, fills.filters) if one is not None]
        filters = [selected for predicate in predicates for selected in predicate.filters]
        self._publisher.columns.asked((*fills.columns, *names_in(filters)), now)
        older = self._publisher.ring.all_left_before(fills.not_before)
        work = WORK_MAX
        for number in _each(request.fills):
            if number > self._publisher.number or work <= 0:
                break
            kept = self._publisher.ring.get(number)
            if kept is None:
                (request.covered if older else request.gone).append(number)
                continue
            work -= 1 + len(predicates)
            message, departure = kept
            if departure >= fills.not_before and any(one.matches(message.attributes) for one in predicates):
                request.sent.append((number, message))
            else:
                request.covered.append(number)

    def _repair_for_all(self, requests: list[_Request], now: float) -> list[TransportEffect]:
        """What several ask for; nobody gets it alone then."""
        publisher = self._publisher
        askers = {(request.requester, number): None for request in requests for number, _ in request.sent}
        times = Counter([number for _, number in askers])
        several = max(SEVERAL, isqrt(publisher.group))
        messages = {number: message for request in requests for number, message in request.sent}
        effects: list[TransportEffect] = []
        repairs = repair_bytes = 0
        for number in sorted(times):
            message = messages[number]
            fits = repairs < REPAIRS_MIN or repair_bytes + message.size_bytes <= REPAIRS_BYTES
            if times[number] < several or not fits or not publisher.admit(message, now):
                continue
            repairs, repair_bytes = repairs + 1, repair_bytes + message.size_bytes
            again = Again(publisher.incarnation, number, message.identity.count)
            effects.append(RepairSent(publisher.name, publisher.incarnation, number, ""))
            effects.append(BearerPublish(again_message(self._identities, again, message)))
            _remember(self._repaired, number, now)
        for request in requests if repairs else ():
            for_all = [one for one in request.sent if self._repaired.get(one[0]) == now]
            request.sent = [one for one in request.sent if self._repaired.get(one[0]) != now]
            self.budget.spend(request.requester, sum(message.size_bytes for _, message in for_all))
        return effects

    def _predicate(self, text: str) -> Predicate | None:
        if text in self._filters:
            self._filters.move_to_end(text)
            return self._filters[text]
        try:
            predicate = parse_predicate(text)
        except InvalidPredicate:
            predicate = None
        self._filters[text] = predicate
        if len(self._filters) > FILTERS_KEPT:
            self._filters.popitem(last=False)
        return predicate

    def _times(self, number: int, now: float) -> int:
        """How many have asked for this one lately, with this time."""
        since, times = self._asked.get(number, (now, 0))
        if not 0.0 <= now - since < LATELY:
            since, times = now, 0
        _remember(self._asked, number, (since, times + 1))
        return times + 1

    def _replies(self, request: _Request, now: float) -> list[TransportEffect]:
        """To who asked; what has no room counts as not asked for, and will be asked for again."""
        publisher, parts = self._publisher, _Parts()
        for number, message in sorted(request.sent, key=lambda one: one[0]):
            if parts.fits(message) and publisher.admit(message, now):
                parts.add(number, message)
        covered = written(ranges_of(request.covered)[:RANGES_MAX])
        gone = written(ranges_of(sorted(request.gone))[:RANGES_MAX])
        effects: list[TransportEffect] = []
        incarnation = request.ask.incarnation
        last = publisher.number if incarnation == publisher.incarnation else 0
        for part in parts.parts or ([[]] if covered or gone else []):
            resent = [
                Resent(number, message.identity.count, message.attributes, len(message.body))
                for number, message in part
            ]
            reply = Reply(incarnation, request.ask.stamp, covered, gone, last, tuple(resent))
            covered = gone = ()
            effects += [RepairSent(publisher.name, incarnation, one.number, request.requester) for one in resent]
            bodies = [message.body for _, message in part]
            effects.append(BearerPublish(reply_message(self._identities, request.requester, reply, bodies)))
        return effects


def _remember(table: OrderedDict[int, Any], number: int, value: Any) -> None:
    """The newest of ASKED_MAX."""
    table[number] = value
    table.move_to_end(number)
    if len(table) > ASKED_MAX:
        table.popitem(last=False)


def _each(ranges: list[NumberRange]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


class _Parts:
    """The messages of the replies, as many together as fit one; one that is too large goes by itself."""

    def __init__(self) -> None:
        self.parts: list[list[_Sent]] = []
        self._room = 0

    def fits(self, message: Message) -> bool:
        """Whether there is room for one more."""
        return len(self.parts) < REPLIES_MAX or message.size_bytes + _RESENT_BYTES <= self._room

    def add(self, number: int, message: Message) -> None:
        """One more."""
        size = message.size_bytes + _RESENT_BYTES
        if size > self._room:
            self.parts.append([])
            self._room = REPLY_BYTES
        self.parts[-1].append((number, message))
        self._room -= size

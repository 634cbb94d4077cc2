"""A publisher's answers to requests: from its ring, to who asked, in replies of at most a datagram.

A request names numbers, and fills: ranges of which the requester wants what matches its filters. The first reply says
which fills are covered, that is hold nothing more that matches, and what is gone from the ring; messages follow, as
many in a reply as fit REPLY_BYTES. What has no room in REPLIES_MAX is asked for again, and counts as not asked for.

Suppression. The first UNICAST_MAX requests for a number within a second are answered to the requester alone, the next
by one repair for all who wanted the message, further ones by nobody: the repair is on its way. One request causes
REPAIRS_BYTES of such repairs at most, so nobody makes a publisher send its ring to all; and requesters have budgets
(`answer_budget`). With congestion control a repair leaves only if its flow can spare a token.

State: how often each number was asked for lately; parsed filters. Bounds: ASKED_MAX numbers, FILTERS_KEPT filters,
WORK_MAX comparisons for one request. No timers.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.content.envelope import control_name
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Message
from penstock.content.predicate import Predicate
from penstock.errors import InvalidHeader, InvalidPredicate
from penstock.kernel.number_ranges import RANGES_MAX, count_of, ranges_of, read_ranges, written
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.ledgers.answer_budget import NUMBER_COST, REQUEST_COST, AnswerBudget
from penstock.transport.ledgers.messages import Again, MessageRequest, Reply, Resent, again_message, reply_message
from penstock.transport.ledgers.publisher import LedgerPublisher
from penstock.transport.ledgers.sketch_predicate import names_in
from penstock.transport.records import RepairSent, RequestReceived
from penstock.transport.wire.control_messages import ControlIdentities

REPLY_BYTES = 1_200
REPLIES_MAX = 16  # to one request
UNICAST_MAX = 3
REPAIRS_BYTES, REPAIRS_MIN = REPLIES_MAX * REPLY_BYTES, 4  # repairs for all on one request; so many of large ones
SUPPRESSED_FOR = 1.0  # seconds
NUMBERS_MAX = 4_096  # in one request
ASKED_MAX = 10_000
FILTERS_KEPT = 256
WORK_MAX = 20_000
GROUP_MAX = 1_000_000
_RESENT_BYTES = 24  # of a message in a reply, beside attributes and body
_Sent = tuple[int, Message, float]  # number, message, departure


class Answers:
    """Answers requests for what one publisher sent."""

    def __init__(self, publisher: LedgerPublisher, identities: ControlIdentities) -> None:
        self._publisher = publisher
        self._identities = identities
        self._asked: OrderedDict[int, tuple[float, int]] = OrderedDict()  # number -> since when, how often
        self._filters: OrderedDict[str, Predicate | None] = OrderedDict()
        self.budget = AnswerBudget()

    def received(self, ask: MessageRequest, sender: str, now: float) -> list[TransportEffect]:
        """A request has come to our inbox; raises InvalidHeader."""
        if sender != control_name(ask.requester):
            raise InvalidHeader(f"a request in the name of {ask.requester[:40]}")
        numbers, fills = read_ranges(ask.numbers), read_ranges(ask.fills)
        if count_of(numbers) + count_of(fills) > NUMBERS_MAX:
            raise InvalidHeader(f"a request for {count_of(numbers) + count_of(fills)} messages")
        publisher = self._publisher
        if ask.publisher != publisher.name or ask.incarnation > publisher.incarnation:
            raise InvalidHeader(f"a request for messages of {ask.publisher[:40]}, life {ask.incarnation}")
        if not self.budget.admits(ask.requester, now, publisher.ring.kept_bytes):
            return []
        effects, looks = self._answer(ask, numbers, fills, now)
        sent = sum(effect.message.size_bytes for effect in effects if isinstance(effect, BearerPublish))
        self.budget.spend(ask.requester, REQUEST_COST + NUMBER_COST * looks + sent)
        return effects

    def _answer(
        self, ask: MessageRequest, numbers: list[tuple[int, int]], fills: list[tuple[int, int]], now: float
    ) -> tuple[list[TransportEffect], int]:
        """What is sent, and how many numbers were looked at, those of fills by each filter."""
        publisher = self._publisher
        if ask.incarnation < publisher.incarnation:  # of an earlier life nothing is left
            gone = sorted([*_each(numbers), *_each(fills)])
            return self._replies(ask, [], [], gone), len(gone)
        publisher.asked(ask.texts, now, fills=bool(fills))
        effects: list[TransportEffect] = []
        sent: list[_Sent] = []
        gone = []
        covered = self._matching(ask, fills, sent, gone, now)
        matching = len(sent)
        for number in _each(numbers):
            kept = publisher.ring.get(number)
            effects.append(
                RequestReceived(publisher.name, publisher.incarnation, number, ask.requester, kept is not None)
            )
            if kept is not None:
                sent.append((number, *kept))
            elif number <= publisher.number:
                gone.append(number)
        named = {number for number, _, _ in sent[matching:]}
        parts = _Parts()
        repairs = repair_bytes = 0
        for number, message, departure in sorted(sent, key=lambda one: one[0]):
            times = self._times(number, now)
            for_all = times == UNICAST_MAX
            if for_all:
                fits = repairs < REPAIRS_MIN or repair_bytes + message.size_bytes <= REPAIRS_BYTES
            else:
                fits = times > UNICAST_MAX or parts.fits(message)
            if not fits or not publisher.admit(message, now):
                continue  # it counts as not asked for, and will be asked for again
            self._count(number, times)
            if number in named:
                publisher.group = max(publisher.group, min(times + 1, GROUP_MAX))
            if for_all:
                repairs, repair_bytes = repairs + 1, repair_bytes + message.size_bytes
                effects += self._for_all(number, message, departure)
            elif times < UNICAST_MAX:
                parts.add(number, message, departure)
        looks = count_of(numbers) + min(count_of(fills) * (1 + len(ask.filters)), WORK_MAX)
        return effects + self._replies(ask, parts.parts, covered, sorted(gone)), looks

    def _matching(
        self, ask: MessageRequest, fills: list[tuple[int, int]], sent: list[_Sent], gone: list[int], now: float
    ) -> list[int]:
        """Of the fills: what matches is added to `sent`, what is not kept to `gone`; returns what does not match."""
        predicates = [one for one in map(self._predicate, ask.filters) if one is not None]
        filters = [selected for predicate in predicates for selected in predicate.filters]
        self._publisher.columns.asked((*ask.columns, *names_in(filters)), now)
        covered: list[int] = []
        older = self._publisher.ring.all_left_before(ask.not_before)
        work = WORK_MAX
        for number in _each(fills):
            if number > self._publisher.number or work <= 0:
                break
            kept = self._publisher.ring.get(number)
            if kept is None:
                (covered if older else gone).append(number)
                continue
            work -= 1 + len(predicates)
            message, departure = kept
            if departure >= ask.not_before and any(one.matches(message.attributes) for one in predicates):
                sent.append((number, message, departure))
            else:
                covered.append(number)
        return covered

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
        """How often this one was asked for within the last second, before this time."""
        since, times = self._asked.pop(number, (now, 0))
        if not 0.0 <= now - since < SUPPRESSED_FOR:
            since, times = now, 0
        self._asked[number] = (since, times)
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)
        return times

    def _count(self, number: int, times: int) -> None:
        """It was asked for once more."""
        self._asked[number] = (self._asked[number][0], times + 1)

    def _for_all(self, number: int, message: Message, departure: float) -> list[TransportEffect]:
        publisher = self._publisher
        again = Again(publisher.name, publisher.incarnation, number, message.identity.count, departure)
        return [
            RepairSent(publisher.name, publisher.incarnation, number, ""),
            BearerPublish(again_message(self._identities, again, message)),
        ]

    def _replies(
        self, ask: MessageRequest, parts: list[list[_Sent]], covered: list[int], gone: list[int]
    ) -> list[TransportEffect]:
        effects: list[TransportEffect] = []
        covered_ranges = written(ranges_of(covered)[:RANGES_MAX])
        gone_ranges = written(ranges_of(gone)[:RANGES_MAX])
        for at, part in enumerate(parts or ([[]] if covered or gone else [])):
            resent = tuple(
                [
                    Resent(number, message.identity.count, departure, message.attributes, len(message.body))
                    for number, message, departure in part
                ]
            )
            if at:
                covered_ranges = gone_ranges = ()
            reply = Reply(ask.publisher, ask.incarnation, ask.sent_at, covered_ranges, gone_ranges, resent)
            bodies = [message.body for _, message, _ in part]
            effects += [RepairSent(ask.publisher, ask.incarnation, one.number, ask.requester) for one in resent]
            effects.append(BearerPublish(reply_message(self._identities, ask.requester, reply, bodies)))
        return effects


def _each(ranges: list[tuple[int, int]]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


class _Parts:
    """The messages of the replies, as many together as fit one; one that is too large goes by itself."""

    def __init__(self) -> None:
        self.parts: list[list[_Sent]] = []
        self._room = 0

    def fits(self, message: Message) -> bool:
        """Whether there is room for one more."""
        return len(self.parts) < REPLIES_MAX or message.size_bytes + _RESENT_BYTES <= self._room

    def add(self, number: int, message: Message, departure: float) -> None:
        """One more."""
        size = message.size_bytes + _RESENT_BYTES
        if size > self._room:
            self.parts.append([])
            self._room = REPLY_BYTES
        self.parts[-1].append((number, message, departure))
        self._room -= size

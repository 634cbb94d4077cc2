"""Asks publishers for what is missed or doubtful, and takes their replies.

What is due at one time goes into one request: numbers of missed messages, ranges of doubtful ones with our filters, and
names of columns whose texts would help. A request is repeated after RTO x 1.5^i; after ATTEMPTS_MAX of them, or when
the publisher says that it is gone, a message is reported lost, by number. Where many lose the same message, as the
publisher's ledgers say, the first request waits for a random time over four round trips (NORM's truncated exponential,
RFC 5401), so that few ask and all hear the repair. What was found missed together waits together, for one request.

A publisher whose numbers are missed takes room, whatever is true of them. Each name, in all its lives, may take as much
as is left free after that: one alone half of the room, and nobody leaves nothing for the next. What has no room is
reported lost at once. What nobody wants any more, because subscriptions were closed, is dropped when it is due.

What a full link withheld from us is not lost (`told_withheld`). To ask for it would fill that link, so it waits until
nothing was withheld for QUIET seconds, and as long as the last word said that the next one takes (`next_word`); then a
few are asked for in each second, and repairs pay for the link as any message does. While a publisher is thinned, a loss
that nobody was told of is asked for only after the next word of it. What is gone then, and all but the last KEPT of a
publisher, counts as withheld for good.

State: counts, also by publisher, and the last numbers that were lost. What is missed stands in the sessions. Messages:
`ask`. Bounds: `requests_pending_max` missed numbers; NUMBERS_PER_ASK in a request; LOST_KEPT lost numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import exp, inf, log
from random import Random

from penstock.kernel.number_ranges import ranges_of, written
from penstock.kernel.trace import LimitReached
from penstock.transport.agreement import OFF, ON
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.interest import SketchedInterest
from penstock.transport.ledgers.lateness import Lateness
from penstock.transport.ledgers.messages import Fills, MessageRequest, ask_message, stamp_of
from penstock.transport.ledgers.round_trip import ReplyTimeout
from penstock.transport.ledgers.session import LedgerSession, Missed
from penstock.transport.records import GaveUp, LossDetected, LossSuspected, LossWithheld, Recovered, RequestSent
from penstock.transport.subscriptions import TransportSubscriptions
from penstock.transport.wire.control_messages import ControlIdentities

ATTEMPTS_MAX = 50
QUIET = 3.0  # seconds without word of anything withheld, after which the link is taken to have room
TOLD_EVERY, TOLD_LATE = 1.5, 0.8  # seconds between two words; how long after a message was due it has been told of
NEXT_WORD_MAX = 60.0  # seconds: for so long we believe that the next word has no room
WITHHELD_AT_ONCE, KEPT = 100, 2_000
WITHHELD_MAX = 4_096  # numbers of a publisher that are known to be withheld: as many as it keeps
NUMBERS_PER_ASK = 200
ASKS_MAX = 8  # requests to one publisher at one time
TOGETHER = 0.010  # seconds: what is due so soon after goes into the same request
LOST_KEPT = 1_000
GROUP_SMALL = 8  # requesters that need no back-off
BACK_OFF_ROUND_TRIPS = 4.0


class Recovery:
    """The requests of one client."""

    def __init__(
        self,
        name: str,
        config: TransportConfig,
        interest: SketchedInterest,
        subscriptions: TransportSubscriptions,
        identities: ControlIdentities,
        random: Random,
    ) -> None:
        self._name = name
        self._config = config
        self._interest = interest
        self._subscriptions = subscriptions
        self._identities = identities
        self._random = random
        self.pending = 0  # missed and doubtful numbers of all sessions
        self.waiting = 0  # of those, withheld
        self._pending_of: dict[str, int] = {}  # the same by publisher
        self.lost = 0  # declared
        self.not_asked = 0
        self.unknown = 0  # gone, and nobody knows whether we wanted them
        self.trips = ReplyTimeout()  # to all publishers
        self.lateness = Lateness()  # of what came by itself
        self.lost_numbers: deque[tuple[str, int, int]] = deque(maxlen=LOST_KEPT)

    def due(self, session: LedgerSession, *, now: float) -> tuple[list[TransportEffect], list[Missed]]:
        """Look at what is due: requests, reports, and what was declared lost just now."""
        effects: list[TransportEffect] = []
        declared: list[Missed] = []
        asked: list[Missed] = []
        wait = self._back_off(session)
        withheld = 0
        for missed in session.due(now + TOGETHER):
            until = self._not_before(session, missed)
            if missed.withheld and withheld >= WITHHELD_AT_ONCE:
                until = max(until, now + 1.0)
            if until > now + TOGETHER:
                session.again(missed, until)
                continue
            withheld += missed.withheld
            if not self._wanted_back(missed):
                if missed.detected_at is None and missed.sure:
                    declared.append(missed)
                    self.not_asked += 1
                effects += self._give_up(session, missed)
                continue
            if missed.detected_at is None:
                missed.detected_at = now
                if not missed.withheld:
                    effects += self._declare(session, missed)
                    declared += [missed] if missed.sure else []
                if wait > 0.0 and missed.sure and not missed.withheld:
                    session.again(missed, now + wait)
                    continue
            if missed.attempts >= ATTEMPTS_MAX:
                effects += self._give_up(session, missed)
            else:
                asked.append(missed)
        if asked and len(asked) < NUMBERS_PER_ASK:
            asked += self._riders(session, asked, now)
        return effects + self._ask(session, asked, now), declared

    def _riders(self, session: LedgerSession, asked: list[Missed], now: float) -> list[Missed]:
        """What else a request may name that leaves anyway: those whose answers should have come by now."""
        before, named = now - session.trip.timeout, {missed.number for missed in asked}
        found = [
            missed
            for number, missed in session.missed.items()
            if 0 < missed.attempts < ATTEMPTS_MAX and missed.asked_last <= before
            if number not in named and not missed.withheld and missed.checked == self._interest.closed
        ]
        return found[: NUMBERS_PER_ASK - len(asked)]

    def _not_before(self, session: LedgerSession, missed: Missed) -> float:
        """Before when this one is not asked for, because of a full link."""
        told_at = session.thinned_at
        if missed.withheld:
            return told_at + session.next_word + QUIET
        if missed.attempts or told_at > missed.came_at + TOLD_LATE:
            return -inf
        return told_at + session.next_word + TOLD_EVERY

    def told_withheld(
        self, session: LedgerSession, counts: Sequence[int], *, now: float, next_word: float = 0.0
    ) -> list[TransportEffect]:
        """These of a publisher's messages were withheld from us, by the counts of their identities."""
        session.thinned_at, session.next_word = now, min(NEXT_WORD_MAX, next_word)
        effects: list[TransportEffect] = []
        ahead = session.count_ahead
        for number in [count - ahead for count in counts] if ahead is not None else ():
            session.withheld[number] = None
            missed = session.missed.get(number)
            if missed is not None:
                effects += self._withheld(session, missed)
        while len(session.withheld) > WITHHELD_MAX:
            del session.withheld[next(iter(session.withheld))]
        return effects

    def _withheld(self, session: LedgerSession, missed: Missed) -> list[TransportEffect]:
        """A full link kept it from us."""
        if missed.withheld:
            return []
        missed.withheld = True
        self.waiting += 1
        if missed.sure and missed.detected_at is not None:
            self.lost -= 1  # it was taken for lost
        session.again(missed, session.thinned_at + session.next_word + QUIET)
        session.order.wait_no_more(missed.number)
        session.waiting += 1
        told: list[TransportEffect] = []
        if missed.sure:
            told.append(LossWithheld(session.publisher, session.incarnation, missed.number))
        if session.waiting <= KEPT:
            return told
        return told + self._give_up(session, next(one for one in session.missed.values() if one.withheld))

    def _wanted_back(self, missed: Missed) -> bool:
        """Whether anybody wants it back; looked up again only after a subscription was closed."""
        if missed.checked != self._interest.closed:
            missed.checked = self._interest.closed
            return bool(self._interest.who(missed.sketch, missed.came_at, recover=True))
        return True

    def _declare(self, session: LedgerSession, missed: Missed) -> list[TransportEffect]:
        self.lost += missed.sure
        kind = LossDetected if missed.sure else LossSuspected
        return [kind(session.publisher, session.incarnation, missed.number)]

    def _back_off(self, session: LedgerSession) -> float:
        if session.group <= GROUP_SMALL:
            return 0.0
        longest = BACK_OFF_ROUND_TRIPS * session.trip.typical
        return group_back_off(self._random.random(), session.group, longest)

    def _ask(self, session: LedgerSession, asked: list[Missed], now: float) -> list[TransportEffect]:
        """Requests for these, in the order of numbers."""
        effects: list[TransportEffect] = []
        asked.sort(key=lambda missed: missed.number)
        for start in range(0, len(asked), NUMBERS_PER_ASK):
            part = asked[start : start + NUMBERS_PER_ASK]
            if start >= ASKS_MAX * NUMBERS_PER_ASK:
                for missed in part:
                    session.again(missed, now + session.trip.wait(1))
                continue
            for missed in part:
                missed.attempts += 1
                missed.asked_at = missed.asked_at or now
                missed.asked_last = now
                session.again(missed, now + session.trip.wait(missed.attempts))
                if missed.sure:
                    effects.append(RequestSent(session.publisher, session.incarnation, missed.number, missed.attempts))
            request = self._request(session, part, now)
            effects.append(BearerPublish(ask_message(self._identities, session.publisher, request)))
        return effects

    def _request(self, session: LedgerSession, part: list[Missed], now: float) -> MessageRequest:
        filters = self._interest.filters
        sure = [missed for missed in part if missed.sure or not filters]
        doubtful = [missed.number for missed in part if filters and not missed.sure]
        return MessageRequest(
            session.incarnation,
            stamp_of(now),
            written(ranges_of([missed.number for missed in sure if missed.asked_at == now])),
            written(ranges_of([missed.number for missed in sure if missed.asked_at < now])),
            None if all(missed.sure for missed in part) else self._fills(session, doubtful),
            ON if self._config.congestion else OFF,
        )

    def _fills(self, session: LedgerSession, doubtful: list[int]) -> Fills:
        interest, reference = self._interest, session.reference
        if not interest.filters:
            return Fills((), columns=interest.columns)
        not_before = -1e15
        if reference is not None:
            not_before = interest.earliest + reference.departure - reference.arrival
        return Fills(written(ranges_of(doubtful)), interest.filters, not_before, interest.texts)

    # What became of them.

    def settled(self, session: LedgerSession, number: int) -> Missed | None:
        """It came, or does not concern us."""
        missed = session.missed.pop(number, None)
        if missed is not None:
            self._count(session.publisher, -1)
            self.waiting -= missed.withheld
            session.waiting -= missed.withheld
            session.order.wait_no_more(number)
        return missed

    def room(self, publisher: str) -> int:
        """How many more numbers of this publisher may be missed: afterwards as many must be free as it has."""
        own = self._pending_of.get(publisher, 0)
        return max(0, (self._config.requests_pending_max - self.pending - own) // 2)

    def found(self, session: LedgerSession, found: list[Missed]) -> list[TransportEffect]:
        """More is missed; what has no room is lost."""
        room = self.room(session.publisher)
        self._count(session.publisher, len(found))
        effects: list[TransportEffect] = []
        for missed in found if session.withheld else ():
            effects += self._withheld(session, missed) if missed.number in session.withheld else []
        if len(found) <= room:
            return effects
        effects.append(LimitReached("requests", self._config.requests_pending_max))
        for missed in found[room:]:
            effects += self._give_up(session, missed)
            self.not_asked += missed.sure
        return effects

    def _count(self, publisher: str, more: int) -> None:
        self.pending += more
        of_it = self._pending_of.get(publisher, 0) + more
        if of_it:
            self._pending_of[publisher] = of_it
        else:
            self._pending_of.pop(publisher, None)

    def gone(self, session: LedgerSession, number: int) -> list[TransportEffect]:
        """The publisher has it no longer."""
        missed = session.missed.get(number)
        return [] if missed is None else self._give_up(session, missed)

    def end(self, session: LedgerSession) -> list[TransportEffect]:
        """The session ends: what is missed is lost."""
        effects: list[TransportEffect] = []
        for missed in list(session.missed.values()):
            effects += self._give_up(session, missed)
        return effects

    def _give_up(self, session: LedgerSession, missed: Missed) -> list[TransportEffect]:
        self.settled(session, missed.number)
        who = self._interest.who(missed.sketch, missed.came_at, recover=False)
        if not who:
            return []  # subscriptions were closed meanwhile
        if not missed.sure:
            self.unknown += 1
        if missed.number == session.first:  # those before it, if any, left after we subscribed or before: nobody knows
            self.unknown += session.before
            session.before = 0
        for number in who if missed.sure else ():
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                subscription.known_lost += not missed.withheld
                subscription.withheld += missed.withheld
        if missed.withheld:
            return []
        effects: list[TransportEffect] = []
        if missed.detected_at is None:
            effects = self._declare(session, missed)
        self.lost_numbers.append((session.publisher, session.incarnation, missed.number))
        return [*effects, GaveUp(session.publisher, session.incarnation, missed.number, missed.attempts)]


def group_back_off(uniform: float, group: int, longest: float) -> float:
    """A random time up to `longest`, so that few of `group` come long before the others (RFC 5401 section 4)."""
    rate = log(group) + 1.0
    x = uniform * (exp(rate) - 1.0) + 1.0
    return longest / rate * log(x)


def recovered_record(session: LedgerSession, number: int, count: int, missed: Missed | None, now: float) -> Recovered:
    """A lost message has come after all."""
    detected = missed.detected_at if missed is not None and missed.detected_at is not None else now
    asked = missed is not None and missed.attempts > 0
    return Recovered(
        session.publisher,
        session.incarnation,
        number,
        count,
        max(0.0, now - detected),
        max(0.0, now - missed.asked_at) if missed is not None and asked else -1.0,
        missed.attempts if missed is not None else 0,
    )

"""The product's scheme: follow a message from here.

Receiving: a message comes (`data`), its header is decoded, its number is put into the session's window. If numbers
before it have not come, its record is read (`detection`); if the subscription is ordered it may wait (`ordered_queue`).
Ledgers tell of what no record showed. What is missed is asked for (`recovery`), and comes in replies or, if many asked,
as a repair for all. Sending: `publisher` numbers a message and tells of it, `answers` sends it again.

A header that cannot be, given those before it, does not move anything: its message is delivered without order. After a
row of such that agree with each other the order begins anew with them (`refusal`).

State: sessions (`session_table`), counts. Own subscriptions: ledgers, while anybody recovers. Timers: ORDER and ASK for
each session, LEDGER. Bounds: those of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from penstock.content.envelope import client_of
from penstock.content.message import Message
from penstock.kernel.number_ranges import read_ranges
from penstock.kernel.timers import Key as TimerKey
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused
from penstock.transport.agreement import ON, Agreement
from penstock.transport.bearer import BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.answers import Answers
from penstock.transport.ledgers.detection import Detection
from penstock.transport.ledgers.interest import SketchedInterest
from penstock.transport.ledgers.ledger import LedgerContent, decode_ledger
from penstock.transport.ledgers.messages import (
    AGAIN,
    LEDGER,
    REPLY,
    Again,
    MessageRequest,
    Reply,
    decode_message,
    ledgers_where,
    original,
    resent_messages,
    since_stamp,
)
from penstock.transport.ledgers.publisher import LedgerPublisher
from penstock.transport.ledgers.record import DataHeader, decode_data_header
from penstock.transport.ledgers.recovery import Recovery, recovered_record
from penstock.transport.ledgers.refusal import Refusal
from penstock.transport.ledgers.session import LedgerSession, Missed, counted
from penstock.transport.ledgers.session_table import SessionTable
from penstock.transport.ordering.header_sanity import ReferenceHeader
from penstock.transport.own_subscriptions import OwnSubscriptions
from penstock.transport.receiver.feedback_scheduler import FeedbackScheduler
from penstock.transport.records import LossDetected
from penstock.transport.report import TransportReport
from penstock.transport.subscriptions import HeldDelivery, TransportSubscription, TransportSubscriptions
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import ASK, ControlIdentities

ORDER_REPORTED_EVERY = 5  # ticks


class LedgerScheme:
    """Order, loss detection and recovery for one client."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        config: TransportConfig,
        timers: ServiceTimers,
        random: Callable[[str], Random],
        identities: ControlIdentities,
        subscriptions: TransportSubscriptions,
        own_subscriptions: OwnSubscriptions,
        feedback: FeedbackScheduler,
        keep_ticking: Callable[[float], None],
        agreement: Agreement,
    ) -> None:
        self.outgoing = LedgerPublisher(name, incarnation, config, timers, identities)
        self._config = config
        self._timers = timers
        self._subscriptions = subscriptions
        self._own_subscriptions = own_subscriptions
        self._feedback = feedback
        self._keep_ticking = keep_ticking
        self._agreement = agreement
        self._answers = Answers(self.outgoing, identities, timers)
        self._interest = SketchedInterest()
        self._detection = Detection(config, self._interest)
        self._recovery = Recovery(name, config, self._interest, subscriptions, identities, random("requests"))
        self._refusal = Refusal(config, subscriptions, self._recovery)
        self._sessions = SessionTable(config)
        self._ledgers_number: int | None = None  # of our subscription to ledgers
        self._ticks = self._ledgers = self._refused = 0
        self._dropped_late = self._duplicates_before = self._unrevealed_before = self._broken_off_before = 0
        self._ticked_at = 0.0

    # Subscriptions.

    def start(self) -> list[TransportEffect]:
        """A publisher needs no more than its inbox."""
        return []

    def leaving(self, *, now: float) -> list[TransportEffect]:
        """A ledger of what none told of."""
        return self.outgoing.leaving(now=now)

    def subscribed(self, number: int, subscription: TransportSubscription, *, now: float) -> list[TransportEffect]:
        """Look after it; the first that recovers subscribes to ledgers."""
        self._interest.add(number, subscription.predicate, since=now, recover=subscription.recover)
        return self._changed()

    def unsubscribed(self, subscription: TransportSubscription | None, *, now: float) -> list[TransportEffect]:
        """And no longer."""
        self._interest.keep(set(self._subscriptions.numbers()))
        return self._changed()

    def _changed(self) -> list[TransportEffect]:
        self._detection.subscriptions_changed(ordered=self._subscriptions.ordered_any)
        recovers = self._interest.recover_any
        if recovers and self._ledgers_number is None:
            self._ledgers_number = self._own_subscriptions.number()
            return [BearerSubscribe(self._ledgers_number, ledgers_where())]
        if not recovers and self._ledgers_number is not None:
            number, self._ledgers_number = self._ledgers_number, None
            return [BearerUnsubscribe(number)]
        return []

    # Messages.

    def data(self, wanted: tuple[int, ...], header: bytes, message: Message, *, now: float) -> list[TransportEffect]:
        """A message has come for these subscriptions; raises InvalidHeader, ForeignScheme."""
        head = decode_data_header(header)
        identity = message.identity
        number = head.sequence
        session = self._sessions.get((identity.publisher, identity.incarnation))
        effects: list[TransportEffect] = []
        if session is None:
            first = self._detection.first_of_message(head, now)
            session, effects = self._begin(identity.publisher, identity.incarnation, first, now)
        if not session.delivered:
            effects += self._agreement.congestion(identity.publisher, head.control is not None)
        reference = session.reference
        if reference is not None:
            problem = reference.problem(head, now, self._config)
            if problem or (number < session.window.base and number not in session.missed):
                return effects + self._refusal.message(session, head, wanted, message, problem, now)
            session.observe((now - reference.arrival) - (head.departure - reference.departure))
        window = session.window
        late = number <= window.top
        if session.unbelieved.apart and not window.has(number) and session.unbelieved.knows(number, message):
            session.duplicates += 1
            return effects
        if late:
            if window.has(number):
                if session.another(number, head.departure):
                    problem = f"a second message {number}"
                    return effects + self._refusal.message(session, head, wanted, message, problem, now)
                session.duplicates += 1
                return effects
            missed = self._recovery.settled(session, number)
            if missed is not None:
                self._recovery.lateness.came(now - missed.came_at)
            else:
                self._detection.came_late(session, number, message.attributes)
            session.order.wait_no_more(number)
        elif number > window.top + 1:
            session.unbelieved.leapt(number, head.departure, message)
        window.receive(number)
        session.count_ahead = identity.count - number
        self._sessions.received_from(session, now)
        if reference is None:
            session.reference = ReferenceHeader(number, now, head.departure)
        elif number > reference.sequence:
            reference.sequence, reference.arrival, reference.departure = number, now, head.departure
            if session.unbelieved.row:
                self._refusal.accepted(session, head, now)
        found: list[Missed] = []
        if window.unknown:
            found = self._detection.read_record(session, head, message.attributes, now=now)
            if found:
                effects += self._recovery.found(session, found)
                self._arm(session)
        if self._config.congestion:
            lost = session.overtaken(number, found)
            effects += self._feedback.arrived(session, head, message, wanted, lost, now=now)
        delivered = self._deliver(session, number, message, wanted, late, now)
        if late and reference is not None and number < reference.sequence:
            delivered += self._refusal.late(session, head, now)
        return effects + delivered if effects else delivered

    def _deliver(
        self,
        session: LedgerSession,
        number: int,
        message: Message,
        wanted: tuple[int, ...],
        late: bool,
        now: float,
        *,
        repaired: bool = False,
    ) -> list[TransportEffect]:
        """To those who want no order at once, to the others in their turn."""
        subscriptions, order = self._subscriptions, session.order
        ordered, unordered = subscriptions.split(wanted)
        session.delivered += 1
        effects = subscriptions.hand_over(message, unordered, late, repaired) if unordered else []
        if ordered:
            if order.in_order(number):
                handed = subscriptions.hand_over(message, ordered, False, repaired)
                return effects + handed if effects else handed
            if order.late(number):
                session.late += 1
                if self._config.late == "drop" and not repaired:
                    self._dropped_late += 1
                else:
                    effects += subscriptions.hand_over(message, ordered, True, repaired)
            else:
                order.put(number, HeldDelivery(message, ordered, repaired), now)
        if len(order):
            effects += self._release(session, now)
        return effects

    def _release(self, session: LedgerSession, now: float) -> list[TransportEffect]:
        effects: list[TransportEffect] = []
        for held in session.order.release(now):
            waited, assigned = now - held.arrived_at, held.until - held.arrived_at
            session.held += assigned > 0.0
            session.held_seconds += max(0.0, waited)
            effects += self._subscriptions.let_go(held.item, False, assigned, max(0.0, waited))
        deadline = session.order.deadline()
        if deadline != session.order_armed:
            session.order_armed = deadline
            self._set(TransportTimer.ORDER, session, deadline)
        return effects

    # Control messages.

    def public(self, kind: str, inside: Message) -> bool:
        """Repairs for all take the way of the message itself."""
        return kind == AGAIN

    def control_message(self, kind: str, data: bytes, inside: Message, *, now: float) -> list[TransportEffect] | None:
        """A control message of this scheme; raises InvalidHeader."""
        if kind not in (LEDGER, ASK, REPLY, AGAIN):
            return None
        sender = client_of(inside.identity.publisher)
        if not sender:
            return self._refuse(inside.identity.publisher, f"a control message, '{kind}', under a name of none")
        if kind == LEDGER:
            return self._ledger(decode_ledger(inside.body), sender, now)
        if kind == ASK:
            ask = decode_message(inside.body, MessageRequest)
            told = self._agreement.congestion(sender, ask.congestion == ON) if ask.congestion else []
            return [*told, *self._answers.received(ask, sender, now)]
        if kind == REPLY:
            return self._reply(decode_message(data, Reply), sender, inside.body, now)
        return self._again(decode_message(data, Again), sender, inside, now)

    def _ledger(self, content: LedgerContent, sender: str, now: float) -> list[TransportEffect]:
        ledger = content.ledger
        if not self._interest.recover_any:
            return []
        session = self._sessions.get((sender, ledger.incarnation))
        effects: list[TransportEffect] = []
        if session is None:
            first = self._detection.first_of_ledger(content, now)
            session, effects = self._begin(sender, ledger.incarnation, first, now)
        head = DataHeader(max(1, ledger.last), ledger.sent_at)
        reference = session.reference
        problem = reference.problem(head, now, self._config) if reference is not None else ""
        if problem and ledger.last != session.window.top:
            if not self._refusal.believed(session, head, now):
                return effects + self._refuse(sender, f"a ledger: {problem}")
            effects += self._refusal.begin_anew(session, head, now)
            session.reference_told = head.sequence
        session.told_last_number = ledger.last
        self._ledgers += 1
        session.group = ledger.group
        session.finished = session.finished or ledger.final
        self._sessions.received_from(session, now)
        room = self._recovery.room(session.publisher)
        found = self._detection.read_ledger(session, content, now=now, room=room)
        if session.reference is None:
            session.reference = ReferenceHeader(head.sequence, now, ledger.sent_at)
            session.reference_told = head.sequence
        effects += self._recovery.found(session, found)
        self._arm(session)
        return effects

    def withheld(
        self, publisher: str, incarnation: int, counts: Sequence[int], *, now: float, next_word: float = 0.0
    ) -> list[TransportEffect]:
        """These were withheld from us, by the counts of their identities: they are not lost."""
        session = self._sessions.get((publisher, incarnation))
        if session is None:
            return []
        effects = self._recovery.told_withheld(session, counts, next_word=next_word, now=now)
        self._arm(session)
        return effects + self._release(session, now)

    def _reply(self, reply: Reply, sender: str, bodies: bytes, now: float) -> list[TransportEffect]:
        session = self._sessions.get((sender, reply.incarnation))
        if session is None:
            return []
        session.trip.measured(since_stamp(reply.stamp, now))
        if session.window.top < reply.last <= session.window.top + self._config.jump_max:
            session.told_last(reply.last, now)
        effects: list[TransportEffect] = []
        for one, message in resent_messages(sender, reply, bodies):
            effects += self._repaired(session, one.number, message, now)
        for first, last in read_ranges(reply.covered):
            for number in session.missed_between(first, last):
                if not session.missed[number].sure:
                    self._recovery.settled(session, number)
        for first, last in read_ranges(reply.gone):
            for number in session.missed_between(first, last):
                effects += self._recovery.gone(session, number)
        self._arm(session)
        return effects + self._release(session, now)

    def _again(self, again: Again, sender: str, inside: Message, now: float) -> list[TransportEffect]:
        session = self._sessions.get((sender, again.incarnation))
        if session is None:
            return []
        message = original(sender, again.incarnation, again.count, inside.attributes, inside.body)
        effects = self._repaired(session, again.number, message, now)
        self._arm(session)
        return effects + self._release(session, now)

    def _repaired(self, session: LedgerSession, number: int, message: Message, now: float) -> list[TransportEffect]:
        """A message has come again, asked for or not."""
        missed = self._recovery.settled(session, number)
        known = session.unbelieved.knows(number, message)
        if known or (missed is None and not session.window.is_unknown(number)):
            session.window.settle(number)
            session.duplicates += 1
            return []
        late = number < session.window.top
        session.window.receive(number)
        self._sessions.received_from(session, now)
        wanting = self._subscriptions.wanting(message.attributes)
        wanted = tuple(self._interest.wanting(wanting, now if missed is None else missed.came_at))
        if not wanted:
            return []
        self._feedback.repaired(session, message, wanted, now=now)
        effects: list[TransportEffect] = []
        if missed is None or not (missed.withheld or (missed.sure and missed.detected_at is not None)):
            self._recovery.lost += 1
            effects.append(LossDetected(session.publisher, session.incarnation, number))
        effects.append(recovered_record(session, number, message.identity.count, missed, now))
        return effects + self._deliver(session, number, message, wanted, late, now, repaired=True)

    def _refuse(self, sender: str, problem: str) -> list[TransportEffect]:
        self._refused += 1
        return [InputRefused(sender, problem)]

    # Time.

    def expired(self, timer: int, key: TimerKey, *, now: float) -> list[TransportEffect]:
        """A deadline of this scheme has come."""
        if timer == TransportTimer.ANSWER:
            return self._answers.due(now)
        if timer == TransportTimer.LEDGER:
            return [*self._answers.budget.refusals(), *self.outgoing.expired(now=now)]
        session = self._sessions[str(key[0]), int(key[1])]
        if timer == TransportTimer.ORDER:
            session.order_armed = None
            return self._release(session, now)
        session.ask_armed = None
        effects, declared = self._recovery.due(session, now=now)
        if declared and self._config.congestion:
            self._feedback.missed(session, counted(declared), now=now)
        self._arm(session)
        return effects + self._release(session, now)

    def _arm(self, session: LedgerSession) -> None:
        at = session.next_due()
        if at != session.ask_armed:
            session.ask_armed = at
            self._set(TransportTimer.ASK, session, at)

    def _set(self, timer: TransportTimer, session: LedgerSession, at: float | None) -> None:
        if at is None:
            self._timers.cancel(timer, session.publisher, session.incarnation)
        else:
            self._timers.set(timer, at, session.publisher, session.incarnation)

    def tick(self, *, now: float) -> list[TransportEffect]:
        """End sessions that are idle, and report how order fares."""
        self._ticks += 1
        self._ticked_at = now
        effects: list[TransportEffect] = []
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.received_at < self._config.session_idle:
                break
            effects += self._end(oldest, now)
        if self._ticks % ORDER_REPORTED_EVERY == 0:
            for session in self._sessions.values():
                effects += session.order_report()
                if self._interest.recover_any and session.untold(now):
                    room = self._recovery.room(session.publisher)
                    found = self._detection.read_nothing(session, now=now, room=room)
                    effects += self._recovery.found(session, found)
                    self._arm(session)
        return effects

    # Sessions.

    def sessions(self) -> Sequence[LedgerSession]:
        """All publishers that something came from lately."""
        return list(self._sessions.values())

    def session(self, publisher: str, incarnation: int) -> LedgerSession | None:
        """One of them."""
        return self._sessions.get((publisher, incarnation))

    def _begin(
        self, publisher: str, incarnation: int, first: int, now: float
    ) -> tuple[LedgerSession, list[TransportEffect]]:
        effects: list[TransportEffect] = []
        crowded = self._sessions.in_the_way(publisher)
        if crowded is not None:
            effects = [crowded[1], *self._end(crowded[0], now)]
        session = self._sessions.begin(publisher, incarnation, first, self._recovery.trips, self._recovery.lateness)
        self._keep_ticking(now)
        return session, effects

    def _end(self, session: LedgerSession, now: float) -> list[TransportEffect]:
        """Forget a publisher; what waits goes out, and what is missed is lost."""
        effects = [*self._recovery.end(session), *self._refusal.let_go(session, now), *session.order_report()]
        self._set(TransportTimer.ORDER, session, None)
        self._set(TransportTimer.ASK, session, None)
        self._feedback.end(session)
        self._duplicates_before += session.duplicates
        self._unrevealed_before += session.window.forgotten + session.window.unknown.bit_count()
        self._broken_off_before += self._interest.recover_any and session.broken_off(now)
        self._sessions.end(session)
        return effects

    # Reports.

    def report(self, number: int) -> TransportReport:
        """How a subscription fares."""
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return TransportReport()
        sessions, delivered = self._sessions.values(), subscription.delivered
        unrevealed = self._unrevealed_before + self._refusal.unrevealed
        unrevealed += sum(session.window.forgotten for session in sessions)
        return TransportReport(
            delivered=delivered,
            late=subscription.late,
            dropped_late=self._dropped_late,
            recovered=subscription.recovered,
            lost=self._recovery.lost,
            known_lost=subscription.known_lost,
            pending=self._recovery.pending - self._recovery.waiting,
            withheld=subscription.withheld + self._recovery.waiting,
            duplicates=self._duplicates_before + sum(session.duplicates for session in sessions),
            refused=self._refused + self._refusal.count,
            without_header=subscription.without_header,
            publishers=len(self._sessions),
            delay_assigned=subscription.assigned / delivered if delivered else 0.0,
            delay_held=subscription.held / delivered if delivered else 0.0,
            heartbeats=self._ledgers,
            not_asked=self._recovery.not_asked,
            unrevealed=unrevealed + self._recovery.unknown,
            lost_numbers=tuple(self._recovery.lost_numbers),
            broken_off=self._broken_off(),
        )

    def _broken_off(self) -> int:
        """Only who recovers hears ledgers, and can tell silence from an end."""
        if not self._interest.recover_any:
            return self._broken_off_before
        return self._broken_off_before + sum(one.broken_off(self._ticked_at) for one in self._sessions.values())

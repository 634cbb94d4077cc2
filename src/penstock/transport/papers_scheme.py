"""002's scheme: bits in records, the latch, SRM's requests and repairs, adaptive caches, heartbeats.

Receiving: a message's header is decoded and its publisher's session puts it in order (`reorder_buffer`). What the
record shows to be missing is declared lost when its latch expires, and goes to `requests`, which asks for it; the
repair comes the same way, past the delay samples. Sending: a message is numbered and gets its header
(`publication_record`), and is kept for repairs (`repairs`).

State: sessions in the order of their last message. Own subscriptions: requests for what our subscriptions match, or for
what we published; heartbeats of publishers from which we receive too little. Bounds: `TransportConfig`, and a record
when one is hit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from random import Random

from penstock.content.envelope import control_name
from penstock.content.message import Message
from penstock.kernel.timers import Key as TimerKey
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.agreement import Agreement
from penstock.transport.bearer import BearerPublish, BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.ordering.reorder_buffer import OrderingStep, Verdict
from penstock.transport.own_subscriptions import OwnSubscriptions
from penstock.transport.receiver.feedback_scheduler import FeedbackScheduler
from penstock.transport.records import GaveUp, LossDetected
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.recovery.proactive_repair import EVERYBODY, ProactiveRepair
from penstock.transport.recovery.repairs import Repairs
from penstock.transport.recovery.requests import Requests, recovered_record
from penstock.transport.report import TransportReport, make_report
from penstock.transport.sender.publication_record import PublicationRecord
from penstock.transport.session import Session
from penstock.transport.subscriptions import HeldDelivery, TransportSubscription, TransportSubscriptions
from penstock.transport.timers import TransportTimer
from penstock.transport.wire import control_messages as control
from penstock.transport.wire.flow_fields import Control
from penstock.transport.wire.header import Header, decode_header, needs_own_bits

ASKED_WHILE_RECEIVED = 2.0  # ticks since its last message; a publisher that is gone gets no more echo requests
ORDER_REPORTED_EVERY = 5  # ticks between two records of how order fares


class PapersOutgoing:
    """The way of a published message: its number and record, the ring for repairs, a second copy, heartbeats."""

    def __init__(self, record: PublicationRecord, repairs: Repairs, proactive_repair: ProactiveRepair) -> None:
        self.name = record.name
        self._record = record
        self._repairs = repairs
        self._proactive_repair = proactive_repair

    def admit_by(self, admit: Callable[[Message, float], bool]) -> None:
        """From now on this says whether a repair of a message may leave."""
        self._repairs.admit = admit

    def encoding(self, message: Message) -> int:
        """The bits by which the message is compared with flows."""
        return self._record.encoding(message)

    def leave(self, message: Message, *, now: float, control: Control | None, limited: bool) -> list[TransportEffect]:
        """The message leaves with its header, and what follows it; raises InvalidMessage."""
        wrapped, key = self._record.wrap(message, now=now, control=control)
        self._repairs.keep_published(key, message, now)
        effects: list[TransportEffect] = [BearerPublish(wrapped)]
        if not limited:  # a limited flow has no room for proactive repairs
            effects += self._proactive_repair.left(key, message, now)
        if self._record.heartbeat_due():
            effects += self._record.heartbeat(now=now)
        return effects

    def attribute_names(self) -> tuple[str, ...]:
        """None: bits tell of all attributes together."""
        return ()

    def unused(self, names: tuple[str, ...]) -> None:
        """It makes no difference."""


class PapersScheme:
    """Order, loss detection and recovery for one client, as in 002."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        config: TransportConfig,
        timers: ServiceTimers,
        random: Callable[[str], Random],
        identities: control.ControlIdentities,
        subscriptions: TransportSubscriptions,
        own_subscriptions: OwnSubscriptions,
        feedback: FeedbackScheduler,
        distances: DistanceEstimator,
        keep_ticking: Callable[[float], None],
        agreement: Agreement,
    ) -> None:
        self._name = name
        self.config = config
        self._timers = timers
        self._distances = distances
        self._publication_record = PublicationRecord(name, incarnation, config, timers, identities)
        self._requests = Requests(name, config, timers, random("requests"), distances, identities)
        self._repairs = Repairs(name, config, timers, random("repairs"), distances, identities)
        self._proactive_repair = ProactiveRepair(config, timers, identities)
        self.outgoing = PapersOutgoing(self._publication_record, self._repairs, self._proactive_repair)
        self._subscriptions = subscriptions
        self._own_subscriptions = own_subscriptions
        self._feedback_scheduler = feedback
        self._keep_ticking = keep_ticking
        self._agreement = agreement
        self._sessions: OrderedDict[tuple[str, int], Session] = OrderedDict()
        self._ticks = self._not_asked = 0
        self._refused = self._heartbeats_received = self._dropped_late = 0
        self._lost = self._duplicates_before = 0  # of all publishers, also those that are forgotten by now

    # Subscriptions.

    def start(self) -> list[TransportEffect]:
        """A publisher subscribes to requests about it."""
        return self._own_subscriptions.about_us() if self.config.publisher_answers else []

    def leaving(self, *, now: float) -> list[TransportEffect]:
        """The papers know no last words."""
        return []

    def subscribed(self, number: int, subscription: TransportSubscription, *, now: float) -> list[TransportEffect]:
        """Who recovers subscribes to requests for what it receives."""
        if not subscription.recover:
            return []
        subscription.requests = self._own_subscriptions.number()
        where = control.requests_where(subscription.encodings, self.config.domain)
        return [BearerSubscribe(subscription.requests, where)]

    def unsubscribed(self, subscription: TransportSubscription | None, *, now: float) -> list[TransportEffect]:
        """What was only for this one is given up."""
        effects: list[TransportEffect] = []
        if not self._subscriptions.recover_any:
            for session in self._sessions.values():
                effects += self._own_subscriptions.no_heartbeats_of(session)
        requests = None if subscription is None else subscription.requests
        return effects if requests is None else [*effects, BearerUnsubscribe(requests)]

    def report(self, number: int) -> TransportReport:
        """How this subscription fares; losses and probabilities are those of all publishers together."""
        return make_report(
            self._subscriptions.get(number),
            list(self._sessions.values()),
            known_lost=self._requests.given_up - self._requests.came_after_all,
            pending=len(self._requests),
            refused=self._refused,
            dropped_late=self._dropped_late,
            lost=self._lost,
            duplicates_before=self._duplicates_before,
            heartbeats=self._heartbeats_received,
            not_asked=self._not_asked,
        )

    # Messages.

    def data(self, wanted: tuple[int, ...], data: bytes, message: Message, *, now: float) -> list[TransportEffect]:
        """A message has come for these subscriptions; raises InvalidHeader, ForeignScheme."""
        subscriptions = self._subscriptions
        header = self._header(data, message)
        ordered, unordered = subscriptions.split(wanted)
        session, begun = self._session(message, header, now)
        held, late = HeldDelivery(message, ordered), header.sequence < session.reorder_buffer.newest
        step = session.reorder_buffer.arrived(header, subscriptions.relevant, held, hold=bool(ordered), now=now)
        if step.verdict is Verdict.REFUSED:
            return self._refuse(message, step.problem)
        session.record_entries, session.sends_heartbeats = header.record_size, header.heartbeats
        self._received_from(session, now)
        effects = begun
        if step.verdict is Verdict.NEW:
            effects += self._subscriptions.hand_over(message, unordered, late)
            lost = [one.encoding for one in step.lost]
            effects += self._feedback_scheduler.arrived(session, header, message, ordered + unordered, lost, now=now)
            if subscriptions.recover_any:
                key = control.Key(session.publisher, session.incarnation, header.sequence)
                self._requests.received(key, now)
                effects += self._repairs.keep(key, message, header.departure, now)
        return effects + self._after(session, step, now)

    def _header(self, data: bytes, message: Message) -> Header:
        scheme = self.config.encoding
        own_bits = scheme.encode_message(message.attributes) if needs_own_bits(data) else 0
        return decode_header(data, own_bits, entry_bits=scheme.bits)

    def _refuse(self, message: Message, problem: str) -> list[TransportEffect]:
        self._refused += 1
        return [InputRefused(message.identity.publisher, problem)]

    # Control messages.

    def public(self, kind: str, inside: Message) -> bool:
        """Repairs for all take the way of the message they repair."""
        return kind == control.REPAIR and control.TO not in inside.attributes

    def withheld(
        self, publisher: str, incarnation: int, counts: Sequence[int], *, now: float, next_word: float = 0.0
    ) -> list[TransportEffect]:
        """The papers know of no such thing: what does not come is lost."""
        return []

    def control_message(self, kind: str, data: bytes, inside: Message, *, now: float) -> list[TransportEffect] | None:
        """A control message of this scheme; raises InvalidHeader."""
        if kind == control.REQUEST:
            request = control.decode_control(data, control.Request)
            if request.requester == self._name:
                return []
            effects = self._requests.request_received(request, now)
            return effects + self._repairs.request_received(request, now, direct=control.TO in inside.attributes)
        if kind == control.REPAIR:
            return self._repaired(control.decode_control(data, control.Repair), inside, now)
        if kind == control.HEARTBEAT:
            return self._heartbeat(data, inside, now)
        return None

    def _repaired(self, repair: control.Repair, inside: Message, now: float) -> list[TransportEffect]:
        """A repair: of a message that we miss, or one that suppresses our own."""
        key = repair.key
        message = control.repaired_message(repair, inside)
        awaited = self._requests.encoding(key)
        if awaited is not None and self.config.encoding.encode_message(message.attributes) != awaited:
            return self._refuse(inside, f"a repair of message {key.sequence} that is not the one we miss")
        kept = self._repairs.kept(key)
        if kept is not None and (kept.message.attributes != message.attributes or kept.message.body != message.body):
            return self._refuse(inside, f"a repair of message {key.sequence} that is not the one we have")
        effects = self._repairs.repair_received(key, now, sender=inside.identity.publisher)
        asked = self._requests.received(key, now)
        session = self._sessions.get((key.publisher, key.incarnation))
        ordered, unordered = self._subscriptions.split(tuple(self._subscriptions.wanting(message.attributes)))
        wanted = bool(ordered or unordered)
        first_hand = repair.requester == EVERYBODY and inside.identity.publisher == control_name(key.publisher)
        if session is None and wanted and first_hand:
            # The second copy of a message that was the first we should have had of this publisher.
            session, begun = self._session(message, Header(key.sequence, repair.departure), now)
            self._received_from(session, now)
            effects += begun
        # What we asked for and do not want after all was a false positive of its encoding: nobody waits for it now.
        if session is None or session.reorder_buffer.has(key.sequence) or not (wanted or asked):
            return effects
        held = HeldDelivery(message, ordered, repaired=True)
        if awaited is not None and self._subscriptions.recoverable(awaited):
            session.answered(wanted=wanted)
        late = key.sequence < session.reorder_buffer.newest
        step = session.reorder_buffer.repaired(key.sequence, held, hold=bool(ordered), now=now, first_hand=first_hand)
        if step.verdict is Verdict.REFUSED:
            return effects + self._refuse(inside, step.problem)
        if wanted and step.verdict is Verdict.NEW:
            effects.append(recovered_record(repair, asked, now))
            effects += self._subscriptions.hand_over(message, unordered, late, True)
            effects += self._repairs.keep(key, message, repair.departure, now)
        return effects + self._after(session, step, now)

    def _heartbeat(self, data: bytes, message: Message, now: float) -> list[TransportEffect]:
        """A publication record without a message, of a publisher that we know."""
        publisher, identity = message.attributes.get(control.FROM), message.identity
        session = self._sessions.get((str(publisher), identity.incarnation))
        if session is None or identity.publisher != control_name(str(publisher)):
            return []
        header = decode_header(data, 0, entry_bits=self.config.encoding.bits)
        step = session.reorder_buffer.noticed(header, self._subscriptions.relevant, now=now)
        if step.verdict is Verdict.REFUSED:
            return self._refuse(message, step.problem)
        self._heartbeats_received += 1
        self._received_from(session, now)
        return self._after(session, step, now, later=True)

    # Time.

    def expired(self, timer: int, key: TimerKey, *, now: float) -> list[TransportEffect]:
        """A deadline of this scheme has come."""
        match timer:
            case TransportTimer.ORDER:
                session = self._sessions[str(key[0]), int(key[1])]
                session.armed_for = None
                return self._after(session, session.reorder_buffer.expired(now=now), now, later=True)
            case TransportTimer.REQUEST:
                return self._asked_again(key, now)
            case TransportTimer.REPAIR:
                return self._repairs.expired(key, now)
            case TransportTimer.HEARTBEAT:
                return self._publication_record.heartbeat(now=now)
            case _:
                return self._proactive_repair.expired(now=now)

    def _asked_again(self, key: TimerKey, now: float) -> list[TransportEffect]:
        effects = self._requests.expired(key, now)
        session = self._sessions.get((str(key[0]), int(key[1])))
        if session is not None and any(isinstance(effect, GaveUp) for effect in effects):
            session.reorder_buffer.dismiss(int(key[2]))
            effects += self._after(session, session.reorder_buffer.expired(now=now), now, later=True)
        return effects

    def tick(self, *, now: float) -> list[TransportEffect]:
        """Sizes of caches, sessions that have ended, heartbeats that are needed, records."""
        self._ticks += 1
        effects: list[TransportEffect] = [*self._repairs.tune(now)]
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.received_at < self.config.session_idle:
                break
            effects += self._end(oldest, now)
        for session in self._sessions.values():
            effects += self._maintain(session, now)
        return effects

    def _maintain(self, session: Session, now: float) -> list[TransportEffect]:
        effects: list[TransportEffect] = []
        session.fade()
        if self._subscriptions.recover_any:
            if now - session.received_at <= ASKED_WHILE_RECEIVED * self.config.cache_interval:
                effects += self._distances.ask(session.publisher, now)
            if session.needs_heartbeats(self.config.heartbeat_below):
                effects += self._own_subscriptions.heartbeats_of(session)
        if session.spilled():
            effects.append(LimitReached("ordering", self.config.queue_max))
        if self._ticks % ORDER_REPORTED_EVERY == 0:
            effects += session.order_report()
        return effects

    # Sessions.

    def sessions(self) -> Sequence[Session]:
        """All publishers that something came from lately."""
        return list(self._sessions.values())

    def session(self, publisher: str, incarnation: int) -> Session | None:
        """One of them."""
        return self._sessions.get((publisher, incarnation))

    def _session(self, message: Message, header: Header, now: float) -> tuple[Session, list[TransportEffect]]:
        """The session of this publisher's life, begun if there is none."""
        known = (message.identity.publisher, message.identity.incarnation)
        session = self._sessions.get(known)
        if session is not None:
            return session, []
        effects: list[TransportEffect] = []
        if len(self._sessions) >= self.config.sessions_max:
            effects.append(LimitReached("sessions", self.config.sessions_max))
            effects += self._end(next(iter(self._sessions.values())), now)
        session = self._sessions[known] = Session(*known, self.config, header)
        self._keep_ticking(now)
        effects += self._agreement.congestion(known[0], header.control is not None)
        return session, effects + self._maintain(session, now)

    def _received_from(self, session: Session, now: float) -> None:
        """Its publisher lives; sessions stand in the order of their last message."""
        session.received_at = now
        self._sessions.move_to_end((session.publisher, session.incarnation))

    def _end(self, session: Session, now: float) -> list[TransportEffect]:
        """Forget a publisher; what it left in the queue goes out first, and it is asked for nothing more."""
        effects = self._after(session, session.reorder_buffer.close(now=now), now)
        effects += session.order_report()
        self._timers.cancel(TransportTimer.ORDER, session.publisher, session.incarnation)
        self._feedback_scheduler.end(session)
        pending = len(self._requests)
        self._requests.forget(session.publisher, session.incarnation)
        self._not_asked += pending - len(self._requests)
        effects += self._own_subscriptions.no_heartbeats_of(session)
        self._duplicates_before += session.reorder_buffer.duplicates
        del self._sessions[session.publisher, session.incarnation]
        return effects

    def _after(
        self, session: Session, step: OrderingStep[HeldDelivery], now: float, *, later: bool = False
    ) -> list[TransportEffect]:
        """Deliver what the reorder buffer releases, request what it found lost (`later`: by no message), set its
        timer."""
        if later and step.lost:
            self._feedback_scheduler.missed(session, [one.encoding for one in step.lost], now=now)
        effects: list[TransportEffect] = []
        self._dropped_late += step.late_dropped
        self._lost += len(step.lost)
        for let_go in step.released:
            effects += self._subscriptions.let_go(let_go.item, let_go.late, let_go.assigned, let_go.held)
        for lost in step.lost:
            key = control.Key(session.publisher, session.incarnation, lost.sequence)
            effects.append(LossDetected(key.publisher, key.incarnation, key.sequence))
            if self._subscriptions.recoverable(lost.encoding) and not session.doubtful():
                effects += self._requests.lost(key, lost.encoding, now)
            if not self._requests.pending(key):
                self._not_asked += 1
                session.reorder_buffer.dismiss(lost.sequence)
        if step.lost and self.config.late == "hold":  # some may be held for a repair that nobody will send
            for let_go in session.reorder_buffer.expired(now=now).released:
                effects += self._subscriptions.let_go(let_go.item, let_go.late, let_go.assigned, let_go.held)
        deadline = session.reorder_buffer.deadline()
        if deadline != session.armed_for:
            session.armed_for = deadline
            if deadline is None:
                self._timers.cancel(TransportTimer.ORDER, session.publisher, session.incarnation)
            else:
                self._timers.set(TransportTimer.ORDER, deadline, session.publisher, session.incarnation)
        return effects

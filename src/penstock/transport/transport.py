"""The transport of one client: follow a message from here.

Receiving: a message comes from the network (`arrived`), its header is decoded, its publisher's session puts it in order
(`reorder_buffer`), and it is delivered to the application. What the header's record shows to be missing is declared
lost when its latch expires, and goes to `requests`, which asks for it; the repair comes the same way, past the delay
samples. Sending: a message is numbered and gets its header (`publication_record`), and is kept for repairs (`repairs`).

The network below is known by three verbs and a callback (`bearer`). Everything about one publisher is in its
`session`; the parts know nothing of each other, this file joins them by plain calls.

State: the subscriptions that asked for order or recovery, and sessions in the order of their last message. Own
subscriptions: the inbox; requests for what our subscriptions match, or for what we published; heartbeats of publishers
from which we receive too little. Timers: `timers` has all; TICK runs while there are sessions or limited
flows. Bounds: `TransportConfig`, and a record when one is hit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random

from penstock.content.envelope import DATA, FLAG, control_name, kind_of, opened
from penstock.content.message import Message
from penstock.content.predicate import Predicate
from penstock.errors import ForeignScheme, InvalidHeader, InvalidMessage
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Deliver
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key as TimerKey
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.bearer import BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.flow_query import FlowQuery
from penstock.transport.ordering.reorder_buffer import OrderingStep, Verdict
from penstock.transport.own_subscriptions import OwnSubscriptions
from penstock.transport.receiver.feedback_scheduler import ControlReport, FeedbackScheduler
from penstock.transport.records import GaveUp, LossDetected
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.recovery.proactive_repair import EVERYBODY, ProactiveRepair
from penstock.transport.recovery.repairs import Repairs
from penstock.transport.recovery.requests import Requests, recovered_record
from penstock.transport.report import TransportReport, make_report
from penstock.transport.sender.publication_record import PublicationRecord
from penstock.transport.sender.send_path import SendPath
from penstock.transport.session import Session
from penstock.transport.subscriptions import HeldDelivery, TransportSubscription, TransportSubscriptions
from penstock.transport.timers import TransportTimer
from penstock.transport.wire import control_messages as control
from penstock.transport.wire.header import Header, decode_header, needs_own_bits

ASKED_WHILE_RECEIVED = 2.0  # ticks since its last message; a publisher that is gone gets no more echo requests
ORDER_REPORTED_EVERY = 5  # ticks between two records of how order fares


class Transport:
    """Order, loss detection and recovery for one client."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        config: TransportConfig,
        timers: ServiceTimers,
        random: Callable[[str], Random],  # a generator for each purpose
        *,
        publishes: bool,
        first_number: int = SERVICE_SUBSCRIPTIONS,  # of the subscriptions that it makes itself
        traced: bool = True,  # whether anybody keeps the records
    ) -> None:
        self.name = name
        self.config = config
        self.publishes = publishes  # whether what the application publishes gets a header
        identities = control.ControlIdentities(name, incarnation)
        self._timers = timers
        self._distances = DistanceEstimator(name, config, identities)
        self._publication_record = PublicationRecord(name, incarnation, config, timers, identities)
        self._requests = Requests(name, config, timers, random("requests"), self._distances, identities)
        self._repairs = Repairs(name, config, timers, random("repairs"), self._distances, identities)
        self._subscriptions = TransportSubscriptions()
        self._proactive_repair = ProactiveRepair(config, timers, identities)
        self._send_path = SendPath(
            config,
            self._publication_record,
            self._repairs,
            self._distances,
            timers,
            self._proactive_repair,
            traced=traced,
        )
        self._feedback_scheduler = FeedbackScheduler(
            name, config, timers, random("feedback"), self._distances, identities
        )
        self._sessions: OrderedDict[tuple[str, int], Session] = OrderedDict()
        self._own_subscriptions = OwnSubscriptions(name, config.domain, first_number)
        self.flow_query = FlowQuery(name, identities, random("flow query"), self._send_path, self._own_subscriptions)
        self.withdraw = self._send_path.withdraw  # by its ticket, what waits for tokens: it does not leave
        self.left_behind = self._send_path.left_behind  # messages that wait for tokens, and nobody for them
        self.flows = self._send_path.flows  # that subscribers limit, and who slows whom
        self._ticking = False
        self._ticks = self._not_asked = 0
        self._refused = self._heartbeats_received = self._dropped_late = 0
        self._lost = self._duplicates_before = 0  # of all publishers, also those that are forgotten by now

    # Verbs.

    def start(self) -> list[TransportEffect]:
        """What a publisher needs from the network before its first message: an inbox, and requests about it."""
        if not self.publishes:
            return []
        about_us = self._own_subscriptions.about_us() if self.config.publisher_answers else []
        return self._own_subscriptions.inbox() + about_us

    def publish(
        self, message: Message, *, now: float, ticket: Ticket | None = None, began: float | None = None
    ) -> list[TransportEffect]:
        """Number the message and send it, now or when its flow has tokens; the ticket is answered when it has left.
        Raises InvalidMessage, having changed nothing, if a header has no room."""
        return self._send_path.publish(message, ticket, now=now, began=began)

    def close(self, problem: str) -> list[TransportEffect]:
        """The network has gone: what waits for tokens does not leave any more."""
        return self._send_path.close(problem)

    @property
    def limited(self) -> bool:
        """Whether a message may have to wait before it leaves."""
        return self._send_path.controlled

    def subscribe(
        self, number: int, predicate: Predicate, *, ordered: bool, recover: bool, now: float, priority: float = 1.0
    ) -> list[TransportEffect]:
        """Look after this subscription, which the network has been asked for already."""
        encodings = self.config.scheme.routing_encodings(predicate)
        subscription = TransportSubscription(predicate, encodings, ordered, recover, priority)
        self._subscriptions.add(number, subscription)
        effects = self._own_subscriptions.inbox() + self._feedback_scheduler.subscribed(number, subscription)
        if recover:
            subscription.requests = self._own_subscriptions.number()
            effects.append(
                BearerSubscribe(subscription.requests, control.requests_where(encodings, self.config.domain))
            )
        return effects

    def unsubscribe(self, number: int, *, now: float) -> list[TransportEffect]:
        """Serve it no longer; what was held for it is not delivered any more."""
        subscription = self._subscriptions.remove(number)
        self._feedback_scheduler.unsubscribed(number)
        effects: list[TransportEffect] = []
        if not self._subscriptions.recover_any:
            for session in self._sessions.values():
                effects += self._own_subscriptions.no_heartbeats_of(session)
        requests = None if subscription is None else subscription.requests
        return effects if requests is None else [*effects, BearerUnsubscribe(requests)]

    def serves(self, number: int) -> bool:
        """Whether this subscription asked for more than best effort."""
        return number in self._subscriptions

    def without_header(self, number: int) -> int:
        """Messages for this subscription from publishers that do not use the transport."""
        subscription = self._subscriptions.get(number)
        return 0 if subscription is None else subscription.without_header

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

    # The callback.

    def arrived(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[TransportEffect]:
        """A message has come, for these subscriptions of ours or of the application."""
        kind = kind_of(message)
        if kind is None:
            if FLAG in message.attributes:
                return self._refuse(message, f"an envelope of kind {message.attributes[FLAG]!r}")
            return self._plain(numbers, message)
        try:
            header, inside = opened(message)
            if kind == DATA:
                return self._data(numbers, header, inside, now)
            return self._control_message(kind, header, inside, now) if _meant_for_us(kind, numbers, message) else []
        except (InvalidHeader, InvalidMessage) as error:
            return self._refuse(message, str(error))

    def _plain(self, numbers: tuple[int, ...], message: Message) -> list[TransportEffect]:
        """A message of a publisher that does not use the transport."""
        effects: list[TransportEffect] = []
        for number in numbers:
            if number < SERVICE_SUBSCRIPTIONS:
                effects.append(Deliver(number, message))
                subscription = self._subscriptions.get(number)
                if subscription is not None:
                    subscription.delivered += 1
                    subscription.without_header += 1
        return effects

    def _data(self, numbers: tuple[int, ...], data: bytes, message: Message, now: float) -> list[TransportEffect]:
        """An application's message: at once for those who want nothing more, through its session for the others."""
        subscriptions = self._subscriptions
        plain = [number for number in numbers if number not in subscriptions and number < SERVICE_SUBSCRIPTIONS]
        effects: list[TransportEffect] = [Deliver(number, message) for number in plain]
        ordered, unordered = subscriptions.split([number for number in numbers if number in subscriptions])
        if not ordered and not unordered:
            return effects
        try:
            header = self._header(data, message)
        except ForeignScheme as error:  # neither order nor recovery is possible, but it is a good message
            wanted = tuple([number for number in numbers if number in subscriptions])
            return [*effects, InputRefused(message.identity.publisher, str(error)), *self._plain(wanted, message)]
        except InvalidHeader as error:
            return effects + self._refuse(message, str(error))
        session, begun = self._session(message, header, now)
        held, late = HeldDelivery(message, ordered), header.sequence < session.reorder_buffer.newest
        step = session.reorder_buffer.arrived(header, subscriptions.relevant, held, hold=bool(ordered), now=now)
        if step.verdict is Verdict.REFUSED:
            return effects + self._refuse(message, step.problem)
        session.record_entries, session.sends_heartbeats = header.record_size, header.heartbeats
        self._received_from(session, now)
        effects += begun
        if step.verdict is Verdict.NEW:
            effects += self._subscriptions.hand_over(HeldDelivery(message, unordered), late)
            lost = [one.encoding for one in step.lost]
            effects += self._feedback_scheduler.arrived(session, header, message, ordered + unordered, lost, now=now)
            if subscriptions.recover_any:
                key = control.Key(session.publisher, session.incarnation, header.sequence)
                self._requests.received(key, now)
                effects += self._repairs.keep(key, message, header.departure, now)
        return effects + self._after(session, step, now)

    def _header(self, data: bytes, message: Message) -> Header:
        scheme = self.config.scheme
        own_bits = scheme.encode_message(message.attributes) if needs_own_bits(data) else 0
        return decode_header(data, own_bits, entry_bits=scheme.bits)

    def _refuse(self, message: Message, problem: str) -> list[TransportEffect]:
        self._refused += 1
        return [InputRefused(message.identity.publisher, problem)]

    # Control messages.

    def _control_message(self, kind: str, data: bytes, message: Message, now: float) -> list[TransportEffect]:
        if kind == control.REQUEST:
            request = control.decode_control(data, control.Request)
            if request.requester == self.name:
                return []
            effects = self._requests.request_received(request, now)
            return effects + self._repairs.request_received(request, now, direct=control.TO in message.attributes)
        if kind == control.REPAIR:
            return self._repaired(control.decode_control(data, control.Repair), message, now)
        if kind == control.HEARTBEAT:
            return self._heartbeat(data, message, now)
        if kind == control.ECHO:
            return self._distances.echo_request_received(control.decode_control(data, control.EchoRequest), now)
        if kind == control.ANSWER:
            return self._echo_reply(control.decode_control(data, control.EchoReply), now)
        if kind == control.FEEDBACK:
            return self._feedback_received(control.decode_control(data, control.Feedback), message, now)
        if kind in (control.QUESTION, control.SLOWED):
            return self.flow_query.received(kind, data, message.identity.publisher, now)
        return self._refuse(message, f"a control message of an unknown kind, '{kind[:40]}'")

    def _repaired(self, repair: control.Repair, inside: Message, now: float) -> list[TransportEffect]:
        """A repair: of a message that we miss, or one that suppresses our own."""
        key = repair.key
        message = control.repaired_message(repair, inside)
        awaited = self._requests.encoding(key)
        if awaited is not None and self.config.scheme.encode_message(message.attributes) != awaited:
            return self._refuse(inside, f"a repair of message {key.sequence} that is not the one we miss")
        kept = self._repairs.kept(key)
        if kept is not None and (kept.message.attributes != message.attributes or kept.message.body != message.body):
            return self._refuse(inside, f"a repair of message {key.sequence} that is not the one we have")
        effects = self._repairs.repair_received(key, now, sender=inside.identity.publisher)
        asked = self._requests.received(key, now)
        session = self._sessions.get((key.publisher, key.incarnation))
        ordered, unordered = self._subscriptions.split(self._subscriptions.wanting(message.attributes))
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
            effects += self._subscriptions.hand_over(HeldDelivery(message, unordered, repaired=True), late)
            effects += self._repairs.keep(key, message, repair.departure, now)
        return effects + self._after(session, step, now)

    def _echo_reply(self, answer: control.EchoReply, now: float) -> list[TransportEffect]:
        effects = self._distances.echo_reply_received(answer, now)
        for session in self._sessions.values():
            if session.rate_controller is not None and session.publisher == answer.sender:
                self._feedback_scheduler.echoed(session)
        return effects

    def _feedback_received(self, feedback: control.Feedback, message: Message, now: float) -> list[TransportEffect]:
        if not self.config.congestion or not self.publishes:
            return []
        if message.identity.publisher != control_name(feedback.subscriber):
            return self._refuse(message, f"feedback in the name of {feedback.subscriber[:40]}")
        self._keep_ticking(now)
        return [*self._send_path.feedback_received(feedback, now=now), *self.flow_query.limited()]

    def dropped_here(self, message: Message, *, now: float) -> None:
        """The application was too slow for a message that we handed over: a loss as any other."""
        identity = message.identity
        session = self._sessions.get((identity.publisher, identity.incarnation))
        if session is not None:
            self._feedback_scheduler.dropped_here(session, now=now)

    def control(self, number: int | None = None) -> ControlReport:
        """What congestion control knows of those who publish to us, and of this subscription's application or all."""
        return self._feedback_scheduler.report(list(self._sessions.values()), number)

    def reader_takes(self, number: int, rate: float, *, now: float) -> None:
        """A subscription's application is behind and takes so many messages/s; infinity: it keeps up again."""
        self._feedback_scheduler.reader_pace(list(self._sessions.values()), number, rate, now=now)

    def _heartbeat(self, data: bytes, message: Message, now: float) -> list[TransportEffect]:
        """A publication record without a message, of a publisher that we know."""
        publisher, identity = message.attributes.get(control.FROM), message.identity
        session = self._sessions.get((str(publisher), identity.incarnation))
        if session is None or identity.publisher != control_name(str(publisher)):
            return []
        header = decode_header(data, 0, entry_bits=self.config.scheme.bits)
        step = session.reorder_buffer.noticed(header, self._subscriptions.relevant, now=now)
        if step.verdict is Verdict.REFUSED:
            return self._refuse(message, step.problem)
        self._heartbeats_received += 1
        self._received_from(session, now)
        return self._after(session, step, now, later=True)

    # Time.

    def expired(self, timer: int, key: TimerKey, *, now: float) -> list[TransportEffect]:
        """A deadline of ours has come."""
        match timer:
            case TransportTimer.ORDER:
                session = self._session_of(key)
                session.armed_for = None
                return self._after(session, session.reorder_buffer.expired(now=now), now, later=True)
            case TransportTimer.REQUEST:
                return self._asked_again(key, now)
            case TransportTimer.REPAIR:
                return self._repairs.expired(key, now)
            case TransportTimer.HEARTBEAT:
                return self._send_path.heartbeat(now=now)
            case TransportTimer.RATE_LIMITER:
                return self._send_path.expired(now=now)
            case TransportTimer.PROACTIVE_REPAIR:
                return self._proactive_repair.expired(now=now)
            case TransportTimer.FEEDBACK:
                return self._feedback_scheduler.expired(self._session_of(key), now=now)
            case _:
                return self._tick(now)

    def _session_of(self, key: TimerKey) -> Session:
        return self._sessions[str(key[0]), int(key[1])]

    def _asked_again(self, key: TimerKey, now: float) -> list[TransportEffect]:
        effects = self._requests.expired(key, now)
        session = self._sessions.get((str(key[0]), int(key[1])))
        if session is not None and any(isinstance(effect, GaveUp) for effect in effects):
            session.reorder_buffer.dismiss(int(key[2]))
            effects += self._after(session, session.reorder_buffer.expired(now=now), now, later=True)
        return effects

    def _tick(self, now: float) -> list[TransportEffect]:
        """Once per interval: sizes of caches, sessions that have ended, heartbeats that are needed, records."""
        self._ticks += 1
        self._ticking = False
        effects = [*self._repairs.tune(now), *self._send_path.tick(now=now)]
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.received_at < self.config.session_idle:
                break
            effects += self._end(oldest, now)
        for session in self._sessions.values():
            effects += self._maintain(session, now)
        if self._sessions or self._send_path.controlled:
            self._keep_ticking(now)
        return effects

    def _keep_ticking(self, now: float) -> None:
        if not self._ticking:
            self._ticking = True
            self._timers.set(TransportTimer.TICK, now + self.config.cache_interval)

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
            effects += self._subscriptions.hand_over(let_go.item, let_go.late, let_go.assigned, let_go.held)
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
                effects += self._subscriptions.hand_over(let_go.item, let_go.late, let_go.assigned, let_go.held)
        deadline = session.reorder_buffer.deadline()
        if deadline != session.armed_for:
            session.armed_for = deadline
            if deadline is None:
                self._timers.cancel(TransportTimer.ORDER, session.publisher, session.incarnation)
            else:
                self._timers.set(TransportTimer.ORDER, deadline, session.publisher, session.incarnation)
        return effects


def _meant_for_us(kind: str, numbers: tuple[int, ...], message: Message) -> bool:
    """Whether a control message came because the transport subscribed to it. An application that wants everything also
    gets what is meant for others' inboxes and domains; only repairs take the way of the message they repair."""
    ours = any(number >= SERVICE_SUBSCRIPTIONS for number in numbers)
    return ours or (kind == control.REPAIR and control.TO not in message.attributes)

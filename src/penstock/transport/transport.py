"""The transport of one client: what both schemes share, and where their ways part.

A message comes from the network (`arrived`). A plain one is delivered; one with a header goes to the scheme, which puts
it in order, finds out what is lost and recovers it. Control messages of congestion control (feedback, echoes, questions
who is slowed down) are dealt with here, all others by the scheme. A published message takes the `send_path`, where it
may wait for tokens, and the scheme gives it its number and header.

The network below is known by three verbs and a callback (`bearer`). `scheme` says what a scheme is; which one is a
setting, and both ends must have the same.

State: the subscriptions that asked for order, recovery or congestion control. Own subscriptions: the inbox, and those
of the scheme. Timers: `timers` has all; TICK runs while there are sessions or limited flows. Bounds: `TransportConfig`,
and a record when one is hit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from penstock.content.envelope import DATA, FLAG, control_name, opened
from penstock.content.message import Message
from penstock.content.predicate import Predicate
from penstock.errors import ForeignScheme, InvalidHeader, InvalidMessage
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Deliver
from penstock.kernel.timers import Key as TimerKey
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused, TraceSwitch
from penstock.transport.agreement import Agreement
from penstock.transport.bearer import TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.flow_query import FlowQuery
from penstock.transport.ledgers.scheme import LedgerScheme
from penstock.transport.own_subscriptions import OwnSubscriptions
from penstock.transport.papers_scheme import PapersScheme
from penstock.transport.receiver.controlled_session import ControlledSession
from penstock.transport.receiver.feedback_scheduler import ControlReport, FeedbackScheduler
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.report import TransportReport
from penstock.transport.scheme import Scheme
from penstock.transport.sender.send_path import SendPath
from penstock.transport.subscriptions import TransportSubscription, TransportSubscriptions
from penstock.transport.timers import TransportTimer
from penstock.transport.wire import control_messages as control


class Transport:
    """Order, loss detection, recovery and congestion control for one client."""

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
        traced: TraceSwitch | bool = True,  # whether anybody keeps the records
    ) -> None:
        self.name = name
        self.config = config
        self.publishes = publishes  # whether what the application publishes gets a header
        identities = control.ControlIdentities(name, incarnation)
        self._timers = timers
        self._agreement = Agreement(config)
        self._distances = DistanceEstimator(name, config, identities)
        self._subscriptions = TransportSubscriptions()
        self._own_subscriptions = OwnSubscriptions(name, config.domain, first_number)
        self._feedback_scheduler = FeedbackScheduler(
            name, config, timers, random("feedback"), self._distances, identities
        )
        shared = (name, incarnation, config, timers, random, identities)
        served = (self._subscriptions, self._own_subscriptions, self._feedback_scheduler)
        self.scheme: Scheme = (
            LedgerScheme(*shared, *served, self._keep_ticking, self._agreement)
            if config.scheme == "ledgers"
            else PapersScheme(*shared, *served, self._distances, self._keep_ticking, self._agreement)
        )
        self._send_path = SendPath(config, self.scheme.outgoing, self._distances, timers, traced=traced)
        self.flow_query = FlowQuery(name, identities, random("flow query"), self._send_path, self._own_subscriptions)
        # Number a message and send it, now or when its flow has tokens; the ticket is answered when it has left. Raises
        # InvalidMessage, having changed nothing, if a header has no room.
        self.publish = self._send_path.publish
        self.publish_all = self._send_path.publish_all  # the same of many, which never raises
        self.withdraw = self._send_path.withdraw  # by its ticket, what waits for tokens: it does not leave
        self.left_behind = self._send_path.left_behind  # messages that wait for tokens, and nobody for them
        self.flows = self._send_path.flows  # that subscribers limit, and who slows whom
        self._ticking = False
        self._refused = 0

    # Verbs.

    def start(self) -> list[TransportEffect]:
        """What a publisher needs from the network before its first message: an inbox, and requests about it."""
        if not self.publishes:
            return []
        return self._own_subscriptions.inbox() + self.scheme.start()

    def leaving(self, *, now: float) -> list[TransportEffect]:
        """The application has published its last message."""
        return self._send_path.leaving(now=now) + self.scheme.leaving(now=now)

    def close(self, problem: str) -> list[TransportEffect]:
        """The network has gone: what waits for tokens does not leave any more."""
        return self._send_path.close(problem)

    @property
    def limited(self) -> bool:
        """Whether a message may have to wait before it leaves."""
        return self._send_path.may_wait

    def subscribe(
        self, number: int, predicate: Predicate, *, ordered: bool, recover: bool, now: float, priority: float = 1.0
    ) -> list[TransportEffect]:
        """Look after this subscription, which the network has been asked for already."""
        encodings = self.config.encoding.routing_encodings(predicate)
        subscription = TransportSubscription(predicate, encodings, ordered, recover, priority)
        self._subscriptions.add(number, subscription)
        effects = self._own_subscriptions.inbox() + self._feedback_scheduler.subscribed(number, subscription)
        return effects + self.scheme.subscribed(number, subscription, now=now)

    def unsubscribe(self, number: int, *, now: float) -> list[TransportEffect]:
        """Serve it no longer; what was held for it is not delivered any more."""
        subscription = self._subscriptions.remove(number)
        self._feedback_scheduler.unsubscribed(number)
        return self.scheme.unsubscribed(subscription, now=now)

    def serves(self, number: int) -> bool:
        """Whether this subscription asked for more than best effort."""
        return number in self._subscriptions

    def without_header(self, number: int) -> int:
        """Messages for this subscription from publishers that do not use the transport."""
        subscription = self._subscriptions.get(number)
        return 0 if subscription is None else subscription.without_header

    def report(self, number: int) -> TransportReport:
        """How this subscription fares."""
        report = self.scheme.report(number)
        return replace(report, refused=report.refused + self._refused) if self._refused else report

    # The callback.

    def arrived(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[TransportEffect]:
        """A message has come, for these subscriptions of ours or of the application."""
        kind = message.attributes.get(FLAG)
        if kind is None:
            return self._plain(numbers, message)
        if not isinstance(kind, str):
            return self._refuse(message, f"an envelope of kind {kind!r}")
        try:
            header, inside = opened(message)
            if kind == DATA:
                return self._data(numbers, header, inside, now)
            return self._control_message(numbers, kind, header, inside, now)
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
        """An application's message: at once for those who want nothing more, by the scheme for the others."""
        subscriptions = self._subscriptions
        wanted = subscriptions.served(numbers)
        effects: list[TransportEffect] = []
        if len(wanted) < len(numbers):
            plain = [number for number in numbers if number not in subscriptions and number < SERVICE_SUBSCRIPTIONS]
            effects = [Deliver(number, message) for number in plain]
        if not wanted:
            return effects
        try:
            served = self.scheme.data(wanted, data, message, now=now)
            return effects + served if effects else served
        except ForeignScheme as error:  # neither order nor recovery is possible, but it is a good message
            return [*effects, InputRefused(message.identity.publisher, str(error)), *self._plain(wanted, message)]
        except InvalidHeader as error:
            return effects + self._refuse(message, str(error))

    def _refuse(self, message: Message, problem: str) -> list[TransportEffect]:
        self._refused += 1
        return [InputRefused(message.identity.publisher, problem)]

    # Control messages.

    def _control_message(
        self, numbers: tuple[int, ...], kind: str, data: bytes, message: Message, now: float
    ) -> list[TransportEffect]:
        """An application that wants everything also gets what is meant for others' inboxes; that is not for us."""
        if not any(number >= SERVICE_SUBSCRIPTIONS for number in numbers) and not self.scheme.public(kind, message):
            return []
        if kind == control.ECHO:
            echo = control.decode_control(data, control.EchoRequest)
            return [*self._agreement_with(message, echo), *self._distances.echo_request_received(echo, now)]
        if kind == control.ANSWER:
            answer = control.decode_control(data, control.EchoReply)
            return [*self._agreement_with(message, answer), *self._echo_reply(answer, now)]
        if kind == control.FEEDBACK:
            return self._feedback_received(control.decode_control(data, control.Feedback), message, now)
        if kind in (control.QUESTION, control.SLOWED):
            return self.flow_query.received(kind, data, message.identity.publisher, now)
        effects = self.scheme.control_message(kind, data, message, now=now)
        if effects is None:
            return self._refuse(message, f"a control message of an unknown kind, '{kind[:40]}'")
        return effects

    def _agreement_with(
        self, message: Message, told: control.EchoRequest | control.EchoReply
    ) -> Sequence[TransportEffect]:
        if message.identity.publisher != control_name(told.sender):
            return []
        return self._agreement.told(told.sender, told.settings)

    def _echo_reply(self, answer: control.EchoReply, now: float) -> list[TransportEffect]:
        effects = self._distances.echo_reply_received(answer, now)
        self._send_path.alive(answer.sender)
        for session in self.scheme.sessions():
            if session.rate_controller is not None and session.publisher == answer.sender:
                self._feedback_scheduler.echoed(session)
        return effects

    def _feedback_received(self, feedback: control.Feedback, message: Message, now: float) -> list[TransportEffect]:
        if not self.publishes:
            return []
        if message.identity.publisher != control_name(feedback.subscriber):
            return self._refuse(message, f"feedback in the name of {feedback.subscriber[:40]}")
        if not self.config.congestion:
            return [*self._agreement.congestion(feedback.subscriber, True)]
        self._keep_ticking(now)
        return [*self._send_path.feedback_received(feedback, now=now), *self.flow_query.limited()]

    def withheld(
        self, publisher: str, incarnation: int, counts: Sequence[int], *, now: float, next_word: float = 0.0
    ) -> list[TransportEffect]:
        """Messages were withheld from us, by a full link or because we read slowly: they are not lost."""
        return self.scheme.withheld(publisher, incarnation, counts, next_word=next_word, now=now)

    def dropped_here(self, message: Message, *, now: float) -> None:
        """The application was too slow for a message that we handed over: a loss as any other."""
        identity = message.identity
        session = self.scheme.session(identity.publisher, identity.incarnation)
        if session is not None:
            self._feedback_scheduler.dropped_here(session, now=now)

    def control(self, number: int | None = None) -> ControlReport:
        """What congestion control knows of those who publish to us, and of this subscription's application or all."""
        return self._feedback_scheduler.report(self.scheme.sessions(), number)

    def reader_takes(self, number: int, rate: float, *, now: float) -> None:
        """A subscription's application is behind and takes so many messages/s; infinity: it keeps up again."""
        self._feedback_scheduler.reader_pace(self.scheme.sessions(), number, rate, now=now)

    # Time.

    def expired(self, timer: int, key: TimerKey, *, now: float) -> list[TransportEffect]:
        """A deadline of ours has come."""
        match timer:
            case TransportTimer.SLOW_START:
                return self._send_path.begun(now=now)
            case TransportTimer.RATE_LIMITER:
                return self._send_path.expired(now=now)
            case TransportTimer.FEEDBACK:
                return self._feedback_scheduler.expired(self._session_of(key), now=now)
            case TransportTimer.TICK:
                return self._tick(now)
            case _:
                return self.scheme.expired(timer, key, now=now)

    def _session_of(self, key: TimerKey) -> ControlledSession:
        session = self.scheme.session(str(key[0]), int(key[1]))
        assert session is not None, f"no session with {key[0]}"
        return session

    def _tick(self, now: float) -> list[TransportEffect]:
        """Once per interval."""
        self._ticking = False
        effects = [*self._send_path.tick(now=now), *self.scheme.tick(now=now)]
        if self.scheme.sessions() or self._send_path.controlled:
            self._keep_ticking(now)
        return effects

    def _keep_ticking(self, now: float) -> None:
        if not self._ticking:
            self._ticking = True
            self._timers.set(TransportTimer.TICK, now + self.config.cache_interval)

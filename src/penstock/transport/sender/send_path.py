"""The way of a published message: it passes the rate limiter, gets its number and header, and is kept for repairs.

Joins `rate_limiter` (congestion control) and the scheme's own part (numbers, headers, the ring for repairs). Without
congestion control every message leaves at once. With it, a verb's ticket is answered when the message has left, or has
been withheld; so `await publish()` waits exactly as long as its flow has no tokens.
Every ticket is answered once, also if the network goes away meanwhile (`close`).

Who limits us and shows no sign of liveness for UNKNOWN_MAX seconds is not listened to, for UNKNOWN_FOR. An echo that it
answers is such a sign, and so is feedback that names a number which left lately: only who receives can know it. Echoes
are lost in the very queue that is full, so one sign is enough, and the next one undoes a verdict (protocols 12.10).

Until somebody complains nobody limits us, and a first burst would be lost before anybody can. So a publisher under
congestion control begins slowly (`rates.slow_start`), as at a home broker of ours: what is faster waits a moment, and
nothing is withheld for that. The papers have no slow start, and their experiments switch it off.

Timers: RATE_LIMITER for the next token that somebody waits for, SLOW_START for the next that may leave of what came too
fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import zip_longest
from math import inf
from typing import NamedTuple

from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel import machine
from penstock.kernel.machine import Accepted, Done, Refused
from penstock.kernel.rate_estimator import rate_text
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import Counted, InputRefused, TraceSwitch, published_records
from penstock.rates.slow_start import SlowStart
from penstock.transport.bearer import TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.receiver.rate_controller import receiver_hash
from penstock.transport.records import MessageWithheld
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.scheme import Outgoing
from penstock.transport.sender.flow_table import Flow
from penstock.transport.sender.rate_limiter import FlowReport, LimiterVerdict, RateLimiter, slowest
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import Feedback
from penstock.transport.wire.flow_fields import FURTHER_MAX, Control, Followed

UNEVEN = 0.25  # of a step by which a departure may be later than its token: messages at even steps slip between the
GOLDEN = 0.618  # others at a full queue and see fewer losses than their share, so TCP beside them would get too little
STEP_MAX = 0.1  # seconds
RELEASE_EVERY = 4e-5  # seconds for each pending queue: to look at one takes a tenth of that
UNKNOWN_MAX, UNKNOWN_FOR = (
    10.0,
    5.0,
)  # seconds that flows are limited by somebody without a sign of liveness; and are not
NO_LIVENESS = "feedback from a name that nobody answers to, and that shows no sign of receiving anything"
DISOWNED_MAX = 1_000
ROUND_TRIPS_SILENT = 10.0  # after which a limiting receiver's feedback no longer counts (experiments 0.4)


class _Beginning(NamedTuple):
    """A message that came too fast."""

    message: Message
    ticket: Ticket | None
    began: float


class SendPath:
    """What a client publishes, until it has left."""

    def __init__(
        self,
        config: TransportConfig,
        outgoing: Outgoing,
        distances: DistanceEstimator,
        timers: ServiceTimers,
        *,
        traced: TraceSwitch | bool = True,  # whether anybody keeps the records
    ) -> None:
        self._config = config
        self._traced = traced if isinstance(traced, TraceSwitch) else TraceSwitch(traced)
        self._outgoing = outgoing
        self._distances = distances
        self._timers = timers
        self._rate_limiter = RateLimiter(config)
        self._armed_for: float | None = None
        self._last_deadline = 0.0
        self._released_at = -inf
        self._uneven = 0.0
        self._feedbacks_reported = 0
        self._followed: dict[str, float] = {}  # receivers, and since when
        self._disowned: dict[str, None] = {}  # receivers without a sign of liveness
        self._receives: dict[str, float] = {}  # receivers, and when they last named a number that left lately
        self._sent = 0  # messages
        self._sent_before: deque[int] = deque([0], maxlen=int(UNKNOWN_MAX))  # at the last ticks
        self._limits = config.congestion
        self._begins = config.congestion and config.slow_start
        self._start: SlowStart[_Beginning] | None = None
        if self._limits:
            outgoing.admit_by(self._admit)

    @property
    def controlled(self) -> bool:
        """Whether any flow is limited now."""
        return len(self._rate_limiter) > 0

    @property
    def may_wait(self) -> bool:
        """Whether a message may have to wait before it leaves."""
        return self._begins or self.controlled

    def publish(
        self, message: Message, ticket: Ticket | None = None, *, now: float, began: float | None = None
    ) -> list[TransportEffect]:
        """Send the message now, later or not at all; raises InvalidMessage if there is no room for a header."""
        began = now if began is None else began
        if not self._limits:  # without congestion control nothing waits
            return self._leave(message, (), now, began, ticket)
        if not self._begins:
            return self._pass(message, ticket, began, now)
        if self._start is None:
            self._start = SlowStart(message.size_bytes, now)
        coming = _Beginning(message, ticket, began)
        leaving = self._start.offer(coming, message.size_bytes, now)
        if len(leaving) == 1 and leaving[0] is coming:
            return self._pass(*coming, now)
        return self._let_out(leaving, now)

    def publish_all(
        self, messages: Sequence[Message], *, tickets: Sequence[Ticket], now: float, began: Sequence[float]
    ) -> list[TransportEffect]:
        """Send these, one after the other; what has no room for a header is refused by its ticket, or in the trace."""
        effects: list[TransportEffect] = []
        for message, ticket, since in zip_longest(messages, tickets, began):
            try:
                effects += self.publish(message, ticket, now=now, began=since)
            except InvalidMessage as error:
                effects += self._refused(ticket, str(error))
        return effects

    def begun(self, *, now: float) -> list[TransportEffect]:
        """What came too fast may leave."""
        return self._let_out(self._start.serve(now), now) if self._start is not None else []

    def _let_out(self, leaving: Sequence[_Beginning], now: float) -> list[TransportEffect]:
        effects: list[TransportEffect] = []
        for one in leaving:
            try:
                effects += self._pass(*one, now)
            except InvalidMessage as error:
                effects += self._refused(one.ticket, str(error))
        if self._start:
            self._timers.set(TransportTimer.SLOW_START, self._start.ready_at())
        return effects

    def leaving(self, *, now: float) -> list[TransportEffect]:
        """The application has published its last message: what came too fast leaves now, or it never would."""
        return self._let_out(self._start.clear(), now) if self._start else []

    def left_behind(self) -> list[Message]:
        """Messages that wait, and nobody for them."""
        beginning = [one.message for one in self._start or () if one.ticket is None]
        return self._rate_limiter.left_behind() + beginning

    def _pass(self, message: Message, ticket: Ticket | None, began: float, now: float) -> list[TransportEffect]:
        """Past the limiter: now, later or not at all."""
        if not (self._rate_limiter or self._rate_limiter.waiting):
            return self._leave(message, (), now, began, ticket)
        encoding = self._outgoing.encoding(message)
        admission, flows, displaced, first = self._rate_limiter.offer(message, encoding, ticket, now=now, began=began)
        if admission is LimiterVerdict.OPEN:
            return self._leave(message, flows, now, began, ticket)
        if admission is LimiterVerdict.WITHHELD:
            return _withheld(message, ticket, flows)
        effects = [effect for other in displaced for effect in _withheld(other.message, other.ticket, other.flows)]
        return effects + self._arm() if displaced or first else []

    def withdraw(self, ticket: Ticket, *, now: float) -> list[TransportEffect]:
        """Whoever published this waits no longer: it does not leave. Those that it held up may leave now, in turn."""
        waiting = next((one for one in self._start or () if one.ticket == ticket), None)
        begins = self._start is not None and waiting is not None and self._start.withdraw(waiting)
        if not begins and not self._rate_limiter.withdraw(ticket):
            return []
        return [Done(ticket, Refused("withdrawn before it left")), *self._release(now)]

    def expired(self, *, now: float) -> list[TransportEffect]:
        """Somebody's token has come."""
        self._armed_for = None
        return self._release(now)

    def feedback_received(self, feedback: Feedback, *, now: float) -> list[TransportEffect]:
        """Feedback: how fast a subscriber can take some flows."""
        trip = self._distances.round_trip(feedback.subscriber)
        asked: list[TransportEffect] = []
        if self._sent_before[0] < feedback.received <= self._sent:
            self._receives[feedback.subscriber] = now
            self.alive(feedback.subscriber)
        elif feedback.subscriber in self._disowned:
            asked += self._distances.ask(feedback.subscriber, now)
        effects: list[TransportEffect] = [
            *asked,
            *self._rate_limiter.feedback_received(feedback, self._config.encoding, now=now, round_trip=trip),
        ]
        for waiting in self._rate_limiter.shed:
            effects += _withheld(waiting.message, waiting.ticket, waiting.flows)
        self._rate_limiter.shed.clear()
        return effects + self._release(now)

    def alive(self, receiver: str) -> None:
        """A sign of liveness: if we had stopped listening to it, that was wrong."""
        if receiver in self._disowned:
            del self._disowned[receiver]
            self._rate_limiter.forgive(receiver)

    def tick(self, *, now: float) -> list[TransportEffect]:
        """Once per interval: forget receivers that send no more feedback, and record how it goes."""
        effects: list[TransportEffect] = []
        slower: dict[str, float] = {}
        self._followed = {
            receiver: self._followed.get(receiver, now) for receiver in self._rate_limiter.limiting_receivers()
        }
        for receiver, since in self._followed.items():
            effects += self._distances.ask(receiver, now)  # else nobody here knows how long a round trip is
            slower[receiver] = ROUND_TRIPS_SILENT * (self._distances.round_trip(receiver) or 0.0)
            unknown = receiver != self._outgoing.name and not self._distances.known(receiver)
            silent = now - self._receives.get(receiver, -inf) > UNKNOWN_MAX
            if self._config.echo_interval and now - since > UNKNOWN_MAX and unknown and silent:
                self._disowned[receiver] = None
                effects += self._rate_limiter.quarantine(receiver, NO_LIVENESS, now=now, seconds=UNKNOWN_FOR)
        self._receives = {one: at for one, at in self._receives.items() if now - at <= UNKNOWN_MAX}
        self._sent_before.append(self._sent)
        while len(self._disowned) > DISOWNED_MAX:
            del self._disowned[next(iter(self._disowned))]
        effects += self._rate_limiter.expire(self._config.flow_timeout, now=now, slower=slower)
        if self._rate_limiter.feedbacks > self._feedbacks_reported or self._rate_limiter:
            effects.append(Counted("flows", "", len(self._rate_limiter)))
            effects.append(Counted("feedback", "", self._rate_limiter.feedbacks - self._feedbacks_reported))
            self._feedbacks_reported = self._rate_limiter.feedbacks
        return effects + self._release(now)

    def close(self, problem: str) -> list[TransportEffect]:
        """There is no network any more: whoever waits is refused."""
        effects: list[TransportEffect] = []
        for message, ticket, _ in self._start.clear() if self._start is not None else ():
            effects.append(_unsent(message, ""))
            effects += _answer(ticket, Refused(problem))
        for waiting in self._rate_limiter.withdraw_all():
            limiting = slowest(waiting.flows)
            effects.append(_unsent(waiting.message, "" if limiting is None else limiting.limiting_receiver))
            effects += _answer(waiting.ticket, Refused(problem))
        return effects + self._arm()

    def flows(self) -> list[FlowReport]:
        """Who slows whom."""
        return self._rate_limiter.report()

    @property
    def withheld(self) -> int:
        """Messages that did not leave."""
        return self._rate_limiter.withheld

    def _admit(self, message: Message, now: float) -> bool:
        """Whether a repair of this message may leave now: it takes tokens like the message itself (002 section 1.2)."""
        return not self._rate_limiter or self._rate_limiter.admit(message, self._outgoing.encoding(message), now=now)

    def _release(self, now: float) -> list[TransportEffect]:
        effects: list[TransportEffect] = []
        self._released_at = now
        for waiting in self._rate_limiter.release(now=now):
            try:
                effects += self._leave(waiting.message, waiting.flows, now, waiting.began, waiting.ticket)
            except InvalidMessage as error:
                effects += self._refused(waiting.ticket, str(error))
        return effects + self._arm()

    def _leave(
        self, message: Message, flows: Sequence[Flow], now: float, began: float, ticket: Ticket | None
    ) -> list[TransportEffect]:
        """Off it goes, and the ticket is answered."""
        self._sent += 1
        if flows:
            named = sorted(flows, key=lambda flow: flow.quota)[: 1 + FURTHER_MAX]
            effects = self._outgoing.leave(message, now=now, control=_control(named), limited=True)
            for flow in named:
                flow.count = _next_place(flow)
        else:
            effects = self._outgoing.leave(message, now=now, control=None, limited=False)
        if self._limits:
            self._rate_limiter.recent.append(message)
        if ticket is not None:
            effects.append(Done(ticket, Accepted()))
        if self._traced.on:
            return [*published_records(self._traced, message, now - began), *effects]
        return effects

    def _refused(self, ticket: Ticket | None, problem: str) -> list[TransportEffect]:
        """It turned out too late that it cannot leave: whoever waits for it is told, or else the trace."""
        return [InputRefused(self._outgoing.name, problem)] if ticket is None else _answer(ticket, Refused(problem))

    def _arm(self) -> list[TransportEffect]:
        deadline = self._rate_limiter.deadline()
        if deadline != self._armed_for:
            step = deadline - self._last_deadline if deadline is not None else 0.0
            self._armed_for = deadline
            if deadline is None:
                self._timers.cancel(TransportTimer.RATE_LIMITER)
            else:
                self._last_deadline = deadline
                self._uneven = (self._uneven + GOLDEN) % 1.0
                at = deadline + UNEVEN * self._uneven * min(max(0.0, step), STEP_MAX)
                self._timers.set(
                    TransportTimer.RATE_LIMITER, max(at, self._released_at + RELEASE_EVERY * self._rate_limiter.queues)
                )
        return []


def _control(named: list[Flow]) -> Control | None:
    """The congestion control fields for the flows that a message belongs to."""
    followed = [
        Followed(receiver_hash(flow.limiting_receiver), flow.travel, flow.number, _next_place(flow)) for flow in named
    ]
    return Control(0.0, *followed[0], tuple(followed[1:])) if followed else None


def _next_place(flow: Flow) -> int:
    """Only messages that name a flow count as its own: whoever misses a number has lost one that named it."""
    return (flow.count + 1) & 0xFFFFFFFF


def _withheld(message: Message, ticket: Ticket | None, flows: Sequence[Flow]) -> list[TransportEffect]:
    """It did not leave, and whoever published it learns why."""
    limiting = slowest(flows)
    receiver, quota = ("", 0.0) if limiting is None else (limiting.limiting_receiver, limiting.quota)
    problem = f"withheld: {receiver} takes {rate_text(quota)} messages/s of this flow; publish more slowly"
    return [_unsent(message, receiver), *_answer(ticket, machine.Withheld(problem))]


def _unsent(message: Message, receiver: str) -> MessageWithheld:
    identity = message.identity
    return MessageWithheld(identity.publisher, identity.incarnation, identity.count, receiver)


def _answer(ticket: Ticket | None, outcome: machine.Outcome) -> list[TransportEffect]:
    return [] if ticket is None else [Done(ticket, outcome)]

"""The publisher's way down: a message passes the gate, gets its number and header, and is kept for who may ask.

Joins `outgoing` (numbers, headers, heartbeats), `gate` (congestion control) and the ring of published messages in
`repairs`. Without congestion control every message leaves at once. With it, a verb's ticket is answered when the
message has left, or has been withheld; so `await publish()` waits exactly as long as its flow has no tokens. Every
ticket is answered once, also if the network goes away meanwhile (`close`).

Timers: ("transport", "gate") for the next token that somebody waits for, ("transport", "heartbeat").
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel import machine
from penstock.kernel.facts import published_record
from penstock.kernel.machine import Accepted, Done, Refused, Ticket
from penstock.kernel.timers import Timers
from penstock.kernel.trace import Counted, MessageWithheld
from penstock.transport.bearer import Publish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.receiver.rate_controller import word_of
from penstock.transport.recovery.distance_estimator import Distances
from penstock.transport.recovery.proactive_repair import Again
from penstock.transport.recovery.repairs import Repairs
from penstock.transport.sender.flow_table import Flow
from penstock.transport.sender.publication_record import Outgoing
from penstock.transport.sender.rate_limiter import FlowReport, Gate, Passage, slowest
from penstock.transport.wire.control_messages import Feedback
from penstock.transport.wire.header import FURTHER_MAX, Control, Followed

UNEVEN = 0.25  # of a step by which a departure may be later than its token: messages at even steps slip between the
GOLDEN = 0.618  # others at a full queue and see fewer losses than their share, so TCP beside them would get too little
STEP_MAX = 0.1  # seconds
PASS_EVERY = 4e-5  # seconds for each line before the gate: to look at one takes a tenth of that
GATE_TIMER = ("transport", "gate")
UNKNOWN_MAX = 10.0  # seconds that flows are limited on the word of somebody who does not answer
ROUND_TRIPS_SILENT = 10.0  # after which a limiting receiver's word no longer counts (experiments 0.4)


class Sending:
    """What a client publishes, until it has left."""

    def __init__(
        self,
        config: TransportConfig,
        outgoing: Outgoing,
        repairs: Repairs,
        distances: Distances,
        timers: Timers,
        again: Again,
    ) -> None:
        self._config = config
        self._outgoing = outgoing
        self._repairs = repairs
        self._distances = distances
        self._timers = timers
        self._again = again
        self._gate = Gate(config)
        self._armed_for: float | None = None
        self._last_deadline = 0.0
        self._released_at = -inf
        self._uneven = 0.0
        self._feedbacks_told = 0
        self._followed: dict[str, float] = {}  # receivers, and since when
        if config.congestion:
            repairs.admit = self._admit

    @property
    def controlled(self) -> bool:
        """Whether any flow is limited now."""
        return len(self._gate) > 0

    def publish(self, message: Message, ticket: Ticket | None, *, now: float) -> list[TransportEffect]:
        """Send the message now, later or not at all; raises InvalidMessage if there is no room for a header."""
        if not self._gate and not self._gate.waiting:
            return [*self._leave(message, ticket, (), now), *_answer(ticket, Accepted())]
        encoding = self._outgoing.encoding(message)
        passage, flows, displaced, first = self._gate.offer(message, encoding, ticket, now=now)
        if passage is Passage.OPEN:
            return [*self._leave(message, ticket, flows, now), *_answer(ticket, Accepted())]
        if passage is Passage.WITHHELD:
            return _withheld(message, ticket, flows)
        effects = [effect for other in displaced for effect in _withheld(other.message, other.ticket, other.flows)]
        return effects + self._arm() if displaced or first else []

    def expired(self, *, now: float) -> list[TransportEffect]:
        """Somebody's token has come."""
        self._armed_for = None
        return self._release(now)

    def heard(self, feedback: Feedback, *, now: float) -> list[TransportEffect]:
        """A subscriber says how fast it can take some flows."""
        trip = self._distances.round_trip(feedback.subscriber)
        effects: list[TransportEffect] = [*self._gate.heard(feedback, self._config.scheme, now=now, round_trip=trip)]
        for waiting in self._gate.shed:
            effects += _withheld(waiting.message, waiting.ticket, waiting.flows)
        self._gate.shed.clear()
        return effects + self._release(now)

    def tick(self, *, now: float) -> list[TransportEffect]:
        """Once per interval: forget those who have fallen silent, and tell how it goes."""
        effects: list[TransportEffect] = []
        slower: dict[str, float] = {}
        self._followed = {receiver: self._followed.get(receiver, now) for receiver in self._gate.limiting_receivers()}
        for receiver, since in self._followed.items():
            effects += self._distances.ask(receiver, now)  # else nobody here knows how long a round trip is
            slower[receiver] = ROUND_TRIPS_SILENT * (self._distances.round_trip(receiver) or 0.0)
            unknown = receiver != self._outgoing.name and not self._distances.known(receiver)
            if self._config.echo_interval and now - since > UNKNOWN_MAX and unknown:
                effects += self._gate.disown(receiver, "feedback from a name that nobody answers to", now=now)
        effects += self._gate.expire(self._config.flow_timeout, now=now, slower=slower)
        if self._gate.feedbacks > self._feedbacks_told or self._gate:
            effects.append(Counted("flows", "", len(self._gate)))
            effects.append(Counted("feedback", "", self._gate.feedbacks - self._feedbacks_told))
            self._feedbacks_told = self._gate.feedbacks
        return effects + self._release(now)

    def close(self, problem: str) -> list[TransportEffect]:
        """There is no network any more: whoever waits is told that it was in vain."""
        effects: list[TransportEffect] = []
        for waiting in self._gate.withdraw():
            identity, limiting = waiting.message.identity, slowest(waiting.flows)
            receiver = "" if limiting is None else limiting.limiting_receiver
            effects.append(MessageWithheld(identity.publisher, identity.incarnation, identity.count, receiver))
            effects += _answer(waiting.ticket, Refused(problem))
        return effects + self._arm()

    def heartbeat(self, *, now: float) -> list[TransportEffect]:
        """The heartbeat's time has come."""
        return self._outgoing.heartbeat(now=now)

    def flows(self) -> list[FlowReport]:
        """Who slows whom."""
        return self._gate.report()

    @property
    def withheld(self) -> int:
        """Messages that did not leave."""
        return self._gate.withheld

    def _admit(self, message: Message, now: float) -> bool:
        """Whether a repair of this message may leave now: it takes tokens like the message itself (002 section 1.2)."""
        return not self._gate or self._gate.admit(message, self._outgoing.encoding(message), now=now)

    def _release(self, now: float) -> list[TransportEffect]:
        effects: list[TransportEffect] = []
        self._released_at = now
        for waiting in self._gate.release(now=now):
            try:
                effects += self._leave(waiting.message, waiting.ticket, waiting.flows, now)
            except InvalidMessage as error:
                effects += _answer(waiting.ticket, Refused(str(error)))
                continue
            effects += _answer(waiting.ticket, Accepted())
        return effects + self._arm()

    def _leave(
        self, message: Message, ticket: Ticket | None, flows: Sequence[Flow], now: float
    ) -> list[TransportEffect]:
        """Off it goes; whoever holds no ticket keeps no trace either."""
        named = sorted(flows, key=lambda flow: flow.quota)[: 1 + FURTHER_MAX]
        wrapped, key = self._outgoing.wrap(message, now=now, control=_control(named))
        for flow in named:
            flow.count = _next_place(flow)
        self._gate.recent.append(message)
        self._repairs.keep_published(key, message, now)
        effects: list[TransportEffect] = [published_record(message)] if ticket is not None else []
        effects.append(Publish(wrapped))
        if not flows:  # a limited flow has no room for second copies
            effects += self._again.left(key, message, now)
        if self._outgoing.heartbeat_due():
            effects += self._outgoing.heartbeat(now=now)
        return effects

    def _arm(self) -> list[TransportEffect]:
        deadline = self._gate.deadline()
        if deadline != self._armed_for:
            step = deadline - self._last_deadline if deadline is not None else 0.0
            self._armed_for = deadline
            if deadline is None:
                self._timers.cancel(GATE_TIMER)
            else:
                self._last_deadline = deadline
                self._uneven = (self._uneven + GOLDEN) % 1.0
                at = deadline + UNEVEN * self._uneven * min(max(0.0, step), STEP_MAX)
                self._timers.set(GATE_TIMER, max(at, self._released_at + PASS_EVERY * self._gate.lines))
        return []


def _control(named: list[Flow]) -> Control | None:
    """What a message says of the flows it belongs to."""
    said = [Followed(word_of(flow.limiting_receiver), flow.travel, flow.number, _next_place(flow)) for flow in named]
    return Control(0.0, *said[0], tuple(said[1:])) if said else None


def _next_place(flow: Flow) -> int:
    """Only messages that name a flow count as its own: whoever misses a number has lost one that said so."""
    return (flow.count + 1) & 0xFFFFFFFF


def _withheld(message: Message, ticket: Ticket | None, flows: Sequence[Flow]) -> list[TransportEffect]:
    """It did not leave, and whoever published it hears why."""
    limiting = slowest(flows)
    receiver, quota = ("", 0.0) if limiting is None else (limiting.limiting_receiver, limiting.quota)
    identity = message.identity
    problem = f"withheld: {receiver} takes {quota:.3g} messages/s of this flow; publish more slowly"
    return [
        MessageWithheld(identity.publisher, identity.incarnation, identity.count, receiver),
        *_answer(ticket, machine.Withheld(problem)),
    ]


def _answer(ticket: Ticket | None, outcome: machine.Outcome) -> list[TransportEffect]:
    return [] if ticket is None else [Done(ticket, outcome)]

"""A network that has nothing of ours in it, to show that the transport asks for no more than its three verbs.

    bus = Bus(seed=7, loss=0.05)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n > 3", ordered=True, recover=True)
    bus.publish("p", {"n": 5}, at=0.1)
    bus.run(5.0)
    bus.got("a", 1)                 # the messages that the application received, in order

There are no brokers, packets or codecs: whoever's WHERE text matches gets the message by itself, after a delay of its
own, unless it is lost. Delays are a constant and exponential stages, so messages overtake each other as they do behind
brokers. Each client has its own clock, wrong by an offset and a drift. Everything is drawn from the seed, in virtual
time. `loses` may be replaced to lose certain messages; `carried` keeps everything that was put on the bus.

A client added without a configuration has no transport: it opens envelopes and looks no further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple, TypeVar

from penstock.content.envelope import DATA, kind_of, opened
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Identity, Message, make_message
from penstock.content.predicate import Predicate
from penstock.errors import InvalidMessage
from penstock.kernel.machine import Deliver
from penstock.kernel.randomness import generator
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import InputRefused, Record
from penstock.transport.bearer import BearerPublish, BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.report import TransportReport
from penstock.transport.transport import Transport

STEPS_MAX = 5_000_000
RecordKind = TypeVar("RecordKind", bound=Record)


class Carried(NamedTuple):
    """A message that was put on the bus."""

    time: float
    sender: str
    message: Message

    @property
    def kind(self) -> str | None:
        return kind_of(self.message)


class Received(NamedTuple):
    """A message that the bus handed to a client, and the numbers it was handed over for."""

    time: float
    numbers: tuple[int, ...]
    message: Message


@dataclass
class Member:
    """A client on the bus."""

    name: str
    offset: float
    drift: float
    incarnation: int = 1
    transport: Transport | None = None
    timers: Timers = field(default_factory=Timers)
    wheres: dict[int, Predicate] = field(default_factory=dict)  # of the application and of the transport
    received: list[Received] = field(default_factory=list)
    delivered: list[tuple[float, int, Message]] = field(default_factory=list)
    records: list[tuple[float, Record]] = field(default_factory=list)
    armed: float | None = None  # for which deadline
    count: int = 0

    def local(self, time: float) -> float:
        return time * (1.0 + self.drift) + self.offset

    def true(self, local: float) -> float:
        return (local - self.offset) / (1.0 + self.drift)


class Bus:
    """Clients, and what is under way between them."""

    def __init__(self, seed: int = 0, *, loss: float = 0.0, delay: float = 0.010, stage: float = 0.0) -> None:
        self.now = 0.0
        self.members: dict[str, Member] = {}
        self.carried: list[Carried] = []
        self.published: list[tuple[float, Message]] = []  # by applications
        self.lost: list[tuple[str, Message]] = []  # (for whom, what)
        self.loses: Callable[[str, str, Message], bool] = lambda sender, receiver, message: self.random.random() < loss
        self.delay_of: Callable[[str, str], float] = lambda sender, receiver: (
            delay + sum(self.random.expovariate(1.0) * stage for _ in range(2))
        )
        self.random = Random(seed)
        self.steps = 0
        self._seed = seed
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0

    # Clients.

    def add(
        self,
        name: str,
        config: TransportConfig | None,
        *,
        publishes: bool = False,
        offset: float | None = None,
        drift: float | None = None,
    ) -> Member:
        """A new client; its clock is wrong by as much as the seed says unless told otherwise."""
        random = Random(f"{self._seed}-{name}-clock")
        drawn = random.uniform(-1e4, 1e4), random.uniform(-1e-4, 1e-4)
        member = Member(name, drawn[0] if offset is None else offset, drawn[1] if drift is None else drift)
        self.members[name] = member
        if config is not None:
            self._begin(member, config, publishes)
        return member

    def restart(self, name: str) -> Member:
        """The client is started again: a new life, with nothing left of the old one but its clock."""
        old = self.members[name]
        member = Member(
            name, old.offset, old.drift, old.incarnation + 1, received=old.received, delivered=old.delivered
        )
        member.records = old.records
        self.members[name] = member
        if old.transport is not None:
            self._begin(member, old.transport.config, old.transport.publishes)
        return member

    def _begin(self, member: Member, config: TransportConfig, publishes: bool) -> None:
        random = partial(generator, self._seed, member.name, member.incarnation)
        timers = ServiceTimers("transport", member.timers)
        member.transport = Transport(member.name, member.incarnation, config, timers, random, publishes=publishes)
        self.apply(member, member.transport.start())

    # The application's verbs.

    def subscribe(self, name: str, number: int, where: str, *, ordered: bool = False, recover: bool = False) -> None:
        """The client wants this from now on."""
        member = self.members[name]
        predicate = parse_predicate(where)
        member.wheres[number] = predicate
        if (ordered or recover) and member.transport is not None:
            now = member.local(self.now)
            more = member.transport.subscribe(number, predicate, ordered=ordered, recover=recover, now=now)
            self.apply(member, more)

    def unsubscribe(self, name: str, number: int) -> None:
        """The client wants it no longer."""
        member = self.members[name]
        del member.wheres[number]
        if member.transport is not None:
            self.apply(member, member.transport.unsubscribe(number, now=member.local(self.now)))

    def publish(self, name: str, attributes: Attributes, body: bytes = b"", *, at: float | None = None) -> None:
        """The client publishes, now or later."""
        if at is not None and at > self.now:
            self.at(at, lambda: self.publish(name, attributes, body))
            return
        member = self.members[name]
        member.count += 1
        message = make_message(Identity(name, member.incarnation, member.count), attributes, body)
        self.published.append((self.now, message))
        if member.transport is not None and member.transport.publishes:
            self.apply(member, member.transport.publish(message, now=member.local(self.now)))
        else:
            self._carry(member, message)

    def reader_takes(self, name: str, rate: float, number: int = 1) -> None:
        """The application of a client's subscription is behind and takes so many messages/s; infinity: it keeps up."""
        member = self.members[name]
        assert member.transport is not None
        member.transport.reader_takes(number, rate, now=member.local(self.now))
        self.apply(member, [])

    # Time.

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at this time."""
        self._scheduled += 1
        heappush(self._heap, (max(time, self.now), self._scheduled, action))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heappop(self._heap)
            self.steps += 1
            assert self.steps < STEPS_MAX, "the bus never comes to rest"
            action()
        self.now = max(self.now, until)

    # Hosting.

    def apply(self, member: Member, effects: list[TransportEffect]) -> None:
        """Do what a transport asks for, in order, and see when it wants to be woken."""
        for effect in effects:
            if isinstance(effect, BearerPublish):
                self._carry(member, effect.message)
            elif isinstance(effect, BearerSubscribe):
                assert effect.number not in member.wheres, f"{effect.number} is taken"
                member.wheres[effect.number] = parse_predicate(effect.where)
            elif isinstance(effect, BearerUnsubscribe):
                del member.wheres[effect.number]
            elif isinstance(effect, Deliver):
                member.delivered.append((self.now, effect.subscription, effect.message))
            else:
                assert isinstance(effect, Record), effect
                member.records.append((self.now, effect))
        self._arm(member)

    def hand(self, name: str, numbers: tuple[int, ...], message: Message) -> None:
        """Give a message to a client as if the bus had brought it."""
        member = self.members[name]
        member.received.append(Received(self.now, numbers, message))
        if member.transport is not None:
            self.apply(member, member.transport.arrived(numbers, message, now=member.local(self.now)))
        else:
            self._stripped(member, numbers, message)

    def _carry(self, member: Member, message: Message) -> None:
        self.carried.append(Carried(self.now, member.name, message))
        for other in self.members.values():
            numbers = tuple([number for number, where in other.wheres.items() if where.matches(message.attributes)])
            if not numbers:
                continue
            if self.loses(member.name, other.name, message):
                self.lost.append((other.name, message))
            else:
                arrives = self.now + self.delay_of(member.name, other.name)
                self.at(arrives, lambda other=other, numbers=numbers: self._arrive(other, numbers, message))  # type: ignore[misc]

    def _arrive(self, member: Member, numbers: tuple[int, ...], message: Message) -> None:
        """The message is there; a client that was restarted meanwhile, or wants it no longer, does not get it."""
        held = tuple([number for number in numbers if number in member.wheres])
        if held and self.members[member.name] is member:
            self.hand(member.name, held, message)

    def _stripped(self, member: Member, numbers: tuple[int, ...], message: Message) -> None:
        kind = kind_of(message)
        if kind not in (None, DATA):
            return
        try:
            inside = message if kind is None else opened(message)[1]
        except InvalidMessage as error:
            member.records.append((self.now, InputRefused(message.identity.publisher, str(error))))
            return
        for number in numbers:
            member.delivered.append((self.now, number, inside))

    def _arm(self, member: Member) -> None:
        deadline = member.timers.deadline()
        if deadline is None or deadline == member.armed:
            return
        member.armed = deadline
        self.at(member.true(deadline), lambda: self._wake(member, deadline))

    def _wake(self, member: Member, deadline: float) -> None:
        if member.armed != deadline or self.members[member.name] is not member or member.transport is None:
            return  # moved meanwhile, or another life
        member.armed = None
        now = max(member.local(self.now), deadline)  # converting there and back may lose the last bit
        effects: list[TransportEffect] = []
        while (name := member.timers.pop_due(now)) is not None:
            effects += member.transport.expired(int(name[1]), name[2:], now=now)
        self.apply(member, effects)

    # What happened.

    def got(self, name: str, number: int) -> list[Message]:
        """What the application received for this subscription, in order."""
        return [message for _, subscription, message in self.members[name].delivered if subscription == number]

    def due(self, name: str, number: int) -> list[Message]:
        """What was published and matches; the caller knows since when it was subscribed."""
        where = self.members[name].wheres[number]
        return [message for _, message in self.published if where.matches(message.attributes)]

    def report(self, name: str, number: int) -> TransportReport:
        """The transport's own account."""
        transport = self.members[name].transport
        assert transport is not None
        return transport.report(number)

    def records_of(self, name: str, kind: type[RecordKind]) -> list[RecordKind]:
        """A client's records of one kind, in order."""
        return [record for _, record in self.members[name].records if isinstance(record, kind)]

    def control_messages(self, kind: str) -> list[Carried]:
        """What was put on the bus of this kind."""
        return [carried for carried in self.carried if carried.kind == kind]

"""For tests: machines that are pumped by hand, and small networks of them.

    pump = Pump()
    pump.add("a", machine_a)
    pump.add("b", machine_b)
    pump.connect("a", "b")          # gives each a link number, from 0 in the order of connecting, and brings it up
    pump.flights                    # every packet under way, oldest first: look, deliver, drop, reorder
    pump.deliver(0)                 # hand over the oldest; pump.drop(0) loses it
    pump.run()                      # hand over everything, and whatever that sets off
    pump.advance(2.0)               # let virtual time pass: packets arrive at once, machines wake at their deadlines

What machines ask for is applied in order and kept: `delivered`, `done`, `records`. Questions to storage wait in
`questions` until `answer` or `run` answers them from memory (`stores`), which outlives a machine. Nothing sleeps, and
no call takes more than `steps_max` steps: a pair of machines that never comes to rest is a failed test, not a hanging
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.content.message import Attributes, Identity, Message, make_message
from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.machine import Deliver, Done, Effect, Machine, Send
from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ask
from penstock.kernel.trace import Record
from penstock.overlay.assembly import Life, NodeConfig, broker_node, client_node
from penstock.overlay.node import Node
from penstock.overlay.verbs import Verbs
from penstock.services import services

AMPLE_BYTES = 1 << 40
STEPS_MAX = 20_000


class Flight(NamedTuple):
    """A packet under way; `link` is the receiver's name for the link it comes over."""

    sender: str
    receiver: str
    link: Link
    packet: Packet
    lane: Lane

    @property
    def kind(self) -> str:
        return type(self.packet).__name__


class Pump:
    """Machines by name, links between them, and everything that is under way."""

    def __init__(self, *, now: float = 0.0, steps_max: int = STEPS_MAX) -> None:
        self.now = now
        self.machines: dict[str, Machine] = {}
        self.stores: dict[str, MemoryStore] = {}
        self.flights: list[Flight] = []
        self.lost: list[Flight] = []
        self.questions: list[tuple[str, Ask]] = []
        self.delivered: list[tuple[str, Deliver]] = []
        self.done: list[tuple[str, Done]] = []
        self.records: list[tuple[str, Record]] = []
        self.loses: Callable[[Flight], bool] = lambda flight: False  # what the wires lose by themselves
        self._steps_max = steps_max
        self._ends: dict[tuple[str, Link], tuple[str, Link]] = {}
        self._links: dict[str, int] = {}

    # The network.

    def add(self, name: str, machine: Machine) -> None:
        """A new machine, or a new life for an old one: its links come up again, what it stored is still there."""
        again = name in self.machines
        self.questions = [(asker, ask) for asker, ask in self.questions if asker != name]  # a crash answers none
        self.machines[name] = machine
        self.stores.setdefault(name, MemoryStore())
        if again:
            for link in range(self._links[name]):
                self.link_changed(name, link, up=True)

    def join(self, a: str, b: str) -> None:
        """A link between the two, which neither end knows of yet."""
        link_a, link_b = self._links.get(a, 0), self._links.get(b, 0)
        self._links[a], self._links[b] = link_a + 1, link_b + 1
        self._ends[a, link_a], self._ends[b, link_b] = (b, link_b), (a, link_a)

    def connect(self, a: str, b: str) -> None:
        """A link between the two, and up."""
        self.join(a, b)
        self.change(a, b, up=True)

    def link(self, a: str, b: str) -> Link:
        """The number that `a` knows its (last) link to `b` by."""
        return next(link for (name, link), end in reversed(self._ends.items()) if (name, end[0]) == (a, b))

    def change(self, a: str, b: str, *, up: bool) -> None:
        """Both ends learn that the link is up or down; what was under way on it is lost if it is down."""
        if not up:
            self.drop_where(lambda flight: {flight.sender, flight.receiver} == {a, b})
        for name, other in ((a, b), (b, a)):
            self.link_changed(name, self.link(name, other), up=up)

    def link_changed(self, name: str, link: Link, *, up: bool) -> None:
        """One end learns it."""
        self.apply(name, self.machines[name].link_changed(link, up=up, now=self.now))
        if up:
            self.apply(name, self.machines[name].link_ready(link, room_bytes=AMPLE_BYTES, now=self.now))

    # Packets by hand.

    def receive(self, name: str, *packets: Packet, sender: Link) -> list[Effect]:
        """Hand packets to a machine as if they had come over a link; returns the effects, already applied."""
        effects = self.machines[name].receive(packets, sender=sender, now=self.now)
        self.apply(name, effects)
        return effects

    def deliver(self, place: int = 0) -> Flight:
        """Hand over the packet at this place of `flights`."""
        flight = self.flights.pop(place)
        if self.loses(flight):
            self.lost.append(flight)
        else:
            self.receive(flight.receiver, flight.packet, sender=flight.link)
        return flight

    def drop(self, place: int = 0) -> Flight:
        """Lose the packet at this place."""
        self.lost.append(self.flights.pop(place))
        return self.lost[-1]

    def drop_where(self, holds: Callable[[Flight], bool]) -> list[Flight]:
        """Lose every packet of which this holds."""
        gone = [flight for flight in self.flights if holds(flight)]
        self.flights = [flight for flight in self.flights if not holds(flight)]
        self.lost += gone
        return gone

    def in_flight(self, *kinds: type[Packet]) -> list[Packet]:
        """The packets of these kinds under way."""
        return [flight.packet for flight in self.flights if isinstance(flight.packet, kinds)]

    # Storage by hand.

    def answer(self, place: int = 0) -> None:
        """Let storage answer the question at this place."""
        name, ask = self.questions.pop(place)
        result = self.stores[name].carry_out(ask.area, ask.operation)
        self.apply(name, self.machines[name].completed(ask.ticket, result, now=self.now))

    # Everything at once.

    def run(self) -> None:
        """Hand over packets and answers until nothing is under way; no time passes."""
        for _ in range(self._steps_max):
            if self.questions:
                self.answer()
            elif self.flights:
                self.deliver()
            else:
                return
        raise AssertionError(f"still busy after {self._steps_max} steps: {self.flights[:3]}")

    def advance(self, seconds: float) -> None:
        """Let time pass; whatever is sent arrives at once."""
        until = self.now + seconds
        for _ in range(self._steps_max):
            self.run()
            due = [(at, name) for name, machine in self.machines.items() if (at := machine.deadline()) is not None]
            at, name = min(due, default=(until + 1.0, ""))
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            self.apply(name, self.machines[name].wake(now=self.now))
        raise AssertionError(f"more than {self._steps_max} deadlines in {seconds} seconds")

    def apply(self, name: str, effects: Iterable[Effect]) -> None:
        """Do what a machine asked for."""
        for effect in effects:
            if isinstance(effect, Send):
                for link in effect.to:
                    receiver, there = self._ends[name, link]
                    self.flights.append(Flight(name, receiver, there, effect.packet, effect.lane))
            elif isinstance(effect, Deliver):
                self.delivered.append((name, effect))
            elif isinstance(effect, Done):
                self.done.append((name, effect))
            elif isinstance(effect, Ask):
                self.questions.append((name, effect))
            else:
                assert isinstance(effect, Record), effect
                self.records.append((name, effect))

    # What happened.

    def records_of(self, name: str, kind: type[Record]) -> list[Record]:
        """A machine's records of one kind, in order."""
        return [record for owner, record in self.records if owner == name and isinstance(record, kind)]

    def got(self, name: str) -> list[tuple[int, Message]]:
        """What the application at this node received: (subscription, message)."""
        return [(effect.subscription, effect.message) for owner, effect in self.delivered if owner == name]


def a_message(
    count: int = 1, attributes: Attributes | None = None, *, publisher: str = "p", body: bytes = b""
) -> Message:
    """A message for tests."""
    return make_message(Identity(publisher, 1, count), attributes or {"n": count}, body)


class ClientMachine:
    """A client's node together with the verbs of its application, for tests that pump it."""

    def __init__(self, node: Node, verbs: Verbs) -> None:
        self.node = node
        self.egress = node.egress
        self._verbs = verbs
        self.receive = node.receive
        self.link_ready = node.link_ready
        self.link_changed = node.link_changed
        self.completed = node.completed
        self.wake = node.wake
        self.deadline = node.deadline
        self.publish_all = verbs.publish
        self.withdraw = verbs.withdraw
        self.subscribe = verbs.subscribe
        self.unsubscribe = verbs.unsubscribe
        self.read = verbs.read
        self.reports = verbs.reports
        self.await_ready = verbs.await_ready

    def publish(self, message: Message, *, ticket: int, now: float) -> list[Effect]:
        """One message, whose ticket is answered."""
        return self._verbs.publish((message,), tickets=(ticket,), now=now)


def a_broker(
    number: int,
    incarnation: int = 1,
    *,
    links: Mapping[Link, LinkInfo] | None = None,
    config: NodeConfig | None = None,
) -> Node:
    """A broker's node; its timers begin at a phase that depends on nothing but its number and life."""
    life = Life(name=broker_name(number), incarnation=incarnation, seed=100, number=number, storage=True)
    return broker_node(services(), life, links or {}, config)


def a_client(
    name: str,
    incarnation: int = 1,
    *,
    config: NodeConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    links: Mapping[Link, LinkInfo] | None = None,
) -> ClientMachine:
    """A client's node; `settings` are those of its services."""
    life = Life(name=name, incarnation=incarnation, seed=100, storage=True)
    chosen = config or NodeConfig(services=settings or {})
    return ClientMachine(*client_node(services(), life, links or {}, chosen))


def broker_name(number: int) -> str:
    return f"b{number}"


def broker_network(
    edges: Sequence[tuple[int, int]], *, config: NodeConfig | None = None, settle: float = 3.0, numbers: int = 0
) -> Pump:
    """Brokers b0, b1, ... joined by these links, given time to learn of each other."""
    pump = Pump()
    for number in range(max([numbers, *(1 + max(edge) for edge in edges)])):
        pump.add(broker_name(number), a_broker(number, config=config))
    for a, b in edges:
        pump.connect(broker_name(a), broker_name(b))
    pump.advance(settle)
    return pump


def attach(pump: Pump, client: str, broker: str, *wheres: str, config: NodeConfig | None = None) -> ClientMachine:
    """A client at a broker, with subscriptions numbered from 1; everything is handed over at once."""
    node = a_client(client, config=config)
    pump.add(client, node)
    pump.connect(client, broker)
    pump.run()
    for number, where in enumerate(wheres, start=1):
        pump.apply(client, node.subscribe(number, where, ticket=number, now=pump.now))
    pump.run()
    return node


def publish(pump: Pump, client: str, message: Message, *, ticket: int = 100) -> None:
    """Let a client publish; nothing is handed over yet."""
    node = pump.machines[client]
    assert isinstance(node, ClientMachine)
    pump.apply(client, node.publish(message, ticket=ticket, now=pump.now))

"""A store-and-forward broker network to compare with: what ActiveMQ stands for in 002 section 3.1.

Every broker keeps each message until its local subscribers have it and every next hop has acknowledged it. One server
per broker, first in first out, and links that keep order: so nothing is lost and nothing overtakes. The price shows
under overload. Messages beyond `resident_messages` have to be written out and read back, which makes each of them
dearer, so a broker that has fallen behind falls further behind; and when the store is nearly full, the broker stops
reading from its publishers.

It takes the same scenario as the simulator proper and writes the same trace records, so one pipeline measures both.
It is a model for a baseline, no part of the product: no faults, no clocks, links with a constant delay and no rate or
queue of their own, exact matching at the home broker.

Departure: the paper measured a real ActiveMQ and says nothing of its inner costs. The constants are ours, such that
the network as a whole copes with the 32,500 deliveries/s that the paper reports at the peak.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.content.language.parser import parse_predicate
from penstock.content.matching.exact_index import PredicateIndex
from penstock.content.message import Identity, Message, Value, make_message
from penstock.kernel.randomness import generator
from penstock.kernel.trace import (
    Counted,
    Delivered,
    NodeStarted,
    NodeStopped,
    Record,
    Subscribed,
    Trace,
    published_record,
)
from penstock.overlay.topology import Topology
from penstock.scenario.spec import Scenario
from penstock.scenario.workload import attribute_source, publication_times
from penstock.sim.engine import Engine


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """What a message costs a broker; all values are ours."""

    message_cost: float = 0.00002  # seconds to take in and store one message
    delivery_cost: float = 0.000092  # seconds for each local delivery or forwarded copy
    resident_messages: int = 2_000  # how many may wait in memory; beyond that they go through the disk
    paging_factor: float = 2.5  # how much dearer a message is that had to
    store_bytes: int = 64_000_000  # experiments section 1
    overhead_bytes: int = 1_200  # journal, index and cursors per stored message
    block_share: float = 0.9  # of the store: from here on publishers are not read
    resume_share: float = 0.8


Targets = dict[int, list[tuple[str, int]]]  # broker -> (client, subscription) pairs that a copy is still meant for


class _Broker:
    """Queue, store and waiting publishers of one broker."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Message, Targets]] = deque()
        self.busy = False
        self.stored_bytes = 0
        self.blocking = False
        self.waiting: list[_Publisher] = []


@dataclass
class _Publisher:
    """One flow of publications: when, what, and from whom."""

    client: str
    broker: int
    times: Iterator[float]
    draw: Callable[[], dict[str, Value]]
    body: bytes
    late: float = 0.0  # how long it has been held up in all
    held_since: float = 0.0
    began: float | None = None  # when it wanted to publish the message that is held up now


class StoreAndForward:
    """The whole network."""

    def __init__(self, scenario: Scenario, seed: int, trace: Trace, config: StoreConfig) -> None:
        self._engine = Engine()
        self._scenario = scenario
        self._trace = trace
        self._config = config
        self._numbers = {spec.name: number for number, spec in enumerate(scenario.broker)}
        self._brokers = [_Broker() for _ in scenario.broker]
        self._delays: dict[tuple[int, int], float] = {}
        self._next_hop = self._ways()
        self._index = PredicateIndex()
        self._subscribers: list[tuple[int, str, int]] = []  # (broker, client, subscription) by key
        self._counts: dict[str, int] = {}
        self._start(seed)

    def run(self) -> int:
        """Let the scenario happen; returns the number of events."""
        end = self._scenario.duration + self._scenario.drain
        self._engine.at(1.0, self._count_queues, None)
        self._engine.run(end)
        for name in self._numbers:
            self._note(name, NodeStopped("end of the run"))
        return self._engine.events

    # Set-up.

    def _ways(self) -> list[dict[int, int]]:
        topology = Topology()
        neighbours: dict[int, dict[int, int]] = {number: {} for number in range(len(self._brokers))}
        for link in self._scenario.link:
            a, b = (self._numbers[name] for name in link.between)
            neighbours[a][b] = neighbours[b][a] = link.cost
            self._delays[a, b] = self._delays[b, a] = link.delay
        for number, claims in neighbours.items():
            topology.claim(number, claims)
        return [
            {there: way.neighbour for there, way in topology.ways_from(here).items()}
            for here in range(len(self._brokers))
        ]

    def _start(self, seed: int) -> None:
        for name in self._numbers:
            self._note(name, NodeStarted("broker", 1))
        for client in self._scenario.client:
            home = self._numbers[client.broker]
            for number, subscription in enumerate(client.subscribe):
                self._note(client.name, Subscribed(number, subscription.where))
                self._index.add(len(self._subscribers), parse_predicate(subscription.where))
                self._subscribers.append((home, client.name, number))
            for number, spec in enumerate(client.publish):
                random = generator(seed, client.name, "publish", number)
                times = publication_times(spec, self._scenario.duration, random)
                draw = attribute_source(spec, random)
                self._schedule(_Publisher(client.name, home, times, draw, bytes(spec.body_bytes)))

    # Publishers.

    def _schedule(self, publisher: _Publisher) -> None:
        at = next(publisher.times, None)
        if at is not None and at + publisher.late < self._scenario.duration:
            self._engine.at(at + publisher.late, self._publish, publisher)

    def _publish(self, publisher: _Publisher) -> None:
        broker = self._brokers[publisher.broker]
        publisher.began = self._engine.now if publisher.began is None else publisher.began
        if broker.blocking:
            publisher.held_since = self._engine.now
            broker.waiting.append(publisher)
            return
        count = self._counts[publisher.client] = self._counts.get(publisher.client, 0) + 1
        message = make_message(Identity(publisher.client, 1, count), publisher.draw(), publisher.body)
        self._note(publisher.client, published_record(message, self._engine.now - publisher.began))
        publisher.began = None
        targets: Targets = {}
        for key in self._index.match([message.attributes])[0]:
            home, client, subscription = self._subscribers[key]
            targets.setdefault(home, []).append((client, subscription))
        if targets:
            self._arrive((publisher.broker, message, targets))
        self._schedule(publisher)

    # Brokers.

    def _arrive(self, copy: tuple[int, Message, Targets]) -> None:
        number, message, targets = copy
        broker = self._brokers[number]
        broker.stored_bytes += self._size(message)
        broker.queue.append((message, targets))
        if broker.stored_bytes >= self._config.block_share * self._config.store_bytes:
            broker.blocking = True
        if not broker.busy:
            self._serve(number)

    def _serve(self, number: int) -> None:
        broker = self._brokers[number]
        broker.busy = True
        _, targets = broker.queue[0]
        hops = {self._next_hop[number][there] for there in targets if there != number}
        work = len(targets.get(number, ())) + len(hops)
        cost = self._config.message_cost + self._config.delivery_cost * work
        if len(broker.queue) > self._config.resident_messages:
            cost *= self._config.paging_factor
        self._engine.at(self._engine.now + cost, self._served, number)

    def _served(self, number: int) -> None:
        broker = self._brokers[number]
        message, targets = broker.queue.popleft()
        identity = message.identity
        for client, subscription in targets.get(number, ()):
            fact = Delivered(subscription, identity.publisher, identity.incarnation, identity.count)
            self._note(client, fact)
        copies: dict[int, Targets] = {}
        for there, readers in targets.items():
            if there != number:
                copies.setdefault(self._next_hop[number][there], {})[there] = readers
        acknowledged = self._engine.now
        for hop, part in copies.items():
            delay = self._delays[number, hop]
            acknowledged = max(acknowledged, self._engine.now + 2 * delay)
            self._engine.at(self._engine.now + delay, self._arrive, (hop, message, part))
        self._engine.at(acknowledged, self._forget, (number, self._size(message)))
        broker.busy = False
        if broker.queue:
            self._serve(number)

    def _forget(self, stored: tuple[int, int]) -> None:
        """Everybody has it: the store may let it go, and read its publishers again if there is room."""
        number, size_bytes = stored
        broker = self._brokers[number]
        broker.stored_bytes -= size_bytes
        if broker.blocking and broker.stored_bytes <= self._config.resume_share * self._config.store_bytes:
            broker.blocking = False
            waiting, broker.waiting = broker.waiting, []
            for publisher in waiting:
                publisher.late += self._engine.now - publisher.held_since
                self._publish(publisher)

    # Trace.

    def _count_queues(self, _: None) -> None:
        for name, number in self._numbers.items():
            broker = self._brokers[number]
            self._note(name, Counted("queue packets", "", len(broker.queue)))
            self._note(name, Counted("blocked publishers", "", len(broker.waiting)))
        self._engine.at(self._engine.now + 1.0, self._count_queues, None)

    def _size(self, message: Message) -> int:
        return message.size_bytes + self._config.overhead_bytes

    def _note(self, node: str, record: Record) -> None:
        self._trace.write(self._engine.now, node, record)

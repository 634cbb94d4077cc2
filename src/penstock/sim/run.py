"""One run: a scenario and a seed go in, a digest, counts and verdicts come out.

`simulate` builds the network, lets clients do what the scenario says, strikes with faults, and watches everything with
the scenario's checkers. The same scenario and seed give the same digest, in any process.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from penstock.content.message import Attributes, Identity, Message
from penstock.kernel.packet import Packet
from penstock.kernel.trace import Counted, Digest, Dropped, NodeStopped, Record, Trace
from penstock.overlay.packets import Publication
from penstock.scenario.checkers import Checker, make_checkers
from penstock.scenario.spec import ClientSpec, Scenario
from penstock.scenario.validate import validate
from penstock.sim.application import Application
from penstock.sim.engine import Engine
from penstock.sim.network import SimulatedNetwork

COUNT_INTERVAL = 1.0  # seconds between two counts of what the links carried


@dataclass
class ClientTally:
    """What one client did and got."""

    published: int = 0
    refused: int = 0
    delivered: int = 0
    delays: list[float] = field(default_factory=list)  # of what it got, from publish() on
    per_second: Counter[int] = field(default_factory=Counter)  # deliveries in each second of the run


@dataclass
class RunResult:
    """What a run amounts to."""

    scenario: str
    seed: int
    digest: str
    events: int
    link_packets: int
    virtual_seconds: float
    wall_seconds: float
    records: dict[str, int]
    clients: dict[str, ClientTally]
    drops: dict[tuple[str, str, str, str], int]  # (node, peer, place, cause) -> packets
    links: dict[tuple[str, str], int]  # (sender, receiver) -> bytes carried
    problems: list[str]
    complete: bool = True  # False: stopped by the limit on events


class _Watch:
    """Hands everything that happens to the digest, the trace, the tallies and the checkers."""

    def __init__(self, engine: Engine, checkers: list[Checker], trace: Trace | None) -> None:
        self.digest = Digest()
        self.records: Counter[type[Record]] = Counter()
        self.drops: Counter[tuple[str, str, str, str]] = Counter()
        self.clients: dict[str, ClientTally] = {}
        self.published_at: dict[Identity, float] = {}
        self.broker_ids: dict[str, int] = {}
        self.engine = engine
        self._checkers = checkers
        self._trace = trace
        self._on_delivered = _listeners(checkers, "delivered")
        self._on_sent = _listeners(checkers, "sent")
        self._on_arrived = _listeners(checkers, "arrived")
        self._on_dropped = _listeners(checkers, "dropped")
        self.watches_packets = bool(self._on_sent or self._on_arrived)

    def record(self, node: str, record: Record) -> None:
        now = self.engine.now
        self.records[type(record)] += 1
        self.digest.write(now, node, record)
        if self._trace is not None:
            self._trace.write(now, node, record)
        if type(record) is Dropped:
            self.drops[node, record.peer, record.place, record.cause] += 1
            for listener in self._on_dropped:
                listener(now, record)

    def delivered(self, node: str, subscription: int, message: Message) -> None:
        now = self.engine.now
        tally = self.clients[node]
        tally.delivered += 1
        tally.per_second[int(now)] += 1
        tally.delays.append(now - self.published_at[message.identity])
        for listener in self._on_delivered:
            listener(now, node, subscription, message)

    def sent(self, packet: Packet) -> None:
        if type(packet) is Publication:
            for listener in self._on_sent:
                listener(self.engine.now, packet)

    def handled(self, node: str, packet: Packet) -> None:
        if type(packet) is Publication:
            for listener in self._on_arrived:
                listener(self.engine.now, self.broker_ids[node], packet)

    def tell(self, call: Callable[[Checker], None]) -> None:
        """Tell all checkers of something that only the driver of the clients knows."""
        for checker in self._checkers:
            call(checker)


def _listeners(checkers: list[Checker], hook: str) -> list[Callable[..., None]]:
    """The hook of each checker that has something of its own to do there: a hop costs a call for each of them."""
    base = getattr(Checker, hook)
    return [getattr(checker, hook) for checker in checkers if getattr(type(checker), hook) is not base]


Drawn = tuple[float, str, Attributes, int]  # when, by which client, its attributes, and bytes of body


def simulate(
    scenario: Scenario,
    seed: int,
    *,
    publications: Iterable[Drawn] = (),
    trace: Trace | None = None,
    events_max: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> RunResult:
    """Run the scenario; `progress` is called with the share that is done.

    `publications`, in order of time, are made beside those that the scenario describes; a workload from a file is read
    as it is needed, however large it is.
    """
    validate(scenario)
    began = perf_counter()
    engine = Engine()
    checkers = make_checkers(scenario)
    watch = _Watch(engine, checkers, trace)
    network = SimulatedNetwork(scenario, seed, engine, watch)
    watch.broker_ids = network.broker_ids
    watch.clients = {client.name: ClientTally() for client in scenario.client}
    network.start(scenario)
    applications = {client.name: _application(client, scenario, seed, network, watch) for client in scenario.client}
    for application in applications.values():
        application.begin()
    _replay(iter(publications), engine, applications)
    for fault in scenario.fault:
        engine.at(fault.at, network.strike, fault)
    _count_links(engine, network, watch)
    end = scenario.duration + scenario.drain
    with _rare_collections():
        complete = _advance(engine, end, events_max, progress)
    for host in network.hosts.values():
        if host.machine is not None and complete:
            host.note(NodeStopped("end of the run"))
    if complete:
        for checker in checkers:
            checker.finish()
    for name, application in applications.items():
        watch.clients[name].refused = application.refused
    return RunResult(
        scenario=scenario.name,
        seed=seed,
        digest=watch.digest.hexdigest(),
        events=engine.events,
        link_packets=sum(host.packets_sent for host in network.hosts.values()),
        virtual_seconds=engine.now,
        wall_seconds=perf_counter() - began,
        records=dict(sorted((kind.__name__, count) for kind, count in watch.records.items())),
        clients=watch.clients,
        drops=dict(sorted(watch.drops.items())),
        links=_bytes_carried(network),
        problems=[problem for checker in checkers for problem in checker.problems],
        complete=complete,
    )


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for garbage in cycles less often: packets and effects form none, and looking takes 7 % of a run's time."""
    usual = gc.get_threshold()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _advance(engine: Engine, end: float, events_max: int | None, progress: Callable[[float], None] | None) -> bool:
    """Let time pass in a hundred steps, so that somebody can watch; says whether the end was reached."""
    for step in range(1, 101):
        engine.run(end * step / 100, events_max)
        if events_max is not None and engine.events >= events_max:
            return False
        if progress is not None:
            progress(step / 100)
    return True


def _application(
    client: ClientSpec, scenario: Scenario, seed: int, network: SimulatedNetwork, watch: _Watch
) -> Application:
    def publishes(identity: Identity) -> None:
        watch.published_at[identity] = watch.engine.now
        watch.clients[client.name].published += 1

    host, verbs = network.hosts[client.name], lambda: network.verbs[client.name]
    return Application(client, scenario.duration, seed, watch.engine, host, verbs, watch.tell, publishes)


def _replay(publications: Iterator[Drawn], engine: Engine, applications: dict[str, Application]) -> None:
    """Let clients publish what was drawn elsewhere, one after the other."""

    def publish(item: Drawn) -> None:
        _, client, attributes, body_bytes = item
        applications[client].publish(attributes, bytes(body_bytes))
        schedule()

    def schedule() -> None:
        item = next(publications, None)
        if item is not None:
            engine.at(max(item[0], engine.now), publish, item)

    schedule()


def _bytes_carried(network: SimulatedNetwork) -> dict[tuple[str, str], int]:
    carried = {}
    for wire in network.wires.values():
        a, b = wire.near.host.name, wire.far.host.name
        carried[a, b], carried[b, a] = wire.there.carried_bytes, wire.back.carried_bytes
    return carried


def _count_links(engine: Engine, network: SimulatedNetwork, watch: _Watch) -> None:
    """Once per interval, record what each direction of each wire has carried, and what waits at each node."""
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    tcp_counted: dict[tuple[str, str], int] = {}

    def ends() -> Iterable[tuple[str, str, int, int]]:
        for wire in network.wires.values():
            a, b = wire.near.host.name, wire.far.host.name
            yield a, b, wire.there.carried_packets, wire.there.carried_bytes
            yield b, a, wire.back.carried_packets, wire.back.carried_bytes

    def count(_: None) -> None:
        for sender, receiver, packets, size_bytes in ends():
            packets_before, bytes_before = counted.get((sender, receiver), (0, 0))
            if packets > packets_before:
                watch.record(sender, Counted("link packets", receiver, packets - packets_before))
                watch.record(sender, Counted("link bytes", receiver, size_bytes - bytes_before))
                counted[sender, receiver] = (packets, size_bytes)
        for name, flow in network.tcp.items():
            total = flow.counts()
            for what, value in total.items():
                before = tcp_counted.get((name, what), 0)
                if value > before:
                    watch.record(name, Counted(f"tcp {what}", "", value - before))
                    tcp_counted[name, what] = value
        for host in network.hosts.values():
            for peer, packets in host.waiting():
                watch.record(host.name, Counted("queue packets", peer, packets))
        engine.at(engine.now + COUNT_INTERVAL, count, None)

    engine.at(COUNT_INTERVAL, count, None)

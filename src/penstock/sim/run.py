"""One run: a scenario and a seed go in, a digest, counts and verdicts come out.

`simulate` builds the network, lets clients do what the scenario says, strikes with faults, and watches everything with
the scenario's checkers. The same scenario and seed give the same digest, in any process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from penstock.content.message import Attributes, Identity
from penstock.kernel.trace import Counted, NodeStopped, Record, Trace
from penstock.scenario.checkers import make_checkers
from penstock.scenario.spec import ClientSpec, FaultSpec, Scenario
from penstock.scenario.stream_facts import ClockStepped
from penstock.scenario.validate import validate
from penstock.sim.application import Application
from penstock.sim.engine import Engine
from penstock.sim.host import SimulatedPort
from penstock.sim.network import SimulatedNetwork
from penstock.sim.stream_application import Notebook
from penstock.sim.watch import ClientTally, Watch
from penstock.streams.records import DurableStopped, GapNoticed

COUNT_INTERVAL = 1.0  # seconds between two counts of what the links carried


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
    watch = Watch(engine, checkers, trace)
    network = SimulatedNetwork(scenario, seed, engine, watch)
    watch.broker_ids = network.broker_ids
    watch.clients = {client.name: ClientTally() for client in scenario.client}
    network.start(scenario)
    notebook: Notebook = {}
    applications = {
        client.name: _application(client, scenario, seed, network, watch, notebook) for client in scenario.client
    }
    watch.on_stream_record = partial(_stream_record, applications)
    for application in applications.values():
        application.begin()
    _replay(iter(publications), engine, applications)
    for fault in scenario.fault:
        engine.at(fault.at, partial(_strike, network, watch, applications), fault)
    count_links = _count_links(engine, network, watch)
    end = scenario.duration + scenario.drain
    with _rare_collections():
        complete = _advance(engine, end, events_max, progress)
    count_links()  # what has left in the very last moment
    for host in network.hosts.values():
        if host.machine is not None and complete:
            host.note(NodeStopped("end of the run"))
    if complete:
        for application in applications.values():
            application.streams.finish()
            application.report()
        for checker in checkers:
            checker.finish()
    for name, application in applications.items():
        watch.clients[name].refused = application.refused
        watch.clients[name].streams = application.streams.tallies
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


def _strike(network: SimulatedNetwork, watch: Watch, applications: dict[str, Application], fault: FaultSpec) -> None:
    network.strike(fault)
    if fault.kind == "client_crash":
        assert fault.client is not None
        applications[fault.client].streams.crashed()
    elif fault.kind == "client_restart":
        assert fault.client is not None
        applications[fault.client].restarted()
    elif fault.kind == "clock_step":
        assert fault.broker is not None
        watch.fact(ClockStepped(fault.broker, fault.seconds))


def _stream_record(applications: dict[str, Application], node: str, record: Record) -> None:
    """What a live application learns from its subscription, one here learns from the record."""
    if node not in applications:
        return
    if isinstance(record, GapNoticed):
        applications[node].streams.gap(record.subscription, record.pubend, record.first, record.last)
    elif isinstance(record, DurableStopped):
        applications[node].streams.stopped(record.subscription, record.problem)


def _application(
    client: ClientSpec, scenario: Scenario, seed: int, network: SimulatedNetwork, watch: Watch, notebook: Notebook
) -> Application:
    def publishes(identity: Identity) -> None:
        watch.published_at[identity] = watch.engine.now
        watch.clients[client.name].published += 1

    host, verbs = network.hosts[client.name], lambda: network.verbs[client.name]
    tell, known = watch.tell, (notebook, watch.published_at)
    return Application(client, scenario.duration, seed, watch.engine, host, verbs, tell, publishes, *known)


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


def _count_links(engine: Engine, network: SimulatedNetwork, watch: Watch) -> Callable[[], None]:
    """Once per interval, record what each direction of each wire has carried, and what waits at each node.

    Of what brokers send each other, that in the lanes of control is counted by itself, and so are applications'
    messages, those between services, also what is lost on the way, and what link repair does.

    What is returned records what has been sent and carried since.
    """
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    sent_counted: dict[tuple[str, str, str], int] = {}
    tcp_counted: dict[tuple[str, str], int] = {}

    def ends() -> Iterable[tuple[str, str, int, int]]:
        for wire in network.wires.values():
            a, b = wire.near.host.name, wire.far.host.name
            yield a, b, wire.there.carried_packets, wire.there.carried_bytes
            yield b, a, wire.back.carried_packets, wire.back.carried_bytes

    def count_wires() -> None:
        for sender, receiver, packets, size_bytes in ends():
            packets_before, bytes_before = counted.get((sender, receiver), (0, 0))
            if packets > packets_before:
                watch.record(sender, Counted("link packets", receiver, packets - packets_before))
                watch.record(sender, Counted("link bytes", receiver, size_bytes - bytes_before))
                counted[sender, receiver] = (packets, size_bytes)

    def count_sent() -> None:
        for pair, wire in network.wires.items():
            if pair[0] in network.broker_ids and pair[1] in network.broker_ids:
                for port in (wire.near, wire.far):
                    for what, value in _sent(port).items():
                        before = sent_counted.get((what, port.host.name, port.peer), 0)
                        if value > before:
                            watch.record(port.host.name, Counted(what, port.peer, value - before))
                            sent_counted[what, port.host.name, port.peer] = value

    def count(_: None) -> None:
        count_wires()
        count_sent()
        for name, flow in network.tcp.items():
            total = flow.counts()
            for what, value in total.items():
                before = tcp_counted.get((name, what), 0)
                if value > before:
                    watch.record(name, Counted(f"tcp {what}", "", value - before))
                    tcp_counted[name, what] = value
        for host in network.hosts.values():
            for peer, packets, size_bytes in host.waiting():
                watch.record(host.name, Counted("queue packets", peer, packets))
                if size_bytes:
                    watch.record(host.name, Counted("queue bytes", peer, size_bytes))
        engine.at(engine.now + COUNT_INTERVAL, count, None)

    def count_last() -> None:
        count_wires()
        count_sent()

    engine.at(COUNT_INTERVAL, count, None)
    return count_last


def _sent(port: SimulatedPort) -> dict[str, int]:
    """What this end of a wire has sent and repaired so far, by the names of the trace."""
    repair = port.repair.counts() if port.repair is not None else {}
    return {
        "control bytes": port.control_bytes,
        "data packets": port.data_packets,
        "data bytes": port.data_bytes,
        "service packets": port.service_packets,
        "service bytes": port.service_bytes,
        **repair,
    }

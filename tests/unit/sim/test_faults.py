"""Faults in a simulated network: what each does, who is told, and that everything comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.kernel.packet import Packet
from penstock.kernel.trace import Dropped, NodeStarted, NodeStopped, Record
from penstock.overlay.broker import Broker
from penstock.overlay.records import NeighbourChanged
from penstock.overlay.routing import Routing
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
)
from penstock.scenario.workload import PublisherSpec
from penstock.sim.engine import Engine
from penstock.sim.network import SimulatedNetwork
from penstock.sim.run import RunResult, simulate
from penstock.streams.records import PubendStopped


class Watch:
    """An observer that keeps the records."""

    watches_packets = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.records: list[tuple[float, str, Record]] = []

    def record(self, node: str, record: Record) -> None:
        self.records.append((self.engine.now, node, record))

    def delivered(self, node: str, subscription: int, message: object) -> None: ...

    def sent(self, packet: Packet, *, node: str, peer: str) -> None: ...

    def handled(self, node: str, packet: Packet) -> None: ...


def a_scenario(
    links: Sequence[tuple[str, str]],
    *,
    kind: str = "datagram",
    faults: Sequence[FaultSpec] = (),
    clients: Sequence[ClientSpec] = (),
    joins: dict[str, float] | None = None,
    **spec: Any,
) -> Scenario:
    names = sorted({name for link in links for name in link})
    return Scenario(
        **{"name": "faults", "duration": 20.0, "settle": 1.0, **spec},
        broker=tuple(BrokerSpec(name=name, joins_at=(joins or {}).get(name, 0.0)) for name in names),
        link=tuple(LinkSpec(between=link, kind=kind) for link in links),  # type: ignore[arg-type]
        client=tuple(clients),
        fault=tuple(faults),
    )


class Bench:
    """A network whose faults are struck by hand."""

    def __init__(self, scenario: Scenario) -> None:
        self.engine = Engine()
        self.watch = Watch(self.engine)
        self.network = SimulatedNetwork(scenario, 1, self.engine, self.watch)
        self.network.start(scenario)

    def strike(self, kind: Any, **fields: Any) -> None:
        self.network.strike(FaultSpec(at=0.0, kind=kind, **fields))

    def run(self, seconds: float) -> None:
        self.engine.run(self.engine.now + seconds)

    def reaches(self, name: str) -> list[str]:
        machine = self.network.hosts[name].machine
        assert machine is not None
        names = {number: broker for broker, number in self.network.broker_ids.items()}
        return sorted(names[number] for number in machine.machine(Routing).exits())

    def disk_blocks(self, name: str) -> str:
        disk = self.network.hosts[name].disk
        assert disk is not None
        return repr(disk.store.blocks.by_area)

    def records(self, node: str, kind: type[Record]) -> list[Record]:
        return [record for _, name, record in self.watch.records if name == node and isinstance(record, kind)]


CHAIN = [("a", "b"), ("b", "c")]


def test_a_network_comes_up_by_itself() -> None:
    bench = Bench(a_scenario(CHAIN))
    bench.run(2.0)
    assert [bench.reaches(name) for name in "abc"] == [["b", "c"], ["a", "c"], ["a", "b"]]


def test_a_crash_on_a_datagram_link_is_found_by_silence() -> None:
    bench = Bench(a_scenario(CHAIN))
    bench.run(3.0)
    bench.strike("crash", broker="c")
    bench.run(1.0)
    assert bench.reaches("b") == ["a", "c"]
    bench.run(2.0)
    assert bench.reaches("b") == ["a"]
    assert bench.records("b", NeighbourChanged)[-1] == NeighbourChanged(2, False, "silent")


def test_a_crash_on_a_reliable_link_is_known_at_once() -> None:
    bench = Bench(a_scenario(CHAIN, kind="reliable"))
    bench.run(3.0)
    bench.strike("crash", broker="c")
    assert bench.records("b", NeighbourChanged)[-1] == NeighbourChanged(2, False, "link down")


def test_a_client_that_moves_is_at_its_new_broker_alone_whatever_heals() -> None:
    move = FaultSpec(at=0.0, kind="move", client="d", broker="c")
    bench = Bench(a_scenario(CHAIN, clients=[ClientSpec(name="d", broker="a")], faults=[move]))

    def clients_at(name: str) -> int:
        machine = bench.network.hosts[name].machine
        assert machine is not None
        return len(machine.machine(Broker)._clients)

    bench.run(1.0)
    assert [clients_at(name) for name in "abc"] == [1, 0, 0]
    bench.strike("move", client="d", broker="c")
    bench.run(1.0)
    assert [clients_at(name) for name in "abc"] == [0, 0, 1]
    bench.strike("heal")
    bench.strike("link_up", link=("d", "a"))
    bench.run(1.0)
    assert [clients_at(name) for name in "abc"] == [0, 0, 1]


def test_a_restart_is_a_new_life_that_finds_its_way_back() -> None:
    for kind in ("datagram", "shaped", "reliable"):
        bench = Bench(a_scenario(CHAIN, kind=kind))
        bench.run(3.0)
        bench.strike("crash", broker="b")
        bench.run(1.0)
        bench.strike("restart", broker="b")
        bench.run(3.0)
        assert [bench.reaches(name) for name in "abc"] == [["b", "c"], ["a", "c"], ["a", "b"]], kind
        assert bench.records("b", NodeStarted) == [NodeStarted("broker", 1), NodeStarted("broker", 2)]


def test_faults_that_change_nothing_do_nothing() -> None:
    bench = Bench(a_scenario(CHAIN))
    bench.run(3.0)
    bench.strike("crash", broker="b")
    before = len(bench.watch.records)
    bench.strike("crash", broker="b")
    bench.strike("link_up", link=("a", "b"))
    bench.strike("restart", broker="a")
    assert len(bench.watch.records) == before
    assert bench.network.hosts["a"].incarnation == 1


def test_a_link_is_named_in_either_direction_and_comes_back() -> None:
    bench = Bench(a_scenario(CHAIN))
    bench.run(3.0)
    bench.strike("link_down", link=("c", "b"))
    bench.run(3.0)
    assert bench.reaches("a") == ["b"]
    bench.strike("link_up", link=("b", "c"))
    bench.run(2.0)
    assert bench.reaches("a") == ["b", "c"]


def test_a_link_may_be_cut_in_one_direction_and_come_back_in_the_other_first() -> None:
    bench = Bench(a_scenario([("a", "b")]))
    wire = bench.network.wires["a", "b"]
    bench.strike("link_down", link=("b", "a"), towards="b")
    assert (wire.there.up, wire.back.up) == (False, True)
    bench.strike("link_down", link=("a", "b"))
    assert (wire.there.up, wire.back.up) == (False, False)
    bench.strike("link_up", link=("a", "b"), towards="a")
    assert (wire.there.up, wire.back.up) == (False, True)
    bench.run(4.0)
    assert (bench.reaches("a"), bench.reaches("b")) == ([], [])
    bench.strike("heal")
    bench.run(3.0)
    assert (bench.reaches("a"), bench.reaches("b")) == (["b"], ["a"])


def test_a_connection_needs_both_directions() -> None:
    bench = Bench(a_scenario([("a", "b")], kind="reliable"))
    bench.run(3.0)
    bench.strike("link_down", link=("a", "b"), towards="a")
    assert (bench.reaches("a"), bench.reaches("b")) == ([], [])
    bench.strike("link_down", link=("a", "b"))
    bench.strike("link_up", link=("a", "b"), towards="a")
    bench.run(3.0)
    assert (bench.reaches("a"), bench.reaches("b")) == ([], [])
    bench.strike("link_up", link=("a", "b"), towards="b")
    bench.run(3.0)
    assert (bench.reaches("a"), bench.reaches("b")) == (["b"], ["a"])


def test_a_client_loses_its_connection_and_another_crashes() -> None:
    clients = [ClientSpec(name=name, broker="a") for name in ("c", "d")]
    bench = Bench(a_scenario([("a", "b")], clients=clients))
    bench.run(1.0)
    bench.strike("link_down", link=("c", "a"))
    bench.strike("client_crash", client="d")
    bench.strike("heal")
    assert bench.network.wires["c", "a"].usable()
    assert bench.network.hosts["d"].machine is None
    assert bench.records("d", NodeStopped) == [NodeStopped("crash")]


def test_a_damaged_disk_stops_its_pubend_until_it_is_mended_and_the_broker_restarts() -> None:
    scenario = replace(a_scenario([("a", "b")]), stream=(StreamSpec(name="orders", at=("a",)),))
    bench = Bench(scenario)
    bench.run(1.0)
    blocks = bench.disk_blocks("a")
    bench.strike("disk_flip", broker="a")
    assert bench.disk_blocks("a") != blocks
    bench.strike("crash", broker="a", tail="lost")
    bench.strike("restart", broker="a")
    bench.run(1.0)
    assert bench.records("a", PubendStopped)
    bench.strike("heal")
    assert bench.network.hosts["a"].incarnation == 3
    stopped = len(bench.records("a", PubendStopped))
    bench.run(3.0)
    assert len(bench.records("a", PubendStopped)) == stopped


def test_a_part_of_a_disk_goes_back_and_is_restored() -> None:
    scenario = replace(a_scenario([("a", "b")]), stream=(StreamSpec(name="orders", at=("a",)),))
    bench = Bench(scenario)
    bench.run(30.0)  # the lease is written again and again
    blocks = bench.disk_blocks("a")
    bench.strike("disk_roll_back", broker="a")
    assert bench.disk_blocks("a") != blocks
    bench.strike("disk_restore", broker="a")
    assert bench.disk_blocks("a") == blocks
    bench.strike("heal")
    assert bench.network.hosts["a"].incarnation == 1


def test_a_partition_cuts_exactly_the_links_between_the_sides() -> None:
    bench = Bench(a_scenario([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]))
    bench.run(3.0)
    bench.strike("partition", group=("a", "b"))
    bench.run(4.0)
    assert [bench.reaches(name) for name in "abcd"] == [["b"], ["a"], ["d"], ["c"]]
    bench.strike("heal")
    bench.run(3.0)
    assert all(len(bench.reaches(name)) == 3 for name in "abcd")


def test_heal_brings_back_links_brokers_and_losslessness_but_nobody_who_left() -> None:
    scenario = a_scenario([("a", "b"), ("b", "c"), ("c", "d")])
    lossy = tuple(LinkSpec(between=link.between, loss=0.5, duplicate=0.1, reorder=0.1) for link in scenario.link)
    bench = Bench(Scenario(name="s", duration=1.0, broker=scenario.broker, link=lossy))
    bench.run(1.0)
    bench.strike("crash", broker="b")
    bench.strike("leave", broker="d")
    bench.strike("link_down", link=("b", "c"))
    bench.run(3.0)
    bench.strike("heal")
    pipes = [pipe for wire in bench.network.wires.values() for pipe in (wire.there, wire.back)]
    assert {(pipe.loss, pipe.duplicate, pipe.reorder) for pipe in pipes} == {(0.0, 0.0, 0.0)}
    bench.run(4.0)
    assert bench.reaches("a") == ["b", "c"]
    assert bench.network.hosts["d"].machine is None
    assert bench.records("d", NodeStopped) == [NodeStopped("leave")]


def test_a_broker_may_join_later() -> None:
    for kind in ("datagram", "reliable"):
        bench = Bench(a_scenario(CHAIN, kind=kind, joins={"c": 5.0}))
        bench.run(4.9)
        assert bench.reaches("a") == ["b"], kind
        bench.run(3.0)
        assert bench.reaches("a") == ["b", "c"], kind


def test_clocks_that_differ_and_jump_do_not_keep_brokers_apart() -> None:
    scenario = a_scenario(CHAIN)
    clocks = (
        BrokerSpec(name="a", clock_offset=-500.0, clock_drift=0.05),
        BrokerSpec(name="b"),
        BrokerSpec(name="c", clock_offset=1e6),
    )
    bench = Bench(Scenario(name="s", duration=1.0, broker=clocks, link=scenario.link))
    bench.run(3.0)
    assert bench.reaches("a") == ["b", "c"]
    bench.strike("clock_step", broker="b", seconds=100.0)
    bench.run(3.0)
    assert bench.reaches("a") == ["b", "c"]
    bench.strike("clock_step", broker="b", seconds=-1.0)
    bench.run(3.0)
    assert bench.reaches("a") == ["b", "c"]


def test_a_clock_step_strikes_a_node_that_is_down_too() -> None:
    bench = Bench(a_scenario(CHAIN))
    bench.strike("crash", broker="b")
    bench.strike("clock_step", broker="b", seconds=5.0)
    bench.strike("restart", broker="b")
    bench.run(3.0)
    assert bench.reaches("a") == ["b", "c"]


# With clients.


def clients_at(publisher: str, reader: str) -> list[ClientSpec]:
    return [
        ClientSpec(
            name="p",
            broker=publisher,
            publish=(PublisherSpec(rate_messages_per_s=20.0, start=2.0, attributes={"n": 1}),),
        ),
        ClientSpec(name="r", broker=reader, subscribe=(SubscriptionSpec(where="n = 1"),)),
    ]


def run(faults: Sequence[FaultSpec], links: Sequence[tuple[str, str]] = CHAIN, **spec: Any) -> RunResult:
    checks = ("at-most-once", "only-wanted", "sets-split", "nothing-silent", "nothing-missed")
    scenario = a_scenario(links, clients=clients_at("a", "c"), faults=faults, check=checks, **spec)
    return simulate(scenario, 3)


def test_without_faults_nothing_is_missed() -> None:
    for kind in ("datagram", "shaped", "reliable"):
        result = run([], kind=kind, settled_after=2.0)
        assert result.problems == []
        assert result.clients["r"].delivered == result.clients["p"].published == 360
        assert result.drops == {}


def test_after_a_crash_and_a_restart_of_every_broker_nothing_more_is_missed() -> None:
    for kind in ("datagram", "shaped", "reliable"):
        faults = [
            FaultSpec(at=5.0 + number, kind=event, broker=name)  # type: ignore[arg-type]
            for number, name in enumerate("abc")
            for event in ("crash", "restart")
        ]
        result = run(faults, kind=kind, settled_after=11.0)
        assert result.problems == [], kind
        assert result.clients["r"].delivered < 360


def test_messages_published_while_the_home_broker_is_down_are_refused() -> None:
    faults = [FaultSpec(at=5.0, kind="crash", broker="a"), FaultSpec(at=6.0, kind="restart", broker="a")]
    result = run(faults, settled_after=9.0)
    assert 19 <= result.clients["p"].refused <= 21
    assert result.problems == []


def test_traffic_takes_the_other_way_when_a_link_fails() -> None:
    links = [*CHAIN, ("a", "d"), ("d", "c")]
    result = run([FaultSpec(at=5.0, kind="link_down", link=("a", "b"))], links, settled_after=9.0)
    assert result.problems == []
    lost = sum(count for (_, _, place, cause), count in result.drops.items() if (place, cause) == ("pipe", "link down"))
    assert result.clients["r"].delivered >= 360 - lost
    assert result.clients["r"].delivered > 300


def test_every_message_lost_by_a_crash_has_a_record() -> None:
    """A copy that reaches a broker right after its restart comes from a sender that has not said hello yet."""
    trace: list[Record] = []

    class Trace:
        def write(self, time: float, node: str, record: Record) -> None:
            trace.append(record)

    faults = [FaultSpec(at=at, kind=kind, broker="b") for at, kind in ((5.0, "crash"), (5.3, "restart"))]  # type: ignore[arg-type]
    checks = ("nothing-silent", "sets-split")
    scenario = a_scenario(CHAIN, clients=clients_at("a", "c"), faults=faults, check=checks)
    result = simulate(scenario, 3, trace=Trace())
    assert result.problems == []
    losses = {record.count for record in trace if isinstance(record, Dropped) and record.publisher == "p"}
    assert len(losses) == 360 - result.clients["r"].delivered

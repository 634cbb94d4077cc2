"""A scenario's network, built in virtual time: hosts for its nodes, pipes for its links, and the faults that strike it.

What a failure looks like from inside: on a reliable link both ends are notified that the connection is gone. On
datagram and shaped links nobody is notified; a broker finds out by silence. A wire may be cut in one direction only.
A connection does not live on half a wire: it is gone, and comes back with the second half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Any

from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.kernel.packet import Packet
from penstock.kernel.randomness import generator
from penstock.overlay.assembly import Life, broker_node, client_node
from penstock.overlay.node import Node
from penstock.overlay.verbs import Verbs
from penstock.scenario.node_config import broker_config, client_config
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, TcpSpec
from penstock.services import services, services_without, unknown_kinds
from penstock.sim.disk import Disk, Tail
from penstock.sim.engine import Engine
from penstock.sim.host import Clock, Host, Observer, SimulatedPort
from penstock.sim.pipes import Pipe
from penstock.sim.port_repair import PortRepair
from penstock.sim.tcp.config import HEADER_BYTES, TcpConfig
from penstock.sim.tcp.connection import TcpPipe
from penstock.sim.tcp.flow import TcpFlow
from penstock.sim.tcp.packets import Give, beside


class Wire:
    """Both directions of one link."""

    def __init__(self, near: SimulatedPort, far: SimulatedPort, there: Pipe, back: Pipe) -> None:
        self.near = near
        self.far = far
        self.there = there
        self.back = back
        self.cut_there = self.cut_back = False  # by a fault; a dead end also keeps it from being up

    def towards(self, name: str) -> Pipe:
        """The direction that leads to this node."""
        return self.there if self.far.host.name == name else self.back

    @property
    def cut(self) -> bool:
        """Whether a fault keeps packets from passing, in one direction at least."""
        return self.cut_there or self.cut_back

    def notifies(self) -> bool:
        """Whether both ends notice at once when the wire fails."""
        return self.near.kind is LinkKind.RELIABLE

    def usable(self) -> bool:
        """Whether packets can pass both ways."""
        return not self.cut and self.near.host.machine is not None and self.far.host.machine is not None


class SimulatedNetwork:
    """All hosts and wires of a scenario."""

    def __init__(self, scenario: Scenario, seed: int, engine: Engine, observer: Observer) -> None:
        self.hosts: dict[str, Host] = {}
        self.broker_ids = {spec.name: number for number, spec in enumerate(scenario.broker)}
        self.wires: dict[tuple[str, str], Wire] = {}
        self.verbs: dict[str, Verbs] = {}  # of the clients' applications
        self._engine = engine
        self._observer = observer
        self._seed = seed
        self._disk_delays: dict[str, float] = {}
        self._damaged: dict[str, None] = {}  # brokers whose disks are
        self._gone: dict[str, None] = {}  # brokers that left, or have not joined yet
        self._unused: dict[tuple[str, str], Wire] = {}  # to brokers that a client moves to, or has left
        self._links: dict[str, dict[Link, LinkInfo]] = {}
        self._scenario = scenario
        ways = [flow.path for flow in scenario.tcp] + [link.along for link in scenario.link]
        self._shared = {pair for way in ways for pair in pairwise(way)}  # wires that a TCP uses too
        for broker in scenario.broker:
            self._add_broker(broker)
        for link in sorted(scenario.link, key=lambda link: bool(link.along)):  # after the links they go through
            self._join(link)
        for client in scenario.client:
            self._add_client(client)
        self.tcp = {flow.name: self._add_tcp(flow) for flow in scenario.tcp}

    # Life of the network.

    def start(self, scenario: Scenario) -> None:
        """Start every node that is there from the beginning, then bring up the wires between them."""
        for broker in scenario.broker:
            if broker.joins_at > 0.0:
                self._gone[broker.name] = None
                self._engine.at(broker.joins_at, self._start, broker.name)
        for name, host in self.hosts.items():
            if name not in self._gone:
                host.start()
        for wire in self.wires.values():
            self._raise(wire, None)

    def strike(self, fault: FaultSpec) -> None:
        """Let something go wrong, or right again."""
        match fault.kind:
            case "crash" | "leave":
                assert fault.broker is not None
                if fault.kind == "leave":
                    self._gone[fault.broker] = None
                self._stop(fault.broker, fault.kind, fault.tail)
            case "restart":
                assert fault.broker is not None
                self._start(fault.broker)
            case "client_crash":
                assert fault.client is not None
                self._stop(fault.client, "crash", "lost")
            case "move":
                assert fault.client is not None
                assert fault.broker is not None
                self._move(fault.client, fault.broker)
            case "client_restart":
                assert fault.client is not None
                self._start(fault.client)
            case "link_down" | "link_up":
                assert fault.link is not None
                wire = self._wire(fault.link)
                if wire not in self._unused.values():
                    self._cut(wire, down=fault.kind == "link_down", towards=fault.towards)
            case "link_rate":
                assert fault.link is not None
                wire = self._wire(fault.link)
                wire.there.change_rate(fault.rate_bits_per_s)
                wire.back.change_rate(fault.rate_bits_per_s)
            case "partition":
                for (a, b), wire in self.wires.items():
                    if a in self.broker_ids and b in self.broker_ids and (a in fault.group) != (b in fault.group):
                        self._cut(wire, down=True)
            case "clock_step":
                assert fault.broker is not None
                self.hosts[fault.broker].step_clock(fault.seconds)
            case "disk_full" | "disk_freed":
                assert fault.broker is not None
                self._disk(fault.broker).full = fault.kind == "disk_full"
            case "disk_slow":
                assert fault.broker is not None
                self._disk(fault.broker).delay = fault.seconds
            case "disk_flip" | "disk_roll_back" | "disk_restore":
                assert fault.broker is not None
                self._damage(fault.broker, fault.kind)
            case "heal":
                self._heal()

    def _move(self, client: str, broker: str) -> None:
        """A client leaves its broker for another."""
        for pair in [pair for pair in self.wires if pair[0] == client and pair not in self._unused]:
            self._unused[pair] = self.wires[pair]
            self._cut(self.wires[pair], down=True)
        self._cut(self._unused.pop((client, broker)), down=False)

    def _heal(self) -> None:
        for pair, wire in self.wires.items():
            for pipe in (wire.there, wire.back):
                pipe.loss = pipe.duplicate = pipe.reorder = 0.0
            if pair not in self._unused:
                self._cut(wire, down=False)
        for name in self.broker_ids:
            disk = self._disk(name)
            disk.full, disk.delay = False, self._disk_delays[name]
            if name in self._damaged:
                self._stop(name, "crash", "lost")
                self._damage(name, "disk_restore")
            if name not in self._gone:
                self._start(name)

    def _damage(self, broker: str, kind: str) -> None:
        """Change what a disk has stored, or mend it."""
        disk = self._disk(broker)
        if kind == "disk_restore":
            disk.restore()
            self._damaged.pop(broker, None)
        elif disk.flip() if kind == "disk_flip" else disk.roll_back():
            self._damaged[broker] = None

    def _disk(self, broker: str) -> Disk:
        disk = self.hosts[broker].disk
        assert disk is not None, "every broker has one"
        return disk

    def _start(self, name: str) -> None:
        self._gone.pop(name, None)
        host = self.hosts[name]
        if host.machine is not None:
            return
        host.start()
        for pair, wire in self.wires.items():
            if name in pair:
                self._raise(wire, host)

    def _stop(self, name: str, cause: str, tail: Tail) -> None:
        host = self.hosts[name]
        if host.machine is None:
            return
        host.stop(cause, tail)
        for pair, wire in self.wires.items():
            if name in pair and wire.notifies():
                self._lower(wire)

    # Wires.

    def _cut(self, wire: Wire, *, down: bool, towards: str | None = None) -> None:
        """Cut the wire or mend it, in both directions or only towards one of its ends."""
        was_cut, both = wire.cut, towards is None
        if (both or wire.far.host.name == towards) and wire.cut_there != down:
            wire.cut_there = down
            _switch(wire.there, down)
        if (both or wire.near.host.name == towards) and wire.cut_back != down:
            wire.cut_back = down
            _switch(wire.back, down)
        if wire.notifies() and wire.cut != was_cut:
            if wire.cut:
                self._lower(wire)
            else:
                self._raise(wire, None)

    def _raise(self, wire: Wire, only: Host | None) -> None:
        """Tell the ends that the link is there: both if it is a connection, else just the one that has begun."""
        if wire.notifies() and not wire.usable():
            return
        for port in (wire.near, wire.far):
            if wire.notifies() or only is None or port.host is only:
                port.host.link_changed(port.link, up=True)

    def _lower(self, wire: Wire) -> None:
        """The connection breaks: what was on its way is lost, and both ends know."""
        for pipe in (wire.there, wire.back):
            if pipe.up:
                pipe.fail()
                pipe.restore()
        for port in (wire.near, wire.far):
            if isinstance(port.out, TcpPipe):
                port.out.fail()
        for port in (wire.near, wire.far):
            port.host.link_changed(port.link, up=False)

    def _wire(self, pair: tuple[str, str]) -> Wire:
        wire = self.wires.get(pair) or self.wires.get((pair[1], pair[0]))
        assert wire is not None, f"no wire joins {pair}"
        return wire

    # Building.

    def _add_broker(self, spec: BrokerSpec) -> None:
        number, links = self.broker_ids[spec.name], self._links.setdefault(spec.name, {})
        config = broker_config(self._scenario, spec)

        def make(incarnation: int) -> Node:
            life = Life(
                name=spec.name,
                incarnation=incarnation,
                seed=self._seed,
                number=number,
                storage=True,
                host_load=self.hosts[spec.name].link_load,
                brokers=self.broker_ids,
            )
            return broker_node(services_without(spec.without), life, links, config)

        self.hosts[spec.name] = Host(
            self._engine,
            spec.name,
            "broker",
            make,
            self._observer,
            clock=Clock(spec.clock_offset, spec.clock_drift),
            random=generator(self._seed, spec.name, "service"),
            workers=spec.workers,
            service_mean=spec.service_mean,
            slow_share=spec.slow_share,
            slow_mean=spec.slow_mean,
            delivery_cost=spec.delivery_cost,
            send_cost=spec.send_cost,
            ingress_packets=spec.ingress_packets,
            disk_random=generator(self._seed, spec.name, "disk"),
            disk_delay=spec.disk_delay,
        )
        self._disk_delays[spec.name] = spec.disk_delay

    def _add_client(self, spec: ClientSpec) -> None:
        links = self._links.setdefault(spec.name, {})

        config = client_config(self._scenario, spec)

        def make(incarnation: int) -> Node:
            life = Life(name=spec.name, incarnation=incarnation, seed=self._seed)
            node, self.verbs[spec.name] = client_node(services(), life, links, config)
            return node

        self.hosts[spec.name] = Host(
            self._engine,
            spec.name,
            "client",
            make,
            self._observer,
            clock=Clock(spec.clock_offset, spec.clock_drift),
            random=generator(self._seed, spec.name, "service"),
        )
        moves = [fault.broker for fault in self._scenario.fault if fault.kind == "move" and fault.client == spec.name]
        for broker in dict.fromkeys([spec.broker, *moves]):
            assert broker is not None
            self._join(
                LinkSpec(
                    between=(spec.name, broker),
                    kind="reliable",
                    rate_bits_per_s=spec.access_rate_bits_per_s,
                    delay=spec.access_delay,
                    queue_packets=spec.queue_packets,
                )
            )
            if broker != spec.broker:
                wire = self._unused[spec.name, broker] = self.wires[spec.name, broker]
                self._cut(wire, down=True)

    def _join(self, spec: LinkSpec) -> None:
        a, b = spec.between
        near, far = self._port(a, b, spec), self._port(b, a, spec)
        rates = spec.rate_bits_per_s, spec.rate_back_bits_per_s or spec.rate_bits_per_s
        if spec.kind == "datagram" and spec.repair:
            near.repair, far.repair = PortRepair(self._engine, near), PortRepair(self._engine, far)
        there, back = self._pipe(spec, near, far, rates[0]), self._pipe(spec, far, near, rates[1])
        if spec.kind == "tcp":
            self._connect(spec, near, far, there, back)
        else:
            near.join(there, limited=spec.rate_bits_per_s is not None)
            far.join(back, limited=spec.rate_bits_per_s is not None)
        if near.repair is not None and far.repair is not None:
            near.repair.join(there, far.repair)
            far.repair.join(back, near.repair)
        self.wires[spec.between] = Wire(near, far, there, back)

    def _connect(self, spec: LinkSpec, near: SimulatedPort, far: SimulatedPort, there: Pipe, back: Pipe) -> None:
        """Both directions of a TCP connection, over its own wire and those it goes along."""
        onward, backward = self._ways(spec.along)
        forward, reverse = [there.send, *onward], [*backward, back.send]
        on_the_wire = spec.segment_bytes + HEADER_BYTES
        config = TcpConfig(segment_bytes=on_the_wire, receive_window=spec.receive_window, segments_max=0)
        buffer = spec.send_buffer_bytes
        engine = self._engine
        near.join(TcpPipe(engine, forward, reverse, far.arrive, near.lost, config, buffer_bytes=buffer), limited=True)
        far.join(TcpPipe(engine, reverse, forward, near.arrive, far.lost, config, buffer_bytes=buffer), limited=True)

    def _ways(self, path: Sequence[str]) -> tuple[list[Give], list[Give]]:
        """The pipes along these brokers, there and back."""
        hops = [(self._wire(pair), pair) for pair in pairwise(path)]
        there: list[Give] = [wire.towards(pair[1]).send for wire, pair in hops]
        return there, [wire.towards(pair[0]).send for wire, pair in reversed(hops)]

    def _port(self, name: str, peer: str, spec: LinkSpec) -> SimulatedPort:
        host, kind = self.hosts[name], spec.link_kind
        link = len(host.ports)
        broker, unknown = self.broker_ids.get(peer), self._unknown_at(peer)
        self._links[name][link] = LinkInfo(peer, kind, spec.cost, spec.queue_packets, broker, unknown)
        port = host.ports[link] = SimulatedPort(host, link, peer, kind)
        return port

    def _unknown_at(self, name: str) -> frozenset[type[Packet]]:
        """What this node cannot read; live, its handshake says so."""
        without = next((broker.without for broker in self._scenario.broker if broker.name == name), ())
        return unknown_kinds(service.name for service in services_without(without)) if without else frozenset()

    def _add_tcp(self, spec: TcpSpec) -> TcpFlow:
        """A bulk connection whose packets share the wires between these brokers."""
        there, back = self._ways(spec.path)
        access = [self._access(spec.access_delay).send for _ in range(2)]
        config = TcpConfig(
            segment_bytes=spec.segment_bytes,
            acknowledge_every=spec.acknowledge_every,
            receive_window=spec.receive_window,
        )
        stop = inf if spec.stop is None else spec.stop
        return TcpFlow(self._engine, [access[0], *there], [*back, access[1]], config, start=spec.start, stop=stop)

    def _access(self, delay: float) -> Pipe:
        arrive, lost = beside(_nobody, _nobody)
        return Pipe(
            self._engine,
            generator(self._seed, "pipe", "tcp", "access"),
            arrive,
            lost,
            rate_bits_per_s=None,
            delay=delay,
            jitter=0.0,
            loss=0.0,
            queue_packets=1,
            reliable=False,
        )

    def _pipe(self, spec: LinkSpec, sender: SimulatedPort, receiver: SimulatedPort, rate: float | None) -> Pipe:
        arrive: Callable[[Any], None] = (receiver.repair or receiver).arrive
        lost: Callable[[Any, str], None] = (sender.repair or sender).lost
        if spec.kind == "tcp":
            arrive, lost = beside(_nobody, _nobody)
        elif spec.between in self._shared or spec.between[::-1] in self._shared:
            arrive, lost = beside(arrive, lost)
        return Pipe(
            self._engine,
            generator(self._seed, "pipe", sender.host.name, receiver.host.name),
            arrive,
            lost,
            rate_bits_per_s=rate,
            delay=spec.delay,
            jitter=spec.jitter,
            loss=spec.loss,
            queue_packets=spec.wire_packets if spec.kind == "tcp" else spec.queue_packets,
            reliable=spec.kind == "reliable",
            duplicate=spec.duplicate,
            reorder=spec.reorder,
            loss_burst=spec.loss_burst,
        )


def _switch(pipe: Pipe, down: bool) -> None:
    if down:
        pipe.fail()
    else:
        pipe.restore()


def _nobody(*_: Any) -> None:
    raise AssertionError("only TCP's packets travel here")

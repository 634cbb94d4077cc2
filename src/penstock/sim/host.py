"""A node in virtual time: one machine, its clock, its workers, and its ends of the wires.

The host gives the machine one input at a time and applies the effects in order. What a broker does in parallel
belongs here: a data packet waits for a free worker and is handed to the machine when its service, of random length,
ends; that is how messages overtake each other. Each copy handed to a client keeps the worker busy a little longer. A
packet with several messages of a stream takes the time of all of them. To put a message of a stream on a link may take
the processor's time too, whatever made the node send it: that time is over before the next packet is served.

Control packets do not wait, but for Nacks: to answer one is work, so they stand in line with data.

A crash throws the machine away, and with it whatever it held; the packets among that are recorded as dropped. A
restart makes a new machine with the next incarnation. The node's disk outlives both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Protocol

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Message
from penstock.kernel.driver import Driver
from penstock.kernel.link import Link, LinkKind, LinkLoad
from penstock.kernel.machine import Deliver, Effect, Outcome
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import OWN_BOUNDS, LaneBounds, LaneQueue, QueueConfig
from penstock.kernel.storage import Ask, Operation, StorageResult, Ticket
from penstock.kernel.trace import Delivered, NodeStarted, NodeStopped, Record
from penstock.overlay.egress import dropped
from penstock.overlay.node import Node
from penstock.overlay.packets import Delivery, Publication
from penstock.retrieval.message import RetrievedMessage
from penstock.sim.disk import Disk, Tail
from penstock.sim.engine import Engine
from penstock.sim.pipes import Pipe
from penstock.sim.port_repair import PortRepair
from penstock.sim.tcp.connection import TcpPipe
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Knowledge, Nack, StreamDelivery

UNLIMITED_ROOM_BYTES = 1 << 62
CONTROL_LANES = (Lane.CONTROL, Lane.SERVICE_CONTROL)


class Observer(Protocol):
    """Who sees everything: the trace and the checkers."""

    def record(self, node: str, record: Record) -> None: ...

    def delivered(self, node: str, subscription: int, message: Message) -> None: ...

    watches_packets: bool  # whether it wants to see every hop, and what is done to disks

    def sent(self, packet: Packet, *, node: str, peer: str) -> None: ...

    def handled(self, node: str, packet: Packet) -> None: ...

    def asked(self, asked: Ask) -> None: ...

    def changed(self, area: str, operation: Operation) -> None: ...


class Clock:
    """A node's own idea of the time: offset and drift against true time."""

    def __init__(self, offset: float = 0.0, drift: float = 0.0) -> None:
        self.offset = offset
        self._rate = 1.0 + drift

    def local(self, true_time: float) -> float:
        return true_time * self._rate + self.offset

    def true(self, local_time: float) -> float:
        return (local_time - self.offset) / self._rate


class SimulatedPort:
    """One end of a wire: where this host sends on a link, and where packets come in."""

    def __init__(self, host: Host, link: Link, peer: str, kind: LinkKind) -> None:
        self.host = host
        self.link = link
        self.peer = peer
        self.kind = kind
        self.direct = kind is LinkKind.DATAGRAM  # the queue stands in the pipe
        self.limited = True  # whether room must be asked for; set when the pipe is joined
        self.out: Pipe | TcpPipe | None = None
        self.given_bytes = 0  # to the wire, by this node
        self.control_bytes = 0  # sent in a lane of control
        # Messages sent, packets and bytes: those of applications, and those that services send each other.
        self.data_packets = self.data_bytes = self.service_packets = self.service_bytes = 0
        self.ready_scheduled = False
        self.connection = 0  # how often the link has come up; an event of an earlier time means nothing
        self.repair: PortRepair | None = None  # of a datagram link that repairs itself

    def join(self, out: Pipe | TcpPipe, limited: bool) -> None:
        """Give the port its outgoing pipe."""
        self.out = out
        self.limited = limited and self.kind is not LinkKind.DATAGRAM

    def send(self, packet: Packet, lane: Lane) -> None:
        """Put a packet on the wire."""
        out = self.out
        assert out is not None
        self.host.note_sent(packet, self.peer)
        size_bytes = packet.size_bytes()
        self.given_bytes += size_bytes
        if lane in CONTROL_LANES:
            self.control_bytes += size_bytes
        if type(packet) is Publication:
            if packet.message.attributes.get(FLAG, DATA) == DATA:
                self.data_packets += 1
                self.data_bytes += size_bytes
            else:
                self.service_packets += 1
                self.service_bytes += size_bytes
        if self.repair is not None:
            self.repair.send(packet, lane, size_bytes)
            return
        out.send((packet, lane), size_bytes, self.direct and lane in OWN_BOUNDS)
        if self.limited and not self.ready_scheduled:
            self.host.ask_for_room(self, out)

    def alive(self) -> bool:
        """Whether a node is there to take what comes."""
        return self.host.machine is not None

    def arrive(self, item: tuple[Packet, Lane]) -> None:
        """A packet has come in over the wire."""
        self.hand_on(item[0], item[1])

    def hand_on(self, packet: Packet, lane: Lane) -> None:
        """Give the node a packet that has come."""
        self.host.arrived(self.link, packet, lane)

    def lost(self, item: tuple[Packet, Lane], cause: str) -> None:
        """A packet that we sent ended on the wire."""
        self.note(dropped("pipe", cause, self.peer, item[1], item[0]))

    def note(self, record: Record) -> None:
        """Write a fact about the node."""
        self.host.note(record)


class Host:
    """Drives one node."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        role: str,
        make_machine: Callable[[int], Node],
        observer: Observer,
        *,
        clock: Clock,
        random: Random,
        workers: int = 1,
        service_mean: float = 0.0,
        slow_share: float = 0.0,
        slow_mean: float = 0.0,
        delivery_cost: float = 0.0,
        send_cost: float = 0.0,
        ingress_packets: int = 10_000,
        disk_random: Random | None = None,  # no disk without it
        disk_delay: float = 0.0,
    ) -> None:
        self.name = name
        self.role = role
        self.machine: Node | None = None
        self.incarnation = 0
        self.ports: dict[Link, SimulatedPort] = {}
        self.clock = clock
        self.answered: Callable[[int, Outcome], None] | None = None
        self._engine = engine
        self._make_machine = make_machine
        self._observer = observer
        self._watched = observer.watches_packets
        self.packets_sent = 0  # on all links, in all lives
        self._random = random
        self._free_workers = workers
        self._workers = workers
        self._service_mean = service_mean
        self._slow_share, self._slow_mean = slow_share, slow_mean
        self._works = service_mean > 0.0 or send_cost > 0.0 or slow_share > 0.0
        self._delivery_cost = delivery_cost
        self._deliveries = 0  # copies handed to clients so far
        self._send_cost = send_cost
        self._busy_until = 0.0  # with what it has sent, and what is being served if no worker is free
        bounds = LaneBounds(packets_max=ingress_packets, bytes_max=1 << 62)
        self._ingress: LaneQueue[tuple[Link, Packet, Lane]] = LaneQueue(QueueConfig(lanes=dict.fromkeys(Lane, bounds)))
        self._driver: Driver | None = None
        self.disk = Disk(engine, disk_random, self._stored, disk_delay) if disk_random is not None else None
        if self.disk is not None and self._watched:
            self.disk.changed = observer.changed
        self.on_deliver: Callable[[Deliver], None] | None = None  # the application, where somebody plays one

    # Life.

    def start(self) -> None:
        """Begin a new life; the links are brought up by the network afterwards."""
        assert self.machine is None
        self.incarnation += 1
        self._free_workers, self._busy_until = self._workers, 0.0
        for port in self.ports.values():
            if port.repair is not None and self.incarnation > 1:
                port.repair.restart()
        self.machine = self._make_machine(self.incarnation)
        self._driver = Driver(self.machine, self)
        self.note(NodeStarted(self.role, self.incarnation))

    def stop(self, cause: str, tail: Tail = "lost") -> None:
        """End this life. Whatever waits here is lost, and recorded; `tail` says what the disk keeps of it."""
        machine = self.machine
        assert machine is not None
        self.machine = self._driver = None
        if self.disk is not None:
            self.disk.crash(tail)
        for link, port in self.ports.items():
            port.ready_scheduled = False
            for effect in machine.egress.link_changed(link, up=False):
                if isinstance(effect, Record):
                    self.note(effect)
        for record in machine.stop():
            assert isinstance(record, Record)
            self.note(record)
        for link, packet, lane in self._ingress.clear():
            self.note(dropped("ingress", cause, self.ports[link].peer, lane, packet))
        self.note(NodeStopped(cause))

    def step_clock(self, seconds: float) -> None:
        """Someone sets the node's clock."""
        self.clock.offset += seconds
        if self._driver is not None:
            self._driver.clock_changed()

    # Inputs.

    def link_changed(self, link: Link, *, up: bool) -> None:
        """Tell the machine, and give it room to send if the link is up."""
        if self.machine is None:
            return
        port = self.ports[link]
        port.connection += up
        port.ready_scheduled = False
        self.apply(self.machine.link_changed(link, up=up, now=self.now()))
        if up and port.kind is not LinkKind.DATAGRAM and self.machine is not None:
            self._link_ready(port)

    def arrived(self, link: Link, packet: Packet, lane: Lane) -> None:
        """A packet has come in: serve it, or let it wait for a worker."""
        if self.machine is None:
            self.note(dropped("ingress", "node down", self.ports[link].peer, lane, packet))
            return
        if type(packet) is Nack:
            lane = Lane.STREAM
        if not self._works or lane is Lane.CONTROL:
            self._handle(link, packet)
        elif self._free_workers:
            self._serve(link, packet, lane)
        elif not self._ingress.put(lane, (link, packet, lane), packet.size_bytes()):
            self.note(dropped("ingress", "queue full", self.ports[link].peer, lane, packet))
            self.apply(self.machine.discarded((packet,), sender=link))

    def apply(self, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for."""
        assert self._driver is not None
        self._driver.apply(effects)

    # What the driver asks of this world.

    def deliver(self, effect: Deliver) -> None:
        """A message reaches the application."""
        if not isinstance(effect.message, StreamMessage | RetrievedMessage):  # those have a record of their own
            identity = effect.message.identity
            self.note(Delivered(effect.subscription, identity.publisher, identity.incarnation, identity.count))
        self._observer.delivered(self.name, effect.subscription, effect.message)
        if self.on_deliver is not None:
            self.on_deliver(effect)

    def answer(self, ticket: Ticket, outcome: Outcome) -> None:
        """A verb of the application is answered."""
        if self.answered is not None:
            self.answered(ticket, outcome)

    def ask(self, asked: Ask) -> None:
        """An operation for the disk."""
        assert self.disk is not None, "assembly refuses services that store where there is no disk"
        if self._watched:
            self._observer.asked(asked)
        self.disk.ask(asked)

    def host_time(self, node_time: float) -> float:
        """True time, and never the past."""
        return max(self._engine.now, self.clock.true(node_time))

    def call_at(self, host_time: float) -> None:
        """Let the driver's timer ring."""
        self._engine.at(host_time, self._rang, (self.incarnation, host_time))

    def note(self, record: Record) -> None:
        """Write a fact about this node."""
        self._observer.record(self.name, record)

    def now(self) -> float:
        """The node's own time."""
        return self.clock.local(self._engine.now)

    def link_load(self, link: Link) -> LinkLoad:
        """What the wire below this link says of itself."""
        port = self.ports[link]
        if port.out is None:
            return LinkLoad()
        load = port.out.load()
        return load._replace(foreign_bytes=max(0, load.offered_bytes - port.given_bytes))

    def waiting(self) -> Iterator[tuple[str, int, int]]:
        """What waits here for each neighbour, in packets and bytes of data, and, under no name, for a worker."""
        if self.machine is None:
            return
        for link, port in self.ports.items():
            packets = self.machine.egress.waiting_packets(link)
            if packets:
                yield port.peer, packets, self.machine.egress.waiting_bytes(link)
        if len(self._ingress):
            yield "", len(self._ingress), 0

    # Service.

    def _serve(self, link: Link, packet: Packet, lane: Lane) -> None:
        self._free_workers -= 1
        begins = max(self._engine.now, self._busy_until) if self._send_cost else self._engine.now
        messages = max(1, len(packet.data)) if isinstance(packet, Knowledge) else 1
        ends = begins + sum((self._random.expovariate(1.0) for _ in range(messages)), 0.0) * self._service_mean
        if self._slow_share and self._random.random() < self._slow_share:
            ends += self._random.expovariate(1.0) * self._slow_mean
        if not self._free_workers:
            self._busy_until = max(self._busy_until, ends)
        self._engine.at(ends, self._served, (self.incarnation, link, packet, lane))

    def _served(self, job: tuple[int, Link, Packet, Lane]) -> None:
        incarnation, link, packet, lane = job
        if self.machine is None or incarnation != self.incarnation:
            self.note(dropped("ingress", "crash", self.ports[link].peer, lane, packet))
            return
        delivered = self._deliveries
        self._handle(link, packet)
        busy_for = (self._deliveries - delivered) * self._delivery_cost
        if busy_for:
            self._engine.at(self._engine.now + busy_for, self._release_worker, incarnation)
        else:
            self._release_worker(incarnation)

    def _release_worker(self, incarnation: int) -> None:
        """A worker is free: it takes the next packet that waits."""
        if incarnation != self.incarnation or self.machine is None:
            return
        self._free_workers += 1
        waiting = self._ingress.get()
        if waiting is not None:
            self._serve(*waiting[0])

    def _handle(self, link: Link, packet: Packet) -> None:
        assert self.machine is not None
        assert self._driver is not None
        if self._watched:
            self._observer.handled(self.name, packet)
        self._driver.apply(self.machine.receive((packet,), sender=link, now=self.clock.local(self._engine.now)))

    # Links.

    def note_sent(self, packet: Packet, peer: str) -> None:
        """A packet goes out."""
        self.packets_sent += 1
        self._deliveries += type(packet) is Delivery
        if self._send_cost and isinstance(packet, Knowledge | StreamDelivery):
            messages = packet.data if isinstance(packet, Knowledge) else packet.items
            cost = len(messages) * self._send_cost / self._workers
            self._busy_until = max(self._busy_until, self._engine.now) + cost
        if self._watched:
            self._observer.sent(packet, node=self.name, peer=peer)

    def ask_for_room(self, port: SimulatedPort, out: Pipe | TcpPipe) -> None:
        port.ready_scheduled = True
        out.call_with_room(self._ready, (port.connection, port))

    def _ready(self, call: tuple[int, SimulatedPort]) -> None:
        connection, port = call
        if self.machine is not None and connection == port.connection:
            port.ready_scheduled = False
            self._link_ready(port)

    def _link_ready(self, port: SimulatedPort) -> None:
        assert self.machine is not None
        assert port.out is not None
        room = UNLIMITED_ROOM_BYTES
        if port.limited:
            room = 1 if port.kind is LinkKind.SHAPED else port.out.room_bytes()
        if room <= 0:  # more has been sent since we asked: ask again, for nobody else will
            self.ask_for_room(port, port.out)
            return
        self.apply(self.machine.link_ready(port.link, room_bytes=room, now=self.now()))

    # Time and storage.

    def _rang(self, call: tuple[int, float]) -> None:
        incarnation, at = call
        if self._driver is not None and incarnation == self.incarnation:
            self._driver.timer_rang(at)

    def _stored(self, ticket: Ticket, result: StorageResult) -> None:
        if self.machine is not None:
            self.apply(self.machine.completed(ticket, result, now=self.now()))

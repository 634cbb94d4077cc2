"""A node in real time: one machine on an event loop, its clock, its timer, and its ports.

The host gives the machine one input at a time; a `Driver` applies the effects in order and arms one timer. Packets are
not written one by one: a port gathers what the machine sends on its link, and all ports with something to write do so
once per turn of the loop, or as soon as `EAGER_PACKETS` wait, so that a long batch flows through instead of piling up.
Batches come in the same way: a frame is one call of `receive`.

`now` is wall-clock time at the start plus monotonic time since: it never jumps, and traces of several processes on one
machine can be compared.

The host also counts: drops by peer, place and cause, input that was refused, and once a second what each link carried.
With a trace, every fact goes there too, and to the one of the network (`trace_feed`) while that is switched on.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.kernel.driver import Driver
from penstock.kernel.link import Link, LinkLoad
from penstock.kernel.machine import Deliver, Effect, Outcome
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ask, StorageResult, Ticket
from penstock.kernel.trace import (
    Counted,
    Delivered,
    Dropped,
    InputRefused,
    NodeStarted,
    NodeStopped,
    Published,
    Record,
    Trace,
    TraceSwitch,
)
from penstock.live.standing_facts import LASTING, StandingFacts
from penstock.overlay.egress import dropped
from penstock.overlay.node import Node
from penstock.retrieval.message import RetrievedMessage
from penstock.streams.message import StreamMessage

GONE = "(clients that left)"
LOST_WITH_CONNECTION = "handed over, not known to have arrived"
EAGER_PACKETS = 128  # effects since the ports last wrote: write now instead of at the end of the turn


CLOCK_OFFSET = time.time() - time.monotonic()  # wall clock when this process began, and monotonic since


def node_time() -> float:
    """The time of all nodes in this process."""
    return CLOCK_OFFSET + time.monotonic()


class LivePort(Protocol):
    """One end of a link: where packets for it are gathered and written."""

    link: Link
    peer: str
    packets_sent: int
    bytes_sent: int

    def send(self, packet: Packet, lane: Lane) -> None: ...

    def flush(self) -> None: ...

    def load(self) -> LinkLoad: ...

    def close(self) -> list[tuple[Packet, Lane]]: ...


class Store(Protocol):
    """Where a host keeps what its machine wants kept."""

    def ask(self, asked: Ask) -> None: ...


class LiveHost:
    """Drives one node in real time."""

    def __init__(self, name: str, role: str, incarnation: int, *, trace: Trace | None = None) -> None:
        self.name = name
        self.role = role
        self.incarnation = incarnation
        self.ports: dict[Link, LivePort] = {}
        self.drops: Counter[tuple[str, str, str]] = Counter()  # (peer, place, cause) -> packets
        self.refusals = 0
        self.on_deliver: Callable[[Deliver], None] = lambda effect: None
        self.on_done: Callable[[int, Outcome], None] = lambda ticket, outcome: None
        self.on_record: Callable[[Record], None] = lambda record: None
        self.trace = trace
        self.traced = TraceSwitch(trace is not None)  # what machines look at
        self.standing = StandingFacts()
        self._own_trace = trace
        self._loop = asyncio.get_running_loop()
        # One offset for the whole process, so that its nodes agree; and not the loop's clock, which uvloop rounds to
        # milliseconds.
        self._clock_offset = CLOCK_OFFSET
        self._told = 0.0  # the time that the machine was told last
        self._machine: Node | None = None
        self._driver: Driver | None = None
        self._store: Store | None = None
        self._dirty: list[LivePort] = []
        self._gathered = 0  # effects since the ports last wrote
        self._flush_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._counted: dict[Link, tuple[int, int]] = {}
        self._late: dict[Link, dict[int, tuple[asyncio.TimerHandle, Sequence[Packet]]]] = {}  # see `receive_after`
        self._late_number = 0

    # Life.

    def start(self, machine: Node, store: Store | None = None) -> None:
        """Begin; links come up afterwards. The store's answers come to `completed`."""
        self._machine = machine
        self._driver = Driver(machine, self)
        self._store = store
        self.note(NodeStarted(self.role, self.incarnation))

    def stop(self, cause: str) -> None:
        """End. Whatever waits is lost, and recorded."""
        for link in list(self.ports):
            self.link_down(link, cause)
        if self._machine is not None:
            self.apply(self._machine.stop())
        self.count()
        self.note(NodeStopped(cause))
        self._machine = self._driver = None
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> float:
        """The node's own time, as its machine is told it."""
        self._told = self._clock_offset + time.monotonic()
        return self._told

    def link_load(self, link: Link) -> LinkLoad:
        """What the port of this link says of itself."""
        port = self.ports.get(link)
        return port.load() if port is not None else LinkLoad()

    # Inputs.

    def link_up(self, port: LivePort) -> None:
        """A link has come up; the port gives room by itself."""
        assert self._machine is not None
        self.ports[port.link] = port
        self.apply(self._machine.link_changed(port.link, up=True, now=self.now()))

    def link_down(self, link: Link, cause: str = "link down") -> None:
        """A link has gone. What its port had gathered is lost with it."""
        port = self.ports.pop(link, None)
        if port is None or self._machine is None:
            return
        self._count_port(link, port)
        self._counted.pop(link, None)
        for packet, lane in port.close():
            self.note(dropped("egress", cause, port.peer, lane, packet))
        for timer, packets in self._late.pop(link, {}).values():
            timer.cancel()
            for packet in packets:
                self.note(dropped("pipe", "link down", port.peer, packet.travels_in(), packet))
        self.apply(self._machine.link_changed(link, up=False, now=self.now()))

    def receive(self, link: Link, packets: Sequence[Packet]) -> None:
        """A batch has come in."""
        if self._machine is not None:
            self.apply(self._machine.receive(packets, sender=link, now=self.now()))
            if self._gathered >= EAGER_PACKETS:
                self.flush()

    def receive_after(self, delay: float, link: Link, packets: Sequence[Packet]) -> None:
        """A batch has come in over a link that is meant to be longer than it is.

        What is still on its way when the link fails is lost, and recorded.
        """
        if delay <= 0.0:
            self.receive(link, packets)
        elif link in self.ports:
            self._late_number += 1
            timer = self._loop.call_later(delay, self._receive_late, link, self._late_number)
            self._late.setdefault(link, {})[self._late_number] = (timer, packets)

    def _receive_late(self, link: Link, number: int) -> None:
        _, packets = self._late[link].pop(number)
        self.receive(link, packets)

    def link_ready(self, link: Link, room_bytes: int) -> None:
        """A port can take more."""
        if self._machine is not None:
            effects = self._machine.link_ready(link, room_bytes=room_bytes, now=self.now())
            if effects:
                self.apply(effects)

    def completed(self, ticket: Ticket, result: StorageResult) -> None:
        """Storage has answered."""
        if self._machine is not None:
            self.apply(self._machine.completed(ticket, result, now=self.now()))
            self.flush()  # whoever waited for the disk has waited long enough

    def apply(self, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for."""
        assert self._driver is not None
        self._driver.apply(effects)
        self._gathered += len(effects)

    # What the driver asks of this world.

    @property
    def deliver(self) -> Callable[[Deliver], None]:
        """What becomes of a message for the application."""
        return self.on_deliver if self.trace is None else self._deliver_traced

    def _deliver_traced(self, effect: Deliver) -> None:
        if not isinstance(effect.message, StreamMessage | RetrievedMessage):  # those have a record of their own
            identity = effect.message.identity
            if not self.traced.passes_over(Delivered, identity):
                self.note(Delivered(effect.subscription, identity.publisher, identity.incarnation, identity.count))
        self.on_deliver(effect)

    def answer(self, ticket: Ticket, outcome: Outcome) -> None:
        """A verb of the application is answered."""
        self.on_done(ticket, outcome)

    def ask(self, asked: Ask) -> None:
        """An operation for storage."""
        assert self._store is not None, "assembly refuses services that store where there is no store"
        self._store.ask(asked)

    def host_time(self, node_time: float) -> float:
        """The event loop's time."""
        return node_time - self._clock_offset

    def call_at(self, host_time: float) -> None:
        """Let the driver's timer ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(host_time, self._rang, host_time)

    def _rang(self, host_time: float) -> None:
        self._timer = None
        if self._driver is not None:
            self._driver.timer_rang(host_time)

    def note(self, record: Record) -> None:
        """Write a fact about this node, and count it if somebody may ask."""
        kind = type(record)
        if kind is Published or kind is Delivered:  # by far the most, and nobody acts on them
            if self.trace is not None:
                # How long a message waited is counted up to when the machine was asked, and not up to when we get to
                # its record, which may be the last of a long batch: both must stand for the same moment.
                at = self._told if kind is Published else self._clock_offset + time.monotonic()
                self.trace.write(at, self.name, record)
            return
        if type(record) is Dropped:
            self.drops[record.peer, record.place, record.cause] += 1
        elif type(record) is InputRefused:
            self.refusals += 1
        lasting = kind in LASTING
        if self.trace is not None or lasting:
            at = self._clock_offset + time.monotonic()
            if lasting:
                self.standing.saw(at, record)
            if self.trace is not None:
                self.trace.write(at, self.name, record)
        self.on_record(record)

    def trace_also(self, other: Trace | None, one_in: int = 1) -> None:
        """Write all records there too from now on; None: no longer. Of messages it wants those of one in so many."""
        if self.trace is None:  # what links carried before is not for this trace
            self._counted = {link: (port.packets_sent, port.bytes_sent) for link, port in self.ports.items()}
        own = self._own_trace
        self.trace = own if other is None else other if own is None else _Both(own, other)
        self.traced.on = self.trace is not None
        self.traced.one_in = one_in if own is None else 1

    def connection_lost(self, peer: str, messages: int) -> None:
        """A connection was lost with so many messages that are not known to have arrived; which, nobody knows."""
        if messages:
            self.drops[peer, "connection", LOST_WITH_CONNECTION] += messages
            self.note(Counted(LOST_WITH_CONNECTION, peer, messages))

    def forget_peer(self, peer: str) -> None:
        """A peer has gone for good: what was dropped on the way to it is counted with all others that have."""
        for key in [key for key in self.drops if key[0] == peer]:
            self.drops[GONE, key[1], key[2]] += self.drops.pop(key)

    # Writing.

    def gathered(self, port: LivePort) -> None:
        """A port that had nothing to write has something now."""
        self._dirty.append(port)
        if not self._flush_soon:
            self._flush_soon = True
            self._loop.call_soon(self._flush_turn)

    def flush(self) -> None:
        """Let all ports write, and what their egress releases by that, until nothing waits or no socket takes more.

        A broker that reads a long batch and writes one room's worth for it would fall behind and drop the rest.
        """
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for port in dirty:
                port.flush()
        self._gathered = 0

    def _flush_turn(self) -> None:
        self._flush_soon = False
        self.flush()

    # Counting.

    def count(self) -> None:
        """Record what each link has carried since the last time; called once a second while there is a trace."""
        for link, port in self.ports.items():
            self._count_port(link, port)

    def _count_port(self, link: Link, port: LivePort) -> None:
        packets_before, bytes_before = self._counted.get(link, (0, 0))
        if self.trace is not None and port.packets_sent > packets_before:
            self._counted[link] = (port.packets_sent, port.bytes_sent)
            self.note(Counted("link packets", port.peer, port.packets_sent - packets_before))
            self.note(Counted("link bytes", port.peer, port.bytes_sent - bytes_before))


class _Both:
    """Two traces that get the same."""

    def __init__(self, *traces: Trace) -> None:
        self._traces = traces

    def write(self, time: float, node: str, record: Record) -> None:
        for trace in self._traces:
            trace.write(time, node, record)

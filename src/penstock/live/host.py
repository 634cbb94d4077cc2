"""A node in real time: one machine on an event loop, its clock, its timer, and its ports.

The host gives the machine one input at a time, applies the effects in order, asks for the deadline and arms one timer.
Packets are not written one by one: a port gathers what the machine sends on its link, and all ports with something to
write do so once per turn of the loop, or as soon as `EAGER_PACKETS` wait, so that a long batch flows through instead
of piling up. Batches come in the same way: a frame is one call of `receive`.

`now` is wall-clock time at the start plus monotonic time since: it never jumps, and traces of several processes on one
machine can be compared.

The host also counts: drops by peer, place and cause, input that was refused, and once a second what each link carried.
With a trace, every fact goes there too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.kernel.machine import Deliver, Done, Effect, Hold, Lane, Link, Outcome, Packet, Release, Send
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
)
from penstock.overlay.egress import dropped
from penstock.overlay.node import Node

GONE = "(clients that left)"
EAGER_PACKETS = 128  # effects since the ports last wrote: write now instead of at the end of the turn


CLOCK_OFFSET = time.time() - time.monotonic()  # wall clock when this process began, and monotonic since


class LivePort(Protocol):
    """One end of a link: where packets for it are gathered and written."""

    link: Link
    peer: str
    packets_sent: int
    bytes_sent: int

    def send(self, packet: Packet, lane: Lane) -> None: ...

    def flush(self) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> list[tuple[Packet, Lane]]: ...


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
        self._loop = asyncio.get_running_loop()
        # One offset for the whole process, so that its nodes agree; and not the loop's clock, which uvloop rounds to
        # milliseconds.
        self._clock_offset = CLOCK_OFFSET
        self._machine: Node | None = None
        self._dirty: list[LivePort] = []
        self._gathered = 0  # effects since the ports last wrote
        self._flush_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # kept here: for a time that has come uvloop gives a handle that does not know its own
        self._armed_for: float | None = None
        self._counted: dict[Link, tuple[int, int]] = {}

    # Life.

    def start(self, machine: Node) -> None:
        """Begin; links come up afterwards."""
        self._machine = machine
        self.note(NodeStarted(self.role, self.incarnation))

    def stop(self, cause: str) -> None:
        """End. Whatever waits is lost, and said to be."""
        for link in list(self.ports):
            self.link_down(link, cause)
        self.count()
        self.note(NodeStopped(cause))
        self._machine = None
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> float:
        """The node's own time."""
        return self._clock_offset + time.monotonic()

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
        self.apply(self._machine.link_changed(link, up=False, now=self.now()))

    def receive(self, link: Link, packets: Sequence[Packet]) -> None:
        """A batch has come in."""
        if self._machine is not None:
            self.apply(self._machine.receive(packets, sender=link, now=self.now()))
            if self._gathered >= EAGER_PACKETS:
                self.flush()

    def receive_after(self, delay: float, link: Link, packets: Sequence[Packet]) -> None:
        """A batch has come in over a link that is meant to be longer than it is.

        What is still on its way when the link fails arrives at a machine that no longer knows the sender, which drops
        it and says so.
        """
        if delay > 0.0:
            self._loop.call_later(delay, self.receive, link, packets)
        else:
            self.receive(link, packets)

    def link_ready(self, link: Link, room_bytes: int) -> None:
        """A port can take more."""
        if self._machine is not None:
            effects = self._machine.link_ready(link, room_bytes=room_bytes, now=self.now())
            if effects:
                self.apply(effects)

    def apply(self, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for, in order, then see when it wants to be woken."""
        ports, deliver, traced = self.ports, self.on_deliver, self.trace is not None
        for effect in effects:
            if type(effect) is Send:
                for link in effect.to:
                    ports[link].send(effect.packet, effect.lane)
            elif type(effect) is Deliver:
                if traced:
                    self._note_delivered(effect)
                deliver(effect)
            elif type(effect) is Done:
                self.on_done(effect.ticket, effect.outcome)
            elif isinstance(effect, Record):
                self.note(effect)
            elif isinstance(effect, Hold):
                ports[effect.source].hold()
            else:
                assert isinstance(effect, Release), f"{self.name}: no service asks a live host for {effect} yet"
                ports[effect.source].release()
        self._gathered += len(effects)
        self._arm()

    def note(self, record: Record) -> None:
        """Write a fact about this node, and count it if somebody may ask."""
        if type(record) is Published and self.trace is None:
            return
        if type(record) is Dropped:
            self.drops[record.peer, record.place, record.cause] += 1
        elif type(record) is InputRefused:
            self.refusals += 1
        if self.trace is not None:
            self.trace.write(self.now(), self.name, record)
        self.on_record(record)

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

    # Time.

    def _arm(self) -> None:
        assert self._machine is not None
        deadline = self._machine.deadline()
        if deadline is None or deadline == self._armed_for:
            return
        self._armed_for = deadline
        at = deadline - self._clock_offset
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._wake)
            self._timer_at = at

    def _wake(self) -> None:
        self._timer = None
        self._armed_for = None
        if self._machine is None:
            return
        deadline, now = self._machine.deadline(), self.now()
        if deadline is not None and deadline <= now + 1e-6:  # converting there and back may lose the last bits
            self.apply(self._machine.wake(now=max(now, deadline)))
        else:
            self._arm()

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

    def _note_delivered(self, effect: Deliver) -> None:
        identity = effect.message.identity
        self.note(Delivered(effect.subscription, identity.publisher, identity.incarnation, identity.count))

"""What every host does with a machine: apply its effects in order, then see when it wants to be woken.

A host (virtual or real time) gives its machine one input and hands the effects to `apply`. What an effect means is the
host's business (`World`); that all are applied, in order, and that one timer is armed afterwards, is the same in both
worlds and stands here.

One timer: the earliest deadline. A deadline that moves to a later time leaves the timer as it is; when it rings too
early the machine is not woken, and the timer is armed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.kernel.link import Link
from penstock.kernel.machine import Deliver, Done, Effect, Machine, Outcome, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ask, Ticket
from penstock.kernel.trace import Record

ROUNDING = 1e-6  # seconds; converting between a node's clock and the host's may lose the last bits


class Port(Protocol):
    """One end of a link."""

    def send(self, packet: Packet, lane: Lane) -> None: ...


class World(Protocol):
    """What a host does for its machine."""

    @property
    def ports(self) -> Mapping[Link, Port]: ...

    @property
    def deliver(self) -> Callable[[Deliver], None]: ...

    def now(self) -> float:
        """The node's own time."""

    def answer(self, ticket: Ticket, outcome: Outcome) -> None: ...

    def ask(self, asked: Ask) -> None: ...

    def note(self, record: Record) -> None: ...

    def host_time(self, node_time: float) -> float:
        """The host's own time at this moment of the node's clock."""

    def call_at(self, host_time: float) -> None:
        """Let `Driver.timer_rang` be called then, with this very time."""


class Driver:
    """Drives one life of one machine."""

    def __init__(self, machine: Machine, world: World) -> None:
        self._machine = machine
        self._world = world
        self._armed_at: float | None = None  # when the host will call us, in its own time
        self._armed_for: float | None = None  # the deadline, in the node's time, that was last seen to

    def apply(self, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for, in order, then arm the timer."""
        world = self._world
        ports, deliver = world.ports, world.deliver  # most effects are packets and deliveries
        for effect in effects:
            if type(effect) is Send:
                for link in effect.to:
                    ports[link].send(effect.packet, effect.lane)
            elif type(effect) is Deliver:
                deliver(effect)
            elif type(effect) is Done:
                world.answer(effect.ticket, effect.outcome)
            elif type(effect) is Ask:
                world.ask(effect)
            else:
                assert isinstance(effect, Record), f"the node should have carried out {effect} itself"
                world.note(effect)
        self.arm()

    def arm(self) -> None:
        """Make sure that we are called when the machine wants to be woken. Most inputs change nothing about that."""
        deadline = self._machine.deadline()
        if deadline is None or deadline == self._armed_for:
            return
        self._armed_for = deadline
        at = self._world.host_time(deadline)
        if self._armed_at is None or at < self._armed_at:
            self._armed_at = at
            self._world.call_at(at)

    def timer_rang(self, at: float) -> None:
        """The time asked for has come; a call that a later `call_at` has replaced means nothing."""
        if at != self._armed_at:
            return
        self._armed_at = self._armed_for = None
        deadline, now = self._machine.deadline(), self._world.now()
        if deadline is not None and deadline <= now + ROUNDING:
            self.apply(self._machine.wake(now=max(now, deadline)))
        else:
            self.arm()

    def clock_changed(self) -> None:
        """The node's clock was set: the timer stands for another moment now."""
        self._armed_at = self._armed_for = None
        self.arm()

"""The driver: effects in order, and one timer that rings for the earliest deadline and for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.driver import ROUNDING, Driver
from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Hold, Outcome, Refused, Release, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ask, Get, StorageResult, Ticket
from penstock.kernel.trace import NodeStopped, Record
from penstock.overlay.packets import Answer
from penstock.testing import a_message

OFFSET = 100.0  # the node's clock is so far ahead of the host's


class Clockwork:
    """A machine that wants to be woken, and says something when it is."""

    def __init__(self) -> None:
        self.wants: float | None = None
        self.then: list[float] = []  # what it wants after each waking
        self.woken: list[float] = []

    def deadline(self) -> float | None:
        return self.wants

    def wake(self, *, now: float) -> list[Effect]:
        self.woken.append(now)
        self.wants = self.then.pop(0) if self.then else None
        return [NodeStopped("woken")]

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        return []

    def link_ready(self, link: Link, *, room_bytes: int, now: float) -> list[Effect]:
        return []

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        return []

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        return []


class Wire:
    """One end of a link."""

    def __init__(self, did: list[Any], link: Link) -> None:
        self.did = did
        self.link = link

    def send(self, packet: Packet, lane: Lane) -> None:
        self.did.append(Send((self.link,), packet, lane))


class World:
    """A host that writes down what it is asked, and lets its driver's timer ring when time passes."""

    def __init__(self) -> None:
        self.time = 0.0
        self.offset = OFFSET
        self.did: list[Any] = []
        self.ports = {0: Wire(self.did, 0), 1: Wire(self.did, 1)}
        self.calls: list[float] = []  # all times that were ever asked for
        self.pending: list[float] = []
        self.machine = Clockwork()
        self.driver = Driver(self.machine, self)

    def now(self) -> float:
        return self.time + self.offset

    def deliver(self, effect: Deliver) -> None:
        self.did.append(effect)

    def answer(self, ticket: Ticket, outcome: Outcome) -> None:
        self.did.append((ticket, outcome))

    def ask(self, question: Ask) -> None:
        self.did.append(question)

    def note(self, record: Record) -> None:
        self.did.append(record)

    def host_time(self, node_time: float) -> float:
        return max(self.time, node_time - self.offset)

    def call_at(self, host_time: float) -> None:
        self.calls.append(host_time)
        self.pending.append(host_time)

    def wants(self, local: float | None) -> None:
        """An input that changed nothing but the deadline, given in the host's time."""
        self.machine.wants = None if local is None else local + OFFSET
        self.driver.apply([])

    def pass_time(self, until: float) -> None:
        """Every call that was ever asked for is made, also those that mean nothing any more."""
        while self.pending and min(self.pending) <= until:
            at = min(self.pending)
            self.pending.remove(at)
            self.time = max(self.time, at)
            self.driver.timer_rang(at)
        self.time = until

    def woken_at(self) -> list[float]:
        return [woken - OFFSET for woken in self.machine.woken]


def test_effects_are_applied_in_order_each_where_it_belongs() -> None:
    world = World()
    send, deliver = Send((0,), Answer(1), Lane.CONTROL), Deliver(1, a_message())
    ask, record = Ask(1, "part", Get("x")), NodeStopped("test")
    world.driver.apply([record, send, Done(1, Accepted()), deliver, ask, Done(2, Refused("no")), send])
    assert world.did == [record, send, (1, Accepted()), deliver, ask, (2, Refused("no")), send]


@pytest.mark.parametrize("effect", [Hold(0, Lane.PRICED), Release(0, Lane.PRICED)])
def test_what_the_node_should_have_carried_out_itself_is_a_broken_invariant(effect: Effect) -> None:
    with pytest.raises(AssertionError, match="the node should have carried out"):
        World().driver.apply([effect])


def test_without_a_deadline_no_timer_is_armed() -> None:
    world = World()
    world.driver.apply([])
    assert world.calls == []


def test_the_timer_is_armed_once_in_the_hosts_time_and_wakes_in_the_nodes() -> None:
    world = World()
    for _ in range(3):
        world.wants(5.0)
    assert world.calls == [5.0]
    world.pass_time(9.0)
    assert world.machine.woken == [105.0]
    assert world.did == [NodeStopped("woken")]
    assert world.calls == [5.0]


def test_an_earlier_deadline_arms_the_timer_again_and_the_old_ring_is_ignored() -> None:
    world = World()
    world.wants(5.0)
    world.wants(2.0)
    assert world.calls == [5.0, 2.0]
    world.pass_time(9.0)
    assert world.woken_at() == [2.0]


def test_a_deadline_that_moves_to_a_later_time_arms_nothing_until_the_timer_rings_too_early() -> None:
    world = World()
    world.wants(2.0)
    for later in (4.0, 6.0, 8.0):
        world.wants(later)
    assert world.calls == [2.0]
    world.pass_time(7.0)
    assert world.calls == [2.0, 8.0]
    assert world.woken_at() == []
    world.pass_time(8.0)
    assert world.woken_at() == [8.0]


def test_a_deadline_that_is_cancelled_wakes_nobody_and_one_set_later_does() -> None:
    world = World()
    world.wants(2.0)
    world.wants(None)
    world.pass_time(3.0)
    assert world.woken_at() == []
    world.wants(4.0)
    world.pass_time(5.0)
    assert world.woken_at() == [4.0]


def test_a_deadline_that_is_cancelled_and_set_again_to_the_same_time_is_met() -> None:
    world = World()
    world.wants(2.0)
    world.wants(None)
    world.wants(2.0)
    world.pass_time(3.0)
    assert world.woken_at() == [2.0]


def test_a_machine_that_wants_to_be_woken_again_is() -> None:
    world = World()
    world.machine.then = [OFFSET + 2.0, OFFSET + 2.0, OFFSET + 7.0]
    world.wants(1.0)
    world.pass_time(9.0)
    assert world.woken_at() == [1.0, 2.0, 2.0, 7.0]


def test_a_ring_that_comes_a_hair_early_counts_and_the_machine_sees_its_deadline() -> None:
    world = World()
    world.wants(5.0)
    world.time = 5.0 - ROUNDING / 2
    world.driver.timer_rang(5.0)
    assert world.machine.woken == [105.0]


def test_a_ring_that_comes_late_says_how_late_it_is() -> None:
    world = World()
    world.wants(5.0)
    world.time = 6.5
    world.driver.timer_rang(5.0)
    assert world.machine.woken == [106.5]


def test_a_ring_that_nobody_asked_for_means_nothing() -> None:
    world = World()
    world.machine.wants = OFFSET - 50.0
    world.driver.timer_rang(0.0)
    assert world.machine.woken == []


@pytest.mark.parametrize(("step", "at"), [(3.0, 2.0), (-3.0, 8.0)])
def test_when_the_clock_is_set_the_timer_stands_for_another_moment(step: float, at: float) -> None:
    world = World()
    world.wants(5.0)
    world.offset += step
    world.driver.clock_changed()
    assert world.calls == [5.0, at]
    world.pass_time(20.0)
    assert world.machine.woken == [105.0]


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 12))), max_size=25)


@given(CHANGES)
def test_whatever_the_deadline_does_it_is_met_on_time_and_never_early(changes: list[tuple[int, int | None]]) -> None:
    world, expected, wanted = World(), list[float](), float("inf")
    for pause, deadline in changes:
        until = world.time + pause
        if wanted <= until:
            expected.append(wanted)
            wanted = float("inf")
        world.pass_time(until)
        wanted = float("inf") if deadline is None else max(world.time, deadline)
        world.wants(None if wanted == float("inf") else wanted)
    if wanted != float("inf"):
        expected.append(wanted)
    world.pass_time(100.0)
    assert world.woken_at() == expected

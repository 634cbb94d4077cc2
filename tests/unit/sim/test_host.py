"""The simulated host: clocks and deadlines, workers and overtaking, crashes, and room on limited links."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.message import Message
from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Outcome, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import QueueConfig
from penstock.kernel.timers import Key, ServiceTimers
from penstock.kernel.trace import Delivered, Dropped, NodeStarted, NodeStopped, Record
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Hello, Publish
from penstock.sim.engine import Engine
from penstock.sim.host import Clock, Host, SimulatedPort
from penstock.sim.pipes import Pipe
from penstock.streams.packets import Knowledge, Nack
from penstock.testing import a_message


class Watch:
    """An observer that writes everything down."""

    watches_packets = True

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.records: list[tuple[float, str, Record]] = []
        self.deliveries: list[tuple[str, int, Message]] = []
        self.handled_at: list[tuple[float, str, Packet]] = []
        self.packets = 0

    def record(self, node: str, record: Record) -> None:
        self.records.append((self.engine.now, node, record))

    def delivered(self, node: str, subscription: int, message: Message) -> None:
        self.deliveries.append((node, subscription, message))

    def sent(self, packet: Packet, *, node: str, peer: str) -> None:
        self.packets += 1

    def handled(self, node: str, packet: Packet) -> None:
        self.handled_at.append((self.engine.now, node, packet))

    def drops(self) -> list[tuple[float, str, str, int]]:
        return [(time, r.place, r.cause, r.count) for time, _, r in self.records if isinstance(r, Dropped)]


def a_knowledge(messages: int) -> Knowledge:
    return Knowledge("orders/0", 1, 1, 1, 1, messages, tuple((n, a_message(n)) for n in range(1, messages + 1)))


class Beat(IntEnum):
    TICK = 0


class Part:
    """A machine that beats at given local times and remembers when it was woken."""

    packet_kinds: tuple[type[Packet], ...] = (Publish, Hello, Knowledge, Nack)

    def __init__(self, timers: ServiceTimers, beats: Sequence[float] = ()) -> None:
        self.woken: list[float] = []
        self.received: list[int] = []
        self.answers: list[Effect] = []
        for number, at in enumerate(beats):
            timers.set(Beat.TICK, at, number)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        for packet in packets:
            message = packet.carried()
            self.received.append(message.identity.count if message is not None else 0)
        return self.answers

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        return []

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        self.woken.append(now)
        return []


class Bench:
    """A host with one port; what it sends is collected at the other end."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        beats: Sequence[float] = (),
        kind: LinkKind = LinkKind.RELIABLE,
        rate_bits_per_s: float | None = None,
        **spec: Any,
    ) -> None:
        self.engine = Engine()
        self.watch = Watch(self.engine)
        self.parts: list[Part] = []
        self.came_out: list[tuple[float, int]] = []

        def make(incarnation: int) -> Node:
            node = Node({0: LinkInfo("peer", kind)}, QueueConfig())
            self.parts.append(Part(ServiceTimers("part", node.timers), beats))
            node.install("part", self.parts[-1])
            return node

        self.host = Host(self.engine, "n", "broker", make, self.watch, clock=clock or Clock(), random=Random(1), **spec)
        self.port = self.host.ports[0] = SimulatedPort(self.host, 0, "peer", kind)
        self.pipe = Pipe(
            self.engine,
            Random(2),
            lambda item: self.came_out.append((self.engine.now, item[0].message.identity.count)),
            self.port.lost,
            rate_bits_per_s=rate_bits_per_s,
            delay=0.0,
            jitter=0.0,
            loss=0.0,
            queue_packets=1000,
            reliable=kind is LinkKind.RELIABLE,
        )
        self.port.join(self.pipe, limited=rate_bits_per_s is not None)
        self.host.start()
        self.host.link_changed(0, up=True)
        self.host.apply([])

    @property
    def part(self) -> Part:
        return self.parts[-1]

    def arrive_at(self, time: float, number: int, lane: Lane = Lane.BEST_EFFORT) -> None:
        packet = Publish(a_message(number)) if lane is Lane.BEST_EFFORT else Hello(number, 1, "s", 0)
        self.engine.at(time, lambda _: self.port.arrive((packet, lane)), None)

    def send(self, *numbers: int) -> None:
        node = cast(Node, self.host.machine)
        sends = [Send((0,), Publish(a_message(number, body=bytes(900))), Lane.BEST_EFFORT) for number in numbers]
        self.host.apply(node.egress.route(sends))

    def at(self, time: float, action: Any) -> None:
        self.engine.at(time, lambda _: action(), None)


# Clocks.


@given(st.floats(-1e6, 1e6), st.floats(-0.1, 0.1), st.floats(0.0, 1e5))
def test_local_and_true_time_are_inverse_to_a_hair(offset: float, drift: float, time: float) -> None:
    clock = Clock(offset, drift)
    assert clock.true(clock.local(time)) == pytest.approx(time, abs=1e-6)


def test_the_machine_lives_by_its_own_clock() -> None:
    bench = Bench(clock=Clock(offset=100.0, drift=0.01), beats=[100.5, 101.0])
    bench.engine.run(5.0)
    assert bench.part.woken == pytest.approx([100.5, 101.0])
    assert bench.host.now() == pytest.approx(105.05)


@given(st.floats(-1e9, 1e9), st.floats(-0.1, 0.1), st.lists(st.floats(0.0, 5.0), min_size=1, max_size=8))
def test_every_deadline_is_met_once_not_early_and_on_time(offset: float, drift: float, beats: list[float]) -> None:
    clock = Clock(offset, drift)
    bench = Bench(clock=clock, beats=[offset + beat for beat in beats])
    bench.engine.run(10.0)
    assert len(bench.part.woken) == len(beats)
    for due, woken in zip(sorted(beats), bench.part.woken, strict=True):
        assert offset + due <= woken <= offset + due + 1e-5


def test_a_deadline_in_the_past_is_met_at_once() -> None:
    bench = Bench(clock=Clock(offset=50.0), beats=[10.0])
    bench.engine.run(0.0)
    assert bench.part.woken == [50.0]


def test_a_clock_set_forward_wakes_at_once_what_is_due_by_it() -> None:
    bench = Bench(beats=[10.0, 20.0])
    bench.at(1.0, lambda: bench.host.step_clock(9.5))
    bench.engine.run(1.6)
    assert bench.part.woken == [10.5]
    bench.engine.run(11.0)
    assert len(bench.part.woken) == 2


def test_a_clock_set_back_makes_deadlines_wait() -> None:
    bench = Bench(beats=[2.0])
    bench.at(1.0, lambda: bench.host.step_clock(-3.0))
    bench.engine.run(4.9)
    assert bench.part.woken == []
    bench.engine.run(5.0)
    assert bench.part.woken == [2.0]


def test_a_deadline_that_is_brought_forward_is_met() -> None:
    bench = Bench(beats=[10.0])
    node = cast(Node, bench.host.machine)
    bench.at(1.0, lambda: (ServiceTimers("part", node.timers).set(Beat.TICK, 2.0, 0), bench.host.apply([])))
    bench.engine.run(3.0)
    assert bench.part.woken == [2.0]


# Workers.


def test_without_service_time_packets_are_handled_as_they_come() -> None:
    bench = Bench(workers=1)
    for number in (1, 2, 3):
        bench.arrive_at(1.0, number)
    bench.engine.run(1.0)
    assert bench.part.received == [1, 2, 3]


def test_one_worker_keeps_the_order_and_takes_its_time() -> None:
    bench = Bench(workers=1, service_mean=0.5)
    for number in range(1, 101):
        bench.arrive_at(0.0, number)
    bench.engine.run(1000.0)
    assert bench.part.received == list(range(1, 101))
    assert bench.watch.handled_at[-1][0] == pytest.approx(50.0, rel=0.3)


def test_several_workers_let_messages_overtake_each_other() -> None:
    bench = Bench(workers=4, service_mean=0.5)
    for number in range(1, 101):
        bench.arrive_at(0.0, number)
    bench.engine.run(1000.0)
    assert bench.part.received != list(range(1, 101))
    assert sorted(bench.part.received) == list(range(1, 101))
    assert bench.watch.handled_at[-1][0] == pytest.approx(12.5, rel=0.4)


def test_a_share_of_the_messages_takes_longer() -> None:
    bench = Bench(workers=1, slow_share=0.2, slow_mean=0.5)
    for number in range(1, 1001):
        bench.arrive_at(0.0, number)
    bench.engine.run(1000.0)
    assert bench.watch.handled_at[-1][0] == pytest.approx(100.0, rel=0.3)
    assert sum(time == 0.0 for time, _, _ in bench.watch.handled_at) < 30, "one of the first few is slow"


def test_control_does_not_wait_for_a_worker() -> None:
    bench = Bench(workers=1, service_mean=5.0)
    bench.arrive_at(0.0, 1)
    bench.arrive_at(0.0, 7, Lane.CONTROL)
    bench.engine.run(0.0)
    assert bench.part.received == [0]


def test_a_packet_takes_the_time_of_all_its_messages() -> None:
    bench = Bench(workers=1, service_mean=0.5)
    bench.at(0.0, lambda: bench.port.arrive((a_knowledge(100), Lane.STREAM)))
    bench.engine.run(1000.0)
    assert bench.watch.handled_at[-1][0] == pytest.approx(50.0, rel=0.3)


def test_a_nack_needs_a_worker_and_stands_in_line_with_data() -> None:
    bench = Bench(workers=1, service_mean=1.0)
    nack = Nack("orders/0", 1, 1, ((1, 2),))
    for packet, lane in ((a_knowledge(1), Lane.STREAM), (nack, Lane.CONTROL), (a_knowledge(1), Lane.STREAM)):
        bench.at(0.0, partial(bench.port.arrive, (packet, lane)))
    bench.engine.run(0.0)
    assert not bench.watch.handled_at
    bench.engine.run(100.0)
    assert [packet is nack for _, _, packet in bench.watch.handled_at] == [False, True, False]


def test_what_is_sent_takes_time_before_the_next_packet_is_served() -> None:
    bench = Bench(workers=1, send_cost=2.0)
    bench.at(0.0, lambda: bench.host.note_sent(a_knowledge(3), "b1"))
    bench.arrive_at(1.0, 1)
    bench.arrive_at(20.0, 2)
    bench.engine.run(100.0)
    assert [time for time, _, _ in bench.watch.handled_at] == [6.0, 20.0]


def test_a_full_ingress_drops_and_says_so() -> None:
    bench = Bench(workers=1, service_mean=1.0, ingress_packets=2)
    for number in range(1, 6):
        bench.arrive_at(0.0, number)
    bench.engine.run(100.0)
    assert bench.watch.drops() == [(0.0, "ingress", "queue full", 4), (0.0, "ingress", "queue full", 5)]
    assert bench.part.received == [1, 2, 3]


# Life.


def test_a_life_begins_and_ends_with_a_record() -> None:
    bench = Bench()
    bench.host.stop("crash")
    bench.host.start()
    assert [record for _, _, record in bench.watch.records] == [
        NodeStarted("broker", 1),
        NodeStopped("crash"),
        NodeStarted("broker", 2),
    ]


def test_a_crash_records_everything_it_takes_down() -> None:
    bench = Bench(workers=1, service_mean=1.0, rate_bits_per_s=8.0)
    for number in (1, 2, 3):
        bench.arrive_at(0.0, number)  # one in service, two waiting
    bench.at(0.0, lambda: bench.send(*range(50, 80)))  # more than the socket takes
    bench.at(0.01, lambda: bench.host.stop("crash"))
    bench.engine.run(100.0)
    drops = bench.watch.drops()
    assert [count for _, place, _, count in drops if place == "ingress"] == [2, 3, 1]
    egress = [count for _, place, cause, count in drops if (place, cause) == ("egress", "link down")]
    assert egress == list(range(max(egress) - len(egress) + 1, 80))
    assert len(egress) > 5
    assert bench.part.received == []


def test_a_node_that_is_down_drops_what_arrives() -> None:
    bench = Bench()
    bench.host.stop("crash")
    bench.arrive_at(1.0, 4)
    bench.engine.run(1.0)
    assert bench.watch.drops() == [(1.0, "ingress", "node down", 4)]


def test_timers_and_work_of_an_old_life_do_not_reach_the_new_one() -> None:
    bench = Bench(workers=1, service_mean=1.0, beats=[5.0])
    bench.arrive_at(0.0, 1)
    bench.at(0.001, lambda: (bench.host.stop("crash"), bench.host.start()))
    bench.engine.run(4.0)
    assert bench.part.received == []
    assert [cause for _, _, cause, _ in bench.watch.drops()] == ["crash"]
    bench.arrive_at(4.0, 2)
    bench.engine.run(50.0)
    assert bench.part.received == [2]
    assert bench.parts[0].woken == []


def test_all_workers_are_free_in_a_new_life() -> None:
    bench = Bench(workers=2, service_mean=1.0)
    for number in (1, 2):
        bench.arrive_at(0.0, number)
    bench.at(0.001, lambda: (bench.host.stop("crash"), bench.host.start()))
    for number in (3, 4):
        bench.arrive_at(0.002, number)
    bench.engine.run(0.002)
    assert bench.host._free_workers == 0
    bench.engine.run(100.0)
    assert bench.host._free_workers == 2


# Effects.


def test_deliveries_answers_and_records_go_where_they_belong() -> None:
    bench = Bench()
    answered: list[tuple[int, Outcome]] = []
    bench.host.answered = lambda ticket, outcome: answered.append((ticket, outcome))
    bench.host.apply([Deliver(3, a_message(9)), Done(5, Accepted()), NodeStopped("test")])
    assert bench.watch.deliveries == [("n", 3, a_message(9))]
    assert answered == [(5, Accepted())]
    assert [record for *_, record in bench.watch.records[1:]] == [Delivered(3, "p", 1, 9), NodeStopped("test")]


def test_an_effect_that_nobody_can_carry_out_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="the node should have carried out"):
        Bench().host.apply([cast(Effect, Answer(1))])


# Room.


@pytest.mark.parametrize("kind", [LinkKind.SHAPED, LinkKind.RELIABLE])
def test_a_limited_link_is_fed_at_its_rate_until_nothing_waits(kind: LinkKind) -> None:
    bench = Bench(kind=kind, rate_bits_per_s=8e6)
    bench.send(*range(1, 101))
    bench.engine.run(100.0)
    assert [count for _, count in bench.came_out] == list(range(1, 101))
    total = Publish(a_message(1, body=bytes(900))).size_bytes() * 100
    assert bench.came_out[-1][0] == pytest.approx(total / 1e6, rel=0.01)


def test_a_shaped_link_has_at_most_one_packet_on_the_wire() -> None:
    bench = Bench(kind=LinkKind.SHAPED, rate_bits_per_s=8e6)
    bench.send(*range(1, 11))
    node = cast(Node, bench.host.machine)
    assert node.egress.waiting_packets(0) == 9


def test_a_reliable_link_keeps_little_in_the_socket() -> None:
    bench = Bench(kind=LinkKind.RELIABLE, rate_bits_per_s=8e6)
    bench.send(*range(1, 101))
    node = cast(Node, bench.host.machine)
    assert 80 <= node.egress.waiting_packets(0) <= 85


@pytest.mark.parametrize("kind", list(LinkKind))
def test_an_unlimited_link_takes_everything_at_once(kind: LinkKind) -> None:
    bench = Bench(kind=kind)
    bench.send(*range(1, 101))
    bench.engine.run(0.0)
    assert len(bench.came_out) == 100


def test_a_connection_that_is_made_anew_does_not_wait_for_the_old_ones_socket() -> None:
    bench = Bench(kind=LinkKind.RELIABLE, rate_bits_per_s=8e3)  # a full socket takes sixteen seconds
    bench.send(*range(1, 31))

    def reconnect() -> None:
        bench.host.link_changed(0, up=False)
        bench.pipe.fail()
        bench.pipe.restore()
        bench.host.link_changed(0, up=True)
        bench.send(101, 102, 103)

    bench.at(1.5, reconnect)
    bench.engine.run(1.5)
    bench.at(1.6, lambda: bench.send(*range(104, 131)))
    bench.engine.run(300.0)
    times = [time for time, count in bench.came_out if count > 100]
    assert [count for _, count in bench.came_out if count > 100] == list(range(101, 131))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert max(gaps) < 1.1, "the wire stood idle while packets waited"

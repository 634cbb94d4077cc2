"""Credit: a lane of a link is held without stopping anything else on it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.message import Message
from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.kernel.machine import Effect, Hold, Release, Send
from penstock.kernel.packet import DATA_LANES, Lane, Packet
from penstock.kernel.queue import LaneBounds, Overflow, QueueConfig
from penstock.kernel.trace import Dropped, InputRefused
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.client import Client
from penstock.overlay.credit import Credit, CreditGrants
from penstock.overlay.egress import Egress
from penstock.overlay.node import Node
from penstock.overlay.packets import Delivery, Publication, Publish, Subscribe
from penstock.testing import AMPLE_BYTES, Flight, Pump, a_message, attach, broker_network, publish

HELD = Lane.PRICED
BODY = bytes(10_000)
SIZE = Publish(a_message(100, body=BODY), HELD).size_bytes()
WINDOW_BYTES = 1 << 20
WINDOW = WINDOW_BYTES // SIZE + 1  # messages of this size that a window lets through, with the one that passes it
DROPPING = QueueConfig()


def holding(*lanes: Lane, **bounds: Any) -> QueueConfig:
    """These lanes hold."""
    held = dict.fromkeys(lanes or (HELD,), LaneBounds(**{"overflow": Overflow.HOLD, **bounds}))
    return QueueConfig(lanes={**QueueConfig().lanes, **held})


HOLDING = holding(bytes_max=WINDOW_BYTES)
ROOMY = holding(bytes_max=1 << 40)


class Part:
    """A machine that keeps what comes, and passes it on over another link if there is one."""

    packet_kinds: tuple[type[Packet], ...] = (Publish, Subscribe)

    def __init__(self, onwards: Link | None = None) -> None:
        self.onwards = onwards
        self.came: list[Packet] = []

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self.came += packets
        if self.onwards is None:
            return []
        return [Send((self.onwards,), packet, packet.lane) for packet in packets if isinstance(packet, Publish)]

    def counts(self, lane: Lane = HELD) -> list[int]:
        return [packet.message.identity.count for packet in self.came if in_lane(packet, lane)]  # type: ignore[attr-defined]


def in_lane(packet: Packet, lane: Lane) -> bool:
    return isinstance(packet, Publish) and packet.lane is lane


class Line:
    """Nodes n0, n1, ... in a line; what n0 sends is passed on to the last."""

    def __init__(
        self,
        *queues: QueueConfig,
        kind: LinkKind = LinkKind.RELIABLE,
        passes_on: bool = True,
        queue_packets: int = 1_000,
    ) -> None:
        self.pump = Pump(steps_max=10**6)
        self.nodes: list[Node] = []
        self.parts: list[Part] = []
        self.credits: list[Flight] = []
        self.seen: list[Flight] = []
        self.pump.loses = self._watch
        last = len(queues) - 1
        for number, config in enumerate(queues):
            links = {link: LinkInfo(f"peer {link}", kind, queue_packets=queue_packets) for link in range(2)}
            node = Node(links, config)
            part = Part(1 if 0 < number < last else None)
            node.install("part", part)
            self.nodes.append(node)
            self.parts.append(part)
            self.pump.add(f"n{number}", node)
        for number in range(last):
            self.pump.connect(f"n{number}", f"n{number + 1}")
        self.pump.run()

    def _watch(self, flight: Flight) -> bool:
        self.seen.append(flight)
        if isinstance(flight.packet, Credit):
            self.credits.append(flight)
        return False

    def send(self, *counts: int, lane: Lane = HELD, by: int = 0, link: Link = 0, body: bytes = BODY) -> None:
        """Messages leave a node, or wait there; nothing is handed over yet."""
        packets = [Publish(a_message(count, body=body), lane) for count in counts]
        self.apply(by, self.nodes[by].route([Send((link,), packet, lane) for packet in packets]))

    def control(self, by: int = 0) -> None:
        self.apply(by, self.nodes[by].route([Send((0,), Subscribe(1, 1, "TRUE"), Lane.CONTROL)]))

    def hold(self, at: int, link: Link = 0, lane: Lane = HELD) -> None:
        self.apply(at, self.nodes[at].route([Hold(link, lane)]))

    def release(self, at: int, link: Link = 0, lane: Lane = HELD) -> None:
        self.apply(at, self.nodes[at].route([Release(link, lane)]))

    def room(self, at: int, link: Link, room_bytes: int) -> None:
        self.apply(at, self.nodes[at].link_ready(link, room_bytes=room_bytes, now=0.0))

    def apply(self, at: int, effects: Sequence[Effect]) -> None:
        self.pump.apply(f"n{at}", effects)

    def drops(self) -> list[Dropped]:
        return [record for _, record in self.pump.records if isinstance(record, Dropped)]

    def waiting(self, at: int, link: Link) -> int:
        return self.nodes[at].egress.waiting_packets(link)


# Holding a lane.


def test_a_held_lane_stops_after_a_window_while_control_and_other_lanes_go_on() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    line.send(*range(1, 201))
    line.send(*range(1, 101), lane=Lane.BEST_EFFORT)
    line.control()
    line.pump.run()
    assert line.parts[1].counts() == list(range(1, WINDOW + 1))
    assert line.parts[1].counts(Lane.BEST_EFFORT) == list(range(1, 101))
    assert Subscribe(1, 1, "TRUE") in line.parts[1].came
    assert line.waiting(0, 0) == 200 - WINDOW
    assert line.drops() == []


def test_release_lets_all_through_in_order_and_nothing_is_lost() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    line.send(*range(1, 201))
    line.pump.run()
    line.release(1)
    line.send(*range(201, 206))
    line.pump.run()
    assert line.parts[1].counts() == list(range(1, 206))
    assert line.waiting(0, 0) == 0
    assert line.drops() == []


def test_a_lane_may_be_held_and_released_again_and_again() -> None:
    line = Line(HOLDING, HOLDING)
    for turn in range(5):
        line.hold(1)
        line.hold(1)
        line.send(*range(150 * turn, 150 * turn + 150))
        line.pump.run()
        assert len(line.parts[1].came) <= 150 * turn + WINDOW
        line.release(1)
        line.release(1)
        line.pump.run()
    assert line.parts[1].counts() == list(range(750))


def test_holding_in_the_middle_of_a_flow_lets_at_most_a_window_more_come() -> None:
    line = Line(ROOMY, HOLDING)
    line.send(*range(1, 1001))
    while len(line.parts[1].came) < 200:
        line.pump.deliver()
    line.hold(1)
    line.pump.run()
    assert 200 <= len(line.parts[1].came) <= 200 + WINDOW
    line.release(1)
    line.pump.run()
    assert line.parts[1].counts() == list(range(1, 1001))


def test_one_link_is_held_and_the_other_is_not() -> None:
    pump = Pump(steps_max=10**6)
    nodes = {name: Node({}, HOLDING) for name in ("a", "b", "hub")}
    parts = {name: Part() for name in nodes}
    for name, node in nodes.items():
        node.install("part", parts[name])
        pump.add(name, node)
    pump.connect("a", "hub")
    pump.connect("b", "hub")
    pump.run()
    pump.apply("hub", nodes["hub"].route([Hold(pump.link("hub", "a"), HELD)]))
    for name in ("a", "b"):
        sends = [Send((0,), Publish(a_message(n, publisher=name, body=BODY), HELD), HELD) for n in range(200)]
        pump.apply(name, nodes[name].route(sends))
    pump.run()
    came = [packet.message.identity.publisher for packet in parts["hub"].came if isinstance(packet, Publish)]
    assert came.count("b") == 200
    assert came.count("a") == WINDOW


def test_lanes_are_held_one_by_one() -> None:
    both = holding(Lane.PRICED, Lane.STREAM, bytes_max=WINDOW_BYTES)
    line = Line(both, both)
    line.hold(1, lane=Lane.STREAM)
    line.send(*range(200), lane=Lane.PRICED)
    line.send(*range(200), lane=Lane.STREAM)
    line.pump.run()
    assert len(line.parts[1].counts(Lane.PRICED)) == 200
    assert len(line.parts[1].counts(Lane.STREAM)) == WINDOW


def test_both_directions_of_a_link_are_held_independently() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    line.send(*range(200), by=0)
    line.send(*range(200), by=1)
    line.pump.run()
    assert len(line.parts[0].counts()) == 200
    assert len(line.parts[1].counts()) == WINDOW
    line.hold(0)
    line.release(1)
    line.send(*range(200, 350), by=1)
    line.pump.run()
    assert line.parts[1].counts() == list(range(200))
    assert 200 <= len(line.parts[0].counts()) <= 200 + WINDOW
    line.release(0)
    line.pump.run()
    assert line.parts[0].counts() == list(range(350))


def test_a_lane_that_drops_cannot_be_held() -> None:
    line = Line(HOLDING, HOLDING)
    with pytest.raises(AssertionError, match="lane BEST_EFFORT drops when it is full"):
        line.hold(1, lane=Lane.BEST_EFFORT)


def test_messages_larger_than_a_window_come_through_one_by_one() -> None:
    line = Line(ROOMY, holding(bytes_max=100_000), ROOMY)
    line.send(1, 2, 3, body=bytes(300_000))
    line.pump.run()
    assert line.parts[2].counts() == [1, 2, 3]


# What cannot go on.


def test_a_full_queue_downstream_stops_upstream_by_credit_and_nothing_is_dropped() -> None:
    line = Line(ROOMY, HOLDING, ROOMY)
    line.room(1, 1, 0)  # the link from n1 to n2 takes nothing
    line.send(*range(500))
    line.pump.run()
    assert line.waiting(1, 1) == WINDOW
    assert line.waiting(0, 0) == 500 - WINDOW
    assert line.drops() == []
    line.send(*range(10), lane=Lane.BEST_EFFORT)
    line.control()
    line.pump.run()
    assert line.parts[1].counts(Lane.BEST_EFFORT) == list(range(10)), "other lanes and control go on"
    assert Subscribe(1, 1, "TRUE") in line.parts[1].came
    line.room(1, 1, AMPLE_BYTES)
    line.pump.run()
    assert line.parts[2].counts() == list(range(500))
    assert line.drops() == []


def test_a_hold_at_the_end_of_a_line_reaches_back_to_its_beginning_hop_by_hop() -> None:
    line = Line(ROOMY, HOLDING, HOLDING, HOLDING)
    line.hold(3)
    line.send(*range(1000))
    line.pump.run()
    came = len(line.parts[3].counts())
    waiting = [line.waiting(at, 1) for at in (1, 2)]
    assert came == WINDOW
    assert all(WINDOW // 2 <= count <= WINDOW for count in waiting), "half a window is not worth a Credit"
    assert line.waiting(0, 0) + sum(waiting) + came == 1000
    line.release(3)
    line.pump.run()
    assert line.parts[3].counts() == list(range(1000))
    assert line.drops() == []


def test_room_that_comes_in_small_pieces_lets_everything_through() -> None:
    line = Line(ROOMY, HOLDING, ROOMY)
    line.room(1, 1, 0)
    line.send(*range(300))
    for _ in range(400):
        line.pump.run()
        line.room(1, 1, SIZE)
    line.pump.run()
    assert line.parts[2].counts() == list(range(300))
    assert line.drops() == []


def test_many_small_messages_are_held_and_not_dropped() -> None:
    line = Line(ROOMY, HOLDING, ROOMY, queue_packets=10)
    line.room(1, 1, 0)
    line.send(*range(30_000), body=b"")
    line.pump.run()
    assert line.waiting(1, 1) > 5_000
    assert line.waiting(0, 0) > 0
    line.room(1, 1, AMPLE_BYTES)
    line.pump.run()
    assert line.parts[2].counts() == list(range(30_000))
    assert line.drops() == []


class Star:
    """A hub between many nodes: what comes from n1, n2, ... goes on to n0, but for those that are let go by."""

    def __init__(self, count: int, *, aside: Sequence[str] = ()) -> None:
        self.pump = Pump(steps_max=10**6)
        names = [f"n{number}" for number in range(count + 1)]
        self.nodes = {name: Node({}, HOLDING) for name in names}
        self.hub = Node({}, HOLDING)
        self.parts = {name: Part() for name in names}
        self.hub.install("part", Turning(aside))
        self.pump.add("hub", self.hub)
        for name, node in self.nodes.items():
            node.install("part", self.parts[name])
            self.pump.add(name, node)
            self.pump.connect("hub", name)  # so n0 is link 0 of the hub, n1 is link 1, ...
        self.pump.run()

    def send(self, name: str, *counts: int) -> None:
        messages = [a_message(count, publisher=name, body=BODY) for count in counts]
        sends = [Send((0,), Publish(message, HELD), HELD) for message in messages]
        self.pump.apply(name, self.nodes[name].route(sends))

    def room(self, link: Link, room_bytes: int) -> None:
        self.pump.apply("hub", self.hub.link_ready(link, room_bytes=room_bytes, now=0.0))

    def drops(self) -> list[Dropped]:
        return [record for _, record in self.pump.records if isinstance(record, Dropped)]


class Turning:
    """Sends on to link 0, and what comes from these publishers to link 1."""

    packet_kinds: tuple[type[Packet], ...] = (Publish,)

    def __init__(self, aside: Sequence[str]) -> None:
        self.aside = aside

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        messages = [packet.message for packet in packets if isinstance(packet, Publish)]
        ways = [1 if message.identity.publisher in self.aside else 0 for message in messages]
        return [Send((way,), Publish(m, HELD), HELD) for way, m in zip(ways, messages, strict=True)]


def test_who_sends_what_can_go_on_is_not_slowed_by_who_sends_what_cannot() -> None:
    star = Star(3, aside=["n2"])
    star.room(0, 0)
    for turn in range(10):
        star.send("n2", *range(100 * turn, 100 * turn + 100))
        star.send("n3", *range(20 * turn, 20 * turn + 20))
        star.pump.run()
    assert star.parts["n1"].counts() == list(range(1000))
    assert star.parts["n0"].counts() == []
    assert star.drops() == []
    star.room(0, AMPLE_BYTES)
    star.pump.run()
    assert star.parts["n0"].counts() == list(range(200))


def test_two_that_have_much_for_each_other_do_not_wait_for_ever() -> None:
    """What waits at the hub for n1 came from n2 and the other way round."""
    star = Star(2, aside=["n0"])
    for link in (0, 1):
        star.room(link, 0)
    for name in ("n0", "n1"):
        star.send(name, *range(200))
    star.pump.run()
    for link in (0, 1):
        star.room(link, AMPLE_BYTES)
    star.pump.run()
    assert star.parts["n0"].counts() == star.parts["n1"].counts() == list(range(200))
    assert star.drops() == []


@pytest.mark.parametrize("count", [2, 20, 60])
def test_however_many_links_there_are_nothing_is_dropped_and_nobody_waits_for_ever(count: int) -> None:
    star = Star(count)
    star.room(0, 0)
    for number in range(1, count + 1):
        star.send(f"n{number}", *range(150))
    star.pump.run()
    assert star.hub.egress.waiting_packets(0) == count * WINDOW
    star.room(0, AMPLE_BYTES)
    star.pump.run()
    assert len(star.parts["n0"].came) == count * 150
    assert star.drops() == []


def test_what_is_lost_with_a_link_gives_its_senders_their_credit_back() -> None:
    line = Line(ROOMY, HOLDING, ROOMY)
    line.room(1, 1, 0)
    line.send(*range(300))
    line.pump.run()
    line.pump.change("n1", "n2", up=False)
    line.pump.run()
    assert [record.cause for record in line.drops()] == ["link down"] * 300
    line.pump.change("n1", "n2", up=True)
    line.pump.run()
    line.send(*range(300, 500))
    line.pump.run()
    assert line.parts[2].counts() == list(range(300, 500))


def test_a_link_that_comes_up_again_while_its_messages_wait_gets_no_credit_until_they_left() -> None:
    line = Line(ROOMY, HOLDING, ROOMY)
    line.room(1, 1, 0)
    line.send(*range(500))
    line.pump.run()
    line.pump.change("n0", "n1", up=False)
    line.pump.change("n0", "n1", up=True)
    line.pump.run()
    line.send(*range(500, 900))
    line.pump.run()
    assert line.waiting(1, 1) <= 2 * WINDOW
    line.room(1, 1, AMPLE_BYTES)
    line.pump.run()
    assert [count for count in line.parts[2].counts() if count >= 500] == list(range(500, 900))
    assert [record for record in line.drops() if record.cause == "queue full"] == []


def test_what_was_dropped_before_it_was_handled_has_come_as_far_as_credit_is_concerned() -> None:
    node = Node({}, HOLDING)
    node.link_changed(0, up=True, now=0.0)
    node.link_ready(0, room_bytes=AMPLE_BYTES, now=0.0)
    packets = [Publish(a_message(count, body=BODY), HELD) for count in range(100, 100 + WINDOW)]
    effects = node.discarded(packets, sender=0)
    assert granted(effects) == [((0,), HELD, WINDOW_BYTES + WINDOW * SIZE)]
    assert Node({}, DROPPING).discarded(packets, sender=0) == []


# Links without credit, and neighbours that do not obey.


@pytest.mark.parametrize("kind", [LinkKind.SHAPED, LinkKind.DATAGRAM])
def test_only_reliable_links_have_credit(kind: LinkKind) -> None:
    line = Line(HOLDING, HOLDING, kind=kind)
    line.send(*range(100))
    line.pump.run()
    assert line.credits == []


def test_what_does_not_fit_and_comes_from_a_link_without_credit_is_dropped_and_recorded() -> None:
    node = Node({0: LinkInfo("in", LinkKind.DATAGRAM), 1: LinkInfo("out")}, HOLDING)
    node.install("part", Part(1))
    for link in (0, 1):
        node.link_changed(link, up=True, now=0.0)
    effects = [
        effect
        for count in range(100, 1000)
        for effect in node.receive([Publish(a_message(count, body=BODY), HELD)], sender=0, now=0.0)
    ]
    assert node.egress.waiting_packets(1) <= WINDOW
    drops = [effect for effect in effects if isinstance(effect, Dropped)]
    assert {(record.cause, record.lane) for record in drops} == {("queue full", HELD)}
    assert len(drops) + node.egress.waiting_packets(1) == 900 + 1, "and the Credit for the link that takes nothing"


def test_what_does_not_fit_and_comes_from_ourselves_is_dropped_and_recorded() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    line.send(*range(1000))
    line.pump.run()
    assert [(record.cause, record.lane) for record in line.drops()] == [("queue full", HELD)] * len(line.drops())
    assert len(line.drops()) + line.waiting(0, 0) + WINDOW == 1000


def test_a_neighbour_that_sends_more_than_it_may_is_recorded_once() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    packets = [Publish(a_message(count, body=BODY), HELD) for count in range(100, 500)]
    for packet in packets:
        line.pump.receive("n1", packet, sender=0)
    refusals = line.pump.records_of("n1", InputRefused)
    assert refusals == [InputRefused("peer 0", "it sends more in lane PRICED than it has credit for")]


def test_a_neighbour_that_obeys_is_never_recorded() -> None:
    line = Line(ROOMY, HOLDING, ROOMY)
    line.room(1, 1, 0)
    line.send(*range(500))
    line.pump.run()
    line.room(1, 1, AMPLE_BYTES)
    line.pump.run()
    assert line.pump.records_of("n1", InputRefused) == []


def test_what_a_neighbour_sends_beyond_its_credit_is_dropped_and_recorded() -> None:
    line = Line(HOLDING, HOLDING, HOLDING)
    line.room(1, 1, 0)
    for count in range(100, 2100):
        line.pump.receive("n1", Publish(a_message(count, body=BODY), HELD), sender=0)
    assert line.waiting(1, 1) == len(line.parts[1].came) <= 2 * WINDOW
    assert {(record.place, record.cause, record.lane, record.peer) for record in line.drops()} == {
        ("ingress", "no credit", HELD, "peer 0")
    }
    assert len(line.drops()) + line.waiting(1, 1) == 2000
    line.pump.receive("n1", Publish(a_message(1), Lane.BEST_EFFORT), Subscribe(1, 1, "TRUE"), sender=0)
    assert line.parts[1].counts(Lane.BEST_EFFORT) == [1], "its other lanes go on"


def test_who_has_sent_too_much_before_the_first_credit_came_loses_that_and_goes_on() -> None:
    line = Line(ROOMY, HOLDING)
    line.pump.change("n0", "n1", up=False)
    line.pump.change("n0", "n1", up=True)
    line.hold(1)
    line.send(*range(500))  # five windows, while the first Credit is on its way
    line.pump.run()
    assert line.parts[1].counts() == list(range(WINDOW))
    assert [record.count for record in line.drops() if record.cause == "no credit"] == list(range(WINDOW, 500))
    line.release(1)
    line.send(*range(500, 1000))
    line.pump.run()
    assert line.parts[1].counts()[WINDOW:] == list(range(500, 1000))


# Nobody holds.


def test_with_the_default_settings_no_credit_is_ever_sent_and_nothing_is_limited() -> None:
    line = Line(DROPPING, DROPPING)
    for lane in DATA_LANES:
        line.send(*range(100), lane=lane)
    line.pump.run()
    assert line.credits == []
    assert all(line.parts[1].counts(lane) == list(range(100)) for lane in DATA_LANES)


def test_a_whole_network_with_the_default_settings_sends_no_credit() -> None:
    kinds: set[str] = set()
    pump = broker_network([(0, 1)])
    pump.loses = lambda flight: bool(kinds.add(flight.kind))
    attach(pump, "reader", "b1", "EXISTS n")
    attach(pump, "writer", "b0")
    pump.advance(1.0)
    for count in range(1, 60):
        publish(pump, "writer", a_message(count, publisher="writer", body=BODY))
    pump.advance(1.0)
    assert len(pump.got("reader")) == 59
    assert {"Publish", "Publication", "Delivery", "Hello"} <= kinds
    assert "Credit" not in kinds


def test_what_was_sent_before_the_first_credit_came_counts_too() -> None:
    line = Line(DROPPING, DROPPING)
    line.send(*range(100))
    line.pump.receive("n0", Credit(HELD, 50 * SIZE), sender=0)
    line.send(*range(100, 110))
    line.pump.run()
    assert line.parts[1].counts() == list(range(100))


def test_a_sender_whose_own_lanes_drop_obeys_the_credit_of_a_neighbour_whose_lanes_hold() -> None:
    line = Line(DROPPING, HOLDING)
    line.hold(1)
    line.send(*range(200))
    line.pump.run()
    assert len(line.parts[1].counts()) == WINDOW
    line.release(1)
    line.pump.run()
    assert line.parts[1].counts() == list(range(200))


def test_credit_costs_little_one_packet_for_half_a_window() -> None:
    line = Line(ROOMY, HOLDING)
    begun = len(line.credits)
    assert begun == 2, "one for each direction"
    line.send(*range(1000))
    line.pump.run()
    renewals = len(line.credits) - begun
    assert 1000 * SIZE / WINDOW_BYTES - 1 <= renewals <= 2 * 1000 * SIZE / WINDOW_BYTES
    assert {flight.lane for flight in line.credits} == {Lane.CONTROL}


# Links that come and go.


def test_a_link_that_goes_down_and_up_starts_with_fresh_counts() -> None:
    line = Line(HOLDING, HOLDING)
    line.send(*range(100))
    line.pump.run()
    for _ in range(2):
        line.pump.change("n0", "n1", up=False)
        line.credits.clear()
        line.pump.change("n0", "n1", up=True)
        line.pump.run()
        assert [flight.packet for flight in line.credits] == [Credit(HELD, WINDOW_BYTES)] * 2
        line.hold(1)
        before = len(line.parts[1].came)
        line.send(*range(1000, 1200))
        line.pump.run()
        assert len(line.parts[1].came) == before + WINDOW


def test_what_waits_for_credit_when_the_link_goes_down_is_dropped_and_recorded() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    line.send(*range(1, 201))
    line.pump.run()
    line.pump.change("n0", "n1", up=False)
    assert [(record.cause, record.count) for record in line.drops()] == [
        ("link down", count) for count in range(WINDOW + 1, 201)
    ]
    line.pump.change("n0", "n1", up=True)
    line.pump.run()
    line.send(*range(300, 500))
    line.pump.run()
    assert line.parts[1].counts()[WINDOW:] == list(range(300, 500)), "a hold does not outlive its link"


# Hostile and strange credit.


def test_credit_never_shrinks_and_none_for_a_link_that_is_down_means_anything() -> None:
    line = Line(HOLDING, HOLDING)
    line.hold(1)
    line.send(*range(200))
    line.pump.run()
    assert line.pump.receive("n0", Credit(HELD, 5), sender=0) == []
    line.pump.change("n0", "n1", up=False)
    assert line.pump.receive("n0", Credit(HELD, 1 << 60), sender=0) == []
    assert line.pump.receive("n0", Credit(HELD, 1 << 60), sender=99) == []


def test_credit_for_nothing_stops_a_lane_at_once_and_credit_for_much_opens_it() -> None:
    line = Line(DROPPING, DROPPING)
    line.pump.receive("n0", Credit(HELD, 0), sender=0)
    line.send(1, 2, 3)
    line.send(4, lane=Lane.STREAM)
    line.pump.run()
    assert (line.parts[1].counts(), line.parts[1].counts(Lane.STREAM)) == ([], [4])
    line.pump.receive("n0", Credit(HELD, 1 << 60), sender=0)
    line.pump.run()
    assert line.parts[1].counts() == [1, 2, 3]


def test_credit_that_comes_together_with_messages_is_obeyed_and_they_are_handled() -> None:
    line = Line(ROOMY, ROOMY)
    line.pump.receive("n0", Credit(HELD, 1 << 60), Publish(a_message(7), HELD), sender=0)
    assert line.parts[0].counts() == [7]


# The receiver's book-keeping.


class Books:
    """The receiver's side alone, with as much waiting as the test says."""

    def __init__(self, window_bytes: int, *lanes: Lane) -> None:
        self.waiting: dict[tuple[Link, Lane], int] = {}
        queues = holding(*lanes, bytes_max=window_bytes)
        self.grants = CreditGrants(queues, lambda link, lane: self.waiting.get((link, lane), 0))

    def took(self, link: Link, *sizes: int, lane: Lane = HELD) -> list[tuple[tuple[Link, ...], Lane, int]]:
        return self.came(link, [of_size(size, lane) for size in sizes])

    def came(self, link: Link, packets: Sequence[Packet]) -> list[tuple[tuple[Link, ...], Lane, int]]:
        kept, refused = self.grants.admitted(link, packets, "peer")
        assert (kept, refused) == (list(packets), []), "it had credit for all"
        return granted(self.grants.renew_all(link))


def of_size(size_bytes: int, lane: Lane = HELD) -> Publish:
    """A packet of so many bytes."""
    empty = Publish(a_message(1), lane).size_bytes()
    packet = Publish(a_message(1, body=bytes(size_bytes - empty)), lane)
    assert packet.size_bytes() == size_bytes
    return packet


def granted(effects: Sequence[Effect]) -> list[tuple[tuple[Link, ...], Lane, int]]:
    packets = [(effect.to, effect.packet) for effect in effects if isinstance(effect, Send)]
    return [(to, packet.lane, packet.bytes_in_all) for to, packet in packets if isinstance(packet, Credit)]


def test_credit_is_renewed_when_half_a_window_is_used() -> None:
    books = Books(1000)
    assert granted(books.grants.link_up(3)) == [((3,), HELD, 1000)]
    assert books.took(3, 499) == []
    assert books.took(3, 100) == [((3,), HELD, 1599)]
    assert books.took(3, 100, 100, 100, 100, 100) == [((3,), HELD, 2099)]


def test_what_still_waits_here_is_taken_off_until_it_has_left() -> None:
    books = Books(1000)
    books.grants.link_up(3)
    books.waiting[3, HELD] = 600
    assert books.took(3, 600) == []
    books.waiting[3, HELD] = 101
    assert granted(books.grants.renew(3, HELD)) == []
    books.waiting[3, HELD] = 100
    assert granted(books.grants.renew(3, HELD)) == [((3,), HELD, 1500)]
    books.waiting.clear()
    assert granted(books.grants.renew(3, HELD)) == [], "not worth a packet yet"
    assert books.took(3, 400) == [((3,), HELD, 2000)]


def test_what_travels_in_other_lanes_or_over_links_without_credit_does_not_count() -> None:
    books = Books(100)
    books.grants.link_up(3)
    assert books.took(3, 5000, lane=Lane.BEST_EFFORT) == []
    assert books.came(3, [Subscribe(1, 1, "TRUE"), Credit(HELD, 5)]) == []
    assert books.took(4, 5000) == []


def test_while_a_machine_holds_the_total_stays_and_release_renews_it() -> None:
    books = Books(1000)
    books.grants.link_up(3)
    books.grants.hold(3, HELD)
    assert books.took(3, 999) == []
    assert granted(books.grants.renew(3, HELD)) == []
    assert granted(books.grants.release(3, HELD)) == [((3,), HELD, 1999)]
    assert granted(books.grants.release(3, HELD)) == []


def test_the_packet_that_passes_the_total_is_taken_and_what_comes_after_it_is_not() -> None:
    books = Books(1000)
    books.grants.link_up(3)
    first, second, third = of_size(999), of_size(500), of_size(100)
    kept, (refusal, drop) = books.grants.admitted(3, [first, second, third], "peer")
    assert kept == [first, second]
    assert refusal == InputRefused("peer", "it sends more in lane PRICED than it has credit for")
    assert isinstance(drop, Dropped)
    assert (drop.place, drop.cause, drop.peer, drop.lane) == ("ingress", "no credit", "peer", HELD)


def test_each_lane_and_each_link_has_its_own_count() -> None:
    books = Books(1000, Lane.PRICED, Lane.STREAM)
    assert [lane for link in (1, 2) for _, lane, _ in granted(books.grants.link_up(link))] == [
        *(Lane.STREAM, Lane.PRICED),
        *(Lane.STREAM, Lane.PRICED),
    ]
    assert books.took(1, 600, lane=Lane.STREAM) == [((1,), Lane.STREAM, 1600)]
    assert books.took(2, 300, lane=Lane.STREAM) == []
    assert books.took(1, 300) == []


def test_a_link_that_has_gone_gets_no_credit() -> None:
    books = Books(100)
    books.grants.link_up(3)
    books.grants.hold(3, HELD)
    books.grants.link_down(3)
    assert books.grants.release(3, HELD) == []
    assert books.took(3, 5000) == []


def test_every_kind_that_carries_a_message_says_its_lane_and_all_others_are_control() -> None:
    message = a_message()
    carrying = [Publish(message, HELD), Publication((1,), 1, message, HELD), Delivery((1,), message, HELD)]
    assert [packet.travels_in() for packet in carrying] == [HELD] * 3
    assert [packet.travels_in() for packet in (Credit(HELD, 1), Subscribe(1, 1, "TRUE"))] == [Lane.CONTROL] * 2


# The sender's book-keeping.


def test_a_blocked_lane_does_not_ask_for_room() -> None:
    egress = Egress({0: LinkInfo("peer")}, ROOMY)
    egress.link_changed(0, up=True)
    egress.link_ready(0, AMPLE_BYTES)
    egress.credited(0, HELD, 0)
    assert egress.route([Send((0,), Publish(a_message(), HELD), HELD)]) == []
    assert (egress.waiting_packets(0), egress.waits_for_room(0)) == (1, False)
    egress.link_ready(0, 0)
    assert egress.waits_for_room(0)


def test_a_packet_for_many_links_waits_for_credit_on_each_of_them() -> None:
    links = {link: LinkInfo(f"peer {link}") for link in range(3)}
    egress = Egress(links, ROOMY)
    for link in links:
        egress.link_changed(link, up=True)
        egress.link_ready(link, AMPLE_BYTES)
    egress.credited(1, HELD, 0)
    packet = Publish(a_message(), HELD)
    assert egress.route([Send((0, 1, 2), packet, HELD)]) == [Send((0, 2), packet, HELD)]
    assert egress.credited(1, HELD, 1) == [Send((1,), packet, HELD)]


def test_the_egress_knows_what_waits_of_what_came_over_each_link_until_the_last_copy_has_left() -> None:
    links = {link: LinkInfo(f"peer {link}") for link in range(4)}
    egress = Egress(links, HOLDING)
    for link in links:
        egress.link_changed(link, up=True)
    packet = Publish(a_message(), HELD)
    size = packet.size_bytes()
    egress.route([Send((1, 2), packet, HELD), Send((1,), Publish(a_message()), Lane.BEST_EFFORT)], source=0)
    egress.route([Send((1,), packet, HELD)], source=3)
    egress.route([Send((1,), packet, HELD)])
    assert [egress.waiting_bytes_from(link, HELD) for link in range(4)] == [2 * size, 0, 0, size]
    assert egress.waiting_bytes_from(0, Lane.BEST_EFFORT) == 0, "a lane that drops has no credit to count"
    egress.link_ready(1, AMPLE_BYTES)
    assert [egress.waiting_bytes_from(link, HELD) for link in range(4)] == [size, 0, 0, 0]
    assert list(egress.freed) == [(0, HELD), (3, HELD)]
    egress.link_changed(2, up=False)
    assert egress.waiting_bytes_from(0, HELD) == 0


# Whatever happens.

NAMES = ("n0", "n1")
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from([HELD, Lane.BEST_EFFORT]), st.integers(0, 60_000)),
    st.tuples(st.just("hold"), st.integers(0, 1)),
    st.tuples(st.just("release"), st.integers(0, 1)),
    st.tuples(st.just("deliver"), st.integers(1, 20)),
    st.tuples(st.just("room"), st.integers(0, 1), st.sampled_from([0, 5_000, AMPLE_BYTES])),
)


class Ledger:
    """Follows both directions from outside: what was sent in the held lane, and the credit that had arrived by then."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.sent = dict.fromkeys(NAMES, 0)
        self.credit = dict.fromkeys(NAMES, WINDOW_BYTES)
        self.largest = dict.fromkeys(NAMES, 0)
        self.seen = len(line.pump.flights)
        self.given: dict[tuple[int, Lane], list[int]] = {}

    def look(self) -> None:
        """New flights are what has just been sent."""
        for flight in self.line.pump.flights[self.seen :]:
            if in_lane(flight.packet, HELD):
                name, size = flight.sender, flight.packet.size_bytes()
                assert self.sent[name] < self.credit[name], "credit was used up before this packet left"
                self.sent[name] += size
                self.largest[name] = max(self.largest[name], size)
                assert self.sent[name] <= self.credit[name] + self.largest[name]
        self.seen = len(self.line.pump.flights)

    def deliver(self) -> None:
        flight = self.line.pump.flights[0]
        if isinstance(flight.packet, Credit):
            self.credit[flight.receiver] = max(self.credit[flight.receiver], flight.packet.bytes_in_all)
        self.seen -= 1
        self.line.pump.deliver()
        self.look()


@given(st.lists(STEPS, min_size=5, max_size=80))
def test_what_was_sent_never_exceeds_the_credit_by_more_than_a_packet_and_all_arrives(
    steps: list[tuple[Any, ...]],
) -> None:
    line = Line(HOLDING, HOLDING)
    ledger = Ledger(line)
    for count, step in enumerate(steps):
        match step:
            case ("send", int(by), Lane() as lane, int(size)):
                numbers = range(10 * count, 10 * count + (4 if line.waiting(by, 0) < 10 else 0))
                line.send(*numbers, lane=lane, by=by, body=bytes(size))
                ledger.given.setdefault((by, lane), []).extend(numbers)
            case ("hold", int(at)):
                line.hold(at)
            case ("release", int(at)):
                line.release(at)
            case ("room", int(at), int(room_bytes)):
                line.room(at, 0, room_bytes)
            case ("deliver", int(times)):
                for _ in range(min(times, len(line.pump.flights))):
                    ledger.deliver()
        ledger.look()
    for at in (0, 1):
        line.release(at)
        line.room(at, 0, AMPLE_BYTES)
        ledger.look()
    while line.pump.flights:
        ledger.deliver()
    for (by, lane), numbers in ledger.given.items():
        assert line.parts[1 - by].counts(lane) == numbers
    assert line.drops() == []


# In a network of brokers.


def test_a_client_that_publishes_in_a_held_lane_waits_and_other_traffic_of_its_link_goes_on() -> None:
    config = NodeConfig(queues=HOLDING)
    pump = broker_network([(0, 1)], config=config)
    attach(pump, "reader", "b1", "EXISTS n", config=config)
    writer = attach(pump, "writer", "b0", config=config)
    pump.advance(1.0)
    home = pump.machines["b0"]
    assert isinstance(home, Node)
    pump.apply("b0", home.route([Hold(pump.link("b0", "writer"), HELD)]))

    def written(lane: Lane, *counts: int) -> list[Message]:
        messages = [a_message(count, publisher="writer", body=BODY) for count in counts]
        pump.apply("writer", writer.node.route(writer.node.machine(Client).sent(messages, lane)))
        pump.advance(0.1)
        return messages

    written(HELD, *range(1, 151))
    plain = written(Lane.STREAM, *range(200, 210))
    arrived = [message for _, message in pump.got("reader")]
    assert [message for message in arrived if message in plain] == plain
    assert len(arrived) - len(plain) == WINDOW
    pump.apply("b0", home.route([Release(pump.link("b0", "writer"), HELD)]))
    pump.advance(0.1)
    counts = [message.identity.count for _, message in pump.got("reader") if message not in plain]
    assert counts == list(range(1, 151))
    assert [record for _, record in pump.records if isinstance(record, Dropped)] == []


def test_a_slow_broker_on_the_way_makes_the_publisher_wait_and_no_copy_is_dropped() -> None:
    config = NodeConfig(queues=HOLDING)
    pump = broker_network([(0, 1)], config=config)
    attach(pump, "reader", "b1", "EXISTS n", config=config)
    writer = attach(pump, "writer", "b0", config=config)
    pump.advance(1.0)
    broker, link = pump.machines["b0"], pump.link("b0", "b1")
    messages = [a_message(count, publisher="writer", body=BODY) for count in range(1, 151)]
    pump.apply("b0", broker.link_ready(link, room_bytes=0, now=pump.now))
    pump.apply("writer", writer.node.route(writer.node.machine(Client).sent(messages, HELD)))
    pump.run()
    assert pump.in_flight(Publication) == []
    assert writer.egress.waiting_packets(0) > 0
    pump.apply("b0", broker.link_ready(link, room_bytes=AMPLE_BYTES, now=pump.now))
    pump.run()
    assert [message for _, message in pump.got("reader")] == messages
    assert [record for _, record in pump.records if isinstance(record, Dropped)] == []

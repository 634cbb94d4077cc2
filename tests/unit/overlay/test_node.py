"""The node: packets to the service of their kind, timers to the service of their name, everything out by the egress."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import pytest

from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.kernel.machine import Accepted, Done, Effect, Hold, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import QueueConfig
from penstock.kernel.storage import Get, ServiceStorage, StorageResult, Ticket, Value
from penstock.kernel.timers import Key, ServiceTimers
from penstock.kernel.trace import Dropped, InputRefused
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Attach, Delivery, Hello, Publish, Subscribe, Unsubscribe
from penstock.overlay.status import Losses, LossesRequest
from penstock.testing import a_broker, a_client, a_message


class Beat(IntEnum):
    TICK = 0
    TOCK = 1


class Echo:
    """A machine that writes down what it is given and answers each batch with one packet."""

    packet_kinds: tuple[type[Packet], ...] = (Subscribe, Publish)

    def __init__(self) -> None:
        self.batches: list[list[Packet]] = []
        self.expirations: list[tuple[int, Key, float]] = []
        self.links: list[tuple[Link, bool]] = []
        self.active: list[tuple[Link, float]] = []
        self.results: list[tuple[Ticket, StorageResult]] = []

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self.batches.append(list(packets))
        return [Send((sender,), Answer(len(packets)), Lane.CONTROL)]

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self.links.append((link, up))
        return [Send((link,), Answer(0), Lane.CONTROL)] if up else []

    def link_active(self, link: Link, *, now: float) -> None:
        self.active.append((link, now))

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        self.expirations.append((timer, key, now))
        return [Done(len(self.expirations), Accepted())]

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        self.results.append((ticket, result))
        return [Done(ticket, Accepted())]


class OtherEcho(Echo):
    """The same for other packets."""

    packet_kinds: tuple[type[Packet], ...] = (Unsubscribe,)


class Quiet:
    """A machine that can do nothing at all."""


def a_node() -> tuple[Node, Echo, OtherEcho]:
    first, second = Echo(), OtherEcho()
    node = Node({0: LinkInfo("peer", LinkKind.DATAGRAM)}, QueueConfig())
    node.install("first", first)
    node.install("second", second)
    node.install("quiet", Quiet())
    node.link_changed(0, up=True, now=0.0)
    return node, first, second


def test_a_batch_is_handed_out_in_runs_of_one_kind() -> None:
    node, first, second = a_node()
    subscribe, publish, unsubscribe = Subscribe(1, 1, "TRUE"), Publish(a_message()), Unsubscribe(2, 1)
    effects = node.receive([subscribe, subscribe, publish, unsubscribe, publish], sender=0, now=0.0)
    assert first.batches == [[subscribe, subscribe], [publish], [publish]]
    assert second.batches == [[unsubscribe]]
    assert effects == [Send((0,), Answer(size), Lane.CONTROL) for size in (2, 1, 1, 1)]


@pytest.mark.parametrize("packets", [[Attach("c", 1)], [Attach("c", 1), Hello(1, 1, "s", 0)]])
def test_a_packet_that_no_service_takes_is_refused_by_name(packets: list[Packet]) -> None:
    node, first, second = a_node()
    assert node.receive(packets, sender=0, now=0.0) == [
        InputRefused("peer", f"no service here takes packets of kind {type(packet).__name__}") for packet in packets
    ]
    assert first.batches == second.batches == []


def test_whoever_watches_hears_of_every_batch_before_it_is_handed_out() -> None:
    node, first, second = a_node()
    node.receive([Subscribe(1, 1, "TRUE"), Unsubscribe(2, 1)], sender=0, now=3.0)
    node.receive([Attach("c", 1)], sender=0, now=4.0)
    assert first.active == second.active == [(0, 3.0), (0, 4.0)]


def test_two_services_cannot_take_one_kind_of_packet() -> None:
    node, *_ = a_node()
    with pytest.raises(AssertionError, match="two services take Subscribe"):
        node.install("third", Echo())


def test_a_timer_expires_at_the_service_whose_name_it_bears() -> None:
    node, first, second = a_node()
    ServiceTimers("second", node.timers).set(Beat.TICK, 1.0)
    ServiceTimers("first", node.timers).set(Beat.TOCK, 2.0, "p", 3)
    assert node.deadline() == 1.0
    assert node.wake(now=2.5) == [Done(1, Accepted()), Done(1, Accepted())]
    assert first.expirations == [(Beat.TOCK, ("p", 3), 2.5)]
    assert second.expirations == [(Beat.TICK, (), 2.5)]
    assert node.deadline() is None


def test_waking_too_early_does_nothing() -> None:
    node, first, _ = a_node()
    ServiceTimers("first", node.timers).set(Beat.TICK, 1.0)
    assert node.wake(now=0.5) == []
    assert first.expirations == []


def test_all_services_hear_of_links_and_what_they_say_goes_through_the_egress() -> None:
    node, first, second = a_node()
    assert (first.links, second.links) == ([(0, True)], [(0, True)])
    assert node.link_changed(7, up=True, now=0.0) == []  # an unknown link is a reliable one without room yet
    assert node.link_ready(7, room_bytes=10**6, now=0.0) == [Send((7,), Answer(0), Lane.CONTROL)] * 2
    assert node.link_changed(7, up=False, now=0.0) == []


def test_nothing_leaves_on_a_link_that_is_down() -> None:
    node, *_ = a_node()
    node.link_changed(0, up=False, now=0.0)
    (record,) = node.receive([Subscribe(1, 1, "TRUE")], sender=0, now=0.0)
    assert isinstance(record, Dropped)
    assert record.cause == "link down"


def test_storage_answers_the_service_that_asked_and_only_once() -> None:
    node, first, second = a_node()
    storages = {name: ServiceStorage(name, node.storage) for name in ("first", "second")}
    asks = [storages[name].ask(Get("x")) for name in ("second", "first", "second")]
    assert [ask.area for ask in asks] == ["second", "first", "second"]
    assert len({ask.ticket for ask in asks}) == 3
    for ask in asks:
        assert node.completed(ask.ticket, Value(b"y"), now=0.0) == [Done(ask.ticket, Accepted())]
    assert first.results == [(asks[1].ticket, Value(b"y"))]
    assert second.results == [(asks[0].ticket, Value(b"y")), (asks[2].ticket, Value(b"y"))]
    assert len(node.storage) == 0
    with pytest.raises(KeyError):
        node.completed(asks[0].ticket, Value(b"y"), now=0.0)


def test_storage_that_nobody_asked_is_a_broken_invariant() -> None:
    with pytest.raises(KeyError):
        a_node()[0].completed(1, Value(b""), now=0.0)


def test_a_hold_where_no_lane_can_hold_is_left_for_nobody_to_carry_out() -> None:
    """The driver refuses it, by name: see kernel/test_driver.py."""
    assert a_node()[0].route([Hold(0, Lane.PRICED)]) == [Hold(0, Lane.PRICED)]


def test_a_client_refuses_what_only_brokers_take_and_the_other_way_round() -> None:
    for node, packet in ((a_client("c"), Publish(a_message())), (a_broker(1), Delivery((1,), a_message()))):
        node.link_changed(0, up=True, now=0.0)
        (refusal,) = node.receive([packet], sender=0, now=0.0)
        assert isinstance(refusal, InputRefused)


def test_a_new_broker_has_no_deadline_until_a_link_is_up() -> None:
    node = a_broker(1)
    assert node.deadline() is None
    node.link_changed(0, up=True, now=5.0)
    deadline = node.deadline()
    assert deadline is not None
    assert 5.0 <= deadline <= 5.5


def test_brokers_do_not_all_say_hello_at_the_same_moment() -> None:
    deadlines = set()
    for number in range(10):
        node = a_broker(number)
        node.link_changed(0, up=True, now=0.0)
        deadlines.add(node.deadline())
    assert len(deadlines) == 10


def test_a_client_learns_what_was_dropped_as_soon_as_its_link_has_drained() -> None:
    node = a_broker(1, links={7: LinkInfo("slow", LinkKind.RELIABLE, queue_packets=1)})
    node.link_changed(7, up=True, now=0.0)
    node.link_ready(7, room_bytes=1000, now=0.0)
    node.receive([Attach("slow", 1), Subscribe(1, 5, "n >= 0")], sender=7, now=0.0)
    node.egress.link_ready(7, 1)
    node.receive(
        [Publish(a_message(n, publisher="slow")) for n in range(5)], sender=7, now=0.0
    )  # one leaves, one waits
    left = node.link_ready(7, room_bytes=1000, now=0.0)
    assert [type(effect.packet) for effect in left if isinstance(effect, Send)] == [Delivery, Losses]
    assert Send((7,), Losses(((5, 3),)), Lane.CONTROL) in left
    assert node.receive([LossesRequest(9)], sender=7, now=0.0) == [Send((7,), Losses((), 9), Lane.CONTROL)]

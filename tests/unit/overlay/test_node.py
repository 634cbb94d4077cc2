"""The node: packets to the service of their kind, timers to the service of their name, everything out by the egress."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.kernel.machine import Accepted, Done, Effect, Lane, Link, Packet, Send
from penstock.kernel.queue import QueueConfig
from penstock.kernel.timers import TimerName, Timers
from penstock.kernel.trace import Dropped, InputRefused
from penstock.overlay.egress import LinkInfo, LinkKind
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Attach, Delivery, Hello, Publish, Subscribe, Unsubscribe
from pump import a_broker, a_client, a_message


class Echo:
    """A service that writes down what it is given and answers each batch with one packet."""

    def __init__(self, name: str, *packet_kinds: type[Packet]) -> None:
        self.name = name
        self.packet_kinds = packet_kinds
        self.batches: list[list[Packet]] = []
        self.expirations: list[tuple[TimerName, float]] = []
        self.links: list[tuple[Link, bool]] = []

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self.batches.append(list(packets))
        return [Send((sender,), Answer(len(packets)), Lane.CONTROL)]

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self.links.append((link, up))
        return [Send((link,), Answer(0), Lane.CONTROL)] if up else []

    def expired(self, timer: TimerName, *, now: float) -> list[Effect]:
        self.expirations.append((timer, now))
        return [Done(len(self.expirations), Accepted())]


def a_node() -> tuple[Node, Echo, Echo, Timers]:
    first, second, timers = Echo("first", Subscribe, Publish), Echo("second", Unsubscribe), Timers()
    links = {0: LinkInfo("peer", LinkKind.DATAGRAM)}
    node = Node((first, second), links, timers, QueueConfig())
    node.link_changed(0, up=True, now=0.0)
    return node, first, second, timers


def test_a_batch_is_handed_out_in_runs_of_one_service() -> None:
    node, first, second, _ = a_node()
    subscribe, publish, unsubscribe = Subscribe(1, 1, "TRUE"), Publish(a_message()), Unsubscribe(2, 1)
    effects = node.receive([subscribe, publish, unsubscribe, publish], sender=0, now=0.0)
    assert first.batches == [[subscribe, publish], [publish]]
    assert second.batches == [[unsubscribe]]
    assert effects == [Send((0,), Answer(size), Lane.CONTROL) for size in (2, 1, 1)]


@pytest.mark.parametrize("packets", [[Attach("c", 1)], [Attach("c", 1), Hello(1, 1, "s", 0)]])
def test_a_packet_that_no_service_takes_is_refused_by_name(packets: list[Packet]) -> None:
    node, *_ = a_node()
    (refusal,) = node.receive(packets, sender=0, now=0.0)
    kinds = ", ".join(sorted(type(packet).__name__ for packet in packets))
    assert refusal == InputRefused("peer", f"no service here takes packets of kind {kinds}")


def test_a_timer_expires_at_the_service_whose_name_it_bears() -> None:
    node, first, second, timers = a_node()
    timers.set(("second", "tick"), 1.0)
    timers.set(("first", "tock", 3), 2.0)
    assert node.deadline() == 1.0
    assert node.wake(now=2.5) == [Done(1, Accepted()), Done(1, Accepted())]
    assert first.expirations == [(("first", "tock", 3), 2.5)]
    assert second.expirations == [(("second", "tick"), 2.5)]
    assert node.deadline() is None


def test_waking_too_early_does_nothing() -> None:
    node, first, _, timers = a_node()
    timers.set(("first", "tick"), 1.0)
    assert node.wake(now=0.5) == []
    assert first.expirations == []


def test_all_services_hear_of_links_and_what_they_say_goes_through_the_egress() -> None:
    node, first, second, _ = a_node()
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


def test_storage_that_nobody_asked_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="asks storage"):
        a_node()[0].completed(1, None, now=0.0)


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

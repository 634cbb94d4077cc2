"""A client with a transport over the overlay: verbs, tickets, and what happens when the link is down."""

from __future__ import annotations

from random import Random

import pytest

from penstock.content.envelope import kind_of, opened
from penstock.content.message import DEFAULT_LIMITS
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Accepted, Done, Refused, Send
from penstock.kernel.trace import Dropped, InputRefused, Published, Subscribed
from penstock.overlay.node import NodeConfig
from penstock.overlay.packets import Answer, Delivery, Publish, Subscribe
from penstock.transport.client_service import TransportClientNode
from penstock.transport.config import TransportConfig
from penstock.transport.wire.header import decode_header
from pump import Pump, a_message, broker_network

CONFIG = TransportConfig(heartbeat_interval=0.5)


def a_node(name: str = "c", *, transport: TransportConfig | None = CONFIG) -> TransportClientNode:
    return TransportClientNode(name, 1, {}, NodeConfig(), transport=transport, random=Random(1))


def connected(name: str = "c", *, transport: TransportConfig | None = CONFIG) -> tuple[Pump, TransportClientNode]:
    pump = broker_network([], numbers=1)
    node = a_node(name, transport=transport)
    pump.add(name, node)
    pump.connect(name, "b0")
    pump.run()
    return pump, node


def also(pump: Pump, name: str, *, transport: TransportConfig | None = CONFIG) -> TransportClientNode:
    node = a_node(name, transport=transport)
    pump.add(name, node)
    pump.connect(name, "b0")
    pump.run()
    return node


def published(effects: list[object]) -> list[Publish]:
    return [e.packet for e in effects if isinstance(e, Send) and isinstance(e.packet, Publish)]


def test_without_settings_a_client_publishes_plain_messages() -> None:
    _, node = connected(transport=None)
    (sent,) = published([*node.publish(a_message(), ticket=1, now=0.0)])
    assert sent.message == a_message()
    assert node.deadline() is None


def test_without_settings_and_transport_subscriptions_a_client_asks_its_broker_for_nothing() -> None:
    node = a_node(transport=None)
    node.link_changed(0, up=True, now=0.0)
    asked = [e.packet for e in node.link_ready(0, room_bytes=1 << 30, now=0.0) if isinstance(e, Send)]
    assert not [packet for packet in asked if isinstance(packet, Subscribe)]


def test_with_settings_each_message_has_a_header_and_the_trace_shows_it_as_it_was() -> None:
    _, node = connected()
    effects = node.publish(a_message(), ticket=7, now=0.0)
    (sent,) = published([*effects])
    assert opened(sent.message)[1] == a_message()
    (fact,) = [effect for effect in effects if isinstance(effect, Published)]
    assert fact == Published("p", 1, 1, '{"n":1}', 0)
    assert effects[-1] == Done(7, Accepted())


def test_a_publisher_asks_once_for_its_inbox_and_for_requests_about_it() -> None:
    pump, node = connected()
    (held,) = [dict(node.client._where)]
    assert [number - SERVICE_SUBSCRIPTIONS for number in held] == [0, 1]
    pump.change("c", "b0", up=False)
    pump.change("c", "b0", up=True)
    pump.run()
    assert dict(node.client._where) == held


def test_publishing_while_the_link_is_down_is_refused_and_takes_no_number() -> None:
    pump, node = connected()
    node.publish(a_message(1), ticket=1, now=0.0)
    pump.change("c", "b0", up=False)
    effects = node.publish(a_message(2), ticket=2, now=1.0)
    assert [type(effect) for effect in effects] == [Dropped, Done]
    assert isinstance(effects[1].outcome, Refused)  # type: ignore[union-attr]
    pump.change("c", "b0", up=True)
    pump.run()
    (sent,) = published([*node.publish(a_message(3), ticket=3, now=2.0)])
    assert decode_header(opened(sent.message)[0], 0, entry_bits=256).sequence == 2


def test_a_message_without_room_for_a_header_is_refused_with_its_ticket() -> None:
    _, node = connected()
    full = a_message(1, {f"a{n}": n for n in range(DEFAULT_LIMITS.attributes_max)})
    (done,) = node.publish(full, ticket=3, now=0.0)
    assert isinstance(done, Done)
    assert isinstance(done.outcome, Refused)
    assert "at most 63" in done.outcome.problem


def test_messages_without_tickets_get_headers_too() -> None:
    _, node = connected()
    sent = published([*node.publish_all([a_message(1), a_message(2)], now=0.0)])
    headers = [decode_header(opened(one.message)[0], 0, entry_bits=256) for one in sent]
    assert [header.sequence for header in headers] == [1, 2]


@pytest.mark.parametrize("where", ["n = = 1", "n >", "x" * 5000])
def test_a_subscription_that_does_not_parse_is_refused_with_its_ticket_like_any_other(where: str) -> None:
    """A plain subscription goes to the broker, which says what is wrong; one with order must not be worse off."""
    for ordered in (False, True):
        pump, node = connected()
        pump.apply("c", node.subscribe(1, where, ticket=5, now=0.0, ordered=ordered))
        pump.run()
        (done,) = [done for _, done in pump.done if done.ticket == 5]
        assert isinstance(done.outcome, Refused)
        assert node.report(1) is None
        pump.apply("c", node.subscribe(1, "n = 1", ticket=6, now=0.0, ordered=ordered))
        pump.run()
        assert [done.outcome for _, done in pump.done if done.ticket == 6] == [Accepted()]


def test_a_subscription_that_is_refused_here_is_none_of_the_transport() -> None:
    _, node = connected()
    node.subscribe(1, "n = 1", ticket=1, now=0.0, ordered=True)
    effects = node.subscribe(1, "n = 2", ticket=2, now=0.0, ordered=True, recover=True)
    assert [type(effect) for effect in effects] == [Done]
    assert node.transport.report(1).delivered == 0
    assert len([n for n in node.client._where if n >= SERVICE_SUBSCRIPTIONS]) == 2, "no requests are listened for"


def test_plain_subscriptions_have_no_report_and_those_of_the_transport_have() -> None:
    pump, node = connected()
    for number, ordered in ((1, False), (2, True)):
        pump.apply("c", node.subscribe(number, "n = 1", ticket=number, now=0.0, ordered=ordered))
    assert node.report(1) is None
    assert node.report(2) is not None
    assert node.report(3) is None
    pump.apply("c", node.unsubscribe(2, ticket=4, now=0.0))
    assert node.report(2) is None


def test_both_kinds_of_subscription_get_the_same_message() -> None:
    pump, reader = connected("a")
    writer = also(pump, "p")
    pump.apply("a", reader.subscribe(1, "n = 1", ticket=1, now=0.0))
    pump.apply("a", reader.subscribe(2, "n = 1", ticket=2, now=0.0, ordered=True, recover=True))
    pump.run()
    pump.apply("p", writer.publish(a_message(), ticket=1, now=pump.now))
    pump.run()
    assert pump.got("a") == [(1, a_message()), (2, a_message())]


def test_a_reader_without_settings_may_ask_for_order_and_recovery() -> None:
    pump, reader = connected("a", transport=None)
    writer = also(pump, "p")
    pump.apply("a", reader.subscribe(1, "EXISTS n", ticket=1, now=0.0, ordered=True, recover=True))
    pump.advance(0.1)
    lost: list[int] = []

    def loses(flight: object) -> bool:
        packet = flight.packet  # type: ignore[attr-defined]
        if isinstance(packet, Delivery) and packet.message.attributes.get("n") == 3 and not lost:
            lost.append(3)
            return True
        return False

    pump.loses = loses
    for number in range(1, 7):
        pump.apply("p", writer.publish(a_message(number), ticket=number, now=pump.now))
        pump.advance(0.1)
    pump.advance(3.0)
    assert lost == [3]
    assert sorted(message.identity.count for _, message in pump.got("a")) == [1, 2, 3, 4, 5, 6]
    assert all(kind_of(message) is None for _, message in pump.got("a"))
    report = reader.report(1)
    assert report is not None
    assert (report.delivered, report.recovered, report.lost) == (6, 1, 1)


def test_transport_subscriptions_survive_a_break_of_the_link() -> None:
    pump, reader = connected("a")
    writer = also(pump, "p")
    pump.apply("a", reader.subscribe(1, "EXISTS n", ticket=1, now=0.0, ordered=True, recover=True))
    pump.run()
    for number in range(1, 7):
        if number == 3:
            pump.change("a", "b0", up=False)
        if number == 5:
            pump.change("a", "b0", up=True)
            pump.run()
        pump.apply("p", writer.publish(a_message(number), ticket=number, now=pump.now))
        pump.advance(0.2)
    pump.advance(4.0)
    assert sorted(message.identity.count for _, message in pump.got("a")) == [1, 2, 3, 4, 5, 6], "3 and 4 are asked for"


def test_a_service_subscription_that_the_broker_refuses_is_recorded_and_everything_else_goes_on() -> None:
    node = a_node()
    node.link_changed(0, up=True, now=0.0)
    node.link_ready(0, room_bytes=1 << 30, now=0.0)
    effects = node.receive([Answer(1, "too many")], sender=0, now=0.0)
    assert effects == [InputRefused("c", "too many")]
    assert node.subscribe(1, "n = 1", ticket=1, now=0.0, ordered=True)[0] == Subscribed(1, "n = 1")


def test_a_subscription_that_the_broker_refuses_is_none_of_the_transport() -> None:
    node = a_node(transport=None)
    node.link_changed(0, up=True, now=0.0)
    effects = [*node.link_ready(0, room_bytes=1 << 30, now=0.0)]
    effects += node.subscribe(1, "n = 1", ticket=1, now=0.0, ordered=True, recover=True)
    packets = [effect.packet for effect in effects if isinstance(effect, Send)]
    asked = {packet.subscription: packet.ticket for packet in packets if isinstance(packet, Subscribe)}
    node.receive([Answer(asked[1], "the broker is full")], sender=0, now=0.0)
    assert node.report(1) is None
    assert not [number for number in node.client._where if number > SERVICE_SUBSCRIPTIONS]


def test_a_priority_goes_down_to_the_transport_subscription() -> None:
    _, node = connected(transport=TransportConfig(congestion=True))
    node.subscribe(1, "a", ticket=1, now=0.0, priority=2.0)
    node.subscribe(2, "b", ticket=2, now=0.0)
    assert [flow.priority for flow in node.transport._feedback_scheduler._receiver_flows.kept] == [2.0, 1.0]

"""A client with a transport over the overlay: verbs, tickets, and what happens when the link is down."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import services
from penstock.content.envelope import kind_of, opened
from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Accepted, Done, Refused, Send
from penstock.kernel.packet import Lane
from penstock.kernel.service import NUMBERS_PER_SERVICE, Reading
from penstock.kernel.trace import Dropped, InputRefused, Published, Subscribed
from penstock.overlay.client import Client
from penstock.overlay.packets import Answer, Delivery, Publication, Publish, Subscribe
from penstock.overlay.records import ServiceSubscriptionRefused
from penstock.testing import ClientMachine, Flight, Pump, a_client, a_message, broker_network
from penstock.transport.client_service import TransportClient
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.report import TransportReport
from penstock.transport.sender.flow_table import flow_of
from penstock.transport.sender.publication_record import LIMITS
from penstock.transport.service import TRANSPORT
from penstock.transport.transport import Transport
from penstock.transport.wire.control_messages import ControlIdentities, Feedback, FlowQuota, feedback_message
from penstock.transport.wire.header import decode_header

CONFIG = papers_config(heartbeat_interval=0.5)
FIRST = SERVICE_SUBSCRIPTIONS + services.services().index(TRANSPORT) * NUMBERS_PER_SERVICE  # of the transport's own
ORDERED = services.options({"ordered": True})
BOTH = services.options({"ordered": True, "recover": True})


def a_node(name: str = "c", *, transport: TransportConfig | None = CONFIG) -> ClientMachine:
    return a_client(name, settings={} if transport is None else {"transport": transport})


def also(pump: Pump, name: str, *, transport: TransportConfig | None = CONFIG) -> ClientMachine:
    node = a_node(name, transport=transport)
    pump.add(name, node)
    pump.connect(name, "b0")
    pump.run()
    return node


def connected(name: str = "c", *, transport: TransportConfig | None = CONFIG) -> tuple[Pump, ClientMachine]:
    pump = broker_network([], numbers=1)
    return pump, also(pump, name, transport=transport)


def transport_of(node: ClientMachine) -> Transport:
    return node.node.machine(TransportClient).transport


def subscribed(node: ClientMachine) -> dict[int, str]:
    """What the client asks its broker for: subscription -> text."""
    return dict(node.node.machine(Client)._where)


def report_of(node: ClientMachine, number: int) -> TransportReport | None:
    report: TransportReport | None = node.reports(number).get("transport")
    return report


def limited(node: ClientMachine, where: str, quota: float, *, by: str = "s", now: float) -> None:
    """Let a subscriber ask for no more than this."""
    scheme = transport_of(node).config.encoding
    flow = FlowQuota(quota, scheme.to_bytes(flow_of(parse_predicate(where), scheme, exact=False).encoding))
    message = feedback_message(ControlIdentities(by, 1), "c", Feedback(by, now, (flow,)))
    node.receive([Delivery((FIRST,), message, Lane.TRANSPORT)], sender=0, now=now)


def published(effects: list[Any]) -> list[Publish]:
    return [e.packet for e in effects if isinstance(e, Send) and isinstance(e.packet, Publish)]


def test_without_settings_a_client_publishes_plain_messages() -> None:
    _, node = connected(transport=None)
    (sent,) = published(node.publish(a_message(), ticket=1, now=0.0))
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
    (sent,) = published(effects)
    assert opened(sent.message)[1] == a_message()
    (fact,) = [effect for effect in effects if isinstance(effect, Published)]
    assert fact == Published("p", 1, 1, '{"n":1}', 0)
    assert effects[-1] == Done(7, Accepted())


def test_what_the_transport_sends_goes_in_its_lane_and_its_requests_ahead_of_data_through_every_broker() -> None:
    """Data, heartbeats and repairs; requests go where data cannot keep them; without settings it is best effort."""
    pump = broker_network([(0, 1)])
    lanes: dict[str, set[Lane]] = {}

    def watches(flight: Flight) -> bool:
        if isinstance(flight.packet, Publish | Publication | Delivery):
            kind = kind_of(flight.packet.message) or flight.packet.message.identity.publisher
            lanes.setdefault(kind, set()).update((flight.lane, flight.packet.lane))
            return kind == "data" and isinstance(flight.packet, Delivery) and flight.packet.message.identity.count == 3
        return False

    pump.loses = watches
    writer, plain, reader = also(pump, "p"), also(pump, "plain", transport=None), a_node("a")
    pump.add("a", reader)
    pump.connect("a", "b1")
    pump.apply("a", reader.subscribe(1, "EXISTS n", BOTH, ticket=1, now=pump.now))
    pump.advance(1.0)
    for number in range(1, 7):
        pump.apply("p", writer.publish(a_message(number), ticket=number, now=pump.now))
        pump.apply("plain", plain.publish(a_message(number, publisher="plain"), ticket=number, now=pump.now))
        pump.advance(0.1)
    pump.advance(3.0)
    assert sorted(message.identity.count for _, message in pump.got("a")) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert lanes.pop("plain") == {Lane.BEST_EFFORT}
    assert {"data", "heartbeat", "request", "repair"} <= set(lanes)
    assert lanes.pop("request") == {Lane.SERVICE_CONTROL}
    assert set().union(*lanes.values()) == {Lane.TRANSPORT}


def test_a_publisher_asks_once_for_its_inbox_and_for_requests_about_it() -> None:
    pump, node = connected()
    held = subscribed(node)
    assert [number - FIRST for number in held] == [0, 1]
    pump.change("c", "b0", up=False)
    pump.change("c", "b0", up=True)
    pump.run()
    assert subscribed(node) == held


def test_publishing_while_the_link_is_down_is_refused_and_takes_no_number() -> None:
    pump, node = connected()
    node.publish(a_message(1), ticket=1, now=0.0)
    pump.change("c", "b0", up=False)
    effects = node.publish(a_message(2), ticket=2, now=1.0)
    assert [type(effect) for effect in effects] == [Dropped, Done]
    assert isinstance(effects[1].outcome, Refused)  # type: ignore[union-attr]
    pump.change("c", "b0", up=True)
    pump.run()
    (sent,) = published(node.publish(a_message(3), ticket=3, now=2.0))
    assert decode_header(opened(sent.message)[0], 0, entry_bits=256).sequence == 2


def test_a_message_without_room_for_a_header_is_refused_with_its_ticket() -> None:
    _, node = connected()
    full = a_message(1, {f"a{n}": n for n in range(DEFAULT_LIMITS.attributes_max)})
    (done,) = node.publish(full, ticket=3, now=0.0)
    assert isinstance(done, Done)
    assert isinstance(done.outcome, Refused)
    assert "at most 63" in done.outcome.problem


def test_a_message_without_room_for_a_header_and_without_a_ticket_is_recorded_and_the_others_leave() -> None:
    _, node = connected()
    full = a_message(1, {f"a{n}": n for n in range(DEFAULT_LIMITS.attributes_max)})
    effects = node.publish_all([full, a_message(2)], now=0.0)
    (refused,) = [effect for effect in effects if isinstance(effect, InputRefused)]
    assert refused.sender == "c"
    assert "at most 63" in refused.problem
    assert [opened(sent.message)[1] for sent in published(effects)] == [a_message(2)]


def test_an_application_is_told_the_limits_of_who_sends_its_messages() -> None:
    assert connected()[1]._verbs.limits() == LIMITS
    assert connected(transport=None)[1]._verbs.limits() == DEFAULT_LIMITS


@pytest.mark.parametrize(("when_full", "waits"), [("wait", True), ("drop", False)])
def test_a_publisher_may_have_to_wait_while_a_flow_of_its_is_limited(when_full: Any, waits: bool) -> None:
    _, node = connected(transport=papers_config(congestion=True, when_full=when_full))
    carrier = node._verbs.carrier()
    assert isinstance(carrier, TransportClient)
    assert not carrier.may_wait()
    limited(node, "EXISTS n", 5.0, now=3.0)
    assert [flow.limiting_receiver for flow in transport_of(node).flows()] == ["s"]
    assert carrier.may_wait() is waits


def test_messages_without_tickets_get_headers_too() -> None:
    _, node = connected()
    sent = published(node.publish_all([a_message(1), a_message(2)], now=0.0))
    headers = [decode_header(opened(one.message)[0], 0, entry_bits=256) for one in sent]
    assert [header.sequence for header in headers] == [1, 2]


@pytest.mark.parametrize("where", ["n = = 1", "n >", "x" * 5000])
def test_a_subscription_that_does_not_parse_is_refused_with_its_ticket_like_any_other(where: str) -> None:
    """A plain subscription goes to the broker, which says what is wrong; one with order must not be worse off."""
    for options in (None, services.options({}), ORDERED):
        pump, node = connected()
        pump.apply("c", node.subscribe(1, where, options, ticket=5, now=0.0))
        pump.run()
        (done,) = [done for _, done in pump.done if done.ticket == 5]
        assert isinstance(done.outcome, Refused)
        assert node.reports(1) == {}
        pump.apply("c", node.subscribe(1, "n = 1", options, ticket=6, now=0.0))
        pump.run()
        assert [done.outcome for _, done in pump.done if done.ticket == 6] == [Accepted()]


def test_a_subscription_that_is_refused_here_is_none_of_the_transport() -> None:
    _, node = connected()
    node.subscribe(1, "n = 1", ORDERED, ticket=1, now=0.0)
    effects = node.subscribe(1, "n = 2", BOTH, ticket=2, now=0.0)
    assert [type(effect) for effect in effects] == [Done]
    assert transport_of(node).report(1).delivered == 0
    assert len([n for n in subscribed(node) if n >= SERVICE_SUBSCRIPTIONS]) == 2, "no requests are listened for"


def test_plain_subscriptions_have_no_report_and_those_of_the_transport_have() -> None:
    pump, node = connected()
    for number, options in ((1, services.options({})), (2, ORDERED)):
        pump.apply("c", node.subscribe(number, "n = 1", options, ticket=number, now=0.0))
    assert node.reports(1) == {}
    assert isinstance(node.reports(2)["transport"], TransportReport)
    assert node.reports(3) == {}
    pump.apply("c", node.unsubscribe(2, ticket=4, now=0.0))
    assert node.reports(2) == {}


def test_both_kinds_of_subscription_get_the_same_message() -> None:
    pump, reader = connected("a")
    writer = also(pump, "p")
    pump.apply("a", reader.subscribe(1, "n = 1", ticket=1, now=0.0))
    pump.apply("a", reader.subscribe(2, "n = 1", BOTH, ticket=2, now=0.0))
    pump.run()
    pump.apply("p", writer.publish(a_message(), ticket=1, now=pump.now))
    pump.run()
    assert pump.got("a") == [(1, a_message()), (2, a_message())]


def test_a_reader_without_settings_may_ask_for_order_and_recovery() -> None:
    pump, reader = connected("a", transport=None)
    writer = also(pump, "p", transport=TransportConfig())
    pump.apply("a", reader.subscribe(1, "EXISTS n", BOTH, ticket=1, now=0.0))
    pump.advance(0.1)
    lost: list[int] = []

    def loses(flight: Flight) -> bool:
        packet = flight.packet
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
    report = report_of(reader, 1)
    assert report is not None
    assert (report.delivered, report.recovered, report.lost) == (6, 1, 1)


def test_what_a_ledger_would_have_told_without_a_network_is_told_after_the_next_connection() -> None:
    pump, reader = connected("a", transport=None)
    writer = also(pump, "p", transport=TransportConfig())
    pump.apply("a", reader.subscribe(1, "EXISTS n", BOTH, ticket=1, now=0.0))
    pump.advance(0.1)
    pump.loses = lambda flight: isinstance(flight.packet, Delivery) and "n" in flight.packet.message.attributes
    pump.apply("p", writer.publish(a_message(1), ticket=1, now=pump.now))
    pump.advance(0.1)
    pump.change("p", "b0", up=False)
    pump.advance(30.0)
    pump.loses = lambda flight: False
    pump.change("p", "b0", up=True)
    pump.advance(6.0)
    assert [message.identity.count for _, message in pump.got("a")] == [1]


def test_transport_subscriptions_survive_a_break_of_the_link() -> None:
    pump, reader = connected("a")
    writer = also(pump, "p")
    pump.apply("a", reader.subscribe(1, "EXISTS n", BOTH, ticket=1, now=0.0))
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
    again = ServiceSubscriptionRefused("_to = 'c'", "too many", 1.0)  # it is asked for again
    assert effects == [InputRefused("c", "too many"), again]
    assert node.subscribe(1, "n = 1", ORDERED, ticket=1, now=0.0)[0] == Subscribed(1, "n = 1")


def test_a_subscription_that_the_broker_refuses_is_none_of_the_transport() -> None:
    node = a_node(transport=None)
    node.link_changed(0, up=True, now=0.0)
    effects = [*node.link_ready(0, room_bytes=1 << 30, now=0.0)]
    effects += node.subscribe(1, "n = 1", BOTH, ticket=1, now=0.0)
    packets = [effect.packet for effect in effects if isinstance(effect, Send)]
    asked = {packet.subscription: packet.ticket for packet in packets if isinstance(packet, Subscribe)}
    node.receive([Answer(asked[1], "the broker is full")], sender=0, now=0.0)
    assert node.reports(1) == {}
    assert not [number for number in subscribed(node) if number > FIRST]


def test_a_priority_goes_down_to_the_transport_subscription() -> None:
    _, node = connected(transport=papers_config(congestion=True))
    node.subscribe(1, "a", services.options({"priority": 2.0}), ticket=1, now=0.0)
    node.subscribe(2, "b", ticket=2, now=0.0)
    assert [flow.priority for flow in transport_of(node)._feedback_scheduler._receiver_flows.kept] == [2.0, 1.0]


@pytest.mark.parametrize("began", [-5000.0, 0.0, 5000.0])
def test_a_reader_that_is_behind_is_followed_by_the_transport_whatever_the_clock_says(began: float) -> None:
    """A machine's time may be anything: the node's clock, wrong by as much as it likes."""
    config = papers_config(congestion=True)
    _, writer = connected("p", transport=config)
    reader = a_node(transport=config)
    reader.link_changed(0, up=True, now=began)
    reader.subscribe(1, "EXISTS n", ticket=1, now=began)

    def read(start: int, end: int, waiting: int) -> float | None:
        for step in range(start, end):  # 20 each second
            messages = [a_message(count) for count in range(5 * step, 5 * step + 5)]
            for sent in published(writer.publish_all(messages, now=0.05 * step)):
                reader.receive([Delivery((1,), sent.message, sent.lane)], sender=0, now=began + 0.05 * step)
            assert reader.read(1, Reading(2, waiting, 100), now=began + 0.05 * step) == []
        return transport_of(reader).control(1).allowed_rate

    assert read(0, 40, waiting=10) is None
    assert read(40, 80, waiting=30) == pytest.approx(40.0 * 0.9, rel=0.05), "less than its pace: the queue is too full"
    assert read(80, 120, waiting=0) is None


def test_what_a_reader_was_too_slow_for_is_a_loss_and_other_subscriptions_are_none_of_its_business() -> None:
    config = papers_config(congestion=True)
    _, writer = connected("p", transport=config)
    reader = a_node(transport=config)
    reader.link_changed(0, up=True, now=0.0)
    reader.subscribe(1, "EXISTS n", ticket=1, now=0.0)
    for count in range(1, 101):
        (sent,) = published(writer.publish(a_message(count), ticket=count, now=0.01 * count))
        reader.receive([Delivery((1,), sent.message, sent.lane)], sender=0, now=0.01 * count)
    assert not transport_of(reader).control().loss_event_rate
    reader.read(2, Reading(0, 100, 100, (a_message(7),)), now=1.0)
    assert not transport_of(reader).control().loss_event_rate
    reader.read(1, Reading(0, 100, 100, (a_message(7),)), now=1.0)
    assert transport_of(reader).control().loss_event_rate


def test_a_publication_that_waits_can_be_withdrawn_by_its_ticket() -> None:
    _, node = connected(transport=papers_config(congestion=True, record_entries=2))
    limited(node, "EXISTS n", 1.0, now=0.0)
    tickets = range(1, 5)
    effects = [one for ticket in tickets for one in node.publish(a_message(ticket), ticket=ticket, now=0.0)]
    waiting = [ticket for ticket in tickets if Done(ticket, Accepted()) not in effects]
    assert len(waiting) >= 2
    done = node.withdraw(waiting[0], now=0.0)
    assert done == [Done(waiting[0], Refused("withdrawn before it left"))]
    assert node.withdraw(waiting[0], now=0.0) == [] == node.withdraw(99, now=0.0)
    left = published(node.wake(now=5.0))
    assert [opened(sent.message)[1].identity.count for sent in left if kind_of(sent.message) == "data"] == waiting[1:]

"""The order to trace: who follows which, for how long, and who is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.content.message import DEFAULT_LIMITS
from penstock.errors import InvalidPacket
from penstock.kernel.link import LinkInfo
from penstock.kernel.machine import Done, Effect, Refused, Reported, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import InputRefused
from penstock.overlay.guard import LIFE_SLACK
from penstock.tracing.broker_service import CHANGES_MAX, TracingBroker
from penstock.tracing.client_service import ASKED_MAX, TracingClient
from penstock.tracing.packets import ONE_IN_MAX, SECONDS_MAX, TraceOrder, TraceRequest, TraceState
from penstock.tracing.records import TracingSwitched
from penstock.tracing.timers import TracingTimer

NOW = 1_000.0  # seconds
WEST, EAST, CLIENT = 1, 2, 3  # links of a broker


def context() -> tuple[Context, Timers]:
    links = {WEST: LinkInfo("west", broker=7), EAST: LinkInfo("east", broker=8), CLIENT: LinkInfo("reader")}
    timers = Timers()
    made: Any = SimpleNamespace(links=links, timers=ServiceTimers("tracing", timers, TracingTimer))
    return cast(Context, made), timers


def a_broker(*up: int) -> tuple[TracingBroker, Timers]:
    given, timers = context()
    broker = TracingBroker(given)
    for link in up:
        assert broker.link_changed(link, up=True, now=NOW) == []
    return broker, timers


def sent(effects: list[Effect]) -> list[tuple[tuple[int, ...], Packet]]:
    return [(effect.to, effect.packet) for effect in effects if isinstance(effect, Send)]


def request(broker: TracingBroker, seconds: int, one_in: int = 0, now: float = NOW) -> list[Effect]:
    return broker.receive([TraceRequest(9, True, seconds, one_in)], sender=CLIENT, now=now)


def test_a_command_switches_the_broker_and_is_flooded() -> None:
    broker, timers = a_broker(WEST, CLIENT)
    effects = request(broker, 60, one_in=4)
    number = int(NOW * 1_000)
    order = TraceOrder(number, number, 60_000, 4)
    assert effects == [
        TracingSwitched(True, 4),
        Send((WEST, CLIENT), order, Lane.CONTROL),
        Send((CLIENT,), TraceState(9, number, 60_000, 4), Lane.CONTROL),
    ]
    assert timers.deadline() == NOW + 60.0
    assert broker.link_changed(EAST, up=True, now=NOW + 20.0) == [
        Send((EAST,), TraceOrder(number, number, 40_000, 4), Lane.CONTROL)
    ]


def test_it_ends_by_itself_and_a_broker_that_comes_later_is_told_so() -> None:
    broker, _ = a_broker(CLIENT)
    request(broker, 60)
    assert broker.expired(TracingTimer.END, (), now=NOW + 60.0) == [TracingSwitched(False, 1)]
    assert broker.expired(TracingTimer.END, (), now=NOW + 61.0) == []
    ((to, order),) = sent(broker.link_changed(WEST, up=True, now=NOW + 70.0))
    assert to == (WEST,)
    assert isinstance(order, TraceOrder)
    assert order.milliseconds == 0
    assert broker.link_changed(CLIENT, up=True, now=NOW + 70.0) == [], "a client has nothing to end"


def test_a_command_prolongs_and_never_shortens_except_that_it_ends() -> None:
    broker, timers = a_broker(CLIENT)
    request(broker, 600, one_in=5)
    request(broker, 60, now=NOW + 10.0)
    assert timers.deadline() == pytest.approx(NOW + 600.0)
    state = broker.receive([TraceRequest(1, False, 0, 0)], sender=CLIENT, now=NOW + 10.0)
    assert sent(state) == [((CLIENT,), TraceState(1, int(NOW * 1_000), 590_000, 5))], "since and one in stay"
    assert TracingSwitched(False, 5) in request(broker, 0, now=NOW + 11.0)
    assert timers.deadline() is None


def test_the_order_with_the_highest_number_counts_and_goes_on() -> None:
    broker, _ = a_broker(WEST, EAST, CLIENT)
    order = TraceOrder(5_000, 4_000, 30_000, 2)
    assert broker.receive([order], sender=WEST, now=NOW) == [
        TracingSwitched(True, 2),
        Send((EAST, CLIENT), order, Lane.CONTROL),
    ]
    assert broker.receive([order, TraceOrder(4_999, 0, 0, 1)], sender=EAST, now=NOW) == []
    broker.link_changed(EAST, up=False, now=NOW)
    off = TraceOrder(5_001, 4_000, 0, 2)
    assert broker.receive([off], sender=WEST, now=NOW) == [
        TracingSwitched(False, 2),
        Send((CLIENT,), off, Lane.CONTROL),
    ]


def test_an_order_that_nobody_could_outbid_is_refused() -> None:
    broker, _ = a_broker(WEST, EAST)
    ahead = TraceOrder(int(NOW * 1_000) + LIFE_SLACK + 1, 0, 1_000, 1)
    assert broker.receive([ahead], sender=WEST, now=NOW) == [
        InputRefused("west", "an order to trace whose number lies ahead")
    ]


def test_a_client_that_orders_without_end_does_not_flood_the_network() -> None:
    broker, _ = a_broker(WEST, CLIENT)
    for _ in range(CHANGES_MAX):
        assert request(broker, 60, one_in=2)
    refused, answer = request(broker, 60, one_in=3, now=NOW + 0.5)
    assert refused == InputRefused("reader", "more than 10 orders to trace in a second")
    assert sent([answer])[0][0] == (CLIENT,)
    assert TracingSwitched(True, 3) in request(broker, 60, one_in=3, now=NOW + 1.5)


@pytest.mark.parametrize(
    "packet",
    [
        TraceOrder(1, 1, SECONDS_MAX * 1_000 + 1, 1),
        TraceOrder(1, 1, 1, 0),
        TraceOrder(1, 1, 1, ONE_IN_MAX + 1),
        TraceOrder(-1, 1, 1, 1),
        TraceRequest(1, True, SECONDS_MAX + 1, 1),
        TraceRequest(1, True, 1, ONE_IN_MAX + 1),
    ],
)
def test_what_cannot_be_ordered_is_no_packet(packet: Packet) -> None:
    with pytest.raises(InvalidPacket):
        packet.checked(DEFAULT_LIMITS)


def test_a_client_follows_its_broker_and_asks_it() -> None:
    given, _ = context()
    client = TracingClient(given)
    assert client.receive([TraceOrder(5, 3, 30_000, 2)], sender=0, now=NOW) == [TracingSwitched(True, 2)]
    assert client.receive([TraceOrder(6, 3, 40_000, 2)], sender=0, now=NOW) == [], "it goes on"
    assert client.receive([TraceOrder(7, 3, 40_000, 3)], sender=0, now=NOW) == [TracingSwitched(True, 3)]
    assert client.expired(TracingTimer.END, (), now=NOW + 40.0) == [TracingSwitched(False, 3)]
    asked = client.ask(0, 1, change=True, seconds=60, one_in=4)
    assert asked == [Send((0,), TraceRequest(1, True, 60, 4), Lane.CONTROL)]
    answers = [TraceState(1, 2_000, 60_000, 4), TraceState(1, 2_000, 60_000, 4), TraceState(8, 0, 0, 1)]
    assert client.receive(answers, sender=0, now=NOW) == [
        Done(1, Reported({"on": True, "since": 2.0, "seconds_left": 60.0, "one_in": 4}))
    ]


def test_requests_that_nobody_answers_are_bounded() -> None:
    client = TracingClient(context()[0])
    for ticket in range(ASKED_MAX):
        client.ask(0, ticket, change=False)
    (refused,) = client.ask(0, ASKED_MAX, change=False)
    assert isinstance(refused, Done)
    assert isinstance(refused.outcome, Refused)
    client.forget(0)
    assert sent(client.ask(0, ASKED_MAX, change=False))

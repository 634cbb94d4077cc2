"""Confirmation: a client learns when all brokers know what it wants, at two packets a link, whatever is lost."""

from __future__ import annotations

from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.machine import Done, Reported, Send
from penstock.overlay.confirmation import ROUNDS_IN_FLIGHT, SILENT_AFTER, WAITING_PER_CLIENT_MAX
from penstock.overlay.guard import CONFIRM_BURST
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Confirmation, ConfirmRequest, Interest, Ready, ReadyRequest
from penstock.overlay.routing import Routing
from penstock.testing import ClientMachine, Pump, a_broker, attach, broker_name, broker_network

CHAIN = [(0, 1), (1, 2), (2, 3)]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
READY = 77


def subscribe(pump: Pump, client: ClientMachine, where: str, *, number: int = 9, within: float = 5.0) -> None:
    """Subscribe and ask for readiness, as the live client does: nothing is handed over yet."""
    pump.apply("c", client.subscribe(number, where, ticket=number, now=pump.now))
    pump.apply("c", client.await_ready(within, ticket=READY))


def answers(pump: Pump) -> list[tuple[str, ...]]:
    """For each readiness that was answered, who had not confirmed."""
    outcomes = [done.outcome for name, done in pump.done if name == "c" and done.ticket == READY]
    return [tuple(outcome.report["unconfirmed"]) for outcome in outcomes if isinstance(outcome, Reported)]


def knows(pump: Pump, number: int, value: int = 1) -> bool:
    """Whether this broker would send a message with n = value to where the client is."""
    node = pump.machines[broker_name(number)]
    assert isinstance(node, Node)
    found, _ = node.machine(Routing).form.wanting([{"n": value}])
    return found == [(0,)]


@pytest.mark.parametrize(
    "edges", [CHAIN, RING, [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3)]], ids=["chain", "ring", "mesh"]
)
def test_the_answer_comes_when_the_last_broker_knows_and_costs_two_packets_a_link(edges: list[tuple[int, int]]) -> None:
    pump = broker_network(edges)
    client = attach(pump, "c", "b0")
    subscribe(pump, client, "n = 1")
    seen: list[str] = []
    pump.loses = lambda flight: bool(seen.append(flight.kind))
    pump.run()
    assert answers(pump) == []
    pump.advance(0.02)
    assert answers(pump) == [()]
    assert all(knows(pump, number) for number in range(1, 4))
    assert seen.count("ConfirmRequest") + seen.count("Confirmation") == 2 * len(edges)


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_no_answer_comes_before_every_broker_knows_in_any_order_of_packets(seed: int) -> None:
    random = Random(seed)
    graph = nx.gnp_random_graph(8, 0.3, seed=seed)
    reached = sorted(nx.node_connected_component(graph, 0))
    pump = broker_network(list(graph.edges) or [(0, 1)], numbers=8)
    client = attach(pump, "c", "b0")
    subscribe(pump, client, "n = 1")
    pump.run()
    pump.now += 0.01
    pump.apply("b0", pump.machines["b0"].wake(now=pump.now))
    while pump.flights and not answers(pump):
        first: dict[tuple[str, str], int] = {}  # links keep the order of what they carry
        for place, flight in enumerate(pump.flights):
            first.setdefault((flight.sender, flight.receiver), place)
        pump.deliver(random.choice(list(first.values())))
    pump.run() if answers(pump) else None
    if len(reached) > 1 and graph.number_of_edges():
        assert answers(pump) == [()]
        assert all(knows(pump, number) for number in reached if number)


@pytest.mark.parametrize("kind", [ConfirmRequest, Confirmation, Interest, (ConfirmRequest, Confirmation)])
@pytest.mark.parametrize("edges", [CHAIN, RING], ids=["chain", "ring"])
def test_lost_packets_are_asked_for_again(edges: list[tuple[int, int]], kind: type) -> None:
    pump = broker_network(edges)
    client = attach(pump, "c", "b0")
    subscribe(pump, client, "n = 1", within=20.0)
    lost: list[object] = []
    random = Random(1)

    def loses(flight: object) -> bool:
        if isinstance(flight.packet, kind) and random.random() < 0.3:  # type: ignore[attr-defined]
            lost.append(flight)
            return True
        return False

    pump.loses = loses
    pump.advance(15.0)
    assert lost
    assert answers(pump) == [()]
    assert all(knows(pump, number) for number in range(1, 4))


def test_whoever_has_waited_long_enough_is_told_who_has_not_confirmed() -> None:
    pump = broker_network(CHAIN)
    client = attach(pump, "c", "b0")
    pump.loses = lambda flight: flight.receiver == "b3" and isinstance(flight.packet, Interest | ConfirmRequest)
    subscribe(pump, client, "n = 1", within=1.9)
    pump.advance(1.8)
    assert answers(pump) == []
    pump.advance(0.2)
    assert answers(pump) == [("broker 3",)]


def test_a_neighbour_that_does_not_confirm_is_named() -> None:
    pump = broker_network([(0, 1)])
    client = attach(pump, "c", "b0")
    pump.loses = lambda flight: isinstance(flight.packet, ConfirmRequest)
    subscribe(pump, client, "n = 1", within=0.1)
    pump.advance(0.2)
    assert answers(pump) == [("broker 1",)]


def test_a_broker_that_cannot_be_reached_any_more_is_waited_for_no_longer() -> None:
    pump = broker_network(CHAIN)
    client = attach(pump, "c", "b0")
    pump.loses = lambda flight: flight.receiver == "b3"
    subscribe(pump, client, "n = 1", within=20.0)
    pump.advance(1.0)
    assert answers(pump) == []
    pump.change("b2", "b3", up=False)
    pump.advance(0.6)
    assert answers(pump) == [()]


def test_a_neighbour_that_never_answers_makes_one_subscriber_wait_and_is_named_to_all() -> None:
    pump = broker_network(CHAIN)
    client = attach(pump, "c", "b0")
    answering = [False]
    pump.loses = lambda flight: (
        not answering[0] and flight.sender == "b3" and isinstance(flight.packet, ConfirmRequest | Confirmation)
    )
    subscribe(pump, client, "n = 1", within=20.0)
    pump.advance(SILENT_AFTER + 1.0)
    assert answers(pump) == [("broker 3",)]
    subscribe(pump, client, "n = 2", number=10, within=20.0)
    pump.advance(0.02)
    assert answers(pump) == [("broker 3",)] * 2
    answering[0] = True
    subscribe(pump, client, "n = 3", number=11, within=20.0)
    pump.advance(0.02)
    subscribe(pump, client, "n = 4", number=12, within=20.0)
    pump.advance(0.02)
    assert answers(pump)[-1] == ()


def test_a_neighbour_that_says_for_ever_that_it_lacks_it_makes_one_subscriber_wait() -> None:
    pump = broker_network([(0, 1), (0, 2)])
    client = attach(pump, "c", "b0")
    pump.loses = lambda flight: flight.receiver == "b2" and isinstance(flight.packet, Interest)
    for number in range(4):
        subscribe(pump, client, f"n = {number}", number=10 + number, within=20.0)
        pump.advance(SILENT_AFTER + 1.0 if not number else 0.1)
        assert answers(pump)[number:] == [("broker 2",)]


def test_a_broker_that_comes_later_is_waited_for_by_whoever_asks_later() -> None:
    pump = broker_network([(0, 1)])
    client = attach(pump, "c", "b0")
    subscribe(pump, client, "n = 1")
    pump.advance(0.1)
    pump.add("b2", a_broker(2))
    pump.connect("b1", "b2")
    pump.advance(1.0)
    pump.loses = lambda flight: flight.receiver == "b2" and isinstance(flight.packet, ConfirmRequest)
    pump.apply("c", client.await_ready(0.3, ticket=READY))
    pump.advance(0.5)
    assert answers(pump) == [(), ("broker 1",)]


def test_a_version_that_nobody_has_goes_no_further() -> None:
    pump = broker_network(CHAIN)
    effects = pump.receive("b1", ConfirmRequest(2, 1, 99), sender=pump.link("b1", "b0"))
    assert effects == []
    effects = [
        effect
        for version in range(100, 5_000)
        for effect in pump.receive("b1", ConfirmRequest(0, 1, version, True), sender=pump.link("b1", "b0"))
    ]
    assert not [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.packet, ConfirmRequest)]
    assert len([effect for effect in effects if isinstance(effect, Send)]) <= CONFIRM_BURST


def test_one_client_cannot_take_all_the_places_of_those_who_wait() -> None:
    pump = broker_network([(0, 1)])
    client = attach(pump, "c", "b0")
    pump.loses = lambda flight: isinstance(flight.packet, Confirmation)
    subscribe(pump, client, "n = 1", within=3.0)
    for _ in range(WAITING_PER_CLIENT_MAX + 10):
        pump.apply("c", client.await_ready(3.0, ticket=READY))
    pump.advance(1.0)
    assert len(answers(pump)) == 11
    assert "too many" in answers(pump)[0][0]


def test_what_all_know_already_is_answered_at_once() -> None:
    pump = broker_network(CHAIN)
    client = attach(pump, "c", "b0")
    subscribe(pump, client, "n = 1")
    pump.advance(0.02)
    subscribe(pump, client, "n = 1 AND m = 2", number=10)  # covered: nobody needs to hear of it
    seen: list[str] = []
    pump.loses = lambda flight: bool(seen.append(flight.kind))
    pump.advance(0.02)
    assert answers(pump) == [(), ()]
    assert not {"Interest", "ConfirmRequest"} & set(seen)


def test_a_broker_alone_answers_at_once() -> None:
    pump = broker_network([], numbers=1)
    client = attach(pump, "c", "b0")
    subscribe(pump, client, "n = 1")
    pump.advance(0.02)
    assert answers(pump) == [()]


def test_many_subscriptions_share_a_few_rounds() -> None:
    pump = broker_network(CHAIN)
    client = attach(pump, "c", "b0")
    held = [True]
    rounds: set[int] = set()

    def loses(flight: object) -> bool:
        packet = flight.packet  # type: ignore[attr-defined]
        if isinstance(packet, ConfirmRequest):
            rounds.add(packet.version)
        return held[0] and isinstance(packet, Confirmation)

    pump.loses = loses
    for number in range(20):
        subscribe(pump, client, f"n = {number}", number=number)
        pump.advance(0.02)
    assert len(rounds) <= ROUNDS_IN_FLIGHT
    held[0] = False
    pump.advance(1.5)
    assert answers(pump) == [()] * 20
    assert len(rounds) <= ROUNDS_IN_FLIGHT + 2


def test_a_client_that_left_is_not_waited_for_and_asks_again_when_it_is_back() -> None:
    pump = broker_network(CHAIN)
    client = attach(pump, "c", "b0")
    pump.loses = lambda flight: isinstance(flight.packet, Confirmation)
    subscribe(pump, client, "n = 1", within=20.0)
    pump.advance(0.1)
    pump.change("c", "b0", up=False)
    pump.loses = lambda flight: False
    pump.advance(1.0)
    assert answers(pump) == []
    pump.change("c", "b0", up=True)
    pump.advance(0.1)
    assert answers(pump) == [()]


def test_nobody_but_a_client_can_ask_for_readiness() -> None:
    pump = broker_network(CHAIN)
    effects = pump.receive("b0", ReadyRequest(1, 1.0), sender=pump.link("b0", "b1"))
    assert [type(effect.packet) for effect in effects if isinstance(effect, Send)] == [Answer]


def test_a_ready_that_nobody_waits_for_is_no_answer() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "c", "b0")
    assert [e for e in pump.receive("c", Ready(5), sender=0) if isinstance(e, Done)] == []

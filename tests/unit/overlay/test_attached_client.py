"""What one client may do at its home broker: publish in its own name, read its own inbox, ask for its share."""

from __future__ import annotations

import pytest

from penstock.content.envelope import control_name
from penstock.content.message import INBOX, Identity, Message, make_message
from penstock.kernel.link import LinkInfo
from penstock.kernel.machine import Effect, Send
from penstock.kernel.trace import Dropped, InputRefused
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.attached_client import RECORDS_BURST
from penstock.overlay.broker import Broker
from penstock.overlay.config import BrokerConfig, RoutingConfig
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Attach, Publish, Ready, ReadyRequest, Subscribe, Unsubscribe
from penstock.testing import Pump, a_broker, a_message, attach, broker_network, publish


def configured(routing: RoutingConfig | None = None, **broker: float) -> NodeConfig:
    return NodeConfig(
        services={"forwarding": BrokerConfig(**broker), "routing": routing or RoutingConfig()}  # type: ignore[arg-type]
    )


def addressed(name: str, publisher: str = "p") -> Message:
    return make_message(Identity(publisher, 1, 1), {INBOX: name, "n": 1}, reserved=True)


def held(pump: Pump, client: str) -> int:
    node = pump.machines["b0"]
    assert isinstance(node, Node)
    return node.machine(Broker).subscriptions_of(pump.link("b0", client))


def broker(pump: Pump) -> Broker:
    node = pump.machines["b0"]
    assert isinstance(node, Node)
    return node.machine(Broker)


def problems(effects: list[Effect]) -> list[str]:
    """The answers among these, as their problems."""
    answers = [effect.packet for effect in effects if isinstance(effect, Send)]
    return [packet.problem for packet in answers if isinstance(packet, Answer)]


# Identity.


@pytest.mark.parametrize("publisher", ["bank", control_name("bank"), control_name(control_name("p")), ""])
def test_a_client_publishes_under_its_own_name_only(publisher: str) -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "reader", "b1", "EXISTS n")
    attach(pump, "near", "b0", "EXISTS n")
    attach(pump, "p", "b0")
    pump.advance(0.1)
    false, true = a_message(1, publisher=publisher), a_message(2)
    pump.receive("b0", Publish(false), Publish(true), sender=pump.link("b0", "p"))
    pump.run()
    assert pump.got("reader") == pump.got("near") == [(1, true)]
    (dropped,) = pump.records_of("b0", Dropped)
    assert (dropped.cause, dropped.publisher) == ("not its name", publisher)  # type: ignore[attr-defined]
    (refused,) = pump.records_of("b0", InputRefused)
    assert refused.sender == "p"  # type: ignore[attr-defined]
    assert "own name" in refused.problem  # type: ignore[attr-defined]


def test_the_services_of_a_client_publish_under_its_name_with_a_mark() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "near", "b0", "EXISTS n")
    attach(pump, "p", "b0")
    pump.receive("b0", Publish(a_message(1, publisher=control_name("p"))), sender=pump.link("b0", "p"))
    pump.run()
    assert len(pump.got("near")) == 1


def test_no_clients_name_looks_like_that_of_anothers_services() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, control_name("p"), "b0", "EXISTS n")
    assert held(pump, control_name("p")) == 0


def test_a_client_attaches_under_the_name_that_it_connected_with() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0, links={0: LinkInfo("carl")}))
    pump.join("b0", "carl")
    pump.link_changed("b0", 0, up=True)
    effects = pump.receive("b0", Attach("bank", 1), Subscribe(1, 1, "EXISTS n"), sender=0)
    assert "attached as 'bank' and connected as 'carl'" in effects[0].problem  # type: ignore[union-attr]
    assert problems(effects) != [""]
    assert problems(pump.receive("b0", Attach("carl", 1), Subscribe(2, 1, "EXISTS n"), sender=0)) == [""]


# Inboxes.


def test_a_message_with_an_address_goes_to_nobody_else() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "anna", "b0", f"{INBOX} = 'anna'", "EXISTS n")
    attach(pump, "curious", "b0", "EXISTS n", "TRUE", "n = 1")
    attach(pump, "faraway", "b1", "TRUE")
    attach(pump, "p", "b1")
    pump.advance(0.1)
    publish(pump, "p", addressed("anna"))
    pump.run()
    assert [number for number, _ in pump.got("anna")] == [1, 2]
    assert pump.got("curious") == pump.got("faraway") == []


@pytest.mark.parametrize("where", ["{0} = 'anna'", "{0} LIKE 'a%'", "EXISTS {0}", "n = 1 OR {0} <> 'curious'"])
def test_a_client_subscribes_to_its_own_inbox_only(where: str) -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "curious", "b0")
    asked = Subscribe(1, 1, where.format(INBOX))
    (problem,) = problems(pump.receive("b0", asked, sender=pump.link("b0", "curious")))
    assert f"{INBOX} = 'curious'" in problem
    own = Subscribe(1, 1, f"{INBOX} = 'curious' OR (n = 1 AND {INBOX} IS NULL)")
    assert problems(pump.receive("b0", own, sender=pump.link("b0", "curious"))) == [""]


# Its share.


def test_one_client_cannot_use_up_the_room_for_interest() -> None:
    room = RoutingConfig(interest_room_per_broker_max=64 * 70)  # `n = 1` takes 70
    pump = broker_network([], numbers=1, config=configured(room, client_share=4))
    attach(pump, "greedy", "b0")
    attach(pump, "modest", "b0")
    greedy = pump.link("b0", "greedy")
    packets = [Subscribe(number, number, f"n = {number}") for number in range(100)]
    answers = problems(pump.receive("b0", *packets, sender=greedy))
    pump.advance(1.0)
    assert answers[:16] == [""] * 16
    assert all("client_share" in problem for problem in answers[16:])
    assert problems(pump.receive("b0", Subscribe(1, 1, "n = 500"), sender=pump.link("b0", "modest"))) == [""]
    pump.receive("b0", Unsubscribe(1, 3), sender=greedy)
    assert problems(pump.receive("b0", Subscribe(1, 700, "m = 7"), sender=greedy)) == [""]


# Its rate.


def test_a_client_may_make_all_its_subscriptions_at_once() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "eager", "b0")
    link = pump.link("b0", "eager")
    most = BrokerConfig().subscriptions_per_client_max
    packets = [Subscribe(number, number, "n = 1") for number in range(most)]
    assert problems(pump.receive("b0", *packets, sender=link)) == [""] * 100  # the others wait their turn
    held = broker(pump).subscriptions_of
    pump.advance(1.0)
    assert held(link) == most
    pump.receive("b0", *[Unsubscribe(1, number) for number in range(most)], sender=link)
    pump.advance(1.0)
    assert held(link) == 0
    pump.receive("b0", *packets, sender=link)
    pump.advance(1.0)
    assert held(link) == most


def test_the_verbs_of_one_client_do_not_keep_another_waiting() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "eager", "b0")
    attach(pump, "modest", "b0")
    pump.advance(1.0)
    packets = [Subscribe(number, number, "n = 1") for number in range(1_000)]
    pump.receive("b0", *packets, sender=pump.link("b0", "eager"))
    modest = pump.link("b0", "modest")
    pump.receive("b0", Subscribe(1, 1, "n = 2"), sender=modest)
    pump.advance(0.01)
    assert broker(pump).subscriptions_of(modest) == 1
    assert broker(pump).subscriptions_of(pump.link("b0", "eager")) < 200


def test_long_texts_count_more_than_short_ones() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "eager", "b0")
    pump.advance(1.0)
    text = " OR ".join(f"name{number} <> 'value{number}'" for number in range(32))
    assert 700 < len(text) < 800
    packets = [Subscribe(number, number, text) for number in range(60)]
    pump.receive("b0", *packets, sender=pump.link("b0", "eager"))
    assert broker(pump).subscriptions_of(pump.link("b0", "eager")) == 2
    pump.advance(1.0)
    assert broker(pump).subscriptions_of(pump.link("b0", "eager")) <= 22


def test_a_ready_comes_after_the_subscriptions_before_it_although_they_wait() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "eager", "b0")
    packets = [Subscribe(number, number, f"n = {number}") for number in range(500)]
    ready: list[int] = []
    link = pump.link("b0", "eager")
    pump.loses = lambda flight: (
        isinstance(flight.packet, Ready) and not ready.append(broker(pump).subscriptions_of(link))
    )
    pump.receive("b0", *packets, ReadyRequest(7, 5.0), sender=link)
    pump.advance(1.0)
    assert ready == [500]


def test_what_is_too_many_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    pump = broker_network([], numbers=1, config=configured(subscriptions_per_client_max=3))
    attach(pump, "eager", "b0", "n = 1", "n = 2", "n = 3")

    def never(text: str) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("penstock.overlay.broker.parse_predicate", never)
    (problem,) = problems(pump.receive("b0", Subscribe(9, 9, "n = 4"), sender=pump.link("b0", "eager")))
    assert problem == "the limit subscriptions_per_client_max is 3"


def test_a_flood_of_verbs_is_neither_parsed_nor_answered_nor_recorded_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pump = broker_network([], numbers=1, config=configured(verbs_burst=50, verbs_rate=10))
    attach(pump, "flood", "b0")
    link, parsed = pump.link("b0", "flood"), []
    from penstock.overlay import broker as module

    real = module.parse_predicate
    monkeypatch.setattr(module, "parse_predicate", lambda text: parsed.append(text) or real(text))
    effects = pump.receive("b0", *[Subscribe(n, 0, "n = 1") for n in range(5_000)], sender=link)
    assert len(parsed) == 50
    answers = problems(effects)
    assert answers[:50] == [""] * 50
    assert len(answers) == 100
    assert all("too many at once" in problem for problem in answers[50:])
    assert len(pump.records_of("b0", InputRefused)) <= RECORDS_BURST
    again = pump.receive("b0", Attach("flood", 1), Subscribe(1, 0, "n = 1"), sender=link)
    assert problems(again) == []  # to attach again is no new budget
    pump.advance(1.0)
    assert problems(pump.receive("b0", Subscribe(1, 0, "n = 1"), sender=link)) == [""]


def test_who_has_not_attached_gets_few_answers() -> None:
    pump = broker_network([], numbers=1)
    pump.join("b0", "nobody")
    pump.link_changed("b0", 0, up=True)
    effects = pump.receive("b0", *[Subscribe(n, n, "n = 1") for n in range(5_000)], sender=0)
    assert 0 < len(problems(effects)) <= 100

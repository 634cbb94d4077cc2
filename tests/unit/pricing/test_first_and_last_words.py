"""What a client says right after it has connected, and right before it goes."""

from __future__ import annotations

from penstock.content.message import Identity, make_message
from penstock.kernel.machine import Refused
from penstock.overlay.packets import Publication, Publish
from penstock.pricing import senders
from penstock.pricing.config import PricingClientConfig
from penstock.pricing.packets import PricedClasses
from penstock.testing import a_client
from penstock.transport.config import TransportConfig
from priced_network import PricedNetwork


def a_stranger(network: PricedNetwork, name: str = "sender") -> None:
    """A client whose link has just come up: nothing has been heard."""
    network.pump.add(name, a_client(name))
    network.pump.connect(name, "b0")


def a_line(**config: object) -> PricedNetwork:
    network = PricedNetwork(**config)  # type: ignore[arg-type]
    network.client("receiver", "b2", "topic = 'freight'")
    return network


def taken_over(network: PricedNetwork, *counts: int, name: str = "sender") -> None:
    """Published plainly by a client that does not care for prices."""
    link = network.pump.link("b0", name)
    for count in counts:
        message = make_message(Identity(name, 1, count), {"topic": "freight"}, b"")
        network.pump.receive("b0", Publish(message), sender=link)


def test_what_is_published_before_the_classes_are_known_waits_for_them_and_nothing_is_lost():
    network = a_line(held_max=4)
    a_stranger(network)
    for _ in range(50):
        network.publish("sender")
    assert network.answers("sender") == {}
    network.pump.advance(30.0)
    assert network.got("receiver") == network.accepted("sender") == list(range(1, 51))
    assert network.drops("b0") == network.drops("sender") == []


def test_what_turns_out_not_to_be_priced_goes_its_usual_way_in_order():
    network = a_line(first_balance=0.0)
    network.client("all", "b1", "TRUE")
    a_stranger(network)
    for number in range(6):
        network.publish("sender", {"topic": "freight" if number % 2 else "news"})
    assert not network.pump.in_flight(Publish)
    network.pump.advance(0.2)  # three at once are a burst, and wait a moment (rates.slow_start)
    assert network.got("all") == network.accepted("sender") == [1, 3, 5]
    network.pump.advance(5.0)
    assert network.got("receiver") == [2, 4, 6]


def test_a_transport_gets_what_is_not_priced_and_nothing_that_is():
    network = a_line(first_balance=5.0)
    network.client("all", "b1", "TRUE")
    network.pump.add("sender", a_client("sender", settings={"transport": TransportConfig()}))
    network.pump.connect("sender", "b0")
    for number in range(4):
        network.publish("sender", {"topic": "freight" if number % 2 else "news"})
    network.pump.advance(5.0)
    assert network.bought() == [2, 4]
    assert sorted(network.got("all")) == [1, 2, 3, 4]


def test_a_link_that_breaks_before_the_classes_are_known_refuses_what_nobody_priced():
    network = a_line()
    a_stranger(network)
    network.publish("sender")
    network.pump.change("sender", "b0", up=False)
    assert isinstance(network.answers("sender")[1], Refused)
    assert network.drops("sender") == ["not connected"]


def test_after_a_reconnection_everything_waits_for_the_classes_of_the_new_broker():
    network = a_line(first_balance=5.0)
    network.client("sender", "b0")
    network.pump.change("sender", "b0", up=False)
    network.pump.change("sender", "b0", up=True)
    network.publish("sender")
    network.publish("sender", {"topic": "news"})
    assert not network.pump.in_flight(Publish)
    network.pump.advance(1.0)
    assert network.bought() == [1]
    assert sorted(network.accepted("sender")) == [1, 2]


def test_a_class_that_cannot_be_read_stops_nobody():
    network = a_line()
    a_stranger(network)
    network.publish("sender")
    network.pump.receive("sender", PricedClasses(("topic = ",), 4), sender=0)
    assert len(network.pump.in_flight(Publish)) == 1


def test_who_need_not_wait_for_classes_does_not():
    network = PricedNetwork(classes=())
    network.client("receiver", "b2", "TRUE")
    settings = {"pricing": PricingClientConfig(waits_for_classes=False)}
    network.pump.add("sender", a_client("sender", settings=settings))
    network.pump.connect("sender", "b0")
    network.publish("sender")
    assert network.accepted("sender") == [1]
    network.pump.run()
    assert any(isinstance(flight.packet, Publication) for flight in network.seen)


def test_what_was_taken_over_is_bought_after_its_client_has_gone():
    network = a_line(first_balance=0.0)
    network.client("sender", "b0")
    taken_over(network, 1, 2, 3)
    network.pump.change("sender", "b0", up=False)
    assert network.service("b0").status().waiting_in_all == 1
    network.pump.advance(5.0)
    assert network.got("receiver") == [1, 2, 3]
    assert network.drops("b0") == []
    assert len(network.service("b0")._senders) == 0


def test_a_client_that_comes_back_finds_its_accounts_as_they_are():
    """Or going and coming would bring money."""
    network = a_line(first_balance=1.0, first_period=20.0, period_max=20.0)
    network.client("sender", "b0")
    taken_over(network, 1, 2)
    assert network.bought() == [1]
    for _ in range(5):
        network.pump.change("sender", "b0", up=False)
        network.pump.change("sender", "b0", up=True)
        network.pump.run()
        taken_over(network, 3)
        network.pump.advance(0.1)
    assert network.bought() == [1]
    assert len(network.service("b0")._senders) == 1
    network.pump.advance(30.0)
    assert network.got("receiver")[:3] == [1, 2, 3]


def test_of_too_many_that_are_gone_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(senders, "DEPARTED_MAX", 1)
    network = a_line(first_balance=0.0, first_period=20.0)
    for name in ("one", "two"):
        network.client(name, "b0")
        taken_over(network, 1, name=name)
        network.pump.change(name, "b0", up=False)
    assert network.drops("b0") == ["sender gone"]
    network.pump.advance(20.0)
    assert network.got("receiver") == [1]

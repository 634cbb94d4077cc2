"""Nobody gets more by sending to many sets of receivers, nor by an envelope; nobody stalls for what cannot be true."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.content.bloom import EncodingScheme
from penstock.content.envelope import control_message, control_name, wrap
from penstock.content.message import Identity, make_message
from penstock.kernel.link import LinkInfo, LinkKind
from penstock.kernel.machine import Refused
from penstock.kernel.trace import InputRefused
from penstock.overlay.config import RoutingConfig
from penstock.overlay.link_reports import LinkReports
from penstock.overlay.packets import Publish
from penstock.pricing.account import Account
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.pricing.doubts import DOUBTED_AFTER, Doubts
from penstock.pricing.packets import PricedPublish
from penstock.pricing.sender import REST, Held, PricedSender
from penstock.testing import a_client
from priced_network import INTERVAL, PricedNetwork


def a_line(**config: object) -> PricedNetwork:
    network = PricedNetwork(**config)  # type: ignore[arg-type]
    network.client("receiver", "b2", "topic = 'freight'")
    network.client("sender", "b0")
    return network


@pytest.mark.parametrize("even_chance", [False, True])
@pytest.mark.parametrize("price", [1.2, 4.0, 15.0])
def test_accounts_that_share_buy_together_what_one_buys(even_chance: bool, price: float):
    """As many purchases for each refusal, which is what a try costs."""
    bought = {}
    for share in (1.0, 0.125):
        random = Random(7)
        account = Account(PricingConfig(even_chance=even_chance), INTERVAL, 0.0, 0.0)
        tries = [account.may_buy(price, random, share) for _ in range(40_000)]
        bought[share] = sum(tries) / (len(tries) - sum(tries)) / share
    assert bought[0.125] == pytest.approx(bought[1.0], rel=0.1)


def test_more_sets_of_receivers_do_not_buy_more_across_a_dear_link():
    counts = []
    for several in (False, True):
        network = PricedNetwork(5, randomised=True, patient=False, salary=20.0, first_balance=20.0, period_min=0.01)
        for number in (2, 3, 4):
            network.client(f"r{number}", f"b{number}", f"topic = 'freight' AND k = {number}")
        network.client("sender", "b0")
        network.service("b0")._reports.value = lambda hop, now: 4.0 if hop == (0, 1) else 0.0
        for n in range(90):
            network.publish("sender", {"topic": "freight", "k": 2 + n % 3 if several else 2})
        network.pump.advance(5.0)
        counts.append(len(network.bought()))
    assert 10 < counts[0] < 90
    assert counts[1] < 1.6 * counts[0]


def test_the_envelope_of_a_transport_does_not_get_round_the_price_and_control_does():
    network = a_line(first_balance=0.0, first_period=1.0)
    network.client("all", "b1", "TRUE")
    link = network.pump.link("b0", "sender")
    data = wrap(make_message(Identity("sender", 1, 1), {"topic": "freight"}, b"body"), b"header")
    control = control_message(Identity(control_name("sender"), 1, 1), "feedback", {"topic": "freight"}, b"")
    network.pump.receive("b0", Publish(data), Publish(control), sender=link)
    network.pump.run()
    assert network.got("receiver") == []
    network.pump.advance(3.0)
    assert network.bought() == network.got("receiver") == [1]
    (message,) = [message for _, message in network.pump.got("receiver")]
    assert message.body == b"body"


def a_liar(network: PricedNetwork, price: float) -> None:
    network.pump.machines["b1"].machine(LinkReports)._measure = lambda now: {2: price}  # type: ignore[attr-defined]
    network.pump.advance(1.0)


@pytest.mark.parametrize(("price", "benefit"), [(999_999.0, "sent"), (19.5, "sent"), (500.0, "latency")])
def test_a_link_that_stays_dearer_than_anybody_can_save_is_doubted_and_recorded_and_stops_nobody(
    price: float, benefit: str
):
    freight = PricedClass(where="topic = 'freight'", benefit=benefit)  # type: ignore[arg-type]
    network = a_line(classes=(freight,))
    a_liar(network, price)
    for _ in range(3):
        network.publish("sender")
    network.pump.advance(DOUBTED_AFTER - 1.0)
    assert network.bought() == []
    network.pump.advance(15.0)
    assert network.got("receiver") == [1, 2, 3]
    (record,) = network.pump.records_of("b0", InputRefused)
    assert "more than can be saved" in record.problem  # type: ignore[attr-defined]


def test_links_that_are_dear_together_are_not_doubted():
    """A long way may cost more than anybody can save: 003's rule."""
    network = a_line()
    network.service("b0")._reports.value = lambda hop, now: 10.0
    network.publish("sender")
    network.pump.advance(2 * DOUBTED_AFTER)
    assert network.bought() == []
    assert network.pump.records_of("b0", InputRefused) == []


def test_a_link_that_becomes_cheaper_meanwhile_is_not_doubted_and_ones_own_never():
    prices = {(1, 2): 30.0, (0, 1): 30.0}
    doubts = Doubts(19.0, 0, lambda hop, now: prices[hop])
    assert not doubts.any_of(prices, 0.0)
    prices[1, 2] = 5.0
    assert doubts.look(6.0) == []
    prices[1, 2] = 30.0
    assert not doubts.any_of(prices, 7.0)
    assert not doubts.any_of(prices, 12.0)
    assert doubts.any_of(prices, 18.0)
    assert doubts.look(18.0) == [(1, 2)]
    assert doubts.look(19.0) == []
    assert not doubts.any_of([(0, 1)], 40.0)


def test_of_too_many_sets_the_one_used_least_lately_gives_way_and_its_account_stays():
    config = PricingConfig(flows_max=2)
    sender = PricedSender("s", 2)

    def use(*key: int) -> Account:
        found = sender.flow_to(key) or sender.open(key, Account(config, INTERVAL, 0.5, 0.0))
        sender.put(found[1], Held(1, make_message(Identity("s", 1, 1), {}, b""), key, "sent", 0.0))
        found[1].held.clear()
        sender.held[True] = 0
        return found[1].account

    accounts = [use(1), use(2)]
    use(1)
    accounts[1].balance = 0.25
    assert use(3) is accounts[1]
    assert sender.flow_to((2,)) is None
    assert sender.flow_to((1,)) is not None
    for _, flow in sender.flows.items():
        flow.held.append(Held(1, make_message(Identity("s", 1, 1), {}, b""), flow.key, "sent", 0.0))
    assert sender.open((4,), Account(config, INTERVAL, 0.5, 0.0))[1].key == REST


def test_more_sets_than_accounts_neither_bring_money_nor_cost_any():
    """On a network with nothing to do a sender has what its salary gives, however many sets it sends to."""
    counts = []
    for sets in (2, 3):
        network = PricedNetwork(4, flows_max=2, fee=2.0, first_period=1.0, period_min=0.5, period_max=1.0)
        for number in (1, 2, 3):
            network.client(f"r{number}", f"b{number}", f"topic = 'freight' AND k = {number}")
        network.client("sender", "b0")
        for n in range(400):
            network.publish("sender", {"topic": "freight", "k": 1 + n % sets})
            network.pump.advance(0.02)
        counts.append(len(network.bought()))
    assert counts[1] == pytest.approx(counts[0], rel=0.3)


def test_a_message_that_cannot_be_sent_is_refused_to_its_publisher():
    network = PricedNetwork(1)
    services = {**network.config.services, "routing": RoutingConfig(interest="encoded")}
    network.config = replace(network.config, scheme=EncodingScheme(bits=192, hashes=10), services=services)
    network.pump.machines["b0"] = network.a_broker(0)
    network.client("receiver", "b0", "topic = 'freight'")
    network.client("sender", "b0")
    network.publish("sender", {"topic": "freight", **{f"a{n}": n for n in range(60)}})
    network.pump.advance(1.0)
    assert isinstance(network.answers("sender")[1], Refused)
    assert network.bought() == []


def test_what_the_broker_drops_of_a_client_that_knows_no_bounds_is_answered():
    network = a_line(first_balance=0.0, held_max=2)
    sending = network.sending("sender")
    sending._window = 5
    for _ in range(5):
        network.publish("sender")
    network.pump.run()
    assert [count for count, outcome in network.answers("sender").items() if isinstance(outcome, Refused)] == [3, 4, 5]
    foreign = make_message(Identity("somebody", 1, 1), {"topic": "freight"}, b"")
    effects = network.pump.receive("b0", PricedPublish(9, foreign), sender=network.pump.link("b0", "sender"))
    assert "NotBought" in [flight.kind for flight in network.pump.flights]
    assert effects


def test_a_short_queue_of_a_clients_link_drops_nothing_of_its_window():
    network = PricedNetwork(first_balance=20.0)
    network.client("receiver", "b2", "topic = 'freight'")
    node = a_client("sender", links={0: LinkInfo("b0", LinkKind.RELIABLE, 1, 8)})
    network.pump.add("sender", node)
    network.pump.connect("sender", "b0")
    network.pump.run()
    network.room("sender", "b0", 0)
    messages = [make_message(Identity("sender", 1, n), {"topic": "freight"}, b"") for n in range(1, 17)]
    tickets = [1_000 + n for n in range(1, 17)]
    network.pump.apply("sender", node.publish_all(messages, None, tickets=tickets, now=network.pump.now))
    network.room("sender", "b0", 1 << 40)
    network.pump.advance(5.0)
    assert network.accepted("sender") == network.got("receiver") == list(range(1, 17))
    assert network.drops("sender") == []


def test_news_of_links_that_nobody_crosses_who_waits_wakes_nobody(monkeypatch):
    network = PricedNetwork(4, first_balance=0.0, first_period=50.0)
    network.client("receiver", "b1", "topic = 'freight'")
    network.client("sender", "b0")
    network.publish("sender")
    network.pump.advance(INTERVAL)
    service, looks = network.service("b0"), []
    monkeypatch.setattr(service, "_buy", lambda *args: looks.append(args) or [])
    network.room("b2", "b3", 0)
    network.pump.machines["b2"].machine(LinkReports)._measure = lambda now: {3: 5.0}
    network.pump.advance(5 * INTERVAL)
    assert service._reports.value((2, 3), network.pump.now) == 5.0
    assert looks == []
    network.pump.machines["b0"].machine(LinkReports)._measure = lambda now: {1: 0.5}
    network.pump.advance(2 * INTERVAL)
    assert looks


def test_the_price_of_a_flow_that_rests_is_what_its_messages_cost():
    freight = PricedClass(where="topic = 'freight'", benefit="received")
    network = PricedNetwork(classes=(freight,), first_balance=20.0, fee=2.0)
    for broker in ("b1", "b2"):
        network.client(f"at-{broker}", broker, "topic = 'freight'")
    network.client("sender", "b0")
    network.publish("sender")
    network.pump.run()
    (flow,) = network.service("b0")._accounts(network.pump.link("b0", "sender"), network.pump.now)
    assert flow.price == 1.0


@pytest.mark.parametrize("cap", ["after", "before"])
@pytest.mark.parametrize("missed", [1, 2, 7])
def test_what_was_missed_is_paid_as_if_it_had_been_paid_each_time(cap: str, missed: int):
    config = PricingConfig(cap=cap, salary=3.0, first_balance=0.5)  # type: ignore[arg-type]
    once, each = (Account(config, INTERVAL, 0.0, 0.0) for _ in range(2))
    once._pay(3.0, missed)
    for _ in range(missed):
        each._pay(3.0)
    assert once.balance == pytest.approx(each.balance)


def test_a_tiny_salary_is_settled_at_once_after_a_long_rest():
    account = Account(PricingConfig(salary=1e-6, period_min=1e-6, period_max=1e-6), INTERVAL, 0.0, 0.0)
    account.period = 1e-6
    account.settle(1e6)
    assert account.balance == 20.0

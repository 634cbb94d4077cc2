"""Priced messages on maps with circles: one tree, no circle of waiting, and what waits beside the tree finds it."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidScenario
from penstock.kernel.link import LinkInfo, LinkKind
from penstock.kernel.machine import Send
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Dropped
from penstock.overlay.assembly import Life, broker_node
from penstock.overlay.egress import KEPT, PARKED
from penstock.overlay.node import Node
from penstock.pricing.broker_service import PricedBroker
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.pricing.packets import PricedPublication
from penstock.pricing.passing import WAY_MAX, PricedPassing
from penstock.pricing.ways import PricedWays, TreeWay
from penstock.scenario.node_config import broker_config, reliable_lines
from penstock.scenario.spec import BrokerSpec, ClientSpec, LaneSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.validate import validate
from penstock.scenario.workload import PublisherSpec
from penstock.services import services
from penstock.sim.run import simulate
from penstock.testing import Pump, a_message, attach

FREIGHT = PricedClass(where="topic = 'freight'")


def a_network(*links: LinkSpec, **changed: object) -> Scenario:
    names = dict.fromkeys(name for link in links for name in link.between)
    settings = {"classes": (FREIGHT,), **changed}
    return Scenario(
        name="n",
        duration=1.0,
        broker=tuple(BrokerSpec(name=name) for name in names),
        link=links,
        **settings,  # type: ignore[arg-type]
    )


def test_a_class_is_refused_where_reliable_links_do_not_join_all_brokers():
    validate(a_network(LinkSpec(between=("a", "b"), kind="tcp"), LinkSpec(between=("b", "c"), kind="reliable")))
    with pytest.raises(InvalidScenario, match="none of those leads to 'c' from 'a'"):
        validate(a_network(LinkSpec(between=("a", "b"), kind="tcp"), LinkSpec(between=("b", "c"), kind="shaped")))
    validate(a_network(LinkSpec(between=("a", "b")), classes=()))


def test_a_class_is_refused_if_its_lane_would_drop_and_if_it_is_no_predicate():
    link = LinkSpec(between=("a", "b"), kind="tcp")
    validate(a_network(link, lanes={"priced": LaneSpec(overflow="hold")}))
    with pytest.raises(InvalidScenario, match="say 'hold'"):
        validate(a_network(link, lanes={"priced": LaneSpec(weight=2)}))
    with pytest.raises(InvalidScenario, match=r"class\[0\]"):
        validate(a_network(link, classes=(PricedClass(where="topic = "),)))


def test_the_tree_takes_reliable_links_alone_however_cheap_others_are():
    scenario = a_network(
        LinkSpec(between=("a", "b"), cost=1),
        LinkSpec(between=("b", "c"), kind="tcp", cost=9),
        LinkSpec(between=("a", "c"), kind="reliable", cost=9),
    )
    assert reliable_lines(scenario) == ((0, 2), (1, 2))
    config = broker_config(scenario).services["pricing"]
    assert isinstance(config, PricingConfig)
    assert config.lines == ((0, 2), (1, 2))


def a_ring(pump: Pump) -> None:
    """b0, b1, b2, each joined to the other two."""
    scenario = a_network(*(LinkSpec(between=pair, kind="tcp") for pair in (("a", "b"), ("b", "c"), ("a", "c"))))
    for number, peers in enumerate(((1, 2), (0, 2), (1, 0))):
        links = {link: LinkInfo(f"b{peer}", LinkKind.RELIABLE, 1, 1_000, peer) for link, peer in enumerate(peers)}
        life = Life(name=f"b{number}", incarnation=1, seed=100, number=number, storage=True, traced=True)
        pump.add(f"b{number}", broker_node(services(), life, links, broker_config(scenario)))
    for a, b in ((0, 1), (1, 2), (0, 2)):
        pump.connect(f"b{a}", f"b{b}")
    pump.advance(3.0)


def test_what_waits_for_a_link_that_is_no_longer_on_the_tree_is_sent_anew():
    pump = Pump()
    a_ring(pump)
    attach(pump, "reader", "b2", "TRUE")
    node = pump.machines["b1"]
    assert isinstance(node, Node)
    ways = node.machine(PricedBroker)._ways
    assert ways.to((2,)).groups == ((pump.link("b1", "b0"), (2,)),)  # the tree is b1 - b0 - b2
    pump.change("b0", "b2", up=False)
    pump.advance(1.0)
    direct = pump.link("b1", "b2")
    assert ways.to((2,)).groups == ((direct, (2,)),)
    pump.apply("b1", node.link_ready(direct, room_bytes=0, now=pump.now))
    copy = PricedPublication((2,), 5, a_message(1, {"topic": "freight"}))
    pump.receive("b1", copy, sender=pump.link("b1", "b0"))
    assert node.egress.lane_packets(direct, Lane.PRICED) == 1
    assert node.egress.waiting_bytes_from(pump.link("b1", "b0"), Lane.PRICED) > 0
    pump.change("b0", "b2", up=True)
    pump.advance(3.0)
    assert node.egress.lane_packets(direct, Lane.PRICED) == 0
    assert node.egress.waiting_bytes_from(pump.link("b1", "b0"), Lane.PRICED) == 0
    assert [message.identity.count for _, message in pump.got("reader")] == [1]


def a_copy(*destinations: int, count: int = 1) -> PricedPublication:
    return PricedPublication(destinations, 5, a_message(count, {"topic": "freight"}))


def a_broker_of_the_ring(pump: Pump) -> Node:
    """b1, from which nothing can leave to b0; the tree is b1 - b0 - b2."""
    a_ring(pump)
    attach(pump, "reader", "b2", "TRUE")
    node = pump.machines["b1"]
    assert isinstance(node, Node)
    pump.apply("b1", node.link_ready(pump.link("b1", "b0"), room_bytes=0, now=pump.now))
    return node


def test_what_waits_for_a_link_that_goes_down_takes_another_way():
    pump = Pump()
    node = a_broker_of_the_ring(pump)
    link = pump.link("b1", "b2")
    pump.receive("b1", a_copy(2), sender=link)  # on another map it came this way
    pump.apply("b1", node.route([Send((pump.link("b1", "b0"),), a_copy(2, count=2), Lane.PRICED)]))
    assert node.egress.lane_packets(pump.link("b1", "b0"), Lane.PRICED) == 2
    pump.change("b1", "b0", up=False)
    pump.advance(3.0)
    assert sorted(message.identity.count for _, message in pump.got("reader")) == [1, 2]
    assert node.egress.waiting_bytes_from(KEPT, Lane.PRICED) == node.egress.waiting_bytes_from(link, Lane.PRICED) == 0


def test_what_has_no_way_waits_for_one_and_holds_up_nobody():
    pump = Pump()
    node = a_broker_of_the_ring(pump)
    pump.change("b0", "b2", up=False)
    pump.change("b1", "b2", up=False)
    pump.advance(1.0)
    pump.receive("b1", a_copy(2), sender=pump.link("b1", "b0"))
    pump.advance(1.0)
    assert node.egress.lane_packets(PARKED, Lane.PRICED) == 1
    assert node.egress.waiting_bytes_from(pump.link("b1", "b0"), Lane.PRICED) == 0
    pump.change("b1", "b2", up=True)
    pump.advance(2.0)
    assert [message.identity.count for _, message in pump.got("reader")] == [1]
    pump.change("b1", "b2", up=False)
    pump.advance(1.0)
    pump.receive("b1", a_copy(2, count=3), sender=pump.link("b1", "b0"))
    pump.advance(WAY_MAX + 1.0)
    assert node.egress.lane_packets(PARKED, Lane.PRICED) == 0
    assert "no way" in [record.cause for _, record in pump.records if isinstance(record, Dropped)]


def test_what_must_return_and_finds_no_room_stays_on_its_neighbours_account_and_ends_at_last(monkeypatch):
    monkeypatch.setattr(PricedPassing, "_kept_max", lambda self: 0)
    pump = Pump()
    node = a_broker_of_the_ring(pump)
    back = pump.link("b1", "b0")
    pump.receive("b1", a_copy(2), sender=back)
    pump.advance(WAY_MAX - 1.0)
    assert node.egress.waiting_bytes_from(back, Lane.PRICED) > 0
    assert node.egress.lane_packets(PARKED, Lane.PRICED) == 1
    pump.advance(2.0)
    assert node.egress.waiting_bytes_from(back, Lane.PRICED) == 0
    assert "tree changed" in [record.cause for _, record in pump.records if isinstance(record, Dropped)]


def greedy_ring(brokers: int) -> Scenario:
    """Everybody sends to everybody around a ring of narrow links, with lanes that hold two messages."""
    names = [f"b{number}" for number in range(brokers)]
    links = tuple(
        LinkSpec(between=(name, names[(n + 1) % brokers]), kind="reliable", rate_bits_per_s=2e5, cost=1 + n % 2)
        for n, name in enumerate(names)
    )
    flow = PublisherSpec(
        rate_messages_per_s=200.0, start=1.0, attributes={"topic": "freight"}, body_bytes=1_500, waits=8
    )
    clients = tuple(
        ClientSpec(name=f"at-{name}", broker=name, publish=(flow,), subscribe=(SubscriptionSpec(where="TRUE"),))
        for name in names
    )
    return Scenario(
        name="ring",
        duration=4.0,
        drain=20.0,
        settled_after=2.0,
        settle=1.0,
        broker=tuple(BrokerSpec(name=name) for name in names),
        link=links,
        lanes={"priced": LaneSpec(bytes_max=4_096, overflow="hold")},
        classes=(FREIGHT,),
        services={"pricing": PricingConfig(soft_limit=1_000.0)},  # prices do not help: lanes fill to the brim
        client=clients,
        check=("priced-drains", "priced-kept", "priced-once", "priced-paid", "nothing-missed", "at-most-once"),
    )


def test_full_lanes_around_a_ring_drain():
    result = simulate(greedy_ring(5), 1)
    assert result.problems == []
    assert result.records["MessageBought"] > 100


def test_on_ways_around_the_ring_they_would_not(monkeypatch):
    """The checkers see a circle of waiting, if there is one: each lane of the ring waits for the next."""

    def around(self, destinations):
        exits = self._routing.exits()
        number, brokers = self._routing.broker, 1 + len(exits)
        clockwise = self._routing.link_to[(number + 1) % brokers]
        return TreeWay((), ((clockwise, destinations),), (), 0)

    monkeypatch.setattr(PricedWays, "_way", around)
    monkeypatch.setattr(PricedWays, "off_tree", lambda self: [])
    problems = simulate(greedy_ring(5), 1).problems
    assert any("still waits in the end" in problem or "never reached" in problem for problem in problems)

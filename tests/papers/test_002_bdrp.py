"""What 002 says about B-DRP, one claim per test: section 2.7, and chapter 3 on how messages come to be out of order.

Departures are named in the tests that show them: exact matching at the last broker, and the link-state protocol in
place of an unnamed "generic destination routing protocol".
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.kernel.machine import Send
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Delivered, Dropped, Record, Trace
from penstock.lab.setups.paper_network import NO_RATES
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.config import RoutingConfig
from penstock.overlay.node import Node
from penstock.overlay.packets import Interest, Publication, Publish
from penstock.overlay.routing import Routing
from penstock.rates.config import RatesConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import RunResult, simulate
from penstock.testing import Pump, a_message, attach, broker_network, publish

#        2
#       /
#  0 - 1 - 3
#  |
#  4
# The paper's form of interest, and no rates of links.
ENCODED = NodeConfig(services={"routing": RoutingConfig(interest="encoded"), "rates": RatesConfig(enabled=False)})
TREE = [(0, 1), (1, 2), (1, 3), (0, 4)]


def node(pump: Pump, number: int) -> Node:
    machine = pump.machines[f"b{number}"]
    assert isinstance(machine, Node)
    return machine


def a_tree(readers: dict[int, str]) -> Pump:
    """The tree with a publisher at broker 0 and readers at others."""
    pump = broker_network(TREE, config=ENCODED)
    for number, where in readers.items():
        attach(pump, f"r{number}", f"b{number}", where)
    attach(pump, "p", "b0")
    pump.advance(1.0)
    return pump


def test_2_7_brokers_advertise_the_bloom_filters_of_the_subscribers_they_serve() -> None:
    """2.7: "brokers advertise (broadcast) the set of Bloom filters that represent the interests of the subscribers"."""
    pump = broker_network(TREE, config=ENCODED)
    advertised: list[Interest] = []
    pump.loses = lambda flight: isinstance(flight.packet, Interest) and bool(advertised.append(flight.packet))
    attach(pump, "r", "b3", "symbol = 'IBM'")
    pump.advance(1.0)
    scheme = ENCODED.scheme
    (encoding,) = scheme.routing_encodings(parse_predicate("symbol = 'IBM'"))
    assert {(packet.origin, packet.added) for packet in advertised} == {(3, (scheme.to_bytes(encoding),))}


def test_2_7_all_brokers_know_all_subscriptions_and_their_home() -> None:
    """2.7: "all brokers have a global information about all subscriptions and their associated home broker"."""
    pump = a_tree({2: "n = 1", 3: "n = 2", 4: "n = 1"})
    matched = [node(pump, number).machine(Routing).form.wanting([{"n": 1}])[0][0] for number in range(5)]
    homes = {number: set(found) | ({number} & {2, 4}) for number, found in enumerate(matched)}
    assert homes == {key: {2, 4} for key in range(5)}


def test_2_7_the_publishers_home_broker_finds_the_destinations_and_writes_them_into_the_header() -> None:
    """2.7: home brokers "find the set of brokers with an advertised Bloom filter that match the message"."""
    pump = a_tree({2: "n = 1", 3: "n = 1", 4: "n = 2"})
    effects = pump.receive("b0", Publish(a_message(1)), sender=pump.link("b0", "p"))
    (copy,) = [effect.packet for effect in effects if isinstance(effect, Send)]
    assert isinstance(copy, Publication)
    assert copy.destinations == (2, 3)


def test_2_7_a_message_is_matched_against_all_interest_once_at_home_and_nowhere_else() -> None:
    """2.7: later brokers route by the header; what they know of others' interest plays no part."""
    pump = a_tree({2: "n = 1"})
    for number in (1, 3, 4):
        routing = node(pump, number).machine(Routing)
        routing.origins[2].interest.clear()
        assert len(routing.form) == 0
    publish(pump, "p", a_message(1))
    pump.run()
    assert pump.got("r2") == [(1, a_message(1))]


def test_2_7_at_a_split_point_each_subtree_gets_a_copy_whose_header_names_only_its_own_brokers() -> None:
    """2.7: "the message is duplicated for each separate downstream subtree and the header [...] adjusted"."""
    pump = a_tree({2: "n = 1", 3: "n = 1", 4: "n = 1"})
    publish(pump, "p", a_message(1))
    hops: list[tuple[str, str, tuple[int, ...]]] = []

    def watch(flight: Any) -> bool:
        if isinstance(flight.packet, Publication):
            hops.append((flight.sender, flight.receiver, flight.packet.destinations))
        return False

    pump.loses = watch
    pump.run()
    assert sorted(hops) == [("b0", "b1", (2, 3)), ("b0", "b4", (4,)), ("b1", "b2", (2,)), ("b1", "b3", (3,))]


def test_2_7_no_copy_is_made_where_the_tree_does_not_split() -> None:
    """2.7: the message crosses each link of the dissemination tree once, however many destinations lie behind it."""
    pump = a_tree({2: "n = 1", 3: "n = 1"})
    publish(pump, "p", a_message(1))
    pump.deliver()
    assert [(flight.sender, flight.receiver) for flight in pump.flights] == [("b0", "b1")]


def test_2_7_a_false_positive_of_the_encoding_ends_at_the_last_broker() -> None:
    """2.7 delivers what the bits match; we match exactly there (our departure: protocols.md section 1)."""
    pump = a_tree({2: "n > 100"})
    publish(pump, "p", a_message(1))
    pump.deliver()
    assert len(pump.in_flight(Publication)) == 1
    pump.run()
    assert pump.got("r2") == []


def test_2_7_nothing_is_stored_so_a_late_subscriber_gets_nothing_of_what_was() -> None:
    """2.7: "It does not order nor store messages at intermediate brokers"."""
    pump = a_tree({2: "n = 1"})
    publish(pump, "p", a_message(1))
    pump.run()
    attach(pump, "late", "b2", "n = 1")
    pump.advance(5.0)
    assert pump.got("late") == []


def test_2_7_nothing_is_acknowledged_and_nothing_is_sent_again() -> None:
    """2.7: it "does not use acknowledgments to confirm delivery"."""
    pump = a_tree({2: "n = 1"})
    publish(pump, "p", a_message(1))
    pump.deliver()
    lost = pump.drop()
    assert isinstance(lost.packet, Publication)
    before = len(pump.records)
    pump.advance(20.0)
    assert pump.got("r2") == []
    assert len(pump.records) == before


def test_2_7_messages_are_forwarded_in_the_order_in_which_they_happen_to_come() -> None:
    """2.7: no ordering: what overtakes on the way stays ahead."""
    pump = a_tree({2: "EXISTS n"})
    for count in (1, 2):
        publish(pump, "p", a_message(count))
    pump.flights.reverse()
    pump.run()
    assert [message.identity.count for _, message in pump.got("r2")] == [2, 1]


# Chapter 3, in the simulator.


class Drops:
    """A trace that keeps the drops."""

    def __init__(self) -> None:
        self.records: list[Dropped] = []

    def write(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, Dropped) and record.publisher:
            self.records.append(record)


def a_chain(*, workers: int, rate: float, link: dict[str, Any] | None = None, trace: Trace | None = None) -> RunResult:
    """Three brokers in a row, one publisher, one reader of everything."""
    names = ("a", "b", "c")
    scenario = Scenario(
        name="chain",
        duration=10.0,
        services=NO_RATES,
        broker=tuple(BrokerSpec(name=name, workers=workers, service_mean=0.004) for name in names),
        link=tuple(LinkSpec(between=pair, **(link or {})) for pair in (("a", "b"), ("b", "c"))),
        client=(
            ClientSpec(
                name="p",
                broker="a",
                publish=(PublisherSpec(rate_messages_per_s=rate, start=1.0, attributes={"n": 1}, body_bytes=500),),
            ),
            ClientSpec(name="r", broker="c", subscribe=(SubscriptionSpec(where="n = 1"),)),
        ),
    )
    return simulate(scenario, 1, trace=trace)


class Deliveries:
    """Runs the chain and gives back the counts of the messages in the order of delivery."""

    def counts(self, *, workers: int, rate: float) -> list[int]:
        self.order: list[int] = []
        a_chain(workers=workers, rate=rate, trace=self)
        return self.order

    def write(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, Delivered):
            self.order.append(record.count)


def inversions(order: list[int]) -> int:
    """How many came after one that was published later."""
    late = highest = 0
    for count in order:
        late += count < highest
        highest = max(highest, count)
    return late


def test_3_parallel_workers_let_messages_overtake_each_other() -> None:
    """3 (introduction): violations occur "if the forwarding process is parallelized and [...] does not itself
    maintain FIFO ordering"."""
    parallel, serial = Deliveries().counts(workers=4, rate=150.0), Deliveries().counts(workers=1, rate=150.0)
    assert sorted(parallel) == sorted(serial)
    assert serial == sorted(serial)
    assert inversions(parallel) > 50


def test_3_2_violations_grow_with_the_rate() -> None:
    """3.1, figure 3.2: violations are roughly proportional to the delivery rate."""
    few, many = Deliveries().counts(workers=8, rate=30.0), Deliveries().counts(workers=8, rate=300.0)
    assert inversions(many) / len(many) > 3 * inversions(few) / len(few)


@pytest.mark.parametrize("kind", ["datagram", "shaped", "reliable"])
def test_3_1_under_overload_messages_are_dropped_where_the_queue_is_full_and_nobody_is_blocked(kind: str) -> None:
    """3.1: at its limit B-DRP "starts dropping messages" and goes on delivering at that limit; publishers go on."""
    trace = Drops()
    narrow = {"kind": kind, "rate_bits_per_s": 200e3, "queue_packets": 20}
    result = a_chain(workers=4, rate=100.0, link=narrow, trace=trace)
    published, delivered = result.clients["p"].published, result.clients["r"].delivered
    place = "pipe" if kind == "datagram" else "egress"
    assert {(record.place, record.cause, record.lane) for record in trace.records} == {
        (place, "queue full", Lane.BEST_EFFORT)
    }
    assert published == 900
    assert result.clients["p"].refused == 0
    assert delivered + len(trace.records) == published
    wire_bytes_per_s = 200e3 / 8
    size = Publication((2,), 9, a_message(1, {"n": 1}, body=bytes(500))).size_bytes()
    assert delivered == pytest.approx(9.0 * wire_bytes_per_s / size, rel=0.15)
    assert result.problems == []

"""The broker: match once at home, split by next hop, deliver after exact matching, serve clients within bounds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.bloom import EncodingScheme
from penstock.content.matching.exact_index import PredicateIndex
from penstock.content.message import Identity, make_message
from penstock.kernel.machine import Accepted, Effect, Refused, Send
from penstock.kernel.packet import DATA_LANES, Lane
from penstock.kernel.trace import Dropped, InputRefused
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.broker import Broker
from penstock.overlay.config import BrokerConfig, RoutingConfig
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Attach, Delivery, Publication, Publish, Subscribe, Unsubscribe
from penstock.overlay.routing import Routing
from penstock.testing import Pump, a_broker, a_message, attach, broker_name, broker_network, publish

CHAIN = [(0, 1), (1, 2)]
STAR = [(0, 1), (0, 2), (0, 3)]
ENCODED = NodeConfig(services={"routing": RoutingConfig(interest="encoded")})
# Hellos are made rare, so that learning the map takes no more time than it must.
RARE_HELLOS = NodeConfig(
    services={"routing": RoutingConfig(hello_interval=20.0, dead_after=100.0, forget_after=1000.0)}
)


def node(pump: Pump, number: int = 0) -> Node:
    machine = pump.machines[broker_name(number)]
    assert isinstance(machine, Node)
    return machine


def broker(pump: Pump, number: int = 0) -> Broker:
    return node(pump, number).machine(Broker)


def routing(pump: Pump, number: int = 0) -> Routing:
    return node(pump, number).machine(Routing)


def interest(pump: Pump, number: int = 0) -> list[int]:
    return sorted(routing(pump, number).own._wanted.items())  # type: ignore[arg-type]


def copies(effects: list[Effect]) -> dict[int, Publication]:
    """The copies that were sent, by link."""
    sends = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.packet, Publication)]
    assert all(effect.lane is Lane.BEST_EFFORT and len(effect.to) == 1 for effect in sends)
    assert len({effect.to for effect in sends}) == len(sends), "two copies on one link"
    return {effect.to[0]: effect.packet for effect in sends}  # type: ignore[misc]


def state(pump: Pump, number: int = 0) -> object:
    part = broker(pump, number)
    clients = {link: (client.name, dict(client.keys)) for link, client in part._clients.items()}
    return clients, sorted(part._subscriptions), len(part._index), interest(pump, number)


def dropped(cause: str, count: int, destinations: int, kind: str = "Publication") -> Dropped:
    return Dropped("route", cause, "", Lane.BEST_EFFORT, kind, "p", 1, count, destinations)


def answers(pump: Pump, effects: list[Effect]) -> list[Answer]:
    return [effect.packet for effect in effects if isinstance(effect, Send) and isinstance(effect.packet, Answer)]


# The way of a message.


def test_a_message_reaches_who_wants_it_near_and_far_and_nobody_else() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "near", "b0", "n > 0")
    attach(pump, "far", "b2", "n = 1")
    attach(pump, "other", "b2", "n = 2")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    message = a_message(1)
    publish(pump, "p", message)
    pump.run()
    assert pump.got("near") == [(1, message)]
    assert pump.got("far") == [(1, message)]
    assert pump.got("other") == []


def test_a_message_that_nobody_wants_goes_nowhere() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "c", "b2", "n = 7")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    assert pump.receive("b0", Publish(a_message(1)), sender=pump.link("b0", "p")) == []


def test_one_packet_per_client_names_all_its_subscriptions_that_match() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "c", "b0", "n > 0", "n = 9", "n < 5")
    attach(pump, "p", "b0")
    effects = pump.receive("b0", Publish(a_message(1)), sender=pump.link("b0", "p"))
    assert effects == [Send((pump.link("b0", "c"),), Delivery((1, 3), a_message(1)), Lane.BEST_EFFORT)]


def test_the_home_broker_sends_one_copy_per_neighbour_naming_only_those_behind_it() -> None:
    pump = broker_network([(0, 1), (1, 2), (1, 3), (0, 4)])
    for number in (2, 3, 4):
        attach(pump, f"c{number}", f"b{number}", "EXISTS n")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    sent = copies(pump.receive("b0", Publish(a_message()), sender=pump.link("b0", "p")))
    assert {link: copy.destinations for link, copy in sent.items()} == {
        pump.link("b0", "b1"): (2, 3),
        pump.link("b0", "b4"): (4,),
    }


def test_a_broker_on_the_way_keeps_its_own_and_passes_on_the_rest() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "c", "b1", "EXISTS n")
    effects = pump.receive("b1", Publication((1, 2), 5, a_message()), sender=pump.link("b1", "b0"))
    assert copies(effects) == {pump.link("b1", "b2"): Publication((2,), 4, a_message())}
    assert Send((pump.link("b1", "c"),), Delivery((1,), a_message()), Lane.BEST_EFFORT) in effects


def test_a_broker_that_is_not_named_does_not_deliver() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "c", "b1", "EXISTS n")
    effects = pump.receive("b1", Publication((2,), 5, a_message()), sender=pump.link("b1", "b0"))
    assert [type(effect.packet) for effect in effects if isinstance(effect, Send)] == [Publication]


def test_a_message_that_nobody_wants_crosses_no_link_whatever_the_filter_is() -> None:
    wanted = ["v < 50", "v >= 70.5", "w <> 3 AND v < 10", "s LIKE 'ab%c'", "v IS NULL AND w > 2", "v BETWEEN 5 AND 6"]
    pump = broker_network(CHAIN)
    attach(pump, "p", "b0")
    seen: list[str] = []
    for number, where in enumerate(wanted):
        attach(pump, f"c{number}", "b2", where)
    pump.advance(0.5)
    pump.loses = lambda flight: bool(seen.append(flight.kind))
    unwanted = [{"v": 60}, {"v": 70.25}, {"v": 55, "w": 3}, {"s": "abd"}, {"s": "xabc"}, {"w": 2}, {"u": 1}]
    for count, attributes in enumerate(unwanted, start=1):
        publish(pump, "p", a_message(count, attributes))
    pump.run()
    assert seen == ["Publish"] * len(unwanted)
    publish(pump, "p", a_message(50, {"v": 49.9}))
    pump.run()
    assert seen[len(unwanted) :] == ["Publish", "Publication", "Publication", "Delivery"]


def test_a_false_positive_of_the_encoding_costs_a_trip_and_never_a_delivery() -> None:
    pump = broker_network(CHAIN, config=ENCODED)
    attach(pump, "c", "b2", "n <> 1")  # the network sees only that n exists
    attach(pump, "p", "b0")
    pump.advance(0.5)
    publish(pump, "p", a_message(1))
    pump.deliver()
    assert len(pump.in_flight(Publication)) == 1
    pump.run()
    assert pump.got("c") == []
    assert pump.records_of("b2", Dropped) == []


def test_the_hop_limit_is_the_longest_way_and_some_spare() -> None:
    pump = broker_network([(0, 1), (1, 2), (2, 3)])
    attach(pump, "c", "b3", "EXISTS n")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    (copy,) = copies(pump.receive("b0", Publish(a_message()), sender=pump.link("b0", "p"))).values()
    assert copy.hops_left == 3 + BrokerConfig().hops_spare - 1


def test_the_last_hop_may_use_up_the_limit() -> None:
    pump = broker_network(CHAIN)
    effects = pump.receive("b1", Publication((2,), 1, a_message()), sender=pump.link("b1", "b0"))
    assert copies(effects)[pump.link("b1", "b2")].hops_left == 0


def test_beyond_the_hop_limit_a_copy_is_dropped_but_still_delivered_here() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "c", "b1", "EXISTS n")
    effects = pump.receive("b1", Publication((1, 2), 0, a_message()), sender=pump.link("b1", "b0"))
    assert effects[0] == dropped("hop limit", 1, 1)
    assert [type(effect.packet) for effect in effects if isinstance(effect, Send)] == [Delivery]


def test_copies_that_run_in_circles_come_to_an_end() -> None:
    pump = broker_network([(0, 1)])
    for number in (0, 1):
        routing(pump, number)._exits = {9: 0}  # two maps that disagree for good
    pump.receive("b0", Publication((9,), 7, a_message()), sender=0)
    pump.run()
    drops = [record for _, record in pump.records if isinstance(record, Dropped)]
    assert drops == [dropped("hop limit", 1, 1)]


def test_what_has_no_way_is_dropped_and_the_rest_goes_on() -> None:
    pump = broker_network(CHAIN)
    effects = pump.receive("b1", Publication((2, 40, 41), 5, a_message()), sender=pump.link("b1", "b0"))
    assert effects[0] == dropped("no way", 1, 2)
    assert copies(effects)[pump.link("b1", "b2")].destinations == (2,)


def test_a_copy_without_way_and_without_hops_is_counted_once() -> None:
    pump = broker_network(CHAIN)
    effects = pump.receive("b1", Publication((40,), 0, a_message()), sender=pump.link("b1", "b0"))
    assert effects == [dropped("no way", 1, 1)]


def test_the_message_travels_unchanged() -> None:
    pump = broker_network(CHAIN)
    attach(pump, "c", "b2", "EXISTS n")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    message = make_message(Identity("p", 1, 5), {"n": 1, "x": 1.5, "s": "t", "b": False}, b"\x00body")
    publish(pump, "p", message)
    pump.run()
    assert pump.got("c") == [(1, message)]


def test_a_message_whose_encoding_is_too_full_is_refused() -> None:
    scheme = EncodingScheme(bits=64, hashes=8)
    pump = broker_network([(0, 1)], config=dataclasses.replace(ENCODED, scheme=scheme))
    attach(pump, "p", "b0")
    message = make_message(Identity("p", 1, 1), {f"a{i}": i for i in range(40)})
    effects = pump.receive("b0", Publish(message), Publish(a_message(2)), sender=pump.link("b0", "p"))
    assert [type(effect) for effect in effects] == [InputRefused]
    assert "fill_limit" in effects[0].problem  # type: ignore[union-attr]


@pytest.mark.parametrize("lane", DATA_LANES)
def test_a_message_keeps_its_lane_on_the_whole_way(lane: Lane) -> None:
    pump = broker_network(CHAIN)
    attach(pump, "near", "b0", "n = 1")
    attach(pump, "far", "b2", "n = 1")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    seen: list[tuple[str, Lane, Lane]] = []
    pump.loses = lambda flight: bool(seen.append((flight.kind, flight.lane, flight.packet.lane)))  # type: ignore[attr-defined]
    pump.receive("b0", Publish(a_message(1), lane), sender=pump.link("b0", "p"))
    pump.run()
    assert sorted(seen) == [(kind, lane, lane) for kind in ("Delivery", "Delivery", "Publication", "Publication")]
    assert pump.got("near") == pump.got("far") == [(1, a_message(1))]


def test_what_is_dropped_on_the_way_is_recorded_in_its_lane() -> None:
    pump = broker_network(CHAIN)
    (record,) = pump.receive("b1", Publication((40,), 5, a_message(), Lane.STREAM), sender=pump.link("b1", "b0"))
    assert isinstance(record, Dropped)
    assert (record.cause, record.lane) == ("no way", Lane.STREAM)


def test_a_new_map_is_used_for_sets_of_brokers_that_were_split_before() -> None:
    pump = broker_network([(0, 1), (1, 2), (0, 3), (3, 2)])
    attach(pump, "c", "b2", "EXISTS n")
    attach(pump, "p", "b0")
    pump.advance(0.5)
    ways: list[str] = []
    for count in (1, 2):
        publish(pump, "p", a_message(count))
        pump.deliver()
        ways += [flight.receiver for flight in pump.flights if isinstance(flight.packet, Publication)]
        pump.run()
        pump.change("b0", ways[0], up=False)
        pump.advance(0.5)
    assert sorted(ways) == ["b1", "b3"]
    assert [message.identity.count for _, message in pump.got("c")] == [1, 2]


# Senders that nobody knows.


def test_copies_from_a_link_that_has_not_said_hello_are_dropped_and_recorded() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.join("b0", "x")
    pump.link_changed("b0", 0, up=True)
    effects = pump.receive("b0", Publication((0, 3), 5, a_message(1)), Publication((3,), 5, a_message(2)), sender=0)
    assert effects == [dropped("sender unknown", 1, 2), dropped("sender unknown", 2, 1)]


def test_messages_from_a_client_that_has_not_attached_are_dropped_and_recorded() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.join("b0", "x")
    pump.link_changed("b0", 0, up=True)
    assert pump.receive("b0", Publish(a_message(1)), sender=0) == [dropped("sender unknown", 1, 1, "Publish")]


def test_a_subscription_from_a_client_that_has_not_attached_is_refused_and_told_so() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.join("b0", "x")
    pump.link_changed("b0", 0, up=True)
    before = state(pump)
    effects = pump.receive("b0", Subscribe(7, 1, "TRUE"), Unsubscribe(8, 1), sender=0)
    assert [answer.ticket for answer in answers(pump, effects) if answer.problem] == [7, 8]
    assert sum(isinstance(effect, InputRefused) for effect in effects) == 2
    assert state(pump) == before


# Clients.


def test_a_subscription_is_answered_and_wanted_in_the_network() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0")
    effects = pump.receive("b0", Subscribe(5, 1, "n = 1"), sender=pump.link("b0", "c"))
    assert answers(pump, effects) == [Answer(5)]
    assert len(interest(pump)) == 1
    pump.advance(0.1)
    assert len(routing(pump, 1).form) == 1


def test_a_bad_subscription_is_answered_with_the_reason_and_changes_nothing() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0", "n = 1")
    before = state(pump)
    effects = pump.receive("b0", Subscribe(5, 1, "n = = 1"), sender=pump.link("b0", "c"))
    (answer,) = answers(pump, effects)
    assert answer.ticket == 5
    assert "^" in answer.problem
    assert isinstance(effects[0], InputRefused)
    assert effects[0].sender == "c"
    assert state(pump) == before


def test_a_subscription_whose_encoding_would_be_too_full_is_refused_and_changes_nothing() -> None:
    scheme = EncodingScheme(bits=64, hashes=16, fill_limit=0.5)
    pump = broker_network([(0, 1)], config=dataclasses.replace(ENCODED, scheme=scheme))
    attach(pump, "c", "b0", "a = 1")
    before = state(pump)
    where = " AND ".join(f"a{i} = {i}" for i in range(8))
    effects = pump.receive("b0", Subscribe(5, 1, where), sender=pump.link("b0", "c"))
    (answer,) = answers(pump, effects)
    assert "fill_limit" in answer.problem
    assert state(pump) == before


def test_a_subscription_under_the_same_number_replaces_the_old_one() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0", "n = 1")
    pump.receive("b0", Subscribe(5, 1, "n = 2"), sender=pump.link("b0", "c"))
    attach(pump, "p", "b0")
    publish(pump, "p", a_message(1))
    publish(pump, "p", a_message(2))
    pump.run()
    assert [message.identity.count for _, message in pump.got("c")] == [2]
    assert len(interest(pump)) == 1


def test_unsubscribing_withdraws_the_interest() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0", "n = 1", "n = 2")
    effects = pump.receive("b0", Unsubscribe(9, 1), sender=pump.link("b0", "c"))
    assert answers(pump, effects) == [Answer(9)]
    assert len(interest(pump)) == 1
    pump.receive("b0", Unsubscribe(10, 77), sender=pump.link("b0", "c"))
    assert len(interest(pump)) == 1


def test_a_client_that_disconnects_takes_its_interest_with_it() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0", "n = 1", "n = 2")
    attach(pump, "other", "b0", "n = 2")
    pump.advance(0.1)
    pump.change("c", "b0", up=False)
    pump.advance(0.1)
    assert len(interest(pump)) == 1
    assert len(routing(pump, 1).form) == 1


def test_a_client_that_attaches_again_begins_without_subscriptions() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0", "n = 1")
    pump.receive("b0", Attach("c", 2), sender=pump.link("b0", "c"))
    assert interest(pump) == []


def test_a_neighbours_link_cannot_turn_into_a_clients() -> None:
    pump = broker_network([(0, 1)])
    before = state(pump)
    effects = pump.receive("b0", Attach("c", 1), sender=0)
    assert [type(effect) for effect in effects] == [InputRefused]
    assert state(pump) == before


def test_one_client_too_many_is_refused_and_its_subscriptions_say_why() -> None:
    config = NodeConfig(services={"forwarding": BrokerConfig(clients_max=1)})
    pump = broker_network([(0, 1)], config=config)
    attach(pump, "first", "b0", "n = 1")
    before = state(pump)
    attach(pump, "second", "b0", "n = 2")
    refusals = [done.outcome for name, done in pump.done if name == "second"]
    assert len(refusals) == 1
    assert isinstance(refusals[0], Refused)
    assert "clients_max is 1" in refusals[0].problem
    assert state(pump) == before


def test_one_subscription_too_many_is_refused_but_replacing_one_is_not() -> None:
    config = NodeConfig(services={"forwarding": BrokerConfig(subscriptions_per_client_max=2)})
    pump = broker_network([(0, 1)], config=config)
    attach(pump, "c", "b0", "n = 1", "n = 2", "n = 3")
    outcomes = [done.outcome for _, done in pump.done]
    assert outcomes[:2] == [Accepted(), Accepted()]
    assert "subscriptions_per_client_max is 2" in outcomes[2].problem  # type: ignore[union-attr]
    effects = pump.receive("b0", Subscribe(50, 2, "n = 4"), sender=pump.link("b0", "c"))
    assert answers(pump, effects) == [Answer(50)]
    effects = pump.receive("b0", Subscribe(51, 3, "no ( predicate"), sender=pump.link("b0", "c"))
    assert "subscriptions_per_client_max" in answers(pump, effects)[0].problem, (
        "a text that is one too many is not read"
    )


def test_verbs_and_messages_in_one_batch_take_effect_in_order() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "p", "b0")
    link = pump.link("b0", "p")
    packets = (Publish(a_message(1)), Subscribe(1, 1, "EXISTS n"), Publish(a_message(2)), Unsubscribe(2, 1))
    effects = pump.receive("b0", *packets, Publish(a_message(3)), sender=link)
    deliveries = [effect.packet for effect in effects if isinstance(effect, Send) and effect.lane is Lane.BEST_EFFORT]
    assert deliveries == [Delivery((1,), a_message(2))]


def test_a_broker_keeps_nothing_of_clients_that_have_gone() -> None:
    pump = broker_network([(0, 1)])
    before = state(pump)
    for number in range(20):
        attach(pump, f"c{number}", "b0", "n = 1", "m = 2", "EXISTS x")
        pump.change(f"c{number}", "b0", up=False)
    assert state(pump) == before
    assert isinstance(broker(pump)._index, PredicateIndex)


# The invariants of the split, over random networks (protocols.md section 1).


@st.composite
def networks(draw: st.DrawFn) -> nx.Graph:
    size = draw(st.integers(2, 9))
    graph = nx.random_labeled_tree(size, seed=draw(st.integers(0, 10**6)))
    for a, b in draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=8)):
        if a != b:
            graph.add_edge(a, b)
    return graph


@settings(max_examples=30)
@given(networks(), st.data())
def test_copies_split_the_set_and_reach_each_destination_once_on_a_shortest_path(
    graph: nx.Graph, data: st.DataObject
) -> None:
    pump = broker_network(sorted(graph.edges), config=RARE_HELLOS, settle=1.0)
    home = data.draw(st.sampled_from(sorted(graph)))
    strangers = [100, 101]
    wanted = tuple(sorted(data.draw(st.sets(st.sampled_from([*sorted(graph), *strangers]), min_size=1))))
    begun = next(iter(graph[home]))
    first = Publication(wanted, 30, a_message())
    pump.receive(broker_name(home), first, sender=pump.link(broker_name(home), broker_name(begun)))
    served: Counter[int] = Counter({home: 1} if home in wanted else {})
    reached_in = {home: 0}
    expected = set(wanted) - {home} - set(strangers)
    assert_split(pump, expected)
    order = Random(data.draw(st.integers(0, 99)))
    while pump.flights:
        flight = pump.flights[order.randrange(len(pump.flights))]
        assert isinstance(flight.packet, Publication)
        here, incoming = int(flight.receiver[1:]), set(flight.packet.destinations)
        before = list(pump.flights)
        before.remove(flight)
        pump.deliver(pump.flights.index(flight))
        passed_on = [child for child in pump.flights if child not in before]
        outgoing = [set(child.packet.destinations) for child in passed_on]  # type: ignore[attr-defined]
        assert sum(map(len, outgoing)) == len(set().union(*outgoing)), "copies overlap"
        assert set().union(*outgoing) == incoming - {here}
        assert all(child.packet.hops_left == flight.packet.hops_left - 1 for child in passed_on)  # type: ignore[attr-defined]
        if here in incoming:
            served[here] += 1
            reached_in[here] = 30 - flight.packet.hops_left
    assert served == Counter(set(wanted) - set(strangers))
    distances = nx.single_source_shortest_path_length(graph, home)
    assert all(reached_in[number] == distances[number] for number in served)
    drops = [record for _, record in pump.records if isinstance(record, Dropped)]
    assert sum(record.destinations for record in drops) == len(set(wanted) & set(strangers))


def assert_split(pump: Pump, expected: set[int]) -> None:
    """The copies at the start are disjoint, and name together what was wanted elsewhere and has a way."""
    named = [number for packet in pump.in_flight(Publication) for number in packet.destinations]  # type: ignore[attr-defined]
    assert sorted(named) == sorted(expected)


@settings(max_examples=25)
@given(networks(), st.data())
def test_everybody_who_wants_a_message_gets_it_once_and_nobody_else(graph: nx.Graph, data: st.DataObject) -> None:
    pump = broker_network(sorted(graph.edges), config=RARE_HELLOS, settle=0.5)
    subscriptions = ["n = 1", "n <> 1", "EXISTS m", "n BETWEEN 0 AND 5", "m LIKE 'a%'", "n = 1 OR m = 'b'"]
    for number in sorted(graph):
        attach(
            pump, f"c{number}", broker_name(number), *data.draw(st.lists(st.sampled_from(subscriptions), max_size=2))
        )
    pump.advance(1.0)
    home = data.draw(st.sampled_from(sorted(graph)))
    values = {"n": st.integers(0, 7), "m": st.sampled_from(["a", "ab", "b", "c"])}
    drawn = {name: data.draw(value) for name, value in values.items() if data.draw(st.booleans())}
    message = make_message(Identity(f"c{home}", 1, 1), drawn)
    publish(pump, f"c{home}", message)
    pump.run()
    due = Counter(
        (f"c{number}", subscription.number)
        for number in graph
        for key, subscription in broker(pump, number)._subscriptions.items()
        if broker(pump, number)._index._predicates[key].matches(message.attributes)
    )
    assert Counter((name, deliver.subscription) for name, deliver in pump.delivered) == due


@pytest.mark.parametrize("number", range(4))
def test_who_publishes_and_wants_gets_its_own_message(number: int) -> None:
    pump = broker_network(STAR)
    attach(pump, "p", f"b{number}", "EXISTS n")
    publish(pump, "p", a_message())
    pump.run()
    assert pump.got("p") == [(1, a_message())]

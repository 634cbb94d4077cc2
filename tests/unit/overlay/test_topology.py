"""The map: lines that both ends claim, shortest ways, and the same answer whatever the order of learning."""

from __future__ import annotations

from random import Random

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from penstock.overlay.topology import Topology, Way


def a_map(*lines: tuple[int, int, int]) -> Topology:
    claims: dict[int, dict[int, int]] = {}
    for a, b, cost in lines:
        claims.setdefault(a, {})[b] = cost
        claims.setdefault(b, {})[a] = cost
    topology = Topology()
    for broker, neighbours in claims.items():
        topology.claim(broker, neighbours)
    return topology


def test_a_broker_alone_has_no_ways() -> None:
    assert Topology().ways_from(1) == {}


def test_a_line_needs_both_ends() -> None:
    topology = Topology()
    topology.claim(1, {2: 1})
    assert topology.ways_from(1) == {}
    topology.claim(2, {1: 1})
    assert topology.ways_from(1) == {2: Way(2, 1)}


def test_the_dearer_of_two_claims_is_the_cost() -> None:
    topology = a_map((1, 2, 1), (1, 3, 2), (3, 2, 2))
    assert topology.ways_from(1)[2] == Way(2, 1)
    topology.claim(2, {1: 9, 3: 2})
    assert topology.ways_from(1)[2] == Way(3, 2)


def test_the_cheapest_way_wins_even_with_more_links() -> None:
    assert a_map((1, 2, 5), (1, 3, 2), (3, 2, 2)).ways_from(1)[2] == Way(3, 2)


def test_among_equally_cheap_ways_fewest_links_win() -> None:
    assert a_map((1, 3, 1), (3, 4, 1), (4, 2, 2), (1, 9, 2), (9, 2, 2)).ways_from(1)[2] == Way(9, 2)


def test_among_equal_ways_the_smallest_neighbour_wins() -> None:
    assert a_map((1, 7, 1), (7, 2, 1), (1, 5, 1), (5, 2, 1)).ways_from(1)[2] == Way(5, 2)


def test_a_forgotten_broker_leads_nowhere() -> None:
    topology = a_map((1, 2, 1), (2, 3, 1))
    topology.forget(2)
    topology.forget(99)
    assert topology.ways_from(1) == {}


def test_a_broker_that_claims_itself_or_a_stranger_does_no_harm() -> None:
    topology = a_map((1, 2, 1))
    topology.claim(2, {1: 1, 2: 1, 42: 1})
    assert topology.ways_from(1) == {2: Way(2, 1)}


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    size = draw(st.integers(2, 12))
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.integers(1, 4))
    graph = nx.Graph()
    graph.add_nodes_from(range(size))
    for a, b, cost in draw(st.lists(pairs, max_size=30)):
        if a != b:
            graph.add_edge(a, b, weight=cost)
    return graph


@given(graphs(), st.randoms(use_true_random=False))
def test_ways_are_shortest_lead_closer_and_ignore_the_order_of_learning(graph: nx.Graph, random: Random) -> None:
    first, second = Topology(), Topology()
    nodes = list(graph.nodes)
    for broker in nodes:
        first.claim(broker, {other: graph[broker][other]["weight"] for other in graph[broker]})
    random.shuffle(nodes)
    for broker in nodes:
        others = list(graph[broker])
        random.shuffle(others)
        second.claim(broker, {other: graph[broker][other]["weight"] for other in others})
    distance = dict(nx.all_pairs_dijkstra_path_length(graph))
    all_ways = {broker: first.ways_from(broker) for broker in graph}
    for broker, ways in all_ways.items():
        assert ways == second.ways_from(broker)
        assert set(ways) == set(distance[broker]) - {broker}
        for target, way in ways.items():
            step = graph[broker][way.neighbour]["weight"]
            assert step + distance[way.neighbour][target] == distance[broker][target]
            rest = 0 if way.neighbour == target else all_ways[way.neighbour][target].hops
            assert way.hops == rest + 1

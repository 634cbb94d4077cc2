"""No circle of waiting after a change of the tree: a small model, all trees of four brokers, every full network.

A window holds one packet. Before the change every neighbour's window at every broker is full of packets on their way on
the old tree, to whatever brokers. Then all brokers take the new tree. With the rule of `pricing.passing` all packets
arrive, in whatever order they move, and also if the tree changes again meanwhile; if what must go back waits on its
neighbour's account, some of these networks stand still for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from random import Random

from penstock.overlay.spanning_tree import SpanningTree

BROKERS = range(4)
KEPT = -1
Edges = tuple[tuple[int, int], ...]
Waiting = tuple[int, int, int]  # at which broker, on whose account, for whom


def all_trees() -> list[Edges]:
    found = combinations(list(combinations(BROKERS, 2)), len(BROKERS) - 1)
    return [edges for edges in found if all(first_hops(edges)[0][broker] is not None for broker in BROKERS[1:])]


def first_hops(edges: Edges) -> list[dict[int, int | None]]:
    """The neighbour to hand it to, at each broker, for each."""
    trees = [SpanningTree([(1, a, b) for a, b in edges], broker) for broker in BROKERS]
    return [{other: tree.first(other) for other in BROKERS} for tree in trees]


def full_networks(edges: Edges) -> Iterator[list[Waiting]]:
    """For each direction of each link a packet that came over it and has to go on, if there is anywhere to go."""
    hops = first_hops(edges)
    ways = [(u, v) for a, b in edges for u, v in ((a, b), (b, a))]
    choices = [[(v, u, d) for d in BROKERS if d != v and hops[v][d] != u] for u, v in ways]
    yield from ([*packets] for packets in product(*[choice for choice in choices if choice]))


class Model:
    def __init__(self, packets: list[Waiting], random: Random, *, returns_are_kept: bool) -> None:
        self.packets = packets
        self._random = random
        self._returns_are_kept = returns_are_kept

    def moves(self, edges: Edges, most: int = 1_000) -> None:
        """Let packets move, in any order, until none can or so many have."""
        hops = first_hops(edges)
        if self._returns_are_kept:
            self.packets = [(v, KEPT if hops[v][d] == u else u, d) for v, u, d in self.packets]
        for _ in range(most):
            able = [packet for packet in self.packets if self._may_move(packet, hops)]
            if not able:
                return
            moved = self._random.choice(able)
            self.packets.remove(moved)
            at, _, destination = moved
            onward = hops[at][destination]
            if onward is not None and onward != destination:
                self.packets.append((onward, at, destination))

    def _may_move(self, packet: Waiting, hops: list[dict[int, int | None]]) -> bool:
        at, _, destination = packet
        onward = hops[at][destination]
        return onward == destination or all((v, u) != (onward, at) for v, u, _ in self.packets)


def cases() -> Iterator[tuple[list[Waiting], Edges, int]]:
    trees = all_trees()
    for number, (old, new) in enumerate(product(trees, trees)):
        for packets in full_networks(old):
            yield packets, new, number


def test_whatever_the_trees_all_packets_arrive():
    random = Random(7)
    trees = all_trees()
    assert len(trees) == 16
    for packets, new, number in cases():
        model = Model(packets, random, returns_are_kept=True)
        model.moves(random.choice(trees), random.randrange(4))
        model.moves(new)
        assert model.packets == [], f"tree change {number}"


def test_without_the_rule_some_would_wait_for_ever():
    random = Random(7)
    stuck = 0
    for packets, new, _ in cases():
        model = Model(packets, random, returns_are_kept=False)
        model.moves(new)
        stuck += bool(model.packets)
    assert stuck > 0

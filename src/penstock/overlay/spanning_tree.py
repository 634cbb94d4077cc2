"""One tree that joins all brokers, the same for everybody who has the same map.

Of the lines of the map the cheapest are taken, one after the other, unless both ends are joined already (Kruskal);
equal ones in the order of their ends. Where the map is a tree this is the map, and what goes to several brokers takes
the same links as on shortest paths.

Traffic that waits instead of being dropped needs such a tree: what waits for one link then waits only for links farther
on, never for itself (`credit`). On shortest paths of a map with circles it can.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.overlay.packets import BrokerId

Line = tuple[int, BrokerId, BrokerId]  # cost, and both ends, the smaller one first
Hop = tuple[BrokerId, BrokerId]  # from, to


class SpanningTree:
    """The tree of one map, as one broker uses it."""

    def __init__(self, lines: Iterable[Line], root: BrokerId) -> None:
        self._before: dict[BrokerId, BrokerId] = {root: root}  # the broker before each, on the way from the root
        self._first: dict[BrokerId, BrokerId] = {}  # the root's neighbour on the way to each
        joined = _joined(lines)
        frontier = [root]
        for broker in frontier:
            for neighbour in joined.get(broker, ()):
                if neighbour not in self._before:
                    self._before[neighbour] = broker
                    self._first[neighbour] = neighbour if broker == root else self._first[broker]
                    frontier.append(neighbour)
        self._root = root

    def first(self, destination: BrokerId) -> BrokerId | None:
        """The neighbour to hand it to; None if there is no way."""
        return self._first.get(destination)

    def hops(self, destinations: Iterable[BrokerId]) -> tuple[Hop, ...]:
        """All links that a message to these brokers takes, each once; those without a way are left out."""
        found: dict[Hop, None] = {}
        for destination in destinations:
            broker = destination
            while broker in self._before and broker != self._root:
                hop = (self._before[broker], broker)
                if hop in found:
                    break
                found[hop] = None
                broker = hop[0]
        return tuple(found)


def _joined(lines: Iterable[Line]) -> dict[BrokerId, list[BrokerId]]:
    """Who is whose neighbour in the tree."""
    leader: dict[BrokerId, BrokerId] = {}

    def leader_of(broker: BrokerId) -> BrokerId:
        while leader.setdefault(broker, broker) != broker:
            leader[broker] = broker = leader[leader[broker]]
        return broker

    joined: dict[BrokerId, list[BrokerId]] = {}
    for _, a, b in sorted(lines):
        if leader_of(a) != leader_of(b):
            leader[leader_of(a)] = leader_of(b)
            joined.setdefault(a, []).append(b)
            joined.setdefault(b, []).append(a)
    return joined

"""Which links a message takes to each broker: the shortest ways of the present map, hop by hop.

Every broker sends a copy to the neighbour with the smallest id among those on a shortest way (`overlay.topology`). So
one search from here tells what all brokers on the way will do: the lines on shortest ways form a graph without circles,
and the way follows, from broker to broker, the smallest neighbour from which the destination can still be reached.

State: that graph, and the ways that were asked for. Bound: the brokers of the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from penstock.overlay.packets import BrokerId
from penstock.overlay.spanning_tree import Hop, Line


class WayLinks:
    """The ways of one map, from one broker."""

    def __init__(self, lines: Iterable[Line], root: BrokerId) -> None:
        self._root = root
        self._before = _brokers_before(lines, root)
        self._ways: dict[BrokerId, tuple[Hop, ...]] = {}

    def to(self, destination: BrokerId) -> tuple[Hop, ...]:
        """The links to this broker, the first one first; none if no way leads there."""
        way = self._ways.get(destination)
        if way is None:
            way = self._ways[destination] = self._way(destination)
        return way

    def _way(self, destination: BrokerId) -> tuple[Hop, ...]:
        if destination not in self._before:
            return ()
        after: dict[BrokerId, list[BrokerId]] = {}  # of brokers on any shortest way to it
        frontier = [destination]
        seen = {destination: None}
        for broker in frontier:
            for before in self._before[broker]:
                after.setdefault(before, []).append(broker)
                if before not in seen:
                    seen[before] = None
                    frontier.append(before)
        way = []
        broker = self._root
        while broker != destination:
            following = min(after[broker])
            way.append((broker, following))
            broker = following
        return tuple(way)


def _brokers_before(lines: Iterable[Line], root: BrokerId) -> dict[BrokerId, list[BrokerId]]:
    """For each broker that can be reached, those before it on shortest ways; of equal ones, with fewest hops."""
    joined: dict[BrokerId, list[tuple[BrokerId, int]]] = {}
    for cost, a, b in lines:
        joined.setdefault(a, []).append((b, cost))
        joined.setdefault(b, []).append((a, cost))
    reached = _distances(joined, root)
    before: dict[BrokerId, list[BrokerId]] = {broker: [] for broker in reached}
    for broker, (distance, hops) in reached.items():
        for neighbour, cost in joined.get(broker, ()):
            if reached[neighbour] == (distance + cost, hops + 1):
                before[neighbour].append(broker)
    return before


def _distances(
    joined: Mapping[BrokerId, list[tuple[BrokerId, int]]], root: BrokerId
) -> dict[BrokerId, tuple[int, int]]:
    reached: dict[BrokerId, tuple[int, int]] = {}
    frontier = [(0, 0, root)]
    while frontier:
        distance, hops, broker = heappop(frontier)
        if broker in reached:
            continue
        reached[broker] = (distance, hops)
        for neighbour, cost in joined.get(broker, ()):
            if neighbour not in reached:
                heappush(frontier, (distance + cost, hops + 1, neighbour))
    return reached

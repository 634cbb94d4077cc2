"""The map of the network, and the way to every broker on it.

Each broker says who its neighbours are; a line on the map exists when both ends claim it, at the dearer of the two
costs. Ways are shortest paths (Dijkstra). Costs are whole numbers, so every broker computes the same distances, each
hop strictly lowers the distance that is left, and once all maps agree no message can go round in circles.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.overlay.packets import BrokerId


class Way(NamedTuple):
    """How to get to a broker: the neighbour to hand it to, and how many links lie ahead."""

    neighbour: BrokerId
    hops: int


class Topology:
    """Who claims whom as a neighbour, for every broker that is known."""

    def __init__(self) -> None:
        self.lines = 0  # claimed in all: what working out the ways costs at most
        self._claims: dict[BrokerId, Mapping[BrokerId, int]] = {}

    def claim(self, broker: BrokerId, neighbours: Mapping[BrokerId, int]) -> None:
        """`broker` has exactly these neighbours now, at these costs (at least 1)."""
        self.forget(broker)
        self._claims[broker] = neighbours
        self.lines += len(neighbours)

    def forget(self, broker: BrokerId) -> None:
        """Nothing is known of this broker any more."""
        self.lines -= len(self._claims.pop(broker, ()))

    def all_lines(self) -> list[tuple[int, BrokerId, BrokerId]]:
        """Every line of the map: its cost, and its ends, the smaller one first."""
        return [(cost, a, b) for a in self._claims for b, cost in self._lines(a) if a < b]

    def has_line(self, a: BrokerId, b: BrokerId) -> bool:
        """Whether both claim each other."""
        return b in self._claims.get(a, {}) and a in self._claims.get(b, {})

    def ways_from(self, root: BrokerId) -> dict[BrokerId, Way]:
        """The way from `root` to every broker it can reach, itself apart.

        Among equally short ways the one with the fewest links wins, then the one through the smallest ids, so the
        answer does not depend on the order in which the map was learnt.
        """
        ways: dict[BrokerId, Way] = {}
        frontier: list[tuple[int, int, BrokerId, BrokerId]] = [(0, 0, root, root)]
        while frontier:
            cost, hops, first, broker = heappop(frontier)
            if broker in ways:
                continue
            ways[broker] = Way(first, hops)
            for neighbour, line_cost in self._lines(broker):
                if neighbour not in ways:
                    via = neighbour if broker == root else first
                    heappush(frontier, (cost + line_cost, hops + 1, via, neighbour))
        del ways[root]
        return ways

    def _lines(self, broker: BrokerId) -> list[tuple[BrokerId, int]]:
        claims = self._claims
        lines = []
        for neighbour, cost in claims.get(broker, {}).items():
            back = claims.get(neighbour, {}).get(broker)
            if back is not None:
                lines.append((neighbour, max(cost, back)))
        return lines

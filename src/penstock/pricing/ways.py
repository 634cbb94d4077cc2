"""The way of a priced message: on one spanning tree, over reliable links, at a price that is the sum of its links.

The lines of the tree are those of the map that are reliable, which the network file says (`lines`). Every broker works
the tree out from its own map. While maps do not agree a copy may lack a way, or go round in circles until its hops are
used up. When the tree has changed, what waits for a link that is not on it (`off_tree`) is sent anew: see `passing`.

State: the tree of the present map, and the ways to sets of brokers on it. Bound: WAYS_MAX sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.overlay.link_reports import LinkReports
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing
from penstock.overlay.spanning_tree import Hop, SpanningTree

WAYS_MAX = 10_000


class TreeWay(NamedTuple):
    """How a message gets to a set of brokers."""

    hops: tuple[Hop, ...]  # all links on its way, here and elsewhere
    groups: tuple[tuple[Link, tuple[BrokerId, ...]], ...]  # the links to take here, each with its brokers
    firsts: tuple[tuple[Link, BrokerId], ...]  # these links, with the neighbour at the other end
    lost: int  # brokers that cannot be reached over reliable links


class PricedWays:
    """Ways on the tree of the present map."""

    def __init__(
        self,
        routing: Routing,
        reports: LinkReports,
        links: Mapping[Link, LinkInfo],
        lines: Iterable[tuple[BrokerId, BrokerId]],
    ) -> None:
        self._routing = routing
        self._reports = reports
        self._links = links
        self._lines = dict.fromkeys(lines)
        self._map: Mapping[BrokerId, Link] | None = None
        self._asked_of: Mapping[BrokerId, Link] | None = None
        self._tree = SpanningTree((), routing.broker)
        self._ways: dict[tuple[BrokerId, ...], TreeWay] = {}

    def off_tree(self) -> list[Link]:
        """If the map has changed since this was asked last: the links to neighbours that are not on the tree."""
        self._see_map()
        if self._map is self._asked_of:
            return []
        self._asked_of = self._map
        return [link for broker, link in self._routing.link_to.items() if self._tree.first(broker) != broker]

    def _see_map(self) -> None:
        exits = self._routing.exits()
        if exits is not self._map:
            self._map = exits
            lines = self._routing.topology.all_lines()
            usable = [line for line in lines if not self._lines or line[1:] in self._lines]
            self._tree = SpanningTree(usable, self._routing.broker)
            self._ways.clear()

    def to(self, destinations: tuple[BrokerId, ...]) -> TreeWay:
        """The way to these brokers."""
        self._see_map()
        way = self._ways.get(destinations)
        if way is None:
            if len(self._ways) >= WAYS_MAX:
                self._ways.clear()
            way = self._ways[destinations] = self._way(destinations)
        return way

    def _way(self, destinations: tuple[BrokerId, ...]) -> TreeWay:
        groups: dict[Link, list[BrokerId]] = {}
        firsts: dict[Link, BrokerId] = {}
        for destination in destinations:
            first = self._tree.first(destination)
            link = None if first is None else self._routing.link_to.get(first)
            if first is not None and link is not None and self.is_reliable(link):
                firsts[link] = first
                groups.setdefault(link, []).append(destination)
        parts = tuple((link, tuple(group)) for link, group in groups.items())
        reached = [destination for _, group in parts for destination in group]
        return TreeWay(self._tree.hops(reached), parts, tuple(firsts.items()), len(destinations) - len(reached))

    def is_reliable(self, link: Link) -> bool:
        """Whether priced messages may take this link."""
        info = self._links.get(link)
        return info is not None and info.kind is LinkKind.RELIABLE

    def cost(self, way: TreeWay, now: float, own: Callable[[Link], float]) -> float:
        """What all links of a way cost together; `own` says what one of this broker costs now, if that is more."""
        value = self._reports.value
        more = [own(link) - value((self._routing.broker, first), now) for link, first in way.firsts]
        return sum([value(hop, now) for hop in way.hops], 0.0) + sum([one for one in more if one > 0.0], 0.0)

    def dearest(
        self, way: TreeWay, now: float, own: Callable[[Link], float] = lambda link: 0.0
    ) -> tuple[Hop, float] | None:
        """The link that costs most, if any costs anything."""
        costs = [(self._reports.value(hop, now), hop) for hop in way.hops]
        costs += [(own(link), (self._routing.broker, first)) for link, first in way.firsts]
        price, hop = max(costs, default=(0.0, (0, 0)))
        return (hop, price) if price > 0.0 else None

"""Interests as they spread over the network, kept once for all routers instead of once in each.

An advertised interest is a flood. Where no router can answer it, it follows the same ways as every other interest of
its home: each router gets it first from the neighbour that is nearest to the home, at a tick that is known before. So a
flood holds only when it began, and shares the ways and the hops (`Ways`) with all others of its home. Where a router
has something on the interest's shelf, that router is visited and its rules decide. Once a router sends the interest no
further, the flood walks on by itself, hop by hop, and has ways of its own.

The table of pending interests of a router is a view on this (`SharedTable`): a flood is in it from the tick that it
arrived to the tick that the overload notification did, which counts on the way of the interest: as many hops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.retrieval.interest import LOCAL, SATISFIED, InterestId, Interface, LooseInterest, PublishedItem

NEVER = 1 << 60
FAR = 1 << 40  # hops to a router that is not reached


class Ways:
    """From which neighbour each router got an interest, and how many hops it took, as will its end."""

    __slots__ = ("floods", "hops", "refreshed", "way")

    def __init__(self, way: list[int], hops: list[int], refreshed: bool) -> None:
        self.refreshed = refreshed  # all floods on it are, or none
        self.way = way
        self.hops = hops
        self.floods: dict[InterestId, Flood] = {}

    def present(self, router: int, tick: int) -> Iterator[LooseInterest]:
        """The interests that have arrived at a router, and not ended."""
        sent = tick - self.hops[router]  # when what arrives now left the home
        for flood in self.floods.values():
            if flood.start <= sent < flood.over:
                yield flood.interest


class Flood:
    """One advertised interest."""

    __slots__ = ("answered", "copies", "front", "gave", "home", "interest", "over", "settled", "start", "walks", "ways")

    def __init__(self, interest: LooseInterest, home: int, start: int, ways: Ways) -> None:
        self.interest = interest
        self.home = home
        self.start = start
        self.over = NEVER
        self.ways = ways
        self.copies: dict[int, LooseInterest] = {}  # what routers that answered sent on
        self.answered: dict[object, list[int]] = {}  # the routers that answered with each publication
        self.gave: dict[int, int] = {}  # how many publications a router sent towards it (delayed pushes)
        self.settled = False  # it has reached all that it will
        self.walks = False  # it has ways of its own
        self.front: list[tuple[int, LooseInterest]] = []

    def copy_at(self, router: int) -> LooseInterest:
        """As it came to a router."""
        way, copies = self.ways.way, self.copies
        before = way[router]
        while before != LOCAL and before not in copies:
            before = way[before]
        return copies.get(before, self.interest)


class HomeTree:
    """How an interest of one home spreads when nobody answers it."""

    def __init__(self, neighbours: list[list[int]], home: int) -> None:
        way, hops = [LOCAL] * len(neighbours), [FAR] * len(neighbours)
        hops[home] = 0
        self.rings = [[home]]
        while self.rings[-1]:
            ring = []
            for router in self.rings[-1]:
                for other in neighbours[router]:
                    if hops[other] == FAR:
                        hops[other] = len(self.rings)
                        way[other] = router
                        ring.append(other)
            self.rings.append(ring)
        self.rings.pop()
        self.way, self.hops = way, hops
        self.masks = [sum(1 << router for router in ring) for ring in self.rings]
        self.messages = 1 + sum(len(neighbours[router]) - 1 for router in range(len(neighbours)))


class FloodIndex:
    """All floods, by shelf and ways."""

    def __init__(self) -> None:
        self.tick = 0
        self.floods: dict[InterestId, Flood] = {}
        self.shelves: dict[object, dict[object, Ways]] = {}

    def shared(self, shelf: object, key: object, make: Callable[[], Ways]) -> Ways:
        """The ways that floods of this shelf and key share."""
        those = self.shelves.setdefault(shelf, {})
        found = those.get(key)
        if found is None:
            found = those[key] = make()
        return found

    def add(self, flood: Flood) -> None:
        """A flood begins."""
        self.floods[flood.interest.id] = flood
        flood.ways.floods[flood.interest.id] = flood

    def move(self, flood: Flood, key: object, make: Callable[[], Ways]) -> None:
        """It has other ways from now on."""
        self._leave(flood)
        flood.ways = self.shared(flood.interest.shelf, key, make)
        flood.ways.floods[flood.interest.id] = flood

    def remove(self, interest: InterestId) -> None:
        """It is over everywhere."""
        flood = self.floods.pop(interest, None)
        if flood is not None:
            self._leave(flood)

    def _leave(self, flood: Flood) -> None:
        those = flood.ways
        del those.floods[flood.interest.id]
        if not those.floods:
            shelf = self.shelves[flood.interest.shelf]
            for key in [key for key, ways in shelf.items() if ways is those]:
                del shelf[key]

    def entries(self, routers: int) -> list[int]:
        """How many interests of others each router has in its table."""
        found = [0] * routers
        for shelf in self.shelves.values():
            for ways in shelf.values():
                count = len(ways.floods)
                for router, far in enumerate(ways.hops):
                    if 0 < far < FAR:
                        found[router] += count
        return found


class SharedTable:
    """One router's table of pending interests."""

    def __init__(self, index: FloodIndex, router: int) -> None:
        self._index = index
        self._router = router
        self._mine: dict[InterestId, tuple[LooseInterest, Interface]] = {}
        self._open: dict[object, dict[InterestId, LooseInterest]] = {}
        self._full: dict[object, dict[InterestId, LooseInterest]] = {}

    def __len__(self) -> int:
        return len(self._mine)

    def add(self, interest: LooseInterest, interface: Interface) -> bool:
        """A receiver's own; those of others are floods, which arrive once."""
        if interface == LOCAL:
            self._mine[interest.id] = (interest, LOCAL)
            self._open.setdefault(interest.shelf, {})[interest.id] = interest
        return True

    def get(self, interest: InterestId) -> tuple[LooseInterest, Interface] | None:
        """The interest and its interface."""
        mine = self._mine.get(interest)
        if mine is not None:
            return mine
        flood = self._index.floods.get(interest)
        if flood is None:
            return None
        ways, router = flood.ways, self._router
        sent = self._index.tick - ways.hops[router]
        if not flood.start <= sent < flood.over or router == flood.home:
            return None
        return flood.interest, ways.way[router]

    def satisfied(self, interest: InterestId) -> None:
        """A receiver here has all that it asked for."""
        one, _ = self._mine[interest]
        self._mine[interest] = (one, SATISFIED)
        del self._open[one.shelf][interest]
        self._full.setdefault(one.shelf, {})[interest] = one

    def over(self, interest: InterestId, now: float) -> bool:
        """A lifetime has ended here."""
        mine = self._mine.pop(interest, None)
        if mine is None:
            return False
        one, interface = mine
        del (self._open if interface == LOCAL else self._full)[one.shelf][interest]
        return True

    def expire(self, now: float) -> None:
        """Nothing to do: floods are removed for all routers at once."""

    def receivers(self, publication: PublishedItem) -> list[tuple[Interface, Iterable[LooseInterest]]]:
        """This router's own."""
        shelf = publication.shelf
        found: list[tuple[Interface, Iterable[LooseInterest]]] = []
        mine = self._open.get(shelf)
        if mine:
            found.append((LOCAL, mine.values()))
        full = self._full.get(shelf)
        if full:
            found.append((SATISFIED, full.values()))
        return found

    def gave(self, interest: InterestId, count: int) -> None:
        """So many publications were sent towards it."""
        flood = self._index.floods.get(interest)
        if flood is not None:
            flood.gave[self._router] = flood.gave.get(self._router, 0) + count

    def owed(self, interest: LooseInterest) -> int:
        """How many it still misses, as far as this router has seen."""
        flood = self._index.floods[interest.id]
        return flood.copy_at(self._router).max - flood.gave.get(self._router, 0)

    def matching(
        self, publication: PublishedItem, *, pending: bool
    ) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """By interface."""
        router, tick = self._router, self._index.tick
        found = self.receivers(publication)
        for ways in self._index.shelves.get(publication.shelf, {}).values():
            way = ways.way[router]
            if way >= 0 and (pending or not ways.refreshed):
                found.append((way, ways.present(router, tick)))
        return found

"""What is wanted of one pubend here: by our own readers, and by the neighbours downstream. What upstream hears of it.

Each owner (a link, or our readers together) has a set of filters, as bytes in normal form, or wants everything. Their
union is our own interest, and every change of it is a new *version*. Upstream filters under the version that it knows
and says which one that was. So each owner has a `since`: the first version that contains its filters. Silence that was
filtered under an older one says nothing to that owner: there may have been what it wants. A version is used once in a
life of the broker: whoever forgets this and begins again begins above it, since what was filtered under it may still be
on its way.

State: the filters of each owner; for recent ticks, who wants them. Bounds: as many filters as a Join holds, for each
owner and for the union; beyond that it is everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.content.filter_bytes import filter_bytes, filter_from_bytes
from penstock.content.matching.filter_index import FilterIndex
from penstock.content.predicate import Filter, Predicate
from penstock.kernel.link import Link
from penstock.streams.packets import FILTER_BYTES_MAX, FILTERS_MAX, Item, Tick

OURSELVES: Link = -1  # the owner of what our own readers want
REMEMBERED_MAX = 4_096  # ticks of which it is remembered who wants them

Filters = Mapping[bytes, Filter]


class PubendInterest:
    """Who wants what of one pubend."""

    def __init__(self, after: int = 0) -> None:
        self.version = self._none = after  # no version yet; the first one is above what was used before
        self._filters: dict[Link, Filters | None] = {}  # None: everything
        self._since: dict[Link, int] = {}
        self._index = FilterIndex()
        self._union: tuple[bytes, ...] | None = ()  # None: everything
        self._wanting: dict[Tick, tuple[Link, ...]] = {}

    def __bool__(self) -> bool:
        """Whether anybody wants anything."""
        return bool(self._filters)

    def since(self, owner: Link) -> int:
        """The first version that contains what this owner wants."""
        return self._since[owner]

    def told(self) -> tuple[bytes, ...]:
        """The filters of a Join; none at all means everything."""
        return self._union or ()

    def set(self, owner: Link, filters: Filters | None) -> None:
        """The owner wants exactly these from now on; None or none at all: everything."""
        wanted = None if not filters or _too_many(filters) else filters
        known = owner in self._filters
        before = self._filters.get(owner)
        if known and _same(before, wanted):
            return
        had, has = before or {}, wanted or {}
        for data in had:
            if data not in has:
                self._index.remove(owner, data)
        for data, selected in has.items():
            if data not in had:
                self._index.add(owner, data, selected)
        self._filters[owner] = wanted
        self._changed()
        narrower = before is None or (wanted is not None and wanted.keys() <= before.keys())
        if not known or not narrower:
            self._since[owner] = self.version

    def remove(self, owner: Link) -> None:
        """The owner wants nothing any more; one that wants nothing already is no mistake."""
        if owner in self._filters:
            self._index.remove_owner(owner)
            del self._filters[owner], self._since[owner]
            self._changed()

    def selected(self, owner: Link, items: Sequence[Item]) -> tuple[Item, ...]:
        """Of these data, what the owner wants."""
        if self._filters[owner] is None:
            return tuple(items)
        wanting = self._wanting
        fresh = [item for item in items if item[0] not in wanting]
        if fresh:
            if len(wanting) + len(fresh) > REMEMBERED_MAX:
                wanting.clear()
                fresh = list(items)
            for (tick, _), owners in zip(fresh, self._index.match([one[1].attributes for one in fresh]), strict=True):
                wanting[tick] = owners
        return tuple(item for item in items if owner in wanting[item[0]])

    def _changed(self) -> None:
        """The union may have changed; a new version if it has."""
        self._wanting.clear()
        union: tuple[bytes, ...] | None = None
        if all(filters is not None for filters in self._filters.values()):
            every = {data: None for filters in self._filters.values() for data in filters or ()}
            union = None if _too_many(every) else tuple(sorted(every))
        if union != self._union or self.version == self._none:
            self._union = union
            self.version += 1


def filters_of(predicates: Sequence[Predicate]) -> dict[bytes, Filter]:
    """What several predicates select together."""
    return {filter_bytes(selected): selected for predicate in predicates for selected in predicate.filters}


def read_filters(told: Sequence[bytes]) -> dict[bytes, Filter]:
    """The filters of a neighbour's Join; raises InvalidEncoding."""
    return {data: filter_from_bytes(data) for data in told}


def _same(one: Filters | None, other: Filters | None) -> bool:
    return (one is None) == (other is None) and (one is None or other is None or one.keys() == other.keys())


def _too_many(filters: Mapping[bytes, object]) -> bool:
    return len(filters) > FILTERS_MAX or sum(map(len, filters)) > FILTER_BYTES_MAX

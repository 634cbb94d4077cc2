"""A router's cache: publications by identifier, table and shelf, at most `size` of them (004 section 3.3.1).

Each publication is in one of three tables (life_cycle.py). Finding what fits an interest looks at one shelf of the
tables that the interest may be served from. When the cache is full, what the replacement order puts first leaves
before the newcomer comes in; the caller gets it back, for one that waits to be sent may have to leave by the network
(dissemination.py). Replacement keeps a heap; an entry whose key has changed is pushed again, and what is stale is
skipped, so that the heap stays within four times the size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush

from penstock.retrieval.interest import PublicationId, PublishedItem
from penstock.retrieval.life_cycle import CachePlace, Selector, Table, selected
from penstock.retrieval.selection import Configuration, Key

Shelf = dict[PublicationId, "CachedItem"]
Changed = Callable[[PublishedItem, CachePlace | None], None]  # it is listed there now, or nowhere
Noted = Callable[[Table, Hashable, bool], None]  # a shelf of a table has its first publication, or lost its last


class CachedItem:
    """One cached publication."""

    __slots__ = ("first_hand", "key", "number", "place", "publication", "scheduled_at", "uploaded", "used_at", "uses")

    def __init__(self, publication: PublishedItem, place: CachePlace, number: int, first_hand: bool) -> None:
        self.publication = publication
        self.first_hand = first_hand  # uploaded here, or it came with the pending flag on: it was never here before
        self.uploaded = publication.uploaded
        self.place = place
        self.number = number
        self.used_at = number
        self.uses = 0
        self.scheduled_at: float | None = None  # when it is pushed at the latest (PDP)
        self.key: Key = ()  # as the heap has it


class Cache:
    """The three tables of one router."""

    def __init__(self, size: int, policy: Configuration, noted: Noted | None = None) -> None:
        self.size = size
        self.evicted = 0
        self._policy = policy
        self._entries: dict[PublicationId, CachedItem] = {}
        self._tables: tuple[dict[Hashable, Shelf], ...] = tuple({} for _ in Table)
        self.pending, self.overflowing, self.disseminated = self._tables
        self._heap: list[tuple[Key, PublicationId]] = []
        self._clock = 0  # uses and arrivals
        self._noted = noted
        self.changed: Changed | None = None  # who keeps the places

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, publication: PublicationId) -> bool:
        return publication in self._entries

    def __iter__(self) -> Iterator[CachedItem]:
        return iter(self._entries.values())

    def get(self, publication: PublicationId) -> CachedItem | None:
        """What is cached under this identifier."""
        return self._entries.get(publication)

    def on_shelf(self, table: Table, shelf: Hashable) -> Shelf | None:
        """What one table has on one shelf."""
        return self._tables[table].get(shelf)

    def first(self, entries: list[CachedItem], count: int) -> list[CachedItem]:
        """The first of them in the order of selection."""
        entries.sort(key=self._policy.selection.key)
        return entries[:count]

    def add(
        self, publication: PublishedItem, place: CachePlace, *, first_hand: bool = True
    ) -> tuple[CachedItem, CachedItem | None] | None:
        """Cache it; returns its entry and the one that had to leave. None: no room for anything, or cached already."""
        if not self.size or publication.id in self._entries:
            return None
        out = self._evict() if len(self._entries) >= self.size else None
        self._clock += 1
        entry = CachedItem(publication, place, self._clock, first_hand)
        self._entries[publication.id] = entry
        self._list(entry, place)
        self._push(entry)
        if self.changed is not None:
            self.changed(publication, place)
        return entry, out

    def use(self, entry: CachedItem, by: Selector) -> CachePlace:
        """It is selected; returns where it was listed before."""
        before = entry.place
        after = selected(before, by)
        self._clock += 1
        entry.used_at = self._clock
        entry.uses += 1
        if after is not before:
            entry.place = after
            if after.table != before.table:
                self._unlist(entry, before)
                self._list(entry, after)
            if self.changed is not None:
                self.changed(entry.publication, after)
        if self._policy.replacement.changes:
            self._push(entry)
        return before

    def remove(self, publication: PublicationId) -> None:
        """Forget it, as one whose content does not fit its hash."""
        entry = self._entries.pop(publication, None)
        if entry is not None:
            self._unlist(entry, entry.place)
            if self.changed is not None:
                self.changed(entry.publication, None)

    def _list(self, entry: CachedItem, place: CachePlace) -> None:
        table, publication = self._tables[place.table], entry.publication
        shelf = table.get(publication.shelf)
        if shelf is None:
            shelf = table[publication.shelf] = {}
            if self._noted is not None:
                self._noted(place.table, publication.shelf, True)
        shelf[publication.id] = entry

    def _unlist(self, entry: CachedItem, place: CachePlace) -> None:
        table = self._tables[place.table]
        shelf = table[entry.publication.shelf]
        del shelf[entry.publication.id]
        if not shelf:
            del table[entry.publication.shelf]
            if self._noted is not None:
                self._noted(place.table, entry.publication.shelf, False)

    def _evict(self) -> CachedItem:
        while True:
            key, identifier = heappop(self._heap)
            entry = self._entries.get(identifier)
            if entry is not None and entry.key == key:
                self.remove(identifier)
                self.evicted += 1
                return entry

    def _push(self, entry: CachedItem) -> None:
        entry.key = self._policy.replacement.key(entry)
        if len(self._heap) >= 4 * self.size:
            self._heap = [(one.key, one.publication.id) for one in self._entries.values() if one is not entry]
            heapify(self._heap)
        heappush(self._heap, (entry.key, entry.publication.id))

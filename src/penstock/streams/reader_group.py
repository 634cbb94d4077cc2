"""The readers of one pubend at their edge, and how they walk on together.

Most readers of a live pubend stand at its newest tick. What comes next is found once for all that stand at one tick,
and an index over the predicates says who wants which of its messages; a reader that wants none only moves on. Readers
that are alone, or nearly so, walk by themselves: one that catches up should not ask for all the others.

State: the readers; from the first time that more than FEW stand together, an index over the predicates of all. Bound:
as many as there are readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.content.matching.exact_index import PredicateIndex
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect
from penstock.streams.known import Known, KnownSpan
from penstock.streams.packets import Item, Tick
from penstock.streams.reader import Cursor, Reader, next_span

FEW = 8  # to ask the predicates of so many one by one is as quick as the index

Walker = tuple[Reader, Cursor]


class ReaderGroup:
    """All readers of one pubend."""

    def __init__(self, pubend: str) -> None:
        self._pubend = pubend
        self._readers: dict[tuple[Link, int], Reader] = {}
        self._keys: dict[tuple[Link, int], int] = {}  # in the index
        self._index: PredicateIndex | None = None
        self._next = 0

    def __len__(self) -> int:
        return len(self._readers)

    def __iter__(self) -> Iterator[Reader]:
        return iter(list(self._readers.values()))

    def __contains__(self, reader: Reader) -> bool:
        return (reader.link, reader.number) in self._readers

    def add(self, reader: Reader) -> None:
        """One that is here already is no mistake."""
        name = (reader.link, reader.number)
        if name not in self._readers:
            self._readers[name] = reader
            self._next += 1
            self._keys[name] = self._next
            if self._index is not None:
                self._index.add(self._next, reader.predicate)

    def remove(self, reader: Reader) -> None:
        name = (reader.link, reader.number)
        del self._readers[name]
        key = self._keys.pop(name)
        if self._index is not None:
            self._index.remove(key)

    def before(self, newest: Tick) -> dict[tuple[Tick, int], None]:
        """Where those stand that can take something and have not come to this tick: position and `since`."""
        pubend = self._pubend
        return {
            (cursor.position, cursor.since): None
            for reader in self._readers.values()
            if (cursor := reader.cursors[pubend]).position < newest and reader.serves(cursor) and reader.may_send()
        }

    def advance(self, known: Known) -> list[Effect]:
        """Let all walk as far as what is known and their credit allow."""
        pubend, head = self._pubend, max(known.head, known.gone)
        places: dict[Tick, list[Walker]] = {}
        for reader in self._readers.values():
            cursor = reader.cursors[pubend]
            if cursor.position < head and reader.serves(cursor) and reader.may_send():
                places.setdefault(cursor.position, []).append((reader, cursor))
        effects: list[Effect] = []
        for walkers in places.values():
            if len(walkers) > FEW:
                effects += self._together(walkers, known)
            for reader, cursor in walkers:
                if cursor.position < head:
                    effects += reader.advance(cursor, known)
        return effects

    def feed(self, span: KnownSpan) -> tuple[list[Effect], KnownSpan] | None:
        """Let the one reader that stands before this have it; also returns what it has no room for.

        None if none stands there, or another stands within: then it is for the cache.
        """
        pubend = self._pubend
        within = [
            (reader, cursor)
            for reader in self._readers.values()
            if span.first - 1 <= (cursor := reader.cursors[pubend]).position < span.last
        ]
        if len(within) != 1 or within[0][1].position != span.first - 1:
            return None
        reader, cursor = within[0]
        return reader.feed(cursor, span)

    def _together(self, walkers: Sequence[Walker], known: Known) -> list[Effect]:
        """Those who stand at one tick, as long as they stay together."""
        effects: list[Effect] = []
        while len(walkers) > FEW:
            span = next_span(known, walkers[0][1].position, max(cursor.since for _, cursor in walkers))
            if span is None:
                break
            wanted = self._wanted(span.items)
            for reader, cursor in walkers:
                items = wanted.get(self._keys[reader.link, reader.number])
                if items is None:
                    cursor.position = span.last
                else:
                    effects += reader.walk(cursor, span.last, items)
            walkers = [one for one in walkers if one[1].position == span.last and one[0].may_send()]
        return effects

    def _wanted(self, items: Sequence[Item]) -> dict[int, list[Item]]:
        """For each reader that wants any of these, those that it wants."""
        if self._index is None:
            self._index = PredicateIndex()
            for name, reader in self._readers.items():
                self._index.add(self._keys[name], reader.predicate)
        wanted: dict[int, list[Item]] = {}
        for item, keys in zip(items, self._index.match([message.attributes for _, message in items]), strict=True):
            for key in keys:
                wanted.setdefault(key, []).append(item)
        return wanted

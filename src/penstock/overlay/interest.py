"""Who wants what: the entries that every broker's clients asked for, in whatever form (`interest_form`).

Two sides. `OwnInterest` counts what our own clients want and turns changes into numbered versions; several clients
that want the same cost the network nothing more, and neither does what another entry covers. `RemoteInterest` is what
one other broker announced: a set at a version, moved on by changes, or replaced by a snapshot that may come in parts.
The set lives in the index of the form, which finds all brokers that may want a message in one call.

A change that does not follow the version at hand is left alone: the hashes of the next Hello will differ, and the
neighbour then sends a snapshot. Parts of a snapshot are kept until the set is whole, so that a lossy link delivers it
in a few tries.

Whoever takes entries in reads them first (`read_entries`), so that what is bad, or too much, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.overlay.interest_form import Entry, InterestForm
from penstock.overlay.packets import BrokerId, Interest

ENTRIES_PER_PACKET = 128
PACKET_BYTES = 8_192  # 128 encodings of 512 bits; a longer entry travels alone


class ReadEntry(NamedTuple):
    """An entry, what it says, and the room that it takes."""

    entry: Entry
    selected: Any
    room: int


def read_entries(entries: Iterable[Entry], form: InterestForm) -> list[ReadEntry]:
    """What the entries say; raises InvalidEncoding."""
    read = []
    for entry in entries:
        selected = form.read(entry)
        read.append(ReadEntry(entry, selected, form.room(entry, selected)))
    return read


class OwnInterest:
    """What our clients want, counted, and the changes not announced yet."""

    def __init__(self, broker: BrokerId, incarnation: int, form: InterestForm) -> None:
        self.version = 0
        self.incarnation = incarnation  # may be set, when a false later life must be outbid
        self.room = 0  # that all wanted entries take
        self._broker = broker
        self._wanted: dict[Entry, int] = {}  # how many subscriptions want it
        self._read: dict[Entry, ReadEntry] = {}  # the same entries
        self._form = form
        self._advertised = form.advertised()
        self._announced: dict[Entry, None] = {}
        self._touched: dict[Entry, None] = {}

    def want(self, entries: Iterable[ReadEntry]) -> None:
        """One more subscription for each of these."""
        self._advertised.begin()
        for read in entries:
            entry, selected, room = read
            count = self._wanted.get(entry, 0)
            self._wanted[entry] = count + 1
            if not count:
                self.room += room
                self._read[entry] = read
                self._form.count(selected, 1)
                self._touched.update(dict.fromkeys(self._advertised.add(entry, selected)))

    def unwant(self, entries: Iterable[Entry]) -> None:
        """One subscription less for each of these, all of which were wanted."""
        self._advertised.begin()
        for entry in entries:
            count = self._wanted.pop(entry) - 1
            if count:
                self._wanted[entry] = count
            else:
                read = self._read.pop(entry)
                self.room -= read.room
                self._form.count(read.selected, -1)
                self._touched.update(dict.fromkeys(self._advertised.remove(entry)))

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def untold(self) -> bool:
        """Whether something may have changed since the last announcement."""
        return bool(self._touched)

    def changes(self) -> Iterator[Interest]:
        """The packets that announce all changes since the last call, each one version further."""
        told, announced = self._advertised.advertises, self._announced
        added = [entry for entry in self._touched if entry not in announced and told(entry)]
        removed = [entry for entry in self._touched if entry in announced and not told(entry)]
        self._touched.clear()
        announced.update(dict.fromkeys(added))
        for entry in removed:
            del announced[entry]
        # What replaces an entry comes with it or before it, so that no version selects less than its neighbours.
        more, fewer = list(_loads(added)), list(_loads(removed))
        together = len(more) == len(fewer) == 1
        steps = [(more[0], fewer[0])] if together else [(load, []) for load in more] + [([], load) for load in fewer]
        for load, taken in steps:
            self.version += 1
            yield Interest(
                origin=self._broker,
                incarnation=self.incarnation,
                base=self.version - 1,
                version=self.version,
                added=tuple(load),
                removed=tuple(taken),
            )

    def announced(self) -> list[Entry]:
        """All entries that have been announced to the network."""
        return list(self._announced)


class RemoteInterest:
    """What one other broker wants, as far as we know. Its entries stand in the index of the form."""

    def __init__(self, origin: BrokerId, form: InterestForm) -> None:
        self.version = 0
        self.room = 0  # that the set takes
        self.parts_room = 0  # that the parts of a snapshot take which is not whole
        self._origin = origin
        self._form = form
        self._entries: dict[Entry, ReadEntry] = {}
        self._parts: dict[int, tuple[Interest, list[ReadEntry]]] = {}  # of one newer snapshot, until it is whole

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_room(self) -> int:
        """That everything takes which we keep."""
        return self.room + self.parts_room

    def has_part(self, packet: Interest) -> bool:
        """Whether we have this part of a snapshot, and wait for the others."""
        part = self._parts.get(packet.part)
        return part is not None and (part[0].version, part[0].parts) == (packet.version, packet.parts)

    def announced(self) -> list[Entry]:
        """All entries it wants."""
        return list(self._entries)

    def apply(self, packet: Interest, added: list[ReadEntry]) -> tuple[Interest, ...]:
        """Move on by this packet, whose entries were read; returns what is news to our neighbours too."""
        if packet.version <= self.version or (packet.base and packet.base != self.version):
            return ()
        if packet.base == 0:
            return self._collect(packet, added)
        self._remove(packet.removed)
        self._add(added)
        self.version = packet.version
        self._drop_parts()
        return (packet,)

    def renew(self) -> None:
        """The origin has begun a new life: what it wanted counts until it says what it wants now."""
        self._drop_parts()
        self.version = 0

    def clear(self) -> None:
        """Forget everything."""
        self._remove(tuple(self._entries))
        self._drop_parts()
        self.version = 0

    def _collect(self, packet: Interest, added: list[ReadEntry]) -> tuple[Interest, ...]:
        """Keep the part; once the snapshot is whole, let it replace the set."""
        if self._parts:
            begun = next(iter(self._parts.values()))[0]
            if begun.version > packet.version:
                return ()
            if (begun.version, begun.parts) != (packet.version, packet.parts):
                self._drop_parts()
        if packet.part not in self._parts:
            self._parts[packet.part] = (packet, added)
            self.parts_room += sum(read.room for read in added)
        if len(self._parts) < packet.parts:
            return ()
        whole = [self._parts[number] for number in range(packet.parts)]
        self.clear()
        for _, entries in whole:
            self._add(entries)
        self.version = packet.version
        return tuple(part for part, _ in whole)

    def _drop_parts(self) -> None:
        self._parts.clear()
        self.parts_room = 0

    def _add(self, entries: Iterable[ReadEntry]) -> None:
        for read in entries:
            if read.entry not in self._entries:
                self._entries[read.entry] = read
                self.room += read.room
                self._form.add(self._origin, read.entry, read.selected)

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            read = self._entries.pop(entry, None)
            if read is not None:
                self.room -= read.room
                self._form.remove(self._origin, entry, read.selected)


def snapshot(origin: BrokerId, incarnation: int, version: int, entries: list[Entry]) -> list[Interest]:
    """The packets that take a listener from nothing to this version."""
    loads = list(_loads(entries)) or [[]]
    return [
        Interest(
            origin=origin,
            incarnation=incarnation,
            base=0,
            version=version,
            added=tuple(load),
            part=part,
            parts=len(loads),
        )
        for part, load in enumerate(loads)
    ]


def _loads(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries in loads of a packet's size."""
    load: list[Entry] = []
    size_bytes = 0
    for entry in entries:
        if load and (len(load) >= ENTRIES_PER_PACKET or size_bytes + len(entry) > PACKET_BYTES):
            yield load
            load, size_bytes = [], 0
        load.append(entry)
        size_bytes += len(entry)
    if load:
        yield load

"""Who wants what: the entries that every broker's clients asked for, in whatever form (`interest_form`).

Two sides. `OwnInterest` counts what our own clients want and turns changes into numbered versions; several clients
that want the same cost the network nothing more, and neither does what another entry covers. `RemoteInterest` is what
one other broker announced: a set at a version, moved on by changes, or replaced by a snapshot that may come in parts.
The set lives in the index of the form, which finds all brokers that may want a message in one call.

A change that does not follow the version at hand is left alone: the hashes of the next Hello will differ, and the
neighbour then sends a snapshot. Parts of a snapshot are kept until the set is whole, so that a lossy link delivers it
in a few tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.overlay.interest_form import Entry, InterestForm
from penstock.overlay.packets import BrokerId, Interest

ENTRIES_PER_PACKET = 128
PACKET_BYTES = 8_192  # 128 encodings of 512 bits; a longer entry travels alone


class OwnInterest:
    """What our clients want, counted, and the changes not announced yet."""

    def __init__(self, broker: BrokerId, incarnation: int, form: InterestForm) -> None:
        self.version = 0
        self.incarnation = incarnation
        self.size_bytes = 0  # of all entries that are wanted
        self._broker = broker
        self._form = form
        self._wanted: dict[Entry, int] = {}  # how many subscriptions want it
        self._advertised = form.advertised()
        self._announced: dict[Entry, None] = {}
        self._touched: dict[Entry, None] = {}

    def want(self, entries: Iterable[Entry]) -> None:
        """One more subscription for each of these."""
        for entry in entries:
            count = self._wanted.get(entry, 0)
            self._wanted[entry] = count + 1
            if not count:
                self.size_bytes += len(entry)
                self._touched.update(dict.fromkeys(self._advertised.add(entry, self._form.read(entry))))

    def unwant(self, entries: Iterable[Entry]) -> None:
        """One subscription less for each of these, all of which were wanted."""
        for entry in entries:
            count = self._wanted.pop(entry) - 1
            if count:
                self._wanted[entry] = count
            else:
                self.size_bytes -= len(entry)
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
        self.size_bytes = 0  # of the set
        self.parts_bytes = 0  # of the parts of a snapshot that is not whole
        self._origin = origin
        self._form = form
        self._entries: dict[Entry, Any] = {}  # each with what it was read as
        self._parts: dict[
            int, tuple[Interest, list[tuple[Entry, Any]]]
        ] = {}  # of one newer snapshot, until it is whole

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """Of everything that we keep."""
        return self.size_bytes + self.parts_bytes

    def announced(self) -> list[Entry]:
        """All entries it wants."""
        return list(self._entries)

    def apply(self, packet: Interest) -> tuple[Interest, ...]:
        """Move on by this packet; returns what is news to our neighbours too. InvalidEncoding changes nothing."""
        if packet.version <= self.version or (packet.base and packet.base != self.version):
            return ()
        added = [(entry, self._form.read(entry)) for entry in packet.added]
        if packet.base == 0:
            return self._collect(packet, added)
        self._remove(packet.removed)
        self._add(added)
        self.version = packet.version
        self._drop_parts()
        return (packet,)

    def clear(self) -> None:
        """Forget everything, as when the origin has begun a new life."""
        self._remove(tuple(self._entries))
        self._drop_parts()
        self.version = 0

    def _drop_parts(self) -> None:
        self._parts.clear()
        self.parts_bytes = 0

    def _collect(self, packet: Interest, added: list[tuple[Entry, Any]]) -> tuple[Interest, ...]:
        """Keep the part; once the snapshot is whole, let it replace the set."""
        if self._parts:
            begun = next(iter(self._parts.values()))[0]
            if begun.version > packet.version:
                return ()
            if (begun.version, begun.parts) != (packet.version, packet.parts):
                self._drop_parts()
        if packet.part not in self._parts:
            self._parts[packet.part] = (packet, added)
            self.parts_bytes += sum(map(len, packet.added))
        if len(self._parts) < packet.parts:
            return ()
        whole = [self._parts[number] for number in range(packet.parts)]
        self.clear()
        for _, entries in whole:
            self._add(entries)
        self.version = packet.version
        return tuple(part for part, _ in whole)

    def _add(self, entries: Iterable[tuple[Entry, Any]]) -> None:
        for entry, selected in entries:
            if entry not in self._entries:
                self._entries[entry] = selected
                self.size_bytes += len(entry)
                self._form.add(self._origin, entry, selected)

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry in self._entries:
                self.size_bytes -= len(entry)
                self._form.remove(self._origin, entry, self._entries.pop(entry))


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

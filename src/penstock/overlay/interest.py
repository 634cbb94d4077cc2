"""Who wants what: the encodings that every broker's clients asked for.

Two sides. `OwnInterest` counts what our own clients want and turns changes into numbered versions; several clients
that want the same encoding cost the network nothing more. `RemoteInterest` is what one other broker announced: a set at
a version, moved on by changes, or replaced by a snapshot that may come in parts. The set lives in a shared
`EncodingIndex`, which finds all brokers that may want a message in one call.

A change that does not follow the version at hand is left alone: the hashes of the next Hello will differ, and the
neighbour then sends a snapshot. Parts of a snapshot are kept until the set is whole, so that a lossy link delivers it
in a few tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.content.bloom import EncodingScheme
from penstock.content.matching.encoded_index import EncodingIndex
from penstock.overlay.packets import BrokerId, Interest

ENCODINGS_PER_PACKET = 128  # 8 KiB at 512 bits


class OwnInterest:
    """What our clients want, counted, and the changes not announced yet."""

    def __init__(self, broker: BrokerId, incarnation: int, scheme: EncodingScheme) -> None:
        self.version = 0
        self.incarnation = incarnation  # may be set, when a false later life must be outbid
        self._broker = broker
        self._scheme = scheme
        self._wanted: dict[int, int] = {}  # encoding -> number of subscriptions
        self._announced: dict[int, None] = {}
        self._touched: dict[int, None] = {}

    def want(self, encodings: Iterable[int]) -> None:
        """One more subscription for each of these."""
        for encoding in encodings:
            self._wanted[encoding] = self._wanted.get(encoding, 0) + 1
            self._touched[encoding] = None

    def unwant(self, encodings: Iterable[int]) -> None:
        """One subscription less for each of these, all of which were wanted."""
        for encoding in encodings:
            count = self._wanted.pop(encoding) - 1
            if count:
                self._wanted[encoding] = count
            self._touched[encoding] = None

    def __len__(self) -> int:
        return len(self._wanted)

    def changes(self) -> Iterator[Interest]:
        """The packets that announce all changes since the last call, each one version further."""
        added = [e for e in self._touched if e in self._wanted and e not in self._announced]
        removed = [e for e in self._touched if e not in self._wanted and e in self._announced]
        self._touched.clear()
        self._announced.update(dict.fromkeys(added))
        for encoding in removed:
            del self._announced[encoding]
        size = ENCODINGS_PER_PACKET
        for start in range(0, max(len(added), len(removed)), size):
            self.version += 1
            yield Interest(
                origin=self._broker,
                incarnation=self.incarnation,
                base=self.version - 1,
                version=self.version,
                added=self._bytes(added[start : start + size]),
                removed=self._bytes(removed[start : start + size]),
            )

    def announced(self) -> list[int]:
        """All encodings that have been announced to the network."""
        return list(self._announced)

    def _bytes(self, encodings: list[int]) -> tuple[bytes, ...]:
        return tuple(self._scheme.to_bytes(encoding) for encoding in encodings)


class RemoteInterest:
    """What one other broker wants, as far as we know. Its encodings stand in the shared index."""

    def __init__(self, origin: BrokerId, index: EncodingIndex, scheme: EncodingScheme) -> None:
        self.version = 0
        self._origin = origin
        self._index = index
        self._scheme = scheme
        self._encodings: dict[int, None] = {}
        self._parts: dict[int, tuple[Interest, list[int]]] = {}  # of one newer snapshot, until it is whole
        self._in_parts = 0  # encodings in them

    def __len__(self) -> int:
        return len(self._encodings)

    def held(self) -> int:
        """How many encodings we keep for it, those of an unfinished snapshot included."""
        return len(self._encodings) + self._in_parts

    def announced(self) -> list[int]:
        """All encodings it wants."""
        return list(self._encodings)

    def has_part(self, packet: Interest) -> bool:
        """Whether we wait for the other parts of its snapshot."""
        part = self._parts.get(packet.part)
        return part is not None and (part[0].version, part[0].parts) == (packet.version, packet.parts)

    def apply(self, packet: Interest) -> tuple[Interest, ...]:
        """Move on by this packet; returns what is news to our neighbours too. InvalidEncoding changes nothing."""
        if packet.version <= self.version:
            return ()
        added = [self._scheme.from_bytes(data) for data in packet.added]
        removed = [self._scheme.from_bytes(data) for data in packet.removed]
        if packet.base == 0:
            return self._collect(packet, added)
        if packet.base != self.version:
            return ()
        self._remove(removed)
        self._add(added)
        self.version = packet.version
        self._drop_parts()
        return (packet,)

    def clear(self) -> None:
        """Forget everything, as when the origin has begun a new life."""
        self._index.remove_owner(self._origin)
        self._encodings.clear()
        self._drop_parts()
        self.version = 0

    def _collect(self, packet: Interest, added: list[int]) -> tuple[Interest, ...]:
        """Keep the part; once the snapshot is whole, let it replace the set."""
        if self._parts:
            begun = next(iter(self._parts.values()))[0]
            if begun.version > packet.version:
                return ()
            if (begun.version, begun.parts) != (packet.version, packet.parts):
                self._drop_parts()
        if packet.part not in self._parts:
            self._parts[packet.part] = (packet, added)
            self._in_parts += len(added)
        if len(self._parts) < packet.parts:
            return ()
        whole = [self._parts[number] for number in range(packet.parts)]
        self.clear()
        for _, encodings in whole:
            self._add(encodings)
        self.version = packet.version
        return tuple(part for part, _ in whole)

    def _drop_parts(self) -> None:
        self._parts.clear()
        self._in_parts = 0

    def _add(self, encodings: list[int]) -> None:
        for encoding in encodings:
            if encoding not in self._encodings:
                self._encodings[encoding] = None
                self._index.add(self._origin, encoding)

    def _remove(self, encodings: list[int]) -> None:
        for encoding in encodings:
            if encoding in self._encodings:
                del self._encodings[encoding]
                self._index.remove(self._origin, encoding)


def snapshot(
    origin: BrokerId, incarnation: int, version: int, encodings: list[int], scheme: EncodingScheme
) -> list[Interest]:
    """The packets that take a listener from nothing to this version."""
    size = ENCODINGS_PER_PACKET
    parts = max(1, -(-len(encodings) // size))
    return [
        Interest(
            origin=origin,
            incarnation=incarnation,
            base=0,
            version=version,
            added=tuple(scheme.to_bytes(e) for e in encodings[part * size : (part + 1) * size]),
            part=part,
            parts=parts,
        )
        for part in range(parts)
    ]

"""What stands on the disk of a pubend: the entries of its log, and its named values.

Each entry of the log is one message with its publication_id; its key is its tick. The values of the pubend's area:
    meta         who it is, written once when it is made
    lease        the newest tick that may be given or told, and which publication ids are known
    gone         the newest tick that is kept no longer, and which publication ids are known
    name/NAME    one durable name: its predicate and its position
    writer/NAME  where the newest batch of one batch writer began
All are arrays in msgpack that begin with a version. The store sees to checksums, so what does not decode was written by
something else, or by a later version: the pubend stops, and nothing is deleted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import TypeVar

import msgspec
from msgspec import Struct

from penstock.content.message import Message
from penstock.streams.packets import Item, Tick

VERSION = 1
META = "meta"
LEASE = "lease"
GONE = "gone"
NAME_PREFIX = "name/"
WRITER_PREFIX = "writer/"


class Versioned(Struct, frozen=True, array_like=True, gc=False):
    """The base of all."""

    version: int


T = TypeVar("T", bound=Versioned)


class LogEntry(Versioned, frozen=True, gc=False):
    """A message in the log, with the key that it was published under."""

    publication_id: str
    message: Message
    key: str = ""


class PubendMeta(Versioned, frozen=True, gc=False):
    """Who the pubend is. The epoch tells it from one of the same name that was removed."""

    stream: str
    number: int
    of: int
    epoch: int


class TickMark(Versioned, frozen=True, gc=False):
    """A lease, or what is gone. With it stands what is known of publication ids, see `publication_ids`."""

    tick: Tick
    ids_known_from: Tick
    ids_crowded_out: Tick


class SharedState(Struct, frozen=True, array_like=True, gc=False):
    """How a name is shared, and what is not done with.

    Everything up to `upto` was looked at. Of that, `given` is not done with: messages by the ticks since the one
    before, each with the attempts that were made and the member that holds it, by its place in `members`; -1: nobody.
    `failed` was tried too often: ticks since the one before, and attempts. `forgiven`: of messages that were let be
    tried again, the tick above the position, and the attempts that do not count.
    """

    ack_within: float
    attempts_max: int
    failed_stream: str
    upto: Tick
    members: tuple[str, ...] = ()
    given: tuple[tuple[int, int, int], ...] = ()
    failed: tuple[tuple[int, int], ...] = ()
    forgiven: tuple[tuple[int, int], ...] = ()


class NameRecord(Versioned, frozen=True, gc=False):
    """A durable name: everything up to `position` is acknowledged. `created` and `seen` are ticks."""

    where: str
    position: Tick
    created: Tick
    seen: Tick
    share: SharedState | None = None


class WriterMark(Versioned, frozen=True, gc=False):
    """The newest batch of a batch writer: all it has stored is behind `after`. `parts`: a bit for each that began."""

    batch: int
    after: Tick
    parts: bytes


class UnreadableEntry(ValueError):
    """What a store returned is nothing of ours."""


encode = msgspec.msgpack.Encoder().encode
_entry_decoder = msgspec.msgpack.Decoder(LogEntry)
_slice_decoder = msgspec.msgpack.Decoder(list[LogEntry])
_decoders: dict[type[Versioned], msgspec.msgpack.Decoder[Versioned]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (LogEntry, PubendMeta, TickMark, NameRecord, WriterMark)
}


def decode_messages(entries: Sequence[tuple[Tick, bytes]]) -> list[Item]:
    """The messages in a part of the log; raises UnreadableEntry."""
    read = _entry_decoder.decode
    try:
        found = [(tick, read(data)) for tick, data in entries]
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = [(tick, decode(data, LogEntry)) for tick, data in entries]  # it says which
    for _, entry in found:
        if entry.version != VERSION:
            raise UnreadableEntry(f"LogEntry of version {entry.version}; this Penstock reads version {VERSION}")
    return [(tick, entry.message) for tick, entry in found]


def packed_ticks(ticks: Sequence[Tick]) -> bytes:
    """Eight bytes each, little-endian."""
    packed = array("q", ticks)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpacked_ticks(data: bytes) -> list[Tick]:
    """The ticks of a slice."""
    packed = array("q", data)
    if byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def as_array(count: int, entries: bytes) -> bytes:
    """Entries that stand one behind the other as one array of msgpack, to be decoded at one stroke."""
    return b"\xdd" + count.to_bytes(4, "big") + entries


def decode_slice(ticks: bytes, entries: bytes) -> list[tuple[Tick, LogEntry]]:
    """What stands in a slice of the log; raises UnreadableEntry."""
    found = unpacked_ticks(ticks)
    try:
        return list(zip(found, _slice_decoder.decode(as_array(len(found), entries)), strict=True))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableEntry(f"a slice of the log cannot be read: {error}") from None


def decode(data: bytes, kind: type[T]) -> T:
    """The struct in these bytes; raises UnreadableEntry."""
    try:
        found = _decoders[kind].decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableEntry(f"{kind.__name__} cannot be read: {error}") from None
    if found.version != VERSION:
        raise UnreadableEntry(f"{kind.__name__} of version {found.version}; this Penstock reads version {VERSION}")
    assert isinstance(found, kind)
    return found

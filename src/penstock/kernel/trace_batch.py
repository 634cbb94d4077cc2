"""Records of one node as a message of the stream `_trace`: many at a time, column by column, compressed.

    batch = TraceBatch(writer="north-1700000000000", node="north", number=1, upto=..., kinds=packed(lines))
    body = encode_batch(batch)

Each kind of record is a list of columns, `time` first, then its own fields in order; the node stands once in the batch.
So equal values lie beside each other, which compresses well, and whoever reads makes columns of Arrow without a loop
over rows. Times are the node's clock, in seconds since 1970.

A batch also says what is needed to know where its writer stands: up to which time it has said all (`upto`), whether
that was its last (`closed`), and how many records it had to leave out, and of which time.

What comes from outside is bounded and checked: a body that unpacks to more than BYTES_MAX, or is no batch, is a
ValueError.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from penstock.kernel.trace import TRACE_CLIENT, TRACE_STREAM, Record, in_sample
from penstock.kernel.trace_files import kind_name

BYTES_MAX = 16 << 20  # of a batch, unpacked
LEVEL = 1  # of compression: a third of the bytes for a millisecond
IDENTITY = ("publisher", "incarnation", "count")
_BEGINNINGS = (TRACE_CLIENT, f"{TRACE_STREAM}/")
_NAMING = ("stream", "pubend", "peer", "neighbour", "client", "sender", "publisher")  # fields that may name the trace

Columns = list[list[Any]]


class TraceBatch(Struct, frozen=True, array_like=True, kw_only=True):
    """What one node has to say at once."""

    version: int = 1
    writer: str  # a node, from when it began to trace until it ends
    node: str
    role: str
    number: int  # of the batch, from 1 on
    upto: float = 0.0  # everything before this time has been said; 0: as before
    closed: bool = False  # the writer has ended
    one_in: int = 1  # of so many messages one is recorded
    left_out: int = 0  # records that found no room since the batch before
    left_from: float = 0.0  # and the times of the first and the last of them
    left_upto: float = 0.0
    kinds: dict[str, Columns] = {}


_decoder = msgspec.msgpack.Decoder(TraceBatch)


def encode_batch(batch: TraceBatch) -> bytes:
    """As it travels."""
    return zlib.compress(msgspec.msgpack.encode(batch), LEVEL)


def decode_batch(body: bytes) -> TraceBatch:
    """What `encode_batch` made; raises ValueError."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(body, BYTES_MAX)
        if not unpacking.eof:
            raise ValueError(f"unpacks to more than {BYTES_MAX} bytes, or is cut off")
        batch = _decoder.decode(plain)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"is no batch of records: {error}") from None
    if batch.version != 1:
        raise ValueError(f"is of version {batch.version}, which this version of Penstock does not know")
    return batch


def packed(lines: Iterable[tuple[float, Record]]) -> dict[str, Columns]:
    """Records as columns: time and fields, by kind."""
    rows: dict[type[Record], list[tuple[float, Record]]] = {}
    for line in lines:
        rows.setdefault(type(line[1]), []).append(line)
    found: dict[str, Columns] = {}
    for kind, own in rows.items():
        times, records = zip(*own, strict=True)
        found[kind_name(kind)] = [list(times), *(list(map(get, records)) for get in _getters(kind))]
    return found


@cache
def _getters(kind: type[Record]) -> tuple[attrgetter[Any], ...]:
    return tuple(attrgetter(name) for name in kind.__struct_fields__)


# What is not said.


@cache
def of_message(kind: type[Record]) -> bool:
    """Whether records of this kind come once for each message, and name it: they are sampled, all others are not."""
    return set(IDENTITY) <= set(kind.__struct_fields__)


def chosen(record: Record, one_in: int) -> bool:
    """Whether the message of this record is one of those that are recorded: the same ones at every node."""
    publisher, incarnation, count = _identity(record)
    return not publisher or in_sample(publisher, incarnation, count, one_in)


_identity: attrgetter[Any] = attrgetter(*IDENTITY)


def about_tracing(record: Record) -> bool:
    """Whether it is about the traffic of the trace itself, which is never traced: it would feed on itself."""
    for get in _naming(
        type(record)
    ):  # for every record: no generator, and most names end the look at their first letter
        name = get(record)
        if type(name) is str and name[:1] == "_" and (name == TRACE_STREAM or name.startswith(_BEGINNINGS)):
            return True
    return False


@cache
def _naming(kind: type[Record]) -> tuple[attrgetter[Any], ...]:
    return tuple(attrgetter(name) for name in _NAMING if name in kind.__struct_fields__)

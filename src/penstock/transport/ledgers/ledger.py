"""A ledger: the sketches of all that a publisher sent since its last one, column by column, compressed.

Whoever recovers lost messages subscribes to ledgers. One tells of every number from `first` to `last`, so it shows what
no record showed: all of a burst, the last messages before a silence, the first of all. An empty one is a heartbeat: it
only says which number was the last. A final one says that its publisher's life ends.

A column is written as a table of its codes and a place in it for each message, if it has few different ones, else as
the codes; either in as few bits as it needs. Codes are those of `sketch` with 24 bits. In a column of texts the table
has the strings themselves, so that LIKE, string ranges and `<>` can be told; a publisher writes these only where they
are few, or somebody asked for them. Departures are units of time from one message to the next, rounded up: an eighth of
the mean, at least 1 ms and at most UNIT_MAX, so nobody takes a message for lost too early. All that is compressed if
that makes it shorter.

Bounds: MESSAGES_MAX messages, COLUMNS_MAX columns, texts of TEXT_MAX characters and TEXTS_ASKED in all, UNPACKED_MAX
bytes. Arrays that are longer are refused before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Annotated
from zlib import MAX_WBITS, compress, decompressobj
from zlib import error as zlib_error

import msgspec
import numpy as np
from msgspec import Meta, Struct

from penstock.content.message import Message, Value
from penstock.errors import InvalidHeader
from penstock.transport.ledgers.packed_numbers import PackedNumbers, pack_numbers, unpack_numbers
from penstock.transport.ledgers.sketch import (
    BOOLEAN,
    LEFT_OUT,
    MISSING,
    NUMBER,
    STRING,
    Code,
    Codes,
    Column,
    Columns,
    common_columns,
    ledger_codes,
    left_out_column,
    name_hash,
)
from penstock.transport.ledgers.version import VERSION_BYTE, versioned

MESSAGES_MAX = 512
COLUMNS_MAX = 32
TEXT_MAX = 64
TEXTS_FREE, TEXT_FREE = 512, 4  # characters of different texts that are written unasked: in all, and for each message
TEXTS_ASKED = 1 << 16  # characters of all texts of a ledger
UNPACKED_MAX = 1 << 20
UNIT_MAX, UNITS_PER_GAP = 16, 8  # milliseconds of departures; units in the mean time between two
_TABLE_SHARE = 0.4  # different codes for each message, up to which a table is shorter


class Ledger(Struct, frozen=True, array_like=True):
    """What a publisher sent, as it travels."""

    incarnation: int
    first: int  # number of the first message that it tells of
    last: int  # of the last that left; one less than the first if it tells of none
    sent_at: float  # by the publisher's clock
    age: int  # milliseconds since the departure of the first message; of the last that left, if it tells of none
    group: int  # how many asked for the same message lately
    columns: Annotated[tuple[str, ...], Meta(max_length=COLUMNS_MAX)] = ()  # letters of the kinds, and names
    complete: bool = True  # the messages have no other attributes
    packed: bytes = b""
    final: bool = False  # this life ends: nothing follows
    deflated: bool = False
    left_out: Annotated[bytes, Meta(max_length=2 * COLUMNS_MAX)] = b""  # hashes of the names of columns without codes

    @property
    def began_at(self) -> float:
        """When the first message left, or less than 1 ms later."""
        return self.sent_at - self.age * 1e-3


_Table = Annotated[tuple[int | str, ...], Meta(max_length=MESSAGES_MAX)]  # an empty one: codes instead of places


class _Unpacked(Struct, frozen=True, array_like=True):
    unit: Annotated[int, Meta(ge=1, le=UNIT_MAX)]  # milliseconds
    steps: PackedNumbers  # units between departures
    columns: Annotated[tuple[tuple[_Table, PackedNumbers], ...], Meta(max_length=COLUMNS_MAX)]  # places in a table


_encode = msgspec.msgpack.Encoder().encode
_decode_ledger = msgspec.msgpack.Decoder(Ledger).decode
_decode_unpacked = msgspec.msgpack.Decoder(_Unpacked).decode


class LedgerContent:
    """The sketches of a ledger that came."""

    def __init__(
        self, ledger: Ledger, columns: Columns, departures: list[float], told: Sequence[tuple[_Table, Codes]]
    ) -> None:
        self.ledger = ledger
        self.columns = columns
        self.departures = departures
        self._told = told  # tables, and what is told of each message
        self._codes: dict[int, list[Code]] = {}

    def __len__(self) -> int:
        return len(self.departures)

    def __getitem__(self, column: int) -> list[Code]:
        """The codes of a column, looked up when they are asked for: most filters name few, and most miss nothing."""
        codes = self._codes.get(column)
        if codes is None:
            codes = [MISSING] * len(self)
            if column < len(self._told):
                table, told = self._told[column]
                codes = list(map(table.__getitem__, told)) if table else told.tolist()
            self._codes[column] = codes
        return codes


def make_ledger(
    incarnation: int,
    first: int,
    messages: Sequence[tuple[Message, float]],  # with their departures
    *,
    texts: Collection[str] = (),
    last: int,
    sent_at: float,
    left_at: float | None = None,  # departure of the last message, for a ledger of none
    alike: bool = False,  # all are known to have the same attributes in the same order, of the same types
    group: int = 0,
    final: bool = False,
    used: Callable[[str], bool] = lambda _: True,  # whether somebody's filters name this column
) -> bytes:
    """The bytes of a ledger of these messages."""
    attributes = [message.attributes for message, _ in messages]
    columns, columns_values, complete = common_columns(attributes, COLUMNS_MAX, used, alike=alike)
    written = []
    room = TEXTS_ASKED
    for (name, kind), values in zip(columns, columns_values, strict=False):  # those left out have none
        once = kind == STRING or (kind == BOOLEAN and alike)  # else 1 could be True
        each = list(dict.fromkeys(values)) if once else values  # most strings come often
        text = False
        if kind == STRING:
            characters = sum([len(value) for value in each if isinstance(value, str)])
            text = characters <= TEXTS_FREE + TEXT_FREE * len(values) or (name in texts and characters <= room)
            room -= characters if text else 0
        written.append(_write_column(kind, values, each, text=text, alike=alike))
    packed = deflated = b""
    if messages:
        packed = _encode(_Unpacked(*_steps([departure for _, departure in messages]), tuple(written)))
        deflated = compress(packed, 6, wbits=-MAX_WBITS)
    shorter = len(deflated) < len(packed)
    began_at = messages[0][1] if messages else sent_at if left_at is None else left_at
    named = tuple([kind + name for name, kind in columns if kind != LEFT_OUT])
    left_out = b"".join([name_hash(name) for name, kind in columns if kind == LEFT_OUT])
    content = deflated if shorter else packed
    told = Ledger(
        incarnation,
        first,
        last,
        sent_at,
        max(0, int((sent_at - began_at) * 1e3)),
        group,
        named,
        complete,
        content,
        final,
        shorter,
        left_out,
    )
    return VERSION_BYTE + _encode(told)


def _steps(departures: list[float]) -> tuple[int, PackedNumbers]:
    """The unit of time, and the departures in it, from one to the next."""
    since = (np.array(departures) - departures[0]) * 1e3
    unit = int(min(max(1.0, since[-1] / len(since) / UNITS_PER_GAP), UNIT_MAX))
    places = np.ceil(since / unit - 1e-6).astype(np.int64)
    return unit, pack_numbers(np.clip(np.diff(places, prepend=0), 0, 0xFFFFFFFF))


def _write_column(
    kind: str, values: Sequence[Value | None], each: Sequence[Value | None], *, text: bool, alike: bool
) -> tuple[tuple[Code, ...], PackedNumbers]:
    """The table, if the column has one, and for each message its code or the place of that in the table.

    `each` has each of the values once, or is the values.
    """
    numbers = ledger_codes(kind, each, alike=alike)
    codes: list[Code] = numbers.tolist()
    if text:
        short = [isinstance(value, str) and len(value) <= TEXT_MAX for value in each]
        codes = [str(value) if fits else code for value, fits, code in zip(each, short, codes, strict=True)]
    table = dict.fromkeys(codes)
    tabled = text or len(table) <= len(values) * _TABLE_SHARE
    if tabled:
        place_of = dict(zip(table, range(len(table)), strict=True))
        numbers = np.array(list(map(place_of.__getitem__, codes)))
    if each is not values:
        told_of = dict(zip(each, numbers.tolist(), strict=True))
        numbers = np.array(list(map(told_of.__getitem__, values)))
    return tuple(table) if tabled else (), pack_numbers(numbers)


def _read_column(table: tuple[Code, ...], packed: PackedNumbers, count: int) -> Codes:
    """For each message its code, or the place of that in the table."""
    told = unpack_numbers(packed, count)
    if table and told.max() >= len(table):
        raise InvalidHeader("a code that is not in its table")
    return told


def decode_ledger(data: bytes) -> LedgerContent:
    """The ledger in these bytes; raises InvalidHeader."""
    try:
        ledger = _decode_ledger(versioned(data, "ledger"))
        count = ledger.last - ledger.first + 1
        _check(ledger, count)
        if not count:
            return LedgerContent(ledger, (), [], ())
        packed = _decode_unpacked(_inflated(ledger))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, zlib_error) as error:
        raise InvalidHeader(f"no valid ledger: {error}") from None
    if len(packed.columns) != len(ledger.columns):
        raise InvalidHeader(f"{len(packed.columns)} columns under {len(ledger.columns)} names")
    columns = [Column(named[1:], named[0]) for named in ledger.columns]
    for at in range(0, len(ledger.left_out), 2):
        columns.append(left_out_column(ledger.left_out[at : at + 2]))
    steps = unpack_numbers(packed.steps, count)
    departures = (ledger.began_at + np.cumsum(steps) * (packed.unit * 1e-3)).tolist()
    told = [(table, _read_column(table, numbers, count)) for table, numbers in packed.columns]  # a bad one is refused
    return LedgerContent(ledger, tuple(columns), departures, told)


def _inflated(ledger: Ledger) -> bytes:
    return decompressobj(-MAX_WBITS).decompress(ledger.packed, UNPACKED_MAX) if ledger.deflated else ledger.packed


def _check(ledger: Ledger, count: int) -> None:
    kinds = {named[:1] for named in ledger.columns}
    names = {named[1:] for named in ledger.columns}
    if not 0 <= count <= MESSAGES_MAX or ledger.first < 1 or ledger.last > 1 << 62 or ledger.incarnation < 0:
        raise InvalidHeader(f"a ledger of messages {ledger.first} to {ledger.last}")
    if len(names) != len(ledger.columns) or not kinds <= {BOOLEAN, NUMBER, STRING}:
        raise InvalidHeader("a ledger with columns that cannot be")
    if not isfinite(ledger.sent_at) or abs(ledger.sent_at) >= 1e15 or not 0 <= ledger.age < 1 << 53:
        raise InvalidHeader("a ledger at a time that cannot be")

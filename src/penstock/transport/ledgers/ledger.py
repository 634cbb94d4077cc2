"""A ledger: the sketches of all that a publisher sent since its last one, column by column, compressed.

Whoever recovers lost messages subscribes to ledgers. One tells of every number from `first` to `last`, so it shows what
no record showed: all of a burst, the last messages before a silence, the first of all. An empty one is a heartbeat: it
only says which number was the last.

A column is written as a table of its codes and one byte for each message, if it has few different ones, else as three
rows of bytes, the low ones first. Codes are those of `sketch` with 24 bits. In a column of texts the table has
the strings themselves, so that LIKE, string ranges and `<>` can be told; a publisher writes these only where they are
few, or somebody asked for them. Departures are milliseconds from one message to the next.

Bounds: MESSAGES_MAX messages, COLUMNS_MAX columns, texts of TEXT_MAX characters and TEXTS_ASKED in all, UNPACKED_MAX
bytes. Arrays that are longer are refused before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Annotated
from zlib import compress, decompressobj
from zlib import error as zlib_error

import msgspec
import numpy as np
from msgspec import Meta, Struct

from penstock.content.message import Message, Value
from penstock.errors import InvalidHeader
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
)

MESSAGES_MAX = 512
COLUMNS_MAX = 32
TEXT_MAX = 64
TEXTS_FREE, TEXT_FREE = 512, 4  # characters of different texts that are written unasked: in all, and for each message
TEXTS_ASKED = 1 << 16  # characters of all texts of a ledger
UNPACKED_MAX = 1 << 20
_TABLE_MAX = 256
_TABLE_SHARE = 0.4  # different codes for each message, up to which a table is shorter: 5 bytes in it, 3 in the rows


class Ledger(Struct, frozen=True, array_like=True):
    """What a publisher sent, as it travels."""

    publisher: str
    incarnation: int
    first: int  # number of the first message that it tells of
    last: int  # of the last that left; one less than the first if it tells of none
    sent_at: float  # by the publisher's clock
    began_at: float  # departure of the first message; of the last that left, if it tells of none
    group: int  # how many asked for the same message lately
    columns: Annotated[tuple[str, ...], Meta(max_length=COLUMNS_MAX)] = ()  # letters of the kinds, and names
    complete: bool = True  # the messages have no other attributes
    packed: bytes = b""


_Table = Annotated[tuple[int | str, ...], Meta(max_length=MESSAGES_MAX)]  # an empty one: three rows of bytes instead


class _Unpacked(Struct, frozen=True, array_like=True):
    steps: bytes  # milliseconds between departures, 4 bytes each, in four rows
    columns: Annotated[tuple[tuple[_Table, bytes], ...], Meta(max_length=COLUMNS_MAX)]  # a table, and places in it


_encode = msgspec.msgpack.Encoder().encode
_decode_ledger = msgspec.msgpack.Decoder(Ledger).decode
_decode_unpacked = msgspec.msgpack.Decoder(_Unpacked).decode


class LedgerContent:
    """The sketches of a ledger that came."""

    def __init__(self, ledger: Ledger, columns: Columns, departures: list[float], packed: _Unpacked) -> None:
        self.ledger = ledger
        self.columns = columns
        self.departures = departures
        self._packed = packed
        self._codes: dict[int, list[Code]] = {}

    def __len__(self) -> int:
        return len(self.departures)

    def __getitem__(self, column: int) -> list[Code]:
        """The codes of a column, read when they are asked for: most filters name few."""
        codes = self._codes.get(column)
        if codes is None:
            told = column < len(self._packed.columns)
            codes = _read_column(*self._packed.columns[column], len(self)) if told else [MISSING] * len(self)
            self._codes[column] = codes
        return codes


def make_ledger(
    identity: tuple[str, int],
    first: int,
    messages: Sequence[tuple[Message, float]],  # with their departures
    *,
    texts: Collection[str] = (),
    last: int,
    sent_at: float,
    left_at: float | None = None,  # departure of the last message, for a ledger of none
    group: int = 0,
    used: Callable[[str], bool] = lambda _: True,  # whether somebody's filters name this column
) -> bytes:
    """The bytes of a ledger of these messages."""
    attributes = [message.attributes for message, _ in messages]
    columns, complete = common_columns(attributes, COLUMNS_MAX, used)
    written = []
    room = TEXTS_ASKED
    for name, kind in columns:
        if kind == LEFT_OUT:
            break
        values = [one.get(name) for one in attributes]
        text = False
        if kind == STRING:
            characters = _characters(values)
            text = characters <= TEXTS_FREE + TEXT_FREE * len(values) or (name in texts and characters <= room)
            room -= characters if text else 0
        written.append(_write_column(kind, values, text=text))
    packed = b""
    if messages:
        left = np.array([departure for _, departure in messages])
        steps = np.diff(np.rint((left - left[0]) * 1e3).astype(np.int64), prepend=0)
        packed = compress(_encode(_Unpacked(_rows(np.clip(steps, 0, 0xFFFFFFFF), 4), tuple(written))), 6)
    began_at = messages[0][1] if messages else sent_at if left_at is None else left_at
    named = tuple([kind + name for name, kind in columns])
    return _encode(Ledger(*identity, first, last, sent_at, began_at, group, named, complete, packed))


def _characters(values: Sequence[Value | None]) -> int:
    """What the texts of a column cost."""
    return sum(len(value) for value in dict.fromkeys(values) if isinstance(value, str))


def _write_column(kind: str, values: Sequence[Value | None], *, text: bool) -> tuple[tuple[Code, ...], bytes]:
    codes: list[Code] = ledger_codes(kind, values).tolist()
    if text:
        known = {
            value: value if isinstance(value, str) and len(value) <= TEXT_MAX else code
            for value, code in dict(zip(values, codes, strict=True)).items()
        }
        codes = [known[value] for value in values]
    table = list(dict.fromkeys(codes))
    if text or len(table) <= min(_TABLE_MAX, len(codes) * _TABLE_SHARE):
        places = {code: at for at, code in enumerate(table)}
        width = 1 if len(table) <= _TABLE_MAX else 2
        return tuple(table), _rows(np.array([places[code] for code in codes]), width)
    return (), _rows(np.array(codes), 3)


def _rows(values: Codes, width: int) -> bytes:
    """Numbers as rows of bytes, the low bytes first: alike bytes stand together."""
    return values.astype("<u4").view(np.uint8).reshape(-1, 4).T[:width].tobytes()


def _from_rows(data: bytes, width: int, count: int) -> Codes:
    if len(data) != width * count:
        raise InvalidHeader(f"{len(data)} bytes for {count} numbers of {width}")
    rows = np.frombuffer(data, np.uint8).reshape(width, count).astype(np.uint32)
    total: Codes = rows[0]
    for place in range(1, width):
        total = total + (rows[place] << np.uint32(8 * place))
    return total


def _read_column(table: tuple[Code, ...], data: bytes, count: int) -> list[Code]:
    if not table:
        codes: list[Code] = _from_rows(data, 3, count).tolist()
        return codes
    places = _from_rows(data, 1 if len(table) <= _TABLE_MAX else 2, count).tolist()
    if max(places) >= len(table):
        raise InvalidHeader("a code that is not in its table")
    return [table[place] for place in places]


def decode_ledger(data: bytes) -> LedgerContent:
    """The ledger in these bytes; raises InvalidHeader."""
    try:
        ledger = _decode_ledger(data)
        count = ledger.last - ledger.first + 1
        _check(ledger, count)
        if not count:
            return LedgerContent(ledger, (), [], _Unpacked(b"", ()))
        unpacking = decompressobj()
        packed = _decode_unpacked(unpacking.decompress(ledger.packed, UNPACKED_MAX))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, zlib_error) as error:
        raise InvalidHeader(f"no valid ledger: {error}") from None
    columns = tuple([Column(named[1:], named[0]) for named in ledger.columns])
    told = [column for column in columns if column.kind != LEFT_OUT]
    if len(packed.columns) != len(told) or columns[: len(told)] != tuple(told):
        raise InvalidHeader(f"{len(packed.columns)} columns under {len(told)} names")
    steps = _from_rows(packed.steps, 4, count).astype(np.int64)
    departures = (ledger.began_at + np.cumsum(steps) * 1e-3).tolist()
    content = LedgerContent(ledger, columns, departures, packed)
    for column in range(len(told)):
        content[column]  # so that a bad one is refused as a whole
    return content


def _check(ledger: Ledger, count: int) -> None:
    kinds = {named[:1] for named in ledger.columns}
    names = {named[1:] for named in ledger.columns}
    times = (ledger.sent_at, ledger.began_at)
    if not 0 <= count <= MESSAGES_MAX or ledger.first < 1 or ledger.last > 1 << 62 or ledger.incarnation < 0:
        raise InvalidHeader(f"a ledger of messages {ledger.first} to {ledger.last}")
    if len(names) != len(ledger.columns) or not kinds <= {BOOLEAN, NUMBER, STRING, LEFT_OUT}:
        raise InvalidHeader("a ledger with columns that cannot be")
    if not all(isfinite(time) and abs(time) < 1e15 for time in times):
        raise InvalidHeader("a ledger at a time that cannot be")

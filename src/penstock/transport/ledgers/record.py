"""The header of a message, and the record in it: sketches of the messages before it.

    1 byte    version, 3                1 byte    flags: congestion control fields, and how many (`wire/flow_fields`)
    8 bytes   number                    8 bytes   departure, in seconds of the publisher's clock
    8 bytes   mask of the columns: bit i says that the i-th attribute, in the order of names, is one
    then the congestion control fields, if a flag says so
    then entries, newest first: 2 bytes departure in milliseconds, modulo 65,536; 2 bytes for each column

Numbers are little-endian; those of the entries big-endian. The columns are the attributes of the message that carries
the record, with the classes of its values, so the receiver has their names already; without those that nobody's
filters name (`column_use`). Entries never change, so the record of the next message is one entry put in front of this
record, and a cut. A publisher whose messages have different attributes has one such record for each set of columns that
it used lately, and brings it up to date when it is used.

State of `Records`: the last messages, and a record for each set of columns. Bounds: RECORD_BYTES_MAX or ENTRIES_MAX of
one record, nothing older than AGE_MAX in it; SHAPES_MAX sets of columns. No messages, no timers.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from struct import Struct as Layout

from msgspec import Struct

from penstock.content.message import Attributes
from penstock.errors import InvalidHeader
from penstock.transport.ledgers.column_use import ColumnUse
from penstock.transport.ledgers.sketch import CODERS, Columns, columns_of, record_codes
from penstock.transport.ledgers.version import VERSION, not_ours
from penstock.transport.wire.flow_fields import (
    CONTROL,
    FURTHER_SHIFT,
    Control,
    control_bytes,
    control_flags,
    pack_control,
    unpack_control,
)

RECORD_BYTES_MAX = 120
ENTRIES_MAX = 24
AGE_MAX = 60.0  # seconds: a departure in milliseconds is known modulo 65.5
SHAPES_MAX = 64
NUMBER_MAX = 1 << 62
_FIXED = Layout("<BBQdQ")
_pack_fixed, _unpack_fixed, _FIXED_BYTES = _FIXED.pack, _FIXED.unpack_from, _FIXED.size
_ENTRIES = [Layout(f">{1 + columns}H") for columns in range(65)]


class DataHeader(Struct, gc=False):
    """The header of a message that came."""

    sequence: int
    departure: float
    control: Control | None = None
    record_size: int = 0
    data: bytes = b""
    start: int = 0  # of the record in it
    mask: int = 0

    def columns(self, attributes: Attributes) -> Columns:
        """The columns of the record; `attributes` are those of the message that carries it."""
        columns = columns_of(attributes)
        mask = self.mask
        if mask >> len(columns):
            raise InvalidHeader(f"a record with more columns than the message's {len(columns)} attributes")
        return tuple([column for at, column in enumerate(columns) if mask >> at & 1])

    def entry(self, back: int) -> tuple[float, tuple[int, ...]]:
        """Departure and codes of the message that is `back` before this one, 1 being the one before."""
        layout = _ENTRIES[self.mask.bit_count()]
        milliseconds, *codes = layout.unpack_from(self.data, self.start + (back - 1) * layout.size)
        age = ((int(self.departure * 1e3) - milliseconds) & 0xFFFF) * 1e-3
        return self.departure - age, tuple(codes)


def decode_data_header(data: bytes) -> DataHeader:
    """The header in these bytes; raises InvalidHeader, and ForeignScheme if the publisher uses another."""
    if len(data) < _FIXED_BYTES or data[0] != VERSION:
        raise not_ours(data, "header")
    _, flags, number, departure, mask = _unpack_fixed(data)
    start = _FIXED_BYTES
    control = None
    if flags:
        further = flags >> FURTHER_SHIFT
        if flags & ((1 << FURTHER_SHIFT) - 1) != CONTROL or len(data) < start + control_bytes(further):
            raise InvalidHeader(f"flags {flags} in a header of {len(data)} bytes")
        control = unpack_control(data, start, further)
        start += control_bytes(further)
    entries, rest = divmod(len(data) - start, 2 + 2 * mask.bit_count())
    if rest or not 0 < number <= NUMBER_MAX or not -1e15 < departure < 1e15:  # NaN is not
        raise InvalidHeader(f"number {number}, departure {departure}, a record that ends with {rest} bytes")
    if entries >= number or entries > ENTRIES_MAX:
        raise InvalidHeader(f"a record of {entries} entries on message {number}")
    return DataHeader(number, departure, control, entries, data, start, mask)


class _Shape:
    """A set of columns, and the record in them."""

    __slots__ = ("coders", "columns", "layout", "limit", "mask", "pack", "record", "up_to")

    def __init__(self, columns: Columns, mask: int, number: int) -> None:
        self.columns = columns
        self.coders = [(name, CODERS[kind]) for name, kind in columns]
        self.layout = _ENTRIES[len(columns)]
        self.pack = self.layout.pack
        self.limit = min(ENTRIES_MAX, RECORD_BYTES_MAX // self.layout.size) * self.layout.size
        self.mask = mask
        self.record = b""
        self.up_to = number  # the last message that has an entry, or is too old for one


class SketchRecord:
    """The records of one publisher."""

    def __init__(self, use: ColumnUse | None = None) -> None:
        self.number = 0  # of the last message
        self._use = use or ColumnUse()
        self._use_version = self._use.version
        self._shapes: dict[tuple[object, ...], _Shape] = {}  # by the names of attributes, and their types
        self._key: tuple[object, ...] = ()  # these, of the header made last, and its shape
        self._next = _Shape((), 0, 0)
        self.alike_from = 1  # the first message since when all have the same
        self._recent: deque[tuple[float, Attributes]] = deque(maxlen=ENTRIES_MAX)  # the last, newest first

    def header(self, attributes: Attributes, departure: float, control: Control | None = None) -> bytes:
        """The header of the next message; nothing has changed until it has `left`."""
        number, recent = self.number, self._recent
        if self._use.version != self._use_version:
            self._use_version = self._use.version
            self._shapes.clear()
            self._key = ()
        key = (*attributes, *map(type, attributes.values()))
        if key != self._key:
            self._key, self.alike_from = key, number + 1
            self._next = self._shapes.get(key) or self._new_shape(key, attributes)
        shape = self._next
        if shape.up_to != number:
            self._catch_up(shape)
        record = shape.record
        if recent and departure - recent[-1][0] > AGE_MAX:
            record = self._young(shape, departure)
        if control is None:
            return _pack_fixed(VERSION, 0, number + 1, departure, shape.mask) + record
        fixed = _pack_fixed(VERSION, control_flags(control), number + 1, departure, shape.mask)
        return fixed + pack_control(control) + record

    def left(self, attributes: Attributes, departure: float) -> int:
        """The message whose header was made last has left; returns its number."""
        self.number = number = self.number + 1
        shape = self._next
        codes = [code(attributes[name]) for name, code in shape.coders]
        shape.record = (shape.pack(int(departure * 1e3) & 0xFFFF, *codes) + shape.record)[: shape.limit]
        shape.up_to = number
        self._recent.appendleft((departure, attributes))
        return number

    def _new_shape(self, key: tuple[object, ...], attributes: Attributes) -> _Shape:
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        shape = self._shapes[key] = self._make(columns_of(attributes))
        return shape

    def _make(self, present: Columns) -> _Shape:
        """A shape for these columns; in another order, or 1 for 1.0, the attributes still have the same."""
        self._use.publishes([column.name for column in present])
        used = [self._use.used(column.name) for column in present]
        columns = tuple([column for column, one in zip(present, used, strict=True) if one])
        mask = sum(1 << at for at, one in enumerate(used) if one)
        for shape in self._shapes.values():
            if shape.columns == columns and shape.mask == mask:
                return shape
        return _Shape(columns, mask, 0)

    def _catch_up(self, shape: _Shape) -> None:
        """Entries for the messages since this shape was used last."""
        entries: list[bytes] = []
        for departure, attributes in islice(self._recent, self.number - shape.up_to):
            codes = record_codes(shape.columns, attributes)
            entries.append(shape.layout.pack(int(departure * 1e3) & 0xFFFF, *codes))
        known = shape.record if self.number - shape.up_to == len(entries) else b""  # else there is a gap between them
        shape.record = (b"".join(entries) + known)[: shape.limit]
        shape.up_to = self.number

    def _young(self, shape: _Shape, departure: float) -> bytes:
        """The part of the record whose departures can be told."""
        young = sum(departure - left <= AGE_MAX for left, _ in self._recent)
        return shape.record[: young * shape.layout.size]

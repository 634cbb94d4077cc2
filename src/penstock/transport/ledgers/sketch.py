"""A typed sketch: a few bits for each attribute of a message, enough to say what most filters would say of it.

A *column* is an attribute's name and the class of its values (boolean, number or string). A *code* stands for a value
in a column. Records have codes of 16 bits, ledgers of 24.

    0            the message has no such attribute
    1            it has one, of another class than the column's
    2, 3         False, True
    a number     its place in the order of numbers, below: codes are in the order of the values
    a string     a hash, from STRING_FIRST on

Numbers. Take the float of 32 bits at or below the value, as a signed integer that grows with it, and cut its last bits
off: that is a *cell*. A value that is the lower end of its cell gets an even code, so it is known exactly; all others
in the cell share the odd code after it. Whole numbers up to 128 (16 bits) or 32,768 (24 bits), and halves and quarters
of smaller ones, are exact. -0.0 is 0.0.

The bulk form of codes, for a ledger, is one numpy array for each column. No state but memos of codes, which are
bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from penstock.content.message import Attributes, Value

MISSING, OTHER_CLASS, FALSE, TRUE = range(4)
STRING_FIRST = 4
RECORD_BITS, LEDGER_BITS = 16, 24
BOOLEAN, NUMBER, STRING = "b", "n", "s"
LEFT_OUT = "-"  # a column that messages have, and of which nothing is told
MEMO_MAX = 4_096
EXACT_INTEGER_MAX = 1 << 53  # beyond it a float of 64 bits is not every whole number
_FLOAT, _BITS = Struct(">f"), Struct(">i")
_CLASSES: dict[type, str] = {bool: BOOLEAN, int: NUMBER, float: NUMBER, str: STRING}


class Column(NamedTuple):
    """An attribute's name, and the class of value that its codes stand for."""

    name: str
    kind: str


Columns = tuple[Column, ...]
Code = int | str  # of a value, or in a ledger a text itself
Codes = np.ndarray[Any, np.dtype[Any]]


class Sketch(NamedTuple):
    """A message that has not come, as far as it is known."""

    columns: Columns
    bits: int
    complete: bool  # it has no other attributes
    codes: tuple[Code, ...]


def name_hash(name: str) -> bytes:
    """Two bytes that stand for the name of a column that is left out."""
    return crc32(name.encode("utf-8", "surrogatepass")).to_bytes(4, "big")[:2]


def left_out_column(hashed: bytes) -> Column:
    """Stands for the columns of that hash. No attribute has such a name."""
    return Column("\0" + hashed.hex(), LEFT_OUT)


def columns_of(attributes: Attributes) -> Columns:
    """A column for each attribute, in the order of names."""
    return tuple([Column(name, _CLASSES[attributes[name].__class__]) for name in sorted(attributes)])


def number_code(value: float, bits: int) -> int:
    """The code of a number."""
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        packed = _FLOAT.pack(inf if value > 0 else -inf)
    place: int = _BITS.unpack(packed)[0]
    shift = 33 - bits
    below = (1 << shift) - 1
    if place > 0 and place & below:  # by far the most
        return (place >> shift << 1 | 1) + (1 << (bits - 1))
    if place < 0:
        place = -(place & 0x7FFFFFFF)
    cell, odd = place >> shift, 1
    if not place & below:
        rounded = _FLOAT.unpack(packed)[0]
        if value == rounded:
            odd = 0
        elif value < rounded:
            cell -= 1
    return (cell << 1 | odd) + (1 << (bits - 1))


def string_code(value: str, bits: int) -> int:
    """The code of a string."""
    return STRING_FIRST + crc32(value.encode("utf-8", "surrogatepass")) % ((1 << bits) - STRING_FIRST)


class Coder(dict[Value, int]):
    """Codes of 16 bits of booleans or strings, worked out once: `coder[value]`."""

    def __missing__(self, value: Value) -> int:
        code = string_code(value, RECORD_BITS) if isinstance(value, str) else TRUE if value else FALSE
        if len(self) >= MEMO_MAX:
            self.clear()
        self[value] = code
        return code


def record_number_code(value: float) -> int:
    """`number_code` with 16 bits, shorter for most numbers: this runs for every message that is published."""
    try:
        place: int = _BITS.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return number_code(value, RECORD_BITS)
    if place > 0:
        if place & 0x1FFFF:
            return (place >> 16 | 1) + 0x8000
        if isinstance(value, int) and value < 1 << 24:  # a float of 32 bits is every such number
            return (place >> 16) + 0x8000
    return number_code(value, RECORD_BITS)


CODERS: dict[str, Callable[[Any], int]] = {
    BOOLEAN: Coder().__getitem__,
    NUMBER: record_number_code,
    STRING: Coder().__getitem__,
}


def record_codes(columns: Columns, attributes: Attributes) -> list[int]:
    """The codes of a message in any columns, 16 bits each."""
    codes = []
    for name, kind in columns:
        value = attributes.get(name)
        if value is None:
            codes.append(MISSING)
        elif _CLASSES[value.__class__] != kind:
            codes.append(OTHER_CLASS)
        else:
            codes.append(CODERS[kind](value))
    return codes


def ledger_codes(kind: str, values: Sequence[Value | None], *, alike: bool = False) -> Codes:
    """The codes of one column of many messages, 24 bits each; None: no such attribute. `alike`: all are of one type."""
    types = dict.fromkeys(map(type, values[:1] if alike else values))
    whole = int in types
    if all(_CLASSES.get(one) == kind for one in types):
        return _codes_of(kind, values, whole)
    codes = np.zeros(len(values), np.uint32)
    told = [at for at, value in enumerate(values) if value is not None and _CLASSES[value.__class__] == kind]
    if len(told) < len(values):
        for at, value in enumerate(values):
            codes[at] = MISSING if value is None else OTHER_CLASS
    codes[told] = _codes_of(kind, [values[at] for at in told], whole)
    return codes


def _codes_of(kind: str, values: Sequence[Value | None], whole: bool) -> Codes:
    """The same of values of one class; `whole`: some are whole numbers."""
    if kind == BOOLEAN:
        codes: Codes = np.array(values, np.uint32) + np.uint32(FALSE)
        return codes
    if kind == STRING:
        return np.array([string_code(str(value), LEDGER_BITS) for value in values], np.uint32)
    floats = np.array(values, np.float64)
    if whole and np.abs(floats).max() >= EXACT_INTEGER_MAX:
        return np.array([number_code(value, LEDGER_BITS) for value in values], np.uint32)  # type: ignore[arg-type]
    return number_codes(floats, LEDGER_BITS)


def number_codes(values: Codes, bits: int) -> Codes:
    """The codes of many numbers; the same as `number_code` of each."""
    with np.errstate(over="ignore", under="ignore"):
        floats = values.astype(np.float32)
    places = floats.view(np.int32).astype(np.int64)
    places = np.where(places < 0, -(places & 0x7FFFFFFF), places)
    shift = 33 - bits
    cells = places >> shift
    ends = (places & ((1 << shift) - 1)) == 0
    rounded = floats.astype(np.float64)
    cells = cells - (ends & (values < rounded))
    odd = ~(ends & (values == rounded))
    codes: Codes = ((cells << 1 | odd) + (1 << (bits - 1))).astype(np.uint32)
    return codes


def common_columns(
    messages: Sequence[Attributes],
    columns_max: int,
    used: Callable[[str], bool] = lambda _: True,
    *,
    alike: bool = False,
) -> tuple[Columns, list[Sequence[Value | None]], bool]:
    """Columns for all of these messages, each of the class that most have; the values in them; and whether no attribute
    is without one.

    Those that nobody uses come last, as columns that are left out, without values. `alike`: all are known to have the
    same attributes in the same order, of the same types, as most publishers'. Then columns are read in one go.
    """
    counts: Counter[str] = Counter()
    rows: dict[str, Sequence[Value | None]] = {}
    if alike and messages:
        rows = dict(zip(messages[0], zip(*[one.values() for one in messages], strict=True), strict=True))
        counts.update(tuple(rows))
    else:
        for names, count in Counter(map(tuple, messages)).items():
            for name in names:
                counts[name] += count
    left_out = {name: not used(name) for name in counts}
    often = sorted(counts, key=lambda name: (left_out[name], -counts[name], name))[:columns_max]
    often.sort(key=lambda name: (left_out[name], name))
    columns: list[Column] = []
    values: list[Sequence[Value | None]] = []
    for name in often:
        if left_out[name]:
            columns.append(Column(name, LEFT_OUT))
            continue
        column = rows[name] if rows else [one.get(name) for one in messages]
        columns.append(Column(name, _CLASSES[column[0].__class__] if rows else _common_class(column)))
        values.append(column)
    return tuple(columns), values, len(often) == len(counts)


def _common_class(values: Sequence[Value | None]) -> str:
    """The class that most of these have."""
    if len(set(map(type, values))) == 1:
        return _CLASSES[values[0].__class__]
    counts: Counter[str] = Counter()
    for kind, count in Counter(map(type, values)).items():
        if kind in _CLASSES:
            counts[_CLASSES[kind]] += count
    return max(counts, key=counts.__getitem__)

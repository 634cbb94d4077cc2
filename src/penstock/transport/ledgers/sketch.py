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

from collections.abc import Callable, Iterable, Sequence
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
_INFINITE = 0x7F800000
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


def class_of(value: Value) -> str:
    """The class of a value, as a letter."""
    return _CLASSES[value.__class__]


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
    """Codes of values of one class, worked out once: `coder[value]`."""

    def __init__(self, kind: str, bits: int) -> None:
        super().__init__()
        self._kind = kind
        self._bits = bits

    def __missing__(self, value: Value) -> int:
        if value.__class__ is float:  # seldom the same again
            return number_code(value, self._bits)
        if self._kind == STRING:
            assert isinstance(value, str)
            code = string_code(value, self._bits)
        elif self._kind == BOOLEAN:
            code = TRUE if value else FALSE
        else:
            assert not isinstance(value, str)
            code = number_code(value, self._bits)
        if len(self) >= MEMO_MAX:
            self.clear()
        self[value] = code
        return code


CODERS = {kind: Coder(kind, RECORD_BITS) for kind in (BOOLEAN, NUMBER, STRING)}


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
            codes.append(CODERS[kind][value])
    return codes


def ledger_codes(kind: str, values: Sequence[Value | None]) -> Codes:
    """The codes of one column of many messages, 24 bits each; None: no such attribute."""
    types = dict.fromkeys(map(type, values))
    if all(_CLASSES.get(one) == kind for one in types):
        return _codes_of(kind, values)
    codes = np.zeros(len(values), np.uint32)
    alike = [at for at, value in enumerate(values) if value is not None and _CLASSES[value.__class__] == kind]
    if len(alike) < len(values):
        for at, value in enumerate(values):
            codes[at] = MISSING if value is None else OTHER_CLASS
    codes[alike] = _codes_of(kind, [values[at] for at in alike])
    return codes


def _codes_of(kind: str, values: Sequence[Value | None]) -> Codes:
    if kind == BOOLEAN:
        codes: Codes = np.array(values, np.uint32) + np.uint32(FALSE)
        return codes
    if kind == STRING:
        known: dict[object, int] = {value: string_code(str(value), LEDGER_BITS) for value in dict.fromkeys(values)}
        return np.array([known[value] for value in values], np.uint32)
    if any(value.__class__ is int and abs(value) > EXACT_INTEGER_MAX for value in values):
        return np.array([number_code(value, LEDGER_BITS) for value in values], np.uint32)  # type: ignore[arg-type]
    return number_codes(np.array(values, np.float64), LEDGER_BITS)


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
    messages: Iterable[Attributes], columns_max: int, used: Callable[[str], bool] = lambda _: True
) -> tuple[Columns, bool]:
    """Columns for all of these messages, each of the class that most have, and whether no attribute is without one.

    Those that nobody uses come last, as columns that are left out.
    """
    shapes: dict[tuple[tuple[str, ...], tuple[type, ...]], int] = {}
    for attributes in messages:  # most have the same attributes of the same types
        shape = (tuple(attributes), tuple(map(type, attributes.values())))
        shapes[shape] = shapes.get(shape, 0) + 1
    counts: dict[str, dict[str, int]] = {}
    for (names, types), count in shapes.items():
        for name, kind in zip(names, types, strict=True):
            kinds = counts.setdefault(name, {})
            kinds[_CLASSES[kind]] = kinds.get(_CLASSES[kind], 0) + count
    kinds_of = {name: max(kinds, key=kinds.__getitem__) if used(name) else LEFT_OUT for name, kinds in counts.items()}
    often = sorted(counts, key=lambda name: (kinds_of[name] == LEFT_OUT, -sum(counts[name].values()), name))
    often = sorted(often[:columns_max], key=lambda name: (kinds_of[name] == LEFT_OUT, name))
    return tuple([Column(name, kinds_of[name]) for name in often]), len(often) == len(counts)

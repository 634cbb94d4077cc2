"""What the filters of an index mention, under small integers, and what a message says in those terms.

A kernel cannot compare Python strings, so everything that a filter mentions is given a number:

* An *atom* is one thing a message can say: "colour is the string red", "colour begins with re", "urgent is true", "size
  is present", "size equals 5", "size lies in the cell 512..1023". Each atom names a bucket of the index, in which
  filters are filed.
* A *column* holds what a message says about one attribute in one class: the atom of its string, of the beginning of a
  given length, of its boolean or of its presence, or the number itself. A check is `low <= column <= high`; an absent
  column is NaN and fails it.

Numbers are float64 in their column. Rounding is monotone, so an integer that no float equals is passed as the two
floats around it, ranges are rounded outward, and the answer is then a superset that the caller verifies exactly; this
concerns integers beyond 2**53 only. Equality atoms of numbers live in a dict, where Python compares exactly: 1 and
1.0 are one key and True never gets there.

Cells serve ranges. A range of width w is filed in the two or three cells of the grid whose pitch is the power of two
in w/2..w; a message has one cell in each grid. The cell of x is `x * scale // 1.0`, which is monotone for all floats
(and NaN, found nowhere, where it overflows).

Atoms and columns are counted by the filters that hold them and given back with the last one, so the tables are as
large as what the filters mention. Strings that only messages mention are never stored. The counts double as
statistics: the share of an atom among the holders of its column estimates how often a message says it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import inf, isfinite, nextafter
from typing import Any, NamedTuple

from penstock.content.message import Attributes

ALWAYS = 0  # the atom that every message says
CONSTANT_COLUMN = 0  # holds 0.0 for every message: the column of a check that always passes
UNREAD_COLUMN = 1  # written by atoms that no check reads
FLOAT_EXACT_MAX = 2**53  # up to here every integer is a float


class TranslatedBatch(NamedTuple):
    """A batch of messages in the terms of the vocabulary; `*_ends[i]` ends the part of message i - 1."""

    atoms: list[int]
    atom_ends: list[int]
    number_columns: list[int]
    number_lows: list[float]
    number_highs: list[float]
    number_ends: list[int]
    inexact: list[int]  # places of the messages that hold an integer which no float equals


class NumberColumn:
    """What is needed to say a number: its column, and the atoms that it may hit."""

    __slots__ = ("column", "equals", "grids", "highest", "lowest")

    def __init__(self, column: int) -> None:
        self.column = column
        self.equals: dict[int | float, int] = {}
        self.grids: dict[int, tuple[float, dict[int, int]]] = {}  # exponent of the pitch: scale, cell -> atom
        self.lowest = inf  # of all ends of ranges seen; only for estimates
        self.highest = -inf

    def widen(self, low: float, high: float) -> None:
        if isfinite(low):
            self.lowest = min(self.lowest, low)
        if isfinite(high):
            self.highest = max(self.highest, high)

    def drop_empty_grids(self) -> None:
        self.grids = {exponent: grid for exponent, grid in self.grids.items() if grid[1]}


class Vocabulary:
    """Counted atoms and columns. The public dicts are what messages are looked up in."""

    def __init__(self) -> None:
        self.strings: dict[tuple[str, str], int] = {}
        self.prefixes: dict[str, dict[int, dict[str, int]]] = {}  # name -> length -> beginning -> atom
        self.booleans: dict[tuple[str, bool], int] = {}
        self.present: dict[str, int] = {}
        self.numbers: dict[str, NumberColumn] = {}
        self._columns: dict[tuple[str, str], int] = {}
        self._column_holders = [1, 1]
        self._column_keys: list[tuple[str, str]] = [("", ""), ("", "")]
        self._columns_free: list[int] = []
        self._holders = [1]
        self._homes: list[tuple[dict[Any, int], Hashable, int]] = [({}, None, CONSTANT_COLUMN)]
        self._atoms_free: list[int] = []

    @property
    def atoms_size(self) -> int:
        """One more than the largest atom ever in use."""
        return len(self._holders)

    @property
    def columns_size(self) -> int:
        return len(self._column_holders)

    # Holding and giving back -------------------------------------------------------------------------------------

    def hold_always(self) -> int:
        self._holders[ALWAYS] += 1
        self._column_holders[CONSTANT_COLUMN] += 1
        return ALWAYS

    def hold_string(self, name: str, value: str) -> int:
        return self._hold(self.strings, (name, value), "string", name)

    def hold_prefix(self, name: str, prefix: str) -> int:
        home = self.prefixes.setdefault(name, {}).setdefault(len(prefix), {})
        return self._hold(home, prefix, prefix_kind(prefix), name)

    def hold_boolean(self, name: str, value: bool) -> int:
        return self._hold(self.booleans, (name, value), "boolean", name)

    def hold_present(self, name: str) -> int:
        return self._hold(self.present, name, "present", name)

    def hold_number(self, name: str, value: int | float) -> int:
        return self._hold(self.number_column(name).equals, value, "number", name)

    def hold_cell(self, name: str, exponent: int, cell: int) -> int:
        grids = self.number_column(name).grids
        if exponent not in grids:
            grids[exponent] = (2.0**-exponent, {})
        return self._hold(grids[exponent][1], cell, "number", name)

    def hold_column(self, kind: str, name: str) -> int:
        column = self._columns.get((kind, name))
        if column is None:
            column = self._new_column(kind, name)
        self._column_holders[column] += 1
        return column

    def release(self, atom: int) -> None:
        home, key, column = self._homes[atom]
        self._holders[atom] -= 1
        if not self._holders[atom]:
            del home[key]
            self._homes[atom] = ({}, None, UNREAD_COLUMN)
            self._atoms_free.append(atom)
            if not home:
                self._drop_empty(*self._column_keys[column])
        self.release_column(column)

    def _drop_empty(self, kind: str, name: str) -> None:
        if kind == "number":
            self.numbers[name].drop_empty_grids()
        elif name in self.prefixes:
            kept = {length: home for length, home in self.prefixes[name].items() if home}
            self.prefixes[name] = kept
            if not kept:
                del self.prefixes[name]

    def release_column(self, column: int) -> None:
        self._column_holders[column] -= 1
        if self._column_holders[column]:
            return
        kind, name = self._column_keys[column]
        del self._columns[kind, name]
        if kind == "number":
            del self.numbers[name]
        self._columns_free.append(column)

    def number_column(self, name: str) -> NumberColumn:
        if name not in self.numbers:
            self._new_column("number", name)
        return self.numbers[name]

    def _hold(self, home: dict[Any, int], key: Hashable, kind: str, name: str) -> int:
        atom = home.get(key)
        if atom is None:
            column = self._columns.get((kind, name))
            place = (home, key, self._new_column(kind, name) if column is None else column)
            if self._atoms_free:
                atom = self._atoms_free.pop()
                self._homes[atom] = place
            else:
                atom = len(self._holders)
                self._holders.append(0)
                self._homes.append(place)
            home[key] = atom
        self._holders[atom] += 1
        self._column_holders[self._homes[atom][2]] += 1
        return atom

    def _new_column(self, kind: str, name: str) -> int:
        column = self._columns_free.pop() if self._columns_free else len(self._column_holders)
        if column == len(self._column_holders):
            self._column_holders.append(0)
            self._column_keys.append(("", ""))
        self._columns[kind, name] = column
        self._column_keys[column] = (kind, name)
        if kind == "number":
            self.numbers[name] = NumberColumn(column)
        return column

    # Estimates ---------------------------------------------------------------------------------------------------

    def share(self, home: dict[Any, int], key: Hashable, kind: str, name: str) -> float:
        """How often a message that has the attribute says this, guessed from the filters; a new value is rare."""
        atom = home.get(key)
        column = self._columns.get((kind, name))
        return (1 + (0 if atom is None else self._holders[atom])) / (
            8 + (0 if column is None else self._column_holders[column])
        )

    def column_of(self, atom: int) -> int:
        """The column in which a check finds the atom; for atoms of numbers, which are no numbers, an unread one."""
        column = self._homes[atom][2]
        return UNREAD_COLUMN if atom == ALWAYS or self._column_keys[column][0] == "number" else column

    # Messages ----------------------------------------------------------------------------------------------------

    def translate(self, batch: Sequence[Attributes]) -> TranslatedBatch:
        """The batch in terms of the vocabulary. The innermost loop runs for each attribute: it is written flat."""
        atoms: list[int] = []
        atom_ends = [0]
        columns: list[int] = []
        lows: list[float] = []
        highs: list[float] = []
        number_ends = [0]
        inexact: list[int] = []
        append, string_of, number_of = atoms.append, self.strings.get, self.numbers.get
        always, present, prefixes = self._holders[ALWAYS] > 1, self.present, self.prefixes
        for place, message in enumerate(batch):
            for item in message.items():
                atom = string_of(item)  # type: ignore[arg-type]  # a value of another class is no key of the dict
                if atom is not None:
                    append(atom)
                    if prefixes and item[0] in prefixes:
                        self._say_prefixes(item[0], item[1], atoms)
                    continue
                name, value = item
                if prefixes and name in prefixes and isinstance(value, str):
                    self._say_prefixes(name, value, atoms)
                elif value is True or value is False:
                    atom = self.booleans.get((name, value))
                    if atom is not None:
                        append(atom)
                elif not isinstance(value, str) and (number := number_of(name)) is not None:
                    low = high = float(value)
                    if isinstance(value, int) and not -FLOAT_EXACT_MAX <= value <= FLOAT_EXACT_MAX and low != value:
                        low, high = floats_around(value)
                        if not inexact or inexact[-1] != place:
                            inexact.append(place)
                    columns.append(number.column)
                    lows.append(low)
                    highs.append(high)
                    if (atom := number.equals.get(value)) is not None:
                        append(atom)
                    for scale, cells in number.grids.values():
                        cell = low * scale // 1.0
                        if (atom := cells.get(cell)) is not None:  # type: ignore[call-overload]  # a float finds its int
                            append(atom)
            if present:
                atoms.extend(present[name] for name in message if name in present)
            if always:
                append(ALWAYS)
            atom_ends.append(len(atoms))
            number_ends.append(len(columns))
        return TranslatedBatch(atoms, atom_ends, columns, lows, highs, number_ends, inexact)

    def _say_prefixes(self, name: str, value: Any, atoms: list[int]) -> None:
        for length, home in self.prefixes[name].items():
            atom = home.get(value[:length])
            if atom is not None:
                atoms.append(atom)


def prefix_kind(prefix: str) -> str:
    """The class of the column for beginnings of this length: a message has one of each."""
    return f"prefix of {len(prefix)}"


def floats_around(value: int | float) -> tuple[float, float]:
    """The largest float not above the value and the smallest not below it."""
    try:
        near = float(value)
    except OverflowError:
        near = inf if value > 0 else -inf
    if near == value:
        return near, near
    return (nextafter(near, -inf), near) if near > value else (near, nextafter(near, inf))


def cells_of(low: float, high: float, exponent: int) -> Iterator[int]:
    """The cells of the grid with pitch 2**exponent that a number in low..high can lie in."""
    scale = 2.0**-exponent
    return iter(range(int(low * scale // 1.0), int(high * scale // 1.0) + 1))

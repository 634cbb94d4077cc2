"""What a predicate says of a sketch: yes, no or cannot tell; never no of a message that matches.

Each constraint has a verdict for a code (`sketch`), which is worked out once for each code and remembered. A filter is
as sure as its least sure constraint, a predicate as its surest filter. A column that the sketch does not have cannot
tell anything; where the sketch is known to have all attributes, one that is not there is missing.

    numbers   codes are in the order of values; an even code is one value, an odd one the open interval to the next
    strings   equal codes are taken for equal strings, one in 65,000 wrongly; `<>`, ranges and LIKE cannot tell, unless
              the ledger has the text itself in the place of the code
    booleans  exact

Bounds: MEMO_MAX verdicts for each constraint and column, and forms for SHAPES_MAX sets of columns; both begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.content.language.evaluate import holds
from penstock.content.message import Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Filter,
    Like,
    Missing,
    OneOf,
    Range,
    constraint_key,
    value_class,
)
from penstock.transport.ledgers.sketch import (
    BOOLEAN,
    LEFT_OUT,
    MEMO_MAX,
    MISSING,
    NUMBER,
    OTHER_CLASS,
    STRING,
    TRUE,
    Code,
    Columns,
    left_out_column,
    name_hash,
    number_code,
    string_code,
)

NO, CANNOT_TELL, YES = range(3)  # in this order: the least sure of an AND, the surest of an OR
SHAPES_MAX = 256
_KINDS = {"boolean": BOOLEAN, "number": NUMBER, "string": STRING}
_Parts = list[tuple[int, "CodeVerdicts"]]


class CodeVerdicts(dict[Code, int]):
    """What one constraint says of the codes of one column: `verdicts[code]`."""

    def __init__(self, constraint: Constraint, kind: str, bits: int) -> None:
        super().__init__()
        self._constraint = constraint
        self._kind = kind
        self._bits = bits

    def __missing__(self, code: Code) -> int:
        if len(self) >= MEMO_MAX:
            self.clear()
        verdict = self[code] = self._verdict(code)
        return verdict

    def _verdict(self, code: Code) -> int:
        constraint = self._constraint
        if self._kind == LEFT_OUT:
            return CANNOT_TELL
        if isinstance(constraint, Exists | Missing):
            return YES if (code == MISSING) is isinstance(constraint, Missing) else NO
        if code == MISSING:
            return NO
        if isinstance(code, str):
            return YES if holds(constraint, code) else NO
        wanted = _classes(constraint)
        if code == OTHER_CLASS:
            return NO if wanted == {self._kind} else CANNOT_TELL
        if self._kind not in wanted:
            return NO
        if self._kind == BOOLEAN:
            return YES if holds(constraint, code == TRUE) else NO
        if self._kind == STRING:
            return _of_string(constraint, code, self._bits)
        return _of_number(constraint, code, self._bits)


def _classes(constraint: Constraint) -> set[str]:
    """The classes of values for which it can be true."""
    match constraint:
        case Like():
            return {STRING}
        case OneOf():
            return {_KINDS[value_class(value)] for value in constraint.values}
        case Range():
            end = constraint.low if constraint.low is not None else constraint.high
            assert end is not None
            return {_KINDS[value_class(end)]}
        case Equals() | Differs():
            return {_KINDS[value_class(constraint.value)]}
    return {BOOLEAN, NUMBER, STRING}


def _of_string(constraint: Constraint, code: int, bits: int) -> int:
    match constraint:
        case Equals() | OneOf():
            values = constraint.values if isinstance(constraint, OneOf) else (constraint.value,)
            return YES if any(isinstance(one, str) and string_code(one, bits) == code for one in values) else NO
        case Differs():
            assert isinstance(constraint.value, str)
            return CANNOT_TELL if string_code(constraint.value, bits) == code else YES
    return CANNOT_TELL


def _of_number(constraint: Constraint, code: int, bits: int) -> int:
    match constraint:
        case Equals():
            return _equals(constraint.value, code, bits)
        case OneOf():
            numbers = [one for one in constraint.values if value_class(one) == "number"]
            return max([_equals(one, code, bits) for one in numbers], default=NO)
        case Differs():
            return YES - _equals(constraint.value, code, bits)
        case Range():
            return min(_above(constraint, code, bits), _below(constraint, code, bits))
    return CANNOT_TELL


def _code(value: Value, bits: int) -> int:
    assert not isinstance(value, str)
    return number_code(value, bits)


def _equals(value: Value, code: int, bits: int) -> int:
    """An even code is one value, so equal even codes are equal values."""
    return NO if _code(value, bits) != code else CANNOT_TELL if code & 1 else YES


def _above(constraint: Range, code: int, bits: int) -> int:
    if constraint.low is None:
        return YES
    low = _code(constraint.low, bits)
    if code != low:
        return YES if code > low else NO
    return CANNOT_TELL if code & 1 else NO if constraint.low_open else YES


def _below(constraint: Range, code: int, bits: int) -> int:
    if constraint.high is None:
        return YES
    high = _code(constraint.high, bits)
    if code != high:
        return YES if code < high else NO
    return CANNOT_TELL if code & 1 else NO if constraint.high_open else YES


class ColumnCodes(Protocol):
    """The codes of many messages, column by column."""

    def __getitem__(self, column: int, /) -> Sequence[Code]:
        """The codes of one column."""


class SketchPredicate:
    """Filters, any of which may be true, read against sketches."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.filters = tuple({_key(selected): selected for selected in filters}.values())
        self._forms: dict[tuple[Columns, int, bool], SketchForm] = {}

    def form(self, columns: Columns, bits: int, *, complete: bool = False) -> SketchForm:
        """How to read sketches with these columns; `complete`: they have all attributes of their messages."""
        key = (columns, bits, complete)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= SHAPES_MAX:
                self._forms.clear()
            form = self._forms[key] = SketchForm(self.filters, columns, bits, complete)
        return form


class SketchForm:
    """A predicate made ready for one set of columns."""

    __slots__ = ("_clauses",)

    def __init__(self, filters: Sequence[Filter], columns: Columns, bits: int, complete: bool) -> None:
        places = {column.name: at for at, column in enumerate(columns)}
        self._clauses: list[tuple[_Parts, int]] = []
        for selected in filters:
            parts: _Parts = []
            most = YES
            for constraint in selected.constraints:
                at = places.get(constraint.name)
                if at is None:
                    at = places.get(left_out_column(name_hash(constraint.name)).name)
                if at is not None:
                    parts.append((at, CodeVerdicts(constraint, columns[at].kind, bits)))
                elif complete:
                    most = min(most, YES if isinstance(constraint, Missing) else NO)
                else:
                    most = min(most, CANNOT_TELL)
            if most > NO:
                self._clauses.append((parts, most))

    def verdict(self, codes: Sequence[Code]) -> int:
        """What the predicate says of a message with these codes."""
        surest = NO
        for parts, most in self._clauses:
            verdict = most
            for at, verdicts in parts:
                one = verdicts[codes[at]]
                if one < verdict:
                    verdict = one
                    if not one:
                        break
            if verdict > surest:
                surest = verdict
                if surest == YES:
                    break
        return surest

    def verdicts(self, columns: ColumnCodes, places: Sequence[int]) -> list[tuple[int, int]]:
        """Of many messages whose codes stand in columns, those that are not NO: their places, and the verdicts."""
        found: dict[int, int] = {}
        for parts, most in self._clauses:
            left = [(place, most) for place in places] if not parts else []
            for order, (at, verdicts) in enumerate(parts):
                column = columns[at]
                if order == 0:
                    left = [(place, one) for place in places if (one := verdicts[column[place]])]
                else:
                    left = [(place, min(sure, one)) for place, sure in left if (one := verdicts[column[place]])]
            for place, sure in left:
                sure = min(sure, most)
                if sure > found.get(place, NO):
                    found[place] = sure
        return sorted(found.items())


def _key(selected: Filter) -> tuple[object, ...]:
    return tuple([constraint_key(constraint) for constraint in selected.constraints])


def names_in(filters: Sequence[Filter]) -> list[str]:
    """Names of the attributes that these filters look at."""
    return list(dict.fromkeys(constraint.name for selected in filters for constraint in selected.constraints))


def text_columns(filters: Sequence[Filter]) -> list[str]:
    """Names of attributes of which a hash says nothing to these filters: LIKE, string ranges, `<>`."""
    names = []
    for selected in filters:
        for constraint in selected.constraints:
            textual = isinstance(constraint, Like) or (
                isinstance(constraint, Range | Differs) and _classes(constraint) == {STRING}
            )
            if textual:
                names.append(constraint.name)
    return list(dict.fromkeys(names))

"""What a WHERE text says, as a tree: the form between the text and its two meanings.

`parser` makes the tree, `evaluate` compiles it, `normal_form` turns it into filters. Both readers start here, so that
each can be tested against the other. The leaves are the constraints of `predicate`; the tree adds only what a normal
form has no need of: AND, OR, NOT and the two constants.

AND and OR hold any number of parts and never one of their own kind, so that a text of a thousand ANDs is one node
and not a thousand levels. Make them with `conjunction` and `disjunction`, which keep that rule.

`constraint_text` goes the other way: a constraint as a text that parses to it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from penstock.content.message import Value
from penstock.content.predicate import Constraint, Differs, Equals, Exists, Like, Missing, OneOf, Range

KEYWORDS = frozenset(["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"])
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


class Constant(Struct, frozen=True, tag=True):
    """TRUE or FALSE"""

    value: bool


class And(Struct, frozen=True, tag=True):
    """True when all parts are; false when any part is."""

    parts: tuple[Expression, ...]


class Or(Struct, frozen=True, tag=True):
    """True when any part is; false when all parts are."""

    parts: tuple[Expression, ...]


class Not(Struct, frozen=True, tag=True):
    """True when the part is false, false when it is true, otherwise unknown."""

    part: Expression


Expression = Constant | And | Or | Not | Constraint


def conjunction(parts: Iterable[Expression]) -> Expression:
    """All of the parts; those that are conjunctions themselves are taken apart. No part at all: TRUE."""
    flat = tuple(_flattened(parts, And))
    return flat[0] if len(flat) == 1 else And(flat) if flat else Constant(True)


def disjunction(parts: Iterable[Expression]) -> Expression:
    """Any of the parts; those that are disjunctions themselves are taken apart. No part at all: FALSE."""
    flat = tuple(_flattened(parts, Or))
    return flat[0] if len(flat) == 1 else Or(flat) if flat else Constant(False)


def _flattened(parts: Iterable[Expression], kind: type[And] | type[Or]) -> Iterator[Expression]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def constraint_text(constraint: Constraint) -> str:
    """The constraint as it would be written."""
    name = name_text(constraint.name)
    match constraint:
        case Equals() | Differs():
            return f"{name} {'=' if isinstance(constraint, Equals) else '<>'} {value_text(constraint.value)}"
        case OneOf():
            return f"{name} IN ({', '.join(map(value_text, constraint.values))})"
        case Range():
            return _range_text(name, constraint)
        case Like():
            escape = f" ESCAPE {value_text(constraint.escape)}" if constraint.escape else ""
            return f"{name} {'NOT ' * constraint.negated}LIKE {value_text(constraint.pattern)}{escape}"
        case Exists() | Missing():
            return f"{name} IS {'NOT ' * isinstance(constraint, Exists)}NULL"


def name_text(name: str) -> str:
    """The name, in quotes if it is no plain word."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def value_text(value: Value) -> str:
    """The value as a literal."""
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def _range_text(name: str, constraint: Range) -> str:
    low, high = constraint.low, constraint.high
    if low is not None and high is not None and not constraint.low_open and not constraint.high_open:
        return f"{name} BETWEEN {value_text(low)} AND {value_text(high)}"
    ends = [] if low is None else [f"{name} {'>' if constraint.low_open else '>='} {value_text(low)}"]
    ends += [] if high is None else [f"{name} {'<' if constraint.high_open else '<='} {value_text(high)}"]
    return " AND ".join(ends)

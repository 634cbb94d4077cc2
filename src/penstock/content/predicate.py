"""The normal form of what a subscriber wants: constraint < filter < predicate (002 section 2.1).

A constraint is a condition on one attribute. A filter is a conjunction of constraints, a predicate a disjunction of
filters. Texts become predicates in `language`; this file only says what a predicate is.

Truth is SQL's: a constraint is true, false or unknown, and a message matches only what is true. A missing attribute
makes every constraint unknown except `Missing` and `Exists`; so does a value of another class. There are three
classes of values: booleans, numbers (integers and floats, compared by exact value) and strings (by code point).
Because a constraint and its negation are both not-true then, NOT can be pushed down to the constraints, and the
normal form needs no NOT at all.

Constraints are arrays that begin with a small number, so that filters travel in few bytes (`filter_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from penstock.content.message import Attributes, Value


class Equals(Struct, frozen=True, array_like=True, tag=2):
    """name = value"""

    name: str
    value: Value


class OneOf(Struct, frozen=True, array_like=True, tag=3):
    """name IN (values): at least two, distinct; of any classes."""

    name: str
    values: tuple[Value, ...]


class Differs(Struct, frozen=True, array_like=True, tag=6):
    """name <> value: present, of the value's class, and not equal to it."""

    name: str
    value: Value


class Range(Struct, frozen=True, array_like=True, tag=4):
    """low <= name <= high; None leaves an end open to infinity, `*_open` excludes the end itself.

    At least one end is given; both ends are of one class, which the attribute must have too.
    """

    name: str
    low: Value | None
    high: Value | None
    low_open: bool = False
    high_open: bool = False


class Like(Struct, frozen=True, array_like=True, tag=5):
    """name [NOT] LIKE pattern: `%` any run of characters, `_` any one; an `escape` makes the next one literal."""

    name: str
    pattern: str
    escape: str = ""
    negated: bool = False


class Exists(Struct, frozen=True, array_like=True, tag=1):
    """EXISTS name, name IS NOT NULL"""

    name: str


class Missing(Struct, frozen=True, array_like=True, tag=0):
    """NOT EXISTS name, name IS NULL"""

    name: str


Constraint = Equals | OneOf | Differs | Range | Like | Exists | Missing


class Filter(Struct, frozen=True):
    """All constraints must be true. No constraint at all: every message matches."""

    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, eq=False)
class Predicate:
    """What a subscriber wants. Made by `language.parse_predicate`; equal texts need not be equal predicates."""

    text: str
    filters: tuple[Filter, ...]  # any of them; none at all: no message matches
    matches: Callable[[Attributes], bool] = field(repr=False)  # exact evaluation, compiled from the text


def value_class(value: Value) -> str:
    """`boolean`, `number` or `string`: only values of one class can be compared."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


_CLASS_ORDER = {"boolean": 0, "number": 1, "string": 2}
_KIND_ORDER = {kind: rank for rank, kind in enumerate((Missing, Exists, Equals, OneOf, Range, Like, Differs))}


def value_key(value: Value) -> tuple[int, Value]:
    """What tells values apart and puts them in order: True is not 1 here, though Python says so, and 1 is 1.0."""
    return _CLASS_ORDER[value_class(value)], value


def constraint_key(constraint: Constraint) -> tuple[Any, ...]:
    """What tells constraints apart and puts them in order. `==` would not do: it takes `x = TRUE` for `x = 1`."""
    head = (constraint.name, _KIND_ORDER[type(constraint)])
    match constraint:
        case Equals() | Differs():
            return (*head, value_key(constraint.value))
        case OneOf():
            return (*head, *map(value_key, constraint.values))
        case Range():
            ends = (() if end is None else value_key(end) for end in (constraint.low, constraint.high))
            return (*head, *ends, constraint.low_open, constraint.high_open)
        case Like():
            return (*head, constraint.pattern, constraint.escape, constraint.negated)
    return head

"""Where a filter is filed in the index, and what is checked once a message has led there.

The plan of a filter is a list of *registrations*. Each has one access atom, under which it is filed, and a few checks
`low <= column <= high`. A message that says the access atom and passes all checks matches the filter if the
registration is exact; otherwise the checks are only necessary, and the caller asks the predicate itself.

Constraints become conditions first:

    Equals            the atom of the value, as access or as check; a number is checked as low = high
    Range of numbers  a check, rounded outward; as access the cells of a grid, one registration each
    LIKE 'abc%...'    the atom of the beginning, its first PREFIX_MAX characters; ranges of strings likewise
    OneOf             one plan for each value, all of them exact (up to VARIANTS_MAX plans for a filter)
    Exists            the atom of presence
    the others        Differs and what begins with anything: presence, not exact; Missing: no condition, not exact

The condition that a message fulfils least often, as far as the filters themselves can tell, becomes the access and
the others are checked in the same order, so most candidates fall at the first check. A filter with more than CHECKS
checks keeps the rarest and is not exact. Nothing here depends on the order of a set or on a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import frexp, inf, isfinite, nextafter
from typing import NamedTuple

from penstock.content.language.like import compile_like
from penstock.content.matching.vocabulary import ALWAYS, Vocabulary, cells_of, floats_around, prefix_kind
from penstock.content.message import Value
from penstock.content.predicate import Constraint, Equals, Exists, Filter, Like, Missing, OneOf, Range, value_class
from penstock.content.relations import common_prefix

CHECKS = 4  # columns of the kernel's records: one beside the bucket entry, three in the record of the registration
VARIANTS_MAX = 16  # plans that the lists of one filter may multiply to; a longer list counts alone
PREFIX_MAX = 8  # characters: a message is looked up once for each length that occurs
CELL_SLACK = 1.5  # a range's cells together are about this much wider than the range


class Check(NamedTuple):
    column: int
    low: float
    high: float


class Registration(NamedTuple):
    access: int  # an atom
    checks: tuple[Check, ...]
    exact: bool
    held: tuple[int, ...]  # atoms, and columns as ~column: `give_back` releases them


class Same(NamedTuple):
    """The attribute is this very value."""

    name: str
    value: Value


class Between(NamedTuple):
    """The attribute is a number in low..high, both rounded outward if need be."""

    name: str
    low: float
    high: float
    exact: bool


class Begins(NamedTuple):
    """The attribute is a string with this beginning."""

    name: str
    prefix: str


class Present(NamedTuple):
    name: str


Condition = Same | Between | Begins | Present


def register(vocabulary: Vocabulary, filter_: Filter) -> list[Registration]:
    """The plan of a filter. All its atoms and columns are held; `give_back` releases them."""
    conditions, lists, exact = _conditions(filter_.constraints)
    variants, complete = _variants(conditions, lists)
    plans = []
    for variant in variants:
        plans += _plan(vocabulary, variant, exact and complete)
    return plans


def give_back(vocabulary: Vocabulary, held: Iterable[int]) -> None:
    for one in held:
        if one >= 0:
            vocabulary.release(one)
        else:
            vocabulary.release_column(~one)


# From constraints to conditions ----------------------------------------------------------------------------------


def _conditions(constraints: Iterable[Constraint]) -> tuple[list[Condition], list[list[Condition]], bool]:
    """Single conditions, lists of alternatives, and whether they say all that the constraints say."""
    single: list[Condition] = []
    lists: list[list[Condition]] = []
    exact = True
    for constraint in constraints:
        if isinstance(constraint, Equals):
            single.append(Same(constraint.name, constraint.value))
        elif isinstance(constraint, OneOf):
            lists.append([Same(constraint.name, value) for value in constraint.values])
        elif isinstance(constraint, Range) and (between := _between(constraint)):
            point = between.exact and between.low == between.high
            single.append(Same(between.name, between.low) if point else between)
            exact = exact and between.exact
        elif isinstance(constraint, Like | Range) and (prefix := common_prefix(constraint)):
            single.append(Begins(constraint.name, prefix[:PREFIX_MAX]))
            exact = exact and len(prefix) <= PREFIX_MAX and _is_prefix(constraint)
        elif isinstance(constraint, Missing):
            exact = False
        else:
            single.append(Present(constraint.name))
            exact = exact and isinstance(constraint, Exists)
    return single, lists, exact


def _is_prefix(constraint: Like | Range) -> bool:
    """Whether its beginning is all that it asks for."""
    return isinstance(constraint, Like) and compile_like(constraint.pattern, constraint.escape).is_prefix


def _between(constraint: Range) -> Between | None:
    ends = [end for end in (constraint.low, constraint.high) if end is not None]
    if not ends or any(value_class(end) != "number" for end in ends):
        return None
    low, low_exact = -inf, True
    if constraint.low is not None:
        low, above = floats_around(constraint.low)  # type: ignore[arg-type]  # a number, see above
        low_exact = low == above
        if constraint.low_open and low_exact:
            low = nextafter(low, inf)
    high, high_exact = inf, True
    if constraint.high is not None:
        below, high = floats_around(constraint.high)  # type: ignore[arg-type]  # a number, see above
        high_exact = below == high
        if constraint.high_open and high_exact:
            high = nextafter(high, -inf)
    return Between(constraint.name, low, high, low_exact and high_exact)


def _variants(conditions: list[Condition], lists: list[list[Condition]]) -> tuple[list[list[Condition]], bool]:
    """The lists multiplied out, shortest first, while they are few; at least one list always is."""
    variants = [conditions]
    complete = True
    for alternatives in sorted(lists, key=len):
        if len(variants) * len(alternatives) > VARIANTS_MAX and len(variants) > 1:
            variants = [[*variant, Present(alternatives[0].name)] for variant in variants]
            complete = False
        else:
            variants = [[*variant, one] for variant in variants for one in alternatives]
    return variants, complete


# From conditions to registrations --------------------------------------------------------------------------------


def _plan(vocabulary: Vocabulary, conditions: list[Condition], exact: bool) -> list[Registration]:
    if not conditions:
        return [Registration(vocabulary.hold_always(), (), exact, (ALWAYS,))]
    if len(conditions) > 1:
        conditions = sorted(conditions, key=lambda condition: _share(vocabulary, condition))
    access, others = conditions[0], conditions[1:]
    if isinstance(access, Between):
        others.insert(min(1, len(others)), access)  # its cells are wider than the range: check it as well
    exact = exact and len(others) <= CHECKS
    plans = []
    for atom in _access_atoms(vocabulary, access):
        checks = []
        held = [atom]
        for condition in others[:CHECKS]:
            check, holding = _check(vocabulary, condition)
            checks.append(check)
            held.append(holding)
            exact = exact and not _is_rounded(condition)
        plans.append(Registration(atom, tuple(checks), exact, tuple(held)))
    return plans


def _share(vocabulary: Vocabulary, condition: Condition) -> float:
    if isinstance(condition, Same):
        name, value = condition
        if isinstance(value, bool):
            return vocabulary.share(vocabulary.booleans, (name, value), "boolean", name)
        if isinstance(value, str):
            return vocabulary.share(vocabulary.strings, (name, value), "string", name)
        number = vocabulary.numbers.get(name)
        return vocabulary.share({} if number is None else number.equals, value, "number", name)
    if isinstance(condition, Begins):
        name, prefix = condition
        known = vocabulary.prefixes.get(name, {}).get(len(prefix), {})
        return vocabulary.share(known, prefix, prefix_kind(prefix), name)
    number = vocabulary.numbers.get(condition.name)
    if number is None or isinstance(condition, Present) or not _has_cells(condition):
        return 1.0
    span = number.highest - number.lowest
    return min(1.0, CELL_SLACK * (condition.high - condition.low) / span) if span > 0 else 1.0


def _access_atoms(vocabulary: Vocabulary, access: Condition) -> Iterator[int]:
    """Holds and yields each atom under which the condition is found."""
    if isinstance(access, Same | Begins):
        yield _hold(vocabulary, access)
    elif isinstance(access, Between) and _has_cells(access):
        exponent = frexp(access.high - access.low)[1] - 1
        for cell in cells_of(access.low, access.high, exponent):
            yield vocabulary.hold_cell(access.name, exponent, cell)
    else:
        yield vocabulary.hold_present(access.name)


def _hold(vocabulary: Vocabulary, condition: Same | Begins | Present) -> int:
    if isinstance(condition, Present):
        return vocabulary.hold_present(condition.name)
    if isinstance(condition, Begins):
        return vocabulary.hold_prefix(condition.name, condition.prefix)
    name, value = condition
    if isinstance(value, bool):
        return vocabulary.hold_boolean(name, value)
    if isinstance(value, str):
        return vocabulary.hold_string(name, value)
    return vocabulary.hold_number(name, value)


def _check(vocabulary: Vocabulary, condition: Condition) -> tuple[Check, int]:
    """The condition as a check, and what is held for it, as in `Registration.held`."""
    if isinstance(condition, Between):
        column = vocabulary.hold_column("number", condition.name)
        vocabulary.number_column(condition.name).widen(condition.low, condition.high)
        return Check(column, condition.low, condition.high), ~column
    if isinstance(condition, Same) and not isinstance(condition.value, bool | str):
        column = vocabulary.hold_column("number", condition.name)
        return Check(column, *floats_around(condition.value)), ~column
    atom = _hold(vocabulary, condition)
    return Check(vocabulary.column_of(atom), atom, atom), atom


def _has_cells(condition: Between) -> bool:
    """Both ends given, and a width that gives a grid whose scale is a normal float."""
    width = condition.high - condition.low
    return isfinite(width) and 2.0**-900 < width < 2.0**900


def _is_rounded(condition: Condition) -> bool:
    if not isinstance(condition, Same) or isinstance(condition.value, bool | str):
        return False
    low, high = floats_around(condition.value)
    return low != high

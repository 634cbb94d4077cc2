"""Covering and overlap of what subscribers want (002 section 2.1), claimed only where they are proven.

With M1 and M2 the messages that match S1 and S2: S1 covers S2 if M2 is a subset of M1; they overlap if M1 and M2 have
a message in common. Deciding either exactly is hard (LIKE patterns alone make it so) and nobody needs it: whoever asks
wants to leave work out, and may do so only when the answer is certain. So there are three questions, and True is a
proof for each while False means "not proven":

    covers(general, specific)   every message that matches `specific` matches `general`
    disjoint(a, b)              no message matches both
    overlaps(a, b)              some message matches both; `witness` shows one

A constraint is compared by cases. A filter covers another if each of its constraints covers one of the other's; a
predicate covers another if each filter of the other is covered by one of its own. Both are sufficient and not
necessary: `x < 5 OR x >= 5` covers `x = 1 OR x > 3`, but no single filter shows it for `x > 3`.

Disjointness is a contradiction found by `conjoin`; overlap is shown by trying values at and around the constants.

Work is bounded, since what is compared may come from peers: each question has a budget of RELATION_STEPS, or shares the
one that its caller gives for many. When it is spent, the answer is "not proven", whoever asks, and nothing is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import inf, nextafter
from typing import Any

from penstock.content.language.budget import Budget
from penstock.content.language.conjoin import conjoin, constraint_class, constraint_size, listed_values
from penstock.content.language.evaluate import holds
from penstock.content.language.like import compile_like
from penstock.content.message import INTEGER_MAX, INTEGER_MIN, Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Filter,
    Like,
    Missing,
    OneOf,
    Predicate,
    Range,
    constraint_key,
    value_key,
)
from penstock.errors import PredicateTooLarge

Selection = Constraint | Filter | Predicate


RELATION_STEPS = 10_000


def covers(general: Selection, specific: Selection, budget: Budget | None = None) -> bool:
    """Proven: every message that matches `specific` matches `general`."""
    budget = Budget(RELATION_STEPS) if budget is None else budget
    try:
        wides = _filters(general)
        for narrow in _filters(specific):
            by_name = _by_name(narrow, budget)
            if not any(_filter_covers(wide, by_name, budget) for wide in wides):
                return False
    except PredicateTooLarge:
        return False
    return True


def disjoint(a: Selection, b: Selection, budget: Budget | None = None) -> bool:
    """Proven: no message matches both."""
    budget = Budget(RELATION_STEPS) if budget is None else budget
    try:
        return all(conjoin(x.constraints + y.constraints, budget) is None for x in _filters(a) for y in _filters(b))
    except PredicateTooLarge:
        return False


def overlaps(a: Selection, b: Selection, budget: Budget | None = None) -> bool:
    """Proven, by a witness: some message matches both."""
    return witness(a, b, budget) is not None


def witness(a: Selection, b: Selection, budget: Budget | None = None) -> dict[str, Value] | None:
    """The attributes of a message that matches both, or None if none was found."""
    budget = Budget(RELATION_STEPS) if budget is None else budget
    try:
        for x in _filters(a):
            for y in _filters(b):
                found = _filter_witness(x.constraints + y.constraints, budget)
                if found is not None:
                    return found
    except PredicateTooLarge:
        return None
    return None


def _filters(selection: Selection) -> tuple[Filter, ...]:
    if isinstance(selection, Predicate):
        return selection.filters
    return (selection,) if isinstance(selection, Filter) else (Filter((selection,)),)


_ByName = dict[str, tuple[list[Constraint], set[tuple[Any, ...]]]]


def _by_name(selected: Filter, budget: Budget) -> _ByName:
    """For each attribute the constraints on it that are worth comparing, and the keys of all.

    Of any number of <> the first is compared: but for the very same one, which the keys show, which value is excluded
    makes no difference to what covers it.
    """
    budget.spend(1 + len(selected.constraints))
    found: _ByName = {}
    for constraint in selected.constraints:
        compared, keys = found.setdefault(constraint.name, ([], set()))
        if not isinstance(constraint, Differs) or not any(isinstance(other, Differs) for other in compared):
            compared.append(constraint)
        keys.add(constraint_key(constraint))
    return found


def _filter_covers(general: Filter, specific: _ByName, budget: Budget) -> bool:
    budget.spend(1)
    if not all(wide.name in specific for wide in general.constraints):
        return False
    for wide in general.constraints:
        compared, keys = specific[wide.name]
        budget.spend(constraint_size(wide))
        if constraint_key(wide) in keys:
            continue
        budget.spend(sum(map(constraint_size, compared)))
        if not any(constraint_covers(wide, narrow) for narrow in compared):
            return False
    return True


def constraint_covers(general: Constraint, specific: Constraint) -> bool:
    """Proven: wherever `specific` is true, `general` is. It takes time by the number of values they list."""
    if general.name != specific.name:
        return False
    if isinstance(general, Missing) or isinstance(specific, Missing):
        return isinstance(general, Missing) and isinstance(specific, Missing)
    if isinstance(general, Exists):
        return True
    values = listed_values(specific)
    if values is not None:
        if isinstance(general, OneOf):
            return {value_key(value) for value in values} <= {value_key(value) for value in general.values}
        return all(holds(general, value) for value in values)
    if isinstance(general, Equals | OneOf) or isinstance(specific, Exists):
        return False
    if constraint_key(general) == constraint_key(specific):
        return True
    if constraint_class(general) != constraint_class(specific):
        return False
    match general:
        case Differs():
            return holds(specific, general.value) is False
        case Range():
            return _range_covers(general, specific)
        case Like():
            return _like_covers(general, specific)


def _range_covers(general: Range, specific: Constraint) -> bool:
    if isinstance(specific, Range):
        return _low_covers(general, specific) and _high_covers(general, specific)
    if isinstance(specific, Like) and not specific.negated:
        prefix = compile_like(specific.pattern, specific.escape).literal_prefix
        # Strings that begin with p run from p itself to everything below the first string above p without that prefix.
        above = general.high is None or (general.high > prefix and not str(general.high).startswith(prefix))  # type: ignore[operator]  # one class
        return above and _low_covers(general, Range(specific.name, prefix, None))
    return False


def _low_covers(general: Range, specific: Range) -> bool:
    if general.low is None or specific.low is None:
        return general.low is None
    if general.low == specific.low:
        return specific.low_open or not general.low_open
    return general.low < specific.low  # type: ignore[operator]  # the caller has compared the classes


def _high_covers(general: Range, specific: Range) -> bool:
    if general.high is None or specific.high is None:
        return general.high is None
    if general.high == specific.high:
        return specific.high_open or not general.high_open
    return general.high > specific.high  # type: ignore[operator]  # the caller has compared the classes


def _like_covers(general: Like, specific: Constraint) -> bool:
    """By prefixes only: `ab%` covers `abc%d` and `BETWEEN 'aba' AND 'abz'`."""
    pattern = compile_like(general.pattern, general.escape)
    prefix = common_prefix(specific)
    if prefix is None:
        return not general.negated and pattern.is_prefix and not pattern.literal_prefix
    if general.negated:
        unlike = pattern.literal_prefix
        return not unlike.startswith(prefix) and not prefix.startswith(unlike)
    return pattern.is_prefix and prefix.startswith(pattern.literal_prefix)


def common_prefix(constraint: Constraint) -> str | None:
    """What every string begins with for which it is true; None if it says nothing about that."""
    match constraint:
        case Like(negated=False):
            return compile_like(constraint.pattern, constraint.escape).literal_prefix
        case Range(low=str(low), high=str(high)):
            # A string that leaves the common beginning of both ends is below the one or above the other.
            length = next(
                (i for i, (x, y) in enumerate(zip(low, high, strict=False)) if x != y), min(len(low), len(high))
            )
            return low[:length]
    return None


def _filter_witness(constraints: tuple[Constraint, ...], budget: Budget) -> dict[str, Value] | None:
    together = conjoin(constraints, budget)
    if together is None:
        return None
    by_name: dict[str, list[Constraint]] = {}
    for constraint in together:
        by_name.setdefault(constraint.name, []).append(constraint)
    attributes: dict[str, Value] = {}
    for name, group in by_name.items():
        if isinstance(group[0], Missing):
            continue
        value = next((v for v in _candidates(group) if _all_hold(group, v, budget)), None)
        if value is None:
            return None
        attributes[name] = value
    return attributes


def _all_hold(group: list[Constraint], value: Value, budget: Budget) -> bool:
    budget.spend(2)  # for finding the value as well
    for constraint in group:
        budget.spend(constraint_size(constraint))
        if not holds(constraint, value):
            return False
    return True


def _candidates(group: list[Constraint]) -> Iterator[Value]:
    """Values worth trying. Whoever takes one tests it, so a useless one costs time only."""
    for constraint in group:
        match constraint:
            case Equals():
                yield constraint.value
            case OneOf():
                yield from constraint.values
            case Exists():
                yield True
            case Like():
                yield from _texts_like(constraint)
            case Differs():
                yield from _neighbours(constraint.value, len(group))
            case Range():
                yield from _range_candidates(constraint, len(group))
    likes = [constraint for constraint in group if isinstance(constraint, Like) and not constraint.negated]
    for one, other in pairwise(likes):  # what begins like one and ends like the other
        for begin, end in product(_texts_like(one), _texts_like(other)):
            yield begin + end
            yield end + begin


def _range_candidates(constraint: Range, steps: int) -> Iterator[Value]:
    low, high = constraint.low, constraint.high
    if low is not None:
        yield low
        yield from _neighbours(low, steps)
    if high is not None:
        yield high
        yield from _neighbours(high, steps)
    if isinstance(low, int | float) and isinstance(high, int | float):
        middle = low / 2 + high / 2
        yield middle
        yield from _neighbours(middle, steps)


def _neighbours(value: Value, steps: int) -> Iterator[Value]:
    """Values near this one: enough that `steps` exclusions leave some."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        for step in range(steps + 1):
            yield value + "\0" * (step + 1)  # the strings that follow immediately
            yield value[: max(0, len(value) - 1 - step)]
        yield value + "a"
    else:
        for step in range(1, steps + 2):
            yield from (
                v for v in (value + step, value - step) if isinstance(v, float) or INTEGER_MIN <= v <= INTEGER_MAX
            )
        above = below = float(value)
        for _ in range(steps + 1):
            above, below = nextafter(above, inf), nextafter(below, -inf)
            yield from (v for v in (above, below) if -inf < v < inf)


def _texts_like(constraint: Like) -> Iterator[str]:
    pattern = compile_like(constraint.pattern, constraint.escape)
    if constraint.negated:
        yield from ("", "a", "b", pattern.canonical[0] + "x")
        return
    for hole in "axz\0":
        for between in ("", hole, hole * 2):
            yield between.join("".join(character or hole for character in segment) for segment in pattern.segments)

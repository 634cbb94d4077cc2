"""What several constraints mean together: fewer constraints, or nothing at all.

A filter collects constraints from all over a text, and several of them may concern one attribute. Together they often
say something simpler (`x > 3 AND x >= 5` is `x >= 5`) or something that no message fulfils (`x = 1 AND x = 2`). Each
attribute is settled by itself, since constraints on different attributes cannot contradict each other.

For one attribute there are four cases. It must be missing: then nothing else may be asked of it. Its values can be
listed (`=`, IN, any constraint on a boolean): then the other constraints sift the list, and the list is the answer.
Otherwise all its constraints must be of one class of values, its ranges become one range, and what the range already
says is dropped. If only its presence is asked for, that stays.

`conjoin` keeps the meaning exactly. That it finds every contradiction is not promised: two LIKE patterns may exclude
each other without being noticed, which costs work later and never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.content.language.budget import Budget
from penstock.content.language.evaluate import holds
from penstock.content.language.like import MASK_STEPS, compile_like
from penstock.content.message import INTEGER_MAX, INTEGER_MIN, Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Like,
    Missing,
    OneOf,
    Range,
    constraint_key,
    value_class,
    value_key,
)


def conjoin(constraints: Iterable[Constraint], budget: Budget) -> tuple[Constraint, ...] | None:
    """The same condition in canonical form and order, or None if it is certain that no message fulfils it."""
    by_name: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        by_name.setdefault(constraint.name, []).append(constraint)
    settled: list[Constraint] = []
    for name, group in by_name.items():
        together = settle(name, group, budget)
        if together is None:
            return None
        settled += together
    return tuple(sorted(settled, key=constraint_key))


def canonical_value(value: Value) -> Value:
    """Equal numbers become the same object: an integer wherever it fits one."""
    if isinstance(value, float) and value.is_integer() and INTEGER_MIN <= value <= INTEGER_MAX:
        return int(value)
    return value


def constraint_class(constraint: Constraint) -> str | None:
    """The class of values for which it is not unknown; None if it has none or several."""
    match constraint:
        case Equals() | Differs():
            return value_class(constraint.value)
        case Range():
            end = constraint.low if constraint.low is not None else constraint.high
            assert end is not None, "a range has at least one end"
            return value_class(end)
        case Like():
            return "string"
    return None


def listed_values(constraint: Constraint) -> tuple[Value, ...] | None:
    """All values for which it is true, in order, if they can be listed."""
    match constraint:
        case Equals():
            return (canonical_value(constraint.value),)
        case OneOf():
            return _distinct(constraint.values)
        case Like():
            literal = compile_like(constraint.pattern, constraint.escape).literal
            return None if literal is None or constraint.negated else (literal,)
        case Range(low=low, high=high) if low is not None and high is not None and value_key(low) == value_key(high):
            return () if constraint.low_open or constraint.high_open else (canonical_value(low),)
    if constraint_class(constraint) == "boolean":
        return tuple(value for value in (False, True) if holds(constraint, value))
    return None


def _distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    distinct = {value_key(value): canonical_value(value) for value in values}
    return tuple(distinct[key] for key in sorted(distinct))


def constraint_size(constraint: Constraint) -> int:
    """How much it says: 1, and 1 for each value of a list."""
    return 1 + len(constraint.values) if isinstance(constraint, OneOf) else 1


def settle(name: str, group: list[Constraint], budget: Budget) -> list[Constraint] | None:
    """The constraints on one attribute, together; None if no value fulfils them. It takes steps by what they say."""
    budget.spend(4 + 2 * len(group) + sum(map(constraint_size, group)))
    missing = [constraint for constraint in group if isinstance(constraint, Missing)]
    if missing:
        return [missing[0]] if len(missing) == len(group) else None
    demands: list[Constraint] = [constraint for constraint in group if not isinstance(constraint, Exists)]
    if not demands:
        return [group[0]]
    lists: list[tuple[Value, ...]] = []
    others: list[Constraint] = []
    for demand in demands:
        plain = isinstance(demand, Differs) and not isinstance(demand.value, bool)  # most long groups are made of these
        values = None if plain else listed_values(demand)
        if values is None:
            others.append(demand)
        else:
            lists.append(values)
    if len({constraint_class(other) for other in others}) > 1:
        return None
    if not lists:
        return _settle_unlisted(name, demands)
    left = lists[0]
    for values in lists[1:]:
        common = {value_key(value) for value in values}
        left = tuple(value for value in left if value_key(value) in common)
    return _as_constraint(name, _sifted(left, others, budget))


def _sifted(values: tuple[Value, ...], others: list[Constraint], budget: Budget) -> list[Value]:
    """The values for which the others, which are of one class and list nothing, are true."""
    excluded = {value_key(other.value) for other in others if isinstance(other, Differs)}
    whole = _intersection([other for other in others if isinstance(other, Range)])
    likes = [other for other in others if isinstance(other, Like)]
    budget.spend(len(values) * (sum(map(_like_steps, likes)) + (whole is not None)))
    wanted = constraint_class(others[0]) if others else None
    return [
        value
        for value in values
        if (wanted is None or value_class(value) == wanted)
        and value_key(value) not in excluded
        and (whole is None or holds(whole, value))
        and all(holds(like, value) for like in likes)
    ]


def _like_steps(like: Like) -> int:
    pattern = compile_like(like.pattern, like.escape)
    return 1 + (pattern.match_steps + MASK_STEPS * len(pattern.searched)) // 8


def _as_constraint(name: str, values: list[Value]) -> list[Constraint] | None:
    if not values:
        return None
    return [Equals(name, values[0]) if len(values) == 1 else OneOf(name, tuple(values))]


def _settle_unlisted(name: str, demands: list[Constraint]) -> list[Constraint] | None:
    """Demands of one class, numbers or strings, none of which lists its values."""
    whole = _intersection([demand for demand in demands if isinstance(demand, Range)])
    kept: dict[tuple[object, ...], Constraint] = {}
    for demand in demands:
        if isinstance(demand, Like):
            demand = _canonical_like(demand)
        if isinstance(demand, Differs):
            value = canonical_value(demand.value)
            demand = demand if value is demand.value else Differs(name, value)
            if whole is not None:
                if not holds(whole, demand.value):
                    continue  # the range excludes that value already
                opened = _opened(whole, demand.value)
                if opened is not None:
                    whole = opened
                    continue
        if not isinstance(demand, Range):
            kept[constraint_key(demand)] = demand
    if whole is not None:
        values = listed_values(whole)
        if values is not None or _is_empty(whole):
            return _as_constraint(name, [value for value in values or () if all(holds(d, value) for d in demands)])
        kept[constraint_key(whole)] = whole
    likes = [demand for demand in kept.values() if isinstance(demand, Like)]
    if any(constraint_key(_negation(like)) in kept or like == Like(name, "%", negated=True) for like in likes):
        return None
    return list(kept.values())


def _canonical_like(like: Like) -> Constraint:
    pattern = compile_like(like.pattern, like.escape)
    if like.negated and pattern.literal is not None:
        return Differs(like.name, pattern.literal)
    return Like(like.name, *pattern.canonical, negated=like.negated)


def _negation(like: Like) -> Like:
    return Like(like.name, like.pattern, like.escape, not like.negated)


def _opened(whole: Range, value: Value) -> Range | None:
    """The range without this end of it, or None if the value is no end."""
    if whole.low == value:
        return Range(whole.name, whole.low, whole.high, True, whole.high_open)
    if whole.high == value:
        return Range(whole.name, whole.low, whole.high, whole.low_open, True)
    return None


def _intersection(ranges: list[Range]) -> Range | None:
    if not ranges:
        return None
    # At equal ends the open one is the narrower: it sorts last among the lows and first among the highs.
    lows = [(value_key(r.low), r.low_open) for r in ranges if r.low is not None]
    highs = [(value_key(r.high), not r.high_open) for r in ranges if r.high is not None]
    low, low_open = max(lows, default=((0, None), False))
    high, high_closed = min(highs, default=((0, None), True))
    return Range(ranges[0].name, _end(low[1]), _end(high[1]), low_open, not high_closed)


def _end(value: Value | None) -> Value | None:
    return None if value is None else canonical_value(value)


def _is_empty(whole: Range) -> bool:
    if whole.low is None:
        return whole.high == "" and whole.high_open  # no string is less than the empty one
    return whole.high is not None and value_key(whole.low) > value_key(whole.high)

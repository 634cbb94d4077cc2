"""Which of many constraints on one attribute cover which: `relations.constraint_covers` for all of them at once.

To compare 64 filters with each other takes 4032 questions about pairs of constraints. Most constraints are intervals
(ranges, equalities), and of those nobody has to ask: sorted by their ends, all that lie within one are found by two
searches, and so are all that lie beside the value of a `<>`. Only what is no interval is compared one by one.

Constraints have numbers, and sets of them are the bits of an integer, as in `normal_form`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from penstock.content.language.budget import Budget
from penstock.content.language.conjoin import constraint_class, constraint_size
from penstock.content.message import Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Like,
    Missing,
    OneOf,
    Range,
    value_class,
    value_key,
)
from penstock.content.relations import constraint_covers

_End = tuple[Any, ...]


class _Intervals:
    """Intervals of one class of values, by both ends."""

    def __init__(self, entries: list[tuple[_End, _End, int]]) -> None:
        from_low = sorted((low, bit) for low, _, bit in entries)
        to_high = sorted((high, bit) for _, high, bit in entries)
        self._lows = [low for low, _ in from_low]
        self._highs = [high for high, _ in to_high]
        self._not_below = [0]  # by place in `_lows`, counted from the end: all from there on
        for _, bit in reversed(from_low):
            self._not_below.append(self._not_below[-1] | bit)
        self._not_above = [0]  # by place in `_highs`: all before it
        for _, bit in to_high:
            self._not_above.append(self._not_above[-1] | bit)

    def from_low(self, low: _End) -> int:
        """Those that do not begin before this."""
        return self._not_below[len(self._lows) - bisect_left(self._lows, low)]

    def to_high(self, high: _End) -> int:
        """Those that do not end after this."""
        return self._not_above[bisect_right(self._highs, high)]


class CoverTable:
    """The constraints on one attribute, canonical and by their numbers."""

    def __init__(self, constraints: Sequence[tuple[int, Constraint]], budget: Budget) -> None:
        self._budget = budget
        self._all = sum(1 << number for number, _ in constraints)
        self._missing = sum(1 << number for number, one in constraints if isinstance(one, Missing))
        self._differs = {value_class(one.value): one for _, one in constraints if isinstance(one, Differs)}
        self._differing = dict.fromkeys(self._differs, 0)
        for number, one in constraints:
            if isinstance(one, Differs):
                self._differing[value_class(one.value)] |= 1 << number
        self._lists = [(1 << number, _keys(one)) for number, one in constraints if isinstance(one, Equals | OneOf)]
        self._likes = [(1 << number, one) for number, one in constraints if isinstance(one, Like)]
        self._others = [(1 << n, one) for n, one in constraints if isinstance(one, Range | Equals | OneOf)]
        entries: dict[str, list[tuple[_End, _End, int]]] = {}
        for number, one in constraints:
            found = _interval(one)
            if found is not None:
                entries.setdefault(found[0], []).append((*found[1:], 1 << number))
        self._intervals = {kind: _Intervals(some) for kind, some in entries.items()}
        budget.spend(sum(2 * constraint_size(one) for _, one in constraints))

    def covered_by(self, number: int, general: Constraint) -> int:
        """The constraints that this one covers, itself among them."""
        if isinstance(general, Exists):
            return self._all & ~self._missing
        covered = 1 << number
        if isinstance(general, Missing):
            return covered
        if isinstance(general, OneOf):
            self._budget.spend(2 + len(self._lists) // 16)
            members = _keys(general)
            return covered | sum(bit for bit, keys in self._lists if keys <= members and bit != covered)
        if isinstance(general, Equals):
            return covered
        kind = constraint_class(general)
        assert kind is not None, "what is left compares with values of one class"
        intervals = self._intervals.get(kind)
        compared: list[tuple[int, Constraint]] = [*self._likes]
        match general:
            case Range():
                if intervals is not None:
                    low, high = _ends(general.low, general.high, general.low_open, general.high_open)
                    covered |= intervals.from_low(low) & intervals.to_high(high)
            case Differs():
                if intervals is not None:
                    low, high = _ends(general.value, general.value, True, True)
                    covered |= intervals.from_low(low) | intervals.to_high(high)
                covered |= self._lists_without(general)
            case Like():
                compared += self._others
                if kind in self._differs:  # one for all: which value is excluded makes no difference
                    compared.append((self._differing[kind], self._differs[kind]))
        self._budget.spend(2 + 2 * sum(constraint_size(one) for _, one in compared))
        for bits, one in compared:
            if constraint_covers(general, one):
                covered |= bits
        return covered

    def _lists_without(self, general: Differs) -> int:
        """An interval from the least to the greatest does not show which values a list leaves out."""
        self._budget.spend(len(self._lists) // 8)
        excluded = value_key(general.value)
        return sum(
            bit for bit, keys in self._lists if excluded not in keys and all(kind == excluded[0] for kind, _ in keys)
        )


def _keys(constraint: Equals | OneOf) -> frozenset[tuple[int, Value]]:
    values = constraint.values if isinstance(constraint, OneOf) else (constraint.value,)
    return frozenset(map(value_key, values))


def _interval(constraint: Constraint) -> tuple[str, _End, _End] | None:
    """The class and the ends of the least interval that holds all its values, if they are of one class."""
    match constraint:
        case Range():
            kind = constraint_class(constraint)
            assert kind is not None, "a range has a class"
            return kind, *_ends(constraint.low, constraint.high, constraint.low_open, constraint.high_open)
        case Equals():
            return value_class(constraint.value), *_ends(constraint.value, constraint.value, False, False)
        case OneOf() if value_class(constraint.values[0]) == value_class(constraint.values[-1]):
            return value_class(constraint.values[0]), *_ends(constraint.values[0], constraint.values[-1], False, False)
    return None


def _ends(low: Value | None, high: Value | None, low_open: bool, high_open: bool) -> tuple[_End, _End]:
    """In an order in which an interval holds another if it begins no later and ends no earlier."""
    return (0,) if low is None else (1, low, low_open), (2,) if high is None else (1, high, not high_open)

"""Expression -> normal form: an OR of filters, each an AND of constraints (002 section 2.1).

First NOT is pushed down to the constraints, which is exact in three-valued logic because each constraint has another
that is true just where it is false (`x < 5` and `x >= 5`), and both are unknown together. Then AND is distributed over
OR. That can double the number of filters with each clause, so nothing is multiplied out ahead: clauses are joined one
after the other, contradictions, duplicates and filters that another one includes are dropped at each step, and the
work ends with PredicateTooLarge as soon as too many are left, or the budget of steps is spent. OR of equalities on one
attribute becomes IN, so that a long list costs one filter.

Every constraint is settled once and gets a number; a clause is a set of numbers, held as the bits of an integer, and
knows which of them concern which attribute. To join two clauses is to OR their bits and to settle anew only the
attributes that both speak of, once for each combination; to find a clause within another is one AND.

The form is canonical as far as it is cheap: constraints and filters are in a fixed order that depends on nothing but
their content, equal numbers are written alike, and what one filter covers (see `relations`) is dropped. Two texts with
one meaning may still have different forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.content.bloom import positions
from penstock.content.language.budget import Budget
from penstock.content.language.conjoin import constraint_size, settle
from penstock.content.language.covering import CoverTable
from penstock.content.language.expression import And, Constant, Expression, Not, Or, conjunction, disjunction
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
)
from penstock.errors import PredicateTooLarge

# How many filters a step may make for each that may remain: room for what the step itself drops again.
_SLACK = 4
_TESTS_PER_STEP = 8  # of bits against bits

_INNER = Constant | And | Or | Not
_Bits = int  # numbers of constraints


class _Clause(NamedTuple):
    """An AND of constraints: all of them, and for each attribute those on it."""

    bits: _Bits
    by_name: dict[str, _Bits]


_Clauses = dict[_Bits, _Clause]  # by their bits: no two alike, in order of making


def normal_form(expression: Expression, budget: Budget, *, filters_max: int, values_max: int) -> tuple[Filter, ...]:
    """The filters of an expression: it is true just where one of them is. Raises PredicateTooLarge."""
    expansion = _Expansion(budget, filters_max)
    clauses = expansion.clauses(push_down(expression))
    size = expansion.size(clauses)
    if size > values_max:
        raise PredicateTooLarge(
            f"the filters of the predicate have {size} constraints and values together; the limit values_max is"
            f" {values_max}: a list stands in each filter that it is ANDed with, so use shorter lists or fewer"
            f" alternatives beside them, or subscribe with several predicates"
        )
    return expansion.filters(clauses)


def push_down(expression: Expression, negated: bool = False) -> Expression:
    """The same truth without any NOT above a constraint."""
    match expression:
        case Constant():
            return Constant(expression.value is not negated)
        case Not():
            return push_down(expression.part, not negated)
        case And() | Or():
            parts = (push_down(part, negated) for part in expression.parts)
            return conjunction(parts) if isinstance(expression, And) is not negated else disjunction(parts)
    return negation(expression) if negated else expression


def negation(constraint: Constraint) -> Expression:
    """What is true just where the constraint is false."""
    name = constraint.name
    match constraint:
        case Equals():
            return Differs(name, constraint.value)
        case Differs():
            return Equals(name, constraint.value)
        case OneOf():
            return conjunction(Differs(name, value) for value in constraint.values)
        case Range():
            below = (
                None if constraint.low is None else Range(name, None, constraint.low, False, not constraint.low_open)
            )
            above = None if constraint.high is None else Range(name, constraint.high, None, not constraint.high_open)
            return disjunction(part for part in (below, above) if part is not None)
        case Like():
            return Like(name, constraint.pattern, constraint.escape, not constraint.negated)
        case Exists():
            return Missing(name)
        case Missing():
            return Exists(name)


class _Expansion:
    """Distributes AND over OR, within bounds on what it keeps and on the steps it takes."""

    def __init__(self, budget: Budget, filters_max: int) -> None:
        self._budget = budget
        self._filters_max = filters_max
        self._numbers: dict[tuple[object, ...], int] = {}  # of constraints, by their keys
        self._constraints: list[Constraint] = []
        self._settled: dict[_Bits, _Bits | None] = {}  # constraints on one attribute -> what they are together

    def clauses(self, expression: Expression) -> _Clauses:
        """The clauses of an expression without NOT. Recursion ends: the parser bounds the depth of a tree."""
        match expression:
            case Constant():
                return {0: _Clause(0, {})} if expression.value else {}
            case Or():
                parts = _lists_joined(expression.parts)
                return self._kept(clause for part in parts for clause in self.clauses(part).values())
            case And():
                clause = self._clause(part for part in expression.parts if not isinstance(part, _INNER))
                result = {} if clause is None else {clause.bits: clause}
                factors = (self.clauses(part) for part in expression.parts if isinstance(part, _INNER))
                for factor in {tuple(sorted(clauses)): clauses for clauses in factors}.values():  # each once
                    result = self._kept(self._join(a, b) for a in result.values() for b in factor.values())
                return result
            case Not():
                raise AssertionError("push_down leaves no NOT")
        clause = self._clause([expression])
        return {} if clause is None else {clause.bits: clause}

    def size(self, clauses: _Clauses) -> int:
        """Constraints and values in all clauses together."""
        sizes = [constraint_size(constraint) for constraint in self._constraints]
        lists = sum(1 << number for number, size in enumerate(sizes) if size > 1)
        self._budget.spend(len(sizes) // _TESTS_PER_STEP)
        return sum(bits.bit_count() + sum(sizes[number] - 1 for number in positions(bits & lists)) for bits in clauses)

    def filters(self, clauses: _Clauses) -> tuple[Filter, ...]:
        """The clauses as filters, without those that another one covers; all in the order of their keys."""
        keys = list(self._numbers)
        self._budget.spend(len(keys))
        ranks = {number: rank for rank, number in enumerate(sorted(range(len(keys)), key=keys.__getitem__))}
        ordered = sorted((sorted(map(ranks.__getitem__, positions(bits))), clause) for bits, clause in clauses.items())
        by_rank = {rank: self._constraints[number] for number, rank in ranks.items()}
        made = {clause.bits: Filter(tuple(by_rank[rank] for rank in some)) for some, clause in ordered}
        return tuple(made[clause.bits] for clause in self._without_covered([clause for _, clause in ordered]))

    # Clauses.

    def _clause(self, constraints: Iterable[Constraint]) -> _Clause | None:
        """All of them; None if no message fulfils them."""
        groups: dict[str, list[Constraint]] = {}
        for constraint in constraints:
            groups.setdefault(constraint.name, []).append(constraint)
        by_name: dict[str, _Bits] = {}
        whole = 0
        for name, group in groups.items():
            bits = self._together(name, group)
            if bits is None:
                return None
            by_name[name] = bits
            whole |= bits
        return _Clause(whole, by_name)

    def _together(self, name: str, group: list[Constraint]) -> _Bits | None:
        settled = settle(name, group, self._budget)
        return None if settled is None else sum(1 << self._number(constraint) for constraint in settled)

    def _number(self, constraint: Constraint) -> int:
        key = constraint_key(constraint)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._constraints):
            self._constraints.append(constraint)
        return number

    def _join(self, a: _Clause, b: _Clause) -> _Clause | None:
        """Both; None if no message fulfils them."""
        self._budget.spend(4 + (len(a.by_name) + len(b.by_name)) // _TESTS_PER_STEP)
        bits = a.bits | b.bits
        by_name = {**a.by_name, **b.by_name}
        for name, here in b.by_name.items():
            there = a.by_name.get(name, here)
            if here == there:
                continue
            both = here | there
            if both not in self._settled:
                group = [self._constraints[number] for number in positions(both)]
                self._settled[both] = self._together(name, group)
            settled = self._settled[both]
            if settled is None:
                return None
            by_name[name] = settled
            bits = bits & ~both | settled
        return _Clause(bits, by_name)

    def _kept(self, candidates: Iterable[_Clause | None]) -> _Clauses:
        """The candidates that can be true, none twice, none that another one includes."""
        clauses: _Clauses = {}
        for clause in candidates:
            if clause is not None:
                clauses[clause.bits] = clause
            if len(clauses) > self._filters_max * _SLACK:
                raise self._too_large()
        if len(clauses) > 1:
            clauses = self._without_supersets(clauses)
        if len(clauses) > self._filters_max:
            raise self._too_large()
        return clauses

    def _too_large(self) -> PredicateTooLarge:
        return PredicateTooLarge(
            f"the predicate becomes more than {self._filters_max} filters (ANDs of constraints joined by OR), the limit"
            f" filters_max: use IN for alternatives on one attribute, or subscribe with several predicates"
        )

    # What other clauses include.

    def _without_supersets(self, clauses: _Clauses) -> _Clauses:
        """A clause with all constraints of a shorter one, and more, adds nothing to an OR."""
        result: _Clauses = {}
        by_length: dict[int, list[_Bits]] = {}
        for bits in clauses:
            by_length.setdefault(bits.bit_count(), []).append(bits)
        shorter: list[_Bits] = []
        for _, alike in sorted(by_length.items()):
            self._budget.spend(len(alike) * len(shorter) // _TESTS_PER_STEP)
            kept = [bits for bits in alike if not any(bits & one == one for one in shorter)]
            shorter += kept
            result.update((bits, clauses[bits]) for bits in kept)
        return result

    def _without_covered(self, clauses: list[_Clause]) -> list[_Clause]:
        """Of two clauses that cover each other the first stays. At most filters_max squared comparisons.

        A clause covers another if each of its constraints covers one of the other's; `rows` has for each constraint
        those that it covers.
        """
        if len(clauses) < 2:
            return clauses
        rows = self._rows(clauses)
        kept: list[tuple[list[_Bits], _Clause]] = []
        for candidate in clauses:
            self._budget.spend(1 + len(kept) // 2)
            bits = candidate.bits
            if any(_all_meet(row, bits) for row, _ in kept):
                continue
            own = [rows[number] for number in positions(bits)]
            kept = [(row, other) for row, other in kept if not _all_meet(own, other.bits)]
            kept.append((own, candidate))
        return [clause for _, clause in kept]

    def _rows(self, clauses: list[_Clause]) -> dict[int, _Bits]:
        by_name: dict[str, _Bits] = {}
        for clause in clauses:
            for name, bits in clause.by_name.items():
                by_name[name] = by_name.get(name, 0) | bits
        rows: dict[int, _Bits] = {}
        for bits in by_name.values():
            numbered = [(number, self._constraints[number]) for number in positions(bits)]
            table = CoverTable(numbered, self._budget)
            rows.update((number, table.covered_by(number, constraint)) for number, constraint in numbered)
        return rows


def _all_meet(rows: list[_Bits], bits: _Bits) -> bool:
    for row in rows:  # noqa: SIM110  # `all` over a generator takes twice as long, and each pair of filters comes here
        if not row & bits:
            return False
    return True


def _lists_joined(parts: Iterable[Expression]) -> list[Expression]:
    """x = 1 OR x IN (2, 3) is x IN (1, 2, 3)."""
    values: dict[str, list[Value]] = {}
    others: list[Expression] = []
    for part in parts:
        if isinstance(part, Equals | OneOf):
            values.setdefault(part.name, []).extend(part.values if isinstance(part, OneOf) else (part.value,))
        else:
            others.append(part)
    return [OneOf(name, tuple(listed)) for name, listed in values.items()] + others

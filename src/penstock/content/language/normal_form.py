"""Expression -> normal form: an OR of filters, each an AND of constraints (002 section 2.1).

First NOT is pushed down to the constraints, which is exact in three-valued logic because each constraint has another
that is true just where it is false (`x < 5` and `x >= 5`), and both are unknown together. Then AND is distributed over
OR. That can double the number of filters with each clause, so nothing is multiplied out ahead: clauses are joined one
after the other, contradictions, duplicates and filters that another one includes are dropped at each step, and the
work ends with PredicateTooLarge as soon as too many are left. OR of equalities on one attribute becomes IN, so that a
long list costs one filter.

The form is canonical as far as it is cheap: constraints and filters are in a fixed order that depends on nothing but
their content, equal numbers are written alike, and what one filter covers (see `relations`) is dropped. Two texts with
one meaning may still have different forms.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.content.language.conjoin import conjoin
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
from penstock.content.relations import covers
from penstock.errors import PredicateTooLarge

# How many filters a step may make for each that may remain: room for what the step itself drops again.
_SLACK = 4
# How many clauses may be tried for each filter that may remain. A predicate of the largest size needs about 64; a text
# that repeats its clauses to keep a broker busy ends here, after some tenths of a second.
_TRIES_PER_FILTER = 128

_INNER = Constant | And | Or | Not
_Clause = tuple[Constraint, ...]
_Clauses = dict[tuple[object, ...], _Clause]  # by the keys of their constraints: no two alike, in order of making


def normal_form(expression: Expression, *, filters_max: int) -> tuple[Filter, ...]:
    """The filters of an expression: it is true just where one of them is. Raises PredicateTooLarge."""
    clauses = _Expansion(filters_max).clauses(push_down(expression))
    filters = [Filter(clauses[key]) for key in sorted(clauses)]
    return tuple(_without_covered(filters))


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
    """Distributes AND over OR, within bounds on what it keeps and on what it tries."""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._tries_left = _TRIES_PER_FILTER * filters_max

    def clauses(self, expression: Expression) -> _Clauses:
        """The filters of an expression without NOT. Recursion ends: the parser bounds the depth of a tree."""
        match expression:
            case Constant():
                return self._kept([()] if expression.value else [])
            case Or():
                parts = _lists_joined(expression.parts)
                return self._kept(clause for part in parts for clause in self.clauses(part).values())
            case And():
                result = self._kept([tuple(part for part in expression.parts if not isinstance(part, _INNER))])
                factors = (self.clauses(part) for part in expression.parts if isinstance(part, _INNER))
                for factor in {tuple(sorted(clauses)): clauses for clauses in factors}.values():  # each once
                    result = self._kept(a + b for a in result.values() for b in factor.values())
                return result
            case Not():
                raise AssertionError("push_down leaves no NOT")
        return self._kept([(expression,)])

    def _kept(self, candidates: Iterable[_Clause]) -> _Clauses:
        """The candidates that can be true, none twice, none that another one includes."""
        clauses: _Clauses = {}
        for candidate in candidates:
            self._tries_left -= 1
            clause = conjoin(candidate)
            if clause is not None:
                clauses[tuple(map(constraint_key, clause))] = clause
            if len(clauses) > self._filters_max * _SLACK:
                raise self._too_large()
            if self._tries_left < 0:
                raise PredicateTooLarge(
                    "the predicate repeats its alternatives too often to be brought into normal form:"
                    " leave out what stands there twice, or subscribe with several predicates"
                )
        if len(clauses) > 1:
            clauses = _without_supersets(clauses)
        if len(clauses) > self._filters_max:
            raise self._too_large()
        return clauses

    def _too_large(self) -> PredicateTooLarge:
        return PredicateTooLarge(
            f"the predicate becomes more than {self._filters_max} filters (ANDs of constraints joined by OR), the limit"
            f" filters_max: use IN for alternatives on one attribute, or subscribe with several predicates"
        )


def _without_supersets(clauses: _Clauses) -> _Clauses:
    """A clause with all constraints of a shorter one, and more, adds nothing to an OR."""
    kept: list[frozenset[object]] = []
    result: _Clauses = {}
    for key in sorted(clauses, key=len):
        constraints = frozenset(key)
        if not any(shorter <= constraints for shorter in kept):
            kept.append(constraints)
            result[key] = clauses[key]
    return result


def _lists_joined(parts: Iterable[Expression]) -> list[Expression]:
    """x = 1 OR x IN (2, 3) is x IN (1, 2, 3)."""
    values: dict[str, tuple[Value, ...]] = {}
    others: list[Expression] = []
    for part in parts:
        if isinstance(part, Equals | OneOf):
            added = part.values if isinstance(part, OneOf) else (part.value,)
            values[part.name] = values.get(part.name, ()) + added
        else:
            others.append(part)
    return [OneOf(name, listed) for name, listed in values.items()] + others


def _without_covered(filters: list[Filter]) -> list[Filter]:
    """Of two filters that cover each other the first stays. At most filters_max squared comparisons."""
    kept: list[Filter] = []
    for candidate in filters:
        if not any(covers(other, candidate) for other in kept):
            kept = [other for other in kept if not covers(candidate, other)]
            kept.append(candidate)
    return kept

"""Exact evaluation: does a message match? Compiled from the expression tree, three-valued as in SQL.

A message matches when the whole text is true, and a NOT anywhere turns the question into "is this part false?". So
two questions are compiled, `is true` and `is false`, each by its own rule for AND, OR and the constraints; unknown
never needs a value of its own, it is what answers no to both. The tree is the source, not the normal form: the two
are made apart, so that the tests can hold them against each other.

The result is one Python function. Its source is put together from templates only; names and values come in as cells
of a closure (`k0`, `k1`, ...), so nothing that a user wrote is ever compiled. Predicates of one shape share their code.
To compile takes some 30 us for each constraint, so a tree of more than COMPILED_MAX of them becomes a tree of
functions, one for each constraint and made of the same templates: it is there a hundred times sooner and answers
nearly as fast.

Before that the tree is gathered: what is said of one attribute value by value (`x <> 1 AND x <> 2`) becomes one list,
which costs one lookup, and what is said twice is said once. `match_steps` counts what is left, in tenths of a
microsecond: the price of a message that no constraint turns away early. The parser refuses what is above its limit.

Three traps of Python are met at the constraints. True == 1, so a number is compared only after its type is known to
be none of bool's. Integers and floats compare by exact value, also beyond 2^53, as Python does by itself. And a value
of another class must answer no to both questions, so each template asks for the class first.

`truth` answers for one constraint without compiling, `explain` for a whole tree: what it is, and who decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from penstock.content.language.expression import And, Constant, Expression, Not, Or, conjunction, disjunction
from penstock.content.language.like import MASK_STEPS, compile_like
from penstock.content.message import Attributes, Value
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
    value_key,
)

COMPILED_MAX = 24  # constraints; more of them are not compiled as a whole

_NUMBERS = frozenset((int, float))
_CLASS_TEST = {"boolean": "is bool", "number": "in numbers", "string": "is str"}


_Test = Callable[[Attributes], bool]


def compile_expression(expression: Expression, *, compiled_max: int = COMPILED_MAX) -> _Test:
    """A function that says whether the expression is true for a message's attributes."""
    if _constraints(expression) > compiled_max:
        return _test(expression, True)
    constants: list[object] = []
    body = _source(expression, True, constants)
    return _maker(body, len(constants))(*constants)


@lru_cache(maxsize=512)
def _maker(body: str, constants: int) -> Callable[..., _Test]:
    """What makes a function of these constants; a shape that comes again is not compiled again."""
    names = ", ".join(f"k{index}" for index in range(constants))
    source = f"def make({names}):\n def matches(a):\n  get = a.get\n  return {body}\n return matches"
    namespace: dict[str, Callable[..., _Test]] = {}
    exec(compile(source, "<predicate>", "exec"), {"numbers": _NUMBERS}, namespace)
    return namespace["make"]


def _test(expression: Expression, asked: bool) -> _Test:
    """The same as `_source`, as a tree of functions."""
    match expression:
        case Constant():
            return _maker(str(expression.value is asked), 0)()
        case Not():
            return _test(expression.part, not asked)
        case And() | Or():
            tests = [_test(part, asked) for part in expression.parts]
            return _all_of(tests) if isinstance(expression, And) is asked else _any_of(tests)
    constants: list[object] = []
    body = _constraint_source(expression, asked, constants)
    return _maker(body, len(constants))(*constants)


def _all_of(tests: list[_Test]) -> _Test:
    def matches(attributes: Attributes) -> bool:
        for test in tests:  # noqa: SIM110  # `all` over a generator takes twice as long
            if not test(attributes):
                return False
        return True

    return matches


def _any_of(tests: list[_Test]) -> _Test:
    def matches(attributes: Attributes) -> bool:
        for test in tests:  # noqa: SIM110  # the same for `any`
            if test(attributes):
                return True
        return False

    return matches


def _constraints(expression: Expression) -> int:
    match expression:
        case Constant():
            return 0
        case Not():
            return _constraints(expression.part)
        case And() | Or():
            return sum(map(_constraints, expression.parts))
    return 1


def match_steps(expression: Expression) -> int:
    """What it costs at most to ask about one message, its texts being no longer than LIKE is measured with."""
    searched: set[tuple[str, str]] = set()
    steps = _match_steps(expression, searched)
    return steps + MASK_STEPS * len(searched)


def _match_steps(expression: Expression, searched: set[tuple[str, str]]) -> int:
    match expression:
        case Constant():
            return 0
        case Not():
            return _match_steps(expression.part, searched)
        case And() | Or():
            return 1 + sum(_match_steps(part, searched) for part in expression.parts)
        case OneOf():
            return 2
        case Like():
            pattern = compile_like(expression.pattern, expression.escape)
            searched.update((expression.name, character) for character in pattern.searched)
            return 1 + pattern.match_steps
    return 1


def gather(expression: Expression) -> Expression:
    """The same truth with fewer constraints: values of one attribute in one list, nothing twice in one AND or OR."""
    match expression:
        case Not():
            return Not(gather(expression.part))
        case And() | Or():
            parts = [gather(part) for part in expression.parts]
            together = _gathered(parts, listed=isinstance(expression, Or))
            return conjunction(together) if isinstance(expression, And) else disjunction(together)
    return expression


def _gathered(parts: list[Expression], *, listed: bool) -> list[Expression]:
    """The parts of an OR, where values are listed, or of an AND, where values are excluded."""
    kept: dict[object, Expression] = {}
    lists: dict[str, dict[object, Value]] = {}
    for part in parts:
        asked = not isinstance(part, Not)
        constraint = part.part if isinstance(part, Not) else part
        if isinstance(constraint, Constant | And | Or | Not):
            kept[len(kept), None] = part
            continue
        if (
            isinstance(constraint, Equals | Differs | OneOf)
            and (isinstance(constraint, Differs) is asked) is not listed
        ):
            values = lists.setdefault(constraint.name, {})
            for value in constraint.values if isinstance(constraint, OneOf) else (constraint.value,):
                values.setdefault(value_key(value), value)
            kept.setdefault(constraint.name, part)
        else:
            kept.setdefault((constraint_key(constraint), asked), part)
    for name, values in lists.items():
        several = tuple(values.values())
        one: Constraint = Equals(name, several[0]) if len(several) == 1 else OneOf(name, several)
        kept[name] = one if listed else Not(one)
    return list(kept.values())


def _source(expression: Expression, asked: bool, constants: list[object]) -> str:
    """Python for "the expression is <asked>". Recursion ends: the parser bounds the depth of a tree."""
    match expression:
        case Constant():
            return str(expression.value is asked)
        case Not():
            return _source(expression.part, not asked, constants)
        case And() | Or():
            joint = " and " if isinstance(expression, And) is asked else " or "
            return f"({joint.join(_source(part, asked, constants) for part in expression.parts)})"
    return f"({_constraint_source(expression, asked, constants)})"


def _constraint_source(constraint: Constraint, asked: bool, constants: list[object]) -> str:
    """Python for "the constraint is <asked>" """

    def constant(value: object) -> str:
        constants.append(value)
        return f"k{len(constants) - 1}"

    name = constant(constraint.name)
    match constraint:
        case Exists() | Missing():
            return f"{name} {'in' if isinstance(constraint, Exists) is asked else 'not in'} a"
        case Equals() | Differs():
            value, wanted_equal = constraint.value, isinstance(constraint, Equals) is asked
            if isinstance(value, str) and wanted_equal:
                return f"get({name}) == {constant(value)}"  # only a string equals a string
            test = f"x {'==' if wanted_equal else '!='} {constant(value)}"
            return _classed(name, value, test)
        case OneOf():
            classes = {value_class(value) for value in constraint.values}
            if asked and classes == {"string"}:
                return f"get({name}) in {constant(frozenset(constraint.values))}"
            if asked:
                return f"((x := get({name})).__class__ is bool, x) in {constant(_typed(constraint.values))}"
            if len(classes) > 1:  # some comparison is unknown whatever the value is, so IN is never false
                return "False"
            return _classed(name, constraint.values[0], f"x not in {constant(frozenset(constraint.values))}")
        case Range():
            low, high = constraint.low, constraint.high
            parts = [] if low is None else [f"{constant(low)} {'<' if constraint.low_open else '<='} x"]
            parts += [] if high is None else [f"x {'<' if constraint.high_open else '<='} {constant(high)}"]
            end = low if low is not None else high
            assert end is not None
            return _classed(name, end, f"{'' if asked else 'not '}({' and '.join(parts)})")
        case Like():
            matcher = compile_like(constraint.pattern, constraint.escape).matches
            return _classed(name, "", f"{'not ' if constraint.negated is asked else ''}{constant(matcher)}(x)")


def _typed(values: Iterable[Value]) -> frozenset[tuple[bool, Value]]:
    return frozenset((isinstance(value, bool), value) for value in values)


def _classed(name: str, value: Value, test: str) -> str:
    return f"(x := get({name})).__class__ {_CLASS_TEST[value_class(value)]} and {test}"


def truth(constraint: Constraint, attributes: Attributes) -> bool | None:
    """True, false, or None for unknown."""
    name = constraint.name
    if isinstance(constraint, Exists | Missing):
        return (name in attributes) is isinstance(constraint, Exists)
    return holds(constraint, attributes[name]) if name in attributes else None


def holds(constraint: Constraint, value: Value) -> bool | None:
    """The truth of a constraint whose attribute has this value."""
    match constraint:
        case Exists() | Missing():
            return isinstance(constraint, Exists)
        case Equals() | Differs():
            same = value_class(value) == value_class(constraint.value)
            return (value == constraint.value) is isinstance(constraint, Equals) if same else None
        case OneOf():
            if value in constraint.values and any(value_key(value) == value_key(v) for v in constraint.values):
                return True
            return False if {value_class(member) for member in constraint.values} == {value_class(value)} else None
        case Range():
            return _inside(constraint, value)
        case Like():
            if not isinstance(value, str):
                return None
            return compile_like(constraint.pattern, constraint.escape).matches(value) is not constraint.negated


def _inside(constraint: Range, value: Value) -> bool | None:
    for end, is_open, is_low in (
        (constraint.low, constraint.low_open, True),
        (constraint.high, constraint.high_open, False),
    ):
        if end is None:
            continue
        if value_class(end) != value_class(value):
            return None
        if value == end:
            if is_open:
                return False
        elif (value < end) is is_low:  # type: ignore[operator]  # both are of one class
            return False
    return True


def filter_matches(selected: Filter, attributes: Attributes) -> bool:
    """Whether all constraints of the filter are true: the meaning of the normal form, not its fastest form."""
    return all(truth(constraint, attributes) is True for constraint in selected.constraints)


@dataclass(frozen=True)
class Decision:
    """One constraint, what it was, and the attribute's value (None: the attribute is missing)."""

    constraint: Constraint
    truth: bool | None
    value: Value | None


@dataclass(frozen=True)
class Explanation:
    """What the whole was, and the constraints that decided it; none if a constant did."""

    truth: bool | None
    decisions: tuple[Decision, ...]


def explain(expression: Expression, attributes: Attributes) -> Explanation:
    """Who decided: all parts of a true AND, the first false part of a false one; for OR the other way round."""
    match expression:
        case Constant():
            return Explanation(expression.value, ())
        case Not():
            inner = explain(expression.part, attributes)
            return Explanation(None if inner.truth is None else not inner.truth, inner.decisions)
        case And() | Or():
            ruling = isinstance(expression, Or)  # the truth that one part alone can give to the whole
            parts = [explain(part, attributes) for part in expression.parts]
            for wanted in (ruling, None):
                for part in parts:
                    if part.truth is wanted:
                        return part
            return Explanation(not ruling, tuple(decision for part in parts for decision in part.decisions))
    found = truth(expression, attributes)
    return Explanation(found, (Decision(expression, found, attributes.get(expression.name)),))

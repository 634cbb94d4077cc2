r"""What is probably a mistake in a predicate that means something all the same.

A value of another class makes a comparison unknown, never an error (see `predicate`). So `price < 5 AND price = 'x'` is
a predicate; it just matches nothing, for ever and without a word. Whoever writes it should hear of it: on subscribing
and in `penstock filter explain`. So should whoever writes `price < '120'`: it compares strings, and no number is less
than a string; and whoever writes `LIKE '50\%'`, where a backslash escapes nothing. Nothing is refused here, and brokers
do not ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.content.language.expression import And, Constant, Expression, Not, Or, constraint_text, name_text
from penstock.content.language.normal_form import push_down
from penstock.content.language.parser import parse_expression
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Like,
    Missing,
    OneOf,
    Predicate,
    Range,
    value_class,
)

WARNINGS_MAX = 8
TEXT_SHOWN_MAX = 60  # characters of a constraint

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ESCAPED = re.compile(r"\\[%_\\]")  # what means an escape in Spark SQL and PostgreSQL
_Asked = dict[str, Constraint]  # by attribute: a constraint that gives it a class


def warnings(predicate: Predicate) -> tuple[str, ...]:
    """Sentences for the one who wrote it; none if nothing is odd."""
    found: dict[str, None] = {}
    for clash in _clashes(push_down(parse_expression(predicate.text)), {}):
        found[clash] = None
        if len(found) >= WARNINGS_MAX:
            break
    if not predicate.filters:
        found["no message can match"] = None
    return tuple(found)


def _clashes(expression: Expression, asked: _Asked) -> Iterator[str]:
    """Attributes that are compared with several classes at once; `asked` is what stands beside, joined by AND."""
    match expression:
        case Constant():
            return
        case Not():
            raise AssertionError("push_down leaves no NOT")
        case Or():
            for part in expression.parts:
                yield from _clashes(part, asked)
        case And():
            beside = dict(asked)
            inner = [part for part in expression.parts if isinstance(part, Or)]
            for part in expression.parts:
                if not isinstance(part, Constant | And | Or | Not):
                    yield from _clashes(part, beside)
                    if _classes(part):
                        beside.setdefault(part.name, part)
            for part in inner:
                yield from _clashes(part, beside)
        case Equals() | Differs() | OneOf() | Range() | Like() | Exists() | Missing():
            if isinstance(expression, Range) and any(map(_is_quoted_number, (expression.low, expression.high))):
                yield f"{_shown(expression)} compares strings, so a number never matches: leave out the quotes?"
            if isinstance(expression, Like) and not expression.escape and _ESCAPED.search(expression.pattern):
                yield f"in {_shown(expression)} the backslash is an ordinary character: add ESCAPE '\\' if it is none"
            other = asked.get(expression.name)
            classes = _classes(expression)
            if other is not None and classes and classes.isdisjoint(_classes(other)):
                yield (
                    f"{_shown(other)} compares {name_text(expression.name)} with a {_words(other)} and"
                    f" {_shown(expression)} with a {_words(expression)}: no value is both, so they are never true"
                    f" together"
                )


def _classes(constraint: Constraint) -> frozenset[str]:
    """The classes of values for which it can be true; none if any class will do."""
    match constraint:
        case Equals() | Differs():
            return frozenset((value_class(constraint.value),))
        case OneOf():
            return frozenset(map(value_class, constraint.values))
        case Range():
            end = constraint.low if constraint.low is not None else constraint.high
            assert end is not None, "a range has at least one end"
            return frozenset((value_class(end),))
        case Like():
            return frozenset(("string",))
    return frozenset()


def _is_quoted_number(value: object) -> bool:
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None


def _words(constraint: Constraint) -> str:
    return " or a ".join(sorted(_classes(constraint)))


def _shown(constraint: Constraint) -> str:
    text = constraint_text(constraint)
    return text if len(text) <= TEXT_SHOWN_MAX else text[: TEXT_SHOWN_MAX - 3] + "..."

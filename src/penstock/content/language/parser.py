"""SQL-WHERE text -> predicate: `symbol = 'IBM' AND (price < 120 OR NOT urgent)`.

The grammar stands in `where.lark`. It is parsed bottom-up (LALR) with tables and an explicit stack, so no text can
exhaust Python's own; what comes out is the tree of `expression`, from which `evaluate` makes the exact test and
`normal_form` the filters. Lark is imported at the first text, not with this module: a broker that only forwards
encodings never pays for it.

Meaning is SQL's three-valued logic (see `predicate`). A constraint compares one attribute with a literal; a literal on
the left is turned round (`120 > price`). A bare name is a boolean attribute that must be true. Keywords are read in any
case and are reserved: an attribute of such a name, or of any name that is no plain word, is written in double quotes or
backticks. Strings stand in single quotes, a quote inside is doubled, a backslash means itself (in Spark SQL set
`spark.sql.parser.escapedStringLiterals`).

Errors come from the text alone and change nothing: PredicateSyntaxError shows the place and says in words what was
expected there; PredicateTooLarge names the limit. Nothing else is raised, whatever the text is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock.content.language.evaluate import compile_expression
from penstock.content.language.expression import KEYWORDS, Constant, Expression, Not, conjunction, disjunction
from penstock.content.language.like import DEFAULT_ESCAPE, compile_like
from penstock.content.language.normal_form import normal_form
from penstock.content.language.syntax_errors import unexpected_character, unexpected_token
from penstock.content.message import DEFAULT_LIMITS, INTEGER_MAX, INTEGER_MIN, Value
from penstock.content.predicate import (
    Differs,
    Equals,
    Exists,
    Like,
    Missing,
    OneOf,
    Predicate,
    Range,
    value_class,
    value_key,
)
from penstock.errors import PredicateSyntaxError, PredicateTooLarge

if TYPE_CHECKING:
    from lark import Lark, Token


@dataclass(frozen=True, kw_only=True)
class PredicateLimits:
    """Bounds on one text, so that a client cannot make a broker work at length (002 gives none)."""

    characters_max: int = 4096
    depth_max: int = 32  # of parentheses and NOTs inside each other
    filters_max: int = 64  # in the normal form


DEFAULT_PREDICATE_LIMITS = PredicateLimits()

_KEPT_KEYWORDS = frozenset(("NOT", "NULL", "TRUE", "FALSE"))  # the grammar drops the others, whose names begin with _
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ONE_NAME = "a constraint compares one attribute with a literal"


def parse_predicate(text: str, limits: PredicateLimits = DEFAULT_PREDICATE_LIMITS) -> Predicate:
    """The predicate of a text: its normal form, and the exact test compiled from the text itself."""
    expression = parse_expression(text, limits)
    filters = normal_form(expression, filters_max=limits.filters_max)
    return Predicate(text=text, filters=filters, matches=compile_expression(expression))


def parse_expression(text: str, limits: PredicateLimits = DEFAULT_PREDICATE_LIMITS) -> Expression:
    """The tree of a text, with every constraint checked."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if len(text) > limits.characters_max:
        raise PredicateTooLarge(
            f"the predicate has {len(text)} characters; the limit characters_max is {limits.characters_max}:"
            f" subscribe with several shorter predicates"
        )
    try:
        part: _Part = _parser().parse(text)  # type: ignore[assignment]  # the actions below make it, not a lark tree
    except _Refusal as refusal:
        raise PredicateSyntaxError(text, refusal.position, refusal.problem) from None
    except UnexpectedToken as error:
        raise unexpected_token(_parser(), text, error.token) from None
    except UnexpectedCharacters as error:
        raise unexpected_character(text, cast(int, error.pos_in_stream)) from None
    if part.depth > limits.depth_max:
        raise PredicateTooLarge(
            f"parentheses and NOTs are nested {part.depth} deep; the limit depth_max is {limits.depth_max}:"
            f" leave out the redundant ones or write the predicate as an OR of ANDs"
        )
    return part.expression


class _Part(NamedTuple):
    """A parsed part and how deep parentheses and NOTs go in it."""

    expression: Expression
    depth: int


class _Refusal(Exception):
    """Something that parses but means nothing; `parse_expression` adds the text."""

    def __init__(self, position: int, problem: str) -> None:
        self.position = position
        self.problem = problem


@cache
def _parser() -> Lark:
    from importlib.resources import files

    from lark import Lark

    grammar = files("penstock.content.language").joinpath("where.lark").read_text(encoding="utf-8")
    return Lark(
        grammar, parser="lalr", lexer="basic", transformer=_Actions(), lexer_callbacks={"NAME": _keyword_or_name}
    )


def _keyword_or_name(token: Token) -> Token:
    word = token.upper()
    if word in KEYWORDS:
        token.type = word if word in _KEPT_KEYWORDS else "_" + word
    return token


class _Actions:
    """What the parser does when a rule of the grammar is complete; it looks the methods up by the rule's name."""

    def start(self, children: list[_Part]) -> _Part:
        return children[0]

    def any_of(self, children: list[_Part]) -> _Part:
        return _Part(disjunction(part.expression for part in children), max(part.depth for part in children))

    def all_of(self, children: list[_Part]) -> _Part:
        return _Part(conjunction(part.expression for part in children), max(part.depth for part in children))

    def negated(self, children: list[Any]) -> _Part:
        inner: _Part = children[1]
        return _Part(_negation(inner.expression), inner.depth + 1)

    def group(self, children: list[_Part]) -> _Part:
        return _Part(children[0].expression, children[0].depth + 1)

    def bare(self, children: list[Token]) -> _Part:
        token = children[0]
        if token.type in ("TRUE", "FALSE"):
            return _Part(Constant(token.type == "TRUE"), 0)
        if not _is_name(token):
            raise _Refusal(_start(token), f"{token} alone is no condition; {_ONE_NAME}, such as price < 120")
        return _Part(Equals(_name(token), True), 0)

    def comparison(self, children: list[Token]) -> _Part:
        left, operator, right = children
        if _is_name(left) and _is_name(right):
            raise _Refusal(_start(right), f"{_ONE_NAME}, not with another attribute; strings stand in single quotes")
        if not _is_name(left) and not _is_name(right):
            raise _Refusal(_start(left), f"{_ONE_NAME}; here are two literals")
        if _is_name(left):
            return _Part(_compared(_name(left), str(operator), _literal(right)), 0)
        return _Part(_compared(_name(right), _FLIPPED.get(operator, str(operator)), _literal(left)), 0)

    def one_of(self, children: list[Token]) -> _Part:
        name, negated, operands = _split(children, "IN")
        distinct: dict[object, Value] = {}
        for value in map(_literal, operands):
            distinct.setdefault(value_key(value), value)
        values = tuple(distinct.values())
        return _signed(Equals(name, values[0]) if len(values) == 1 else OneOf(name, values), negated)

    def between(self, children: list[Token]) -> _Part:
        name, negated, operands = _split(children, "BETWEEN")
        low, high = map(_literal, operands)
        if value_class(low) == value_class(high):
            return _signed(Range(name, low, high), negated)
        return _signed(conjunction((Range(name, low, None), Range(name, None, high))), negated)

    def like(self, children: list[Token]) -> _Part:
        name, negated, operands = _split(children, "LIKE")
        pattern, escape = str(_literal(operands[0])), DEFAULT_ESCAPE
        if len(operands) > 1:
            escape = str(_literal(operands[1]))
            if len(escape) != 1:
                raise _Refusal(_start(operands[1]), "ESCAPE takes exactly one character")
        try:
            compile_like(pattern, escape)
        except PredicateSyntaxError as error:
            doubled = pattern.count("'", 0, error.position)
            raise _Refusal(_start(operands[0]) + 1 + error.position + doubled, error.problem) from None
        return _signed(Like(name, pattern, escape), negated)

    def is_null(self, children: list[Token]) -> _Part:
        name, negated, _null = _split(children, "IS NULL")
        return _Part(Exists(name) if negated else Missing(name), 0)

    def exists(self, children: list[Token]) -> _Part:
        return _Part(Exists(_name(children[0])), 0)


def _split(children: list[Token], what: str) -> tuple[str, bool, list[Token]]:
    """The attribute's name, whether NOT follows it, and what comes after."""
    if not _is_name(children[0]):
        raise _Refusal(_start(children[0]), f"{what} needs an attribute on its left, such as price {what} ...")
    negated = children[1].type == "NOT"
    return _name(children[0]), negated, children[2 if negated else 1 :]


def _signed(expression: Expression, negated: bool) -> _Part:
    return _Part(Not(expression) if negated else expression, 0)


def _negation(expression: Expression) -> Expression:
    return expression.part if isinstance(expression, Not) else Not(expression)


def _compared(name: str, operator: str, value: Value) -> Expression:
    match operator:
        case "=":
            return Equals(name, value)
        case "<>" | "!=":
            return Differs(name, value)
        case "<" | "<=":
            return Range(name, None, value, high_open=operator == "<")
    return Range(name, value, None, low_open=operator == ">")


def _start(token: Token) -> int:
    return token.start_pos or 0


def _is_name(token: Token) -> bool:
    return token.type in ("NAME", "QUOTED_NAME")


def _unquoted(token: Token) -> str:
    quote = token[0]
    return str(token[1:-1]).replace(quote * 2, quote)


def _name(token: Token) -> str:
    name = _unquoted(token) if token.type == "QUOTED_NAME" else str(token)
    if not name:
        raise _Refusal(_start(token), "an attribute name has at least one character")
    _check_bytes(token, name, "the attribute name", "name_bytes_max", DEFAULT_LIMITS.name_bytes_max)
    return name


def _literal(token: Token) -> Value:
    match token.type:
        case "TRUE" | "FALSE":
            return token.type == "TRUE"
        case "STRING":
            text = _unquoted(token)
            _check_bytes(token, text, "the string", "string_bytes_max", DEFAULT_LIMITS.string_bytes_max)
            return text
        case "INTEGER":
            # The digits are counted first: making an integer of a very long text is quadratic.
            if len(token.lstrip("+-0")) <= 19 and INTEGER_MIN <= int(token) <= INTEGER_MAX:
                return int(token)
            raise _Refusal(
                _start(token), "the number does not fit a 64-bit integer; write it as a decimal, such as 1e20"
            )
        case "DECIMAL":
            if isfinite(float(token)):
                return float(token)
            raise _Refusal(_start(token), "the number is too large for a float")
        case "NULL":
            raise _Refusal(_start(token), "nothing compares with NULL; use IS NULL or IS NOT NULL")
    raise AssertionError(f"the grammar takes no {token.type} for a literal")


def _check_bytes(token: Token, text: str, what: str, limit: str, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _Refusal(_start(token), f"{what} holds a lone surrogate and has no UTF-8 form") from None
    if size > most:
        raise _Refusal(_start(token), f"{what} has {size} bytes; the limit {limit} is {most}")

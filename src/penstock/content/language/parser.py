"""SQL-WHERE text -> predicate: `symbol = 'IBM' AND (price < 120 OR NOT urgent)`.

The grammar stands in `where.lark`, for people to read. The parser is written by hand, by recursive descent, because
it must be quick: a peer may send 4096 characters of anything, and a parser that walks tables takes 10 microseconds for
each token. The tests hold it against the grammar. Recursion ends: it goes one level down with each parenthesis, and
`depth_max` bounds those. What comes out is the tree of `expression`, from which `evaluate` makes the exact test and
`normal_form` the filters.

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
from math import isfinite

from penstock.content.language.budget import Budget
from penstock.content.language.evaluate import compile_expression, gather, match_steps
from penstock.content.language.expression import (
    Constant,
    Expression,
    Not,
    conjunction,
    disjunction,
    name_text,
    value_text,
)
from penstock.content.language.like import NO_ESCAPE, compile_like
from penstock.content.language.normal_form import normal_form
from penstock.content.language.scanner import Tokens
from penstock.content.language.syntax_errors import LITERALS, NAMES, unexpected_token
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
from penstock.errors import InvalidPredicate, PredicateSyntaxError, PredicateTooLarge


@dataclass(frozen=True, kw_only=True)
class PredicateLimits:
    """Bounds on one text, so that a client cannot make a broker work at length (002 gives none).

    The last three bound work and what is made; docs/benchmarks.md has what the worst accepted texts cost.
    """

    characters_max: int = 4096
    depth_max: int = 32  # of parentheses and NOTs inside each other
    filters_max: int = 64  # in the normal form
    values_max: int = 2048  # values and constraints in all filters of the normal form together
    steps_max: int = 9_000  # to parse it and to bring it into normal form, see `budget`
    match_steps_max: int = 450  # to match one message, see `evaluate`


DEFAULT_PREDICATE_LIMITS = PredicateLimits()

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ONE_NAME = "a constraint compares one attribute with a literal"
_NOT_TWO_NAMES = "attributes are not compared with each other"
_OPERANDS = NAMES | LITERALS
_CONDITION = _OPERANDS | {"NOT", "EXISTS", "("}
_AFTER_OPERAND = frozenset(("COMPARISON", "NOT", "IN", "BETWEEN", "LIKE", "IS"))
_FOLLOW = frozenset(("AND", "OR", ")", "END"))
_LISTED = frozenset(("IN", "BETWEEN", "LIKE"))
_AFTER_VALUE = frozenset((",", ")"))
_OPENING, _AND, _STRING, _NULL = frozenset("("), frozenset(("AND",)), frozenset(("STRING",)), frozenset(("NULL",))


def parse_predicate(
    text: str, limits: PredicateLimits = DEFAULT_PREDICATE_LIMITS, budget: Budget | None = None
) -> Predicate:
    """The predicate of a text: its normal form, and the exact test compiled from the text itself."""
    budget = Budget(limits.steps_max) if budget is None else budget
    expression = parse_expression(text, limits, budget)
    filters = normal_form(expression, budget, filters_max=limits.filters_max, values_max=limits.values_max)
    gathered = gather(expression)
    steps = match_steps(gathered)
    if steps > limits.match_steps_max:
        raise PredicateTooLarge(
            f"to match one message would take {steps} steps; the limit match_steps_max is {limits.match_steps_max}:"
            f" use IN for values of one attribute, fewer LIKEs, and fewer _ between two % in them, or subscribe with"
            f" several predicates"
        )
    return Predicate(text=text, filters=filters, matches=compile_expression(gathered))


def parse_expression(
    text: str, limits: PredicateLimits = DEFAULT_PREDICATE_LIMITS, budget: Budget | None = None
) -> Expression:
    """The tree of a text, with every constraint checked."""
    if not isinstance(text, str):
        raise InvalidPredicate(f"the predicate is {type(text).__name__}; pass a WHERE text, such as \"symbol = 'IBM'\"")
    if len(text) > limits.characters_max:
        raise PredicateTooLarge(
            f"the predicate has {len(text)} characters; the limit characters_max is {limits.characters_max}:"
            f" subscribe with several shorter predicates"
        )
    tokens = Tokens(text)
    budget = Budget(limits.steps_max) if budget is None else budget
    budget.spend(len(tokens.kinds))
    return _Descent(text, tokens, limits.depth_max, budget).whole()


class _Descent:
    """One method for each rule of the grammar; `_at` is the next token, `_open` how many parentheses wait."""

    def __init__(self, text: str, tokens: Tokens, depth_max: int, budget: Budget) -> None:
        self._text = text
        self._kinds = tokens.kinds
        self._texts = tokens.texts
        self._starts = tokens.starts
        self._at = 0
        self._open = 0
        self._depth_max = depth_max
        self._budget = budget

    def whole(self) -> Expression:
        expression = self._disjunction(0)
        if self._kinds[self._at] != "END":
            raise self._unexpected(self._follow())
        return expression

    def _disjunction(self, depth: int) -> Expression:
        first = self._conjunction(depth)
        if self._kinds[self._at] != "OR":
            return first
        parts = [first]
        while self._kinds[self._at] == "OR":
            self._at += 1
            parts.append(self._conjunction(depth))
        return disjunction(parts)

    def _conjunction(self, depth: int) -> Expression:
        first = self._negation(depth)
        if self._kinds[self._at] != "AND":
            return first
        parts = [first]
        while self._kinds[self._at] == "AND":
            self._at += 1
            parts.append(self._negation(depth))
        return conjunction(parts)

    def _negation(self, depth: int) -> Expression:
        negations = 0
        while self._kinds[self._at] == "NOT":
            self._at += 1
            negations += 1
            self._check_depth(depth + negations)
        inner = self._condition(depth + negations)
        for _ in range(negations):
            inner = inner.part if isinstance(inner, Not) else Not(inner)
        return inner

    def _condition(self, depth: int) -> Expression:
        kind = self._kinds[self._at]
        if kind == "(":
            return self._group(depth)
        if kind == "EXISTS":
            self._at += 1
            return Exists(self._name(self._take(NAMES)))
        if kind not in _OPERANDS:
            raise self._unexpected(_CONDITION)
        left = self._at
        self._at += 1
        match self._kinds[self._at]:
            case "COMPARISON":
                return self._comparison(left)
            case "NOT" | "IN" | "BETWEEN" | "LIKE":
                return self._listed(left)
            case "IS":
                return self._is_null(left)
        return self._bare(left)

    def _group(self, depth: int) -> Expression:
        self._check_depth(depth + 1)
        self._at += 1
        self._open += 1
        inner = self._disjunction(depth + 1)
        if self._kinds[self._at] != ")":
            raise self._unexpected(self._follow())
        self._open -= 1
        self._at += 1
        return inner

    def _bare(self, left: int) -> Expression:
        if self._kinds[self._at] not in _FOLLOW:
            raise self._unexpected(_AFTER_OPERAND | self._follow())
        kind, token = self._kinds[left], self._texts[left]
        if kind in ("TRUE", "FALSE"):
            return Constant(kind == "TRUE")
        if kind not in NAMES:
            raise self._refusal(left, f"{token} alone is no condition; {_ONE_NAME}, such as price < 120")
        return Equals(self._name(left), True)

    def _comparison(self, left: int) -> Expression:
        operator = self._texts[self._at]
        self._at += 1
        named = self._kinds[left] in NAMES
        if self._kinds[self._at] not in _OPERANDS:
            raise self._unexpected(LITERALS if named else NAMES)
        right = self._at
        self._at += 1
        if named is (self._kinds[right] in NAMES):
            if named:
                meant = f"{name_text(self._name(left))} {operator} {value_text(self._name(right))}"
                raise self._refusal(right, f"strings stand in single quotes: {meant} ({_NOT_TWO_NAMES})")
            raise self._refusal(left, f"{_ONE_NAME}; here are two literals")
        if named:
            return _compared(self._name(left), operator, self._literal(right))
        return _compared(self._name(right), _FLIPPED.get(operator, operator), self._literal(left))

    def _listed(self, left: int) -> Expression:
        """name [NOT] IN, BETWEEN or LIKE"""
        negated = self._kinds[self._at] == "NOT"
        if negated:
            self._at += 1
        what = self._kinds[self._take(_LISTED)]
        rules = {"IN": self._one_of, "BETWEEN": self._between, "LIKE": self._like}
        made = rules[what](left)
        return Not(made) if negated else made

    def _one_of(self, left: int) -> Expression:
        self._take(_OPENING)
        distinct: dict[object, Value] = {}
        while True:
            value = self._literal(self._take(LITERALS))
            distinct.setdefault(value_key(value), value)
            if self._kinds[self._take(_AFTER_VALUE)] == ")":
                break
        name, values = self._needed_name(left, "IN"), tuple(distinct.values())
        return Equals(name, values[0]) if len(values) == 1 else OneOf(name, values)

    def _between(self, left: int) -> Expression:
        low = self._literal(self._take(LITERALS))
        self._take(_AND)
        high = self._literal(self._take(LITERALS))
        name = self._needed_name(left, "BETWEEN")
        if value_class(low) == value_class(high):
            return Range(name, low, high)
        return conjunction((Range(name, low, None), Range(name, None, high)))

    def _like(self, left: int) -> Expression:
        string = self._take(_STRING)
        pattern, escape = str(self._literal(string)), NO_ESCAPE
        if self._kinds[self._at] == "ESCAPE":
            self._at += 1
            given = self._take(_STRING)
            escape = str(self._literal(given))
            if len(escape) != 1:
                raise self._refusal(given, "ESCAPE takes exactly one character")
        elif self._kinds[self._at] not in _FOLLOW:
            raise self._unexpected(self._follow() | {"ESCAPE"})
        name = self._needed_name(left, "LIKE")
        self._budget.spend(len(pattern))
        try:
            compile_like(pattern, escape)
        except PredicateSyntaxError as error:
            doubled = pattern.count("'", 0, error.position)
            place = self._starts[string] + 1 + error.position + doubled
            raise PredicateSyntaxError(self._text, place, error.problem) from None
        return Like(name, pattern, escape)

    def _is_null(self, left: int) -> Expression:
        self._at += 1
        negated = self._kinds[self._take(_NULL | {"NOT"})] == "NOT"
        if negated:
            self._take(_NULL)
        name = self._needed_name(left, "IS NULL")
        return Exists(name) if negated else Missing(name)

    # Tokens.

    def _take(self, expected: frozenset[str]) -> int:
        """The place of the next token, which must be one of these."""
        at = self._at
        if self._kinds[at] not in expected:
            raise self._unexpected(expected)
        self._at = at + 1
        return at

    def _follow(self) -> frozenset[str]:
        """What may stand after a condition that is complete."""
        return frozenset(("AND", "OR", ")" if self._open else "END"))

    def _unexpected(self, expected: frozenset[str]) -> PredicateSyntaxError:
        at = self._at
        return unexpected_token(self._text, self._kinds[at], self._texts[at], self._starts[at], expected)

    def _refusal(self, at: int, problem: str) -> PredicateSyntaxError:
        """Something that parses but means nothing."""
        return PredicateSyntaxError(self._text, self._starts[at], problem)

    def _check_depth(self, depth: int) -> None:
        if depth > self._depth_max:
            raise PredicateTooLarge(
                f"parentheses and NOTs are nested more than {self._depth_max} deep; the limit depth_max is"
                f" {self._depth_max}: leave out the redundant ones or write the predicate as an OR of ANDs"
            )

    def _needed_name(self, at: int, what: str) -> str:
        if self._kinds[at] not in NAMES:
            raise self._refusal(at, f"{what} needs an attribute on its left, such as price {what} ...")
        return self._name(at)

    def _name(self, at: int) -> str:
        token = self._texts[at]
        name = _unquoted(token) if self._kinds[at] == "QUOTED_NAME" else token
        if not name:
            raise self._refusal(at, "an attribute name has at least one character")
        self._check_bytes(at, name, "the attribute name", "name_bytes_max", DEFAULT_LIMITS.name_bytes_max)
        return name

    def _literal(self, at: int) -> Value:
        token = self._texts[at]
        match self._kinds[at]:
            case "INTEGER":
                # The digits are counted first: making an integer of a very long text is quadratic.
                if len(token) <= 18 or (len(token.lstrip("+-0")) <= 19 and INTEGER_MIN <= int(token) <= INTEGER_MAX):
                    return int(token)
                raise self._refusal(at, "the number does not fit a 64-bit integer; write it as a decimal, such as 1e20")
            case "STRING":
                string = _unquoted(token)
                self._check_bytes(at, string, "the string", "string_bytes_max", DEFAULT_LIMITS.string_bytes_max)
                return string
            case "DECIMAL":
                if isfinite(float(token)):
                    return float(token)
                raise self._refusal(at, "the number is too large for a float")
            case "NULL":
                raise self._refusal(at, "nothing compares with NULL; use IS NULL or IS NOT NULL")
        return self._kinds[at] == "TRUE"

    def _check_bytes(self, at: int, text: str, what: str, limit: str, most: int) -> None:
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise self._refusal(at, f"{what} holds a lone surrogate and has no UTF-8 form") from None
        if size > most:
            raise self._refusal(at, f"{what} has {size} bytes; the limit {limit} is {most}")


def _compared(name: str, operator: str, value: Value) -> Expression:
    match operator:
        case "=":
            return Equals(name, value)
        case "<>" | "!=":
            return Differs(name, value)
        case "<" | "<=":
            return Range(name, None, value, high_open=operator == "<")
    return Range(name, value, None, low_open=operator == ">")


def _unquoted(token: str) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)

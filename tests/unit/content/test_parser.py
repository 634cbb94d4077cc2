"""The WHERE language: what a text becomes, and what is said about a text that becomes nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock.content.language.expression import And, Constant, Expression, Not, Or
from penstock.content.language.parser import PredicateLimits, parse_expression, parse_predicate
from penstock.content.predicate import Differs, Equals, Exists, Like, Missing, OneOf, Range
from penstock.errors import InvalidPredicate, PredicateSyntaxError, PredicateTooLarge


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", Equals("x", 1)),
        ("x <> 'a'", Differs("x", "a")),
        ("x != 'a'", Differs("x", "a")),
        ("x < 5", Range("x", None, 5, False, True)),
        ("x <= 5", Range("x", None, 5)),
        ("x > -5", Range("x", -5, None, True)),
        ("x >= +1.5e3", Range("x", 1500.0, None)),
        ("120 > price", Range("price", None, 120, False, True)),
        ("120 >= price", Range("price", None, 120)),
        ("120 < price", Range("price", 120, None, True)),
        ("120 <= price", Range("price", 120, None)),
        ("120 <> price", Differs("price", 120)),
        ("'IBM' = symbol", Equals("symbol", "IBM")),
        ("x IN (1, 'a', TRUE)", OneOf("x", (1, "a", True))),
        ("x in (1, 1.0)", Equals("x", 1)),
        ("x NOT IN (1, 2)", Not(OneOf("x", (1, 2)))),
        ("x BETWEEN 1 AND 2", Range("x", 1, 2)),
        ("x NOT BETWEEN 1 AND 2", Not(Range("x", 1, 2))),
        ("x BETWEEN 1 AND 'a'", And((Range("x", 1, None), Range("x", None, "a")))),
        ("x LIKE 'a%'", Like("x", "a%")),
        ("x NOT LIKE 'a!%' ESCAPE '!'", Not(Like("x", "a!%", "!"))),
        ("x LIKE 'C:\\temp%'", Like("x", "C:\\temp%", "")),
        ("x LIKE '50\\%' ESCAPE '\\'", Like("x", "50\\%", "\\")),
        ("x IS NULL", Missing("x")),
        ("x IS NOT NULL", Exists("x")),
        ("EXISTS x", Exists("x")),
        ("NOT EXISTS x", Not(Exists("x"))),
        ("true", Constant(True)),
        ("False", Constant(False)),
        ("urgent", Equals("urgent", True)),
        ("NOT urgent", Not(Equals("urgent", True))),
        ("NOT NOT urgent", Equals("urgent", True)),
        ("a AND b AND (c AND d)", And(tuple(Equals(name, True) for name in "abcd"))),
        ("a OR b AND c", Or((Equals("a", True), And((Equals("b", True), Equals("c", True)))))),
        ("NOT a AND b", And((Not(Equals("a", True)), Equals("b", True)))),
        ("_to = 'me'", Equals("_to", "me")),
        ("a.b_1 = 1", Equals("a.b_1", 1)),
        ('"a ""b" = 1', Equals('a "b', 1)),
        ("`and` = 1", Equals("and", 1)),
        ("x = 'it''s \\n'", Equals("x", "it's \\n")),
        ("x = ''", Equals("x", "")),
        ("x=-9223372036854775808", Equals("x", -(2**63))),
        ("x\n=\t1", Equals("x", 1)),
        ("iN_x = 1", Equals("iN_x", 1)),
    ],
)
def test_a_text_becomes_its_tree(text: str, expected: Expression) -> None:
    assert repr(parse_expression(text)) == repr(expected)  # repr tells True from 1, == does not


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "empty"),
        ("a = 1 OR", 8, "ends too early; expected an attribute name, a literal, NOT, EXISTS or ("),
        ("(a = 1", 6, "expected AND, OR or )"),
        ("a = 1)", 5, "unexpected ); expected AND, OR or the end"),
        ("price <", 7, "expected a literal"),
        ("x LIKE 'a' 5", 11, "expected ESCAPE, AND, OR or the end"),
        ("x IS 5", 5, "expected NOT or NULL"),
        ("x NOT 5", 6, "expected IN, BETWEEN or LIKE"),
        ("(x IN (1 2))", 9, "expected , or )"),
        ("120 <", 5, "expected an attribute name"),
        ("price 5", 6, "expected a comparison (= <> < <= > >=), NOT, IN, BETWEEN, LIKE, IS, AND, OR or the end"),
        ("1 < x < 5", 6, "expected AND, OR or the end"),
        ("x = NULL", 4, "use IS NULL"),
        ("x IN (NULL)", 6, "use IS NULL"),
        ("x = y", 4, "strings stand in single quotes: x = 'y' ("),
        ("1 = 1", 0, "two literals"),
        ("5", 0, "alone is no condition"),
        ("'a' IN (1)", 0, "needs an attribute on its left"),
        ("x IN ()", 6, "expected a literal"),
        ("x IN (1, y)", 9, "expected a literal"),
        ("x LIKE 5", 7, "expected a string in single quotes"),
        ("x LIKE 'it''s \\d' ESCAPE '\\'", 14, "must be followed by %, _ or itself"),
        ("x LIKE 'a' ESCAPE 'ab'", 18, "exactly one character"),
        ("x = 9223372036854775808", 4, "64-bit"),
        ("x = " + "9" * 4000, 4, "64-bit"),
        ("x = 1e999", 4, "too large"),
        ("x = 'abc", 4, "never closed"),
        ('"abc = 5', 0, "never closed"),
        ('"" = 5', 0, "at least one character"),
        ("in = 5", 0, 'in is a keyword; an attribute of that name is written "in"'),
        ("x = 5 & y = 6", 6, "unexpected &; use AND"),
        ("x = 5 && y = 6", 6, "unexpected &&; use AND"),
        ("x = 5 || y = 6", 6, "unexpected ||; use OR"),
        ("!x", 0, "unexpected !; use NOT"),
        ("x == 5", 2, "== is no comparison; use ="),
        ("x => 5", 2, "=> is no comparison; use >="),
        ("x =< 5", 2, "=< is no comparison; use <="),
        ("x = = 5", 4, "expected a literal"),
        ("x <== 5", 4, "expected a literal"),
        ("x = “a”", 4, "straight single quotes"),
        ('x = "a"', 4, "strings stand in single quotes: x = 'a' (attributes are not compared with each other)"),
        ("symbol <> IBM AND", 10, "strings stand in single quotes: symbol <> 'IBM' ("),
        ('"the x" < "it\'s"', 10, "strings stand in single quotes: \"the x\" < 'it''s' ("),
        ('x LIKE "a%"', 7, "double quotes are for names; a string stands in single quotes"),
        ('x IN ("a")', 6, "double quotes are for names; a string stands in single quotes"),
        ("x = \0", 4, "U+0000"),
        ("x = '\ud800'", 4, "lone surrogate"),
        ("a" * 129 + " = 1", 0, "name_bytes_max is 128"),
        ("x = '" + "é" * 2049 + "'", 4, "string_bytes_max is 4096"),
        ("x = 1 LIKE", 6, "expected AND, OR or the end"),
        ("iſ = 1", 1, "unexpected ſ"),  # a letter that lower-cases to s makes no keyword
    ],
)
def test_a_syntax_error_shows_the_place_and_what_was_expected(text: str, position: int, problem: str) -> None:
    with pytest.raises(PredicateSyntaxError) as caught:
        parse_predicate(text)
    assert problem in caught.value.problem
    assert caught.value.position == position
    assert str(caught.value).endswith(" " * (position + 2) + "^")


def test_the_caret_stands_in_the_line_of_the_mistake() -> None:
    with pytest.raises(PredicateSyntaxError) as caught:
        parse_predicate("a = 1 AND\nb <> AND\nc = 2")
    assert str(caught.value).splitlines()[1:] == ["  b <> AND", "       ^"]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("a = 1 OR " * 456, "characters_max is 4096"),
        ("(" * 33 + "a" + ")" * 33, "depth_max is 32"),
        ("NOT " * 33 + "a", "depth_max is 32"),
        ("NOT (" * 17 + "a" + ")" * 17, "depth_max is 32"),
        ("NOT " * 1000 + "a", "depth_max is 32"),
        ("(" * 2000 + "a" + ")" * 2000, "depth_max is 32"),
        (" AND ".join(f"(a{i} OR b{i})" for i in range(100)), "filters_max"),
        (" OR ".join(f"a{i} = 1" for i in range(65)), "filters_max"),
        (" AND ".join(f"x{i} NOT BETWEEN 1 AND 5" for i in range(100)), "filters_max"),
        ("y AND " + " AND ".join(f"(a{i % 6} OR b{i % 6} OR y={i})" for i in range(160)), "twice"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_name(text: str, limit: str) -> None:
    with pytest.raises(PredicateTooLarge, match=limit):
        parse_predicate(text)


def test_limits_are_reached_and_not_only_approached() -> None:
    assert len(parse_predicate(" OR ".join(f"a{i} = 1" for i in range(64))).filters) == 64
    parse_predicate("(" * 32 + "a" + ")" * 32)
    parse_predicate("a" + " " * 4095)
    parse_predicate("x = '" + "é" * 2048 + "'")
    with pytest.raises(PredicateTooLarge, match="characters_max is 3"):
        parse_predicate("a = 1", PredicateLimits(characters_max=3))


@pytest.mark.parametrize(
    "piece", ["(", "((((", "NOT ", "'", '"', "\0", "\U0001f600", "\ud800", "1", "-", ".", "a OR ", "%"]
)
def test_no_repetition_escapes_as_another_error(piece: str) -> None:
    for count in (1, 100, 2000, 4096 // len(piece)):
        try:
            parse_predicate(piece * count)
        except InvalidPredicate:
            continue


def test_no_parser_library_is_needed() -> None:
    text = "import sys, penstock.content.language.parser as p; p.parse_predicate('a'); sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


@pytest.mark.parametrize("given", [None, 5, {"a": 1}, b"a = 1"])
def test_what_is_no_text_is_refused_with_an_example(given: Any) -> None:
    with pytest.raises(InvalidPredicate, match=f"the predicate is {type(given).__name__}; pass a WHERE text"):
        parse_predicate(given)

"""The parser, which is written by hand, takes just the texts that the grammar describes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from penstock.content.language.expression import KEYWORDS
from penstock.content.language.parser import PredicateLimits, parse_expression
from penstock.errors import PredicateSyntaxError

KEPT = ("NOT", "NULL", "TRUE", "FALSE")  # the grammar drops the others, whose names begin with _
LIMITS = PredicateLimits(depth_max=200)
# Errors of meaning: the text is one of the grammar, and makes no sense all the same.
OF_MEANING = (
    "compares one attribute",
    "attributes are not compared",
    "use = to compare",
    "needs an attribute",
    "with NULL",
    "exactly one character",
    "must be followed by",
    "alone is no condition",
    "does not fit",
    "too large for",
    "surrogate",
    "at least one character",
)


@cache
def grammar() -> Lark:
    text = files("penstock.content.language").joinpath("where.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer="basic", lexer_callbacks={"NAME": keyword_or_name})


def keyword_or_name(token: Token) -> Token:
    word = token.upper()
    if word in KEYWORDS:
        token.type = word if word in KEPT else "_" + word
    return token


WORDS = (
    "a b.c 'it''s' 'a%' ' \" `q` \"q\" 1 -2.5 .5 1e9 = <> <= ( ) ( ) , & AND and OR NOT IN BETWEEN LIKE ESCAPE IS NULL"
)
CONDITIONS = (
    *("a", "NOT a", "a = 1", "1 < a", "a IN (1, 'b')", "a NOT IN (2)", "a BETWEEN 1 AND 2", "a LIKE 'b%'"),
    *("a NOT LIKE 'b' ESCAPE '!'", "a IS NULL", "a IS NOT NULL", "EXISTS a", "TRUE", "(a)", "(a AND b OR NOT (c))"),
)
soup = st.lists(st.sampled_from([*WORDS.split(), "EXISTS", "TRUE", "a=1", "x IN", "\0"]), max_size=12)
chains = st.lists(st.sampled_from([*CONDITIONS, "AND", "OR", "AND", "OR", ")", "("]), max_size=9)


@settings(deadline=None, derandomize=True, max_examples=1500)
@given(st.one_of(soup, chains).map(" ".join))
def test_parser_and_grammar_take_the_same_texts(text: str) -> None:
    try:
        grammar().parse(text)
        in_grammar = True
    except UnexpectedInput:
        in_grammar = False
    try:
        parse_expression(text, LIMITS)
        problem = ""
    except PredicateSyntaxError as error:
        problem = error.problem
    if problem and not any(words in problem for words in OF_MEANING):
        assert not in_grammar, problem
    if not problem:
        assert in_grammar

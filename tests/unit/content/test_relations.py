"""Covering and overlap: what is claimed, what is left open, and every pair of constraints over a small world.

In `test_content_agreement` the same relations are tested on large random ones.
"""

from __future__ import annotations

from itertools import product

import pytest

from penstock.content.language.budget import Budget
from penstock.content.language.conjoin import conjoin
from penstock.content.language.evaluate import filter_matches, holds
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Value
from penstock.content.predicate import Constraint, Differs, Equals, Exists, Filter, Like, Missing, OneOf, Range
from penstock.content.relations import covers, disjoint, overlaps, witness


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        ("TRUE", "x = 1"),
        ("x = 1", "FALSE"),
        ("EXISTS x", "x < 5"),
        ("x < 10", "x < 5"),
        ("x < 10", "x = 9.5"),
        ("x <= 5", "x < 5"),
        ("x IN (1, 2, 3)", "x IN (3, 1)"),
        ("x <> 7", "x > 7"),
        ("x <> 'abc'", "x LIKE 'b%'"),
        ("x LIKE 'ab%'", "x LIKE 'abc%d'"),
        ("x LIKE 'ab%'", "x BETWEEN 'aba' AND 'abz'"),
        ("x LIKE '%'", "x > 'a'"),
        ("x NOT LIKE 'a%'", "x LIKE 'b%'"),
        ("x BETWEEN 'a' AND 'b'", "x LIKE 'a%'"),
        ("x < 10", "x < 5 AND y = 1"),
        ("x < 10 OR y = 1", "y = 1 AND z = 2 OR x < 3"),
        ("x IS NULL", "x IS NULL AND y = 1"),
    ],
)
def test_covers(general: str, specific: str) -> None:
    assert covers(parse_predicate(general), parse_predicate(specific))
    assert not covers(parse_predicate(specific), parse_predicate(general))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x = 1", "x = TRUE"),
        ("x < 5", "x > 5"),
        ("x < 5", "x < 'a'"),
        ("x IS NULL", "x <> 1"),
        ("x IN (1, 2)", "x > 2"),
        ("x LIKE 'a%'", "x = 'b'"),
        ("x = 1 AND y = 1", "x = 2"),
        ("FALSE", "TRUE"),
    ],
)
def test_disjoint(a: str, b: str) -> None:
    assert disjoint(parse_predicate(a), parse_predicate(b))
    assert not overlaps(parse_predicate(a), parse_predicate(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x > 1", "x < 1.0000000000000004"),
        ("x > 9007199254740992", "x < 9007199254740994"),
        ("x > 'a'", "x < 'ab'"),
        ("x NOT IN (1, 2, 3)", "x > 0 AND x < 4"),
        ("x LIKE 'a%'", "x LIKE '%b'"),
        ("x LIKE 'a_c%'", "x NOT LIKE 'a%d'"),
        ("x IS NULL", "y = 1"),
        ("x", "EXISTS x"),
        ("TRUE", "TRUE"),
    ],
)
def test_overlap_is_shown_by_a_message(a: str, b: str) -> None:
    left, right = parse_predicate(a), parse_predicate(b)
    shown = witness(left, right)
    assert shown is not None
    assert left.matches(shown)
    assert right.matches(shown)
    assert overlaps(left, right)
    assert not disjoint(left, right)


def test_what_is_not_proven_is_left_open() -> None:
    a, b = parse_predicate("x LIKE '%ab'"), parse_predicate("x LIKE '%ba'")
    assert not disjoint(a, b), "no text ends both ways, but nothing here knows that"
    assert not overlaps(a, b)
    halves = parse_predicate("x < 5 OR x >= 5")
    assert not covers(halves, parse_predicate("x > 3")), "true, but no filter alone shows it"


def test_constraints_and_filters_can_be_asked_too() -> None:
    wide, narrow = (parse_predicate(text).filters[0] for text in ("x < 10", "x < 5"))
    assert covers(wide, narrow)
    assert covers(wide.constraints[0], narrow.constraints[0])
    assert overlaps(wide, narrow.constraints[0])


# A small world: few constants, every constraint that can be made of them, every value at or beside them.
TEXTS = ("", "a", "ab", "b")
NUMBERS = (0, 1.5)
WORLD: list[Value] = [
    -1,
    0,
    1,
    1.5,
    2,
    True,
    False,
    "",
    "\0",
    "a",
    "a\0",
    "aa",
    "ab",
    "aba",
    "abb",
    "ac",
    "b",
    "bb",
    "c",
]


def every_constraint() -> list[Constraint]:
    made: list[Constraint] = [Exists("x"), Missing("x"), OneOf("x", ("a", 0)), OneOf("x", ("ab", "b"))]
    for value in (*TEXTS, *NUMBERS, True):
        made += [Equals("x", value), Differs("x", value)]
    for constants in (TEXTS, NUMBERS, (True,)):
        ends = (None, *constants)
        for low, high, low_open, high_open in product(ends, ends, (False, True), (False, True)):
            if (low is None or high is None or not low > high) and (low, high) != (None, None):
                made.append(Range("x", low, high, low_open, high_open))
    for pattern, negated in product(("%", "a%", "ab%", "%b", "_", "a_%"), (False, True)):
        made.append(Like("x", pattern, negated=negated))
    return made


def test_every_pair_of_a_small_world() -> None:
    constraints = every_constraint()
    true_at = [
        {-1} if isinstance(c, Missing) else {place for place, value in enumerate(WORLD) if holds(c, value)}
        for c in constraints
    ]
    proven = 0
    for (a, at_a), (b, at_b) in product(zip(constraints, true_at, strict=True), repeat=2):
        if covers(a, b):
            assert at_b <= at_a, (a, b)
            proven += 1
        together = conjoin((a, b), Budget(100))
        kept = (
            set()
            if together is None
            else {p for p, v in enumerate(WORLD) if filter_matches(Filter(together), {"x": v})}
        )
        assert kept == (at_a & at_b) - {-1}, (a, b)
    assert proven > len(constraints)

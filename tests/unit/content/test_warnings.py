"""What is probably a mistake is said to the one who wrote it, and nothing else is."""

from __future__ import annotations

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.content.language.warnings import WARNINGS_MAX, warnings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("price < 5 AND price = 'x'", ["price < 5", "with a number", "price = 'x'", "with a string"]),
        ("price = 'x' AND a = 1 AND price < 5", ["price = 'x'", "price < 5"]),
        ("urgent AND urgent = 'yes'", ["urgent = TRUE", "with a boolean", "with a string"]),
        ("price BETWEEN 1 AND 'a'", ["price >= 1", "price <= 'a'"]),
        ("x NOT IN (1, 'a')", ["x <> 1", "x <> 'a'"]),
        ("NOT (x <> 1 OR x LIKE 'a%')", ["x = 1", "x NOT LIKE 'a%'"]),
        ("x IN ('a', 'b') AND x > 5", ["x IN ('a', 'b')", "x > 5"]),
    ],
)
def test_a_number_and_a_string_at_once(text: str, said: list[str]) -> None:
    clash, never = warnings(parse_predicate(text))
    assert all(words in clash for words in said), clash
    assert never == "no message can match"


@pytest.mark.parametrize("text", ["price < '120'", "a = 1 AND price BETWEEN '1.5' AND '2'", "NOT price >= '-1e3'"])
def test_a_number_in_quotes_that_is_ordered_with_is_a_string(text: str) -> None:
    (found,) = warnings(parse_predicate(text))
    assert "a number never matches" in found


@pytest.mark.parametrize("text", ["note LIKE '50\\%'", "a OR note NOT LIKE 'a\\_b%'", "note LIKE 'C:\\\\x'"])
def test_a_backslash_that_looks_like_an_escape_is_none(text: str) -> None:
    (found,) = warnings(parse_predicate(text))
    assert "add ESCAPE '\\' if it is none" in found
    assert not warnings(parse_predicate(text + " ESCAPE '\\'"))


def test_one_alternative_of_several_is_named_though_others_match() -> None:
    found = warnings(parse_predicate("price < 5 AND (a = 1 OR price = 'x') OR b = 2"))
    assert len(found) == 1
    assert "price = 'x'" in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "price < 5 AND name = 'x'",
        "x = 1 OR x = 'a'",
        "x IN (1, 'a') AND x > 0",
        "x IS NOT NULL AND x = 'a' AND x > ''",
        "x = 1 AND x = 1.0",
        "TRUE",
        "zip = '08001' AND version > '1.2.3' AND day >= '2026-11-16'",
        "NOT (x = 1 AND x = 'a')",
        "(x = 1 AND a) OR (x = 'a' AND b)",
    ],
)
def test_nothing_is_said_of_what_can_be_meant(text: str) -> None:
    assert warnings(parse_predicate(text)) == ()


@pytest.mark.parametrize("text", ["FALSE", "x = 1 AND x = 2", "x < ''", "x IS NULL AND x"])
def test_what_can_never_match_is_said_to(text: str) -> None:
    assert warnings(parse_predicate(text)) == ("no message can match",)


def test_there_are_never_many_and_they_are_short() -> None:
    text = " OR ".join(f"(x{i} = 1 AND x{i} = '{'a' * 80}')" for i in range(30))
    found = warnings(parse_predicate(text))
    assert len(found) == WARNINGS_MAX + 1
    assert all(len(one) < 300 for one in found)

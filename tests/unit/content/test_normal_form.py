"""The normal form: NOT pushed down, AND distributed, nothing said twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.content.language.expression import constraint_text
from penstock.content.language.parser import parse_predicate


def written(text: str) -> list[str]:
    """The filters of a text, as texts."""
    return [" & ".join(map(constraint_text, selected.constraints)) for selected in parse_predicate(text).filters]


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("TRUE", [""]),
        ("FALSE", []),
        ("TRUE OR x = 1", [""]),
        ("x = 1 AND FALSE", []),
        # NOT reaches the constraints
        ("NOT x < 5", ["x >= 5"]),
        ("NOT x = 'a'", ["x <> 'a'"]),
        ("NOT x <> 1", ["x = 1"]),
        ("x NOT IN (1, 2)", ["x <> 1 & x <> 2"]),
        ("x NOT IN (1, 'a')", []),
        ("x NOT BETWEEN 1 AND 5", ["x < 1", "x > 5"]),
        ("x NOT BETWEEN 1 AND 'a'", ["x < 1", "x > 'a'"]),
        ("x NOT BETWEEN 5 AND 1", ["x < 5", "x > 1"]),
        ("x NOT LIKE 'a%'", ["x NOT LIKE 'a%'"]),
        ("NOT x IS NULL", ["x IS NOT NULL"]),
        ("NOT EXISTS x", ["x IS NULL"]),
        ("NOT x", ["x = FALSE"]),
        ("NOT (a AND b < 1)", ["a = FALSE", "b >= 1"]),
        ("NOT (a OR b < 1)", ["a = FALSE & b >= 1"]),
        # one attribute is settled at once
        ("x = 1 AND x = 2", []),
        ("x = 1 AND x = 1.0", ["x = 1"]),
        ("x = 1 AND x = TRUE", []),
        ("x > 3 AND x >= 5 AND x < 9", ["x >= 5 AND x < 9"]),
        ("x > 5 AND x < 5", []),
        ("x >= 5 AND x <= 5", ["x = 5"]),
        ("x >= 5 AND x <= 5 AND x <> 5", []),
        ("x <= 5 AND x <> 5", ["x < 5"]),
        ("x >= 5 AND x <> 5", ["x > 5"]),
        ("x < 5 AND x <> 7", ["x < 5"]),
        ("x < 5 AND x < 'a'", []),
        ("x < ''", []),
        ("x IN (1, 5, 9, 'a') AND x > 3", ["x IN (5, 9)"]),
        ("x IN (1, 2) AND x IN (2, 3)", ["x = 2"]),
        ("x IS NULL AND x = 1", []),
        ("x IS NULL AND EXISTS x", []),
        ("EXISTS x AND x < 5", ["x < 5"]),
        ("x <> TRUE", ["x = FALSE"]),
        ("x >= FALSE", ["x IN (FALSE, TRUE)"]),
        ("x > TRUE", []),
        ("x LIKE 'abc'", ["x = 'abc'"]),
        ("x NOT LIKE 'a!%' ESCAPE '!'", ["x <> 'a%'"]),
        ("x LIKE 'a#_%%' ESCAPE '#'", ["x LIKE 'a\\_%' ESCAPE '\\'"]),
        ("x LIKE 'a%' AND x NOT LIKE 'a%'", []),
        ("x NOT LIKE '%'", []),
        ("x LIKE 'a%' AND x IN ('ab', 'b')", ["x = 'ab'"]),
        # between filters
        ("x = 2 OR x = 1 OR x IN (3, 1)", ["x IN (1, 2, 3)"]),
        ("x = 1 OR x = TRUE", ["x IN (TRUE, 1)"]),
        ("x < 5 OR x < 9", ["x < 9"]),
        ("a = 1 AND b = 2 OR a = 1", ["a = 1"]),
        ("a = 1 OR b = 2 AND EXISTS c OR b = 2 AND c > 1", ["a = 1", "b = 2 & c IS NOT NULL"]),
        ("(a OR b) AND (a OR c)", ["a = TRUE", "b = TRUE & c = TRUE"]),
        ("(a OR b) AND c = 1", ["a = TRUE & c = 1", "b = TRUE & c = 1"]),
    ],
)
def test_a_text_becomes_its_filters(text: str, filters: list[str]) -> None:
    assert written(text) == filters


def test_clauses_that_absorb_each_other_never_become_a_product() -> None:
    text = " AND ".join(f"(a = 1 OR b{index} = 1)" for index in range(60))
    assert [len(selected.constraints) for selected in parse_predicate(text).filters] == [1, 60]


def test_order_of_writing_does_not_matter() -> None:
    assert written("b = 2 AND a = 1 OR c < 3 OR EXISTS d") == written("EXISTS d OR a = 1.0 AND b = 2 OR 3 > c")


def test_the_form_is_the_same_in_every_process() -> None:
    text = "x IN ('q', 'w', 1, 2.5) AND (a OR b = 'u' OR c LIKE '%z' OR d <> 1)"
    script = f"from penstock.content.language.parser import parse_predicate; print(parse_predicate({text!r}).filters)"
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{parse_predicate(text).filters}\n"}

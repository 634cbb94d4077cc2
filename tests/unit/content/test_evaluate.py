"""Exact evaluation: three values, three classes, and the constraint that decided."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.content.language.evaluate import Decision, compile_expression, explain
from penstock.content.language.expression import Expression, Not, conjunction, disjunction
from penstock.content.language.parser import parse_expression, parse_predicate
from penstock.content.predicate import Equals, Range


@pytest.mark.parametrize(
    ("text", "message", "truth"),
    [
        ("x = 1", {"x": 1.0}, True),
        ("x = 1", {"x": True}, None),
        ("x = TRUE", {"x": 1}, None),
        ("x = 1", {}, None),
        ("x = 1", {"x": "1"}, None),
        ("x <> 1", {"x": "1"}, None),
        ("x = 0", {"x": -0.0}, True),
        ("x = 9007199254740993", {"x": float(2**53)}, False),
        ("x > 9007199254740992.0", {"x": 2**53 + 1}, True),
        ("x < 'b'", {"x": "a\U0001f600"}, True),
        ("x < 'b'", {"x": "B"}, True),
        ("x IN (1, 'a')", {"x": "a"}, True),
        ("x IN (1, 'a')", {"x": 2}, None),
        ("x IN (1, 2)", {"x": 3}, False),
        ("x IN (1, 2)", {"x": True}, None),
        ("x IN (TRUE, 5)", {"x": 1}, None),
        ("x NOT IN (1, 2)", {"x": 3}, True),
        ("x BETWEEN 1 AND 5", {"x": 5.0}, True),
        ("x BETWEEN 5 AND 1", {"x": 3}, False),
        ("x BETWEEN 1 AND 'a'", {"x": 0}, False),
        ("x BETWEEN 1 AND 'a'", {"x": 2}, None),
        ("x LIKE 'a%'", {"x": 5}, None),
        ("x NOT LIKE 'a%'", {"x": "b"}, True),
        ("x IS NULL", {"x": 1}, False),
        ("x", {"x": True}, True),
        ("x", {"x": 1}, None),
        ("NOT x", {"x": False}, True),
        ("x = 1 AND y = 1", {"x": 2}, False),
        ("x = 1 AND y = 1", {"x": 1}, None),
        ("x = 1 OR y = 1", {"x": 1}, True),
        ("NOT (x = 1 OR y = 1)", {"x": 2}, None),
        ("x < TRUE", {"x": False}, True),
    ],
)
def test_a_text_is_true_false_or_unknown(text: str, message: dict[str, Any], truth: bool | None) -> None:
    expression = parse_expression(text)
    assert explain(expression, message).truth is truth
    assert compile_expression(expression)(message) is (truth is True)
    assert compile_expression(Not(expression))(message) is (truth is False)


@pytest.mark.parametrize(
    ("text", "message", "decided"),
    [
        ("a = 1 AND b < 2 AND c", {"a": 1, "b": 5, "c": False}, ["b"]),
        ("a = 1 AND b < 2", {"a": 1, "b": 1}, ["a", "b"]),
        ("a = 1 OR b < 2 OR c", {"b": 1, "c": True}, ["b"]),
        ("a = 1 OR b < 2", {"a": 2, "b": 2}, ["a", "b"]),
        ("a = 1 AND b < 2", {"a": 1}, ["b"]),
        ("TRUE OR a", {}, []),
    ],
)
def test_the_constraints_that_decided_are_named(text: str, message: dict[str, Any], decided: list[str]) -> None:
    explanation = explain(parse_expression(text), message)
    assert [decision.constraint.name for decision in explanation.decisions] == decided


def test_a_decision_tells_the_value_that_was_found() -> None:
    assert explain(parse_expression("NOT price < 120"), {"price": 110}).decisions == (
        Decision(Range("price", None, 120, False, True), True, 110),
    )
    assert explain(parse_expression("x = 1"), {}).decisions == (Decision(Equals("x", 1), None, None),)


def test_nothing_of_the_text_is_compiled() -> None:
    hostile = "k0) or __import__('os').abort() or ("
    predicate = parse_predicate(f'''"{hostile}" = '{hostile.replace("'", "''")}' ''')
    assert predicate.matches({hostile: hostile})
    assert not predicate.matches({hostile: "x"})


def test_wide_and_nested_trees_compile() -> None:
    wide = " OR ".join(f"x = {index}" for index in range(370))
    assert parse_predicate(wide).matches({"x": 369})
    nested: Expression = Equals("x", 0)
    for index in range(30):
        nested = conjunction((Equals("y", index), disjunction((Equals("x", index), Not(nested)))))
    assert not compile_expression(nested)({"x": 1})
    long = conjunction(Equals(f"a{index}", index) for index in range(2000))
    assert compile_expression(long)({f"a{index}": index for index in range(2000)})

"""docs/where.md is true: its tables are read here, and both sides of the comparison with Spark SQL are executed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

import pages
from penstock.content.language.evaluate import explain
from penstock.content.language.parser import DEFAULT_PREDICATE_LIMITS, parse_expression, parse_predicate
from penstock.content.message import DEFAULT_LIMITS
from penstock.errors import InvalidPredicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = pages.ROOT / "docs" / "where.md"
WORDS = {True: "true", False: "false", None: "unknown"}
TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "STRING"}
FORMS = pages.table(PAGE, "text")


def tables(heading: str) -> list[dict[str, str]]:
    return [row for row in FORMS if heading in row]


def ours(text: str, message: dict[str, Any]) -> str:
    try:
        parse_predicate(text)
    except InvalidPredicate:
        return "refused"
    return WORDS[explain(parse_expression(text), message).truth]


def sparks(spark: SparkSession, text: str, message: dict[str, Any]) -> str:
    """What Spark SQL says of a table with this one row. A row of VALUES is evaluated without a job."""
    from pyspark.errors import PySparkException

    values = ", ".join(f"CAST(:v{place} AS {TYPES[type(value)]})" for place, value in enumerate(message.values()))
    given = {f"v{place}": value for place, value in enumerate(message.values())}
    row = f"VALUES ({values}) AS row({', '.join(f'`{name}`' for name in message)})"
    try:
        found = spark.sql(f"SELECT ({text}) AS found FROM {row}", args=given).collect()[0]["found"]
    except PySparkException as error:
        return f"error: {error.getCondition()}"
    return WORDS[found]


def test_the_forms_match_what_the_page_says() -> None:
    rows = tables("a message that matches")
    assert len(rows) > 20
    for row in rows:
        assert ours(row["text"], json.loads(row["a message that matches"])) == "true", row
        if row["a message that does not"]:
            assert ours(row["text"], json.loads(row["a message that does not"])) in ("false", "unknown"), row


def test_the_forms_mean_the_same_in_spark(spark: SparkSession) -> None:
    """Every form on every message of the table: one query, with a column for each form and a row for each message."""
    rows = tables("a message that matches")
    texts = [row["text"] for row in rows if not row["text"].startswith("EXISTS ")]  # a difference, see below
    cells = [row[heading] for row in rows for heading in ("a message that matches", "a message that does not")]
    messages = [json.loads(cell) for cell in dict.fromkeys(cells) if cell]
    types = {"symbol": "STRING", "price": "DOUBLE", "note": "STRING", "urgent": "BOOLEAN"}
    lines = (", ".join(f"CAST(:{name}{n} AS {kind})" for name, kind in types.items()) for n in range(len(messages)))
    table = f"VALUES {', '.join(f'({line})' for line in lines)} AS messages({', '.join(types)})"
    given = {f"{name}{number}": message.get(name) for number, message in enumerate(messages) for name in types}
    found = spark.sql(f"SELECT {', '.join(f'({text})' for text in texts)} FROM {table}", args=given).collect()
    for message, answers in zip(messages, found, strict=True):
        assert dict(zip(texts, (WORDS[answer] for answer in answers), strict=True)) == {
            text: ours(text, message) for text in texts
        }, message


def test_the_differences_are_as_the_page_says(spark: SparkSession) -> None:
    rows = tables("Spark SQL")
    assert len(rows) > 30
    for row in rows:
        message = json.loads(row["message"])
        found = ours(row["text"], message), sparks(spark, row["text"], message)
        assert found == (row["Penstock"], row["Spark SQL"]), row
        assert found[0] != found[1], row


def test_what_is_refused_is_refused_in_these_words() -> None:
    for row in tables("the message says"):
        with pytest.raises(InvalidPredicate) as caught:
            parse_predicate(row["text"])
        assert str(caught.value).startswith(row["the message says"]), row


def test_the_three_values_combine_as_the_table_says() -> None:
    parts = {"true": "t", "false": "f", "unknown": "u"}
    message = {"t": True, "f": False}
    for row in pages.table(PAGE, "a"):
        a, b = parts[row["a"]], parts[row["b"]]
        for text in (f"{a} AND {b}", f"{b} AND {a}"):
            assert ours(text, message) == row["a AND b"], row
        for text in (f"{a} OR {b}", f"{b} OR {a}"):
            assert ours(text, message) == row["a OR b"], row
        assert ours(f"NOT {a}", message) == row["NOT a"], row


def test_the_limits_are_those_of_the_code() -> None:
    found = {row["limit"]: int(row["value"]) for row in pages.table(PAGE, "limit")}
    of_messages = asdict(DEFAULT_LIMITS)
    both = ("name_bytes_max", "string_bytes_max")
    assert found == {**asdict(DEFAULT_PREDICATE_LIMITS), **{name: of_messages[name] for name in both}}

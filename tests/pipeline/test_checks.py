"""Each check finds what it is for, says how often, and gives an example; a trace that makes sense gives no rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.kernel.trace_files import kind_name
from penstock.pipeline.checks import CHECKS, LEVELS, checks
from penstock.pipeline.extent import CheckFinding, LostRecords, unjudged_checks
from penstock.pipeline.metrics import losses
from penstock.pipeline.read import RunFolder, RunHead, Tables
from penstock.pipeline.schema import checked, table_ddl
from penstock.services import record_kinds

Rows = list[tuple[Any, ...]]
GOOD: dict[str, Rows] = {
    "subscribed": [("a", 0.0, "s", 0, "x > 1")],
    "published": [("a", 1.0, "p", "p", 1, 1, "{}", 0, 0.0), ("a", 2.0, "p", "p", 1, 2, "{}", 0, 0.0)],
    "delivered": [("a", 1.5, "s", 0, "p", 1, 1), ("a", 2.5, "s", 0, "p", 1, 2)],
    "dropped": [("a", 1.0, "n", "pipe", "loss", "m", 4, "Publication", "p", 1, 1, 1)],
}


LOSSES = (
    CheckFinding("a", "incomplete run", 1, "read up to 9.0 s"),
    CheckFinding("a", "a part file was left out", 1, "counted/part-00001.parquet"),
    CheckFinding("a", "a part file was left out", 1, "counted/part-00003.parquet"),
    CheckFinding("a", "a process was killed", 1, "the records of m end at 2.0 s"),
    CheckFinding("a", "a mark cannot be read", 1, "nobody knows how far the records of m go"),
    CheckFinding("a", "records are missing", 7, "the marks say 7 dropped, the trace has 0"),
    CheckFinding("a", "there are too many records", 3, "run.json says 1 counted, the trace has 4"),
)


def found(
    spark: SparkSession,
    added: dict[str, Rows],
    unwanted: Rows = [],  # noqa: B006  # nobody changes it
    losses_found: tuple[CheckFinding, ...] = (),
    unjudged: frozenset[str] = frozenset(),
) -> Rows:
    tables = {
        kind_name(kind): spark.createDataFrame(
            GOOD.get(kind_name(kind), []) + added.get(kind_name(kind), []), table_ddl(kind)
        )
        for kind in record_kinds()
    }
    runs = (RunFolder("a", Path("a"), RunHead("a", 1, True), unjudged_checks=unjudged),)
    given = Tables(tables, runs=runs, findings=losses_found)
    result = checks(given, spark.createDataFrame(unwanted, losses.FALSE_POSITIVES))
    return sorted(tuple(row) for row in checked(result, CHECKS, "checks").collect())


def test_a_good_trace_gives_no_rows(spark: SparkSession) -> None:
    assert found(spark, {}) == []


WRONG: dict[str, Rows] = {
    "delivered": [
        ("a", 3.0, "s", 0, "p", 1, 7),  # no publication
        ("a", 3.1, "s", 0, "q", 1, 7),
        ("a", 3.9, "s", 0, "p", 1, 3),  # before its publication
        ("a", 5.0, "s", 8, "p", 1, 1),  # no subscription
        ("a", 5.1, "s", 8, "p", 1, 2),
        ("a", 5.0, "t", 0, "p", 1, 1),  # before the subscription
        ("a", 2.6, "s", 0, "p", 1, 2),  # again
    ],
    "published": [
        ("a", 4.0, "p", "p", 1, 3, "{}", 0, 0.0),
        ("a", 2.0, "q", "q", 1, 1, "{}", 0, 0.0),
        ("a", 2.0, "q", "q", 1, 1, "{}", 0, 0.0),  # the identity again
        ("a", 1.0, "q", "q", 1, 2, "{}", 0, 0.0),  # later, at an earlier time
        ("a", 9.0, "n", "r", 1, 1, "{}", 0, 0.0),  # by somebody else
    ],
    "subscribed": [("a", 6.0, "t", 0, "x > 1")],
    "dropped": [("a", 1.0, "n", "egress", " ", "m", 4, "Publication", "p", 1, 1, 1)],
    "limit_reached": [("a", 1.0, "n", "interests", 10), ("a", 2.0, "n", "interests", 10)],
    "input_refused": [("a", 1.0, "n", "m", "no packet of ours")],
}
UNWANTED_ROWS: Rows = [("a", "p", 1, 2, "s", 0, 2.5)]


# Those of streams are in test_stream_metrics.py.
OF_STREAMS = {"stored in a stream and passed over", "delivered by a stream out of order"}


def test_every_check_finds_what_it_is_for(spark: SparkSession) -> None:
    rows = found(spark, WRONG, UNWANTED_ROWS, LOSSES)
    assert {row[1]: row[2] for row in rows} == {name: LEVELS[name] for name in LEVELS.keys() - OF_STREAMS}
    assert {row[1]: (row[3], row[4]) for row in rows} == {
        "a delivery without a publication": (2, "p 1 7 to s"),
        "delivered before it was published": (1, "p 1 3 to s"),
        "a delivery for a subscription never made": (2, "s, subscription 8"),
        "delivered before the subscription was made": (1, "t, subscription 0"),
        "an identity used twice": (1, "q 1 1"),
        "published under another's name": (1, "n as r"),
        "delivered twice": (1, "from p to s"),
        "a delivery that nobody had asked for": (1, "p 1 2 to s"),
        "time runs backwards": (1, "q 1 2"),
        "dropped without a cause": (1, "n, egress"),
        "a limit was reached": (2, "n, interests: 10"),
        "bad input was refused": (1, "n, from m: no packet of ours"),
        "incomplete run": (1, "read up to 9.0 s"),
        "a part file was left out": (2, "counted/part-00001.parquet"),
        "a process was killed": (1, "the records of m end at 2.0 s"),
        "a mark cannot be read": (1, "nobody knows how far the records of m go"),
        "records are missing": (7, "the marks say 7 dropped, the trace has 0"),
        "there are too many records": (3, "run.json says 1 counted, the trace has 4"),
    }


def test_what_is_only_lost_is_not_held_against_the_network(spark: SparkSession) -> None:
    unjudged = unjudged_checks(
        [LostRecords("published", 0.0, 9.0), LostRecords("subscribed", 0.0, 9.0), LostRecords("counted", 0.0, 9.0)]
    )
    assert len(unjudged) == 4
    rows = found(spark, WRONG, UNWANTED_ROWS, unjudged=frozenset(unjudged))
    assert {row[1] for row in rows} == LEVELS.keys() - unjudged - OF_STREAMS - {finding.check for finding in LOSSES}


@pytest.mark.parametrize("level", ["fail", "warn"])
def test_both_levels_are_used(level: str) -> None:
    assert level in LEVELS.values()

"""Literal rows in, literal rows out: losses, requests, repairs and caches."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.kernel.trace import Counted, Published, Record
from penstock.pipeline import metrics
from penstock.pipeline.metrics import losses, order, recovery
from penstock.pipeline.schema import checked, table_ddl
from penstock.transport.records import (
    GaveUp,
    LossDetected,
    Ordered,
    Recovered,
    RepairSent,
    RequestReceived,
    RequestSent,
)

Rows = list[tuple[Any, ...]]


def table(spark: SparkSession, kind: type[Record], rows: Rows) -> DataFrame:
    return spark.createDataFrame(rows, table_ddl(kind)).repartition(2)


def found(result: DataFrame, ddl: str) -> Rows:
    """The rows in order, once the schema has been checked."""
    rows = [tuple(row) for row in checked(result, ddl, "result").collect()]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def requests(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows of time, client, number, attempt."""
    return table(spark, RequestSent, [("a", t, node, "p", 1, number, attempt) for t, node, number, attempt in rows])


def repairs(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows of time, client, number."""
    return table(spark, RepairSent, [("a", t, node, "p", 1, number, "s") for t, node, number in rows])


def published(spark: SparkSession) -> DataFrame:
    return table(spark, Published, [("a", float(n), "p", "p", 1, n, "{}", 0, 0.0) for n in range(1, 6)])


def recovered(spark: SparkSession) -> DataFrame:
    return table(
        spark,
        Recovered,
        [
            ("a", 4.5, "s", "p", 1, 2, 2, 1.5, 1.0, 1),  # noticed at 3.0, asked for at 3.5
            ("a", 4.5, "t", "p", 1, 2, 2, 0.0, -1.0, 0),  # came thanks to another's request
        ],
    )


def test_a_recovery_runs_from_publication_to_repair(spark: SparkSession) -> None:
    result = metrics.recoveries(recovered(spark), published(spark))
    assert found(result, recovery.RECOVERIES) == [
        ("a", "p", 1, 2, "s", 2.0, 4.5, 2.5, 1.5, 1.0, 1),
        ("a", "p", 1, 2, "t", 2.0, 4.5, 2.5, 0.0, -1.0, 0),
    ]


def test_lost_is_what_never_came_and_what_came_as_a_repair(spark: SparkSession) -> None:
    missed = spark.createDataFrame(
        [("a", "p", 1, 3, "s", 0, 3.0), ("a", "p", 1, 3, "s", 1, 3.0), ("a", "p", 1, 4, "s", 0, 4.0)],
        losses.FALSE_NEGATIVES,
    )
    detected = table(
        spark,
        LossDetected,
        [
            ("a", 3.0, "s", "p", 1, 2),
            ("a", 3.9, "s", "p", 1, 3),
            ("a", 4.2, "s", "p", 1, 3),  # a second time: the first counts
            ("a", 4.2, "t", "p", 1, 9),  # a phantom, which nobody lost
        ],
    )
    result = metrics.lost_messages(missed, metrics.recoveries(recovered(spark), published(spark)), detected)
    assert found(result, recovery.LOST_MESSAGES) == [
        ("a", "p", 1, 2, "s", 2.0, True, 3.0),
        ("a", "p", 1, 2, "t", 2.0, True, None),
        ("a", "p", 1, 3, "s", 3.0, False, 3.9),  # once, though for two subscriptions
        ("a", "p", 1, 4, "s", 4.0, False, None),
    ]


def test_a_duplicate_says_what_another_has_just_said(spark: SparkSession) -> None:
    asked = requests(
        spark,
        [
            (1.0, "s", 7, 1),
            (1.1, "t", 7, 1),  # a duplicate: s has asked and nobody has answered yet
            (2.0, "s", 7, 2),  # not one: it asks again because nothing came
            (3.5, "u", 7, 1),  # not one: there was a repair, which it did not get
            (1.0, "s", 8, 1),
        ],
    )
    answered = repairs(
        spark,
        [
            (3.0, "x", 7),
            (3.1, "y", 7),  # a duplicate
            (4.0, "y", 7),  # not one: u has asked since
            (4.1, "y", 7),  # not one: itself again
        ],
    )
    assert found(metrics.rounds(asked, answered), recovery.ROUNDS) == [
        ("a", "p", 1, 7, 4, 4, 1, 1, 1.0, 3.0),
        ("a", "p", 1, 8, 1, 0, 0, 0, 1.0, None),
    ]


def test_a_request_is_answered_by_those_who_receive_it_before_it_is_sent_again(spark: SparkSession) -> None:
    asked = requests(spark, [(1.0, "s", 7, 1), (2.0, "s", 7, 2), (1.0, "t", 7, 1), (9.0, "s", 8, 1)])
    received = table(
        spark,
        RequestReceived,
        [
            ("a", 1.2, "x", "p", 1, 7, "s", False),
            ("a", 1.3, "p", "p", 1, 7, "s", True),  # the publisher: a hit, but of no cache
            ("a", 2.2, "x", "p", 1, 7, "s", True),
            ("a", 2.3, "p", "p", 1, 7, "s", True),
            ("a", 1.4, "x", "p", 1, 7, "t", False),
        ],
    )
    assert found(metrics.answers(asked, received), recovery.ANSWERS) == [
        ("a", "p", 1, 7, "s", 1, 1.0, 2, 1, 0),
        ("a", "p", 1, 7, "s", 2, 2.0, 2, 2, 1),
        ("a", "p", 1, 7, "t", 1, 1.0, 1, 0, 0),
        ("a", "p", 1, 8, "s", 1, 9.0, 0, 0, 0),
    ]


def test_the_last_size_of_a_second_counts(spark: SparkSession) -> None:
    counted = table(
        spark,
        Counted,
        [
            ("a", 3.1, "s", "cache entries", "p", 6),
            ("a", 3.9, "s", "cache entries", "p", 7),
            ("a", 4.1, "s", "cache entries", "p", 5),
            ("a", 3.5, "s", "cache entries", "q", 9),
            ("a", 3.5, "s", "link bytes", "b", 900),
        ],
    )
    assert found(metrics.cache_sizes(counted), recovery.CACHE_SIZES) == [
        ("a", "s", "p", 3, 7),
        ("a", "s", "p", 4, 5),
        ("a", "s", "q", 3, 9),
    ]


def test_recovery_is_counted_for_each_pair(spark: SparkSession) -> None:
    detected = table(spark, LossDetected, [("a", 3.0, "s", "p", 1, n) for n in (2, 3)] + [("a", 3.0, "u", "p", 1, 2)])
    asked = requests(spark, [(3.5, "s", 2, 1), (3.6, "s", 3, 1), (3.9, "s", 3, 2)])
    gave_up = table(spark, GaveUp, [("a", 9.0, "s", "p", 1, 3, 2)])
    assert found(metrics.recovery_totals(detected, asked, recovered(spark), gave_up), recovery.RECOVERY) == [
        ("a", "p", "s", 2, 3, 1, 1, 1.5),
        ("a", "p", "t", 0, 0, 1, 0, None),  # it came before its loss was noticed
        ("a", "p", "u", 1, 0, 0, 0, None),
    ]


def test_who_answers_requests(spark: SparkSession) -> None:
    received = table(
        spark,
        RequestReceived,
        [
            ("a", 1.2, "x", "p", 1, 7, "s", False),
            ("a", 1.3, "x", "p", 1, 8, "s", True),
            ("a", 1.3, "p", "p", 1, 8, "s", True),
        ],
    )
    assert found(metrics.repair_totals(received, repairs(spark, [(2.0, "x", 8), (2.1, "y", 8)])), recovery.REPAIRS) == [
        ("a", "p", "p", 1, 1, 0),
        ("a", "p", "x", 2, 1, 1),
        ("a", "p", "y", 0, 0, 1),
    ]


def test_what_order_took_is_summed_for_each_pair(spark: SparkSession) -> None:
    ordered = table(
        spark,
        Ordered,
        [
            ("a", 1.0, "s", "p", 10, 0, 2, 0.5, 0.25),
            ("a", 2.0, "s", "p", 20, 1, 4, 1.0, 0.5),  # since the record before
            ("a", 2.0, "t", "p", 5, 0, 0, 0.0, 0.0),
        ],
    )
    assert found(metrics.ordering(ordered), order.ORDER) == [
        ("a", "p", "s", 30, 1, 6, 1.5, 0.75),
        ("a", "p", "t", 5, 0, 0, 0.0, 0.0),
    ]

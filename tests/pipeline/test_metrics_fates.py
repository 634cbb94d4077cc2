"""Literal rows in, literal rows out: what became of every message that was due, in a tree of two brokers."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.kernel.trace import Delivered, Dropped, Published, Record
from penstock.overlay.records import LostOnLink
from penstock.pipeline import metrics
from penstock.pipeline.metrics.fates import FATES
from penstock.pipeline.schema import checked, table_ddl
from penstock.pipeline.truth import TRUTH_SCHEMA
from penstock.transport.records import LossDetected, LossSuspected

Rows = list[tuple[Any, ...]]


def table(spark: SparkSession, kind: type[Record], rows: Rows) -> DataFrame:
    return spark.createDataFrame(rows, table_ddl(kind))


def test_a_message_is_lost_or_came_or_was_declared_and_numbers_count_what_has_left(spark: SparkSession) -> None:
    """The publisher's counts are 3, 5 and 7: two were refused before each, so its numbers are 1, 2 and 3."""
    truth = spark.createDataFrame(
        [("r", "p", 1, count, "c", 0, float(count), True) for count in (3, 5, 7)], TRUTH_SCHEMA
    )
    published = table(spark, Published, [("r", float(count), "p", "p", 1, count, "{}", 0, 0.0) for count in (3, 5, 7)])
    came = table(spark, Delivered, [("r", 3.1, "c", 0, "p", 1, 3), ("r", 6.0, "c", 0, "p", 1, 5)])
    place = ("lost on the wire", "y", 5, "Publication", "p", 1)
    ended = [("r", 5.1, "x", "pipe", *place, 5, 1), ("r", 7.1, "y", "pipe", *place[:1], "x", *place[2:], 7, 1)]
    dropped = table(spark, Dropped, ended)
    declared = table(spark, LossDetected, [("r", 5.5, "c", "p", 1, 2)])
    doubted = table(spark, LossSuspected, [("r", 8.5, "c", "p", 1, 3), ("r", 7.5, "c", "p", 1, 3)])
    repaired = table(spark, LostOnLink, [("r", 3.05, "x", "y", "p", 1, 3)])
    found = metrics.fates(truth, published, came, dropped, declared, doubted, repaired, [("x", "y", "c")])
    assert sorted(tuple(row) for row in checked(found, FATES, "fates").collect()) == [
        ("p", 1, 3, "c", 0, 3.0, 3.05, 3.1, None, None, False),
        ("p", 1, 5, "c", 0, 5.0, 5.1, 6.0, 5.5, None, False),
        ("p", 1, 7, "c", 0, 7.0, None, None, None, 7.5, True),
    ], "what ended from y to x was not meant for the client, which is behind y"


def test_what_the_queue_of_a_slow_reader_dropped_did_not_come(spark: SparkSession) -> None:
    """The first was read, the second was dropped by its reader, the third ended on the access link."""
    truth = spark.createDataFrame([("r", "p", 1, n, "c", 0, float(n), True) for n in (1, 2, 3)], TRUTH_SCHEMA)
    published = table(spark, Published, [("r", float(n), "p", "p", 1, n, "{}", 0, 0.0) for n in (1, 2, 3)])
    came = table(spark, Delivered, [("r", n + 0.1, "c", 0, "p", 1, n) for n in (1, 2)])
    what = ("queue full", "", 5, "Delivery", "p", 1)
    ended = [("r", 2.1, "c", "reader", *what, 2, 1), ("r", 3.1, "x", "egress", what[0], "c", *what[2:], 3, 1)]
    ways = [("c", "", "c"), ("x", "c", "c")]
    none = (table(spark, LossDetected, []), table(spark, LossSuspected, []))
    repaired = table(spark, LostOnLink, [])
    found = metrics.fates(truth, published, came, table(spark, Dropped, ended), *none, repaired, ways)
    assert sorted((row["count"], row["ended_at"], row["delivered_at"]) for row in found.collect()) == [
        (1, None, 1.1),
        (2, 2.1, None),
        (3, 3.1, None),
    ]


def test_twins_say_how_much_later_the_second_subscription_got_a_message(spark: SparkSession) -> None:
    rows = [("r", 1.0, "c", 0, "p", 1, 1), ("r", 1.25, "c", 1, "p", 1, 1), ("r", 2.0, "c", 0, "p", 1, 2)]
    assert [row[0] for row in metrics.twin_delays(table(spark, Delivered, rows)).collect()] == [0.25]

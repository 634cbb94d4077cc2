"""Literal rows in, literal rows out: what was withheld and retrieved, quotas of flows, what became of the nodes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.kernel.trace import Counted, NodeStarted, NodeStopped, Record
from penstock.overlay.records import NeighbourChanged
from penstock.pipeline import metrics
from penstock.pipeline.metrics import flow, nodes, per_second, retrieval
from penstock.pipeline.schema import checked, table_ddl
from penstock.retrieval.records import ItemRetrieved, LifetimeBegan
from penstock.transport.records import FlowLimited, MessageWithheld

Rows = list[tuple[Any, ...]]


def table(spark: SparkSession, kind: type[Record], rows: Rows) -> DataFrame:
    return spark.createDataFrame(rows, table_ddl(kind)).repartition(2)


def found(result: DataFrame, ddl: str) -> Rows:
    """The rows in order, once the schema has been checked."""
    rows = [tuple(row) for row in checked(result, ddl, "result").collect()]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def test_withheld_messages_count_at_their_publisher(spark: SparkSession) -> None:
    rows = [
        ("a", 0.5, "p", "p", 1, 1, "slow"),
        ("a", 0.9, "p", "p", 1, 2, "slow"),
        ("a", 1.0, "p", "p", 1, 3, "slower"),
        ("a", 1.0, "q", "q", 1, 1, ""),  # nobody in particular: the client was closed
    ]
    withheld = table(spark, MessageWithheld, rows)
    assert found(metrics.withheld(withheld), flow.WITHHELD) == [
        ("a", "p", "slow", 2),
        ("a", "p", "slower", 1),
        ("a", "q", "", 1),
    ]
    ddl = per_second.per_second_ddl(("publisher",), "withheld")
    assert found(metrics.withheld_per_second(withheld), ddl) == [("a", "p", 0, 2), ("a", "p", 1, 1), ("a", "q", 1, 1)]


def test_every_change_of_a_quota_is_there(spark: SparkSession) -> None:
    rows = [("a", 1.0, "p", "k = 1", "s", 9.5), ("a", 2.0, "p", "k = 1", "t", 4.0), ("a", 3.0, "p", "k = 1", "t", 0.0)]
    assert found(metrics.flow_limits(table(spark, FlowLimited, rows)), flow.FLOW_LIMITS) == [
        ("a", "p", "k = 1", "s", 1.0, 9.5),
        ("a", "p", "k = 1", "t", 2.0, 4.0),
        ("a", "p", "k = 1", "t", 3.0, 0.0),
    ]


def test_a_life_ends_with_the_next_record_that_says_so(spark: SparkSession) -> None:
    started = [("a", 0.0, "b1", "broker", 1), ("a", 5.0, "b1", "broker", 2), ("a", 8.0, "b1", "broker", 3)]
    started += [("a", 0.0, "s", "client", 1), ("b", 0.0, "b1", "broker", 1)]
    stopped = [("a", 5.0, "b1", "crash"), ("a", 9.0, "b1", "end of the run"), ("a", 7.0, "t", "leave")]
    result = metrics.lives(table(spark, NodeStarted, started), table(spark, NodeStopped, stopped))
    assert found(result, nodes.LIVES) == [
        ("a", "b1", "broker", 1, 0.0, 5.0, "crash"),  # it began again at the same moment
        ("a", "b1", "broker", 2, 5.0, None, None),  # killed: nobody wrote that it ended
        ("a", "b1", "broker", 3, 8.0, 9.0, "end of the run"),
        ("a", "s", "client", 1, 0.0, None, None),
        ("b", "b1", "broker", 1, 0.0, None, None),
    ]


def test_neighbours_and_counts(spark: SparkSession) -> None:
    changes = [
        ("a", 0.1, "b1", 2, True, "hello"),
        ("a", 3.0, "b1", 2, False, "silent"),
        ("a", 4.0, "b1", 2, True, "hello"),
    ]
    changes.append(("a", 0.1, "b2", 1, True, "hello"))
    assert found(metrics.neighbours(table(spark, NeighbourChanged, changes)), nodes.NEIGHBOURS) == [
        ("a", "b1", 2, 2, 1),
        ("a", "b2", 1, 1, 0),
    ]
    counted = [("a", 1.0, "n", "flows", "", 3), ("a", 2.0, "n", "flows", "", 2), ("a", 1.0, "n", "link bytes", "m", 9)]
    assert found(metrics.counts(table(spark, Counted, counted)), nodes.COUNTS) == [
        ("a", "n", "flows", "", 2, 5, 3),
        ("a", "n", "link bytes", "m", 1, 9, 9),
    ]


def test_items_count_at_who_retrieved_them(spark: SparkSession) -> None:
    asked = ("TRUE", 5, 9.0, 0.0, 0.0, False)
    began = [("a", 0.0, "c", 1, 1, *asked), ("a", 2.0, "c", 1, 1, *asked), ("a", 4.0, "c", 1, 2, *asked)]
    began.append(("a", 0.0, "d", 1, 1, *asked))  # nothing came
    items = [("a", 1.0, "c", 1, 1, "p", 1, 7), ("a", 5.0, "c", 1, 2, "p", 1, 7), ("a", 5.0, "c", 1, 2, "p", 1, 8)]
    items.append(("a", 6.0, "c", 2, 1, "p", 1, 8))  # of another subscription, whose beginning is lost
    items.append(("b", 6.0, "c", 1, 1, "p", 1, 8))
    result = metrics.retrieved(table(spark, LifetimeBegan, began), table(spark, ItemRetrieved, items))
    assert found(result, retrieval.RETRIEVED) == [("a", "c", 3, 4, 1), ("a", "d", 1, 0, 0), ("b", "c", 1, 1, 0)]

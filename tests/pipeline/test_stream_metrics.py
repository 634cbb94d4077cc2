"""The table `streams`: what was stored, due, delivered, passed over, not read yet, repeated and out of order."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.execution import table_of
from penstock.pipeline.metrics.streams import PLACES_METRIC, STREAMS, streams_metric
from penstock.pipeline.schema import checked, parse_ddl, table_ddl
from penstock.streams.records import DurableBegan, StreamConfirmed, StreamDelivered, StreamRequested

Rows = list[tuple[Any, ...]]


def frames(spark: SparkSession, stored: Rows, began: Rows, read: Rows) -> dict[str, DataFrame]:
    """Stored: time, count, n, tick. Began: client, durable, tick, where. Read: time, client, tick."""
    rows: dict[type[Any], Rows] = {
        StreamRequested: [("r", t, "p", "orders", "", "p", 1, c, f'{{"n": {n}}}', 0) for t, c, n, _ in stored],
        StreamConfirmed: [
            ("r", t + 0.1, "p", "orders", "orders/0", tick, "p", 1, c, 0.1, 1) for t, c, _, tick in stored
        ],
        DurableBegan: [("r", 0.0, who, 0, "orders", name, "orders/0", 7, tick, w) for who, name, tick, w in began],
        StreamDelivered: [("r", t, who, 0, "orders/0", 7, tick, "p", 1, 1) for t, who, tick in read],
    }
    names = ("stream_requested", "stream_confirmed", "durable_began", "stream_delivered")
    made = (spark.createDataFrame(data, parse_ddl(table_ddl(kind))) for kind, data in rows.items())
    return dict(zip(names, made, strict=True))


def test_what_became_of_the_messages_of_a_stream(spark: SparkSession) -> None:
    stored = [(1.0, 1, 1, 10), (2.0, 2, 2, 20), (3.0, 3, 3, 30), (4.0, 4, 4, 40), (5.0, 5, 5, 50)]
    stored.append((2.5, 6, 2, 20))  # the second once more, under the same id
    began = [("c", "all", 0, "TRUE"), ("d", "all", 25, "TRUE"), ("e", "few", 15, "n IN (2, 3)")]
    read = [
        *((1.5, "c", 10), (3.5, "c", 30)),  # 20 is passed over
        *((4.0, "d", 30), (6.0, "d", 40), (6.5, "d", 40)),  # 30 was not acknowledged; 40 comes twice to one reader
        (2.25, "e", 20),
    ]
    found = table_of(streams_metric(()), frames(spark, stored, began, read), [PLACES_METRIC])
    assert sorted(tuple(row) for row in checked(found, STREAMS, "streams").collect()) == [
        ("r", "orders/0", "all", 5, 5, 3, 1, 1, 2, 1, 0.5, 2.0),
        ("r", "orders/0", "few", 5, 2, 1, 0, 1, 0, 0, 0.25, 0.25),
    ]


def test_a_name_that_nothing_came_to_has_a_row_and_one_without_a_beginning_has_none(spark: SparkSession) -> None:
    given = frames(spark, [(1.0, 1, 1, 10)], [("c", "all", 0, "TRUE")], [(2.0, "stranger", 10)])
    found = table_of(streams_metric(()), given, [PLACES_METRIC])
    assert [tuple(row) for row in found.collect()] == [("r", "orders/0", "all", 1, 1, 0, 0, 1, 0, 0, None, None)]

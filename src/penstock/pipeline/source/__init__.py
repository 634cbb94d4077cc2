"""Streams of a running network in Spark: the data source "penstock", to be read, followed and written to.

    from penstock.pipeline.source import register

    register(spark)
    orders = (
        spark.readStream.format("penstock").option("servers", "penstock://127.0.0.1:7420").option("stream", "orders")
        .option("where", "symbol = 'IBM' AND price < 120").option("startingOffsets", "earliest").load()
    )

docs/data.md has all options and columns, and `observed_writer`, a sink that tells the progress who slows it down.
`spark.dataSource.register(PenstockSource)` is the same as `register(spark)`.

`register(spark, push_filters=True)` lets Spark push the filters of batch reads down to the brokers. That is not the
default, because Spark 4.3 keeps what was pushed with the table and not with the query: whoever filters a table in one
place, and uses it without a filter or with another one elsewhere, gets the rows of the wrong filter. It is right only
where each `load()` is used once. The option `where` says the same to the brokers, and has no such trap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"  # without it Spark refuses sources that could


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Let this session know the format "penstock"; what `push_filters` costs stands above."""
    from penstock.pipeline.source.data_source import PenstockSource, PushingSource

    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingSource if push_filters else PenstockSource)


def __getattr__(name: str) -> Any:
    if name == "PenstockSource":
        from penstock.pipeline.source.data_source import PenstockSource

        return PenstockSource
    if name == "observed_writer":
        from penstock.pipeline.source.observed import observed_writer

        return observed_writer
    raise AttributeError(f"module 'penstock.pipeline.source' has no attribute '{name}'")

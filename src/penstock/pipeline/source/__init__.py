"""Streams of a running network in Spark: the data source "penstock", to be read, followed and written to.

    from penstock.pipeline.source import register

    register(spark)
    orders = (
        spark.readStream.format("penstock").option("servers", "penstock://127.0.0.1:7420").option("stream", "orders")
        .option("where", "symbol = 'IBM' AND price < 120").option("startingOffsets", "earliest").load()
    )

docs/data.md has all options and columns, and `observed_writer`, a sink that tells the progress who slows it down.
`register` also lets Spark push filters of batch reads down; whoever writes `spark.dataSource.register(PenstockSource)`
gets the same without that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"  # without it Spark refuses sources that could


def register(spark: SparkSession) -> None:
    """Let this session know the format "penstock"."""
    from penstock.pipeline.source.data_source import PushingSource

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingSource)


def __getattr__(name: str) -> Any:
    if name == "PenstockSource":
        from penstock.pipeline.source.data_source import PenstockSource

        return PenstockSource
    if name == "observed_writer":
        from penstock.pipeline.source.observed import observed_writer

        return observed_writer
    raise AttributeError(f"module 'penstock.pipeline.source' has no attribute '{name}'")

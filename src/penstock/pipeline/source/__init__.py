"""Streams of a running network in Spark: the data source "penstock", to be read, followed and written to.

    from penstock.pipeline.source import register

    register(spark)
    orders = (
        spark.readStream.format("penstock").option("servers", "penstock://127.0.0.1:7420").option("stream", "orders")
        .option("where", "symbol = 'IBM' AND price < 120").option("startingOffsets", "earliest").load()
    )

docs/data.md has all options and columns. `pushing(table)` sends filters of a batch read to the brokers, and
`observed_writer` is a sink that tells the progress who slows it down.
`spark.dataSource.register(PenstockSource)` is the same as `register(spark)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = {
    "PenstockSource": "data_source",
    "observed_writer": "observed",
    "pushing": "fresh_tables",
}  # found when asked for


def register(spark: SparkSession) -> None:
    """Let this session know the format "penstock"."""
    from penstock.pipeline.source.data_source import PenstockSource

    spark.dataSource.register(PenstockSource)


def __getattr__(name: str) -> Any:
    if name in PLACES:
        return getattr(import_module(f"penstock.pipeline.source.{PLACES[name]}"), name)
    raise AttributeError(f"module 'penstock.pipeline.source' has no attribute '{name}'")

"""Filters of Spark that the brokers do, on Spark itself: each query of a table gets its own rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock.errors import InvalidOption
from penstock.pipeline.source import pushing, register
from penstock.pipeline.source.data_source import PushingSource
from penstock.pipeline.source.fresh_tables import PUSHDOWN
from penstock.testing import embedded_network_blocking


@pytest.fixture(scope="module")
def url(spark: SparkSession) -> Iterator[str]:
    register(spark)
    with embedded_network_blocking(("a",)) as brokers, penstock.connect_blocking(brokers.url) as network:
        network.add_stream("orders", at=["a"])
        orders = network.stream("orders")
        orders.publish_many([({"n": n, "symbol": "ABC"[n % 3]}, b"", "", "") for n in range(20)])
        yield brokers.url
    spark.conf.unset(PUSHDOWN)


def loaded(spark: SparkSession, url: str, name: str = "penstock") -> DataFrame:
    read = spark.read.format(name).options(servers=url, stream="orders")
    return read.schema("n bigint, symbol string").load()


def numbers(found: DataFrame) -> list[int]:
    return sorted(row.n for row in found.select("n").collect())


def read_rows(found: DataFrame) -> int:
    """How many rows the source gave, as Spark counted them."""
    found.collect()
    leaf = found._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(leaf.metrics().apply("numOutputRows").value())


def test_each_query_of_a_table_gets_the_rows_of_its_own_filter(spark: SparkSession, url: str) -> None:
    table = pushing(loaded(spark, url))
    few = table.filter("n < 3")
    assert (numbers(few), numbers(table.filter("n > 17")), numbers(table)) == ([0, 1, 2], [18, 19], list(range(20)))
    assert numbers(few.union(table.filter("n > 17"))) == [0, 1, 2, 18, 19], "two filters in one query"
    assert numbers(table.filter("n % 7 = 0")) == [0, 7, 14], "one that is not pushed"
    joined = table.alias("all").join(few.alias("few"), f.col("all.symbol") == f.col("few.symbol"))
    assert joined.count() == 20
    assert (read_rows(table.filter("symbol = 'A' AND n < 7")), read_rows(table)) == (3, 20), "done by the broker"


def test_a_table_that_pushes_can_be_cached_and_named(spark: SparkSession, url: str) -> None:
    table = pushing(loaded(spark, url))
    table.createOrReplaceTempView("pushed_orders")
    assert spark.sql("SELECT count(*) FROM pushed_orders WHERE symbol = 'A'").first() == (7,)
    table.cache()
    assert table.count() == 20
    assert "InMemoryTableScan" in table.filter("n < 4")._jdf.queryExecution().toString()
    assert numbers(table.filter("n < 4")) == [0, 1, 2, 3]
    table.unpersist()
    for wrong in (table, spark.range(5), loaded(spark, url).filter("n < 3")):
        with pytest.raises(InvalidOption, match="load"):
            pushing(wrong)


def test_spark_keeps_what_was_pushed_with_the_table(spark: SparkSession, url: str) -> None:
    """Why `pushing` is needed. Once the last line fails, Spark is mended, and the format can push by itself."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingSource)
    table = loaded(spark, url, PushingSource.name())
    assert numbers(table.filter("n < 3")) == [0, 1, 2]
    assert numbers(table) == [0, 1, 2], "wrong"

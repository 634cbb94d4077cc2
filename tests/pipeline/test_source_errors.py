"""What Spark says at the driver of bad input: our line, and no traceback through its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.pipeline.source import register
from penstock.testing import embedded_network_blocking

NOWHERE = {"servers": "penstock://127.0.0.1:1", "giveUpAfter": "0.3s"}
BEYOND = '{"orders": {"0": 9900000000000000}}'
WITHIN = 120  # seconds; no healthy machine comes near
Options = dict[str, str]


@pytest.fixture(scope="module")
def network(spark: SparkSession) -> Iterator[Options]:
    register(spark)
    with embedded_network_blocking(("a",)) as brokers, penstock.connect_blocking(brokers.url) as client:
        for name in ("orders", "trades"):
            client.add_stream(name, at=["a"])
            client.stream(name).publish({"n": 1})
        yield {"servers": brokers.url, "stream": "orders", "startingOffsets": "earliest"}


def read(spark: SparkSession, options: Options) -> None:
    spark.read.format("penstock").options(**options).schema("n bigint").load().collect()


def follow(spark: SparkSession, options: Options) -> StreamingQuery:
    """A query that takes what is there; the checkpoint, and a schema, are among the options."""
    where, schema = options.pop("checkpoint"), options.pop("schema", "n bigint")
    found = spark.readStream.format("penstock").options(**options).schema(schema).load()
    return found.writeStream.format("noop").option("checkpointLocation", where).trigger(availableNow=True).start()


def line(error: str) -> str:
    """Ours, among what Spark says before and after it."""
    assert "Traceback" not in error
    assert 'File "' not in error
    [found] = [text for text in error.splitlines() if "penstock.errors" in text or "penstock.pipeline" in text]
    return found


def test_a_batch_is_refused_in_one_line_before_any_task(spark: SparkSession, network: Options) -> None:
    for wrong, words in (
        (NOWHERE, "no broker answers at 127.0.0.1:1"),
        ({"stream": "ordres"}, "there is no stream 'ordres'; did you mean 'orders'?"),
        ({"where": "n < "}, "where: the text ends too early; expected a literal, at character 4 of: n <"),
        ({"startingOffsets": BEYOND}, "startingOffsets: is tick 9900000000000000 of pubend 0, beyond the end"),
    ):
        with pytest.raises(AnalysisException) as told:
            read(spark, network | wrong)
        assert words in line(str(told.value))


def test_a_query_that_goes_on_is_refused_in_one_line_before_any_task(
    spark: SparkSession, network: Options, tmp_path: Path
) -> None:
    """One mistake for each place where Spark asks us; the others are tested with the parts of the source."""
    used = str(tmp_path / "used")
    assert follow(spark, network | {"checkpoint": used}).awaitTermination(WITHIN)
    mistakes: list[tuple[Options, str]] = [
        ({"stream": "ordres"}, "there is no stream 'ordres'"),  # where a query begins
        ({"where": "n < "}, "where: the text ends too early"),  # when a reader is made
        ({"stream": "trades", "checkpoint": used}, "the checkpoint is of the stream 'orders', not of 'trades'"),
    ]
    queries = [
        follow(spark, network | {"checkpoint": str(tmp_path / str(number))} | wrong)
        for number, (wrong, _) in enumerate(mistakes)
    ]
    for query, (_, words) in zip(queries, mistakes, strict=True):
        with pytest.raises(StreamingQueryException) as told:
            query.awaitTermination(WITHIN)
        assert words in line(str(told.value).partition("=== Streaming Query ===")[0])


def test_a_write_is_refused_in_one_line_before_any_task(spark: SparkSession, network: Options) -> None:
    options = {"servers": network["servers"], "stream": "ordres"}
    with pytest.raises(AnalysisException) as told:
        spark.range(3).write.format("penstock").options(**options).mode("append").save()
    assert "there is no stream 'ordres'" in line(str(told.value))


def test_a_query_that_cannot_reach_its_sink_or_its_messages_says_so_in_one_line(
    spark: SparkSession, network: Options, tmp_path: Path
) -> None:
    """At the driver; the sink is patient only where a checkpoint says that it was there (`test_source_parts`)."""
    nowhere = {"servers": NOWHERE["servers"], "stream": "orders", "giveUpAfter": "1h"}
    rows = spark.readStream.format("penstock").options(**network).schema("n bigint").load()
    sink = rows.writeStream.format("penstock").options(**nowhere).option("checkpointLocation", str(tmp_path / "sink"))
    lost = spark.readStream.format("penstock").options(servers=nowhere["servers"], subscribe="n > 0").load()
    shown = lost.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "shown"))
    queries = [writer.start() for writer in (sink, shown)]
    for query in queries:  # both at once: each dials for five seconds
        with pytest.raises(StreamingQueryException) as told:
            query.awaitTermination(WITHIN)
        assert "no broker answers at 127.0.0.1:1" in line(str(told.value).partition("=== Streaming Query ===")[0])

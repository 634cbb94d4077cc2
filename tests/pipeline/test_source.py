"""The data source on Spark itself: tables, queries that are killed and go on, brokers that are killed under them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.errors import InvalidOption
from penstock.overlay.assembly import NodeConfig
from penstock.pipeline.source import PenstockSource, observed_writer, register
from penstock.pipeline.source.landing import LANDED, Landing
from penstock.streams.config import StreamsConfig
from penstock.testing import BlockingEmbeddedNetwork, embedded_network_blocking

COPIES = Path(__file__).with_name("copy_orders.py")
WITHIN = 120  # seconds; no healthy machine comes near


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingEmbeddedNetwork]:
    with embedded_network_blocking(("a", "b", "c")) as network:
        yield network


@pytest.fixture(scope="module")
def network(brokers: BlockingEmbeddedNetwork, spark: SparkSession) -> Iterator[penstock.BlockingNetwork]:
    register(spark)
    with penstock.connect_blocking(brokers.url) as client:
        yield client


def publish(stream: penstock.BlockingStream, *numbers: int) -> None:
    stream.publish_many([({"n": n, "symbol": "IBM" if n % 2 else "HP"}, b"body", f"key{n}", "") for n in numbers])


def table(spark: SparkSession, brokers: BlockingEmbeddedNetwork, stream: str, **options: str) -> Any:
    found = spark.read.format("penstock").option("servers", brokers.urls["c"]).option("stream", stream)
    return found.options(**options)


def numbers(found: DataFrame) -> list[int]:
    return sorted(row.n for row in found.select("n").collect())


def copied(
    spark: SparkSession, brokers: BlockingEmbeddedNetwork, folder: Path, flag: Path, held: Path, least: int = 1
) -> StreamingQuery:
    """A query that copies what is in `orders` to `copies`, and ends. Of Python's workers the first is killed.

    As long as there is a FIFO `held`, tasks that have read something wait until it is let go.
    """

    def killing(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            with suppress(FileNotFoundError):
                held.read_bytes()

    orders = spark.readStream.format("penstock").option("servers", brokers.urls["c"]).option("stream", "orders")
    cut = orders.option("minPartitions", str(least))
    read = cut.schema("n bigint").load().mapInArrow(killing, "n bigint")
    sink = read.writeStream.format("penstock").option("servers", brokers.urls["b"]).option("stream", "copies")
    return sink.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


@contextmanager
def in_the_middle(query: StreamingQuery, held: Path) -> Iterator[None]:
    """Entered when a task of the query has read something; until the end of the block it stays where it is."""
    while True:
        assert not query.awaitTermination(0.1), "it ended before anything was held"
        try:
            writer = os.open(held, os.O_WRONLY | os.O_NONBLOCK)  # fails as long as nobody reads
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
    try:
        yield
    finally:
        held.unlink()
        os.close(writer)


def stored(stream: penstock.BlockingStream) -> int:
    return sum(pubend["entries"] for pubend in stream.survey()["pubends"])


def test_a_stream_is_a_table_that_brokers_filter(
    spark: SparkSession, brokers: BlockingEmbeddedNetwork, network: penstock.BlockingNetwork
) -> None:
    network.add_stream("trades", at=["a", "b", "c"])
    publish(network.stream("trades"), *range(100))
    plain = table(spark, brokers, "trades", minPartitions="6").load()
    assert plain.columns == ["key", "value", "stream", "partition", "offset", "timestamp", "attributes"]
    counts = "count(DISTINCT partition, offset)", "max(value)", "count(DISTINCT task) >= 6"
    found = plain.selectExpr("*", "spark_partition_id() AS task").selectExpr(*counts)
    assert found.first() == (100, b"body", True)
    typed = table(spark, brokers, "trades", where="n < 50").schema("n bigint, symbol string").load()
    assert numbers(typed.filter("symbol = 'IBM' AND n >= 40")) == [41, 43, 45, 47, 49]
    assert numbers(typed.filter("n < 3").union(typed.filter("n >= 48"))) == [0, 1, 2, 48, 49]
    assert numbers(typed) == list(range(50)), "the filter before is not that of the table"
    with pytest.raises(PySparkException, match="strem: there is no such option; did you mean 'stream'"):
        table(spark, brokers, "trades", strem="x").load()
    doubled = spark.range(5).selectExpr("id * 2 AS n", "'x' AS key")
    doubled.write.format("penstock").option("servers", brokers.url).option("stream", "trades").mode("append").save()
    spark.dataSource.register(PenstockSource)  # in a session that has not heard of us
    written = table(spark, brokers, "trades", where="symbol IS NULL").schema("n bigint").load()
    assert numbers(written.filter("n > 2")) == [4, 6, 8]


def test_a_query_that_is_killed_goes_on_and_every_row_is_there_once(
    spark: SparkSession, brokers: BlockingEmbeddedNetwork, network: penstock.BlockingNetwork, tmp_path: Path
) -> None:
    """Killed with all its processes while it writes; then a worker is killed, then a broker crashes under it.

    It is started with another `minPartitions` each time.
    """
    network.add_stream("orders", at=["a", "b"] * 2)  # eight are tested with its parts
    network.add_stream("copies", at=["b", "c"])
    publish(network.stream("orders"), *range(2_000))
    killed = subprocess.Popen(
        [sys.executable, str(COPIES), brokers.urls["c"], str(tmp_path / "checkpoint")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert killed.stdout is not None
    copies = network.stream("copies")
    with copies.subscribe(durable="watch", start="earliest") as messages:
        assert messages.take(50, timeout=WITHIN), "the query has not begun"
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(WITHIN)
    killed.stdout.close()
    assert 0 < stored(copies) < 2_000, "in the middle"

    publish(network.stream("orders"), *range(2_000, 3_000))
    checkpoint, flag, held = tmp_path / "checkpoint", tmp_path / "killed", tmp_path / "held"
    with pytest.raises(PySparkException):
        copied(spark, brokers, checkpoint, flag, held, least=6).awaitTermination(WITHIN)
    assert flag.exists()
    os.mkfifo(held)
    query = copied(spark, brokers, checkpoint, flag, held)
    with in_the_middle(query, held):
        assert stored(copies) < 3_000
        brokers.crash("a")  # with half of the orders
        brokers.start("a")
    assert query.awaitTermination(WITHIN)
    assert numbers(table(spark, brokers, "copies").schema("n bigint").load()) == list(range(3_000))


def test_a_stream_lands_in_a_table_while_it_is_published(
    spark: SparkSession, brokers: BlockingEmbeddedNetwork, network: penstock.BlockingNetwork, tmp_path: Path
) -> None:
    """As in `penstock demo --spark`."""
    network.add_stream("news", at=["b"])
    landing = Landing(spark, "news", tmp_path)
    landing.begin(brokers.url_of("c", "b"))
    publish(network.stream("news"), *range(10))
    landing.end()
    landing.end()
    assert landing.rows == 10
    assert parquet.read_table(landing.table).num_rows == 10
    # The next time the query names one more attribute: it goes on, and what has landed has none.
    publish(network.stream("news"), *range(10, 15))
    upgraded = Landing(spark, "news", tmp_path, f"{LANDED}, n bigint")
    upgraded.begin(brokers.url_of("c", "b"))
    upgraded.end()
    assert upgraded.rows == 5
    found = spark.read.option("mergeSchema", "true").parquet(str(landing.table))
    assert sorted(row.n for row in found.filter("n IS NOT NULL").collect()) == list(range(10, 15))
    assert found.count() == 15


def test_how_a_sink_fares_is_in_the_progress_of_its_query(
    spark: SparkSession, brokers: BlockingEmbeddedNetwork, network: penstock.BlockingNetwork, tmp_path: Path
) -> None:
    """Who slows a task down is tested with its parts; here is the way from the tasks into Spark's progress."""
    for name in ("seen", "told"):
        network.add_stream(name, at=["a", "c"])
    publish(network.stream("seen"), *range(40))
    options = {"servers": brokers.urls["b"], "stream": "seen", "startingOffsets": "earliest"}
    seen = spark.readStream.format("penstock").options(**options).schema("n bigint").load()
    with pytest.raises(InvalidOption, match="use write"):
        observed_writer(spark.range(5), servers=brokers.url, stream="told")
    with pytest.raises(penstock.PenstockError, match="there is no stream 'tlod'"):
        observed_writer(seen, servers=brokers.url, stream="tlod")
    writer = observed_writer(seen, servers=brokers.url, stream="told")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(WITHIN)
    found = [progress["observedMetrics"]["penstock"] for progress in query.recentProgress if progress["numInputRows"]]
    assert [(told.rows, told.seconds > 0.0, told.slowed_seconds, told.slowed) for told in found] == [
        (40, True, 0.0, None)
    ]
    assert numbers(table(spark, brokers, "told").schema("n bigint").load()) == list(range(40))


def test_who_slows_a_sink_down_is_in_the_progress_of_its_query(spark: SparkSession, tmp_path: Path) -> None:
    """A broker behind a narrow link cannot keep up: the stream takes 40 messages a second, and the query says why."""
    register(spark)
    quick = {"query_interval": 0.1, "smoothing": 0.5, "pace_interval": 0.1, "lag_max": 0.3, "quiet": 60.0}
    control = StreamsConfig(control_rule="paper", decrease=0.1, rate_floor=40.0, **quick)
    node, narrow = NodeConfig(services={"streams": control}), {"kind": "shaped", "rate_bits_per_s": 200e3}
    with (
        embedded_network_blocking(("bank", "edge"), node=node, **narrow) as brokers,
        penstock.connect_blocking(brokers.urls["bank"]) as writer,
        penstock.connect_blocking(brokers.urls["edge"]) as reader,
    ):
        writer.add_stream("orders", at=["bank"])
        orders = writer.stream("orders")
        with reader.stream("orders").subscribe(durable="all"):
            while not any(by.rate < 60.0 for by in orders.report().slowed):  # faster, nobody would have to wait
                orders.publish_many([({"n": 0}, bytes(900), "", "")] * 50)
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "60").load()
            sink = observed_writer(rows.selectExpr("value AS n"), servers=brokers.url, stream="orders")
            query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
            assert query.awaitTermination(WITHIN)
    told = query.lastProgress["observedMetrics"]["penstock"]
    assert "orders/0: broker 'edge' cannot keep up" in told.slowed
    assert 0.0 < told.slowed_seconds <= told.seconds

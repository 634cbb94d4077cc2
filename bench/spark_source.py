"""How fast is the data source for Spark, and beside what?

    python bench/spark_source.py [--quick] [--cluster] [--json FILE]

A broker in a process of its own stores a stream of 400,000 messages, of 128 bytes with their attributes; `--quick`
takes a tenth. Then Spark, on two cores of the same machine, reads and writes; with `--cluster` a standalone cluster of
two workers with a core each, on the same machine:

    typed    three attributes as typed columns, and the body
    all      the columns without a schema: key, body, offset, time, and a map of all attributes
    where    one message in a hundred, chosen by the broker
    write    rows as messages, acknowledged when they are on disk; a quarter as many
    parquet  the same rows, from Parquet files and to them
    stream   the typed columns by a query that goes on, in batches of a quarter: rows by the time of its batches
    busy     a query that goes on, while 1,000 messages a second are published: how long a batch takes
    trickle  the same with a message every 50 ms; also how long after it was stored the batch of a message is done
    empty    seconds to read a stream without messages: what Spark and we take to begin
    floor    batches of a query over a source in Python that gives one row at once: what Spark takes for itself

Before that the reader alone, without Spark's processes: rows per second of processor time, its own and the broker's.
With Spark the same of all processes together, which a busy machine changes little: two quiet cores do up to twice that.

Each read goes to Spark's `noop` sink, so nothing but the source is measured; the first turn warms Java and the workers
up and does not count, and the median of three counts. Rows are those that are stored, also where few match.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType

import penstock
from penstock.pipeline.session import spark_session, stop_session
from penstock.pipeline.source import PenstockSource, register
from penstock.pipeline.source.columns import default_schema

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from spark_cluster import standalone_cluster  # the cluster of the tests

ROWS = 400_000
TURNS = 3
TRIGGERED = 25.0  # seconds for which a query is watched that goes on
PUBLISHED_TOGETHER = 10_000
BODY = bytes(80)
FEW = "symbol = 'S7'"  # one in a hundred
SCHEMA = "n bigint, symbol string, price double, value binary"


@contextmanager
def a_broker(folder: Path) -> Iterator[tuple[str, int]]:
    """A broker that stores, in a process of its own; its address and number."""
    command = [sys.executable, "-m", "penstock", "broker", "bench", "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen([*command, "--data", str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        process.wait()


def messages(first: int, count: int) -> list[tuple[dict[str, Any], bytes, str, str]]:
    return [
        ({"n": n, "symbol": f"S{n % 100}", "price": 100 + n / 8}, BODY, f"{n}", "") for n in range(first, first + count)
    ]


def timed(work: Callable[[], object], rows: int, name: str) -> dict[str, float]:
    """Rows per second, and per second of all processors, the median of some turns after one that does not count."""
    seconds, used = [], []
    for _ in range(TURNS + 1):
        began, before = time.perf_counter(), tree_seconds()
        work()
        seconds.append(time.perf_counter() - began)
        used.append(tree_seconds() - before)
    name = f"{name}, rows"
    return {
        f"{name}/s": rows / statistics.median(seconds[1:]),
        f"{name} per processor second of all": rows / max(0.01, statistics.median(used[1:])),
    }


def processor_seconds(process: int) -> float:
    """Used by another process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_seconds() -> float:
    """Processor time of this process and all that it started: Java, Python's workers, the broker, a cluster."""
    parents: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                ticks = sum(int(field) for field in fields[11:15])  # its own, and of children that have ended
                parents[int(path.name)] = int(fields[1]), ticks / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {number for number, (parent, _) in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(parents[number][1] for number in ours if number in parents)


def reader_alone(url: str, broker: int, rows: int) -> dict[str, float]:
    """Rows per processor second of the reader and of its broker."""
    typed = StructType(
        [
            StructField("n", LongType()),
            StructField("symbol", StringType()),
            StructField("price", DoubleType()),
            StructField("value", BinaryType()),
        ]
    )
    found = {}
    for name, schema, where in (
        ("typed", typed, "TRUE"),
        ("all", default_schema(False), "TRUE"),
        ("where", typed, FEW),
    ):
        reader = PenstockSource({"servers": url, "stream": "orders", "where": where}).reader(schema)
        parts = reader.partitions()
        for turn in range(2):
            own, others = time.process_time(), processor_seconds(broker)
            read = sum(batch.num_rows for part in parts for batch in reader.read(part))
            assert read == (rows if where == "TRUE" else rows // 100)
            if turn:
                found[f"{name}: reader, rows per processor second"] = rows / (time.process_time() - own)
                found[f"{name}: broker, rows per processor second"] = rows / (processor_seconds(broker) - others)
    return found


def read_all(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def table(spark: SparkSession, url: str, **options: str) -> Any:
    return spark.read.format("penstock").options(servers=url, stream="orders", minPartitions="2", **options)


def measured(spark: SparkSession, url: str, broker: int, folder: Path, rows: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with penstock.connect_blocking(url) as network:
        network.add_stream("orders", at=["bench"])
        network.add_stream("written", at=["bench"])
        orders = network.stream("orders")
        began = time.perf_counter()
        for first in range(0, rows, PUBLISHED_TOGETHER):
            orders.publish_many(messages(first, PUBLISHED_TOGETHER))
        found["published by one client, rows/s"] = rows / (time.perf_counter() - began)
        found |= reader_alone(url, broker, rows)
        typed = table(spark, url).schema(SCHEMA).load()
        typed.write.mode("overwrite").parquet(str(folder / "orders"))
        few = table(spark, url, where=FEW).schema(SCHEMA).load()
        found |= timed(lambda: read_all(typed), rows, "typed")
        found |= timed(lambda: read_all(table(spark, url).load()), rows, "all")
        found |= timed(lambda: read_all(few), rows, "where")
        nothing = spark.read.format("penstock").options(servers=url, stream="written").schema(SCHEMA)
        found |= {"empty, s": rows / timed(lambda: read_all(nothing.load()), rows, "")[", rows/s"]}
        stored = spark.read.parquet(str(folder / "orders"))
        found |= timed(lambda: read_all(stored), rows, "parquet")
        some = stored.limit(rows // 4).repartition(2).persist()
        assert some.count() == rows // 4
        sink = some.write.format("penstock").options(servers=url, stream="written").mode("append")
        found |= timed(sink.save, rows // 4, "write")
        into = str(folder / "written")
        found |= timed(lambda: some.write.mode("overwrite").parquet(into), rows // 4, "write to parquet")
        found |= followed(spark, url, rows, folder / "stream")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        found |= triggers(spark, url, orders, folder / "busy", "busy", 1_000, 1.0)
        found |= triggers(spark, url, orders, folder / "trickle", "trickle", 1, 0.05)
        found |= floor(spark, folder / "floor")
    return found


class OneRow(DataSource):
    """A source that has one row in each batch, and no work with it."""

    @classmethod
    def name(cls) -> str:
        return "one_row"

    def schema(self) -> str:
        return "n bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return OneRowReader()


class OneRowReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"n": start["n"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(partition.value,)])


def floor(spark: SparkSession, checkpoint: Path) -> dict[str, float]:
    """How long a batch takes of a source that does nothing."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's processes do not find this file
    spark.dataSource.register(OneRow)
    write = spark.readStream.format("one_row").load().writeStream.format("noop")
    query = write.option("checkpointLocation", str(checkpoint)).start()
    time.sleep(TRIGGERED)
    query.stop()
    seconds = [batch.batchDuration / 1_000 for batch in query.recentProgress if batch.numInputRows][1:]
    return {
        "floor, batches": len(seconds),
        "floor, s of a batch, p50": percentile(seconds, 0.5),
        "floor, s of a batch, p99": percentile(seconds, 0.99),
    }


def follow(spark: SparkSession, url: str, checkpoint: Path, **options: str) -> DataStreamWriter:
    read = spark.readStream.format("penstock").options(servers=url, stream="orders", minPartitions="2", **options)
    return read.schema(SCHEMA).load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))


def followed(spark: SparkSession, url: str, rows: int, checkpoint: Path) -> dict[str, float]:
    """A query that takes what is there, in batches; its first, which wakes everything up, does not count."""
    query = follow(spark, url, checkpoint, startingOffsets="earliest", maxOffsetsPerTrigger=str(rows // 4))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    done = [progress for progress in running.recentProgress if progress.numInputRows]
    assert sum(progress.numInputRows for progress in done) == rows
    milliseconds = sum(progress.batchDuration for progress in done[1:])
    return {"stream, rows/s": 1_000 * sum(progress.numInputRows for progress in done[1:]) / milliseconds}


def triggers(
    spark: SparkSession,
    url: str,
    orders: penstock.BlockingStream,
    checkpoint: Path,
    name: str,
    together: int,
    every: float,
) -> dict[str, float]:
    """How long the batches of a query take that has little to do, and how late a message is in its batch."""
    query = follow(spark, url, checkpoint).start()
    while not query.recentProgress:  # it has begun, and reads from here
        time.sleep(0.1)
    stored: list[int] = []
    for turn in range(int(TRIGGERED / every)):
        began = time.perf_counter()
        stored += [receipt.tick for receipt in orders.publish_many(messages(turn * together, together))]
        time.sleep(max(0.0, every - (time.perf_counter() - began)))
    query.processAllAvailable()
    query.stop()
    batches = [progress for progress in query.recentProgress if progress.numInputRows][1:]
    delays, upto = [], 0
    for batch in batches:
        end = json.loads(batch.sources[0].endOffset)["pubends"]["0"]["next"]
        begin = json.loads(batch.sources[0].startOffset)["pubends"]["0"]["next"]
        done = datetime.fromisoformat(batch.timestamp).timestamp() + batch.batchDuration / 1_000
        delays += [done - tick / 1_000_000 for tick in stored if begin <= tick < end]
        upto += batch.numInputRows
    assert upto == len(delays), "each row of a batch is a message that was published here"
    seconds = [batch.batchDuration / 1_000 for batch in batches]
    return {
        f"{name}, batches": len(batches),
        f"{name}, s of a batch, p50": percentile(seconds, 0.5),
        f"{name}, s of a batch, p99": percentile(seconds, 0.99),
        f"{name}, s from stored to done, p50": percentile(delays, 0.5),
        f"{name}, s from stored to done, p99": percentile(delays, 0.99),
    }


def percentile(values: list[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument("--cluster", action="store_true", help="a standalone cluster instead of this process's Spark")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    arguments = parser.parse_args()
    rows = ROWS // 10 if arguments.quick else ROWS
    with (
        tempfile.TemporaryDirectory() as folder,
        a_broker(Path(folder) / "data") as (url, broker),
        standalone_cluster(Path(folder)) if arguments.cluster else nullcontext("local[2]") as master,
    ):
        spark = spark_session(master)
        register(spark)
        found = measured(spark, url, broker, Path(folder), rows)
        stop_session()
    print(f"load {os.getloadavg()[0]:.1f}, {rows:,} rows, {master.partition(':')[0]}")
    for name, number in found.items():
        print(f"{name:45} {number:12,.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""A sink that says in the query's own progress how it fares: rows, seconds, and who slows publishers down.

    query = observed_writer(amounts, servers=url, stream="amounts").option("checkpointLocation", folder).start()
    query.lastProgress["observedMetrics"]["penstock"]

Why it is not the format itself: Spark takes the metrics of a sink from a table that implements `ReportsSinkMetrics`.
Its table for sources in Python does not (4.3.0), the metrics of Python's workers are a fixed list, and the messages of
`commit` go nowhere else. What Spark does take from anybody is `observe`. So here the rows are published
within the plan, by the same function and under the same ids as the format's, each task leaves one row about it, Spark
observes these, and the sink behind has nothing to do.

    rows            that are on disk
    seconds         the longest task
    slowed_seconds  of it, at most, while some pubend took messages slowly
    slowed          which and why, in words; null if none did
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidOption
from penstock.pipeline.source.options import SinkOptions, sink_options
from penstock.pipeline.source.writing import check_written_schema, expect_stream, written_by_query

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OBSERVED = "penstock"  # the name of these metrics in the progress
TOLD = "rows bigint, seconds double, slowed_seconds double, slowed string"  # by each task
METRICS = {"rows": "sum", "seconds": "max", "slowed_seconds": "max", "slowed": "max"}


def observed_writer(rows: DataFrame, **options: str) -> DataStreamWriter:
    """What writes the rows of a query to a stream; options as of the format, and the rest is Spark's own."""
    from pyspark.sql import functions

    if not rows.isStreaming:
        raise InvalidOption("rows", "are no query that goes on (readStream); a batch has no progress: use write")
    chosen = sink_options(options)
    check_written_schema(rows.schema, chosen)
    expect_stream(chosen, patient=False)
    told = rows.mapInArrow(_Publishing(chosen), TOLD)
    metrics = [getattr(functions, how)(name).alias(name) for name, how in METRICS.items()]
    return told.observe(OBSERVED, *metrics).writeStream.format("noop")


class _Publishing:
    """The work of one task; it travels to Spark's processes."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow as pa

        done = written_by_query(self._options, batches)
        row: dict[str, list[Any]] = {
            "rows": [done.rows],
            "seconds": [done.seconds],
            "slowed_seconds": [done.slowed_seconds],
            "slowed": [done.slowed or None],
        }
        kinds = [("rows", pa.int64()), ("seconds", pa.float64()), ("slowed_seconds", pa.float64())]
        yield pa.RecordBatch.from_pydict(row, schema=pa.schema([*kinds, ("slowed", pa.string())]))

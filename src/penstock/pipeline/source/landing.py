"""A stream of a running network, landed in a table of Parquet while it runs: what `penstock demo --spark` shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LANDED = "timestamp timestamp, symbol string, side string, urgent boolean, offset bigint, partition int"


class Landing:
    """A query from a stream to a folder; begin it when the network is up, end it before the network does."""

    def __init__(self, spark: SparkSession, stream: str, folder: Path, schema: str = LANDED) -> None:
        self.table = folder / stream
        self.rows = 0
        self.batches = 0
        self._spark = spark
        self._stream = stream
        self._schema = schema
        self._checkpoint = folder / f"{stream}-checkpoint"
        self._query: StreamingQuery | None = None

    def begin(self, servers: str) -> None:
        """Follow the stream from its beginning."""
        register(self._spark)
        options = {"servers": servers, "stream": self._stream, "startingOffsets": "earliest"}
        read = self._spark.readStream.format("penstock").options(**options).schema(self._schema).load()
        write = read.writeStream.format("parquet").option("path", str(self.table))
        self._query = write.option("checkpointLocation", str(self._checkpoint)).start()

    def end(self) -> None:
        """Take in what is there, and stop."""
        if self._query is not None:
            query, self._query = self._query, None
            query.processAllAvailable()
            query.stop()
            found = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
            self.rows, self.batches = sum(found), len(found)

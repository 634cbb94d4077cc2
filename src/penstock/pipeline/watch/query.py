"""A watch: a query of Structured Streaming over `_trace` that lands records, and the pipeline over what has landed.

    with watching(spark, servers, folder) as watch:
        summary = watch.measure()

The query is an ordinary one over our own source, with its checkpoint beside the records; each batch goes to the folder.
`measure` is `run_pipeline` over that folder, as far as its records go: the same functions as after a run, and the same
files under `metrics/`. It reads what was kept anew each time, which takes a second or two for a million records.

While it goes on the watch also asks the network, every RENEW seconds, to go on tracing for LEASE seconds. So nothing is
left switched on if it is killed, and a new one that comes soon enough misses nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.errors import PenstockError
from penstock.kernel.trace import TRACE_CLIENT, TRACE_STREAM
from penstock.live.client.blocking import BlockingNetwork, connect_blocking
from penstock.pipeline.failure import gave_up
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.source import register
from penstock.pipeline.summary import PipelineSummary
from penstock.pipeline.watch.folder import WatchFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("penstock.watch")

LEASE = 60.0  # seconds that nodes go on without us
RENEW = 15.0  # seconds between two times that we ask for more
ROWS_MAX = 2_000  # messages of a batch: two million records at most
SECOND = 1_000_000  # ticks
STOP_WITHIN = 10.0  # seconds for the batch that is being taken in
LOOK = 0.1  # seconds between two looks how it is
WATCHED = (  # of the pipeline's results: those that can be judged while it runs
    *("rates", "published_per_second", "delivered_per_second", "missed", "missed_per_second", "duplicates", "drops"),
    *("delay_percentiles", "delay_percentiles_per_client", "delay_percentiles_per_run", "fifo_violations", "order"),
    *("withheld", "flow_limits", "link_use", "counts", "recovery", "streams", "lives"),
)


class Lease:
    """Keeps a network tracing for as long as it is open."""

    def __init__(self, servers: str, *, one_in: int = 0, at: Sequence[str] = ()) -> None:
        self._servers = servers
        self._one_in = one_in
        self._at = at
        self._ended = threading.Event()
        self._renewed = 0.0  # when we last asked with success
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def open(self) -> dict[str, Any]:
        """Ask for the first time; raises Unreachable, or whatever stands in the way."""
        with _connected(self._servers) as network:
            state = network.trace(LEASE, one_in=self._one_in, at=self._at)
        self._renewed = time.monotonic()
        self._thread.start()
        return state

    def close(self) -> None:
        """Ask no more; the nodes end by themselves."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _keep(self) -> None:
        while not self._ended.wait(RENEW):
            try:
                with _connected(self._servers) as network:
                    if self._was_switched_off(network.trace()):
                        log.warning("tracing was switched off; the watch goes on with what there is")
                        return
                    network.trace(LEASE, at=self._at)
                    self._renewed = time.monotonic()
            except PenstockError as error:
                log.warning("the network cannot be asked to go on tracing: %s", error)

    def _was_switched_off(self, state: dict[str, Any]) -> bool:
        """Whether somebody has ended it; not if it ended by itself, or if the broker has begun a new life since."""
        lapsed = time.monotonic() - self._renewed > LEASE - RENEW
        return not state["on"] and state["since"] > 0 and not lapsed


class TraceWatch:
    """One watch, from its query's beginning to its end."""

    def __init__(self, spark: SparkSession, folder: WatchFolder, query: StreamingQuery, lock: threading.Lock) -> None:
        self.folder = folder
        self._spark = spark
        self._query = query
        self._lock = lock

    def check(self) -> None:
        """Raise PipelineError if the query has failed."""
        failed = self._query.exception() if not self._query.isActive else None
        if failed is not None:
            raise gave_up(self._spark, failed)

    def measure(self) -> PipelineSummary:
        """The tables as they are now; raises PipelineError if the query has failed."""
        self.check()
        with self._lock:  # no part comes or goes meanwhile
            return run_pipeline(self._spark, [self.folder.path], only=WATCHED)

    def wait(self, seconds: float, asked: threading.Event) -> bool:
        """Let time pass, until somebody asks to end; False if the query has ended before."""
        end = time.monotonic() + seconds
        with suppress(Exception):  # `measure` says what
            while self._query.isActive:
                left = end - time.monotonic()
                if left <= 0.0 or asked.wait(min(left, LOOK)):
                    return True
        return False


@contextmanager
def watching(
    spark: SparkSession, servers: str, path: Path, *, began: float, keep: float = inf, once: bool = False
) -> Iterator[TraceWatch]:
    """Follow the records of a network into this folder; `once` takes what is there, and ends."""
    folder, lock = WatchFolder(path, servers, began, keep=keep), threading.Lock()
    if folder.state.servers != servers:
        log.warning("%s was of %s; it goes on with %s", path, folder.state.servers, servers)

    def land(batch: DataFrame, number: int) -> None:
        in_order = [("partition", "ascending"), ("offset", "ascending")]
        rows = batch.select("partition", "offset", "value").toArrow().sort_by(in_order)
        stored = [tick / SECOND for tick in rows["offset"].to_pylist()]
        with lock:
            folder.land(number, zip(stored, rows["value"].to_pylist(), strict=True))

    register(spark)
    options = {"servers": servers, "stream": TRACE_STREAM, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    read = spark.readStream.format("penstock").options(**options, maxOffsetsPerTrigger=str(ROWS_MAX)).load()
    write = read.writeStream.foreachBatch(land).option("checkpointLocation", str(folder.checkpoint))
    try:
        query = (write.trigger(availableNow=True) if once else write.trigger(processingTime="1 second")).start()
    except Exception as error:
        raise gave_up(spark, error) from None
    try:
        if once:
            with suppress(Exception):  # `measure` says what
                query.awaitTermination()
        yield TraceWatch(spark, folder, query, lock)
    finally:
        with suppress(Exception):  # it may have failed, or Java may have ended
            _stop_between_batches(query)


def _stop_between_batches(query: StreamingQuery) -> None:
    """End it where it waits for the next batch; in the middle of one, Spark would print what it interrupts."""
    end = time.monotonic() + STOP_WITHIN
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
        time.sleep(LOOK)
    query.stop()


def _connected(servers: str) -> BlockingNetwork:
    return connect_blocking(servers, name=f"{TRACE_CLIENT}{uuid4().hex[:12]}")

"""A best-effort subscription as a source for Spark, for dashboards: what comes while the query runs, at most once.

Nothing is stored, so nothing can be had again: a batch that Spark tries a second time, after a crash, is empty. What is
published while the query is away, or what brokers drop, is not there either. Offsets count messages, and mean no more
than that. All messages pass through the process of the driver; for more than that there are streams.

`offset` and `timestamp` are when a message came, in microseconds and never twice; `partition` is 0, `stream` and `key`
are null.

State: a subscription, opened with the first batch. Bound: QUEUE_MAX messages that wait for the next batch; of more the
oldest are dropped, and that is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.pipeline.source import connection
from penstock.pipeline.source.columns import Columns
from penstock.pipeline.source.one_line import one_line_errors
from penstock.pipeline.source.options import SECOND, SourceOptions
from penstock.streams.log_codec import VERSION, LogEntry, encode, packed_ticks

if TYPE_CHECKING:
    from penstock.live.client.blocking import BlockingNetwork, BlockingSubscription

log = logging.getLogger(__name__)

QUEUE_MAX = 100_000
LOOK = 0.001  # seconds: what has come is there at once


@one_line_errors
class BestEffortReader(SimpleDataSourceStreamReader):
    """What matches, while somebody listens."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = Columns(schema, "", misfit_is_error=options.misfit_is_error)
        self._network: BlockingNetwork | None = None
        self._messages: BlockingSubscription | None = None
        self._tick = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        self._opened()
        return {"messages": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        found = self._opened().take(QUEUE_MAX, timeout=LOOK)
        if not found:
            return iter(()), start
        self._tick = max(self._tick + 1, int(time.time() * SECOND))
        ticks = range(self._tick, self._tick + len(found))
        self._tick = ticks[-1]
        entries = b"".join([encode(LogEntry(VERSION, "", message)) for message in found])
        batch = self._columns.batch(0, packed_ticks(ticks), entries)
        return iter([batch]), {"messages": start["messages"] + len(found)}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:  # noqa: N802
        log.warning("%d messages of a best-effort subscription are lost", end["messages"] - start["messages"])
        return iter(())

    def _opened(self) -> BlockingSubscription:
        if self._messages is None:
            from penstock.live.client.blocking import connect_blocking

            self._network = connect_blocking(self._options.servers, connect_within=connection.FIRST_CONTACT).open()
            self._messages = self._network.subscribe(self._options.where, queue_max=QUEUE_MAX, on_drop=_dropped).open()
        return self._messages

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_network": None, "_messages": None, "_columns": None}


def _dropped(count: int) -> None:
    if count & (count - 1) == 0:  # 1, 2, 4, 8, ...
        log.warning("the query is too slow: %d messages of a best-effort subscription dropped so far", count)

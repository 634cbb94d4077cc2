"""Readers of a stream for Spark: one for batches, one for queries that go on.

Readers are made in several processes. What one of them knows and another needs is in offsets (`offsets`) and in
partitions: a pubend, its epoch and a range of ticks. Any range can be read again, as long as the stream keeps it.

A query ends a batch at the tick of the last message, not at the present: so without messages there is no batch. Limits
are shared out among pubends by what each has, and counted by the brokers before anything is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidOption
from penstock.pipeline.source.columns import Columns
from penstock.pipeline.source.connection import StreamLink, stream_link
from penstock.pipeline.source.offsets import (
    INITIAL,
    DataLoss,
    Next,
    Offsets,
    PubendExtent,
    batch_start,
    from_json,
    kept_from,
    loss,
    partitions_min,
    to_json,
)
from penstock.pipeline.source.one_line import one_line_errors
from penstock.pipeline.source.options import EARLIEST, EARLIEST_TICK, LATEST, LATEST_TICK, Boundary, SourceOptions
from penstock.pipeline.source.pushdown import joined, where_of
from penstock.pipeline.source.worker import settle_worker

log = logging.getLogger(__name__)

IDLE = 0.05  # seconds between two looks at a stream that has nothing new


@dataclass
class TickRange(InputPartition):
    """Ticks of one pubend, both ends included."""

    number: int
    epoch: int
    first: int
    last: int


Parts = dict[int, tuple[Next, int]]  # pubend -> where to begin, and the first tick that is not read


class StreamRange:
    """What both readers do: plan parts of a stream, and read one."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read_part(self, part: InputPartition, where: str) -> Iterator[Any]:
        """The batches of one partition."""
        options = self._options
        if not isinstance(part, TickRange):  # Spark's own for a plan without any
            return
        columns = Columns(self._schema, options.stream, misfit_is_error=options.misfit_is_error)
        with stream_link(options.servers, options.stream, options.give_up_after, patient=True) as link:
            pubend = f"{options.stream}/{part.number}"
            known, has_rows = part.first, False
            for found in link.log.slices(pubend, epoch=part.epoch, first=part.first, last=part.last, where=where):
                if found.gone >= known:
                    lost = f"{pubend} keeps nothing up to tick {found.gone}, and tick {known} was to be read"
                    lose(options, f"{lost}: it was trimmed meanwhile")
                known = found.upto + 1
                if found.ticks:
                    has_rows = True
                    yield columns.batch(part.number, found.ticks, found.entries)
        if has_rows:
            settle_worker()

    def planned(self, link: StreamLink, parts: Parts, least: int) -> list[InputPartition]:
        """Partitions of about as many messages each, at least one for each pubend that has something, and `least`."""
        wanted = {number: part for number, part in parts.items() if part[0].tick < part[1]}
        ranges = {number: {"first": at.tick, "last": end - 1} for number, (at, end) in wanted.items()}
        if least > len(wanted) > 0:
            measured = link.survey(ranges)
            total = sum(measured[number].entries for number in wanted) or 1
            for number, part in ranges.items():
                part["parts"] = -(-least * measured[number].entries // total)
        marks = {number: extent.marks for number, extent in link.survey(ranges).items()} if wanted else {}
        planned: list[InputPartition] = []
        for number, (at, end) in wanted.items():
            first = at.tick
            for mark in marks[number][:-1]:
                planned.append(TickRange(number, at.epoch, first, mark))
                first = mark + 1
            planned.append(TickRange(number, at.epoch, first, end - 1))
        return planned


def lose(options: SourceOptions, problem: str) -> None:
    """Something is lost: raise, or say so and go on, as the user wants it."""
    if options.fail_on_data_loss:
        raise DataLoss(f'{problem}. To go on without it, say .option("failOnDataLoss", "false")')
    log.warning("%s; the query goes on without it, as failOnDataLoss says", problem)


def placed(options: SourceOptions, name: str, place: Boundary, extents: Mapping[int, PubendExtent]) -> Offsets:
    """Where these words or ticks are in each pubend; raises InvalidOption for ticks that are nowhere."""
    found: Offsets = {}
    ticks = dict.fromkeys(extents, place.ticks[-1]) if -1 in place.ticks and not place.exact else place.ticks
    if not place.word and sorted(ticks) != list(extents):
        there = ", ".join(map(str, extents))
        raise InvalidOption(name, f"is about pubends {', '.join(map(str, ticks))}; '{options.stream}' has {there}")
    for number, extent in extents.items():
        first, end = extent.gone + 1, extent.end
        tick = {"earliest": first, "latest": end}.get(place.word, ticks.get(number, 0))
        tick = {EARLIEST_TICK: first, LATEST_TICK: end}.get(tick, tick)
        if place.exact and tick > end:
            wrong = f"is tick {tick} of pubend {number}, beyond the end: {end} is the first behind its last message"
            raise InvalidOption(name, wrong)
        at = Next(extent.epoch, tick if place.exact else max(tick, first), not place.exact and tick > end)
        problem = loss(options.stream, number, at, extent)
        if problem:
            lose(options, problem)
            at = kept_from(at, extent)
        found[number] = at
    return found


@one_line_errors
class BatchReader(StreamRange, DataSourceReader):
    """What the stream has now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._where = options.where
        if (options.starting or EARLIEST) == LATEST:
            raise InvalidOption("startingOffsets", "is latest; a batch that begins at the end has nothing to read")
        for name in options.of_queries:
            raise InvalidOption(name, "is for queries that go on (readStream)")
        if options.durable:
            raise InvalidOption("durable", "is for queries that go on (readStream); a batch reads what is there")
        if options.ending == EARLIEST:
            raise InvalidOption("endingOffsets", "is earliest; a batch that ends at the beginning has nothing to read")

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with stream_link(options.servers, options.stream, options.give_up_after) as link:
            extents = link.survey()
            begin = placed(options, "startingOffsets", options.starting or EARLIEST, extents)
            end = placed(options, "endingOffsets", options.ending, extents)
            parts = {number: (begin[number], end[number].tick) for number in extents}
            return self.planned(link, parts, options.partitions_min)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.read_part(partition, self._where)


class PushingReader(BatchReader):
    """The same, where Spark lets sources filter."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Brokers do what they can; Spark looks at all of it once more."""
        if not self._options.misfit_is_error:
            pushed = [text for text in (where_of(one, self._schema) for one in filters) if text]
            self._where = joined(self._where, pushed)
        return filters


@one_line_errors
class FollowingReader(StreamRange, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, batch after batch. Spark keeps one for planning; others, in other processes, read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.ending != LATEST:
            raise InvalidOption("endingOffsets", "is for batches (spark.read); a query that goes on has no end")
        self._link: StreamLink | None = None
        self._target: Offsets | None = None  # where a query ends that takes what is there
        self._batch_at = time.monotonic()  # when a batch was last begun

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        extents = self._survey()
        place = self._options.starting or LATEST
        begin = placed(self._options, "startingOffsets", place, extents)
        return to_json(self._options.stream, begin, initial=True)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done with, for good."""
        self._hold(from_json(self._options.stream, end))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark hands it back; what counts are the options, unless it says to read everything."""
        options = self._options
        if options.offsets_max:
            return ReadMaxRows(options.offsets_max)
        if options.bytes_max:
            return ReadMaxBytes(options.bytes_max)
        return ReadMinRows(options.offsets_min) if options.offsets_min else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {number: Next(extent.epoch, extent.end) for number, extent in self._survey().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        began = from_json(self._options.stream, start)
        begin, extents = self._begun(began)
        if not isinstance(limit, ReadAllAvailable):
            if self._too_few(extents):
                return self._nothing_new(start)
            extents = self._limited(begin, extents)
        end = {number: self._end(at, extents[number]) for number, at in begin.items()}
        if end == began:
            return self._nothing_new(start)
        self._batch_at = time.monotonic()
        first = began if INITIAL in start else None
        return to_json(self._options.stream, end, began=first, partitions=self._options.partitions_min)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        found = {number: Next(extent.epoch, extent.end) for number, extent in self._survey().items()}
        return to_json(self._options.stream, found)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        began = batch_start(self._options.stream, start, end)
        if INITIAL in start:
            self._hold(began)
        begin, extents = self._begun(began)
        upto = self._kept(from_json(self._options.stream, end), extents)
        parts = {number: (at, upto[number].tick) for number, at in begin.items() if upto[number].epoch == at.epoch}
        return self.planned(self._opened(), parts, partitions_min(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.read_part(partition, self._options.where)

    def stop(self) -> None:
        if self._link is not None:
            self._link.close()

    def __getstate__(self) -> dict[str, Any]:
        """Readers travel to other processes; a connection does not."""
        return {**self.__dict__, "_link": None}

    def _hold(self, offsets: Offsets) -> None:
        if self._options.durable:
            self._opened().hold(self._options.durable, offsets, self._options.where)

    def _begun(self, begin: Offsets) -> tuple[Offsets, dict[int, PubendExtent]]:
        """Where a batch begins that was to begin here, in what is kept, and what is behind that; a loss is said."""
        stream, extents = self._options.stream, self._survey(self._ranges(begin))
        if sorted(begin) != list(extents):
            raise InvalidOption("checkpoint", f"is of {len(begin)} pubends; '{stream}' has {len(extents)}")
        kept = dict(begin)
        for number, at in begin.items():
            problem = loss(stream, number, at, extents[number])
            if problem:
                lose(self._options, problem)
                kept[number] = kept_from(at, extents[number])
        return kept, extents if kept == begin else self._survey(self._ranges(kept))

    def _kept(self, upto: Offsets, extents: Mapping[int, PubendExtent]) -> Offsets:
        """Where a batch ends that was to end here; a stream that ends before that is a loss, and said."""
        kept = dict(upto)
        for number, at in upto.items():
            extent = extents[number]
            problem = loss(self._options.stream, number, at, extent) if at.tick > extent.end else ""
            if problem and at.epoch == extent.epoch:
                lose(self._options, problem)
                kept[number] = kept_from(at, extent)
        return kept

    def _ranges(self, begin: Offsets) -> dict[int, dict[str, int]]:
        """What a batch may have that begins here."""
        target = self._target or {}
        return {
            number: {"first": at.tick} | ({"last": target[number].tick - 1} if number in target else {})
            for number, at in begin.items()
        }

    def _nothing_new(self, start: dict[str, Any]) -> dict[str, Any]:
        """Spark asks again at once; brokers have other things to do."""
        if self._target is None:
            time.sleep(IDLE)
        return start

    def _end(self, at: Next, extent: PubendExtent) -> Next:
        """Behind what was measured, if that is anything."""
        measured = min(extent.marks[-1], extent.last) + 1 if extent.entries else 0
        return Next(at.epoch, measured) if measured > at.tick else at

    def _too_few(self, extents: Mapping[int, PubendExtent]) -> bool:
        """Whether to wait for more: `minOffsetsPerTrigger`, unless `maxTriggerDelay` is over."""
        options = self._options
        if self._target is not None or time.monotonic() - self._batch_at >= options.trigger_delay:
            return False
        return sum(extent.entries for extent in extents.values()) < options.offsets_min

    def _limited(self, begin: Offsets, extents: dict[int, PubendExtent]) -> dict[int, PubendExtent]:
        """The same, cut where the limits are."""
        options, ranges = self._options, self._ranges(begin)
        entries = sum(extent.entries for extent in extents.values())
        size_bytes = sum(extent.bytes for extent in extents.values())
        over = (0 < options.offsets_max < entries, 0 < options.bytes_max < size_bytes)
        if not any(over):
            return extents
        left = options.offsets_max
        for number, extent in extents.items():
            if over[0]:
                share = min(left, -(-options.offsets_max * extent.entries // entries))
                left -= share
                ranges[number] |= {"entries_max": share} if share else {"last": ranges[number]["first"] - 1}
            if over[1]:
                ranges[number]["bytes_max"] = max(1, options.bytes_max * extent.bytes // size_bytes)
        return self._survey(ranges)

    def _survey(self, ranges: Mapping[int, Mapping[str, int]] | None = None) -> dict[int, PubendExtent]:
        return self._opened().survey(ranges)

    def _opened(self) -> StreamLink:
        if self._link is None:
            self._link = StreamLink(self._options.servers, self._options.stream, self._options.give_up_after)
        return self._link

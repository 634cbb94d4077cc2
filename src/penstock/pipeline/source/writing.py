"""Writers to a stream for Spark: each row becomes a message, stored once however often its batch is tried.

A column `key` is the key, `value` the body, `attributes` a map of attributes that are strings; every other column is an
attribute of its name, and NULL leaves it out.

Every message has a publication id, made of the query, the batch, the partition and the row: what it says, and how often
the partition had said the same before. So the rows of a partition may come in another order when they are tried again,
as they do behind a shuffle. With `idColumn` the id is made of the query and that column alone.

A stream knows an id for a while (`ids_window`, `ids_max`), which is enough for what is under way. It is told of each
batch that begins, part by part, and keeps where that was. A task whose part began before, in this run of the query or
in an earlier one, reads the log from there, and publishes what is not in it (`stored_before`).

Ids are known at their pubend. Which pubend that is must not depend on who publishes, so a row without a key has its own
id for a key; a reader shows none (`columns`).

The state of one task: the digests of its rows, to number those that are equal; and the ids that are stored already, if
it is not the first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from penstock.errors import InvalidOption, PenstockError
from penstock.pipeline.source.columns import FITTING
from penstock.pipeline.source.connection import StreamLink, stream_link
from penstock.pipeline.source.one_line import one_line_errors
from penstock.pipeline.source.options import SinkOptions
from penstock.pipeline.source.stored_before import StoredBefore
from penstock.pipeline.source.worker import settle_worker

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder(order="sorted").encode

Publication = tuple[dict[str, Any], bytes, str, str]  # attributes, body, key, publication_id


@dataclass
class Written(WriterCommitMessage):
    """What one task has done."""

    rows: int
    seconds: float
    slowed_seconds: float  # of these, for rows during which some pubend took messages slowly
    slowed: str  # which pubends, and why; empty: none


def check_written_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises InvalidOption for a column that no message can have."""
    ours: dict[str, tuple[DataType, ...]] = {
        "key": (StringType(),),
        "value": (BinaryType(), StringType()),
        "attributes": (MapType(StringType(), StringType()),),
    }
    for field in schema.fields:
        given = field.dataType.simpleString()
        wanted = [kind.simpleString() for kind in ours.get(field.name, ())]
        if wanted and given not in wanted:
            raise InvalidOption(f"column '{field.name}'", f"is {given}; it must be {' or '.join(wanted)}")
        if not wanted and type(field.dataType) not in FITTING:
            kinds = "boolean, tinyint to bigint, float, double or string"
            raise InvalidOption(
                f"column '{field.name}'", f"is {given}; attributes are {kinds}: cast it, or leave it out"
            )
    if options.id_column and options.id_column not in schema.fieldNames():
        raise InvalidOption("idColumn", f"is '{options.id_column}'; there is no such column")


@dataclass(frozen=True)
class Task:
    """Which part of which batch is written."""

    query: str
    batch: int
    partition: int

    def stored_before(self, link: StreamLink, options: SinkOptions) -> StoredBefore | None:
        """What earlier tries may have stored; None: this is the first.

        With ids of its own a row may be in any part, so all parts are one: who begins after another looks.
        """
        began, again = link.begin(self.query, self.batch, 0 if options.id_column else self.partition)
        if not again:
            return None
        prefix = f"{self.query[:8]}-" if options.id_column else f"{self.query[:8]}-{self.batch}-{self.partition}-"
        return StoredBefore(link, began, prefix, may_store_twice=options.may_store_twice)


class RowPublisher:
    """Makes publications of the rows of one partition."""

    def __init__(self, task: Task, id_column: str) -> None:
        self._query = task.query
        self._place = f"{task.batch}-{task.partition}"
        self._id_column = id_column
        self._seen: dict[bytes, int] = {}

    def publications(self, batch: RecordBatch) -> Iterator[Publication]:
        """One for each row; raises PenstockError for a row without an id."""
        names = batch.schema.names
        attributes = [name for name in names if name not in ("key", "value", "attributes")]
        values = [batch.column(name).to_pylist() for name in attributes]
        rows = zip(*values, strict=True) if values else iter([()] * batch.num_rows)
        others = [_column(batch, name) for name in ("key", "value", "attributes", self._id_column)]
        for row, key, value, given, own_id in zip(rows, *others, strict=True):
            found = {name: one for name, one in zip(attributes, row, strict=True) if one is not None}
            if given:
                found = dict(given) | found
            body = value.encode() if isinstance(value, str) else value or b""
            publication_id = self._id(own_id) if self._id_column else self._id_of_row(found, body, key)
            yield found, body, key or publication_id, publication_id

    def _id(self, value: Any) -> str:
        if value is None:
            raise PenstockError(f"a row without a value in '{self._id_column}', which idColumn names")
        digest = blake2b(f"{self._query} {value}".encode(), digest_size=20).hexdigest()
        return f"{self._query[:8]}-{digest}"

    def _id_of_row(self, attributes: dict[str, Any], body: bytes, key: str | None) -> str:
        digest = blake2b(_encode((attributes, body, key)), digest_size=16).digest()
        number = self._seen[digest] = self._seen.get(digest, 0) + 1
        row = blake2b(b"%b %d %b" % (digest, number, self._query.encode()), digest_size=14).hexdigest()
        return f"{self._query[:8]}-{self._place}-{row}"


def _column(batch: RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    found: list[Any] = batch.column(name).to_pylist()
    return found


def written(options: SinkOptions, task: Task, batches: Iterator[RecordBatch]) -> Written:
    """Publish all rows of one partition; returns when they are on disk."""
    publisher = RowPublisher(task, options.id_column)
    began, rows, slowed, slowed_seconds = time.monotonic(), 0, "", 0.0
    with stream_link(options.servers, options.stream, options.give_up_after, patient=True) as link:
        stored = task.stored_before(link, options)
        for one in batches:
            since = time.monotonic()
            publications = list(publisher.publications(one))
            rows += len(publications)
            if stored is not None:
                stored.look()
                publications = [publication for publication in publications if publication[3] not in stored]
            link.log.publish_many(publications)
            if told := "; ".join(f"{by.pubend}: {by.reason}" for by in link.log.report().slowed):
                slowed = told
                slowed_seconds += time.monotonic() - since
    if rows:
        settle_worker()
    return Written(rows, time.monotonic() - began, slowed_seconds, slowed)


def written_by_query(options: SinkOptions, batches: Iterator[RecordBatch]) -> Written:
    """The same for the task of a streaming query that this is."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if not query or not batch:
        raise PenstockError("Spark does not say which query and batch this is; without that a repeat is not known")
    return written(options, Task(query.replace("-", ""), int(batch), context.partitionId()), batches)


def expect_stream(options: SinkOptions, *, patient: bool) -> None:
    """A stream that is not there is said before any task starts; after a while, if it was there before."""
    with stream_link(options.servers, options.stream, options.give_up_after, patient=patient) as link:
        link.expect()


def has_written(checkpoint: str) -> bool:
    """Whether a query has committed a batch, so that its stream was there; true if we cannot look at its checkpoint."""
    offsets, commits = (Path(checkpoint.removeprefix("file:")) / name for name in ("offsets", "commits"))
    if not checkpoint or not offsets.is_dir():  # it may stand in some other file system
        return True
    return commits.is_dir() and any(found.name.isdecimal() for found in commits.iterdir())


@one_line_errors
class FollowingWriter(DataSourceStreamArrowWriter):
    """What a query that goes on writes, batch after batch; Spark makes one for each, at the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        expect_stream(options, patient=has_written(options.checkpoint))

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        return written_by_query(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        for message in messages:
            if isinstance(message, Written) and message.slowed:
                slow, why = message.slowed_seconds, message.slowed
                log.warning("batch %d took %.1f s, of which %.1f slowed down: %s", batchId, message.seconds, slow, why)


@one_line_errors
class BatchWriter(DataSourceArrowWriter):
    """What one write writes; it is a query of its own, and to write again stores again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = uuid4().hex
        with stream_link(options.servers, options.stream, options.give_up_after) as link:
            link.survey()  # a stream that is not there is said before any task starts

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        return written(self._options, Task(self._query, 0, context.partitionId()), chain(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._over()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._over()

    def _over(self) -> None:
        """Nobody will try again: the stream need not keep anything for that."""
        with stream_link(self._options.servers, self._options.stream, self._options.give_up_after) as link:
            link.over(self._query)

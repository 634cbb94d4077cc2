"""All pairs of publisher and client of a run, through many instances of ordering, as one Spark job.

    publications --encoded in Python workers--> departures and encodings by publisher, collected and broadcast
    deliveries   --sent by pair (a metric)----> one task per group of pairs --order--> a row per pair and instance

The publications of a run are few beside its deliveries (one for ten), so every worker gets all of them; an encoding is
made once, whatever the number of clients. A client's own encodings come from its subscriptions' texts, as its transport
would make them. Machines are slow beside array code, a few microseconds for each message, so the job is divided into
many more tasks than there are cores: the pairs of fast publishers hold half of the work.

Incarnations are not kept apart: set-ups whose publishers restart must not be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.content.language.parser import parse_predicate
from penstock.lab.engine.trace_ordering import (
    NONE,
    Floats,
    Instance,
    OrderingOutcome,
    RecordedPair,
    Shape,
    Words,
    make_pair,
    outcomes,
    relevance,
    shape_of,
    words_of,
)
from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import grouped
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.transport.config import TransportConfig

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame

    from penstock.pipeline.read import Tables

TASKS_MAX = 32
DELIVERIES_PER_TASK = 20_000  # in a small run: a second of work for a few instances
KEYS = ("publisher", "client", "instance")
_COLUMNS = ("publisher", "node", "time", "count")
ORDERED_ROWS = (
    "publisher string, client string, instance string, messages bigint, violations bigint, late bigint, latched bigint,"
    " assigned double, held double, unnecessary double, losses bigint, gaps bigint, chance double, refused bigint,"
    " published bigint, late_by binary"
)


@dataclass(frozen=True)
class Sent:
    """All that one publisher sent."""

    counts: NDArray[np.int64]
    departures: list[float]
    encodings: dict[Shape, Words]  # a row for each message


@dataclass(frozen=True)
class TraceInputs:
    """What the workers know of a run."""

    sent: dict[str, Sent]
    wanted: dict[str, dict[Shape, Words]]  # by client, a row for each encoding


def order_run(tables: Tables, instances: Sequence[Instance]) -> DataFrame:
    """ORDERED_ROWS: a row for each pair and instance, among them none and the oracle; see `trace_ordering.outcomes`."""
    spark = tables.delivered.sparkSession
    inputs: Broadcast[TraceInputs] = spark.sparkContext.broadcast(trace_inputs(tables, instances))
    chosen = tuple(instances)

    def work(given: ArrowTables) -> pa.Table:
        return pa.Table.from_pylist(_order_pairs(given["delivered"], inputs.value, chosen), schema=_SCHEMA)

    metric = Metric(
        "ordered_traces", ORDERED_ROWS, {"delivered": _COLUMNS}, work, together={"delivered": ("publisher", "node")}
    )
    tasks = min(TASKS_MAX, 1 + tables.delivered.count() // DELIVERIES_PER_TASK)
    return table_of(metric, {"delivered": tables.delivered}, tasks=tasks)


def read_pairs(tables: Tables, instances: Sequence[Instance]) -> dict[tuple[str, str], RecordedPair]:
    """All pairs of a small run, here and now."""
    rows = tables.delivered.select("run", *_COLUMNS).toArrow()
    return dict(_pairs(rows, trace_inputs(tables, instances)))


def trace_inputs(tables: Tables, instances: Sequence[Instance]) -> TraceInputs:
    """What was published and who wanted what, brought to the driver."""
    shapes = {shape_of(one.config): one.config for one in instances if one.config.record_entries}
    return TraceInputs(_publications(tables.published, shapes), _subscriptions(tables.subscribed, shapes))


def _order_pairs(delivered: pa.Table, inputs: TraceInputs, instances: Sequence[Instance]) -> list[dict[str, Any]]:
    return [
        {"publisher": publisher, "client": client, "instance": name, **outcome._asdict()}
        for (publisher, client), pair in _pairs(delivered, inputs)
        for name, outcome in outcomes(pair, instances)
    ]


def _pairs(delivered: pa.Table, inputs: TraceInputs) -> Iterator[tuple[tuple[str, str], RecordedPair]]:
    keys, rows = grouped(delivered, ["run", "publisher", "node"], ["time", "count"])
    for key, begin, end in zip(keys.to_pylist(), rows.starts, rows.ends, strict=True):
        publisher, client = key["publisher"], key["node"]
        sent = inputs.sent[publisher]
        relevant = {
            bits: relevance(encodings, inputs.wanted[client][bits]) for bits, encodings in sent.encodings.items()
        }
        sequences = np.searchsorted(sent.counts, rows["count"][begin:end]) + 1
        yield (publisher, client), make_pair(sent.departures, sequences, rows["time"][begin:end], relevant)


# What was published and wanted.


def _publications(published: DataFrame, shapes: Mapping[Shape, TransportConfig]) -> dict[str, Sent]:
    columns = {shape: f"entry{number}" for number, shape in enumerate(shapes)}
    ddl = "publisher string, count bigint, time double" + "".join(f", {name} binary" for name in columns.values())
    rows = published.select("publisher", "count", "time", "attributes")
    encode = _encoder({columns[shape]: config for shape, config in shapes.items()})
    table = rows.mapInArrow(encode, ddl).toArrow().sort_by([("publisher", "ascending"), ("count", "ascending")])
    names = table["publisher"].to_numpy(zero_copy_only=False)
    found = {}
    for name in dict.fromkeys(names.tolist()):
        begin, end = np.searchsorted(names, name), np.searchsorted(names, name, side="right")
        part = table.slice(begin, end - begin)
        encodings = {shape: _words(part[column].to_pylist(), shape[0]) for shape, column in columns.items()}
        found[name] = Sent(part["count"].to_numpy(), part["time"].to_pylist(), encodings)
    return found


def _encoder(configs: Mapping[str, TransportConfig]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Work for Spark: the encodings of messages, in a column for each configuration."""

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {name: batch.column(name) for name in ("publisher", "count", "time")}
            published = [msgspec.json.decode(text) for text in batch.column("attributes").to_pylist()]
            for name, config in configs.items():
                made = [
                    config.encoding.to_bytes(config.encoding.encode_message(attributes)) for attributes in published
                ]
                columns[name] = pa.array(made, pa.binary())
            yield pa.RecordBatch.from_pydict(columns)

    return encode


def _words(cells: list[bytes], bits: int) -> Words:
    return np.frombuffer(b"".join(cells), dtype="<u8").reshape(-1, bits // 64)


def _subscriptions(subscribed: DataFrame, shapes: Mapping[Shape, TransportConfig]) -> dict[str, dict[Shape, Words]]:
    """Each client's encodings, of all it ever subscribed to."""
    texts: dict[str, list[str]] = {}
    for row in subscribed.select("node", "where").toArrow().to_pylist():
        texts.setdefault(row["node"], []).append(row["where"])
    return {
        client: {shape: _wanted(wheres, config) for shape, config in shapes.items()} for client, wheres in texts.items()
    }


def _wanted(wheres: list[str], config: TransportConfig) -> Words:
    found = sorted({one for where in wheres for one in config.encoding.routing_encodings(parse_predicate(where))})
    return np.stack([words_of(encoding, config.record_bits) for encoding in found])


# What came of it.


_TYPES = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "binary": pa.binary()}
_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in (part.split() for part in ORDERED_ROWS.split(","))])


@dataclass(frozen=True)
class OrderedTraces:
    """The rows of a order_trace, with the questions that experiments ask."""

    table: pa.Table

    def of(self, instance: str) -> pa.Table:
        """The pairs under this instance, sorted by publisher and client."""
        rows = self.table.filter(pc.equal(self.table["instance"], instance))
        return rows.sort_by([("publisher", "ascending"), ("client", "ascending")])

    def column(self, instance: str, what: str) -> NDArray[Any]:
        """One number of all pairs under this instance."""
        values: NDArray[Any] = self.of(instance)[what].to_numpy()
        return values

    def total(self, instance: str, what: str) -> float:
        """Summed over all pairs."""
        return float(self.column(instance, what).sum())

    def removed(self, instance: str) -> float:
        """The share of violations that is gone."""
        return 1.0 - self.total(instance, "violations") / self.total(NONE, "violations")

    @cached_property
    def late_by(self) -> Floats:
        """By how much each late message missed its place without ordering, the latest first."""
        late_by = np.frombuffer(b"".join(self.of(NONE)["late_by"].to_pylist()), dtype="<f8")
        return np.sort(late_by)[::-1]

    def left_by_static(self, latch: float) -> int:
        """How many violations a static latch of so many seconds leaves."""
        return int((self.late_by > latch).sum())

    def static_latch_leaving(self, violations: float) -> float:
        """The shortest static latch that leaves at most so many violations: the paper's optimal one."""
        return float(self.late_by[int(violations)]) if violations < len(self.late_by) else 0.0

    def extra_delay(self, instance: str, chosen: NDArray[np.bool_] | None = None) -> Floats:
        """The mean latch of each pair's messages (002 section 3.5.2), in seconds."""
        extra: Floats = self.column(instance, "assigned") / self.column(instance, "messages")
        return extra if chosen is None else extra[chosen]

    def static_extra_delay(self, latch: float, chosen: NDArray[np.bool_] | None = None) -> Floats:
        """The same under a static latch: every message that comes at a gap gets it."""
        extra: Floats = latch * self.column(NONE, "gaps") / self.column(NONE, "messages")
        return extra if chosen is None else extra[chosen]


assert tuple(_SCHEMA.names) == (*KEYS, *OrderingOutcome._fields)

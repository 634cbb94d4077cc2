"""Workloads by the million: publications and subscriptions drawn on Spark, written as Parquet, read by anybody.

What the papers leave open about their workloads is made of three things, each with its own knob: values are Zipf (few
of them are in nearly every message), a few hot publishers send most of the messages, and neighbours are interested in
the same things (locality).

Rows are drawn in blocks of fixed size, each from its own counter of one generator (Philox). So a row depends on the
specification and its number alone, and not on how many partitions or machines share the work.

A workload is a folder: `publications/*.parquet` (time, publisher, attributes, body_bytes) in order of time, and
`subscriptions/*.parquet` (client, broker, where), and `workload.json`, the specification. `read_publications` gives
it to a simulator or a benchmark one by one, without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.content.message import DEFAULT_LIMITS, Value
from penstock.errors import InvalidRun
from penstock.kernel.randomness import derive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PUBLICATIONS_SCHEMA = "time double, publisher string, attributes string, body_bytes bigint"
SUBSCRIPTIONS_SCHEMA = "client string, broker string, where string"
ROWS_PER_BLOCK = 8192
ROWS_MAX = 10**10  # more is a slip of the keyboard
NUMBER_MAX = 9_999  # integer attributes lie between 0 and this; a subscription takes a tenth of them
NUMBER_SPAN = 999

Uniform = NDArray[np.float64]
Integers = NDArray[np.int64]
Columns = dict[str, list[Any]]
Draw = Callable[["WorkloadSpec", int, int, np.random.Generator], Columns]


@dataclass(frozen=True, kw_only=True)
class WorkloadSpec:
    """What to draw. The defaults are SETUP-BDRP8's (experiments.md 0.1), whose own values 002 gives only in part."""

    seed: int = 0
    publications: int = 1_000_000
    subscriptions: int = 400
    duration: float = 300.0  # seconds; publications are spread evenly over it
    brokers: int = 8
    clients: int = 400  # client i stands at broker i modulo `brokers`; subscription j belongs to client j modulo this
    publishers: int = 50  # the first so many clients
    hot_publishers: int = 2  # the first so many of them
    hot_share: float = 2 / 3  # of all publications come from the hot ones: 2400 of 3600 a second in 002 section 3.1
    names: int = 10  # of attributes
    number_names: int = 0  # of these, how many are integers, asked for by ranges; the others are strings
    names_per_message: int = 10
    constraints_min: int = 1
    constraints_max: int = 3
    values: int = 100  # of a string attribute
    zipf: float = 1.0  # the n-th value has weight 1/n^zipf
    locality: float = 0.0  # how likely a value is drawn by the ranking of the home broker and not by everybody's
    body_bytes: int = 300

    def __post_init__(self) -> None:
        for name in ("brokers", "clients", "publishers", "names", "values", "names_per_message", "constraints_min"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.publications <= ROWS_MAX or not 0 <= self.subscriptions <= ROWS_MAX:
            raise ValueError(f"publications and subscriptions must lie between 0 and {ROWS_MAX:,}")
        if not 0.0 < self.duration <= 86_400.0 or not 0 <= self.body_bytes <= DEFAULT_LIMITS.body_bytes_max:
            raise ValueError("duration must be more than 0 and at most a day, body_bytes as a message allows")
        if self.names > 1000 or self.names_per_message > DEFAULT_LIMITS.attributes_max:
            raise ValueError(f"names must be at most 1000, names_per_message at most {DEFAULT_LIMITS.attributes_max}")
        if not (self.constraints_min <= self.constraints_max <= self.names and self.names_per_message <= self.names):
            raise ValueError("constraints_min <= constraints_max <= names and names_per_message <= names must hold")
        if not (0 <= self.hot_publishers <= self.publishers <= self.clients and 0 <= self.number_names <= self.names):
            raise ValueError("hot_publishers <= publishers <= clients and number_names <= names must hold")
        if not (0.0 <= self.hot_share <= 1.0 and 0.0 <= self.locality <= 1.0 and 0.0 <= self.zipf <= 10.0):
            raise ValueError("hot_share and locality must lie between 0 and 1, zipf between 0 and 10")


class DrawnPublication(NamedTuple):
    """One publication as a simulator wants it; `client` is its publisher."""

    time: float
    client: str
    attributes: dict[str, Value]
    body_bytes: int


class DrawnSubscription(NamedTuple):
    client: str
    broker: str
    where: str


def publications(spark: SparkSession, spec: WorkloadSpec, *, partitions: int | None = None) -> DataFrame:
    """PUBLICATIONS_SCHEMA in order of time; the number of partitions changes nothing but the files."""
    return _drawn(spark, spec, spec.publications, _draw_publications, PUBLICATIONS_SCHEMA, partitions)


def subscriptions(spark: SparkSession, spec: WorkloadSpec, *, partitions: int | None = None) -> DataFrame:
    """SUBSCRIPTIONS_SCHEMA in order of their numbers."""
    return _drawn(spark, spec, spec.subscriptions, _draw_subscriptions, SUBSCRIPTIONS_SCHEMA, partitions)


def write_workload(spark: SparkSession, spec: WorkloadSpec, folder: Path, *, partitions: int | None = None) -> None:
    """Draw it all and put it there, in place of what was there before; `workload.json` comes last, when all is well."""
    head = folder / "workload.json"
    if folder.is_dir() and any(folder.iterdir()) and not head.exists():
        raise InvalidRun(
            str(folder), "holds files and no workload.json, so it is no workload's folder; name another one"
        )
    head.unlink(missing_ok=True)
    publications(spark, spec, partitions=partitions).write.mode("overwrite").parquet(str(folder / "publications"))
    subscriptions(spark, spec, partitions=partitions).write.mode("overwrite").parquet(str(folder / "subscriptions"))
    head.write_text(json.dumps(asdict(spec), indent=2) + "\n")


def read_spec(folder: Path) -> WorkloadSpec:
    """How the workload in this folder was drawn; raises InvalidRun if there is none."""
    try:
        return WorkloadSpec(**json.loads((folder / "workload.json").read_text()))
    except OSError as error:
        raise InvalidRun(str(folder), f"is no workload: workload.json cannot be read ({error.strerror})") from None
    except (TypeError, ValueError) as error:
        raise InvalidRun(str(folder / "workload.json"), f"does not describe a workload: {error}") from None


def read_publications(folder: Path, *, batch_rows: int = 4096) -> Iterator[DrawnPublication]:
    """All publications in order of time, a few at a time in memory."""
    decode = msgspec.json.Decoder(dict[str, Value]).decode
    for batch in _batches(folder / "publications", batch_rows):
        columns = (batch.column(name).to_pylist() for name in ("time", "publisher", "attributes", "body_bytes"))
        for time, publisher, attributes, body_bytes in zip(*columns, strict=True):
            yield DrawnPublication(time, publisher, decode(attributes), body_bytes)


def read_subscriptions(folder: Path, *, batch_rows: int = 4096) -> Iterator[DrawnSubscription]:
    """All subscriptions in order of their numbers."""
    for batch in _batches(folder / "subscriptions", batch_rows):
        columns = (batch.column(name).to_pylist() for name in ("client", "broker", "where"))
        yield from (DrawnSubscription(*row) for row in zip(*columns, strict=True))


def _batches(folder: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    # Spark numbers its part files in the order of the partitions, and the name begins with that number.
    for path in sorted(folder.glob("part-*.parquet")):
        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_rows)


# In the workers ---------------------------------------------------------------------------------------------------


def _drawn(
    spark: SparkSession, spec: WorkloadSpec, rows: int, draw: Draw, schema: str, partitions: int | None
) -> DataFrame:
    blocks = -(-rows // ROWS_PER_BLOCK)
    partitions = partitions or max(1, min(blocks, 2 * spark.sparkContext.defaultParallelism))
    numbers = spark.range(0, blocks, numPartitions=partitions)
    return numbers.mapInArrow(partial(_draw_blocks, spec, rows, draw), schema)


def _draw_blocks(
    spec: WorkloadSpec, rows: int, draw: Draw, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for block in batch.column("id").to_pylist():
            begin = block * ROWS_PER_BLOCK
            # The block is a high word of the generator's counter, so blocks never run into each other.
            bits = np.random.Philox(key=derive(spec.seed, "workload", draw.__name__), counter=block << 128)
            columns = draw(spec, begin, min(ROWS_PER_BLOCK, rows - begin), np.random.Generator(bits))
            yield pa.RecordBatch.from_pydict(columns)


def _draw_publications(spec: WorkloadSpec, begin: int, rows: int, random: np.random.Generator) -> Columns:
    # What a row draws must not depend on `rows`: every block is drawn whole and cut afterwards.
    size = ROWS_PER_BLOCK
    # One publication in each slot of duration/publications, at a random place in it: in order of time by construction.
    times = (begin + np.arange(size) + random.random(size)) * (spec.duration / spec.publications)
    publishers = _publishers(spec, random.random(size), random.random(size))
    names = np.sort(_subsets(random.random((size, spec.names)), spec.names_per_message), axis=1)
    values = _values(spec, names, publishers % spec.brokers, NUMBER_MAX, random)
    as_json = partial(_as_json, spec.names - spec.number_names)
    return {
        "time": times[:rows].tolist(),
        "publisher": [client_name(number) for number in publishers[:rows].tolist()],
        "attributes": ["{" + ",".join(map(as_json, *row)) + "}" for row in _pairs(names, values, rows)],
        "body_bytes": [spec.body_bytes] * rows,
    }


def _draw_subscriptions(spec: WorkloadSpec, begin: int, rows: int, random: np.random.Generator) -> Columns:
    size = ROWS_PER_BLOCK
    clients = (begin + np.arange(size)) % spec.clients
    lengths = spec.constraints_min + _below(random.random(size), spec.constraints_max - spec.constraints_min + 1)
    names = _subsets(random.random((size, spec.names)), spec.constraints_max)
    values = _values(spec, names, clients % spec.brokers, NUMBER_MAX - NUMBER_SPAN, random)
    asked = partial(_asked, spec.names - spec.number_names)
    wheres = (list(map(asked, *row)) for row in _pairs(names, values, rows))
    return {
        "client": [client_name(number) for number in clients[:rows].tolist()],
        "broker": [broker_name(number % spec.brokers) for number in clients[:rows].tolist()],
        "where": [" AND ".join(some[:length]) for some, length in zip(wheres, lengths[:rows].tolist(), strict=True)],
    }


def client_name(number: int) -> str:
    return f"client-{number}"


def broker_name(number: int) -> str:
    return f"broker-{number}"


def _publishers(spec: WorkloadSpec, which: Uniform, who: Uniform) -> Integers:
    calm = spec.publishers - spec.hot_publishers
    if spec.hot_publishers == 0 or calm == 0:
        return _below(who, spec.publishers)
    hot = _below(who, spec.hot_publishers)
    return np.where(which < spec.hot_share, hot, spec.hot_publishers + _below(who, calm))


def _subsets(keys: Uniform, size: int) -> Integers:
    """For each row of random keys, `size` distinct places in random order."""
    return np.argsort(keys, axis=1, kind="stable")[:, :size]


def _values(
    spec: WorkloadSpec, names: Integers, brokers: Integers, number_max: int, random: np.random.Generator
) -> Integers:
    """For each name a value: the rank of a string, Zipf, or an integer up to `number_max`.

    With locality, the ranking of broker i is turned by i parts of the circle: each broker has its own favourites.
    """
    weights = np.arange(1, spec.values + 1, dtype=np.float64) ** -spec.zipf
    steps = np.cumsum(weights) / weights.sum()
    ranks = np.minimum(np.searchsorted(steps, random.random(names.shape), side="right"), spec.values - 1)
    turned = (ranks + (brokers * spec.values // spec.brokers)[:, None]) % spec.values
    ranks = np.where(random.random(names.shape) < spec.locality, turned, ranks)
    numbers = _below(random.random(names.shape), number_max + 1)
    return np.where(names < spec.names - spec.number_names, ranks, numbers)


def _below(uniform: Uniform, limit: int) -> Integers:
    return (uniform * limit).astype(np.int64)


def _pairs(names: Integers, values: Integers, rows: int) -> Iterator[tuple[list[int], list[int]]]:
    return zip(names[:rows].tolist(), values[:rows].tolist(), strict=True)


@lru_cache(maxsize=1 << 17)
def _as_json(strings: int, name: int, value: int) -> str:
    """An attribute as a part of a JSON object. Names are padded, so that they are sorted as numbers and as texts."""
    return f'"a{name:03}":"v{value}"' if name < strings else f'"a{name:03}":{value}'


def _asked(strings: int, name: int, value: int) -> str:
    """A constraint on it. The first `strings` names are strings, the others integers."""
    return f"a{name:03} = 'v{value}'" if name < strings else f"a{name:03} BETWEEN {value} AND {value + NUMBER_SPAN}"

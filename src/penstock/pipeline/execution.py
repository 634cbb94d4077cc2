"""Metrics on Spark: one job for all of them, from the files of some runs or from DataFrames.

    results = compute(spark, tables, metrics, wanted)    # every result as an Arrow table, for the pipeline
    frame = table_of(metric, {"delivered": delivered})   # one metric as DataFrame -> DataFrame, for everybody

Both follow a `MetricPlan`. The tasks of round 0 see the rows of the trace as they come, a bounded part at a time: read
straight from the part files, of which Spark only says who reads which (its own reader takes columns apart into rows and
puts them together again, which costs more than all the rest), or handed over by Spark. What must meet is sent on in
parcels, and the tasks of each further round work on all parcels of their bucket. Results come out as parcels as well:
`compute` collects these and adds their parts up, so nothing but results reaches the driver.

Memory: a task of round 0 holds CHUNK_ROWS rows. A task of a later round holds, in its Python worker, everything about
its keys at once. That is a share of the trace, about BUCKET_BYTES as compressed in files, unless one key has more: all
deliveries of a publisher are in one task, and then the delays of all deliveries of a run, which the percentiles of the
run are taken from. Only the delays travel there: a number of 8 bytes for each delivery, or two where messages waited.
Thirty million deliveries of one publisher, whose messages all waited, took a worker 5.4 GB. Java holds some parcels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import PipelineError
from penstock.pipeline.metric import Metric, MetricPlan
from penstock.pipeline.parcels import PARCELS, ParcelSender, batches_of, conform, joined, open_parcels, plain

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.read import Tables

    Batches = Iterable[pa.RecordBatch]

CHUNK_ROWS = 1 << 18  # rows that a task of round 0 works on at a time
BUCKET_BYTES = 32 << 20  # of trace files for each task of a later round: three million deliveries
TASKS_PER_CORE = 2  # a file more or less for one task is then no great matter
TASK_BYTES_MIN, TASK_BYTES_MAX = 1 << 20, 64 << 20  # less costs more than it saves; more is long to do again
RESULT = "result "


@dataclass(frozen=True)
class PartFile:
    """A file to be read: of which kind and run, and up to which time."""

    kind: str
    run: str
    path: str
    bytes: int
    until: float


# On the driver ----------------------------------------------------------------------------------------------------


def compute(
    spark: SparkSession, tables: Tables, metrics: Iterable[Metric], wanted: Iterable[str]
) -> dict[str, pa.Table]:
    """The wanted results over all runs that have been read."""
    plan = MetricPlan(metrics, wanted, kind_ddls())
    files = [file for file in part_files_of(tables) if file.kind in plan.sources]
    size = sum(file.bytes for file in files)
    cores = spark.sparkContext.defaultParallelism
    groups = _shares(files, max(cores, min(TASKS_PER_CORE * cores, size // TASK_BYTES_MIN), size // TASK_BYTES_MAX))
    buckets = max(cores, -(-size // BUCKET_BYTES))
    tasks = spark.range(0, len(groups), numPartitions=max(1, len(groups)))
    parcels = tasks.mapInArrow(partial(_file_round, plan, groups, buckets), PARCELS)
    ddls = {RESULT + name: plan.ddls[name] for name in plan.wanted}
    found = open_parcels(_further_rounds(parcels, plan, buckets).toArrow(), ddls)
    chosen = [metric for metric in plan.metrics if metric.name in plan.wanted]
    return {metric.name: _added_up(found[RESULT + metric.name], metric) for metric in chosen}


def read_kind(tables: Tables, kind: str, columns: Sequence[str]) -> pa.Table:
    """All records of a kind, here and now; for kinds of which there are few."""
    ddl = kind_ddls()[kind]
    parts = [_read(file, columns, ddl) for file in part_files_of(tables) if file.kind == kind]
    return joined([conform(part, ddl) for part in parts], ddl).select(["run", *columns])


def table_of(
    metric: Metric, frames: Mapping[str, DataFrame], helpers: Sequence[Metric] = (), *, tasks: int | None = None
) -> DataFrame:
    """One metric over these tables; `helpers` make what it reads and nobody has given."""
    from pyspark.sql import functions as F

    given = {name: ", ".join(f"`{column}` {kind}" for column, kind in table.dtypes) for name, table in frames.items()}
    plan = MetricPlan([*helpers, metric], [metric.name], given)
    spark = next(iter(frames.values())).sparkSession
    buckets = tasks or max(
        spark.sparkContext.defaultParallelism, int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    )
    final = metric.name if plan.last == 0 else None
    ddl = metric.ddl if final else PARCELS
    parts = [
        frames[name].select("run", *columns).mapInArrow(partial(_table_round, plan, name, buckets, final), ddl)
        for name, columns in plan.sources.items()
    ]
    found = reduce(lambda one, other: one.unionAll(other), parts)
    if plan.last:
        found = _further_rounds(found, plan, buckets, metric)
    if not metric.totals:
        return found
    keys = [name for name in metric.columns if name not in metric.totals]
    sums = [getattr(F, how)(column).alias(column) for column, how in metric.totals.items()]
    return found.groupBy(*keys).agg(*sums).select(*metric.columns)


def kind_ddls() -> dict[str, str]:
    """The columns of every kind of record."""
    # Not above: workers, who know what they read from their plan, would import brokers and clients for nothing.
    from penstock.kernel.trace_files import kind_name
    from penstock.pipeline.schema import table_ddl
    from penstock.services import record_kinds

    return {kind_name(kind): table_ddl(kind) for kind in record_kinds()}


def part_files_of(tables: Tables) -> list[PartFile]:
    """All good part files of these runs, in order."""
    until = {run.run: run.until for run in tables.runs}
    return [
        PartFile(kind, run, str(path), path.stat().st_size, until[run])
        for kind, files in tables.files.items()
        for path, run in files.items()
    ]


def _shares(files: Sequence[PartFile], tasks: int) -> list[list[PartFile]]:
    """Files that follow each other, in about as many shares of about the same size."""
    share = sum(file.bytes for file in files) / tasks
    shares: list[list[PartFile]] = []
    before = 0.0
    for file in files:
        if not shares or before >= share * len(shares):
            shares.append([])
        shares[-1].append(file)
        before += file.bytes
    return shares


def _further_rounds(parcels: DataFrame, plan: MetricPlan, buckets: int, only: Metric | None = None) -> DataFrame:
    """All rounds after the first; the last one gives rows of the `only` metric, if there is one, and else parcels."""
    for number in range(1, plan.last + 1):
        final = only.name if only is not None and number == plan.last else None
        ddl = only.ddl if only is not None and final else PARCELS
        met = parcels.repartitionById(buckets, parcels["bucket"])
        parcels = met.mapInArrow(partial(_parcel_round, plan, number, buckets, final), ddl)
    return parcels


def _added_up(table: pa.Table, metric: Metric) -> pa.Table:
    """The parts of a result as one."""
    table = plain(table, metric.ddl)
    if not metric.totals:
        return table
    keys = [name for name in metric.columns if name not in metric.totals]
    summed = table.group_by(keys, use_threads=False).aggregate(list(metric.totals.items()))
    renamed = summed.rename_columns([*keys, *metric.totals])
    return plain(renamed, metric.ddl)


# In the tasks -----------------------------------------------------------------------------------------------------


class _Task:
    """The work of one task in one round."""

    def __init__(self, plan: MetricPlan, number: int, buckets: int, final: str | None) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        self._plan, self._round, self._final = plan, number, final
        self._sender = ParcelSender(context.partitionId() if context else 0, buckets)
        self._metrics = plan.working(number)

    def work(self, made: dict[str, pa.Table], mail: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        """From tables that are there already, and from what came in parcels: whatever goes on from here."""
        for name in list(made):
            yield from self._sent_on(name, made[name])
        for metric in self._metrics:
            parts = [metric.work(tables) for tables in self._inputs(metric, made, mail)]
            made[metric.name] = joined([conform(part, metric.ddl) for part in parts], metric.ddl)
            if metric.name in self._plan.wanted:
                yield from self.result(metric.name, made[metric.name])
            yield from self._sent_on(metric.name, made[metric.name])

    def result(self, name: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """A part of a result: as rows where it is the only one, else as a parcel to the end."""
        if self._final == name:
            yield from plain(table, self._plan.ddls[name]).to_batches()
        else:
            yield from self._sender.to_end(table, self._plan.last + 1, RESULT + name)

    def _inputs(
        self, metric: Metric, made: Mapping[str, pa.Table], mail: Mapping[str, pa.Table]
    ) -> Iterator[dict[str, pa.Table]]:
        if not metric.together:
            yield from ({name: made[name]} for name in metric.reads if name in made and made[name].num_rows)
            return
        shipped = {name: self._plan.shipment(metric, name) for name in metric.reads}
        tables = {name: mail[one.address] if one else made[name] for name, one in shipped.items()}
        if any(table.num_rows for table in tables.values()):
            yield tables

    def _sent_on(self, name: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
        for one in self._plan.shipments:
            if one.table == name and one.to_round > self._round:
                part = table.select(["run", *one.columns])
                yield from self._sender.to_keys(part, one.keys, one.to_round, one.address)


def _table_round(
    plan: MetricPlan, name: str, buckets: int, final: str | None, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Round 0 over the rows of a DataFrame."""
    import pyarrow as pa

    task, ddl = _Task(plan, 0, buckets, final), plan.ddls[name]
    for chunk in _chunks(pa.Table.from_batches([batch]) for batch in batches):
        yield from task.work({name: joined([conform(chunk, ddl)], ddl)}, {})


def _file_round(
    plan: MetricPlan, groups: Sequence[Sequence[PartFile]], buckets: int, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Round 0 over the part files of each task."""
    task = _Task(plan, 0, buckets, None)
    for batch in batches:
        for number in batch.column("id").to_pylist():
            for kind, files in groupby(groups[number], key=lambda file: file.kind):
                for chunk in _chunks(_read(file, plan.sources[kind], plan.ddls[kind]) for file in files):
                    yield from task.work({kind: joined([chunk], plan.ddls[kind])}, {})


def _parcel_round(
    plan: MetricPlan, number: int, buckets: int, final: str | None, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """A later round over the parcels of each task."""
    import pyarrow.compute as pc

    parcels = batches_of(batches)
    if parcels is None:
        return
    task = _Task(plan, number, buckets, final)
    for_us = pc.equal(parcels["round"], number)
    others = parcels.filter(pc.invert(for_us))
    if final is None:
        yield from others.to_batches()
    elif others.num_rows:
        yield from task.result(final, open_parcels(others, {RESULT + final: plan.ddls[final]})[RESULT + final])
    expected = {one.address: plan.ddls[one.table] for one in plan.shipments if one.to_round == number}
    columns = {one.address: ("run", *one.columns) for one in plan.shipments if one.to_round == number}
    mail = open_parcels(parcels.filter(for_us), expected)
    yield from task.work({}, {address: table.select(columns[address]) for address, table in mail.items()})


def _chunks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables of a bounded size from many small ones."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    for table in tables:
        if table.num_rows:
            waiting.append(table)
        if sum(one.num_rows for one in waiting) >= CHUNK_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _read(file: PartFile, columns: Sequence[str], ddl: str) -> pa.Table:
    """The columns of a file, with its run in front."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    texts = [name for name in columns if f"`{name}` string" in ddl and name != "attributes"]
    cut = file.until < inf and "time" not in columns
    # One thread: Spark has given each core a task already.
    with parquet.ParquetFile(file.path, read_dictionary=texts, page_checksum_verification=True) as opened:
        table = opened.read([*columns, *(["time"] if cut or not columns else [])], use_threads=False)
    for name in {"time", "waited"} & set(table.column_names):
        if not pc.all(pc.is_finite(table[name]), min_count=0).as_py():
            problem = f"has a record whose `{name}` is nan or inf; remove it, or mend its writer"
            raise PipelineError(f"{file.path}: {problem}")
    if file.until < inf:
        table = table.filter(pc.less(table["time"], file.until))
    run = pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, dtype=np.int32), pa.array([file.run]))
    return table.select(list(columns)).add_column(0, "run", run)

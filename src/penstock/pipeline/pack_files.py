"""Packs straight from the part files of a trace.

`packs.pack` gets its rows from Spark's own reader, which takes columns apart into rows, and puts them together again as
Arrow batches for Python. For ten million deliveries that costs more than all the rest. Here Spark only says which task
reads which files, and the tasks read them with pyarrow: half the time for a whole metric, and the same packs.

A task gets files that follow each other, so its packs follow each other in time and nobody needs to sort them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.kernel.trace import Delivered, Published, Record
from penstock.kernel.trace_files import columns
from penstock.pipeline.metrics.shared import DELIVERY_KEYS, DELIVERY_LAYOUT, PUBLICATION_LAYOUT
from penstock.pipeline.packs import BINARY, PACK_ROWS_MAX, ROWS, pack_table
from penstock.pipeline.read import RunFolder, part_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE = 2  # a file more or less for one task is then no great matter
_SPARK_TYPES = {str: "string", int: "bigint", float: "double"}

_File = tuple[str, str, float]  # the name of its run, its path, and how far that run is looked at
_Groups = list[list[_File]]  # for each task its files


def packed_deliveries(spark: SparkSession, runs: Sequence[RunFolder]) -> DataFrame:
    """What `metrics.pack_deliveries` makes of the deliveries of these runs."""
    until = {run.run: run.until for run in runs}
    return pack_files(spark, files_of(runs, Delivered), Delivered, DELIVERY_KEYS, tuple(DELIVERY_LAYOUT), until)


def packed_publications(spark: SparkSession, runs: Sequence[RunFolder]) -> DataFrame:
    """The publications of these runs, packed by run and publisher."""
    until = {run.run: run.until for run in runs}
    return pack_files(spark, files_of(runs, Published), Published, DELIVERY_KEYS[:2], tuple(PUBLICATION_LAYOUT), until)


def files_of(runs: Iterable[RunFolder], kind: type[Record]) -> dict[Path, str]:
    """All part files of a kind with the names of their runs, in order."""
    return {path: run.run for run in runs for path in part_files(run.folder, kind)}


def pack_files(
    spark: SparkSession,
    files: Mapping[Path, str],
    kind: type[Record],
    keys: Sequence[str],
    values: Sequence[str],
    until: Mapping[str, float],
) -> DataFrame:
    """The rows of these files, packed by `keys`; a key may come in several packs. The files must be good ones.

    Of each run only what happened before its `until` is taken.
    """
    types = {"run": str, **columns(kind)}
    layout = {name: BINARY[_SPARK_TYPES[types[name]]] for name in values}
    ddl = ", ".join(
        [*(f"`{name}` string" for name in keys), f"`{ROWS}` bigint", *(f"`{name}` binary" for name in values)]
    )
    listed = [(run, str(path), until[run]) for path, run in files.items()]
    size = -(-len(listed) // (TASKS_PER_CORE * spark.sparkContext.defaultParallelism)) or 1
    groups = [listed[begin : begin + size] for begin in range(0, len(listed), size)]
    tasks = spark.range(0, len(groups), numPartitions=max(1, len(groups)))
    return tasks.mapInArrow(partial(_pack_groups, groups, tuple(keys), layout), ddl)


def _pack_groups(
    groups: _Groups, keys: tuple[str, ...], layout: dict[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for number in batch.column("id").to_pylist():
            waiting: list[pa.Table] = []
            for table in _tables(groups[number], [name for name in keys if name != "run"] + list(layout)):
                waiting.append(table)
                if sum(len(one) for one in waiting) >= PACK_ROWS_MAX:
                    yield from pack_table(pa.concat_tables(waiting), keys, layout)
                    waiting = []
            if waiting:
                yield from pack_table(pa.concat_tables(waiting), keys, layout)


def _tables(files: list[_File], names: list[str]) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    for run, path, until in files:
        # One thread: Spark has given each core a task already.
        table = parquet.read_table(path, columns=names, use_threads=False, page_checksum_verification=True)
        if until < inf:
            table = table.filter(pc.less(table.column("time"), until))
        yield table.append_column("run", pa.array([run] * len(table), pa.string()))

"""Runs on disk -> one DataFrame for each kind of record.

What is wrong with a run is found before Spark starts on it. A part file whose footer cannot be read, or whose columns
are not those of its kind, is named and stops the pipeline; with `allow_partial` it is left out, and the tables say so.
Pages inside the files carry checksums, which Spark verifies as it reads; with `allow_partial` they are verified here,
since a file must then be known to be good before it is taken.

A run that is not complete (it crashed, or is still going) is read as far as it got, with a warning.

One run gets its name as a constant column. Several are read in one scan, and a broadcast join tells from each row's
file which run it belongs to: a scan for each run would cost more than the work for a hundred small ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from penstock.errors import InvalidRun
from penstock.kernel.trace import Record
from penstock.kernel.trace_files import TRACE_FOLDER, arrow_schema, kind_name
from penstock.pipeline.schema import checked, file_ddl, parse_ddl, table_ddl
from penstock.services import record_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_FILE = "run.json"
GRACE = 1.0  # seconds that a subscription may take to be known everywhere, where the scenario does not say
WAYS_OUT = "remove it and make the run again, or leave it out with --allow-partial"


class RunHead(Struct, frozen=True):
    """The part of `run.json` that the pipeline looks at."""

    name: str
    seed: int
    complete: bool
    scenario: dict[str, Any] = {}


@dataclass(frozen=True)
class RunFolder:
    """A run to be read: its name in the column `run`, its folder, and what `run.json` says."""

    run: str
    folder: Path
    head: RunHead
    grace: float = GRACE  # seconds that a subscription of this run may take to be known everywhere: its own `settle`
    until: float = inf  # only what happened before is looked at; less than inf for a run that is not complete
    unjudged: tuple[tuple[float, float], ...] = ()  # stretches of time: what was published in them is not due


@dataclass(frozen=True)
class Tables:
    """All runs that were asked for, one DataFrame for each kind of record, each with the column `run`."""

    kinds: dict[str, DataFrame]  # table -> its rows; there is one for every kind, also if nothing of it happened
    runs: tuple[RunFolder, ...]
    warnings: tuple[str, ...] = ()  # what a person should know: incomplete runs, files left out
    files: dict[str, dict[Path, str]] = field(default_factory=dict)  # for each kind its good part files and their runs

    def __getattr__(self, kind: str) -> DataFrame:
        """`tables.delivered`: the table of a kind."""
        if kind.startswith("_") or kind not in self.kinds:
            raise AttributeError(f"no kind of record has a table '{kind}'; there are {', '.join(sorted(self.kinds))}")
        return self.kinds[kind]


def read_runs(
    spark: SparkSession, folders: Iterable[Path | str], *, allow_partial: bool = False, grace: float | None = None
) -> Tables:
    """The tables of these runs; raises InvalidRun for a folder that holds none, or a part file that is damaged."""
    runs = find_runs(folders, grace=grace)
    warnings = [f"{run.folder}: incomplete run (it crashed or is still going)" for run in runs if not run.head.complete]
    frames = {}
    good: dict[str, dict[Path, str]] = {}
    for kind in record_kinds():
        files = good.setdefault(kind_name(kind), {})
        for run in runs:
            for path in part_files(run.folder, kind):
                problem = damage(path, kind, thorough=allow_partial)
                if problem is None:
                    files[path] = run.run
                elif allow_partial:
                    warnings.append(f"{path}: left out, {problem}")
                else:
                    raise InvalidRun(str(path), f"{problem}; {WAYS_OUT}")
        frames[kind_name(kind)] = _read(spark, kind, files, {run.run: run.until for run in runs})
    return Tables(frames, runs=runs, warnings=tuple(warnings), files=good)


def find_runs(folders: Iterable[Path | str], *, grace: float | None = None) -> tuple[RunFolder, ...]:
    """Look at each `run.json`. A run is named by the last two parts of its path. `grace` counts for all, if given."""
    runs: dict[str, RunFolder] = {}
    for given in folders:
        folder = Path(given).resolve()
        head = _head(folder)
        own = float(head.scenario.get("settle", GRACE)) if grace is None else grace
        run = RunFolder("/".join(folder.parts[-2:]), folder, head, own)
        if run.run in runs:
            raise InvalidRun(str(folder), f"has the same name as {runs[run.run].folder}; each run needs its own")
        runs[run.run] = run
    return tuple(runs.values())


def part_files(folder: Path, kind: type[Record]) -> list[Path]:
    """The finished part files of a kind, in order; none if it never happened."""
    return sorted((folder / TRACE_FOLDER / kind_name(kind)).glob("part-*.parquet"))


def trace_bytes(runs: Iterable[RunFolder]) -> int:
    """How large the traces of these runs are."""
    return sum(path.stat().st_size for run in runs for kind in record_kinds() for path in part_files(run.folder, kind))


def damage(path: Path, kind: type[Record], *, thorough: bool) -> str | None:
    """What is wrong with a part file; None if nothing is. `thorough` reads every page and verifies its checksum."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, page_checksum_verification=thorough) as file:
            if not file.schema_arrow.equals(arrow_schema(kind)):
                return f"its columns are not those of {kind.__name__}: it was written by another version of Penstock"
            if thorough:
                for group in range(file.num_row_groups):
                    file.read_row_group(group)
    except (OSError, pa.ArrowException) as error:
        return f"is damaged ({str(error).splitlines()[0][:120]})"
    return None


def find_damage(runs: Iterable[RunFolder]) -> InvalidRun | None:
    """Read every page of every part file: who wants to know why Spark failed does not mind the time."""
    for run in runs:
        for kind in record_kinds():
            for path in part_files(run.folder, kind):
                problem = damage(path, kind, thorough=True)
                if problem is not None:
                    return InvalidRun(str(path), f"{problem}; {WAYS_OUT}")
    return None


def _head(folder: Path) -> RunHead:
    try:
        return msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=RunHead)
    except OSError as error:
        raise InvalidRun(str(folder), f"is no run: {RUN_FILE} cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRun(str(folder / RUN_FILE), f"does not describe a run: {error}") from None


def _read(spark: SparkSession, kind: type[Record], files: dict[Path, str], until: dict[str, float]) -> DataFrame:
    """One DataFrame over these files, with the run of each, as far as that run is looked at."""
    from pyspark.sql import functions as F

    if not files:
        return spark.createDataFrame([], parse_ddl(table_ddl(kind)))
    rows = spark.read.schema(parse_ddl(file_ddl(kind))).parquet(*map(_address, files))
    names = sorted(set(files.values()))
    if len(names) == 1:
        if until[names[0]] < inf:
            rows = rows.where(F.col("time") < until[names[0]])
        return checked(rows.withColumn("run", F.lit(names[0])), table_ddl(kind), kind_name(kind))
    places = spark.createDataFrame(_runs_of(rows.inputFiles(), files), "`file` string, `run` string")
    tagged = rows.withColumn("file", F.col("_metadata.file_path")).join(F.broadcast(places), "file").drop("file")
    for run in names:
        if until[run] < inf:
            tagged = tagged.where((F.col("run") != run) | (F.col("time") < until[run]))
    return checked(tagged, table_ddl(kind), kind_name(kind))


def _address(path: Path) -> str:
    """The path as Spark wants it: not encoded as in a URI, but without anything that it would take for a pattern."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))


def _runs_of(uris: Sequence[str], files: dict[Path, str]) -> list[tuple[str, str]]:
    """Which run each file belongs to, under both spellings of an address that Spark has for it."""
    pairs = [(uri, files[Path(unquote(urlsplit(uri).path))]) for uri in uris]
    return pairs + [(uri.replace("file:///", "file:/", 1), run) for uri, run in pairs]

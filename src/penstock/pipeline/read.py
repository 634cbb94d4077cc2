"""Runs on disk -> one DataFrame for each kind of record.

What is wrong with a run is found before Spark starts on it. A part file whose footer cannot be read, or whose columns
are not those of its kind, is named and stops the pipeline; with `allow_partial` it is left out, and the tables say so.
Pages inside the files carry checksums, which are verified as they are read, by Arrow in the pipeline (`execution`) and
by Spark for these DataFrames; with `allow_partial` they are verified here, since a file must then be known to be good
before it is taken.

A run that is not complete (it crashed, or is still going) is read as far as it certainly got, with a warning. What
that means for its numbers, and what a part file that is left out means for them, stands in `extent`.

One run gets its name as a constant column. Several are read in one scan, and a broadcast join tells from each row's
file which run it belongs to: a scan for each run would cost more than the work for a hundred small ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from penstock.errors import InvalidRun
from penstock.kernel.trace import Record
from penstock.kernel.trace_files import TRACE_FOLDER, arrow_schema, kind_name
from penstock.kernel.trace_marks import Mark, read_marks
from penstock.pipeline.extent import (
    INCOMPLETE,
    UNDER_WAY,
    CheckFinding,
    LostRecords,
    Part,
    find_losses,
    lost_records,
    marks_that_matter,
    reached,
    seconds,
    unjudged_checks,
    unjudged_stretches,
)
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
    records: dict[str, int] | None = None  # of each kind; older versions did not count them
    cut_off: tuple[str, ...] = ()  # writers of the trace that were killed
    left_out: tuple[tuple[float, float], ...] = ()  # times of which a watch has not all records


@dataclass(frozen=True)
class RunFolder:
    """A run to be read: its name in the column `run`, its folder, and what `run.json` says."""

    run: str
    folder: Path
    head: RunHead
    grace: float = GRACE  # seconds that a subscription of this run may take to be known everywhere: its own `settle`
    until: float = inf  # only what happened before is looked at; less than inf for a run that is not complete
    unjudged: tuple[tuple[float, float], ...] = ()  # stretches of time: what was published in them is not due
    unjudged_checks: frozenset[str] = frozenset()  # that would find fault with what is only lost
    marks: tuple[Mark, ...] = ()  # of those who wrote the trace

    @property
    def under_way(self) -> float:
        """Seconds that a message of this run may be under way."""
        return max(UNDER_WAY, _seconds_of(self.folder, self.head, "drain", UNDER_WAY))


@dataclass(frozen=True)
class Tables:
    """All runs that were asked for, one DataFrame for each kind of record, each with the column `run`."""

    kinds: dict[str, DataFrame]  # table -> its rows, as far as somebody has asked for them
    runs: tuple[RunFolder, ...]
    warnings: tuple[str, ...] = ()  # what a person should know: incomplete runs, files left out
    findings: tuple[CheckFinding, ...] = ()  # the same and more, for the checks
    files: dict[str, dict[Path, str]] = field(default_factory=dict)  # for each kind its good part files and their runs
    spark: SparkSession | None = None  # reads what nobody has asked for yet

    @property
    def until(self) -> dict[str, float]:
        """How far each run is looked at."""
        return {run.run: run.until for run in self.runs}

    def __getattr__(self, kind: str) -> DataFrame:
        """`tables.delivered`: the table of a kind. There is one for every kind, also if nothing of it happened."""
        known = {kind_name(one): one for one in record_kinds()}
        if kind.startswith("_") or kind not in known:
            raise AttributeError(f"no kind of record has a table '{kind}'; there are {', '.join(sorted(known))}")
        if kind not in self.kinds:
            assert self.spark is not None
            self.kinds[kind] = _read(self.spark, known[kind], self.files[kind], self.until)
        return self.kinds[kind]


def read_runs(
    spark: SparkSession, folders: Iterable[Path | str], *, allow_partial: bool = False, grace: float | None = None
) -> Tables:
    """The tables of these runs; raises InvalidRun for a folder that holds none, or a part file that is damaged."""
    runs = find_runs(folders, grace=grace)
    warnings = [f"{run.folder}: {_incomplete(run)}" for run in runs if not run.head.complete]
    findings = [CheckFinding(run.run, INCOMPLETE, 1, _incomplete(run)) for run in runs if not run.head.complete]
    good: dict[str, dict[Path, str]] = {kind_name(kind): {} for kind in record_kinds()}
    judged = []
    for run in runs:
        parts = list(look_at(run, thorough=allow_partial))
        run = _with_marks_that_matter(run, parts)
        bad = [part for part in parts if part.problem is not None]
        if bad and not allow_partial:
            raise invalid(bad[0])
        warnings += [f"{part.path}: left out, {part.problem}" for part in bad]
        findings += find_losses(run.run, parts, run.marks, run.head.records, complete=run.head.complete)
        judged.append(_judged(run, parts))
        for part in parts:
            if part.problem is None:
                good[part.kind][part.path] = run.run
    return Tables({}, runs=tuple(judged), warnings=tuple(warnings), findings=tuple(findings), files=good, spark=spark)


def _with_marks_that_matter(run: RunFolder, parts: list[Part]) -> RunFolder:
    head = run.head
    marks = marks_that_matter(parts, run.marks, head.records, complete=head.complete, cut_off=head.cut_off)
    return replace(run, marks=marks)


def _judged(run: RunFolder, parts: list[Part]) -> RunFolder:
    """The run, with what cannot be judged of it."""
    brokers = {str(one.get("name")) for one in run.head.scenario.get("broker", ()) if isinstance(one, dict)}
    lost = lost_records(parts, run.marks, run.head.records, complete=run.head.complete, brokers=brokers)
    lost += [LostRecords(kind, *times) for times in run.head.left_out for kind in ("published", "delivered")]
    stretches = unjudged_stretches(run.until, lost, run.under_way)
    return replace(run, unjudged=stretches, unjudged_checks=frozenset(unjudged_checks(lost)))


def _incomplete(run: RunFolder) -> str:
    if not run.marks:
        return "incomplete run, and nothing says how far it got: an older version wrote it, so it is not looked at"
    return f"incomplete run (it crashed or is still going), read up to {seconds(run.until)}"


def find_runs(folders: Iterable[Path | str], *, grace: float | None = None) -> tuple[RunFolder, ...]:
    """Look at each `run.json`. A run is named by the last two parts of its path. `grace` counts for all, if given."""
    runs: dict[str, RunFolder] = {}
    for given in folders:
        folder = Path(given).resolve()
        head = _head(folder)
        own = _seconds_of(folder, head, "settle", GRACE) if grace is None else grace
        marks = tuple(read_marks(folder / TRACE_FOLDER))
        until = reached(marks, complete=head.complete)
        run = RunFolder("/".join(folder.parts[-2:]), folder, head, own, until, marks=marks)
        _ = run.under_way  # said now if it is wrong, not in the middle of the work
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


def look(path: Path, kind: type[Record], *, thorough: bool) -> Part:
    """What a part file holds, or what is wrong with it. `thorough` reads every page and verifies its checksum."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, page_checksum_verification=thorough) as file:
            if not file.schema_arrow.equals(arrow_schema(kind)):
                problem = f"its columns are not those of {kind.__name__}: it was written by another version of Penstock"
                return Part(path, kind_name(kind), problem=problem)
            if thorough:
                for group in range(file.num_row_groups):
                    file.read_row_group(group)
            return Part(path, kind_name(kind), file.metadata.num_rows)
    except (OSError, pa.ArrowException) as error:
        return Part(path, kind_name(kind), problem=f"is damaged ({str(error).splitlines()[0][:120]})")


def look_at(run: RunFolder, *, thorough: bool) -> Iterator[Part]:
    """All part files of a run."""
    for kind in record_kinds():
        for path in part_files(run.folder, kind):
            yield look(path, kind, thorough=thorough)


def find_damage(tables: Tables) -> InvalidRun | None:
    """Read every page of the part files that were taken: who wants to know why Spark failed does not mind the time."""
    kinds = {kind_name(kind): kind for kind in record_kinds()}
    parts = (look(path, kinds[kind], thorough=True) for kind, files in tables.files.items() for path in files)
    return next((invalid(part) for part in parts if part.problem is not None), None)


def invalid(part: Part) -> InvalidRun:
    """What a part file that is damaged means to whoever did not ask to leave it out."""
    return InvalidRun(str(part.path), f"{part.problem}; {WAYS_OUT}")


def _head(folder: Path) -> RunHead:
    try:
        return msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=RunHead)
    except OSError as error:
        raise InvalidRun(str(folder), f"is no run: {RUN_FILE} cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRun(str(folder / RUN_FILE), f"does not describe a run: {error}") from None


def _seconds_of(folder: Path, head: RunHead, name: str, default: float) -> float:
    """A time that the scenario gives."""
    value = head.scenario.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < inf:
        problem = f"`{name}` of its scenario is {value!r}, not a number of seconds from 0 on; put it right there"
        raise InvalidRun(str(folder / RUN_FILE), problem)
    return float(value)


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

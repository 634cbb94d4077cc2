"""The whole pipeline over some runs: read, truth, metrics, checks; results as Parquet beside the traces.

    penstock pipeline run RUN...
    python -m penstock.pipeline.run RUN...
    spark-submit src/penstock/pipeline/run.py RUN...

Results go to `<run>/metrics/<name>/part-00000.parquet`, one table each. Their rows are sorted by all columns and each
file replaces the one before in one step, so running again changes nothing, and nobody ever sees half a result. They
are small (a row for each pair, second or link) except for the messages that were missed; all are written by the
driver, so the workers of a cluster need to read the runs but not to write to them.

All runs are worked on together: a metric is one Spark job, whatever the number of runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__" and sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # spark-submit puts this folder first, where `schema` or `read` would hide modules of that name

from penstock.errors import PenstockError, PipelineError, SparkUnavailable, choose_one
from penstock.pipeline.read import Tables, find_damage, find_runs, read_runs, trace_bytes
from penstock.pipeline.results import METRICS_FOLDER, write_result
from penstock.pipeline.schema import checked
from penstock.pipeline.session import FAST_BYTES_MAX, java_in_use, spark_session
from penstock.pipeline.steps import STEPS, Inputs, MetricStep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class PipelineSummary:
    """What came of it: for each run a row of numbers (None where it was not asked for), and what the checks found."""

    runs: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    warnings: list[str]
    java: str
    metrics: list[str]

    @property
    def failed(self) -> bool:
        """Whether a check says that the numbers are not to be believed."""
        return any(found["level"] == "fail" for found in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for --json."""
        return {**asdict(self), "failed": self.failed}


def run_pipeline(
    spark: SparkSession,
    folders: Sequence[Path | str],
    *,
    allow_partial: bool = False,
    grace: float | None = None,
    only: Sequence[str] = (),
    progress: Callable[[float], None] | None = None,
) -> PipelineSummary:
    """Read the runs, compute everything (or `only` these results), write it beside the traces.

    Raises InvalidRun for a run that cannot be read, and PipelineError for anything that Spark cannot do.
    """
    steps = _chosen(only)
    tables = read_runs(spark, folders, allow_partial=allow_partial, grace=grace)
    inputs = Inputs(tables)
    results: dict[str, pa.Table] = {}
    try:
        for step in steps:
            results[step.name] = _sorted(checked(step.make(inputs), step.ddl, step.name).toArrow())
            for run in tables.runs:
                write_result(run.folder, step.name, _of_run(results[step.name], run.run))
            if progress is not None:
                progress(len(results) / len(steps))
    except PenstockError:
        raise
    except Exception as error:
        # Footers were good, so a damaged page is found only now; Spark's own words about it fill a screen.
        damaged = find_damage(tables.runs)
        if damaged is not None:
            raise damaged from error
        raise PipelineError(f"Spark gave up: {str(error).strip().splitlines()[0][:300]}") from error
    finally:
        inputs.release()
    return _summary(tables, results)


def _chosen(only: Sequence[str]) -> list[MetricStep]:
    unknown = [name for name in only if name not in [step.name for step in STEPS]]
    if unknown:
        known = choose_one(unknown[0], [step.name for step in STEPS])
        raise PipelineError(f"there is no result called '{unknown[0]}'; {known}")
    return [step for step in STEPS if not only or step.name in only]


def _sorted(table: pa.Table) -> pa.Table:
    """By all columns that have an order; the rows of a result differ in these already."""
    import pyarrow as pa

    keys = [(field.name, "ascending") for field in table.schema if not pa.types.is_list(field.type)]
    return table.sort_by(keys)


def _of_run(table: pa.Table, run: str) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(pc.equal(table.column("run"), run)).combine_chunks()


# Which numbers of a run the summary shows: the result, the column, and whether it is summed up or just looked up.
_NUMBERS = {
    "published": ("rates", "published"),
    "delivered": ("rates", "delivered"),
    "due": ("missed", "due"),
    "missed": ("missed", "missed"),
    "duplicates": ("duplicates", "duplicates"),
    "fifo_violations": ("fifo_violations", "violations"),
    "dropped": ("drops", "packets"),
}
_DELAYS = {"delay_p50": "p50", "delay_p99": "p99"}


def _summary(tables: Tables, results: dict[str, pa.Table]) -> PipelineSummary:
    rows = []
    for run in tables.runs:
        own = {name: _of_run(table, run.run) for name, table in results.items()}
        row: dict[str, Any] = {"run": run.run, "complete": run.head.complete}
        for name, (result, column) in _NUMBERS.items():
            row[name] = sum(own[result].column(column).to_pylist()) if result in own else None
        row["false_positives"] = len(own["false_positives"]) if "false_positives" in own else None
        delays = own["delay_percentiles_per_run"].to_pylist() if "delay_percentiles_per_run" in own else []
        for name, column in _DELAYS.items():
            row[name] = delays[0][column] if delays else None
        rows.append({**row, "folder": str(run.folder / METRICS_FOLDER)})
    found = results["checks"].to_pylist() if "checks" in results else []
    return PipelineSummary(rows, found, list(tables.warnings), java_in_use(), list(results))


# As a program.


_HEADINGS = {
    "published": "published",
    "delivered": "delivered",
    "due": "due",
    "missed": "missed",
    "false_positives": "unwanted",
    "fifo_violations": "late",
    "delay_p50": "p50",
    "delay_p99": "p99",
    "dropped": "dropped",
}


def as_text(summary: PipelineSummary) -> str:
    """The summary for people: a row for each run, then what the checks found."""
    rows = [("run", *_HEADINGS.values())]
    for run in summary.runs:
        mark = "" if run["complete"] else " (incomplete)"
        rows.append((run["run"] + mark, *(_cell(run[name]) for name in _HEADINGS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in list(zip(row, widths, strict=True))[1:])]
        )
        for row in rows
    ]
    lines.append("")
    found = [f"{c['level']}: {c['run']}: {c['check']}, {c['count']:,} times; {c['example']}" for c in summary.checks]
    lines += found or (["all checks hold"] if "checks" in summary.metrics else [])
    lines.append(f"{len(summary.metrics)} tables under {' '.join(run['folder'] for run in summary.runs)}")
    return "\n".join(lines)


def _cell(value: float | int | None) -> str:
    """A count, or a delay in milliseconds."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value * 1000:,.1f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    """The program behind `python -m` and `spark-submit`; gives the exit code."""
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="penstock.pipeline.run", description="Compute all metrics and checks of some runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder")
    parser.add_argument("--master", help="where Spark works; this machine, or what spark-submit says, if not given")
    parser.add_argument("--allow-partial", action="store_true", help="leave damaged part files out, and say so")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="compute only this; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on one line instead of tables")
    given = parser.parse_args(arguments)
    try:
        fast = trace_bytes(find_runs(given.runs)) < FAST_BYTES_MAX
        spark = spark_session(given.master, fast=fast)
        summary = run_pipeline(spark, given.runs, allow_partial=given.allow_partial, only=given.only)
    except SparkUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for warning in summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(json.dumps(summary.as_dict()) if given.json else as_text(summary))
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())

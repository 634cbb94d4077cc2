"""The whole pipeline over some runs: read, truth, metrics, checks; results as Parquet beside the traces.

    penstock pipeline run RUN...
    python -m penstock.pipeline.run RUN...
    spark-submit src/penstock/pipeline/run.py RUN...

Results go to `<run>/metrics/<name>/part-00000.parquet`, one table each. Their rows are sorted by all columns and each
file replaces the one before in one step, so running again changes nothing, and nobody ever sees half a result. They
are small (a row for each pair, second or link) except for the messages that were missed; all are written by the
driver, so the workers of a cluster need to read the runs but not to write to them.

All runs are worked on together, and all metrics: one Spark job, whatever the number of either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__" and sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # spark-submit puts this folder first, where `schema` or `read` would hide modules of that name

from penstock.errors import PenstockError, PipelineError, SparkUnavailable, choose_one
from penstock.pipeline.failure import gave_up
from penstock.pipeline.job_progress import job_progress
from penstock.pipeline.read import find_damage, find_runs, read_runs, trace_bytes
from penstock.pipeline.results import of_run, write_result
from penstock.pipeline.session import FAST_BYTES_MAX, spark_session
from penstock.pipeline.steps import STEPS, results_of
from penstock.pipeline.summary import PipelineSummary, as_text, summarize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    names = _chosen(only)
    tables = read_runs(spark, folders, allow_partial=allow_partial, grace=grace)
    try:
        with job_progress(spark, progress):
            results = results_of(spark, tables, names)
    except PenstockError:
        raise
    except Exception as error:
        # Footers were good, so a damaged page is found only now; Spark's own words about it fill a screen.
        damaged = find_damage(tables)
        if damaged is not None:
            raise damaged from error
        raise gave_up(spark, error) from error
    for name, table in results.items():
        for run in tables.runs:
            write_result(run.folder, name, of_run(table, run.run))
    return summarize(tables, results)


def _chosen(only: Sequence[str]) -> list[str]:
    known = [step.name for step in STEPS]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise PipelineError(f"there is no result called '{unknown[0]}'; {choose_one(unknown[0], known)}")
    return [name for name in known if not only or name in only]


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

"""`penstock pipeline`: Spark over the traces of runs, and over a network that runs.

Exit codes: 0 ok, 1 a check failed, 2 wrong usage or a folder that holds no run, 4 Spark cannot start here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.progress import progress_bar
from penstock.cli.watch import watch_command
from penstock.errors import SparkUnavailable

app = typer.Typer(
    help="Turn the traces of runs into measures, on Spark.",
    epilog="Example: penstock pipeline run runs/town/live",
    no_args_is_help=True,
)


@app.command("run")
def run_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, such as runs/town/7-....")],
    master: Annotated[
        str | None,
        typer.Option(help="Where Spark works, such as spark://host:7077; all cores of this machine if not given."),
    ] = None,
    allow_partial: Annotated[bool, typer.Option(help="Leave damaged part files out, and say so.")] = False,
    grace: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a subscription may take to be known; what the scenario says if not given.", min=0.0
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this result; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Compute all metrics and checks of these runs; the results go to RUN/metrics as Parquet.

    Example: penstock sim networks/town.toml --trace runs/town/mine && penstock pipeline run runs/town/mine
    """
    from penstock.pipeline.read import find_runs, trace_bytes
    from penstock.pipeline.run import run_pipeline
    from penstock.pipeline.session import FAST_BYTES_MAX, java_in_use, spark_session
    from penstock.pipeline.summary import as_text

    found = find_runs(runs)  # before Spark starts: a misspelt folder should not cost that time
    try:
        with progress_bar("starting Spark"):
            spark = spark_session(master, fast=trace_bytes(found) < FAST_BYTES_MAX)
    except SparkUnavailable as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(4) from None
    typer.echo(f"Spark {spark.version} on {spark.sparkContext.master}, {java_in_use()}", err=True)
    with progress_bar(f"measuring {len(runs)} run{'s' if len(runs) > 1 else ''}") as advance:
        summary = run_pipeline(spark, runs, allow_partial=allow_partial, grace=grace, only=only or (), progress=advance)
    for warning in summary.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(json.dumps(summary.as_dict()) if as_json else as_text(summary))
    if summary.failed:
        raise typer.Exit(1)


app.command("watch")(watch_command)

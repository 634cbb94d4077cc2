"""`penstock demo`: a network, its traces, the pipeline on Spark over them, and a report; the first thing to try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.progress import progress_bar


def demo_command(
    file: Annotated[Path, typer.Argument(help="A network file.")] = Path("networks/town.toml"),
    seed: Annotated[int, typer.Option(help="Decides everything random.")] = 7,
    runs: Annotated[Path, typer.Option("--runs", help="Where the run is kept.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Simulate a network, measure what happened on Spark, and write a report.

    Example: penstock demo networks/town.toml
    """
    from penstock.cli.sim import show, summary
    from penstock.lab.run_report import write_run_report
    from penstock.lab.runner import simulate_into
    from penstock.lab.view import View
    from penstock.pipeline.run import run_pipeline
    from penstock.pipeline.session import java_in_use, spark_session
    from penstock.scenario.reader import read_scenario
    from penstock.scenario.runs import run_folder

    scenario = read_scenario(file)
    folder = run_folder(scenario, seed, runs)
    with progress_bar(f"simulating {scenario.name}") as advance:
        result = simulate_into(folder, scenario, seed, progress=advance)[1]
    if not as_json:
        show(scenario, result)
    with progress_bar("starting Spark") as advance:
        spark = spark_session(fast=True)
        advance(0.1, "measuring")
        measured = run_pipeline(spark, [folder], progress=lambda share: advance(0.1 + 0.7 * share))
        advance(0.8, "writing the report")
        view = View(spark, folder, scenario)
        report = write_run_report(view, f"penstock demo {file} --seed {seed}")
        view.close()
    if as_json:
        typer.echo(json.dumps({**summary(result), "pipeline": measured.as_dict(), "report": str(report)}))
    else:
        typer.echo(f"Spark {spark.version}, {java_in_use()}; measures as Parquet in {folder / 'metrics'}")
        typer.echo(f"open {report} in a browser")
    if result.problems or measured.failed:
        raise typer.Exit(1)

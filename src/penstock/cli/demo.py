"""`penstock demo`: a network on real sockets, its traces, the pipeline on Spark over them, and a report.

The first thing to try. With `--sim` the same network runs in the simulator, where its faults strike too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.progress import progress_bar

if TYPE_CHECKING:
    from penstock.scenario.network import Scenario
    from penstock.sim.run import RunResult


def demo_command(
    file: Annotated[Path, typer.Argument(help="A network file.")] = Path("networks/town.toml"),
    seed: Annotated[int, typer.Option(help="Decides everything random.")] = 7,
    simulated: Annotated[bool, typer.Option("--sim", help="In the simulator instead of on sockets.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Where the run is kept.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Run a network, measure what happened on Spark, and write a report.

    Example: penstock demo networks/town.toml
    """
    from penstock.cli.sim import show, summary
    from penstock.lab.run_report import write_run_report
    from penstock.lab.view import View
    from penstock.pipeline.run import run_pipeline
    from penstock.pipeline.session import java_in_use, spark_session
    from penstock.scenario.reader import read_scenario

    scenario = read_scenario(file)
    folder = runs / "demo" / ("simulated" if simulated else "live")
    result = _simulated(folder, scenario, seed) if simulated else _live(folder, scenario, seed)
    if not as_json:
        show(scenario, result)
    with progress_bar("starting Spark") as advance:
        spark = spark_session(fast=True)
        advance(0.1, "measuring")
        measured = run_pipeline(spark, [folder], progress=lambda share: advance(0.1 + 0.7 * share))
        advance(0.8, "writing the report")
        view = View(spark, folder, scenario)
        report = write_run_report(view, f"penstock demo {file} --seed {seed}{' --sim' if simulated else ''}")
        view.close()
    if as_json:
        typer.echo(json.dumps({**summary(result), "pipeline": measured.as_dict(), "report": str(report)}))
    else:
        typer.echo(f"Spark {spark.version}, {java_in_use()}; measures as Parquet in {folder / 'metrics'}")
        typer.echo(f"open {report} in a browser")
    if result.problems or measured.failed:
        raise typer.Exit(1)


def _simulated(folder: Path, scenario: Scenario, seed: int) -> RunResult:
    from penstock.lab.runner import simulate_into

    with progress_bar(f"simulating {scenario.name}") as advance:
        return simulate_into(folder, scenario, seed, progress=advance)[1]


def _live(folder: Path, scenario: Scenario, seed: int) -> RunResult:
    from penstock.cli.live import as_run
    from penstock.live.drive import run_live

    typer.echo(f"{len(scenario.broker)} broker processes, {scenario.duration:g} s of traffic ...", err=True)
    with progress_bar(f"running {scenario.name} on sockets") as advance:
        result, _ = run_live(scenario, seed, folder=folder, progress=advance)
    return as_run(scenario, seed, result)

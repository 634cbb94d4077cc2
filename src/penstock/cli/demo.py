"""`penstock demo`: a network on real sockets, its traces, the pipeline on Spark over them, and a report.

The first thing to try. With `--sim` the same network runs in the simulator, where its faults strike too. With `--spark`
Spark follows the stream of orders while the network runs, and lands it in a table.

Where two clients want the same and only one of them asks for order or recovery, a table puts these twins side by side:
what the transport does, and what it costs. Where two publishers send the same amount over equally narrow ways and only
one of them listens to its readers, another says what became of what they offered. A third says who slows whom. All
numbers, here and on the page, are those of the pipeline's tables (`lab/pages/run_numbers.py`).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.progress import progress_bar

if TYPE_CHECKING:
    from penstock.lab.pages.run_numbers import RunNumbers
    from penstock.pipeline.source.landing import Landing
    from penstock.scenario.spec import Scenario
    from penstock.sim.run import RunResult

LANDED = "orders"  # the stream that Spark follows, if it is to


def demo_command(
    file: Annotated[Path, typer.Argument(help="A network file.")] = Path("networks/town.toml"),
    seed: Annotated[int, typer.Option(help="Decides everything random.")] = 7,
    simulated: Annotated[bool, typer.Option("--sim", help="In the simulator instead of on sockets.")] = False,
    spark_too: Annotated[
        bool, typer.Option("--spark", help="Let Spark land the orders in a table while it runs.")
    ] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Where the run is kept.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Run a network, measure what happened on Spark, and write a report.

    Example: penstock demo networks/town.toml
    """
    from penstock.cli.sim import summary
    from penstock.lab.pages.run_numbers import read_numbers
    from penstock.lab.pages.run_page import write_run_report
    from penstock.live.broker.applied import not_applied
    from penstock.pipeline.run import run_pipeline
    from penstock.pipeline.session import java_in_use, spark_session
    from penstock.scenario.reader import read_scenario

    scenario = read_scenario(file)
    folder = runs / "demo" / ("simulated" if simulated else "live")
    if spark_too and simulated:
        raise typer.BadParameter("Spark follows a network that runs; leave --sim out")
    if spark_too and not any(stream.name == LANDED for stream in scenario.stream):
        raise typer.BadParameter(f"{file} has no stream '{LANDED}' to land")
    landing = _landing(folder) if spark_too else None
    result = _simulated(folder, scenario, seed) if simulated else _live(folder, scenario, seed, landing)
    with progress_bar("starting Spark") as advance:
        spark = spark_session(fast=True)
        advance(0.1, "measuring")
        measured = run_pipeline(spark, [folder], progress=lambda share: advance(0.1 + 0.8 * share))
        advance(0.9, "writing the report")
        numbers = read_numbers(folder, scenario, warnings=measured.warnings)
        command = f"penstock demo {file} --seed {seed}{' --sim' if simulated else ''}"
        left_out = () if simulated else not_applied(scenario, emulated=True)
        report = write_run_report(folder, numbers, command, simulated=simulated, left_out=left_out)
    if as_json:
        found = {
            "pipeline": measured.as_dict(),
            "twins": [pair.as_json() for pair in numbers.twins],
            "narrow": [pair.as_json() for pair in numbers.narrow],
            "retrieved": [asdict(one) for one in numbers.retrieved],
            "report": str(report),
        }
        if landing is not None:
            found["landed"] = {"table": str(landing.table), "rows": landing.rows, "batches": landing.batches}
        typer.echo(json.dumps({**summary(result), **found}))
    else:
        show_numbers(numbers)
        if simulated:
            _show_checkers(scenario, result)
        typer.echo(f"Spark {spark.version}, {java_in_use()}; measures as Parquet in {folder / 'metrics'}")
        if landing is not None:
            landed = f"{landing.rows:,} orders in {landing.batches} batches"
            typer.echo(f"{landed} landed in {landing.table}, as Parquet, while the network ran")
        typer.echo(f"open {report} in a browser")
    if result.problems or measured.failed:
        raise typer.Exit(1)


def _simulated(folder: Path, scenario: Scenario, seed: int) -> RunResult:
    from penstock.lab.engine.simulated_runs import simulate_into

    with progress_bar(f"simulating {scenario.name}") as advance:
        return simulate_into(folder, scenario, seed, progress=advance)[1]


def _landing(folder: Path) -> Landing:
    """A query that takes in the orders; the table of an earlier run is gone with that run."""
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.source.landing import Landing

    with progress_bar("starting Spark") as advance:
        advance(0.5)
        landed = folder.with_name(f"{folder.name}-landed")
        shutil.rmtree(landed, ignore_errors=True)
        return Landing(spark_session(fast=True), LANDED, landed)


def _live(folder: Path, scenario: Scenario, seed: int, landing: Landing | None) -> RunResult:
    from penstock.cli.live import as_run, tell_not_applied
    from penstock.live.broker.applied import not_applied
    from penstock.live.emulation.scenario_run import run_live

    typer.echo(f"{len(scenario.broker)} broker processes, {scenario.duration:g} s of traffic ...", err=True)
    tell_not_applied(not_applied(scenario, emulated=True))
    with progress_bar(f"running {scenario.name} on sockets") as advance:
        result, _ = run_live(scenario, seed, folder=folder, progress=advance, follower=landing)
    return as_run(scenario, seed, result)


def _show_checkers(scenario: Scenario, result: RunResult) -> None:
    from rich.console import Console

    from penstock.cli.sim import checkers_say

    Console().print(f"{checkers_say(scenario, result)}; seed {result.seed}, digest {result.digest}")


def show_numbers(numbers: RunNumbers) -> None:
    """The run in the terminal: what the page shows, but for the curves."""
    from rich.console import Console

    from penstock.cli.drawing import draw_network
    from penstock.cli.run_tables import (
        clients_table,
        drops_table,
        narrow_table,
        retrieved_table,
        slowed_table,
        streams_table,
        thinned_table,
        twins_tables,
    )
    from penstock.lab.pages.run_comparisons import capacity_explained, losses_compared
    from penstock.lab.pages.run_misses import misses_explained
    from penstock.lab.pages.run_page import due_explained, lost_explained
    from penstock.lab.pages.run_streams import streams_explained

    console = Console()
    carried = {(link.sender, link.receiver): link.carried_bytes for link in numbers.links}
    lost = {(link.sender, link.receiver): link.lost for link in numbers.links}
    drawing = draw_network(numbers.scenario, carried, lost, "messages")
    if drawing is not None:
        console.print(drawing)
        console.print(lost_explained(numbers), style="bright_black", highlight=False)
    console.print(clients_table(numbers.clients))
    console.print(due_explained(numbers.scenario), style="bright_black")
    for told in misses_explained(numbers):
        console.print(told, style="bright_black", highlight=False)
    if numbers.retrieved:
        console.print(retrieved_table(numbers.retrieved))
    if numbers.streams:
        console.print(streams_table(numbers.streams))
        console.print(streams_explained(numbers), style="bright_black", highlight=False)
    drops = [((d.node, d.peer, d.place, d.cause), (d.packets, d.messages)) for d in numbers.drops if d.messages]
    console.print(drops_table(drops, ("packets", "messages")))
    control = sum(drop.packets for drop in numbers.drops if not drop.messages)
    if control:
        console.print(f"and elsewhere {control:,} packets of control, which the page lists", style="bright_black")
    if numbers.twins:
        for table in twins_tables(numbers.twins):
            console.print(table)
        explained = "late: came after a later one; delay: from publish(); held: waiting for others; on average"
        console.print(explained, style="bright_black")
    if numbers.thinned:
        console.print(thinned_table(numbers.thinned))
    if numbers.narrow:
        console.print(narrow_table(numbers.narrow))
        explained = (
            "not sent: by the publisher's control; withheld: by full links, and both ends were told; delay: from"
            " publish(); after sending: from where it left the publisher; on average"
        )
        console.print(explained, style="bright_black")
        console.print(capacity_explained(numbers.narrow), style="bright_black", highlight=False)
        console.print(losses_compared(numbers.narrow))
    if numbers.slowed:
        console.print(slowed_table(numbers.slowed))
    for warning in numbers.warnings:
        console.print(f"warning: {warning}", markup=False)
    for told in numbers.planned:
        console.print(f"planned: {told}", markup=False, highlight=False)
    for check in numbers.checks:
        told = f"{check['level']}: {check['check']}, {check['count']:,} times; {check['example']}"
        console.print(told, markup=False)
    if not numbers.checks:
        console.print("all checks of the pipeline hold")

"""`penstock demo`: a network on real sockets, its traces, the pipeline on Spark over them, and a report.

The first thing to try. With `--sim` the same network runs in the simulator, where its faults strike too.

Where two clients want the same and only one of them asks for order or recovery, the last table puts these twins side by
side: what the transport does, and what it costs. Where two publishers send the same amount over equally narrow ways and
only one of them listens to its readers, another table says by what factor losses fell. All numbers come from the
pipeline's results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.progress import progress_bar
from penstock.transport.service import TRANSPORT

if TYPE_CHECKING:
    from penstock.scenario.spec import ClientSpec, Scenario
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
    from penstock.lab.pages.run_page import write_run_report
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
        report = write_run_report(
            folder, scenario, f"penstock demo {file} --seed {seed}{' --sim' if simulated else ''}"
        )
        compared = [row for row in (_fared(folder, *twin) for twin in twins(scenario)) if row["due"]]
        narrow = [_fared(folder, *pair) for pair in narrow_ways(scenario)]
    if as_json:
        found = {"pipeline": measured.as_dict(), "twins": compared, "narrow": narrow, "report": str(report)}
        typer.echo(json.dumps({**summary(result), **found}))
    else:
        if compared:
            _show_twins(compared)
        if narrow:
            _show_narrow(narrow, {name: tally.published for name, tally in result.clients.items()})
        typer.echo(f"Spark {spark.version}, {java_in_use()}; measures as Parquet in {folder / 'metrics'}")
        typer.echo(f"open {report} in a browser")
    if result.problems or measured.failed:
        raise typer.Exit(1)


def _simulated(folder: Path, scenario: Scenario, seed: int) -> RunResult:
    from penstock.lab.engine.simulated_runs import simulate_into

    with progress_bar(f"simulating {scenario.name}") as advance:
        return simulate_into(folder, scenario, seed, progress=advance)[1]


def _live(folder: Path, scenario: Scenario, seed: int) -> RunResult:
    from penstock.cli.live import as_run
    from penstock.live.emulation.scenario_run import run_live

    typer.echo(f"{len(scenario.broker)} broker processes, {scenario.duration:g} s of traffic ...", err=True)
    with progress_bar(f"running {scenario.name} on sockets") as advance:
        result, _ = run_live(scenario, seed, folder=folder, progress=advance)
    return as_run(scenario, seed, result)


# Twins.


def twins(scenario: Scenario) -> list[tuple[str, str, bool]]:
    """(publisher, client, whether it uses the transport), for clients that want the same, only some with it."""
    publishers = [client.name for client in scenario.client if TRANSPORT.name in client.services and client.publish]
    clients = [client for client in scenario.client if client.subscribe]
    found = []
    for first in clients:
        for second in clients:
            if _careful(first) and not _careful(second) and _predicates(first) & _predicates(second):
                for publisher in publishers:
                    found += [(publisher, first.name, True), (publisher, second.name, False)]
    return list(dict.fromkeys(found))


def narrow_ways(scenario: Scenario) -> list[tuple[str, str, bool]]:
    """(publisher, client, whether congestion is controlled): pairs that send the same amount, of whom only some do."""
    from penstock.content.language.parser import parse_predicate

    publishers = [client for client in scenario.client if len(client.publish) == 1]
    found = []
    for first in publishers:
        for second in publishers:
            if _controlled(first) and not _controlled(second) and _load(first) == _load(second):
                for publisher in (first, second):
                    recipes = publisher.publish[0].attributes
                    topic = {name: value for name, value in recipes.items() if isinstance(value, str)}
                    found += [
                        (publisher.name, client.name, _controlled(publisher))
                        for client in scenario.client
                        for subscription in client.subscribe
                        if topic and parse_predicate(subscription.where).matches(topic)
                    ]
    return found


def _controlled(client: ClientSpec) -> bool:
    settings = client.services.get(TRANSPORT.name)
    return settings is not None and settings.congestion


def _load(client: ClientSpec) -> tuple[object, ...]:
    spec = client.publish[0]
    return spec.rate_messages_per_s, spec.start, spec.stop, spec.body_bytes, spec.arrivals, client.broker


def _careful(client: ClientSpec) -> bool:
    return any({"ordered", "recover"} & set(subscription.options) for subscription in client.subscribe)


def _predicates(client: ClientSpec) -> set[str]:
    return {subscription.where for subscription in client.subscribe}


def _fared(folder: Path, publisher: str, client: str, careful: bool) -> dict[str, Any]:
    """How one of them fared with the messages of one publisher."""
    due = _result(folder, "missed", publisher, client)
    late = _result(folder, "fifo_violations", publisher, client)
    delay = _result(folder, "delay_percentiles", publisher, client)
    held = _result(folder, "order", publisher, client)
    recovered = _result(folder, "recovery", publisher, client)
    return {
        "publisher": publisher,
        "client": client,
        "transport": careful,
        "due": due.get("due", 0),
        "delivered": due.get("due", 0) - due.get("missed", 0),  # of those due
        "missing": due.get("missed", 0),
        "out_of_order": late.get("violations", 0),
        "recovered": recovered.get("recovered", 0),
        "mean_delay": delay.get("mean"),
        "mean_held": held["held"] / held["delivered"] if held.get("delivered") else 0.0,
    }


def _result(folder: Path, name: str, publisher: str, client: str) -> dict[str, Any]:
    """The row of a pair in one of the pipeline's results; empty if it has none."""
    from penstock.pipeline.results import read_result

    rows = read_result(folder, name, publisher=publisher, client=client)
    return rows[0] if rows else {}


def _show_twins(compared: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for publisher in dict.fromkeys(row["publisher"] for row in compared):
        rows = [row for row in compared if row["publisher"] == publisher]
        title = f"messages of {publisher}, with and without the transport"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in ("client", ""):
            table.add_column(heading, no_wrap=True)
        for heading in ("due", "got", "missing", "late", "recovered", "delay", "held"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in rows:
            counts = [row[name] for name in ("due", "delivered", "missing", "out_of_order", "recovered")]
            delays = [f"{(row[name] or 0.0) * 1000:.1f} ms" for name in ("mean_delay", "mean_held")]
            table.add_row(
                row["client"], "with" if row["transport"] else "without", *(f"{n:,}" for n in counts), *delays
            )
        console.print(table)
    console.print("late: came after a later one; delay, and held (waiting for others): on average")


def _show_narrow(pairs: list[dict[str, Any]], offered: dict[str, int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = "two equally narrow ways, with and without congestion control"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("publisher", "client", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("offered", "withheld", "sent", "got", "lost", "delay"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in pairs:
        due = row["due"]
        counts = [offered[row["publisher"]], offered[row["publisher"]] - due, due, row["delivered"], row["missing"]]
        delay = f"{(row['mean_delay'] or 0.0) * 1000:.0f} ms"
        with_or_without = "with" if row["transport"] else "without"
        table.add_row(row["publisher"], row["client"], with_or_without, *(f"{n:,}" for n in counts), delay)
    console.print(table)
    lost = {
        controlled: sum(row["missing"] for row in pairs if row["transport"] is controlled)
        for controlled in (True, False)
    }
    factor = lost[False] / max(1, lost[True])
    console.print(
        f"with congestion control {factor:.1f} times fewer messages were lost: {lost[True]} instead of {lost[False]}"
    )

"""`penstock sim`: run a scenario in virtual time and show who got what, what was lost where, and how long it took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.progress import progress_bar

if TYPE_CHECKING:
    from penstock.scenario.spec import Scenario
    from penstock.sim.run import RunResult

BARS = " ▁▂▃▄▅▆▇█"


def sim_command(
    file: Annotated[Path, typer.Argument(help="A network file, such as networks/town.toml.")],
    seed: Annotated[int, typer.Option(help="Decides everything random; the same seed gives the same run.")] = 7,
    trace: Annotated[
        Path | None, typer.Option(help="Keep the run in this folder, for `penstock pipeline run`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Run a scenario in the simulator.

    Example: penstock sim networks/town.toml --seed 7
    """
    from penstock.lab.engine.simulated_runs import simulate_into
    from penstock.scenario.reader import read_scenario
    from penstock.sim.run import simulate

    scenario = read_scenario(file)
    with progress_bar(f"simulating {scenario.name}") as advance:
        if trace is None:
            result = simulate(scenario, seed, progress=advance)
        else:
            result = simulate_into(trace, scenario, seed, progress=advance)[1]
    if as_json:
        typer.echo(json.dumps(summary(result)))
    else:
        show(scenario, result)
    for problem in result.problems:
        typer.echo(f"check failed: {problem}", err=True)
    if result.problems:
        typer.echo(f"replay: penstock sim {file} --seed {seed}", err=True)
        raise typer.Exit(1)


def summary(result: RunResult) -> dict[str, Any]:
    """A run as plain data."""
    return {
        "scenario": result.scenario,
        "seed": result.seed,
        "digest": result.digest,
        "virtual_seconds": round(result.virtual_seconds, 6),
        "wall_seconds": round(result.wall_seconds, 3),
        "events": result.events,
        "link_packets": result.link_packets,
        "records": result.records,
        "clients": {
            name: {
                "published": tally.published,
                "refused": tally.refused,
                "delivered": tally.delivered,
                "delay_p50": percentile(tally.delays, 0.5),
                "delay_p99": percentile(tally.delays, 0.99),
            }
            for name, tally in result.clients.items()
        },
        "drops": [
            {"node": node, "peer": peer, "place": place, "cause": cause, "packets": packets}
            for (node, peer, place, cause), packets in result.drops.items()
        ],
        "problems": result.problems,
    }


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value with at least this share of all values at or below it."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1_000_000) * len(ordered) // 1_000_000) - 1)]


def show(scenario: Scenario, result: RunResult) -> None:
    """Draw the network and say who got what; a live run has no digest and no checkers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from penstock.cli.drawing import draw_network

    console = Console()
    drawing = draw_network(scenario, result)
    if drawing is not None:
        console.print(drawing)
    clients = Table(title="who got what", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("client", "at", "sent", "received", "median", "99 %", "received over time"):
        justify: Literal["left", "right"] = "left" if heading in ("client", "at", "received over time") else "right"
        clients.add_column(heading, justify=justify, no_wrap=True)
    homes = {client.name: client.broker for client in scenario.client}
    seconds = int(result.virtual_seconds) + 1
    for name, tally in result.clients.items():
        rates = [tally.per_second[second] for second in range(seconds)]
        clients.add_row(
            name,
            homes[name],
            str(tally.published or ""),
            str(tally.delivered or ""),
            _milliseconds(percentile(tally.delays, 0.5)),
            _milliseconds(percentile(tally.delays, 0.99)),
            sparkline(rates) if tally.delivered else "",
        )
    console.print(clients)
    drops = Table(title="what was dropped where", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("node", "towards", "place", "cause"):
        drops.add_column(heading)
    drops.add_column("packets", justify="right")
    for (node, peer, place, cause), packets in result.drops.items():
        drops.add_row(node, peer, place, cause, str(packets))
    console.print(drops if result.drops else "nothing was dropped")
    if not result.digest:
        console.print(f"{result.wall_seconds:.0f} s in real time: {result.link_packets:,} packets on links")
        return
    verdict = "[red]failed[/]" if result.problems else "[green]all hold[/]"
    console.print(f"checks {', '.join(scenario.check)}: {verdict}")
    console.print(
        f"{result.virtual_seconds:.0f} s of the network's time in {result.wall_seconds:.1f} s:"
        f" {result.events:,} events, {result.link_packets:,} packets on links;"
        f" seed {result.seed}, digest {result.digest}"
    )


def sparkline(counts: list[int], width: int = 22) -> str:
    """A row of bars, the tallest for the largest count; long rows are summed up into `width` of them."""
    step = max(1, -(-len(counts) // width))
    sums = [sum(counts[start : start + step]) for start in range(0, len(counts), step)]
    top = max(sums, default=0)
    return "".join(BARS[-(-count * (len(BARS) - 1) // top)] if top else BARS[0] for count in sums)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"

"""`penstock sim`: run a scenario in virtual time and show who got what, what was lost where, and how long it took."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.progress import progress_bar

if TYPE_CHECKING:
    from penstock.scenario.spec import Scenario
    from penstock.sim.run import RunResult


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
                "offered": tally.published,
                "refused": tally.refused,
                "delivered": tally.delivered,
                "delay_p50": percentile(tally.delays, 0.5),
                "delay_p99": percentile(tally.delays, 0.99),
            }
            for name, tally in result.clients.items()
        },
        "streams": [
            {
                "client": name,
                "stream": stream,
                "durable": durable,
                "offered": tally.offered,
                "stored": tally.stored,
                "not_stored": tally.not_stored,
                "read": tally.read,
                "delay_p50": percentile(tally.delays, 0.5),
                "delay_p99": percentile(tally.delays, 0.99),
            }
            for name, client in result.clients.items()
            for (stream, durable), tally in sorted(client.streams.items())
        ],
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
    from rich.console import Console

    from penstock.cli.drawing import draw_network
    from penstock.cli.run_tables import drops_table, grid, sparkline, stream_tallies_table
    from penstock.lab.pages.numbers import duration, some

    console = Console()
    lost = Counter[tuple[str, str]]()
    for (node, peer, _, _), packets in result.drops.items():
        lost[node, peer] += packets
    drawing = draw_network(scenario, result.links, lost, "packets")
    if drawing is not None:
        console.print(drawing)
    counted = ("offered", "delivered", "median", "99 %")
    clients = grid("who got what", ("client", "at"), counted, ("delivered over time",))
    homes = {client.name: client.broker for client in scenario.client}
    seconds = int(result.virtual_seconds) + 1
    for name, tally in result.clients.items():
        rates = [tally.per_second[second] for second in range(seconds)]
        clients.add_row(
            name,
            homes[name],
            some(tally.published),
            some(tally.delivered),
            duration(percentile(tally.delays, 0.5)),
            duration(percentile(tally.delays, 0.99)),
            sparkline(rates) if tally.delivered else "",
        )
    console.print(clients)
    streams = stream_tallies_table({name: tally.streams for name, tally in result.clients.items()}, percentile)
    if streams.row_count:
        console.print(streams)
    console.print(drops_table([(place, (packets,)) for place, packets in result.drops.items()], ("packets",)))
    if not result.digest:
        console.print(f"{result.wall_seconds:.0f} s in real time: {result.link_packets:,} packets on links")
        return
    console.print(checkers_say(scenario, result))
    console.print(
        f"{result.virtual_seconds:.0f} s of the network's time in {result.wall_seconds:.1f} s:"
        f" {result.events:,} events, {result.link_packets:,} packets on links;"
        f" seed {result.seed}, digest {result.digest}"
    )


def checkers_say(scenario: Scenario, result: RunResult) -> str:
    """What came of the checks that the file names; for simulated runs alone."""
    from penstock.scenario.checkers import check_names

    verdict = "[red]failed[/]" if result.problems else "[green]all hold[/]"
    return f"checks {', '.join(check_names(scenario))}: {verdict}"

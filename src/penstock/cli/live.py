"""`penstock live`: run a scenario in real time, brokers as processes on this machine, and show what came of it.

The counterpart of `penstock sim`: the same file, the same tables. With `--trace` the run's folder can be read by
`penstock pipeline run`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.clients import INTERRUPTED
from penstock.cli.progress import progress_bar

if TYPE_CHECKING:
    from penstock.live.emulation.scenario_run import LiveResult
    from penstock.scenario.spec import Scenario
    from penstock.sim.run import RunResult


def live_command(
    file: Annotated[Path, typer.Argument(help="A network file, such as networks/town.toml.")],
    seed: Annotated[int, typer.Option(help="Decides what is published; the same messages as in the simulator.")] = 7,
    duration: Annotated[float | None, typer.Option(help="Seconds, instead of what the file says.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Leave the run, with its trace, in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Run a scenario in real time.

    Example: penstock live networks/town.toml --seed 7 --trace runs/town/live
    """
    from msgspec.structs import replace

    from penstock.cli.sim import show, summary
    from penstock.live.broker.applied import not_applied
    from penstock.live.emulation.scenario_run import run_live
    from penstock.scenario.reader import read_scenario
    from penstock.scenario.validate import validate

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    scenario = read_scenario(file)
    if duration is not None:
        scenario = replace(scenario, duration=duration)
        validate(scenario)
    tell_not_applied(not_applied(scenario, emulated=True))
    try:
        with progress_bar(f"running {scenario.name}") as advance:
            result, run = run_live(scenario, seed, folder=trace, progress=advance)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    shown = as_run(scenario, seed, result)
    if as_json:
        typer.echo(json.dumps(summary(shown)))
    else:
        show(scenario, shown)
    if run is not None:
        typer.echo(f"the run is in {run.folder}", err=True)


def tell_not_applied(left_out: Sequence[str]) -> None:
    """Say on stderr what of the file real time does not do."""
    if left_out:
        typer.echo(
            f"real time: rates, queues, delays and loss of links are as in the file. Not played: {', '.join(left_out)}",
            err=True,
        )


def as_run(scenario: Scenario, seed: int, result: LiveResult) -> RunResult:
    """In the form that the simulator's results are shown in. Real time has no digest, no events and no checkers."""
    from penstock.sim.run import RunResult
    from penstock.sim.watch import ClientTally

    sent = [port for report in result.reports.values() for port in (*report["links"], *report["clients"])]
    return RunResult(
        scenario=scenario.name,
        seed=seed,
        digest="",
        events=0,
        link_packets=sum(port["sent_packets"] for port in sent),
        virtual_seconds=result.seconds,
        wall_seconds=result.seconds,
        records={},
        clients={
            name: ClientTally(
                tally.published, tally.refused, tally.delivered, tally.delays, tally.per_second, tally.streams
            )
            for name, tally in result.clients.items()
        },
        drops=result.drops(),
        links=result.links(),
        problems=[],
    )

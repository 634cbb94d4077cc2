"""`penstock storm`: run random scenarios, one or thousands, and say which of them break an invariant."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Annotated, Any

import typer

from penstock.cli.progress import progress_bar


def storm_command(
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, one after the other.", min=1)] = 1,
    workers: Annotated[int, typer.Option(help="How many processes share the work.", min=1)] = 1,
    streams: Annotated[bool, typer.Option("--streams", help="Storms of streams, where nothing may be lost.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per seed and line.")] = False,
) -> None:
    """Let random networks fail and heal, and check that every invariant holds.

    Examples: penstock storm --seed 17 (replays one); penstock storm --seeds 2000 --workers 2;
    penstock storm --streams --seeds 100000 --workers 2
    """
    failed = 0
    run_one = partial(run_storm, streams=streams)
    with progress_bar("storms") as advance, ProcessPoolExecutor(workers) as pool:
        runs = (
            map(run_one, range(seed, seed + seeds))
            if workers == 1
            else pool.map(run_one, range(seed, seed + seeds), chunksize=4)
        )
        for done, run in enumerate(runs, start=1):
            failed += bool(run["problems"])
            if as_json:
                typer.echo(json.dumps(run))
            for problem in run["problems"]:
                typer.echo(f"seed {run['seed']}: {problem}", err=True)
            if run["problems"]:
                typer.echo(f"replay: {run['replay']}", err=True)
            advance(done / seeds)
    if not as_json:
        typer.echo(
            f"{seeds - failed} of {seeds} storms kept every invariant" + (f"; {failed} did not" if failed else "")
        )
    if failed:
        raise typer.Exit(1)


def run_storm(seed: int, *, streams: bool = False) -> dict[str, Any]:
    """One storm as plain data."""
    from penstock.scenario.storm import storm
    from penstock.scenario.stream_storm import EVENTS_MAX, stream_storm
    from penstock.sim.run import simulate

    result = simulate(stream_storm(seed) if streams else storm(seed), seed, events_max=EVENTS_MAX if streams else None)
    unfinished = [] if result.complete else [f"it has more than {EVENTS_MAX} events"]
    return {
        "seed": seed,
        "digest": result.digest,
        "events": result.events,
        "problems": [*result.problems, *unfinished],
        "replay": f"penstock storm --streams --seed {seed}" if streams else f"penstock storm --seed {seed}",
    }

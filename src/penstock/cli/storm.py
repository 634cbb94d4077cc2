"""`penstock storm`: run random scenarios, one or thousands, and say which of them break an invariant."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from penstock.cli.progress import progress_bar
from penstock.lab.engine.pool_processes import end_with_parent

if TYPE_CHECKING:
    from penstock.scenario.spec import Scenario

Kind = Literal["", "streams", "priced", "retrieval", "transport", "rates", "recovery"]


def storm_command(
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, one after the other.", min=1)] = 1,
    workers: Annotated[int, typer.Option(help="How many processes share the work.", min=1)] = 1,
    streams: Annotated[bool, typer.Option("--streams", help="Storms of streams, where nothing may be lost.")] = False,
    priced: Annotated[
        bool, typer.Option("--priced", help="Storms of priced sending, where nobody waits for ever.")
    ] = False,
    retrieval: Annotated[
        bool, typer.Option("--retrieval", help="Storms of retrieval, where nobody gets an item twice.")
    ] = False,
    transport: Annotated[
        bool, typer.Option("--transport", help="Storms of order and recovery, where nothing is lost in silence.")
    ] = False,
    rates: Annotated[bool, typer.Option("--rates", help="Storms of narrow links, where nobody is shut out.")] = False,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Storms of order and recovery over narrow links: thinned is not lost.")
    ] = False,
    kills: Annotated[
        int | None,
        typer.Option(help="In real time: kill so many broker processes under a stream that is in use.", min=1),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per seed and line.")] = False,
) -> None:
    """Let random networks fail and heal, and check that every invariant holds.

    Examples: penstock storm --seed 17 (replays one); penstock storm --seeds 2000 --workers 2;
    penstock storm --streams --seeds 100000 --workers 2; penstock storm --priced --seeds 2000;
    penstock storm --retrieval --seeds 2000; penstock storm --transport --seeds 2000;
    penstock storm --rates --seeds 2000; penstock storm --recovery --seeds 2000; penstock storm --kills 1000
    """
    seeds_wanted = range(seed, seed + seeds)
    if kills is not None:
        if streams or priced or retrieval or transport or rates or recovery or workers > 1:
            problem = "goes without other kinds of storms and --workers: it is one run in real time"
            raise typer.BadParameter(problem, param_hint="--kills")
        failed = sum(_told(run_kills(one, kills=kills), as_json) for one in seeds_wanted)
    else:
        failed = 0
        ours = {"streams": streams, "priced": priced, "retrieval": retrieval, "transport": transport}
        chosen = _kind(**ours, rates=rates, recovery=recovery)
        run_one = partial(run_storm, kind=chosen)
        with progress_bar("storms") as advance, ProcessPoolExecutor(workers, initializer=end_with_parent) as pool:
            runs = map(run_one, seeds_wanted) if workers == 1 else pool.map(run_one, seeds_wanted, chunksize=4)
            for done, run in enumerate(runs, start=1):
                failed += _told(run, as_json)
                advance(done / seeds)
    if not as_json:
        typer.echo(
            f"{seeds - failed} of {seeds} storms kept every invariant" + (f"; {failed} did not" if failed else "")
        )
    if failed:
        raise typer.Exit(1)


def _told(run: dict[str, Any], as_json: bool) -> bool:
    """Say what came of one storm; returns whether it broke an invariant."""
    if as_json:
        typer.echo(json.dumps(run))
    elif "kills" in run:
        blows = ", ".join(f"{blow}: {count}" for blow, count in run["blows"].items())
        typer.echo(f"{run['kills']} kills in {run['seconds']} s ({blows}); {run['stored']:,} messages stored")
    for problem in run["problems"]:
        typer.echo(f"seed {run['seed']}: {problem}", err=True)
    if run["problems"]:
        typer.echo(f"replay: {run['replay']}", err=True)
    return bool(run["problems"])


def _kind(**asked: bool) -> Kind:
    chosen = [name for name, wanted in asked.items() if wanted]
    if len(chosen) > 1:
        raise typer.BadParameter(f"goes without --{chosen[0]}: these are two kinds of storms", param_hint=chosen[1])
    return cast("Kind", chosen[0]) if chosen else ""


def run_storm(seed: int, *, kind: Kind = "") -> dict[str, Any]:
    """One storm as plain data."""
    from penstock.scenario import priced_storm, rates_storm, retrieval_storm, storm, stream_storm, transport_storm
    from penstock.sim.run import simulate

    makers: dict[Kind, tuple[Callable[[int], Scenario], int | None]] = {
        "": (storm.storm, None),
        "streams": (stream_storm.stream_storm, stream_storm.EVENTS_MAX),
        "priced": (priced_storm.priced_storm, priced_storm.EVENTS_MAX),
        "retrieval": (retrieval_storm.retrieval_storm, retrieval_storm.EVENTS_MAX),
        "transport": (transport_storm.transport_storm, transport_storm.EVENTS_MAX),
        "rates": (rates_storm.rates_storm, rates_storm.EVENTS_MAX),
        "recovery": (rates_storm.recovery_storm, rates_storm.EVENTS_MAX),
    }
    make, events_max = makers[kind]
    result = simulate(make(seed), seed, events_max=events_max)
    unfinished = [] if result.complete else [f"it has more than {events_max} events"]
    return {
        "seed": seed,
        "digest": result.digest,
        "events": result.events,
        "problems": [*result.problems, *unfinished],
        "replay": f"penstock storm {f'--{kind} ' if kind else ''}--seed {seed}",
    }


def run_kills(seed: int, *, kills: int) -> dict[str, Any]:
    """One storm of kills as plain data."""
    from penstock.live.emulation.kill_storm import kill_storm
    from penstock.live.event_loop import run

    logging.basicConfig(level=logging.ERROR)  # that brokers die is what it is about
    with progress_bar(f"{kills} kills") as advance:
        result = run(kill_storm(seed, kills, progress=advance))
    return {
        "seed": seed,
        "kills": result.kills,
        "blows": dict(sorted(result.blows.items())),
        "stored": result.stored,
        "read": result.read,
        "seconds": round(result.seconds, 1),
        "problems": result.problems,
        "replay": f"penstock storm --kills {kills} --seed {seed}",
    }

"""Simulated runs on disk: where the simulator meets the run folders.

`simulate_run` is what experiments call: the run is made once and found again. `simulate_into` makes a run in a folder
of the caller's choice and is what `penstock sim --trace DIR` calls.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time

from msgspec.structs import replace

from penstock.kernel.trace import Trace
from penstock.scenario.runs import Run, RunOutcome, make_run, open_or_make
from penstock.scenario.spec import Scenario
from penstock.sim.run import RunResult, simulate

Progress = Callable[[float], None]
PROCESSOR_SECONDS = "processor_seconds"


def simulate_run(
    scenario: Scenario, seed: int, runs_root: Path, *, progress: Progress | None = None, again: bool = False
) -> Run:
    """The complete run of this scenario and seed, from the cache or made now."""

    def make(trace: Trace) -> RunOutcome:
        began = process_time()
        return timed(outcome(simulate(scenario, seed, trace=trace, progress=progress)), process_time() - began)

    return open_or_make(scenario, seed, runs_root, make, again=again)


def simulate_into(
    folder: Path, scenario: Scenario, seed: int, *, progress: Progress | None = None
) -> tuple[Run, RunResult]:
    """Make a run in this very folder, and hand out what the simulator says of it."""
    results = []

    def make(trace: Trace) -> RunOutcome:
        results.append(simulate(scenario, seed, trace=trace, progress=progress))
        return outcome(results[0])

    return make_run(folder, scenario, seed, make), results[0]


def timed(made: RunOutcome, seconds: float) -> RunOutcome:
    """The same, with the seconds of a processor that it took: what estimates of the lab are made of."""
    return replace(made, summary={**made.summary, PROCESSOR_SECONDS: round(seconds, 3)})


def outcome(result: RunResult) -> RunOutcome:
    """What is kept of a simulation in `run.json`."""
    return RunOutcome(
        digest=result.digest,
        events=result.events,
        virtual_seconds=result.virtual_seconds,
        complete=result.complete,
        problems=tuple(result.problems),
        summary={
            "wall_seconds": round(result.wall_seconds, 3),
            "link_packets": result.link_packets,
            "records": result.records,
            "published": sum(tally.published for tally in result.clients.values()),
            "refused": sum(tally.refused for tally in result.clients.values()),
            "delivered": sum(tally.delivered for tally in result.clients.values()),
            "dropped": sum(result.drops.values()),
        },
    )

"""How long a lab will take, before it begins: for each family of figures, the runs it needs and those that are missing.

How long a run takes is known from the kept results, by the name of its scenario; a run that was never made before is
counted and not estimated. Runs that are found need no time, so a lab that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.lab.engine.experiment import Experiment, Scale
from penstock.lab.engine.kept_results import KeptResult
from penstock.lab.engine.runner import CODE_OF, planned
from penstock.lab.engine.tasks import numbers_file
from penstock.scenario.runs import complete_run, run_folder


class WorkAhead(NamedTuple):
    """What a family needs. A run that two families share is counted with the first."""

    family: str
    runs: int  # simulations that leave a trace, and tasks that leave numbers
    missing: int
    seconds: float  # of one processor, for those of the missing that were timed before
    unknown: int  # of the missing, how many were not


def estimates(
    families: Mapping[str, Sequence[Experiment]],
    *,
    scale: Scale,
    seeds: Sequence[int],
    runs_root: Path,
    kept: Mapping[str, KeptResult],
) -> list[WorkAhead]:
    """One for each family that needs any run."""
    took = {name: seconds for result in kept.values() for name, seconds in result.took.items()}
    seen: set[Path] = set()
    found = []
    for family, those in families.items():
        needed = {place: name for place, name in _needed(those, scale, seeds, runs_root) if place not in seen}
        seen |= set(needed)
        missing = [name for place, name in needed.items() if not (place.is_file() or complete_run(place))]
        timed = [took[name] for name in missing if took.get(name)]
        if needed:
            found.append(WorkAhead(family, len(needed), len(missing), sum(timed), len(missing) - len(timed)))
    return found


def _needed(those: Sequence[Experiment], scale: Scale, seeds: Sequence[int], runs_root: Path) -> list[tuple[Path, str]]:
    """The folder of each run or the file of each task, and the name of its scenario."""
    found = []
    for experiment in those:
        for seed in seeds:
            for plan in planned(experiment, scale, seed).values():
                folder = run_folder(plan.scenario, seed, runs_root, CODE_OF.get(plan.simulator, ""))
                found.append((folder, plan.scenario.name))
            tasks = experiment.tasks(scale, seed) if experiment.tasks is not None else {}
            found += [(numbers_file(runs_root, task.text()), task.text()) for task in tasks.values()]
    return found

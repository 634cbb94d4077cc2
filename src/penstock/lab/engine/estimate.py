"""How long a lab will take, before it begins: for each family of figures, the runs it needs and those that are missing.

Times come with the kept results, so a fresh copy of the sources knows them: processor seconds of a run by its scenario
with all settings, the newest if it was timed more than once; seconds for a unit of work of tasks; and how long Spark
measures a seed. A run that was never timed is guessed from its length by what timed runs of its family took, or of all
families, for a second of the network's time; how many were guessed is told. Runs that are found need no time, so a lab
that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.lab.engine.experiment import Experiment, Scale
from penstock.lab.engine.kept_results import KeptResult
from penstock.lab.engine.run_maker import CODE_OF, name_of_run
from penstock.lab.engine.runner import planned
from penstock.lab.engine.tasks import numbers_file
from penstock.scenario.runs import complete_run, run_folder


class WorkAhead(NamedTuple):
    """What a family needs. A run that two families share is counted with the first."""

    family: str
    runs: int  # simulations that leave a trace, and tasks that leave numbers
    missing: int
    seconds: float  # of one processor
    guessed: int  # of the missing, how many were never timed


class _Needed(NamedTuple):
    """A run or a task."""

    place: Path  # its folder, or the file of its numbers
    length: float  # seconds of the network's time, or units of work
    seconds: float  # that it takes; 0 if nobody knows
    is_task: bool

    def made(self) -> bool:
        return self.place.is_file() or complete_run(self.place) is not None


def estimates(
    families: Mapping[str, Sequence[Experiment]],
    *,
    scale: Scale,
    seeds: Sequence[int],
    runs_root: Path,
    kept: Mapping[str, KeptResult],
    product: bool = False,
) -> list[WorkAhead]:
    """One for each family that needs any run."""
    took: dict[str, float] = {}  # of each run, as it was last timed
    for result in sorted(kept.values(), key=lambda one: one.date):
        took |= result.took
    seen: set[Path] = set()
    needed: dict[str, list[_Needed]] = {}
    measuring: dict[str, float] = {}
    for family, those in families.items():
        by_place = {one.place: one for one in _needed(those, scale, seeds, runs_root, kept, took, product)}
        needed[family] = [one for place, one in by_place.items() if place not in seen]
        seen |= set(by_place)
        measuring[family] = sum(kept[one.name].measuring * len(seeds) for one in those if one.name in kept)
    everywhere = [one for its in needed.values() for one in its]
    found = []
    for family, its in needed.items():
        missing = [one for one in its if not one.made()]
        seconds = sum(one.seconds or one.length * _pace(one, its, everywhere) for one in missing)
        guessed = sum(not one.seconds for one in missing)
        if its:
            found.append(WorkAhead(family, len(its), len(missing), seconds + measuring[family], guessed))
    return found


def _needed(
    those: Iterable[Experiment],
    scale: Scale,
    seeds: Sequence[int],
    runs_root: Path,
    kept: Mapping[str, KeptResult],
    took: Mapping[str, float],
    product: bool,
) -> Iterator[_Needed]:
    for experiment in those:
        result = kept.get(experiment.name)
        for seed in seeds:
            for plan in planned(experiment, scale, seed, product=product).values():
                folder = run_folder(plan.scenario, seed, runs_root, CODE_OF.get(plan.simulator, ""))
                seconds = took.get(name_of_run(plan)) or took.get(plan.scenario.name, 0.0)  # older results have names
                yield _Needed(folder, plan.scenario.duration, seconds, False)
            tasks = experiment.tasks(scale, seed) if experiment.tasks is not None else {}
            for task in tasks.values():
                seconds = task.work() * result.seconds_for_work if result is not None else 0.0
                yield _Needed(numbers_file(runs_root, task.text()), task.work(), seconds, True)


def _pace(one: _Needed, *circles: Sequence[_Needed]) -> float:
    """Processor seconds for a unit of length, by what is timed in the first circle that has any; 0 if none has."""
    for circle in circles:
        timed = [other for other in circle if other.seconds and other.is_task == one.is_task]
        if timed:
            return sum(other.seconds for other in timed) / sum(other.length for other in timed)
    return 0.0

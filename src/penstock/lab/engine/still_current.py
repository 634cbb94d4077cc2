"""Whether kept results are of the code as it is: a run of each is made again, and must give the same digest.

A digest is over every record of a run, so a run that gives its old digest has come out the same in all that experiments
measure. The hash of the code in a kept result changes with nearly every commit, and most of these move nothing; this
asks the code itself. The shortest run of an experiment stands for all of them, unless all are wanted: a change that
moves another run alone is not seen then. Runs on real sockets come out differently each time and are not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock.kernel.trace import Digest
from penstock.lab.baselines.store_and_forward import StoreAndForward, StoreConfig
from penstock.lab.engine.experiment import Experiment, Plan
from penstock.lab.engine.kept_results import KeptResult
from penstock.lab.engine.run_maker import name_of_run
from penstock.lab.engine.runner import no_product, planned
from penstock.lab.engine.tasks import CountedTask, numbers_digest
from penstock.scenario.runs import code_hash
from penstock.sim.run import simulate

Verdict = Literal["as kept", "moved", "not known"]  # not known: kept before digests were, or has no run to make again


class Checked(NamedTuple):
    """What came of one experiment."""

    experiment: str
    verdict: Verdict
    runs: tuple[str, ...]  # those that were made again; if one has moved, it is the last


@dataclass
class Repeats:
    """Makes kept runs again; one that several experiments share is made once."""

    every_run: bool = False

    @cached_property
    def _made(self) -> dict[tuple[str, int], str]:
        return {}

    def check(self, experiment: Experiment, kept: KeptResult) -> Checked:
        """Make its runs again, the shortest first, until one has moved."""
        runs: list[str] = []
        for name, digest, plan in self._chosen(experiment, kept):
            runs.append(name)
            if self._digest(name, plan, kept.seeds[0]) != digest:
                return Checked(experiment.name, "moved", tuple(runs))
        return Checked(experiment.name, "as kept" if runs else "not known", tuple(runs))

    def _chosen(self, experiment: Experiment, kept: KeptResult) -> Sequence[tuple[str, str, Plan | CountedTask]]:
        """Which to make, with the digests they had."""
        found = [
            (name, digests[name], plan) for name, digests, plan in _repeatable(experiment, kept) if name in digests
        ]
        found.sort(key=lambda one: _length(one[0], one[2], kept))
        return found if self.every_run else found[:1]

    def _digest(self, name: str, plan: Plan | CountedTask, seed: int) -> str:
        if (name, seed) not in self._made:
            self._made[name, seed] = _digest(plan, seed)
        return self._made[name, seed]


def marked(kept: KeptResult, checked: Checked) -> KeptResult:
    """The same result, with what came of it."""
    if checked.verdict == "not known":
        return kept
    return replace(kept, moved=f"{checked.runs[-1]}, by code {code_hash()}" if checked.verdict == "moved" else "")


def _repeatable(experiment: Experiment, kept: KeptResult) -> Iterator[tuple[str, dict[str, str], Plan | CountedTask]]:
    """All that can be made again: runs of the simulators, and tasks."""
    seed = kept.seeds[0]
    for task in (experiment.tasks("paper", seed) if experiment.tasks is not None else {}).values():
        yield task.text(), kept.digests, task
    kinds = [(False, kept.digests)]
    if kept.product_digests and not no_product(experiment, "paper"):
        kinds.append((True, kept.product_digests))
    for product, digests in kinds:
        for plan in planned(experiment, "paper", seed, product=product).values():
            if plan.simulator in ("best effort", "store and forward"):
                yield name_of_run(plan), digests, plan


def _length(name: str, plan: Plan | CountedTask, kept: KeptResult) -> float:
    if isinstance(plan, Plan):
        return kept.took.get(name, plan.scenario.duration)
    return plan.work() * kept.seconds_for_work


def _digest(plan: Plan | CountedTask, seed: int) -> str:
    if not isinstance(plan, Plan):
        return numbers_digest(plan.run())
    if plan.simulator == "best effort":
        return simulate(plan.scenario, seed).digest
    digest = Digest()
    StoreAndForward(plan.scenario, seed, digest, StoreConfig()).run()
    return digest.hexdigest()

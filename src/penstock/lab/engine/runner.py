"""Runs experiments from end to end: simulations, pipeline, verdicts, report, for several of them in one Spark session.

The runs of all experiments are made first (`run_maker.py`), several at a time in processes of their own, each once: a
run that two experiments need, or that is there from yesterday, is made only once. Then Spark looks at each seed in
turn. An experiment whose runs or numbers fail is left out and named at the end; the others are measured and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.errors import CheckFailed, NotPossibleHere, PenstockError
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Finding, Plan, Result, Scale, Views
from penstock.lab.engine.run_maker import Key, Progress, key_of, make_runs, name_of_run
from penstock.lab.engine.simulated_runs import PROCESSOR_SECONDS
from penstock.lab.engine.tasks import CountedTask, numbers_digest, seconds_for_work, task_numbers
from penstock.lab.setups.product import changes_with_product, with_product_defaults
from penstock.scenario.runs import RunOutcome, open_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lab.engine.view import View

NOT_REPLACED = "only settings of transports, controlled streams and prices are replaced, and it has none of the paper's"


def run_experiments(
    chosen: Sequence[Experiment],
    *,
    scale: Scale,
    seeds: Sequence[int],
    runs_root: Path,
    spark: Callable[[], SparkSession],
    processes: int,
    progress: Progress,
    live: bool = False,
    product: bool = False,
    done: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run them all; `spark` is called once the runs have been made. Live runs are made one at a time.

    With `product` they have the product's own settings in the place of the paper's. `done` is called with each result
    as soon as it is there, so that a lab that is interrupted has kept what it had. Raises CheckFailed when all that
    could be done is done and some failed; if there was but one experiment, its own error.
    """
    plans = {one.name: {seed: planned(one, scale, seed, live, product) for seed in seeds} for one in chosen}
    processes = 1 if live else processes
    runs = [(plan, seed) for by_seed in plans.values() for seed, those in by_seed.items() for plan in those.values()]
    folders, lost = make_runs(runs, runs_root, processes, progress)
    failed = _without_runs(plans, lost)
    chosen = [one for one in chosen if one.name not in failed]
    counted = {(one.name, seed): _tasks(one, scale, seed, live) for one in chosen for seed in seeds}
    broken: dict[str, str] = {}
    numbers = task_numbers(
        [task for those in counted.values() for task in those.values()],
        runs_root=runs_root,
        spark=spark if scale == "paper" else None,
        progress=progress,
        failed=broken,
    )
    for one in chosen:
        texts = [text for seed in seeds for text in _texts(counted[one.name, seed])]
        reasons = [f"{text}: {broken[text]}" for text in texts if text in broken]
        if reasons:
            failed[one.name] = PenstockError("; ".join(reasons))
    chosen = [one for one in chosen if one.name not in failed]
    views = _Views(spark, folders)
    results = []
    for number, experiment in enumerate(chosen):
        progress(f"measuring {experiment.name}", number / len(chosen))
        criteria = [criterion.on_sockets() if live else criterion for criterion in experiment.criteria]
        mine = {
            seed: {name: numbers[task.text()] for name, task in counted[experiment.name, seed].items()}
            for seed in seeds
        }
        try:
            found = _judge(experiment, criteria, plans[experiment.name], scale, mine, views)
        except Exception as error:  # whatever it was: the others are measured, and it is raised in the end
            failed[experiment.name] = error
            continue
        option = " --live" if live else " --product" if product else ""
        why = no_product(experiment, scale)
        tasks = [task for seed in seeds for task in counted[experiment.name, seed].values()]
        spent = seconds_for_work(tasks, runs_root)
        digests = {text: numbers_digest(numbers[text]) for text in _texts(counted[experiment.name, seeds[0]])}
        digests |= found.digests
        found = replace(found, product=product, no_product=why, seconds_for_work=spent, digests=digests)
        results.append(replace(found, command=f"{found.command}{option}"))
        done(results[-1])
    views.close()
    progress("done", 1.0)
    if failed:
        raise _failure(failed, len(plans))
    return results


def _without_runs(
    plans: Mapping[str, Mapping[int, Mapping[str, Plan]]], lost: Mapping[Key, Exception]
) -> dict[str, Exception]:
    """The experiments that need a run that failed, and why it did."""
    needed = {
        name: [key_of(plan, seed) for seed, those in by_seed.items() for plan in those.values()]
        for name, by_seed in plans.items()
    }
    return {name: lost[key] for name, keys in needed.items() for key in keys if key in lost}


def _failure(failed: Mapping[str, Exception], experiments: int) -> Exception:
    if experiments == 1:
        return next(iter(failed.values()))
    lines = [f"{len(failed)} of {experiments} experiments failed; the others are done"]
    lines += [f"  {name}: {error}" for name, error in failed.items()]
    return CheckFailed("\n".join(lines), f"penstock lab run {' '.join(failed)}")


def planned(
    experiment: Experiment, scale: Scale, seed: int, live: bool = False, product: bool = False
) -> Mapping[str, Plan]:
    """The runs that it needs of this seed; raises NotPossibleHere."""
    if product:
        why = no_product(experiment, scale)
        if why:
            raise NotPossibleHere(f"{experiment.name} says nothing of the product's settings: {why}", "leave it out")
        plans = experiment.plans_of(scale, seed).items()
        return {name: replace(plan, scenario=with_product_defaults(plan.scenario)) for name, plan in plans}
    if not live:
        return experiment.plans_of(scale, seed)
    if experiment.live is None:
        raise NotPossibleHere(f"{experiment.name} has no live version yet", "run it in the simulator, without --live")
    return experiment.live()


def no_product(experiment: Experiment, scale: Scale) -> str:
    """Why it cannot be run with the product's settings; empty if it can."""
    if experiment.product:
        return experiment.product
    plans = experiment.plans_of(scale, 1).values()
    return "" if any(changes_with_product(plan.scenario) for plan in plans) else NOT_REPLACED


def _texts(tasks: Mapping[str, CountedTask]) -> list[str]:
    return [task.text() for task in tasks.values()]


def _tasks(experiment: Experiment, scale: Scale, seed: int, live: bool) -> Mapping[str, CountedTask]:
    return experiment.tasks(scale, seed) if experiment.tasks is not None and not live else {}


class _Views:
    """The runs of all experiments, each opened once. Spark is asked for with the first of them."""

    def __init__(self, spark: Callable[[], SparkSession], folders: Mapping[Key, Path]) -> None:
        self._spark = spark
        self._folders = folders
        self._open: dict[Key, View] = {}

    def of(self, plan: Plan, seed: int) -> View:
        """The view of one run."""
        from penstock.lab.engine.view import View

        key = key_of(plan, seed)
        if key not in self._open:
            self._open[key] = View(self._spark(), self._folders[key], plan.scenario)
        return self._open[key]

    def close(self) -> None:
        for view in self._open.values():
            view.close()


def _judge(
    experiment: Experiment,
    criteria: Sequence[Criterion],
    plans: Mapping[int, Mapping[str, Plan]],  # by seed
    scale: Scale,
    numbers: Mapping[int, Mapping[str, Mapping[str, float]]],  # by seed
    views: _Views,
) -> Result:
    seeds = list(numbers)
    measured: dict[str, list[float]] = {}
    figures: tuple[Figure, ...] = ()
    names: list[str] = []
    took: dict[str, list[float]] = {}  # of each run, one for each seed
    digests: dict[str, str] = {}
    began = perf_counter()
    for seed in seeds:
        these = Views(
            {name: views.of(plan, seed) for name, plan in plans[seed].items()},
            seed=seed,
            scale=scale,
            numbers=numbers[seed],
        )
        for name, value in experiment.measure(these).items():
            measured.setdefault(name, []).append(value)
        figures = figures or tuple(experiment.draw(these))
        for name, view in these.items():
            names.append("/".join(view.folder.parts[-2:]))
            made, run = _outcome(view.folder), name_of_run(plans[seed][name])
            took.setdefault(run, []).append(float(made.summary.get(PROCESSOR_SECONDS, 0.0)))  # 0: it does not say
            if seed == seeds[0]:
                digests[run] = made.digest
    findings = [_found(criterion, measured.get(criterion.name, []), scale) for criterion in criteria]
    seed_option = f" --seeds {len(seeds)}" + (f" --first-seed {seeds[0]}" if seeds[0] != 1 else "")
    return Result(
        experiment=experiment,
        scale=scale,
        seeds=tuple(seeds),
        runs=tuple(names),
        values={name: tuple(values) for name, values in measured.items()},
        findings=tuple(findings),
        figures=figures,
        command=f"penstock lab run {experiment.name} --scale {scale}{seed_option}",
        took={name: fmean(seconds) for name, seconds in took.items()},
        digests=digests,
        measuring=(perf_counter() - began) / len(seeds),
    )


def _found(criterion: Criterion, values: Sequence[float], scale: Scale) -> Finding:
    value = float(criterion.judge(values))
    return Finding(
        criterion=criterion,
        value=value,
        passed=criterion.holds(value),
        gated=scale in criterion.scales,
        values=tuple(values),
    )


def _outcome(folder: Path) -> RunOutcome:
    outcome = open_run(folder).info.outcome
    assert outcome is not None, "views are of complete runs"
    return outcome

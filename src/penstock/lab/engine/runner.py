"""Runs experiments from end to end: simulations, pipeline, verdicts, report, for several of them in one Spark session.

The runs of all experiments are made first, several at a time in processes of their own, each once: a run that two
experiments need, or that is there from yesterday, is made only once. Then Spark looks at each seed in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from penstock.errors import NotPossibleHere
from penstock.kernel.trace import Digest, Record, Trace
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Finding, Plan, Result, Scale, Views
from penstock.lab.engine.simulated_runs import PROCESSOR_SECONDS, simulate_run, timed
from penstock.lab.engine.tasks import CountedTask, seconds_for_work, task_numbers
from penstock.lab.setups.product import has_transport, with_product_defaults
from penstock.scenario.runs import RunOutcome, open_or_make, open_run, run_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lab.engine.view import View

Progress = Callable[[str, float], None]
Key = tuple[str, Path, int]  # simulator, where the run belongs, seed
NO_TRANSPORT = "only settings of the transport are replaced, and there is none in it"
CODE_OF = {"store and forward": "lab/baselines"}  # the package that makes such runs, beside what decides in every run


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
    as soon as it is there, so that a lab that is interrupted has kept what it had.
    """
    plans = {one.name: {seed: planned(one, scale, seed, live, product) for seed in seeds} for one in chosen}
    processes = 1 if live else processes
    runs = [(plan, seed) for by_seed in plans.values() for seed, those in by_seed.items() for plan in those.values()]
    folders = _make_runs(runs, runs_root, processes, progress)
    counted = {(one.name, seed): _tasks(one, scale, seed, live) for one in chosen for seed in seeds}
    numbers = task_numbers(
        [task for those in counted.values() for task in those.values()],
        runs_root=runs_root,
        spark=spark if scale == "paper" else None,
        progress=progress,
    )
    views = _Views(spark, folders)
    results = []
    for number, experiment in enumerate(chosen):
        progress(f"measuring {experiment.name}", number / len(chosen))
        criteria = [criterion.on_sockets() if live else criterion for criterion in experiment.criteria]
        mine = {
            seed: {name: numbers[task.text()] for name, task in counted[experiment.name, seed].items()}
            for seed in seeds
        }
        found = _judge(experiment, criteria, plans[experiment.name], scale, mine, views)
        option = " --live" if live else " --product" if product else ""
        why = no_product(experiment, scale)
        tasks = [task for seed in seeds for task in counted[experiment.name, seed].values()]
        spent = seconds_for_work(tasks, runs_root)
        found = replace(found, product=product, no_product=why, seconds_for_work=spent)
        results.append(replace(found, command=f"{found.command}{option}"))
        done(results[-1])
    views.close()
    progress("done", 1.0)
    return results


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
    return "" if any(has_transport(plan.scenario) for plan in plans) else NO_TRANSPORT


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

        key = _key(plan, seed)
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
    took: dict[str, float] = {}  # of runs of one name, the longest
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
        for view in these.values():
            names.append("/".join(view.folder.parts[-2:]))
            took[view.scenario.name] = max(took.get(view.scenario.name, 0.0), _seconds(view.folder))
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
        took=took,
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


def _seconds(folder: Path) -> float:
    """How long the run in this folder kept a processor busy; 0 if it does not say."""
    outcome = open_run(folder).info.outcome
    return float(outcome.summary.get(PROCESSOR_SECONDS, 0.0)) if outcome is not None else 0.0


def _key(plan: Plan, seed: int) -> Key:
    """Which run it is; two scenarios of one name are two runs."""
    return plan.simulator, run_folder(plan.scenario, seed, Path()), seed


def _make_runs(
    runs: Sequence[tuple[Plan, int]], runs_root: Path, processes: int, progress: Progress
) -> dict[Key, Path]:
    """Every run once, the longest first, so that no process is left alone with one at the end."""
    jobs = {_key(plan, seed): (plan, seed, runs_root) for plan, seed in runs}
    ordered = sorted(jobs.items(), key=lambda job: -job[1][0].scenario.duration * len(job[1][0].scenario.client))
    folders = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = [(key, pool.submit(make_run, *job)) for key, job in ordered]
        for number, (key, future) in enumerate(futures):
            progress(f"{key[1].parent.name}, seed {key[2]}", number / len(futures))
            folders[key] = future.result()
    return folders


def make_run(plan: Plan, seed: int, runs_root: Path) -> Path:
    """One run, made now or found again; returns its folder."""
    if plan.simulator == "best effort":
        return simulate_run(plan.scenario, seed, runs_root).folder
    if plan.simulator == "live":
        from penstock.live.emulation.scenario_run import live_run

        return live_run(plan.scenario, seed, runs_root).folder
    if plan.simulator in ("namespaces", "traced namespaces"):
        from penstock.live.emulation.namespace_run import namespace_run

        traced = plan.simulator == "traced namespaces"
        return namespace_run(plan.scenario, seed, runs_root, brokers_traced=traced).folder

    def store_and_forward(trace: Trace) -> RunOutcome:
        from penstock.lab.baselines.store_and_forward import StoreAndForward, StoreConfig

        began = process_time()
        digest = _Both(trace)
        events = StoreAndForward(plan.scenario, seed, digest, StoreConfig()).run()
        end = plan.scenario.duration + plan.scenario.drain
        made = RunOutcome(digest=digest.hexdigest(), events=events, virtual_seconds=end)
        return timed(made, process_time() - began)

    return open_or_make(plan.scenario, seed, runs_root, store_and_forward, also=CODE_OF[plan.simulator]).folder


class _Both(Digest):
    """Digests and passes on."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def write(self, time: float, node: str, record: Record) -> None:
        super().write(time, node, record)
        self._trace.write(time, node, record)

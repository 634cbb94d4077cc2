"""Makes the runs that experiments need: each once, several at a time, and whatever fails does not stop the others.

A run is made in a process of its own pool. An error of a run is handed out with it. A process that dies, for want of
memory or in native code, takes the whole pool with it and does not say which run it had: then what is left is made one
at a time, so that whoever dies again is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from time import process_time

import msgspec

from penstock.errors import PenstockError
from penstock.kernel.trace import Digest, Record, Trace
from penstock.lab.engine.experiment import Plan
from penstock.lab.engine.pool_processes import end_with_parent
from penstock.lab.engine.simulated_runs import simulate_run, timed
from penstock.scenario.runs import RunOutcome, open_or_make, run_folder

Progress = Callable[[str, float], None]
Key = tuple[str, Path, int]  # simulator, where the run belongs, seed
Job = tuple[Plan, int, Path]  # what, with which seed, where all runs are
CODE_OF = {"store and forward": "lab/baselines"}  # the package that makes such runs, beside what decides in every run


def key_of(plan: Plan, seed: int) -> Key:
    """Which run it is; two scenarios of one name are two runs."""
    return plan.simulator, run_folder(plan.scenario, seed, Path()), seed


def name_of_run(plan: Plan) -> str:
    """What its time is kept under, whatever the code and the seed: runs of one name may differ in their settings."""
    text = msgspec.json.encode((plan.simulator, plan.scenario), order="sorted")
    return f"{plan.scenario.name} {blake2b(text, digest_size=4).hexdigest()}"


def make_runs(
    runs: Sequence[tuple[Plan, int]], runs_root: Path, processes: int, progress: Progress
) -> tuple[dict[Key, Path], dict[Key, Exception]]:
    """Their folders, and why others have none. The longest are begun first: no process is left alone with one."""
    jobs: dict[Key, Job] = {key_of(plan, seed): (plan, seed, runs_root) for plan, seed in runs}
    ordered = dict(sorted(jobs.items(), key=lambda job: -job[1][0].scenario.duration * len(job[1][0].scenario.client)))
    folders: dict[Key, Path] = {}
    failed: dict[Key, Exception] = {}
    left = _in_pool(ordered, processes, folders, failed, progress)
    for key, job in left.items():
        if _in_pool({key: job}, 1, folders, failed, progress):
            failed[key] = PenstockError(f"the process died that made the run {key[1].parent.name}, seed {key[2]}")
    return folders, failed


def _in_pool(
    jobs: Mapping[Key, Job],
    processes: int,
    folders: dict[Key, Path],
    failed: dict[Key, Exception],
    progress: Progress,
) -> dict[Key, Job]:
    """Make them; returns those that were not made because the pool broke."""
    left = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        futures = [(key, job, pool.submit(make_run, *job)) for key, job in jobs.items()]
        for number, (key, job, future) in enumerate(futures):
            progress(f"{key[1].parent.name}, seed {key[2]}", number / len(futures))
            try:
                folders[key] = future.result()
            except BrokenProcessPool:
                left[key] = job
            except Exception as error:  # whatever it was: it is handed out, and the other runs are made
                failed[key] = error
    return left


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

"""What fails in a lab does not stop the rest of it."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

import pytest

from penstock.errors import CheckFailed
from penstock.lab.engine import run_maker
from penstock.lab.engine.experiment import Criterion, Experiment, Plan
from penstock.lab.engine.run_maker import make_runs
from penstock.lab.engine.runner import run_experiments
from penstock.scenario.spec import BrokerSpec, Scenario


def plan(name, simulator="best effort"):
    return Plan(scenario=Scenario(name=name, duration=1.0, broker=(BrokerSpec(name="a"),)), simulator=simulator)


def experiment(name, **fields):
    made = Experiment(
        name=name,
        title="",
        source="",
        about="",
        plans=lambda scale: {},
        measure=lambda views: {"x": 1.0},
        draw=lambda views: (),
        criteria=(Criterion(name="x", paper=""),),
    )
    return replace(made, **fields)


def run(tmp_path, chosen):
    done = []
    settings = {"scale": "smoke", "seeds": [1], "runs_root": tmp_path, "spark": None, "processes": 1}
    try:
        run_experiments(chosen, **settings, progress=lambda what, share: None, done=done.append)
    except Exception as error:
        return [result.experiment.name for result in done], error
    return [result.experiment.name for result in done], None


@dataclass(frozen=True)
class Broken:
    """A task that cannot be done."""

    def text(self):
        return "broken"

    def work(self):
        return 1.0

    def run(self):
        raise ValueError("of no use")


def test_what_fails_is_named_at_the_end_and_the_others_are_done(tmp_path):
    def unmeasurable(views):
        raise ZeroDivisionError("nothing was delivered")

    chosen = [
        experiment("no-run", plans=lambda scale: {"run": plan("unknown", simulator="nonsense")}),
        experiment("no-numbers", tasks=lambda scale, seed: {"task": Broken()}),
        experiment("no-measure", measure=unmeasurable),
        experiment("good"),
    ]
    done, error = run(tmp_path, chosen)
    assert done == ["good"]
    assert isinstance(error, CheckFailed)
    assert "3 of 4 experiments failed" in str(error)
    assert "broken: ValueError: of no use" in str(error)
    assert "nothing was delivered" in str(error)
    assert error.replay == "penstock lab run no-run no-numbers no-measure"


def test_one_experiment_alone_fails_with_its_own_error(tmp_path):
    done, error = run(tmp_path, [experiment("alone", plans=lambda scale: {"run": plan("unknown", "nonsense")})])
    assert done == []
    assert isinstance(error, KeyError)


class Pool:
    """The first process dies with all that were begun; later ones die of one run alone."""

    begun = 0

    def __init__(self, processes, **settings):
        Pool.begun += 1
        self._first = Pool.begun == 1

    def __enter__(self):
        return self

    def __exit__(self, *how):
        return None

    def submit(self, make, plan, seed, root):
        future = Future()
        if self._first or plan.scenario.name == "deadly":
            future.set_exception(BrokenProcessPool("a process died"))
        else:
            future.set_result(root / plan.scenario.name)
        return future


def test_a_process_that_dies_costs_the_run_that_it_had_and_no_other(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_maker, "ProcessPoolExecutor", Pool)
    runs = [(plan("harmless"), 1), (plan("deadly"), 1)]
    folders, failed = make_runs(runs, tmp_path, 2, lambda what, share: None)
    assert list(folders.values()) == [tmp_path / "harmless"]
    (error,) = failed.values()
    assert "deadly, seed 1" in str(error)

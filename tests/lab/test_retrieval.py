"""The experiments on retrieval: all of them at smoke scale, without Spark, and the sweep of tasks."""

from __future__ import annotations

from collections import defaultdict

import pytest

from penstock.lab.engine.experiment import Views
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.engine.tasks import SECONDS, numbers_file, task_numbers
from penstock.lab.fast.news_task import NewsTask
from penstock.lab.fast.setting import NewsSetting
from penstock.lab.papers.retrieval import EXPERIMENTS, beyond
from penstock.lab.papers.retrieval.setting import news


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Of every task of every experiment."""
    tasks = [task for one in EXPERIMENTS if one.tasks for task in one.tasks("smoke", 1).values()]
    root = tmp_path_factory.mktemp("numbers")
    return task_numbers(tasks, runs_root=root, spark=None, progress=lambda what, share: None, failed={})


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_each_holds_at_smoke_scale(experiment, numbers):
    tasks = experiment.tasks("smoke", 1) if experiment.tasks else {}
    views = Views(seed=1, scale="smoke", numbers={name: numbers[task.text()] for name, task in tasks.items()})
    measured = experiment.measure(views)
    failed = [
        f"{one.name}: {measured.get(one.name)}"
        for one in experiment.criteria
        if "smoke" in one.scales and not one.holds(measured.get(one.name, float("nan")))
    ]
    assert not failed
    assert experiment.draw(views)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_seeds_after_the_first_have_fewer_points(experiment):
    if experiment.tasks is None:
        return
    first, later = experiment.tasks("paper", 1), experiment.tasks("paper", 2)
    assert set(later) <= set(first)
    assert later
    assert len({task.text() for task in first.values()}) <= len(first)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_the_default_has_all_seeds(experiment):
    if experiment.tasks is not None:
        first = experiment.tasks("paper", 1)
        default = {name for name, task in first.items() if task == NewsTask(NewsSetting(), 1)}
        assert default <= set(experiment.tasks("paper", 2))


@pytest.mark.parametrize("seed", [1, 2])
def test_every_criterion_is_measured_at_paper_scale(seed, monkeypatch):
    monkeypatch.setattr(beyond, "oracle_satisfaction", lambda setting, seed: 87.5)
    for experiment in EXPERIMENTS:
        if experiment.tasks is None:
            continue
        made_up = {name: defaultdict(lambda: 1.0) for name in experiment.tasks("paper", seed)}
        if seed > 1 and not made_up:
            continue
        measured = experiment.measure(Views(seed=seed, scale="paper", numbers=made_up))
        if seed == 1:
            assert {one.name for one in experiment.criteria} <= set(measured), experiment.name


def test_a_task_is_made_once(tmp_path):
    task = NewsTask(news("smoke", units=2, interests=20, publications=20), 1)
    found = task_numbers([task], runs_root=tmp_path, spark=None, progress=lambda what, share: None, failed={})
    file = numbers_file(tmp_path, task.text())
    before = file.stat().st_mtime_ns
    assert found == task_numbers(
        [task, task], runs_root=tmp_path, spark=None, progress=lambda what, share: None, failed={}
    )
    assert file.stat().st_mtime_ns == before


def test_tasks_are_made_on_spark_and_seen_by_the_experiment(spark, tmp_path):
    setting = {"units": 2, "interests": 20, "publications": 20}
    tasks = [NewsTask(news("smoke", **setting), seed) for seed in (1, 2, 3)]
    told = []
    found = task_numbers(
        tasks, runs_root=tmp_path, spark=lambda: spark, progress=lambda what, share: told.append(share), failed={}
    )
    assert all(numbers.pop(SECONDS) >= 0.0 for numbers in found.values())
    assert found == {task.text(): task.run() for task in tasks}
    assert told == [0.0]


def test_the_runner_judges_what_tasks_counted(spark, tmp_path):
    (result,) = run_experiments(
        [find("ecbn-req1-at-most-once")],
        scale="smoke",
        seeds=[1, 2],
        runs_root=tmp_path,
        spark=lambda: spark,
        processes=1,
        progress=lambda what, share: None,
    )
    assert result.holds()
    assert len(result.values["given twice, EON"]) == 2


def test_a_task_is_named_by_what_differs_from_the_paper():
    assert NewsTask(NewsSetting(), 3).text() == "retrieval seed=3"
    assert NewsTask(NewsSetting(policy="LF"), 1, exhaustive=True).text() == "exhaustive filtering policy=LF seed=1"

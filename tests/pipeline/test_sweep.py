"""Sweeps: every point with every seed, means with intervals, and failures that can be replayed."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import isnan

import pytest
from pyspark.sql import SparkSession

from penstock.errors import CheckFailed, PenstockError
from penstock.lab.engine.sweep import Estimate, Parameters, confidence_interval, parse_grid, replay_command, sweep


def finder(measure: Callable[[Parameters, int], dict[str, float]]) -> Callable[[str], object]:
    """A registry of one experiment. It is made of local parts, so that workers need not import this file."""

    class Experiment:
        def __init__(self, name: str) -> None:
            assert name == "an-experiment"

        def measure(self, parameters: Parameters, seed: int) -> dict[str, float]:
            return measure(parameters, seed)

    return Experiment


def test_every_point_with_every_seed_in_the_order_of_the_grid(spark: SparkSession) -> None:
    find = finder(lambda parameters, seed: {"sum": parameters["x"] + seed, "seed": seed})
    found = sweep(spark, "an-experiment", {"x": [10.0, 20.0], "mode": ["a", "b"]}, find=find, seeds=3, first_seed=1)
    assert [(one.parameters["x"], one.parameters["mode"], one.seed) for one in found.simulated] == [
        (x, mode, seed) for x in (10.0, 20.0) for mode in "ab" for seed in (1, 2, 3)
    ]
    summary = found.summary()
    assert [(one.measure, one.mean, one.seeds) for one in summary[:3]] == [
        ("sum", 12.0, 3),
        ("seed", 2.0, 3),
        ("sum", 12.0, 3),
    ]
    half = 4.302653 / 3**0.5  # Student's t with two degrees of freedom
    assert summary[0] == Estimate(
        {"x": 10.0, "mode": "a"}, "sum", 3, 12.0, pytest.approx(12.0 - half), pytest.approx(12.0 + half)
    )
    rows = found.table(spark).where("measure = 'sum'").collect()
    assert rows[0]["parameters"] == {"x": "10.0", "mode": "a"}


def test_a_failed_simulation_names_its_parameters_and_the_command(spark: SparkSession) -> None:
    def fail(parameters: Parameters, seed: int) -> dict[str, float]:
        if seed == 1 and parameters["loss"] == 0.5:
            raise RuntimeError("the river ran dry")
        return {"good": 1.0}

    with pytest.raises(CheckFailed) as caught:
        sweep(spark, "an-experiment", {"loss": [0.25, 0.5]}, find=finder(fail), seeds=2)
    text = str(caught.value)
    assert "1 of 4 simulations of an-experiment failed" in text
    assert "loss=0.5, seed=1: RuntimeError: the river ran dry" in text
    assert caught.value.replay == "penstock lab sweep an-experiment --grid loss=0.5 --seeds 1 --first-seed 1"


def test_a_worker_that_dies_names_the_simulation_that_it_was_at(spark: SparkSession) -> None:
    def die(_: Parameters, seed: int) -> dict[str, float]:
        if seed == 3:
            os._exit(9)
        return {}

    with pytest.raises(CheckFailed, match="a worker died in the simulation of an-experiment with seed=3"):
        sweep(spark, "an-experiment", {}, find=finder(die), seeds=4)


def test_a_measure_that_is_no_number_is_a_failure(spark: SparkSession) -> None:
    with pytest.raises(CheckFailed, match="not a finite number: ratio"):
        sweep(spark, "an-experiment", {}, find=finder(lambda *_: {"ratio": float("nan")}), seeds=1)


def test_confidence_intervals_are_students() -> None:
    low, high = confidence_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (low, high) == pytest.approx((3.0 - 1.963243, 3.0 + 1.963243), abs=1e-5)
    assert confidence_interval([7.0, 7.0]) == (7.0, 7.0)
    assert all(map(isnan, confidence_interval([7.0])))


def test_grids_are_read_from_the_command_line_and_written_back() -> None:
    grid = parse_grid(["loss=0.001,0.01", "mode=exact, appendix"])
    assert grid == {"loss": [0.001, 0.01], "mode": ["exact", "appendix"]}
    assert replay_command("x", {"mode": "a b", "n": 3.0}, 7) == (
        "penstock lab sweep x --grid 'mode=a b' --grid n=3.0 --seeds 1 --first-seed 7"
    )


@pytest.mark.parametrize("texts", [["loss"], ["loss="], ["=1"], ["loss=1,"], ["a=1", "a=2"], ["a=1,1.0"]])
def test_a_grid_that_makes_no_sense_is_refused(texts: list[str]) -> None:
    with pytest.raises(PenstockError, match="--grid"):
        parse_grid(texts)


@pytest.mark.parametrize(("grid", "seeds"), [({"a": []}, 1), ({}, 0), ({"a": list(range(1000))}, 1000)])
def test_too_few_or_too_many_simulations_are_refused(grid: dict[str, list[float]], seeds: int) -> None:
    with pytest.raises(PenstockError, match="seeds"):
        sweep(None, "an-experiment", grid, find=finder(lambda *_: {}), seeds=seeds)  # type: ignore[arg-type]

"""What several tests of the lab look at, made once: a run of the town with its tables, and a few experiments."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from lab_help import SMOKE, TOWN
from penstock.lab.engine.experiment import Result
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.engine.simulated_runs import simulate_into
from penstock.pipeline.run import PipelineSummary, run_pipeline
from penstock.scenario.reader import read_scenario
from penstock.scenario.spec import Scenario


class TownRun(NamedTuple):
    """A simulated run of the town, and what the pipeline says of it."""

    folder: Path
    scenario: Scenario
    summary: PipelineSummary


@pytest.fixture(scope="session")
def town_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TownRun:
    """The town in the simulator, with all tables of the pipeline."""
    scenario, folder = read_scenario(TOWN), tmp_path_factory.mktemp("runs") / "town"
    simulate_into(folder, scenario, 7)
    return TownRun(folder, scenario, run_pipeline(spark, [folder]))


@pytest.fixture(scope="session")
def lab_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of the experiments lie."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="session")
def smoke_results(spark: SparkSession, lab_root: Path) -> list[Result]:
    """Three experiments from end to end, at smoke scale."""
    return run_experiments(
        [find(name) for name in SMOKE],
        scale="smoke",
        seeds=[1],
        runs_root=lab_root,
        spark=lambda: spark,
        processes=2,
        progress=lambda what, share: None,
    )

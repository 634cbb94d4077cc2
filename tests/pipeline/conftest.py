"""A run that many tests look at and none may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lab.engine.simulated_runs import simulate_into
from penstock.scenario.reader import read_scenario
from penstock.sim.run import RunResult

TOWN = Path(__file__).parents[2] / "networks" / "town.toml"


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A run of the town on disk, and what the simulator says of it."""
    folder = tmp_path_factory.mktemp("runs") / "town" / "7"
    return folder, simulate_into(folder, read_scenario(TOWN), 7)[1]

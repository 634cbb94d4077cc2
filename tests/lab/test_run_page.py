"""The report of a run shows what the pipeline has written beside it, and says what to do where it has not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import InvalidRun
from penstock.lab.engine.simulated_runs import simulate_into
from penstock.lab.engine.view import View
from penstock.lab.pages.run_page import _percentiles_table, _rates_figure, write_run_report
from penstock.pipeline import metrics
from penstock.pipeline.results import read_result
from penstock.pipeline.run import run_pipeline
from penstock.scenario.reader import read_scenario

TOWN = Path(__file__).parents[2] / "networks" / "town.toml"


def test_the_page_has_the_numbers_of_the_traces(spark: SparkSession, tmp_path: Path) -> None:
    scenario, folder = read_scenario(TOWN), tmp_path / "town"
    simulate_into(folder, scenario, 7)
    with pytest.raises(InvalidRun, match="penstock pipeline run"):
        write_run_report(folder, scenario, "penstock demo")
    run_pipeline(spark, [folder])
    page = write_run_report(folder, scenario, "penstock demo").read_text()
    view = View(spark, folder, scenario)
    tables = view.tables
    by_client = metrics.delay_percentiles(tables.delivered, tables.published, by=("client",)).toArrow().to_pylist()
    assert _percentiles_table(by_client) in page
    curves = _rates_figure(read_result(folder, "rates"), int(scenario.duration)).spec
    assert curves is not None
    for name, values in (("delivered", view.delivered_per_second()), ("missed", view.missed_per_second)):
        drawn = [row["rate"] for row in curves["data"]["values"] if row["series"] == name]
        assert drawn == values.tolist()
    view.close()

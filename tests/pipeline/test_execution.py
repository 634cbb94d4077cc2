"""A metric gives the same from files and from DataFrames, whatever shares one pass with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.kernel.trace import Delivered, Published, Subscribed
from penstock.kernel.trace_files import TraceFiles
from penstock.pipeline import execution, metrics
from penstock.pipeline.metric import MetricPlan
from penstock.pipeline.metrics import delay, fairness, losses, order, per_second
from penstock.pipeline.read import read_runs
from penstock.pipeline.steps import STEPS, results_of


def write_run(folder: Path, late: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"name": "x", "seed": 1, "complete": true}')
    with TraceFiles(folder, rows_max=5) as trace:
        trace.write(0.0, "c0", Subscribed(0, "x > 0"))
        trace.write(0.0, "c1", Subscribed(0, "x > 0"))
        for count in range(1, 18):
            trace.write(float(count), "p", Published("p", 1, count, '{"x": 1}', 0, waited=0.25 * (count == 3)))
        for place, count in enumerate([*range(1 + late, 18), *range(1, 1 + late)]):
            trace.write(20.0 + place, f"c{count % 2}", Delivered(0, "p", 1, count))
    return folder


def test_the_same_from_files_and_from_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)  # in this process; what tasks do with it is theirs
    tables = read_runs(spark, [write_run(tmp_path / "x" / "one", 4), write_run(tmp_path / "x" / "two", 2)])
    results = results_of(spark, tables, [step.name for step in STEPS])
    assert list(results) == [step.name for step in STEPS]
    sent = {"fifo_violations": metrics.fifo_violations(tables.delivered)}
    sent["delay_percentiles_per_client"] = metrics.delay_percentiles(tables.delivered, tables.published, ("client",))
    for name, frame in sent.items():
        assert sorted(map(tuple, frame.collect())) == [tuple(row.values()) for row in results[name].to_pylist()]
    violations = [(row["run"], row["client"], row["violations"]) for row in results["fifo_violations"].to_pylist()]
    assert violations == [("x/one", "c0", 2), ("x/one", "c1", 2), ("x/two", "c0", 1), ("x/two", "c1", 1)]
    means = {row["since"]: row["mean"] for row in results["delay_percentiles_per_run"].to_pylist()}
    assert means["publish"] - means["sent"] == pytest.approx(0.25 / 17)
    assert sum(row["missed"] for row in results["missed"].to_pylist()) == 2 * 17  # each came to one of two


def test_a_run_without_records_has_empty_results(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "run.json").write_text('{"name": "x", "seed": 1, "complete": true}')
    results = results_of(spark, read_runs(spark, [folder]), ["missed", "delay_histogram", "rates"])
    assert {name: (table.num_rows, table.num_columns) for name, table in results.items()} == {
        "missed": (0, 5),
        "delay_histogram": (0, 4),
        "rates": (0, 5),
    }


def plan(*wanted: str) -> MetricPlan:
    metrics_ = [*delay.HELPERS, *STEPS]
    return MetricPlan(metrics_, wanted, execution.kind_ddls() | {"truth": losses.FALSE_NEGATIVES + ", due boolean"})


def test_only_what_is_needed_is_read_and_sent() -> None:
    rates = plan("delivered_per_second")
    assert (rates.last, rates.shipments, rates.sources) == (0, (), {"delivered": ("node", "time")})
    late = plan("fifo_violations")
    assert [one.address for one in late.shipments] == ["delivered by publisher node"]
    assert "subscription" not in late.sources["delivered"]


def test_rows_that_meet_already_are_not_sent_again() -> None:
    pairs = plan("delay_percentiles", "delay_histogram")
    assert [one.address for one in pairs.shipments] == ["delivered by publisher", "published by publisher"]
    clients = plan("delay_percentiles_per_client")
    assert [one.address for one in clients.shipments][-1] == "delays by client"
    assert clients.last == 2
    assert plan(*(step.name for step in (fairness.FAIRNESS_METRIC, order.VIOLATIONS_METRIC))).last == 2
    assert plan(per_second.RATES_METRIC.name).last == 1

"""Packs made straight from files are the packs that Spark's own reader leads to."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.kernel.trace import Delivered, Published
from penstock.kernel.trace_files import TraceFiles
from penstock.pipeline.metrics import fifo_violations
from penstock.pipeline.pack_files import packed_deliveries, packed_publications
from penstock.pipeline.read import read_runs


def write_run(folder: Path, late: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"name": "x", "seed": 1, "complete": true}')
    with TraceFiles(folder, rows_max=5) as trace:
        for count in range(1, 18):
            trace.write(float(count), "p", Published("p", 1, count, "{}", 0))
        for place, count in enumerate([*range(1 + late, 18), *range(1, 1 + late)]):
            trace.write(20.0 + place, f"c{count % 2}", Delivered(0, "p", 1, count))
    return folder


def test_the_same_answer_from_files_and_from_tables(spark: SparkSession, tmp_path: Path) -> None:
    tables = read_runs(spark, [write_run(tmp_path / "x" / "one", 4), write_run(tmp_path / "x" / "two", 2)])
    packs = packed_deliveries(spark, tables.runs)
    assert sum(row["rows"] for row in packs.collect()) == 34
    direct, usual = fifo_violations(packs).collect(), fifo_violations(tables.delivered).collect()
    assert sorted(direct) == sorted(usual)
    assert sorted((row["run"], row["client"], row["violations"]) for row in direct) == [
        ("x/one", "c0", 2),
        ("x/one", "c1", 2),
        ("x/two", "c0", 1),
        ("x/two", "c1", 1),
    ]


def test_a_run_without_such_records_has_no_packs(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "run.json").write_text('{"name": "x", "seed": 1, "complete": true}')
    assert packed_publications(spark, read_runs(spark, [folder]).runs).collect() == []

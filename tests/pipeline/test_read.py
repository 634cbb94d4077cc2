"""Runs on disk become tables; what is damaged is named, what is incomplete is marked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import InvalidRun, PipelineError, SchemaMismatch
from penstock.kernel.trace import Counted, Delivered, NodeStopped, Record
from penstock.kernel.trace_files import TraceFiles, kind_name
from penstock.pipeline.read import find_runs, part_files, read_runs, trace_bytes
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.schema import checked, parse_ddl, table_ddl
from penstock.services import record_kinds
from penstock.sim.run import RunResult


def make_run(folder: Path, records: list[Record], *, complete: bool = True, rows_max: int = 100) -> Path:
    with TraceFiles(folder, rows_max=rows_max) as trace:
        for number, record in enumerate(records):
            trace.write(float(number), "n", record)
    (folder / "run.json").write_text(json.dumps({"name": "x", "seed": 1, "complete": complete}))
    return folder


def counts(*values: int) -> list[Record]:
    return [Counted("x", "", value) for value in values]


def test_there_is_a_table_for_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    tables = read_runs(spark, [make_run(tmp_path / "a" / "7-x", counts(1))])
    for name in map(kind_name, record_kinds()):
        assert getattr(tables, name) is getattr(tables, name)
    with pytest.raises(AttributeError, match=r"no kind of record has a table 'departed'; there are .*delivered"):
        _ = tables.departed


@pytest.mark.parametrize("kind", record_kinds(), ids=lambda kind: kind.__name__)
def test_spark_reads_our_schemas_as_we_do(kind: type[Record], spark: SparkSession) -> None:
    assert spark.createDataFrame([], table_ddl(kind)).schema == parse_ddl(table_ddl(kind))


def test_a_run_is_read_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    tables = read_runs(spark, [make_run(tmp_path / "a" / "7-x", [*counts(1, 2), NodeStopped("crash")])])
    assert [tuple(row) for row in tables.counted.sort("time").collect()] == [
        ("a/7-x", 0.0, "n", "x", "", 1),
        ("a/7-x", 1.0, "n", "x", "", 2),
    ]
    assert [tuple(row) for row in tables.node_stopped.collect()] == [("a/7-x", 2.0, "n", "crash")]
    assert (tables.runs[0].run, tables.warnings) == ("a/7-x", ())


def test_a_kind_that_never_happened_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    tables = read_runs(spark, [make_run(tmp_path / "a" / "7-x", counts(1))])
    for kind in record_kinds():
        table = getattr(tables, kind_name(kind))
        assert checked(table, table_ddl(kind), "x").columns == table.columns
    assert tables.delivered.collect() == []


def test_several_runs_in_folders_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    odd = tmp_path / "a [b]{c}*? 100%20 ü+"
    folders = [make_run(odd / "7", counts(1, 2, 3), rows_max=2), make_run(odd / "8", counts(4))]
    rows = read_runs(spark, folders).counted.collect()
    name = odd.name
    assert {(row["run"], row["value"]) for row in rows} == {
        (f"{name}/7", 1),
        (f"{name}/7", 2),
        (f"{name}/7", 3),
        (f"{name}/8", 4),
    }


def test_drafts_are_overlooked(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a" / "7", counts(1))
    (folder / "trace" / "counted" / ".part-00001.parquet.123").write_bytes(b"half a file")
    assert read_runs(spark, [folder]).counted.count() == 1


def test_an_incomplete_run_is_read_and_marked(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a" / "7", counts(1), complete=False)
    tables = read_runs(spark, [folder])
    assert tables.counted.count() == 1
    assert tables.warnings == (f"{folder}: incomplete run (it crashed or is still going), read up to 0.0 s",)


@pytest.mark.parametrize("harm", ["cut short", "emptied", "overwritten"])
def test_a_damaged_part_file_is_named_and_can_be_left_out(harm: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a" / "7", counts(1, 2, 3), rows_max=1)
    bad = part_files(folder, Counted)[1]
    data = bad.read_bytes()
    bad.write_bytes({"cut short": data[:-7], "emptied": b"", "overwritten": b"x" * len(data)}[harm])
    with pytest.raises(InvalidRun, match=r"part-00001.parquet: is damaged .*--allow-partial"):
        read_runs(spark, [folder])
    tables = read_runs(spark, [folder], allow_partial=True)
    assert sorted(row["value"] for row in tables.counted.collect()) == [1, 3]
    assert len(tables.warnings) == 1
    assert tables.warnings[0].startswith(f"{bad}: left out, is damaged")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def test_a_flipped_bit_inside_a_page_is_found_and_named(
    spark: SparkSession, town: tuple[Path, RunResult], tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "7"
    shutil.copytree(town[0], folder)
    bad = part_files(folder, Delivered)[0]
    flip(bad)
    with pytest.raises((InvalidRun, PipelineError), match=r"delivered/part-00000.parquet: is damaged"):
        run_pipeline(spark, [folder], only=["fifo_violations"])
    assert read_runs(spark, [folder], allow_partial=True).warnings[0].startswith(f"{bad}: left out")


def test_a_file_of_another_version_is_named(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a" / "7", [*counts(1), NodeStopped("crash")])
    shutil.copy(part_files(folder, Counted)[0], part_files(folder, NodeStopped)[0])
    with pytest.raises(InvalidRun, match=r"columns are not those of NodeStopped: .*another version"):
        read_runs(spark, [folder])


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "is no run"), ("not json", "does not describe a run"), ("{}", "does not describe")]
)
def test_a_folder_without_a_run_is_refused(text: str | None, problem: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(InvalidRun, match=problem):
        find_runs([tmp_path])


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / place / "a" / "7", counts(1)) for place in ("here", "there")]
    with pytest.raises(InvalidRun, match="same name"):
        find_runs(folders)
    assert trace_bytes(find_runs(folders[:1])) == part_files(folders[0], Counted)[0].stat().st_size


def test_a_table_is_checked_by_name_and_type(spark: SparkSession) -> None:
    table = spark.createDataFrame([(1, "a")], "b bigint, run string")
    assert checked(table, "run string, b bigint", "x").columns == ["run", "b"]
    with pytest.raises(SchemaMismatch, match="the table x has no column 'c', unknown column 'b'"):
        checked(table, "run string, c bigint", "x")
    with pytest.raises(SchemaMismatch, match="'b' is bigint and should be double"):
        checked(table, "run string, b double", "x")


@pytest.mark.parametrize(
    ("scenario", "problem"),
    [
        ({"settle": "abc"}, "`settle` of its scenario is 'abc', not a number of seconds"),
        ({"settle": None}, "`settle` of its scenario is None"),
        ({"settle": -5}, "`settle` of its scenario is -5"),
        ({"settle": True}, "`settle` of its scenario is True"),
        ({"drain": [1]}, r"`drain` of its scenario is \[1\]"),
    ],
)
def test_a_scenario_whose_times_are_none_is_refused(scenario: dict[str, object], problem: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"name": "x", "seed": 1, "complete": True, "scenario": scenario}))
    with pytest.raises(InvalidRun, match=rf"run\.json: {problem}"):
        find_runs([tmp_path])

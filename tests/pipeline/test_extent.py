"""How far a run can be believed: cut at the earliest mark, counted, and what is lost is not taken for missed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.kernel.trace import Delivered, NodeStarted, Subscribed
from penstock.kernel.trace_files import TraceFiles
from penstock.kernel.trace_marks import Mark
from penstock.pipeline.extent import (
    CheckFinding,
    LostRecords,
    Part,
    find_losses,
    lost_records,
    reached,
    unjudged_stretches,
)
from penstock.pipeline.read import find_runs, part_files, read_runs
from penstock.pipeline.results import read_result
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.summary import as_text
from penstock.sim.run import RunResult

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "killed_run.py"
TOWN = HERE.parents[1] / "networks" / "town.toml"
CALM = """
name = "calm"
duration = 30.0
settle = 0.2
[[broker]]
name = "a"
[[broker]]
name = "b"
[[link]]
between = ["a", "b"]
delay = 0.002
[[client]]
name = "p"
broker = "a"
publish = [{ rate_messages_per_s = 300.0, attributes = { x = { integer = [1, 9] } } }]
[[client]]
name = "s"
broker = "b"
subscribe = [{ where = "x > 4" }]
[[client]]
name = "t"
broker = "a"
subscribe = [{ where = "x < 4" }]
"""


def test_a_run_is_read_up_to_the_earliest_mark() -> None:
    open_, further, closed = Mark(writer="a", until=3.0), Mark(writer="b", until=5.0), Mark(writer="c", closed=True)
    assert reached([open_, further, closed], complete=False) == 3.0
    assert reached([open_, Mark(writer="new")], complete=False) == -inf
    assert reached([open_, further], complete=True) == inf
    assert reached([], complete=False) == -inf, "an older version left no marks: nothing is certain"
    ended = reached(
        [Mark(writer="a", until=3.0, closed=True), Mark(writer="b", until=5.0, closed=True)], complete=False
    )
    assert 5.0 < ended < 5.0001, "all is there, and the run stopped before its end"


def test_what_is_lost_is_not_judged() -> None:
    assert unjudged_stretches(inf, [], 2.0) == ()
    assert unjudged_stretches(9.0, [], 2.0) == ((7.0, inf),)
    lost = [LostRecords("delivered", 4.0, 6.0), LostRecords("published", 1.0, 2.0), LostRecords("subscribed", 7.0, 8.0)]
    assert unjudged_stretches(inf, lost, 2.0) == ((2.0, 6.0), (7.0, inf))
    assert unjudged_stretches(8.0, lost, 2.0) == ((2.0, inf),), "what overlaps is said once"


def parts_of(folder: Path, bad: set[int]) -> list[Part]:
    files = part_files(folder, Delivered)
    return [Part(path, "delivered", 0 if n in bad else 2, "bad" if n in bad else None) for n, path in enumerate(files)]


@pytest.mark.parametrize(
    ("bad", "lost"),
    [
        ({1}, [(1.0, 4.0)]),
        ({0}, [(-inf, 2.0)]),
        ({3}, [(5.0, inf)]),
        ({1, 2}, [(1.0, 6.0), (1.0, 6.0)]),
        ({0, 1, 2, 3}, [(-inf, inf)] * 4),
    ],
)
def test_a_lost_part_covers_the_time_between_its_neighbours(
    bad: set[int], lost: list[tuple[float, float]], tmp_path: Path
) -> None:
    with TraceFiles(tmp_path, rows_max=2, writer="a-1") as trace, TraceFiles(tmp_path, writer="b") as other:
        for number in range(8):
            trace.write(float(number), "n", Delivered(0, "p", 1, number))
        other.write(3.3, "n", Delivered(0, "p", 1, 99))  # says nothing about the parts of somebody else
    found = lost_records(parts_of(tmp_path, bad), [], None, complete=True)
    assert found == [LostRecords("delivered", *stretch) for stretch in lost]


def test_a_killed_process_may_have_lost_records_of_any_kind() -> None:
    """Also of one that it had put nothing on disk of; a broker's process has none of a client's records."""
    publisher, broker = (
        Mark(writer="p", until=5.0, rows={"node_started": 1}),
        Mark(writer="north-17", rows={"counted": 3}),
    )

    def lost(mark: Mark) -> list[LostRecords]:
        return lost_records([], [mark], {}, complete=True, brokers={"north"})

    kinds = ["delivered", "node_started", "published", "subscribed", "unsubscribed"]
    assert lost(publisher) == [LostRecords(kind, 5.0, inf) for kind in kinds]
    assert lost(broker) == [LostRecords("counted", -inf, inf)]


def test_a_publisher_killed_before_it_put_a_publication_on_disk_fails_no_check(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "7"
    killed = TraceFiles(folder, writer="p")
    killed.write(0.0, "p", NodeStarted("client", 1))
    killed.flush(5.0)
    with TraceFiles(folder, writer="c") as trace:
        trace.write(0.0, "c", Subscribed(1, "TRUE"))
        trace.write(6.5, "c", Delivered(1, "p", 1, 1))
    records = {"node_started": 1, "subscribed": 1, "delivered": 1}
    (folder / "run.json").write_text(json.dumps({"name": "x", "seed": 1, "complete": True, "records": records}))
    summary = run_pipeline(spark, [folder], only=["checks"])
    assert [(one["level"], one["check"]) for one in summary.checks] == [("warn", "a process was killed")]


def test_records_are_counted() -> None:
    part, closed = Part(Path("part-00000.parquet"), "delivered", 7), Mark(writer="", closed=True)

    def found(records: dict[str, int] | None, *marks: Mark, complete: bool = True) -> list[CheckFinding]:
        return find_losses("r", [part], marks, records, complete=complete)

    assert found({"delivered": 7}, closed) == []
    assert found(None) == [], "an older version did not count"
    missing = CheckFinding("r", "records are missing", 1, "run.json says 8 delivered, the trace has 7")
    assert found({"delivered": 8}, closed) == [missing]
    gone = CheckFinding("r", "records are missing", 1_200, "run.json says 1,200 published, the trace has 0")
    assert found({"delivered": 7, "published": 1_200}, closed) == [gone]
    too_many = CheckFinding("r", "there are too many records", 7, "run.json says 0 delivered, the trace has 7")
    assert found({}, closed) == [too_many]
    (several,) = found({"delivered": 8, "published": 1_200, "counted": 20}, closed)
    assert several.times == 1_221
    assert several.example == (
        "run.json says 20 counted, the trace has 0; 8 delivered, the trace has 7; 1,200 published, the trace has 0"
    )
    killed = Mark(writer="north", until=2.5, rows={"delivered": 5})
    assert found({"delivered": 5}, killed) == [
        CheckFinding("r", "a process was killed", 1, "the records of north end at 2.5 s")
    ]
    assert found(None, killed, complete=False) == [], "it may have put more on disk than it has marked"
    fewer = CheckFinding("r", "records are missing", 2, "the marks say 9 delivered, the trace has 7")
    assert found(None, Mark(writer="", until=1.0, rows={"delivered": 9}), complete=False) == [fewer]


def test_a_damaged_mark_does_not_matter_where_all_records_are_there(spark: SparkSession, tmp_path: Path) -> None:
    def findings(folder: Path, **says: object) -> list[tuple[str, str]]:
        with TraceFiles(folder) as trace:
            trace.write(1.0, "n", Subscribed(1, "TRUE"))
        (folder / "trace" / "mark.json").write_text("{")
        (folder / "run.json").write_text(json.dumps({"name": "x", "seed": 1, "complete": True, **says}))
        return [(one.check, one.example) for one in read_runs(spark, [folder]).findings]

    unknown = ("a mark cannot be read", "nobody knows how far the records of the run go")
    missing = ("records are missing", "run.json says 2 subscribed, the trace has 1")
    assert findings(tmp_path / "a" / "1", records={"subscribed": 1}) == []
    assert findings(tmp_path / "a" / "2", records={"subscribed": 2}) == [unknown, missing]
    assert findings(tmp_path / "a" / "3", records={"subscribed": 1}, cut_off=[""]) == [unknown]
    assert findings(tmp_path / "a" / "4") == [unknown]


def test_a_killed_run_is_judged_as_far_as_it_got(
    spark: SparkSession, town: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """Two processes are killed, a simulation and a live run. What the rest says is what the whole run would say."""
    simulated, live, damaged, whole = (tmp_path / name / "7" for name in ("simulated", "live", "damaged", "whole"))
    (tmp_path / "calm.toml").write_text(CALM)
    killed = [
        subprocess.Popen([sys.executable, PROGRAM, *words], stderr=subprocess.PIPE)
        for words in (["sim", TOWN, simulated, "6000"], ["live", tmp_path / "calm.toml", live, "1000"])
    ]
    for process in killed:
        assert process.stderr is not None
        process.stderr.read()  # to its end: the brokers have it too, and have ended when it is closed
        assert process.wait() == -9
    shutil.copytree(town[0], whole)
    shutil.copytree(simulated, damaged)
    parts = part_files(damaged, Delivered)
    parts[len(parts) // 2].write_bytes(b"PAR1")
    folders = [whole, simulated, live, damaged]
    summary = run_pipeline(spark, folders, only=["missed", "false_negatives", "checks"], allow_partial=True)
    assert not summary.failed, summary.checks
    rows = {row["run"]: row for row in summary.runs}
    assert rows["live/7"]["due"] > 0
    assert rows["live/7"]["missed"] == 0, "nothing is lost in a calm network"
    runs = {run.folder: run for run in find_runs(folders)}
    until = runs[simulated].until
    assert 4.0 < until < 20.0
    assert f"simulated/7 (incomplete: read up to {until:.1f} s)" in as_text(summary)

    def missed(folder: Path) -> set[tuple[object, ...]]:
        found = [row for row in read_result(folder, "false_negatives") if row["published_at"] < until - 2.0]
        return {tuple(row[name] for name in ("publisher", "count", "client", "subscription")) for row in found}

    assert 0 < len(missed(simulated)) < rows["simulated/7"]["due"] / 5
    assert missed(simulated) == missed(whole), "the town gives its messages two seconds to arrive; so is it here"
    assert missed(damaged) < missed(whole), "what is lost is not missed"
    assert 0 < rows["damaged/7"]["due"] < rows["simulated/7"]["due"]
    assert {found["check"] for found in summary.checks} == {"incomplete run", "a part file was left out"}


def test_an_incomplete_run_of_an_older_version_is_not_looked_at(tmp_path: Path) -> None:
    with TraceFiles(tmp_path / "a" / "7") as trace:
        trace.write(1.0, "n", Delivered(0, "p", 1, 1))
    (tmp_path / "a" / "7" / "trace" / "mark.json").unlink()
    (tmp_path / "a" / "7" / "run.json").write_text(json.dumps({"name": "x", "seed": 1, "complete": False}))
    (run,) = find_runs([tmp_path / "a" / "7"])
    assert run.until == -inf

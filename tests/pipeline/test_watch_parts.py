"""The folder of a watch without Spark: batches land once, what is missing is known, and it stays small."""

from __future__ import annotations

import json
import signal
import threading
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import parquet

from penstock.cli import watch
from penstock.cli.watch import ctrl_c, drawn, notes
from penstock.errors import InvalidRun
from penstock.kernel.trace import Counted, Delivered, NodeStarted, Published, Record, Subscribed
from penstock.kernel.trace_batch import TraceBatch, encode_batch, packed
from penstock.pipeline.read import find_runs, look_at
from penstock.pipeline.watch import folder as watch_folder
from penstock.pipeline.watch import view
from penstock.pipeline.watch import writers as watch_writers
from penstock.pipeline.watch.folder import WatchFolder
from penstock.pipeline.watch.writers import LONG_AGO, SILENT_AFTER, Writers

URL = "penstock://127.0.0.1:7420"
BEGAN = 1_000.0


def batch(number: int, *lines: tuple[float, Record], node: str = "n", **given: Any) -> TraceBatch:
    named = {"writer": f"{node}-1", "node": node, "role": "client", "upto": lines[-1][0] if lines else 0.0} | given
    return TraceBatch(number=number, kinds=packed(lines), **named)


def published(time: float, count: int) -> tuple[float, Record]:
    return time, Published("exchange", 1, count, "{}", 0)


def counts(folder: Path) -> list[int]:
    """Of the publications that have landed."""
    files = sorted((folder / "trace" / "published").glob("part-*.parquet"))
    return [count for file in files for count in parquet.read_table(file)["count"].to_pylist()]


def land(folder: WatchFolder, number: int, *batches: TraceBatch) -> None:
    folder.checkpoint.mkdir(exist_ok=True)
    folder.land(number, [(max(one.upto, one.left_upto), encode_batch(one)) for one in batches])


# What is known of writers.


def test_the_slowest_of_those_that_live_says_how_far_all_is_known() -> None:
    writers = Writers()
    assert writers.reached == -inf
    for one in (batch(1, published(5.0, 1)), batch(1, published(7.0, 1), node="m")):
        assert writers.take(one, 7.0)
    assert (writers.reached, writers.complete) == (5.0, False)
    assert not writers.take(batch(1, published(9.0, 1)), 9.0), "it came before"
    writers.take(batch(2, upto=8.0, closed=True), 8.0)
    assert writers.reached == 7.0
    writers.take(batch(2, upto=9.0, closed=True, node="m"), 9.0)
    assert (writers.reached, writers.complete) == (9.0, True)


def test_who_is_silent_holds_nobody_up_and_may_come_back() -> None:
    writers = Writers()
    writers.take(batch(1, upto=5.0), 5.0)
    writers.take(batch(1, upto=5.0, node="m"), 5.0)
    writers.take(batch(2, upto=20.0, node="m"), 20.0)
    assert writers.fall_silent(5.0 + SILENT_AFTER) == []
    (silent,) = writers.fall_silent(20.0)
    assert (silent.node, silent.upto) == ("n", 5.0)
    assert writers.reached == 20.0
    assert writers.fall_silent(20.0) == []
    writers.take(batch(2, upto=19.0), 21.0)
    assert writers.reached == 19.0
    assert not writers.writers["n-1"].silent


def test_what_is_missing_is_a_stretch_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    writers = Writers()
    writers.take(batch(1, upto=5.0), 5.0)
    writers.take(batch(4, published(8.0, 1)), 8.0)
    assert (writers.lost, writers.lost_batches) == ([(5.0, 8.0)], 2)
    writers.take(batch(5, upto=20.0, left_out=7, left_from=12.0, left_upto=15.0), 20.0)
    writers.take(batch(3, upto=14.0, node="m"), 20.0)
    assert writers.lost == [(LONG_AGO, 15.0)], "nobody knows what the other had said before"
    assert (writers.left_out, writers.lost_batches) == (7, 4)
    monkeypatch.setattr(watch_writers, "LOST_MAX", 2)
    for begin in (30.0, 40.0, 50.0):
        writers._lose(begin, begin + 1.0)
    assert writers.lost == [(LONG_AGO, 41.0), (50.0, 51.0)]


def test_ended_writers_are_forgotten_and_the_sample_is_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_writers, "WRITERS_MAX", 1)
    writers = Writers()
    writers.take(batch(1, upto=1.0, closed=True, one_in=9), 1.0)
    writers.take(batch(1, upto=2.0, node="m", one_in=3), 2.0)
    assert writers.one_in == 3
    writers.fall_silent(2.0)
    assert list(writers.writers) == ["m-1"]


# Landing.


def test_a_batch_lands_once_and_a_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = WatchFolder(tmp_path / "w", URL, BEGAN)
    first = batch(1, published(1_001.0, 1), published(1_002.5, 2))
    land(folder, 0, first)
    land(folder, 0, batch(2, published(1_003.0, 3)))
    assert counts(folder.path) == [1, 2], "a batch that Spark tries again is done already"
    again = WatchFolder(tmp_path / "w", URL, 9_999.0)
    land(again, 1, first, batch(2, published(1_003.0, 3)))
    assert counts(again.path) == [1, 2, 3]
    times = parquet.read_table(tmp_path / "w" / "trace" / "published" / "part-00000000.parquet")["time"].to_pylist()
    assert times == [1.0, 2.5]
    (run,) = find_runs([tmp_path / "w"])
    assert (run.until, run.head.complete) == (3.0, False)
    assert all(part.problem is None for part in look_at(run, thorough=True))
    land(again, 2, batch(3, upto=1_009.0, closed=True))
    (run,) = find_runs([tmp_path / "w"])
    assert (run.until, run.head.complete) == (inf, True)


def test_what_holds_is_said_again_and_lands_once(tmp_path: Path) -> None:
    holds: tuple[tuple[float, Record], ...] = ((900.0, NodeStarted("client", 1)), (950.0, Subscribed(1, "x = 1")))
    land(WatchFolder(tmp_path / "w", URL, BEGAN), 0, batch(1, *holds, upto=1_001.0))
    land(WatchFolder(tmp_path / "w", URL, BEGAN), 1, batch(2, *holds, (960.0, Subscribed(2, "x")), upto=1_002.0))
    found = [parquet.read_table(path) for path in sorted((tmp_path / "w" / "trace" / "subscribed").iterdir())]
    assert [number for table in found for number in table["subscription"].to_pylist()] == [1, 2]
    assert len(list((tmp_path / "w" / "trace" / "node_started").iterdir())) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": {"published": [[1_001.0]]}},
        {"kinds": {"published": [[1_001.0], ["x"], ["no number"], [1], ["{}"], [0], [0.0]]}},
        {"kinds": {"published": [[float("nan")], ["x"], [1], [1], ["{}"], [0], [0.0]]}},
        {"kinds": {"published": [[1_001.0], [None], [1], [1], ["{}"], [0], [0.0]]}},
        {"kinds": {"published": [[1_001.0], ["x"], [2**63], [1], ["{}"], [0], [0.0]]}},
        {"upto": inf},
        {"one_in": 0},
        {"number": 0},
    ],
)
def test_what_is_no_record_is_left_out_and_counted(wrong: dict[str, Any], tmp_path: Path) -> None:
    folder = WatchFolder(tmp_path / "w", URL, BEGAN)
    bad = TraceBatch(**{"writer": "bad", "node": "bad", "role": "client", "number": 1, "upto": 1_001.0} | wrong)
    folder.land(0, [(1_001.0, encode_batch(bad)), (1_001.0, b"nonsense")])
    land(folder, 1, batch(1, published(1_002.0, 1)))
    assert counts(folder.path) == [1]
    assert folder.state.refused == (1 if wrong.get("number") == 0 else 2)
    assert "bad" not in folder.state.writers.writers


def test_kinds_of_another_version_are_passed_over(tmp_path: Path) -> None:
    folder = WatchFolder(tmp_path / "w", URL, BEGAN)
    land(folder, 0, batch(1, upto=1_001.0), TraceBatch(writer="x", node="x", role="client", number=1, kinds={"no": []}))
    assert folder.state.refused == 0


def test_who_fell_silent_has_stopped_until_it_is_heard_of(tmp_path: Path) -> None:
    folder = WatchFolder(tmp_path / "w", URL, BEGAN)
    land(folder, 0, batch(1, (1_000.5, Subscribed(7, "x")), upto=1_001.0), batch(1, upto=1_030.0, node="m"))
    for _ in range(2):
        found = [
            parquet.read_table(tmp_path / "w" / "trace" / kind / "part-silent.parquet").to_pylist()
            for kind in ("node_stopped", "unsubscribed")
        ]
        stopped, unsubscribed = found
        assert stopped == [{"time": 1.0, "node": "n", "cause": "silent"}]
        assert unsubscribed == [{"time": 1.0, "node": "n", "subscription": 7}]
        folder = WatchFolder(tmp_path / "w", URL, BEGAN)
    land(folder, 1, batch(2, upto=1_031.0))
    assert list((tmp_path / "w" / "trace").rglob("part-silent.parquet")) == []


def test_small_parts_are_merged_and_leftovers_of_a_crash_are_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_folder, "MERGED", 3)
    folder = WatchFolder(tmp_path / "w", URL, BEGAN)
    for number in range(7):
        land(folder, number, batch(number + 1, published(1_000.0 + number, number)))
    own = tmp_path / "w" / "trace" / "published"
    assert (
        sorted(path.name for path in own.iterdir())
        == [
            "part-00000000-00000004.parquet",
            "part-00000005.parquet",
            "part-00000006.parquet",
        ]
        or len(list(own.iterdir())) <= 3
    )
    assert sorted(counts(folder.path)) == list(range(7))
    merged = max(own.iterdir(), key=lambda path: len(path.name))
    (own / "part-00000001.parquet").write_bytes(merged.read_bytes())  # as a merge leaves it that was cut off
    again = WatchFolder(tmp_path / "w", URL, BEGAN)
    assert sorted(counts(again.path)) == list(range(7))


def test_only_the_last_seconds_are_kept_and_what_was_before_is_not_judged(tmp_path: Path) -> None:
    folder = WatchFolder(tmp_path / "w", URL, BEGAN, keep=10.0)
    facts: tuple[tuple[float, Record], ...] = ((1_000.0, Subscribed(1, "x")), (1_000.5, Counted("c", "", 1)))
    land(folder, 0, batch(1, *facts, published(1_001.0, 1), (1_001.0, Delivered(1, "exchange", 1, 1))))
    land(folder, 1, batch(2, published(1_009.0, 2)))
    land(folder, 2, batch(3, published(1_012.0, 3)))
    assert counts(folder.path) == [2, 3]
    kinds = {path.parent.name for path in (tmp_path / "w" / "trace").rglob("*.parquet")}
    assert kinds == {"published", "subscribed"}
    (run,) = find_runs([tmp_path / "w"])
    assert run.head.left_out == ((LONG_AGO, 1.0),)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidRun, match="holds something else"):
        WatchFolder(tmp_path, URL, BEGAN)
    land(WatchFolder(tmp_path / "w", URL, BEGAN), 0, batch(1, upto=1_001.0))
    (tmp_path / "w" / "checkpoint").rmdir()
    with pytest.raises(InvalidRun, match="nobody knows what has landed"):
        WatchFolder(tmp_path / "w", URL, BEGAN)
    (tmp_path / "watch.json").write_text("{")
    with pytest.raises(InvalidRun, match="cannot be read"):
        WatchFolder(tmp_path, URL, BEGAN)


# What is shown.


def test_an_update_says_what_its_numbers_leave_out() -> None:
    quiet = {"left_out": 0, "left_out_by": {}, "lost_batches": 0, "silent": [], "refused": 0, "one_in": 1}
    assert notes(quiet) == []
    loud = {"left_out": 70, "left_out_by": {"n": 70}, "lost_batches": 2, "silent": ["m"], "refused": 1, "one_in": 10}
    said = " ".join(notes(loud))
    for words in (
        "one in 10 messages",
        "70 records were left out",
        "(n 70)",
        "2 messages",
        "not heard of",
        "1 message ",
    ):
        assert words in said
    numbers = {"until": 5.0, "brokers": 1, "clients": 2, "published_per_s": 3.0, "delivered_per_s": 4.0}
    numbers |= {"missed": 1, "due": 9, "fifo_violations": 0, "dropped": 0, "delay_p50": 0.001, "delay_p99": None}
    tables: dict[str, Any] = {name: [] for name in ("delays", "losses", "drops", "order", "flows", "streams")}
    tables["losses"] = [{"publisher": "[red]p", "client": "c", "due": 9, "missed": 1}]
    found = {**loud, **numbers, **tables}
    assert len(drawn(found).renderables) == 1 + len(notes(loud)) + 1
    json.dumps(found)


def test_what_has_not_changed_is_not_said_again_and_the_last_records_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, waits, seen = 0.0, list[float](), [1, 1, 1, 2]
    updates = iter(seen)

    def wait(seconds: float, asked: threading.Event) -> bool:
        nonlocal now
        now += seconds
        waits.append(seconds)
        return True

    folder = SimpleNamespace(state=SimpleNamespace(batch=1))
    fake: Any = SimpleNamespace(check=lambda: None, measure=lambda: None, wait=wait, folder=folder)
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(view, "view", lambda folder, measured: {"update": next(updates)})
    monkeypatch.setattr(watch, "drawn", lambda found: f"update {found['update']}")
    watch._show(fake, 5.0, 12.0, threading.Event(), as_json=False, once=False)
    assert waits == [5.0, 5.0, 2.0, watch.LAST_RECORDS]
    assert capsys.readouterr().out.split("\n") == ["update 1", "", "update 2", ""]


def test_ctrl_c_asks_to_end_and_the_second_time_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c() as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGINT)
        assert asked.is_set(), "whatever Spark is asked at that moment is answered"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with ctrl_c():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before

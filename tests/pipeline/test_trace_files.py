"""Traces on disk: what was written is what is read, in files of a bounded size, whole or not there at all."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.errors import InvalidRun, NotPossibleHere
from penstock.kernel import trace_files
from penstock.kernel.packet import Lane
from penstock.kernel.trace import SHARED_KINDS, Counted, Delivered, Dropped, NodeStopped, Published, Record
from penstock.kernel.trace_files import TraceFiles, arrow_schema, columns, kind_name
from penstock.kernel.trace_marks import DamagedMark, Mark, read_marks
from penstock.services import record_kinds

SAMPLES = {bool: True, int: -(2**63), float: 0.1, str: "grüße 'x' \n"}


def sample(kind: type[Record]) -> Record:
    return kind(*[SAMPLES[type_] for type_ in list(columns(kind).values())[2:]])


def parts(folder: Path, kind: type[Record]) -> list[Path]:
    return sorted((folder / "trace" / kind_name(kind)).iterdir())


def rows(folder: Path, kind: type[Record]) -> list[dict[str, object]]:
    return [row for path in parts(folder, kind) for row in parquet.read_table(path).to_pylist()]


def test_names_of_kinds() -> None:
    names = [kind_name(kind) for kind in record_kinds()]
    assert names[:3] == ["node_started", "node_stopped", "subscribed"]
    assert names[len(SHARED_KINDS)] == "neighbour_changed", "what all nodes share first, then the services in order"
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", record_kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_comes_back_as_it_was(kind: type[Record], tmp_path: Path) -> None:
    record = sample(kind)
    with TraceFiles(tmp_path) as trace:
        trace.write(1.5, "north", record)
    expected = {"time": 1.5, "node": "north", **{name: getattr(record, name) for name in kind.__struct_fields__}}
    assert rows(tmp_path, kind) == [expected]
    assert parquet.read_schema(parts(tmp_path, kind)[0]).equals(arrow_schema(kind))


def test_a_kind_that_never_happened_has_no_folder(tmp_path: Path) -> None:
    with TraceFiles(tmp_path) as trace:
        trace.write(0.0, "n", NodeStopped("crash"))
    assert [path.name for path in (tmp_path / "trace").iterdir() if path.is_dir()] == ["node_stopped"]


def test_files_are_bounded_in_rows_and_keep_the_order(tmp_path: Path) -> None:
    with TraceFiles(tmp_path, rows_max=10) as trace:
        for number in range(25):
            trace.write(float(number), "n", Counted("x", "", number))
        assert len(parts(tmp_path, Counted)) == 2
    assert [parquet.read_metadata(path).num_rows for path in parts(tmp_path, Counted)] == [10, 10, 5]
    assert [row["value"] for row in rows(tmp_path, Counted)] == list(range(25))


def test_files_are_bounded_in_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_files, "TEXT_BYTES_MAX", 1 << 20)
    trace = TraceFiles(tmp_path)
    for number in range(2 * trace_files.ROWS_WEIGHED):
        trace.write(0.0, "p", Published("p", 1, number, "a" * 600, 0))
    assert parquet.read_metadata(parts(tmp_path, Published)[0]).num_rows == 2 * trace_files.ROWS_WEIGHED


def test_after_a_crash_what_was_flushed_is_whole_and_nothing_else_is_there(tmp_path: Path) -> None:
    trace = TraceFiles(tmp_path, rows_max=3)
    for number in range(8):
        trace.write(0.0, "n", Counted("x", "", number))
    assert [row["value"] for row in rows(tmp_path, Counted)] == list(range(6))
    assert [path.name for path in parts(tmp_path, Counted)] == ["part-00000.parquet", "part-00001.parquet"]


def test_a_write_that_fails_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "write_table", full)
    trace = TraceFiles(tmp_path)
    trace.write(0.0, "n", Counted("x", "", 1))
    with pytest.raises(NotPossibleHere, match="No space left"):
        trace.flush()
    assert parts(tmp_path, Counted) == []
    monkeypatch.undo()
    trace.close()
    assert [row["value"] for row in rows(tmp_path, Counted)] == [1]


def test_flushing_makes_everything_readable_and_loses_nothing(tmp_path: Path) -> None:
    trace = TraceFiles(tmp_path)
    for number in range(3):
        trace.write(0.0, "n", Counted("x", "", number))
        trace.flush()
        assert len(rows(tmp_path, Counted)) == number + 1
    trace.close()
    assert len(parts(tmp_path, Counted)) == 3


def test_a_trace_is_not_written_over(tmp_path: Path) -> None:
    with TraceFiles(tmp_path) as trace:
        trace.write(0.0, "n", NodeStopped("crash"))
    with pytest.raises(InvalidRun, match="holds a trace already"):
        TraceFiles(tmp_path)


def test_an_enumeration_in_a_column_counts_as_its_number(tmp_path: Path) -> None:
    with TraceFiles(tmp_path) as trace:
        trace.write(0.0, "n", Dropped("egress", "full", "m", Lane.BEST_EFFORT, "Publication", "p", 1, 1, 1))
    assert rows(tmp_path, Dropped)[0]["lane"] == int(Lane.BEST_EFFORT)


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with TraceFiles(tmp_path / name) as trace:
            for number in range(100):
                trace.write(number / 7, f"n{number % 3}", Delivered(0, "p", 1, number))
    assert parts(tmp_path / "a", Delivered)[0].read_bytes() == parts(tmp_path / "b", Delivered)[0].read_bytes()


def test_a_flipped_bit_in_a_page_is_found(tmp_path: Path) -> None:
    with TraceFiles(tmp_path) as trace:
        for number in range(1000):
            trace.write(number / 7, "n", Delivered(0, "p", 1, number))
    path = parts(tmp_path, Delivered)[0]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises((OSError, pa.ArrowException)):
        parquet.read_table(path, page_checksum_verification=True)


def test_a_mark_says_up_to_which_time_all_kinds_are_on_disk(tmp_path: Path) -> None:
    trace = TraceFiles(tmp_path, rows_max=10)
    assert read_marks(tmp_path / "trace") == [Mark(writer="")], "a writer is known before it has put anything on disk"
    trace.write(0.0, "n", NodeStopped("crash"))
    for number in range(39):
        trace.write(float(number), "n", Counted("x", "", number))
    (mark,) = read_marks(tmp_path / "trace")
    assert (mark.until, mark.reached) == (None, -inf), "three parts are there, and the other kind is not"
    trace.write(39.0, "n", Counted("x", "", 39))
    assert read_marks(tmp_path / "trace") == [Mark(writer="", until=39.0, rows={"counted": 40, "node_stopped": 1})]
    trace.write(41.0, "n", Counted("x", "", 41))
    trace.flush(now=50.0)
    assert read_marks(tmp_path / "trace")[0].reached == 50.0
    trace.close()
    assert read_marks(tmp_path / "trace")[0].reached == inf


def test_the_longer_a_trace_is_the_rarer_are_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[int] = []
    monkeypatch.setattr(trace_files, "write_mark", lambda folder, mark: marked.append(sum(mark.rows.values())))
    monkeypatch.setattr(trace_files, "write_parquet", lambda path, table: None)
    trace = TraceFiles(tmp_path, rows_max=10)
    for number in range(10_000):
        trace.write(float(number), "n", Counted("x", "", number))
    steps = [after - before for before, after in pairwise(marked)]
    assert steps[:8] == [40] * 8
    assert steps == sorted(steps)
    assert len(marked) < 50
    assert marked[-1] > 8 / 9 * 9_900


def test_a_trace_with_a_gap_is_marked_up_to_the_gap(tmp_path: Path) -> None:
    trace = TraceFiles(tmp_path, writer="north")
    trace.write(1.0, "n", Counted("x", "", 1))
    trace.flush()
    trace.stop_marking()
    trace.write(3.0, "n", Counted("x", "", 3))
    trace.close()
    assert read_marks(tmp_path / "trace") == [Mark(writer="north", until=1.0, rows={"counted": 2})]


def test_a_mark_that_cannot_be_read_makes_nothing_certain(tmp_path: Path) -> None:
    with TraceFiles(tmp_path, writer="north"):
        pass
    (tmp_path / "trace" / "mark-north.json").write_bytes(b"")
    assert read_marks(tmp_path / "trace") == [DamagedMark(writer="north")]

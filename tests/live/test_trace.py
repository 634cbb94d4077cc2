"""The trace of a live process on a disk that is full: it stops and says so, memory stays bounded, all else goes on."""

from __future__ import annotations

import errno
import time
from math import inf
from pathlib import Path
from threading import Event

import pytest

import penstock
from live_help import a_line, run, until, url
from penstock.errors import NotPossibleHere
from penstock.kernel import trace_files
from penstock.kernel.trace import Counted, LimitReached, NodeStarted, Record
from penstock.kernel.trace_files import TraceFiles
from penstock.kernel.trace_marks import read_marks
from penstock.live import trace as live_trace
from penstock.live.broker.plan import BrokerPlan
from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.trace import STOPPED, LiveTrace, open_trace
from penstock.live.wire.addresses import Address
from penstock.scenario.runs import RunOutcome, make_run

FULL = OSError(errno.ENOSPC, "No space left on device")


def disk_full(path: Path, table: object) -> None:
    raise FULL


class Slow:
    """A sink that takes nothing before it may, and remembers what it got."""

    def __init__(self) -> None:
        self.may = Event()
        self.lines: list[Record] = []

    def write(self, time: float, node: str, record: Record) -> None:
        self.may.wait(30.0)
        self.lines.append(record)


def waiting(trace: LiveTrace) -> int:
    """How many records a trace holds."""
    return trace._waiting + len(trace._lines)


def test_a_trace_on_a_full_disk_stops_with_a_word_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_files, "write_parquet", disk_full)
    monkeypatch.setattr(live_trace, "FLUSH_INTERVAL", 0.0)
    trace = open_trace(tmp_path, "a", began=0.0)

    async def fill() -> None:
        for count in range(3 * live_trace.HANDOVER_RECORDS):
            trace.write(float(count), "a", Counted("link packets", "b", count))
        await until(lambda: bool(trace.problem))
        for count in range(10 * live_trace.HANDOVER_RECORDS):
            trace.write(float(count), "a", Counted("link packets", "b", count))
        await until(lambda: waiting(trace) < live_trace.HANDOVER_RECORDS)

    run(fill())
    monkeypatch.undo()  # somebody makes room: then the last record says what is missing
    trace.close()
    assert "No space left on device" in trace.problem
    assert trace.left_out == 13 * live_trace.HANDOVER_RECORDS
    assert caplog.text.count("the trace has stopped") == 1
    assert [path.parent.name for path in tmp_path.rglob("*.parquet")] == ["limit_reached"]


def test_a_disk_that_is_slow_costs_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_trace, "WAITING_MAX", 2 * live_trace.HANDOVER_RECORDS)
    sink = Slow()
    trace = LiveTrace(sink, began=0.0)
    for count in range(5 * live_trace.HANDOVER_RECORDS):
        trace.write(float(count), "a", Counted("link packets", "b", count))
    assert waiting(trace) <= live_trace.WAITING_MAX
    assert trace.left_out == 3 * live_trace.HANDOVER_RECORDS
    sink.may.set()
    trace.close()
    assert trace.problem == ""
    assert len(sink.lines) == 2 * live_trace.HANDOVER_RECORDS


def test_records_that_were_left_out_end_what_the_mark_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_trace, "WAITING_MAX", 0)
    trace = open_trace(tmp_path, "a", began=0.0)
    trace.write(1.0, "a", Counted("link packets", "b", 1))
    trace.close()
    assert trace.left_out == 1
    assert [mark.reached for mark in read_marks(tmp_path / "trace")] < [inf]


def test_a_process_in_which_nothing_happens_is_known_to_have_got_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_trace, "FLUSH_INTERVAL", 0.0)

    def reached() -> float:
        return read_marks(tmp_path / "trace")[0].reached

    async def idle() -> None:
        trace = open_trace(tmp_path, "a", began=time.time() - 100.0)
        trace.tick()
        await until(lambda: reached() > 99.0)
        assert reached() < inf
        trace.close()
        assert reached() == inf

    run(idle())


def test_a_broker_whose_trace_has_stopped_goes_on_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def goes_on() -> None:
        monkeypatch.setattr(trace_files, "write_parquet", disk_full)
        monkeypatch.setattr(live_trace, "FLUSH_INTERVAL", 0.0)
        plan = BrokerPlan(name="solo", listen=Address("127.0.0.1", 0))
        broker = BrokerServer(plan, ServerConfig(sweep_interval=0.02), trace=open_trace(tmp_path, "solo", began=0.0))
        await broker.start()
        async with penstock.connect(url(broker)) as network, network.subscribe("n = 1") as messages:

            async def told() -> bool:
                report = await network.broker_report()
                return "No space left on device" in report["trace"]["problem"]

            await until(told)
            await network.publish({"n": 1})
            await anext(messages)
        await broker.stop()

    run(goes_on())


def test_a_simulated_run_on_a_full_disk_ends_with_a_clean_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_files, "write_parquet", disk_full)

    def fill() -> None:
        with TraceFiles(tmp_path, rows_max=10) as trace:
            for count in range(10):
                trace.write(float(count), "a", NodeStarted("broker", count))

    with pytest.raises(NotPossibleHere, match=r"trace in .* cannot be written: No space left on device; make room"):
        fill()


def test_the_last_record_of_a_stopped_trace_says_how_many_are_missing() -> None:
    class Once(Slow):
        def write(self, time: float, node: str, record: Record) -> None:
            if not self.may.is_set():
                self.may.set()
                raise FULL
            self.lines.append(record)

    sink = Once()
    trace = LiveTrace(sink, began=0.0)
    trace.write(1.0, "a", NodeStarted("broker", 1))
    trace.close()
    assert sink.lines == [LimitReached(f"{STOPPED}: {FULL}", 1)]


def test_a_run_whose_description_cannot_be_written_ends_with_a_clean_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise FULL

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(NotPossibleHere, match=r"run.json cannot be written: No space left on device; make room"):
        make_run(tmp_path / "run", a_line("a"), 1, no_outcome)


def no_outcome(trace: object) -> RunOutcome:
    raise AssertionError("nothing is made without a description")

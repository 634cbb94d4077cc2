"""The trace of a live process: the same files as the simulator's, written by a thread beside the event loop.

The loop only appends to a list. Once a second, or when many records wait, the list is handed to the thread, which turns
records into Parquet files and puts them on disk every `FLUSH_INTERVAL`, with a mark that says up to which time nothing
is missing, so that a process that is killed leaves all but its last seconds behind. If the disk cannot keep up, records
are left out, and a record says so.

If the disk is full, or fails in another way, the trace stops for good: the log says so, `problem` says why (a broker's
report shows it), what waits is thrown away, and nothing more is kept. If there is room for so little, the last record
of the trace says how many were left out. The process itself goes on.

Times are seconds since the run began, which all processes of a run agree on: as in the simulator, a run begins at 0.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic

from penstock.errors import NotPossibleHere
from penstock.kernel.trace import LimitReached, Record, Trace
from penstock.kernel.trace_files import TraceFiles
from penstock.live.host import node_time

log = logging.getLogger("penstock.trace")

HANDOVER_RECORDS = 4096
WAITING_MAX = 200_000  # records that the thread has not got to: about 100 MB
FLUSH_INTERVAL = 5.0
STOPPED = "trace stopped"  # the name of the last record of a trace that could not go on

_Line = tuple[float, str, Record]


class LiveTrace:
    """A trace that never makes the event loop wait. `tick` must be called now and then, `close` at the end."""

    def __init__(self, sink: Trace, *, began: float, closes: bool = False) -> None:
        self.problem = ""  # why it has stopped
        self.left_out = 0  # records that it will never have
        self._sink = sink
        self._closes = closes  # whether the sink ends with this trace
        self._began = began
        self._lines: list[_Line] = []
        self._waiting = 0
        self._left_out_lately = 0
        self._lock = Lock()
        self._queue: SimpleQueue[tuple[list[_Line], float, bool] | None] = SimpleQueue()  # see `tick`
        if isinstance(sink, TraceFiles):
            sink.flush(self._now())  # nothing has happened here before
        self._thread = Thread(target=self._work, name="trace", daemon=True)
        self._thread.start()

    def write(self, time: float, node: str, record: Record) -> None:
        """One fact, stamped with the node's clock."""
        self._lines.append((time - self._began, node, record))
        if len(self._lines) >= HANDOVER_RECORDS:
            self.tick()

    def tick(self) -> None:
        """Hand over what has gathered; also nothing, since that it is nothing must be known too."""
        lines, self._lines = self._lines, []
        now = self._now()
        with self._lock:
            full = bool(self.problem) or self._waiting + len(lines) > WAITING_MAX
            self._waiting += 0 if full else len(lines)
            self.left_out += len(lines) if full else 0
        if full:
            self._left_out_lately += len(lines)
        else:
            if self._left_out_lately and lines:
                at, node = lines[-1][:2]
                lines.append((at, node, LimitReached("trace records waiting", self._left_out_lately)))
                self._left_out_lately = 0
            self._queue.put((lines, now, self.left_out > 0))

    def close(self) -> None:
        """Put everything on disk, or what can be; blocks until it is there."""
        self.tick()
        self._queue.put(None)
        self._thread.join()

    def status(self) -> dict[str, str | int]:
        """For a report: why it has stopped, if it has, and how many records are missing."""
        return {"problem": self.problem, "left_out": self.left_out}

    def _now(self) -> float:
        """As the hosts stamp records: none that is yet to come is earlier."""
        return node_time() - self._began

    def _work(self) -> None:
        flushed = monotonic()
        last: _Line | None = None
        files = self._sink if isinstance(self._sink, TraceFiles) else None
        while (handed_over := self._queue.get()) is not None:
            lines, now, gaps = handed_over
            if gaps and files is not None:
                files.stop_marking()
            last = lines[-1] if lines else last
            try:
                if not self.problem:
                    for line in lines:
                        self._sink.write(*line)
                    if files is not None and monotonic() - flushed > FLUSH_INTERVAL:
                        files.flush(now)
                        flushed = monotonic()
            except Exception as error:  # whatever it is, nobody else would hear of it
                self._stop(error)
            with self._lock:
                self._waiting -= len(lines)
                self.left_out += len(lines) if self.problem else 0
        try:
            if self.problem and last is not None:
                self._sink.write(*last[:2], LimitReached(f"{STOPPED}: {self.problem}", self.left_out))
            if files is not None:
                if self.left_out:
                    files.stop_marking()
                files.close() if self._closes else files.flush()
        except Exception as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        """The trace cannot go on: say so once, and hold nothing more."""
        if isinstance(self._sink, TraceFiles):
            self._sink.discard()
        if not self.problem:
            with self._lock:
                self.problem = str(error) or type(error).__name__
            log.error("the trace has stopped, and all else goes on: %s", self.problem)


def open_trace(folder: Path, writer: str, *, began: float) -> LiveTrace:
    """The part that one process writes of a run's trace, under its own name; raises NotPossibleHere."""
    try:
        import pyarrow  # noqa: F401  # said now, not in the middle of a run
    except ImportError:
        remedy = "install it with: pip install 'penstock[spark]'"
        raise NotPossibleHere("a trace is written with pyarrow, which is not installed", remedy) from None
    files = TraceFiles(folder, writer=re.sub(r"[^\w.-]", "-", writer))
    return LiveTrace(files, began=began, closes=True)

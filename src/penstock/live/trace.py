"""The trace of a live process: the same files as the simulator's, written by a thread beside the event loop.

The loop only appends to a list. Once a second, or when many records wait, the list is handed to the thread, which
turns records into Parquet files and puts them on disk every `FLUSH_INTERVAL`, so that a process that is killed leaves
all but its last seconds behind. If the disk cannot keep up, records are left out, and a record says so.

Times are seconds since the run began, which all processes of a run agree on: as in the simulator, a run begins at 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic

from penstock.errors import NotPossibleHere
from penstock.kernel.trace import LimitReached, Record, Trace
from penstock.kernel.trace_files import TraceFiles

HANDOVER_RECORDS = 4096
WAITING_MAX = 2_000_000  # records that the thread has not got to; a few hundred megabytes
FLUSH_INTERVAL = 5.0

_Line = tuple[float, str, Record]


class LiveTrace:
    """A trace that never makes the event loop wait. `tick` must be called now and then, `close` at the end."""

    def __init__(self, sink: Trace, *, began: float, flush: Callable[[], None] | None = None) -> None:
        self._sink = sink
        self._flush = flush
        self._began = began
        self._lines: list[_Line] = []
        self._waiting = 0
        self._left_out = 0
        self._lock = Lock()
        self._queue: SimpleQueue[list[_Line] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="trace", daemon=True)
        self._thread.start()

    def write(self, time: float, node: str, record: Record) -> None:
        """One fact, stamped with the node's clock."""
        self._lines.append((time - self._began, node, record))
        if len(self._lines) >= HANDOVER_RECORDS:
            self.tick()

    def tick(self) -> None:
        """Hand over what has gathered."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        with self._lock:
            full = self._waiting + len(lines) > WAITING_MAX
            self._waiting += 0 if full else len(lines)
        if full:
            self._left_out += len(lines)
        else:
            if self._left_out:
                lines.append((lines[-1][0], lines[-1][1], LimitReached("trace records waiting", self._left_out)))
                self._left_out = 0
            self._queue.put(lines)

    def close(self) -> None:
        """Put everything on disk; blocks until it is there."""
        self.tick()
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        flushed = monotonic()
        while (lines := self._queue.get()) is not None:
            for line in lines:
                self._sink.write(*line)
            with self._lock:
                self._waiting -= len(lines)
            if self._flush is not None and monotonic() - flushed > FLUSH_INTERVAL:
                self._flush()
                flushed = monotonic()
        if self._flush is not None:
            self._flush()


def open_trace(folder: Path, writer: str, *, began: float) -> LiveTrace:
    """The part that one process writes of a run's trace, under its own name; raises NotPossibleHere."""
    try:
        import pyarrow  # noqa: F401  # said now, not in the middle of a run
    except ImportError:
        remedy = "install it with: pip install 'penstock[spark]'"
        raise NotPossibleHere("a trace is written with pyarrow, which is not installed", remedy) from None
    files = TraceFiles(folder, writer=re.sub(r"[^\w.-]", "-", writer))
    return LiveTrace(files, began=began, flush=files.flush)

"""A walk through parts of a pubend's log, slice after slice, with a bound on the entries.

Each slice is read when the one before has been looked at, so a long walk holds up neither publishers nor readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Entries, Read, StorageFailed, StorageResult
from penstock.streams.log_codec import LogEntry, UnreadableEntry, decode
from penstock.streams.packets import Range, Tick
from penstock.streams.pubend_core import PubendCore

Look = Callable[[int, Tick, bytes, LogEntry], None]  # (which part, tick, data, entry)
Finished = Callable[["LogScan", float], list[Effect]]


class LogScan:
    """One walk. At its end `finished` is called; `problem` then says what went wrong, if anything did."""

    def __init__(
        self,
        core: PubendCore,
        parts: Sequence[Range],
        *,
        slice_max: int,
        entries_max: int,
        look: Look,
        finished: Finished,
    ) -> None:
        self._core = core
        self._parts = parts
        self._slice_max = slice_max
        self._entries_left = entries_max
        self._look = look
        self._finished = finished
        self._next = parts[0][0] if parts else 0
        self.parts_done = 0
        self.last_seen: Tick = 0
        self.problem = ""
        self.ended = False

    def step(self, now: float) -> list[Effect]:
        """Read the next slice, or end."""
        while self.parts_done < len(self._parts) and self._next > self._parts[self.parts_done][1]:
            self.parts_done += 1
            if self.parts_done < len(self._parts):
                self._next = self._parts[self.parts_done][0]
        if self.parts_done == len(self._parts) or self._entries_left <= 0:
            return self.end("", now)
        count = min(self._slice_max, self._entries_left)
        return self._core.disk.ask(Read(self._next, self._parts[self.parts_done][1], count), self._read)

    def end(self, problem: str, now: float) -> list[Effect]:
        """It goes no further."""
        if self.ended:
            return []
        self.ended = True
        self.problem = problem
        return self._finished(self, now)

    def _read(self, result: StorageResult, now: float) -> list[Effect]:
        if self.ended:
            return []
        if not isinstance(result, Entries):
            assert isinstance(result, StorageFailed)
            return [*self._core.failed(result), *self.end(result.problem, now)]
        try:
            for tick, data in result.entries:
                self._look(self.parts_done, tick, data, decode(data, LogEntry))
                self.last_seen = tick
        except UnreadableEntry as error:
            problem = f"{self._core.name}: {error}"
            return [*self._core.stop(problem), *self.end(problem, now)]
        self._entries_left -= len(result.entries)
        complete = result.complete or not result.entries
        self._next = (self._parts[self.parts_done][1] if complete else result.entries[-1][0]) + 1
        return self.step(now)

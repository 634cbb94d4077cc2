"""How far the records of a running network go: what each of its nodes has said, and what is missing.

A *writer* is one node, from when it began to trace until it ended. Each of its batches has a number, and may say that
everything before some time has been said, that it was the last, or that records had to be left out. From that follows

    reached     the time before which no record of anybody is to come: the least of all writers that have not ended
    lost        stretches of time of which records are missing, because they were left out, or because batches were
                trimmed before they were read; what was published then is not judged (`pipeline.extent`)
    silent      writers that were not heard of for SILENT_AFTER seconds: killed, or cut off. They are taken for ended at
                the time that they had said everything of, or nobody could be judged any more

Times of batches are clocks of nodes; whether somebody is silent is measured by the clock of the stream.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct
from msgspec.structs import replace

from penstock.kernel.trace_batch import TraceBatch

SILENT_AFTER = 10.0  # seconds; a node says something every 2
LOST_MAX = 1_000  # stretches; the oldest become one
WRITERS_MAX = 20_000  # that have ended, the oldest are forgotten
LONG_AGO = -1e15  # JSON has no infinity


class Writer(Struct, frozen=True, kw_only=True):
    """What is known of one."""

    node: str
    role: str
    number: int = 0  # of its last batch
    upto: float = 0.0  # everything before has been said
    heard: float = 0.0  # when the stream had its last batch
    closed: bool = False
    silent: bool = False  # it was taken for ended
    left_out: int = 0  # records, in all
    one_in: int = 1


class Writers(Struct, kw_only=True):
    """All of them; plain data, kept in a file beside the records."""

    writers: dict[str, Writer] = {}
    lost: list[tuple[float, float]] = []
    lost_batches: int = 0

    def take(self, batch: TraceBatch, heard: float) -> bool:
        """A batch that the stream had at this time; False if it was there before."""
        known = self.writers.get(batch.writer, Writer(node=batch.node, role=batch.role))
        if batch.number <= known.number:
            return False
        if batch.number > known.number + 1:
            self.lost_batches += batch.number - known.number - 1
            self._lose(known.upto or LONG_AGO, _first_time(batch))
        if batch.left_out:
            self._lose(batch.left_from, batch.left_upto)
        self.writers[batch.writer] = replace(
            known,
            number=batch.number,
            upto=max(known.upto, batch.upto),
            heard=max(known.heard, heard),
            closed=batch.closed,
            silent=False,
            left_out=known.left_out + batch.left_out,
            one_in=batch.one_in,
        )
        return True

    def fall_silent(self, now: float) -> list[Writer]:
        """Those that were not heard of lately count as ended from now on."""
        found = []
        for name, writer in list(self.writers.items()):
            if not writer.closed and writer.heard < now - SILENT_AFTER:
                self.writers[name] = replace(writer, closed=True, silent=True)
                found.append(writer)
        ended = [name for name, writer in self.writers.items() if writer.closed]
        for name in ended[: max(0, len(self.writers) - WRITERS_MAX)]:
            del self.writers[name]
        return found

    def forget(self, before: float) -> None:
        """Records of that time are kept no longer."""
        self._lose(LONG_AGO, before)

    @property
    def reached(self) -> float:
        """Before this time nothing is missing that is not in `lost`."""
        open_ = [writer.upto for writer in self.writers.values() if not writer.closed]
        return min(open_) if open_ else max((writer.upto for writer in self.writers.values()), default=-inf)

    @property
    def complete(self) -> bool:
        """Whether all have ended, so that nothing more is to come."""
        return bool(self.writers) and all(writer.closed for writer in self.writers.values())

    @property
    def left_out(self) -> int:
        """Records that found no room at their nodes."""
        return sum(writer.left_out for writer in self.writers.values())

    @property
    def one_in(self) -> int:
        """The least that any node records of messages: one in so many."""
        open_ = [writer.one_in for writer in self.writers.values() if not writer.closed]
        return max(open_ or [writer.one_in for writer in self.writers.values()], default=1)

    def _lose(self, begin: float, end: float) -> None:
        merged: list[tuple[float, float]] = []
        for one in sorted([*self.lost, (begin, max(begin, end))]):
            if merged and one[0] <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], one[1])
            else:
                merged.append(one)
        many = len(merged) - LOST_MAX
        self.lost = merged if many <= 0 else [(merged[0][0], merged[many][1]), *merged[many + 1 :]]


def _first_time(batch: TraceBatch) -> float:
    times: list[float] = [time for columns in batch.kinds.values() for time in columns[0][:1]]
    return max([batch.upto, *times])

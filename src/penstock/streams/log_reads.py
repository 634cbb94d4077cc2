"""Who reads a range of a pubend's log without being a reader of the stream: analyses, which may ask for any part again.

    survey   {"ranges": {PUBEND: {"first", "last", "entries_max", "bytes_max", "parts"}}}, all of it optional: how
             far the log reaches and how much is there, counted and not read; and ticks that cut it into parts of about
             as many messages each. `last` is the tick of the last message, and `gone` that of the last one that is
             kept no longer, so silence is never taken for either.
    ReadLog  the messages of a range that match, as they stand in the log, in slices of bounded size. Nothing is
             registered: retention does not wait for them, and the slice says if it has taken something.

A slice without a predicate is not decoded here. One with a predicate is, so it looks at fewer bytes at a time: live
messages wait meanwhile.

State: slices that wait for the disk, and predicates that were parsed lately. Bounds: READING_MAX at the disk at once,
WAITING_MAX that wait for that, PREDICATES_MAX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes
from penstock.errors import InvalidPredicate
from penstock.kernel.machine import Effect
from penstock.kernel.storage import MARKS_MAX, Entries, Measure, Measured, Read, StorageFailed, StorageResult
from penstock.overlay.packets import BrokerId
from penstock.streams.log_codec import LogEntry, UnreadableEntry, decode, packed_ticks
from penstock.streams.packets import SLICE_BYTES_MAX, SLICE_ENTRIES_MAX, TICK_MAX, LogSlice, ReadLog, Tick
from penstock.streams.pubend_core import PubendCore
from penstock.streams.retention import Retention

READING_MAX = 4
WAITING_MAX = 256
PREDICATES_MAX = 64
FILTERED_BYTES_MAX = 128 << 10  # looked at for one slice, if there is a predicate

Matches = Callable[[Attributes], bool]
Answer = Callable[[dict[str, Any], str, float], list[Effect]]  # (report, problem, now)


class SurveyedRange(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which part of one pubend's log is surveyed."""

    first: Tick = 0
    last: Tick = TICK_MAX
    entries_max: int = TICK_MAX
    bytes_max: int = TICK_MAX
    parts: int = 1


class LogReads:
    """Serves ranges of one pubend."""

    def __init__(self, core: PubendCore, retention: Retention) -> None:
        self._core = core
        self._retention = retention
        self._reading = 0
        self._waiting: deque[tuple[ReadLog, BrokerId]] = deque()
        self._predicates: dict[str, Matches] = {}

    # survey

    def survey(self, ranges: Mapping[str, SurveyedRange], answer: Answer, now: float) -> list[Effect]:
        """Say how much there is, and where to cut it."""
        core, extent = self._core, self._retention.extent
        problem, _ = core.refusal()
        if problem:
            return answer({}, problem, now)
        asked = ranges.get(core.name) or SurveyedRange()
        report = {"pubend": core.name, "epoch": core.epoch, "gone": core.gone, "last": extent.last}

        def measured(result: StorageResult, now: float) -> list[Effect]:
            if not isinstance(result, Measured):
                assert isinstance(result, StorageFailed)
                return [*core.failed(result), *answer({}, result.problem, now)]
            found = {"marks": result.marks, "entries": result.entries, "bytes": result.bytes}
            return answer(report | found, "", now)

        first, last = max(asked.first, core.gone + 1), min(asked.last, extent.last)
        limits = (asked.entries_max, asked.bytes_max, min(asked.parts, MARKS_MAX))
        return core.disk.ask(Measure(first, last, *limits), measured)

    # ReadLog

    def read(self, packet: ReadLog, reply_to: BrokerId, now: float) -> list[Effect]:
        """Answer with a slice, when its turn comes."""
        problem, again = self._core.refusal()
        if not problem and packet.epoch != self._core.epoch:
            problem = f"{self._core.name} was removed, and made anew: these ticks are of the one that is gone"
        newest = self._core.ticks.horizon(now) if not problem else 0
        if not problem and packet.last > newest:
            problem = f"tick {packet.last} is in the future; the newest of {self._core.name} is {newest}"
        if not problem and len(self._waiting) >= WAITING_MAX:
            problem, again = f"{WAITING_MAX} slices of {self._core.name} are waited for; try again later", True
        if not problem:
            try:
                self._matches(packet.where)
            except InvalidPredicate as error:
                problem = str(error)
        if problem:
            return self._core.send(reply_to, LogSlice(packet.request, packet.pubend, problem=problem, again=again), now)
        self._waiting.append((packet, reply_to))
        return self._read_next(now)

    def _read_next(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and self._reading < READING_MAX:
            effects += self._begin(*self._waiting.popleft(), now)
        return effects

    def _begin(self, packet: ReadLog, reply_to: BrokerId, now: float) -> list[Effect]:
        core, extent = self._core, self._retention.extent
        first = max(packet.first, core.gone + 1)
        if first > min(packet.last, extent.last):
            return core.send(reply_to, LogSlice(packet.request, core.name, packet.last, core.gone), now)
        self._reading += 1
        most = min(packet.bytes_max, SLICE_BYTES_MAX if packet.where == "TRUE" else FILTERED_BYTES_MAX)
        count = most * extent.entries // max(1, extent.bytes) + 1

        def answered(result: StorageResult, now: float) -> list[Effect]:
            self._reading -= 1
            return [*self._answered(packet, reply_to, most, result, now), *self._read_next(now)]

        asked = core.disk.ask(Read(first, packet.last, min(count, SLICE_ENTRIES_MAX)), answered)
        self._reading -= not asked  # it is being deleted, and nobody is answered any more
        return asked

    def _answered(
        self, packet: ReadLog, reply_to: BrokerId, bytes_max: int, result: StorageResult, now: float
    ) -> list[Effect]:
        core = self._core
        if not isinstance(result, Entries):
            assert isinstance(result, StorageFailed)
            refusal = LogSlice(packet.request, core.name, problem=result.problem, again=not result.damaged)
            return [*core.failed(result), *core.send(reply_to, refusal, now)]
        entries, complete = _within(result.entries, bytes_max)
        complete = complete and result.complete
        reached = packet.last if complete or not entries else entries[-1][0]
        try:
            chosen = self._chosen(packet.where, entries)
        except UnreadableEntry as error:
            refusal = LogSlice(packet.request, core.name, problem=f"{core.name}: {error}")
            return [*core.stop(refusal.problem), *core.send(reply_to, refusal, now)]
        ticks, data = packed_ticks([tick for tick, _ in chosen]), b"".join([entry for _, entry in chosen])
        return core.send(reply_to, LogSlice(packet.request, core.name, reached, core.gone, ticks, data), now)

    def _chosen(self, where: str, entries: Sequence[tuple[Tick, bytes]]) -> Sequence[tuple[Tick, bytes]]:
        if where == "TRUE":
            return entries
        matches = self._matches(where)
        return [one for one in entries if matches(decode(one[1], LogEntry).message.attributes)]

    def _matches(self, where: str) -> Matches:
        """Raises InvalidPredicate."""
        found = self._predicates.get(where)
        if found is None:
            found = parse_predicate(where).matches
            if len(self._predicates) >= PREDICATES_MAX:
                del self._predicates[next(iter(self._predicates))]
            self._predicates[where] = found
        return found


def _within(entries: Sequence[tuple[Tick, bytes]], bytes_max: int) -> tuple[Sequence[tuple[Tick, bytes]], bool]:
    """The first of them that have no more bytes together, but at least one; and whether that is all."""
    size_bytes = 0
    for at, (_, data) in enumerate(entries):
        size_bytes += len(data)
        if at and size_bytes > bytes_max:
            return entries[:at], False
    return entries, True

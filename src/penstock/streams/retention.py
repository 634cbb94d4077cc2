"""What a pubend keeps, and for how long.

An entry goes
    when every durable name has acknowledged it, it is older than `history`, its publication id may be forgotten, and no
        batch writer may have to look for it (`writer_marks`);
    or when it is older than `retain`;
    or when the log is longer than `retain_bytes`, the oldest first;
    or when a command says so.
In the first case nobody misses it. In the others a name may be below what is kept: it gets a gap when it is served. An
entry that a name needs never goes otherwise. Age is measured by the pubend's clock: if that leaps ahead with the
node's, everything is as much older. The position that counts is the lowest that a crash could leave (see
`durable_names`), and no registration begins while a trim is being decided: it waits until `decided`.

One step at a time, with bounded work: read the oldest entries (`STEP_ENTRIES`), find how many of them may go, write
`gone` to disk, tell it, trim, ask for the extent. `gone` is on disk before anything is trimmed, so it never goes back,
and it is the tick of an entry, so a gap is never told of mere silence. If a step fails the next one is made by timer;
after a restart what is below `gone` is trimmed first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Entries, Extent, LogExtent, Put, Read, StorageFailed, StorageResult, Trim
from penstock.streams.durable_names import DurableNames
from penstock.streams.log_codec import GONE, VERSION, TickMark, encode
from penstock.streams.packets import Tick
from penstock.streams.pubend_clock import SECOND
from penstock.streams.pubend_core import PubendCore
from penstock.streams.publication_ids import PublicationIds
from penstock.streams.timers import StreamTimer
from penstock.streams.writer_marks import WriterMarks

STEP_ENTRIES = 1_000
CHECK_MIN = 1.0  # seconds between two looks
CHECK_MAX = 60.0
TRIMS_MAX = 16  # commands that wait

Done = Callable[[str, float], list[Effect]]  # (problem, now)


class ForcedTrim(Struct):
    """A command: everything up to a tick goes, whoever needs it."""

    upto: Tick
    done: Done


class Retention:
    """Trims the log of one pubend."""

    def __init__(
        self,
        core: PubendCore,
        names: DurableNames,
        ids: PublicationIds,
        marks: WriterMarks,
        *,
        decided: Callable[[float], list[Effect]],
    ) -> None:
        self._core = core
        self._names = names
        self._ids = ids
        self._marks = marks
        self._decided = decided
        self.extent = LogExtent(0, 0, 0, 0)
        self.deciding = False  # `gone` is being written
        self._busy = False  # a step is under way
        self._forced: list[ForcedTrim] = []

    def begin(self, extent: LogExtent, now: float) -> list[Effect]:
        """The pubend is open."""
        self.extent = extent
        self._busy = False
        self._arm(now)
        if extent.entries and extent.first <= self._core.gone:
            self._busy = True
            return self._core.disk.ask(Trim(self._core.gone), self._trimmed)
        return self.check(now)

    def appended(self, first: Tick, count: int, size_bytes: int, now: float) -> list[Effect]:
        """The log has grown; `first` is the first of the new ticks."""
        old = self.extent
        newest = first + count - 1
        self.extent = LogExtent(old.first or first, newest, old.bytes + size_bytes, old.entries + count)
        if not old.entries:
            self._arm(now)
        return self.check(now) if self.extent.bytes > self._core.config.retain_bytes else []

    def force(self, trim: ForcedTrim, now: float) -> list[Effect]:
        """A command: trim up to this tick, and say when it is done."""
        if len(self._forced) >= TRIMS_MAX:
            return trim.done("other trims are under way; try again", now)
        self._forced.append(trim)
        return self.check(now)

    def expired(self, now: float) -> list[Effect]:
        self._core.ticks.clock.read(now)
        self._ids.forget_old(self._core.ticks.clock.elapsed)
        self._arm(now)
        return self.check(now)

    def check(self, now: float) -> list[Effect]:
        """Begin a step, if there is something that may go and none is under way."""
        if self._busy or not self._core.ready:
            return []
        upto, excess_bytes = self._limits(now)
        if not self.extent.entries or (self.extent.first > upto and excess_bytes <= 0):
            return self._end_forced("", now)
        self._busy = True
        question = Read(self._core.gone + 1, self.extent.last, STEP_ENTRIES)
        return self._core.disk.ask(question, self._read)

    def _limits(self, now: float) -> tuple[Tick, int]:
        """Every entry up to this tick may go, and the oldest until so many bytes are gone."""
        config = self._core.config
        clock = self._core.ticks.clock.read(now)
        unneeded = [clock - int(config.history * SECOND)]
        needed_after = (self._names.needed_after(), self._marks.needed_after())
        oldest_id = self._ids.oldest()
        unneeded += [tick for tick in needed_after if tick is not None]
        if oldest_id is not None:
            unneeded.append(oldest_id - 1)
        forced = [trim.upto for trim in self._forced]
        upto = max(min(unneeded), clock - int(config.retain * SECOND), *forced)
        return upto, self.extent.bytes - config.retain_bytes

    def _read(self, result: StorageResult, now: float) -> list[Effect]:
        if not isinstance(result, Entries):
            return self._failed(result, now)
        upto = 0 if self._core.problem else self._last_to_go(result.entries, now)
        if not upto:
            return self._ended(self._core.problem, now)
        self.deciding = True
        mark = TickMark(VERSION, upto, self._ids.known_from, self._ids.crowded_out)

        def put(result: StorageResult, now: float) -> list[Effect]:
            return self._gone_stored(upto, result, now)

        return self._core.disk.ask(Put(GONE, encode(mark)), put)

    def _last_to_go(self, entries: Sequence[tuple[Tick, bytes]], now: float) -> Tick:
        limit, excess_bytes = self._limits(now)
        upto: Tick = 0
        for tick, entry in entries:
            if tick > limit and excess_bytes <= 0:
                break
            upto = tick
            excess_bytes -= len(entry)
        return upto

    def _gone_stored(self, upto: Tick, result: StorageResult, now: float) -> list[Effect]:
        self.deciding = False
        if isinstance(result, StorageFailed):
            return [*self._failed(result, now), *self._decided(now)]
        self._core.gone = upto
        if self._core.problem:
            return self._ended(self._core.problem, now)
        effects = self._core.disk.ask(Trim(upto), self._trimmed)
        effects += self._core.gone_moved(now)
        return effects + self._decided(now)

    def _trimmed(self, result: StorageResult, now: float) -> list[Effect]:
        if isinstance(result, StorageFailed):
            return self._failed(result, now)
        return self._core.disk.ask(Extent(), self._measured)

    def _measured(self, result: StorageResult, now: float) -> list[Effect]:
        if not isinstance(result, LogExtent):
            return self._failed(result, now)
        self._busy = False
        self.extent = result
        return self.check(now)

    def _failed(self, result: StorageResult, now: float) -> list[Effect]:
        assert isinstance(result, StorageFailed)
        return [*self._core.failed(result), *self._ended(result.problem, now)]

    def _ended(self, problem: str, now: float) -> list[Effect]:
        self._busy = False
        return self._end_forced(problem, now)

    def _end_forced(self, problem: str, now: float) -> list[Effect]:
        forced, self._forced = self._forced, []
        return [effect for trim in forced for effect in trim.done(problem, now)]

    def _arm(self, now: float) -> None:
        """Look again after a while, as long as there is anything."""
        if self.extent.entries:
            config = self._core.config
            every = min(CHECK_MAX, max(CHECK_MIN, min(config.history, config.retain) / 8))
            self._core.set_timer(StreamTimer.PUBEND_RETENTION, now + every)

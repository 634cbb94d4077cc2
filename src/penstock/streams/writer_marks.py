"""Where in the log the newest batch of each batch writer began, so that one who tries it again knows where to look.

A *batch writer* publishes in numbered batches of several parts, and may try a part again, perhaps after hours, in
another process, and in another order: Spark does. Publication ids are known for a while only (`publication_ids`). So
before the first message of a part it says `begin`, with its name and the numbers of the batch and the part. The pubend
answers with a tick, its horizon when the batch first began: all that it has stored here is behind it. And it
says whether this part has begun before; if so, whoever tries it reads the log from that tick, and knows what is stored.

A mark is on disk before it is told. Retention keeps what is behind a mark like what a durable name needs: for `retain`
and `retain_bytes` at most. Who asks about an older batch is told the number of the newest, and has been given up.

State: a mark for each writer, and who waits until it is written. Bounds: PARTS_MAX parts, and WRITERS_MAX writers; then
those go that are twice as old as anything that is kept; if there are none, a new writer is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Put, StorageFailed, StorageResult
from penstock.streams.log_codec import VERSION, WRITER_PREFIX, WriterMark, encode
from penstock.streams.packets import Tick
from penstock.streams.pubend_clock import SECOND
from penstock.streams.pubend_core import PubendCore

WRITERS_MAX = 1_000
PARTS_MAX = 1 << 16
NAME_CHARACTERS_MAX = 64

Answer = Callable[[dict[str, Any], str, float], list[Effect]]  # (report, problem, now)


class BatchBegun(Struct, frozen=True, kw_only=True):
    """What `begin` is given."""

    writer: str = ""
    batch: int = 0
    part: int = 0
    over: bool = False


class _Writer:
    """One batch writer: its mark, and who waits until that is on disk."""

    __slots__ = ("after", "batch", "parts", "stored", "waiting", "writing")

    def __init__(self, stored: WriterMark | None = None) -> None:
        self.stored = stored
        self.batch = -1 if stored is None else stored.batch
        self.after: Tick = 0 if stored is None else stored.after
        self.parts = 0 if stored is None else int.from_bytes(stored.parts, "little")  # a bit for each that began
        self.writing: list[tuple[Answer, bool]] = []  # with whether the part began before
        self.waiting: list[tuple[Answer, bool]] = []  # for the write after that

    def mark(self) -> WriterMark:
        parts = self.parts.to_bytes((self.parts.bit_length() + 7) // 8, "little")
        return WriterMark(VERSION, self.batch, self.after, parts)


class WriterMarks:
    """The batch writers of one pubend."""

    def __init__(self, core: PubendCore) -> None:
        self._core = core
        self._writers: dict[str, _Writer] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def clear(self) -> None:
        """Forget all that is in memory; the disk keeps them."""
        self._writers.clear()

    def load(self, name: str, mark: WriterMark) -> None:
        """It was on disk when the pubend opened."""
        self._writers[name] = _Writer(mark)

    def needed_after(self) -> Tick | None:
        """Some writer may still have to read what is behind this tick; None: there is none."""
        marks = [writer.after if writer.stored is None else writer.stored.after for writer in self._writers.values()]
        # What is behind a mark and was trimmed once cannot be read back, so the mark holds nothing any more.
        return min((mark for mark in marks if mark >= self._core.gone), default=None)

    def begin(self, begun: BatchBegun, answer: Answer, now: float) -> list[Effect]:
        """Say where this batch began, which may be now."""
        problem = self._core.refusal()[0] or _problem(begun)
        if problem:
            return answer({}, problem, now)
        if begun.over:
            return self._forget(begun.writer) + answer({}, "", now)
        writer = self._writers.get(begun.writer)
        if writer is None:
            effects = self._forget_old(now) if len(self._writers) >= WRITERS_MAX else []
            if len(self._writers) >= WRITERS_MAX:
                limit = f"{self._core.name} knows {WRITERS_MAX} batch writers, and that is the limit"
                return answer({}, f"{limit}; one goes when it has not begun a batch for twice the time `retain`", now)
            writer = self._writers[begun.writer] = _Writer()
            return effects + self._begun(writer, begun, answer, now)
        return self._begun(writer, begun, answer, now)

    def _begun(self, writer: _Writer, begun: BatchBegun, answer: Answer, now: float) -> list[Effect]:
        if begun.batch < writer.batch:
            return answer(self._report(writer, False), "", now)
        if begun.batch > writer.batch and writer.writing:
            return answer({}, f"batch {writer.batch} of '{begun.writer}' is just beginning; try again", now)
        if begun.batch > writer.batch:
            writer.batch, writer.after, writer.parts = begun.batch, self._core.ticks.horizon(now), 0
        again = bool(writer.parts >> begun.part & 1)
        if again and not writer.writing:
            return answer(self._report(writer, True), "", now)
        writer.parts |= 1 << begun.part
        writer.waiting.append((answer, again))
        return [] if writer.writing else self._write(begun.writer, writer)

    def _write(self, name: str, writer: _Writer) -> list[Effect]:
        writer.writing, writer.waiting = writer.waiting, []
        mark = writer.mark()

        def written(result: StorageResult, now: float) -> list[Effect]:
            told, writer.writing = writer.writing, []
            if self._writers.get(name) is not writer:  # the pubend was opened anew meanwhile, or it is over
                problem = f"'{name}' was forgotten while this batch was beginning; try again"
                return [effect for answer, _ in told + writer.waiting for effect in answer({}, problem, now)]
            if isinstance(result, StorageFailed):
                return self._failed(name, writer, result, told + writer.waiting, now)
            writer.stored = mark
            effects: list[Effect] = []
            for answer, again in told:
                effects += answer(self._report(writer, again), "", now)
            return effects + (self._write(name, writer) if writer.waiting else [])

        return self._core.disk.ask(Put(WRITER_PREFIX + name, encode(mark)), written)

    def _failed(
        self, name: str, writer: _Writer, failure: StorageFailed, told: list[tuple[Answer, bool]], now: float
    ) -> list[Effect]:
        """Nothing has begun that is not on disk."""
        if writer.stored is None:
            del self._writers[name]
        else:
            self._writers[name] = _Writer(writer.stored)
        effects = self._core.failed(failure)
        for answer, _ in told:
            effects += answer({}, failure.problem, now)
        return effects

    def _report(self, writer: _Writer, again: bool) -> dict[str, Any]:
        place = {"pubend": self._core.name, "epoch": self._core.epoch}
        return {**place, "batch": writer.batch, "after": writer.after, "again": again}

    def _forget(self, name: str) -> list[Effect]:
        if self._writers.pop(name, None) is None:
            return []
        return self._core.disk.ask(Put(WRITER_PREFIX + name, b""), lambda result, now: [])

    def _forget_old(self, now: float) -> list[Effect]:
        """Writers whose last batch began so long ago that nothing of it can be kept."""
        kept_from = self._core.ticks.clock.read(now) - int(2 * self._core.config.retain * SECOND)
        old = [name for name, writer in self._writers.items() if writer.after < kept_from]
        return [effect for name in old for effect in self._forget(name)]


def _problem(begun: BatchBegun) -> str:
    name = begun.writer
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not (name.isascii() and name.replace("-", "").isalnum()):
        return f"a batch writer's name has 1 to {NAME_CHARACTERS_MAX} letters, digits and '-', and not {name[:80]!r}"
    if not 0 <= begun.part < PARTS_MAX:
        return f"there is no part {begun.part}; a batch has at most {PARTS_MAX}"
    return "" if 0 <= begun.batch < 1 << 62 else f"there is no batch {begun.batch}"

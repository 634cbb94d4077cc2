"""How a pubend comes to life: it reads what an earlier life has left on disk, or is made.

Steps, each when the one before has been answered: meta, lease, gone, the extent of the log and the names of all values;
then every durable name, every mark of a batch writer, and the part of the log whose publication ids are still to be
known, in slices. A new pubend has no meta: its epoch is drawn and written first. Only then is it ready. If the disk
fails the opening is tried again by timer; damage, or a meta that is another pubend's, stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.kernel.machine import Effect
from penstock.kernel.storage import (
    Entries,
    Extent,
    Get,
    LogExtent,
    Names,
    NamesFound,
    Operation,
    Put,
    Read,
    StorageFailed,
    StorageResult,
    Value,
)
from penstock.streams.durable_names import DurableNames
from penstock.streams.log_codec import (
    GONE,
    LEASE,
    META,
    NAME_PREFIX,
    VERSION,
    WRITER_PREFIX,
    LogEntry,
    NameRecord,
    PubendMeta,
    TickMark,
    UnreadableEntry,
    WriterMark,
    decode,
    encode,
)
from penstock.streams.packets import Tick
from penstock.streams.pubend_core import PubendCore
from penstock.streams.publication_ids import PublicationIds
from penstock.streams.timers import StreamTimer
from penstock.streams.writer_marks import WriterMarks

IDS_SLICE = 5_000  # entries
RETRY_AFTER = 1.0  # seconds
EPOCH_BITS = 48


class Opening:
    """One pubend's way to being ready; `opened` is called at its end."""

    def __init__(
        self,
        core: PubendCore,
        names: DurableNames,
        ids: PublicationIds,
        marks: WriterMarks,
        *,
        opened: Callable[[LogExtent, float], list[Effect]],
    ) -> None:
        self._core = core
        self._names = names
        self._ids = ids
        self._marks = marks
        self._opened = opened
        self._create = False
        self._waiting_for = 0  # answers
        self._attempt = 0
        self._values: dict[str, bytes] = {}
        self._found: list[str] = []
        self._extent = LogExtent(0, 0, 0, 0)

    def begin(self, *, create: bool, now: float) -> list[Effect]:
        """Read all; answers to an earlier attempt count no more."""
        self._create = create
        self._attempt += 1
        self._waiting_for = 0
        self._values.clear()
        self._names.clear()
        self._marks.clear()
        effects = self._get((META, LEASE, GONE), self._read_names)
        return [*effects, *self._ask(Extent(), self._read_names), *self._ask(Names(), self._read_names)]

    def _get(self, names: Sequence[str], after: Callable[[float], list[Effect]]) -> list[Effect]:
        return [effect for name in names for effect in self._ask(Get(name), after, name)]

    def _ask(self, operation: Operation, after: Callable[[float], list[Effect]], name: str = "") -> list[Effect]:
        """Ask, and go on with `after` when everything that was asked is answered."""
        attempt = self._attempt
        self._waiting_for += 1

        def answered(result: StorageResult, now: float) -> list[Effect]:
            if attempt != self._attempt:
                return []
            match result:
                case StorageFailed():
                    return self._failed(result, now)
                case Value(value):
                    self._values[name] = value
                case NamesFound(names):
                    self._found = [found for found in names if found.startswith((NAME_PREFIX, WRITER_PREFIX))]
                case LogExtent():
                    self._extent = result
            self._waiting_for -= 1
            return [] if self._waiting_for else after(now)

        return self._core.disk.ask(operation, answered)

    def _failed(self, failure: StorageFailed, now: float) -> list[Effect]:
        self._attempt += 1
        effects = self._core.failed(failure)
        if not effects:
            self._core.set_timer(StreamTimer.PUBEND_OPEN, now + RETRY_AFTER)
        return effects

    def retry(self, now: float) -> list[Effect]:
        return [] if self._core.ready or self._core.problem else self.begin(create=self._create, now=now)

    def _read_names(self, now: float) -> list[Effect]:
        data = self._values[META]
        if not data:
            return self._make(now)
        try:
            meta = decode(data, PubendMeta)
        except UnreadableEntry as error:
            return self._core.stop(f"{self._core.name}: {error}")
        if (meta.stream, meta.number) != (self._core.stream, self._core.number):
            return self._core.stop(f"the log of {self._core.name} belongs to {meta.stream}/{meta.number}")
        self._core.of = meta.of
        self._core.epoch = meta.epoch
        return self._get(self._found, self._read_ids) or self._read_ids(now)

    def _make(self, now: float) -> list[Effect]:
        core = self._core
        if self._extent.last:
            return core.stop(f"the log of {core.name} has entries, but nothing says whose they are")
        if not self._create:
            return core.stop(f"there is no {core.name} on this disk")
        epoch = core.random.getrandbits(EPOCH_BITS) + 1
        meta = PubendMeta(VERSION, core.stream, core.number, core.of, epoch)

        def made(now: float) -> list[Effect]:
            core.epoch = epoch
            return self._read_ids(now)

        return self._ask(Put(META, encode(meta)), made)

    def _read_ids(self, now: float) -> list[Effect]:
        """All values are there; what is left is the end of the log."""
        core = self._core
        try:
            lease, gone = (
                decode(self._values[name], TickMark) if self._values[name] else TickMark(VERSION, 0, 0, 0)
                for name in (LEASE, GONE)
            )
            for found in self._found:
                if found.startswith(WRITER_PREFIX):
                    self._marks.load(found.removeprefix(WRITER_PREFIX), decode(self._values[found], WriterMark))
                else:
                    self._names.load(found.removeprefix(NAME_PREFIX), decode(self._values[found], NameRecord))
        except UnreadableEntry as error:
            return core.stop(f"{core.name}: {error}")
        core.gone = gone.tick
        core.ticks.begin(lease.tick, max(self._extent.last, gone.tick), now=now)
        known_from = max(lease.ids_known_from, gone.ids_known_from)
        crowded_out = max(lease.ids_crowded_out, gone.ids_crowded_out)
        self._ids.begin(known_from, crowded_out, gone.tick, core.ticks.lease)
        return self._read_slice(max(known_from, gone.tick + 1), now)

    def _read_slice(self, first: Tick, now: float) -> list[Effect]:
        if first > self._extent.last or not self._extent.entries:
            return self._end(now)
        attempt = self._attempt

        def read(result: StorageResult, now: float) -> list[Effect]:
            if attempt != self._attempt:
                return []
            if not isinstance(result, Entries):
                assert isinstance(result, StorageFailed)
                return self._failed(result, now)
            try:
                for tick, data in result.entries:
                    entry = decode(data, LogEntry)
                    self._ids.load(entry.publication_id, entry.message, tick, self._core.ticks.lease)
            except UnreadableEntry as error:
                return self._core.stop(f"{self._core.name}: {error}")
            if result.complete or not result.entries:
                return self._end(now)
            return self._read_slice(result.entries[-1][0] + 1, now)

        return self._core.disk.ask(Read(first, self._extent.last, IDS_SLICE), read)

    def _end(self, now: float) -> list[Effect]:
        self._values.clear()
        self._core.ready = True
        return self._opened(self._extent, now)

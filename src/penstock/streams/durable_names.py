"""The durable names of a pubend: what each wants, how far it is, and who reads under it.

A name has a record on disk (`log_codec.NameRecord`). At most one write of it is under way; what changes meanwhile is
one record that is written next. A name counts as needing everything after the lowest position among the record on disk,
the one being written and the one to be written: whichever of them a crash leaves, nothing is missing.

A name has at most one *session*, in memory alone: a reader at some broker, under a number that was drawn. It lasts as
long as it is heard of within `session_lease`. A session begins when its registration is on disk; until then it awaits a
record, unless the disk has it already: so a known name can be read while the disk is full. Progress is told back when
it is on disk. If that write fails it is tried again by timer.

A name that is shared has no session but members, and what it needs to know of them (`shared_name`). Its records are
written here, one at a time.

Bounds: `names_max` names, one session and two unwritten records for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Put, StorageFailed, StorageResult
from penstock.overlay.packets import BrokerId
from penstock.streams.log_codec import NAME_PREFIX, NameRecord, encode
from penstock.streams.packets import ProgressStored, Register, Registered, Tick
from penstock.streams.pubend_clock import SECOND
from penstock.streams.pubend_core import PubendCore

SESSION_BITS = 48
SEEN_EVERY = 60 * SECOND  # when a name was last seen is written at most so often, if nothing else is


class ReaderSession(Struct):
    """A reader under a durable name."""

    number: int
    broker: BrokerId
    reader: str
    heard_at: float  # elapsed seconds of this life
    done: Tick  # acknowledged, written or not
    told: Tick  # acknowledged, on disk, and told so
    awaited: Tick  # acknowledged, and somebody waits until that is on disk
    answer: Registered  # to be sent when what it awaits is on disk
    awaits: NameRecord | None


class Shared(Protocol):
    """What a shared name is, besides its record."""

    def written(self, failure: StorageFailed | None, now: float) -> list[Effect]:
        """A record that it asked for is on disk, or is not."""


class DurableName:
    """One name."""

    def __init__(self, name: str, stored: NameRecord | None = None) -> None:
        self.name = name
        self.stored = stored  # None: it is on disk only when the write has ended
        self.writing: NameRecord | None = None
        self.next: NameRecord | None = None
        self.session: ReaderSession | None = None
        self.shared: Shared | None = None  # None: it has one reader at a time
        self.removed_by: Callable[[str, float], list[Effect]] | None = None  # who waits for its removal

    @property
    def newest(self) -> NameRecord:
        newest = self.next or self.writing or self.stored
        assert newest is not None, "a name without any record"
        return newest

    @property
    def needed_after(self) -> Tick:
        """Nothing after this may be trimmed, as far as this name is concerned."""
        return min(record.position for record in (self.stored, self.writing, self.next) if record is not None)


class DurableNames:
    """All names of one pubend."""

    def __init__(self, core: PubendCore) -> None:
        self._core = core
        self._names: dict[str, DurableName] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[DurableName]:
        return iter(self._names.values())

    def find(self, name: str) -> DurableName | None:
        return self._names.get(name)

    def clear(self) -> None:
        """Forget all that is in memory; the disk keeps them."""
        self._names.clear()

    def load(self, name: str, record: NameRecord) -> None:
        """It was on disk when the pubend opened."""
        self._names[name] = DurableName(name, record)

    def add(self, name: str, record: NameRecord) -> DurableName:
        """A new one, which is to be written; if that fails it is forgotten."""
        state = self._names[name] = DurableName(name)
        state.next = record
        return state

    def needed_after(self) -> Tick | None:
        """The lowest position of all; None: there are no names."""
        return min((name.needed_after for name in self), default=None)

    def session(self, name: str, number: int) -> ReaderSession | None:
        """The session of this number, if it has begun and not ended."""
        found = self._names.get(name)
        live = found.session if found is not None else None
        return live if live is not None and live.number == number and live.awaits is None else None

    # Registrations.

    def begin(
        self, packet: Register, broker: BrokerId, record: NameRecord, answer: Registered, now: float
    ) -> list[Effect]:
        """A reader begins; it is answered when this record is on disk. Whoever read before it does so no more."""
        name = self._names.setdefault(packet.name, DurableName(packet.name))
        awaiting = name.session if name.session is not None and name.session.awaits is not None else None
        if awaiting is not None and (awaiting.reader, awaiting.broker) == (packet.reader, broker):
            assert awaiting.awaits is not None
            if _same(awaiting.awaits, record):  # it asks again before it was answered
                awaiting.answer = answer
                return []
        elapsed = self._core.ticks.clock.elapsed
        live = name.session
        asked = (packet.reader, broker, packet.request)
        if live is not None and live.awaits is None and (live.reader, live.broker, live.answer.request) == asked:
            live.heard_at = elapsed  # it asks again, and the answer is under way or lost
            return self._begun(live, now)
        told = record.position
        number = self._core.random.getrandbits(SESSION_BITS) + 1
        session = ReaderSession(number, broker, packet.reader, elapsed, told, told, told, answer, record)
        name.session = session
        unwritten = name.writing is not None or name.next is not None
        if unwritten or name.stored is None or not _same(name.stored, record):
            return self.write(name, record)
        effects = self._begun(session, now)
        return effects + (self.write(name, record) if record.seen - name.stored.seen > SEEN_EVERY else [])

    def _begun(self, session: ReaderSession, now: float) -> list[Effect]:
        session.awaits = None
        return self._core.send(session.broker, replace(session.answer, session=session.number), now)

    # Progress.

    def progress(self, name: str, session: ReaderSession, tick: Tick, now: float, *, silent: bool) -> list[Effect]:
        """This reader is done with everything up to the tick; silent: it waits for no answer."""
        state = self._names[name]
        session.done = max(session.done, tick)
        if not silent:
            session.awaited = max(session.awaited, tick)
        assert state.stored is not None
        if session.done > state.newest.position:
            return self._write_progress(state, session)
        if not silent and tick <= state.stored.position and state.writing is None:
            return self._tell(state, session, now)
        return []

    def write_unsaved(self) -> list[Effect]:
        """Try again what the disk has refused."""
        effects: list[Effect] = []
        for state in self:
            session = state.session
            if session is not None and session.awaits is None and session.done > state.newest.position:
                effects += self._write_progress(state, session)
        return effects

    def _write_progress(self, state: DurableName, session: ReaderSession) -> list[Effect]:
        newest = state.newest
        seen = self._core.ticks.horizon_told
        return self.write(state, NameRecord(newest.version, newest.where, session.done, newest.created, seen))

    def _tell(self, state: DurableName, session: ReaderSession, now: float) -> list[Effect]:
        assert state.stored is not None
        session.told = state.stored.position
        done = ((self._core.name, session.number, session.told),)
        return self._core.send(session.broker, ProgressStored(done), now)

    # Sessions.

    def end_session(self, name: str) -> None:
        """Nobody reads under it any more; a name that never was on disk is forgotten with its write."""
        self._names[name].session = None

    def expired_sessions(self) -> list[str]:
        """The names whose readers were not heard of for too long."""
        limit = self._core.ticks.clock.elapsed - self._core.config.session_lease
        return [
            state.name
            for state in self
            if state.session is not None and state.session.awaits is None and state.session.heard_at < limit
        ]

    def has_sessions(self) -> bool:
        return any(state.session is not None for state in self)

    # The disk.

    def remove(self, name: str, removed: Callable[[str, float], list[Effect]]) -> list[Effect]:
        """Forget the name, on disk too; then `removed` is called, with a problem if it could not be."""
        state = self._names[name]
        state.removed_by = removed
        return [] if state.writing is not None else self._remove(state)

    def _remove(self, state: DurableName) -> list[Effect]:
        def gone(result: StorageResult, now: float) -> list[Effect]:
            removed, state.removed_by = state.removed_by, None
            assert removed is not None
            if isinstance(result, StorageFailed):
                return [*self._core.failed(result), *removed(result.problem, now)]
            self._names.pop(state.name, None)
            return removed("", now)

        return self._core.disk.ask(Put(NAME_PREFIX + state.name, b""), gone)

    def write(self, state: DurableName, record: NameRecord) -> list[Effect]:
        """Write this; after the one that is being written."""
        if state.writing is not None:
            state.next = record
            return []
        state.writing, state.next = record, None

        def written(result: StorageResult, now: float) -> list[Effect]:
            return self._written(state, result, now)

        return self._core.disk.ask(Put(NAME_PREFIX + state.name, encode(record)), written)

    def _written(self, state: DurableName, result: StorageResult, now: float) -> list[Effect]:
        record, state.writing = state.writing, None
        failure = result if isinstance(result, StorageFailed) else None
        effects: list[Effect] = []
        if failure is None:
            state.stored = record
        else:
            effects += self._core.failed(failure)
        effects += self._after_write(state, record, failure, now)
        if state.removed_by is not None:
            state.next = None
            return effects + self._remove(state)
        if state.next is not None:
            effects += self.write(state, state.next)
        elif state.stored is None:
            self._names.pop(state.name, None)
        return effects

    def _after_write(
        self, state: DurableName, record: NameRecord | None, failure: StorageFailed | None, now: float
    ) -> list[Effect]:
        """Tell the reader whose record it was."""
        if state.shared is not None:
            return state.shared.written(failure, now)
        session = state.session
        if session is None:
            return []
        if session.awaits is None:
            stored = session.told if failure is not None or state.stored is None else state.stored.position
            news = min(stored, session.awaited) > session.told
            return self._tell(state, session, now) if news else []
        if session.awaits is not record:
            return []
        if failure is None:
            return self._begun(session, now)
        state.session = None
        a = session.answer
        problem = self._core.problem or f"{self._core.name} could not store it: {failure.problem}"
        answer = Registered(a.request, a.pubend, a.name, problem=problem, again=not self._core.problem)
        return self._core.send(session.broker, answer, now)


def _same(stored: NameRecord, wanted: NameRecord) -> bool:
    """Whether it is on disk already, but for when it was last seen."""
    return stored.where == wanted.where and stored.position == wanted.position

"""A pubend at its broker: the place where the messages of a stream get their ticks and are on disk.

State, by part: the ticks, their clock and their lease (`pubend_clock`); publications on their way to disk
(`publish_queue`) and the ids of those that are there (`publication_ids`); durable names and their readers
(`durable_names`, `registration`, `shared_names`); what is kept (`retention`). What stands on disk is in `log_codec`.

Messages in: PublishRequest, Register, Unregister, Renew, Progress, Verdicts, ReadLog, Command. Out, to whoever asked:
PublishAnswer, Registered, SessionEnded, ProgressStored, SharedHandout, VerdictsStored, LogSlice, CommandAnswer. Data
and silence leave through the broker's relay: `horizon` says up to where all is settled, `outlet.committed` what was
just written, `read` fetches slices of the log.

Timers: PUBEND_LEASE when the horizon has been asked for and little of the lease is left, or has failed to be written;
PUBEND_RETENTION while the log has entries; PUBEND_SESSIONS and PUBEND_SHARES while somebody reads; PUBEND_SHAPE and
PUBEND_WAITING while publications wait for the rate; PUBEND_OPEN when opening has failed.
If the node's clock is set back they are all set anew.

A pubend whose log is damaged stops: `problem` says why, publishers and readers are told, nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from penstock.content.message import Message
from penstock.kernel.machine import Effect
from penstock.kernel.storage import Entries, LogExtent, Put, Read, ServiceStorage, StorageFailed, StorageResult, Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import TraceSwitch
from penstock.overlay.packets import BrokerId
from penstock.streams.config import StreamsConfig
from penstock.streams.durable_names import DurableNames
from penstock.streams.log_codec import LEASE, VERSION, TickMark, UnreadableEntry, decode_messages, encode
from penstock.streams.log_reads import LogReads
from penstock.streams.packets import (
    Command,
    Item,
    Payload,
    Progress,
    PublishRequest,
    ReadLog,
    Register,
    Registered,
    Renew,
    Tick,
    Unregister,
    Verdicts,
)
from penstock.streams.pubend_commands import PubendCommands
from penstock.streams.pubend_core import PubendCore
from penstock.streams.pubend_opening import Opening
from penstock.streams.publication_ids import PublicationIds
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.publish_queue import PublishQueue
from penstock.streams.registration import DurableReaders
from penstock.streams.retention import Retention
from penstock.streams.share_failed import Answered
from penstock.streams.shared_names import SharedNames
from penstock.streams.timers import StreamTimer
from penstock.streams.writer_marks import WriterMarks

Forgotten = Callable[[str, float], list[Effect]]  # (problem, now)

DEFERRED_MAX = 1_000  # registrations that wait while a trim is decided


class PubendStatus(Struct, frozen=True):
    """A pubend's part of a report."""

    pubend: str
    epoch: int
    ready: bool
    problem: str
    horizon: Tick
    gone: Tick
    lease: Tick
    entries: int
    log_bytes: int
    waiting: int  # publications that are not on disk yet
    waiting_bytes: int
    ids: int
    names: int
    readers: int
    waiting_since: float | None = None  # when the one of them came that has waited longest
    limit: dict[str, Any] | None = None  # why they wait, if it is for congestion control


class Outlet(Protocol):
    """The broker around a pubend."""

    def send_to(self, broker: BrokerId, payload: Payload, *, now: float) -> list[Effect]:
        """Send it to this broker, which may be this one."""

    def committed(self, pubend: Pubend, data: Sequence[Item], *, now: float) -> list[Effect]:
        """These are on disk, in the order of ticks; the horizon includes them."""

    def store_elsewhere(
        self, stream: str, key: str, publication_id: str, message: Message, answered: Answered, *, now: float
    ) -> list[Effect]:
        """Publish a message of our own to any stream; an answer may get lost."""

    def pubend_ready(self, pubend: Pubend, *, now: float) -> list[Effect]:
        """It is open, and serves."""

    def pubend_gone(self, pubend: Pubend, *, now: float) -> list[Effect]:
        """Its `gone` has moved."""

    def pubend_removed(self, pubend: Pubend, then: Forgotten, *, now: float) -> list[Effect]:
        """All that it had is deleted; call `then` when the broker will not open it again."""

    def slice_read(
        self, pubend: Pubend, token: int, first: Tick, upto: Tick, items: Sequence[Item], *, now: float
    ) -> list[Effect]:
        """The log has these, and nothing else, from `first` to `upto`."""

    def slice_failed(self, pubend: Pubend, token: int, *, now: float) -> list[Effect]:
        """The log could not be read; it may be tried again, unless the pubend has a problem now."""


class Pubend:
    """One pubend."""

    def __init__(
        self,
        stream: str,
        number: int,
        of: int,
        *,
        storage: ServiceStorage,
        config: StreamsConfig,
        timers: ServiceTimers,
        random: Random,
        outlet: Outlet,
        traced: TraceSwitch | bool = True,
    ) -> None:
        self._outlet = outlet
        self._core = PubendCore(
            *(stream, number, of),
            storage=storage,
            config=config,
            timers=timers,
            random=random,
            send=lambda broker, payload, now: outlet.send_to(broker, payload, now=now),
            committed=self._committed,
            gone_moved=self._gone_moved,
            traced=traced,
        )
        core = self._core
        self.name = core.name
        self.stream = stream
        self.number = number
        self._ids = PublicationIds(config)
        self._names = DurableNames(core)
        self._marks = WriterMarks(core)
        self._retention = Retention(core, self._names, self._ids, self._marks, decided=self._decided)
        self._queue = PublishQueue(core, self._ids, renew_lease=self._renew_lease, appended=self._retention.appended)
        self._shared = SharedNames(
            core,
            self._names,
            lambda *what: outlet.store_elsewhere(*what[:-1], now=what[-1]),
        )
        self._readers = DurableReaders(core, self._names, self._shared)
        self._opening = Opening(core, self._names, self._ids, self._marks, opened=self._opened)
        self._reads = LogReads(core, self._retention)
        self._commands = PubendCommands(
            core,
            self._names,
            self._readers,
            self._shared,
            self._retention,
            self._reads,
            self._marks,
            waiting=self._queue.report,
            removed=self._removed,
            reopen=self._reopen,
        )
        self._lease_asked: Tick = 0  # being written
        self._deferred: list[tuple[Register, BrokerId]] = []
        self._sessions_watched = False  # the timer is set
        self._removed_for_good = False

    @property
    def of(self) -> int:
        return self._core.of

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def ready(self) -> bool:
        return self._core.ready

    @property
    def problem(self) -> str:
        return self._core.problem

    @property
    def removed(self) -> bool:
        """A command has deleted it, with all that was on disk."""
        return self._removed_for_good

    @property
    def gone(self) -> Tick:
        """Nothing up to this tick is kept."""
        return self._core.gone

    # Life.

    def open(self, *, create: bool, now: float) -> list[Effect]:
        return self._opening.begin(create=create, now=now)

    def _opened(self, extent: LogExtent, now: float) -> list[Effect]:
        effects = self._renew_lease(now)
        effects += self._retention.begin(extent, now)
        effects += self._shared.opened(extent.last, now)
        return effects + self._outlet.pubend_ready(self, now=now)

    def _reopen(self, now: float) -> list[Effect]:
        """It could not be removed: read again what is on disk."""
        self._lease_asked = 0
        self._core.doing = "is opening"
        return [] if self._core.problem else self._opening.begin(create=False, now=now)

    def _removed(self, problem: str, then: Forgotten, now: float) -> list[Effect]:
        """A command has deleted all that was on disk."""
        self._removed_for_good = True
        self._core.problem = problem
        self._core.ready = False
        effects = self._refuse_all(now)
        for name in self._names:
            effects += self._readers.end(name, problem, now)
        return effects + self._outlet.pubend_removed(self, then, now=now)

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect] | None:
        then = self._core.disk.answered(ticket)
        if then is None:
            return None
        stopped = bool(self._core.problem)
        self._heed_clock(now)
        effects = then(result, now)
        if self._core.problem and not stopped:
            effects += self._refuse_all(now)
        return effects

    def expired(self, timer: StreamTimer, *, now: float) -> list[Effect]:
        if self._core.problem:
            return []
        match timer:
            case StreamTimer.PUBEND_OPEN:
                return self._opening.retry(now)
            case StreamTimer.PUBEND_LEASE:
                return self._renew_lease(now) if self._core.ticks.lease_is_low(now) else []
            case StreamTimer.PUBEND_SHAPE:
                return self._queue.write(now)
            case StreamTimer.PUBEND_WAITING:
                return self._queue.tell_waiting(now)
            case StreamTimer.PUBEND_RETENTION:
                return self._retention.expired(now)
            case StreamTimer.PUBEND_SHARES:
                return self._shared.expired(now)
            case StreamTimer.PUBEND_SESSIONS:
                self._sessions_watched = False
                effects = self._readers.expire(now)
                self._watch_sessions(now)
                return effects
        return []

    def _heed_clock(self, now: float) -> None:
        """Timers that were set by a clock that has been set back would come too late."""
        if self._core.ticks.clock.went_back(now) and self._core.ready:
            self._core.ticks.clock.read(now)
            self._core.set_timer(StreamTimer.PUBEND_LEASE, now)
            self._core.set_timer(StreamTimer.PUBEND_RETENTION, now)
            self._core.set_timer(StreamTimer.PUBEND_SESSIONS, now)
            self._shared.heed_clock(now)
            self._core.set_timer(StreamTimer.PUBEND_SHAPE, now)
            self._core.set_timer(StreamTimer.PUBEND_WAITING, now)

    def _refuse_all(self, now: float) -> list[Effect]:
        """The pubend has stopped: nothing that waits will be done."""
        self._core.cancel_timers()
        return [*self._queue.refuse_waiting(self._core.problem, False, now), *self._decided(now)]

    def _committed(self, items: Sequence[Item], now: float) -> list[Effect]:
        return self._outlet.committed(self, items, now=now) + self._shared.committed(items, now)

    def _gone_moved(self, now: float) -> list[Effect]:
        return self._outlet.pubend_gone(self, now=now) + self._shared.gone_moved(now)

    # Publishing.

    def publish(self, packet: PublishRequest, reply_to: BrokerId, *, write: bool = True, now: float) -> list[Effect]:
        """Store a message. With `write=False` there are more to come, and a call of `write` after them."""
        self._heed_clock(now)
        return self._queue.publish(packet, reply_to, now, write=write)

    def write(self, now: float) -> list[Effect]:
        """Begin to write what was published, unless a write is under way."""
        return self._queue.write(now)

    def horizon(self, now: float) -> Tick:
        """Everything up to it is settled: data on disk, or silence for ever."""
        if self._core.problem:
            return self._core.ticks.horizon_told
        self._heed_clock(now)
        if self._core.ready and not self._lease_asked and self._core.ticks.lease_is_low(now):
            self._core.set_timer(StreamTimer.PUBEND_LEASE, now)
        return self._core.ticks.horizon(now)

    def limit(self, limited: PublishLimit | None, *, now: float) -> list[Effect]:
        """Congestion control: so many publications per second; None: as many as come."""
        return self._queue.limit(limited, now)

    def offered(self, now: float) -> float:
        """Publications per second that publishers would send."""
        return self._queue.offered(now)

    @property
    def message_bytes(self) -> float:
        """The mean size of what came lately."""
        return self._queue.message_bytes

    def arrivals(self, now: float) -> float:
        """Publications per second that came lately."""
        return self._queue.arrivals(now)

    def _renew_lease(self, now: float) -> list[Effect]:
        if self._lease_asked:
            return []
        self._lease_asked = self._core.ticks.next_lease(now)
        mark = TickMark(VERSION, self._lease_asked, self._ids.known_from, self._ids.crowded_out)
        return self._core.disk.ask(Put(LEASE, encode(mark)), self._lease_answered)

    def _lease_answered(self, result: StorageResult, now: float) -> list[Effect]:
        asked, self._lease_asked = self._lease_asked, 0
        if isinstance(result, StorageFailed):
            effects = self._core.failed(result)
            problem = f"{self.name} could not write to its disk: {result.problem}"
            return effects + (self._queue.refuse_waiting(problem, True, now) if not self._core.problem else [])
        self._core.ticks.lease = max(self._core.ticks.lease, asked)
        return self._queue.write(now)

    # Reading.

    def read(
        self, first: Tick, last: Tick, *, count: int, token: int, now: float, bytes_wanted: int = 1 << 40
    ) -> list[Effect]:
        """A slice of the log, as far as all is settled; the outlet gets it under this token.

        As many entries as have about so many bytes, by the average of the log, and two more; at most `count`.
        """
        core = self._core
        if core.problem or not core.ready:
            return self._outlet.slice_failed(self, token, now=now)
        first = max(first, core.gone + 1)
        upto = min(last, core.ticks.horizon(now))
        if upto < first:
            return self._outlet.slice_read(self, token, first, upto, (), now=now)

        def answered(result: StorageResult, now: float) -> list[Effect]:
            if not isinstance(result, Entries):
                assert isinstance(result, StorageFailed)
                return [*core.failed(result), *self._outlet.slice_failed(self, token, now=now)]
            try:
                items = decode_messages(result.entries)
            except UnreadableEntry as error:
                return [*core.stop(f"{self.name}: {error}"), *self._outlet.slice_failed(self, token, now=now)]
            covered = upto if result.complete or not items else items[-1][0]
            return self._outlet.slice_read(self, token, first, covered, items, now=now)

        extent = self._retention.extent
        enough = bytes_wanted * extent.entries // max(1, extent.bytes) + 2
        return core.disk.ask(Read(first, upto, min(count, enough)), answered)

    def read_log(self, packet: ReadLog, reply_to: BrokerId, *, now: float) -> list[Effect]:
        """A slice for somebody who is no reader of the stream."""
        self._heed_clock(now)
        return self._reads.read(packet, reply_to, now)

    # Readers.

    def register(self, packet: Register, reply_to: BrokerId, *, now: float) -> list[Effect]:
        self._heed_clock(now)
        if self._retention.deciding:
            if len(self._deferred) < DEFERRED_MAX:
                self._deferred.append((packet, reply_to))
                return []
            problem = f"{len(self._deferred)} registrations wait at {self.name}; the limit is {DEFERRED_MAX}"
            answer = Registered(packet.request, packet.pubend, packet.name, problem=problem, again=True)
            return self._core.send(reply_to, answer, now)
        effects = self._readers.register(packet, reply_to, now)
        self._watch_sessions(now)
        return effects

    def _decided(self, now: float) -> list[Effect]:
        """A trim is decided: registrations that waited for it go on."""
        deferred, self._deferred = self._deferred, []
        return [effect for packet, reply_to in deferred for effect in self.register(packet, reply_to, now=now)]

    def unregister(self, packet: Unregister, reply_to: BrokerId, *, now: float) -> list[Effect]:
        return self._readers.unregister(packet, now)

    def renew(self, packet: Renew, reply_to: BrokerId, *, now: float) -> list[Effect]:
        self._heed_clock(now)
        return self._readers.renew(packet, reply_to, now)

    def progress(self, packet: Progress, reply_to: BrokerId, *, now: float) -> list[Effect]:
        self._heed_clock(now)
        return self._readers.progress(packet, reply_to, now)

    def verdicts(self, packet: Verdicts, reply_to: BrokerId, *, now: float) -> list[Effect]:
        self._heed_clock(now)
        return self._shared.verdicts(packet, reply_to, now)

    def _watch_sessions(self, now: float) -> None:
        if not self._sessions_watched and self._names.has_sessions():
            self._sessions_watched = True
            self._core.set_timer(StreamTimer.PUBEND_SESSIONS, now + self._core.config.session_lease / 2)

    # Commands and reports.

    def command(self, packet: Command, reply_to: BrokerId, *, now: float) -> list[Effect]:
        return self._commands.command(packet, reply_to, now)

    def status(self) -> PubendStatus:
        core, extent, limited = self._core, self._retention.extent, self._queue.limited
        return PubendStatus(
            pubend=self.name,
            epoch=core.epoch,
            ready=core.ready,
            problem=core.problem,
            horizon=core.ticks.horizon_told,
            gone=core.gone,
            lease=core.ticks.lease,
            entries=extent.entries,
            log_bytes=extent.bytes,
            waiting=len(self._queue),
            waiting_bytes=self._queue.size_bytes,
            ids=len(self._ids),
            names=len(self._names),
            readers=sum(name.session is not None for name in self._names),
            waiting_since=self._queue.oldest(),
            limit=None if limited is None else limited.report(),
        )

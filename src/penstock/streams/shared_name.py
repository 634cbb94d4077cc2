"""A shared name at its pubend: it reads the log, hands each message to one member, and keeps on disk what is not done.

The table of who has what is `share_window`. Here is what ties it to the world: the log, the record on disk, packets.

What is on disk. One record for the name (`log_codec.SharedState`): up to where the log was looked at, and of that what
is not done with, with the attempts and the holder of each, and what failed. So an acknowledgement is one message less,
whatever the others do, and a message that nobody manages holds up none of those behind it. An attempt is written before
the message is sent: a message that kills its reader, and the broker too, is counted all the same. What members say is
confirmed when it is on disk. One write is under way at a time; what comes meanwhile goes into the next.

What is sent. A handout goes to the member's home broker. It is sent again until the member says that it has come, or
the attempt ends. Whatever arrives twice is the member's to notice.

What is gone. If the log is trimmed over what is open and not in memory, or was not looked at, one member is told of the
gap, again and again until it says so; then that is done with.

State: the window; one read of the log, one write, what is to be confirmed. Bounds: those of the window, SETTLED_MAX.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.content.language.parser import parse_predicate
from penstock.kernel.machine import Effect
from penstock.kernel.storage import Entries, Read, StorageFailed, StorageResult
from penstock.kernel.trace import InputRefused
from penstock.overlay.packets import BrokerId
from penstock.streams.durable_names import SESSION_BITS, DurableName, DurableNames
from penstock.streams.log_codec import NameRecord, SharedState, UnreadableEntry, decode_messages
from penstock.streams.packets import (
    SETTLING,
    SHARED_ITEMS_MAX,
    Handout,
    Item,
    Range,
    Register,
    Registered,
    SessionEnded,
    SharedHandout,
    SharedItem,
    ShareVerdict,
    Tick,
    Verdicts,
    VerdictsStored,
)
from penstock.streams.pubend_core import PubendCore
from penstock.streams.share_failed import FailedMover, StoreElsewhere
from penstock.streams.share_record import record_of, restored
from penstock.streams.share_window import MEMBERS_MAX, Member, OpenMessage

READ_MAX = 256  # entries of one read
HANDOUT_BYTES = 64 << 10  # of one packet, and one message more
SETTLED_MAX = 10_000  # verdicts that wait to be confirmed
PASSED_EVERY = 1.0  # seconds between two writes that only say how far we have looked
GAP_AGAIN = 1.0  # seconds


class SharedName:
    """One shared name of one pubend."""

    def __init__(self, core: PubendCore, names: DurableNames, name: DurableName, record: NameRecord) -> None:
        assert record.share is not None
        self.name = name.name
        self.failed_stream = record.share.failed_stream
        self.window = restored(record, core.config.session_lease, core.ticks.clock.elapsed)
        self.mover: FailedMover | None = None
        self._core = core
        self._names = names
        self._durable = name
        self._matches = parse_predicate(record.where).matches
        self._newest: Tick = 0  # of the log
        self._reading = False
        self._writing = False
        self._written_at = 0.0
        self._joining: list[tuple[Register, BrokerId]] = []  # until the name is on disk
        self._settled: list[tuple[str, Handout]] = []  # by whom; to be confirmed with the next write
        self._confirming: list[tuple[str, Handout]] = []  # with the one that is under way
        self._gap_told_at = -GAP_AGAIN

    def begin(self, newest: Tick, store: StoreElsewhere) -> None:
        """The pubend is open, or the name is new; the newest entry of its log stands here."""
        self._newest = newest
        self.mover = FailedMover(self._core, self, store)

    # Members.

    def problem(self, packet: Register) -> str:
        """Why this one cannot be a member."""
        share = packet.share
        assert share is not None
        if packet.reader not in self.window.members and len(self.window.members) >= MEMBERS_MAX:
            return f"'{self.name}' has {MEMBERS_MAX} members, which is the limit"
        others = [reader for reader in self.window.members if reader != packet.reader]
        if not others:
            return ""
        wanted = {"ack_within": share.ack_within, "attempts_max": share.attempts_max, "failed": share.failed}
        has = {"ack_within": self.window.ack_within, "attempts_max": self.window.attempts_max}
        for option, value in wanted.items():
            stands = has.get(option, self.failed_stream)
            if value and value != stands:
                return f"'{self.name}' is shared with {option}={stands!r} by others, and not with {value!r}"
        return ""

    def join(self, packet: Register, broker: BrokerId, now: float) -> list[Effect]:
        """A member begins. It was found that it may."""
        if self._durable.stored is None:
            self._joining = [one for one in self._joining if one[0].reader != packet.reader][-MEMBERS_MAX:]
            self._joining.append((packet, broker))
            return [] if self._writing else self._write(now)
        return self._join(packet, broker, now) + self.pump(now)

    def _join(self, packet: Register, broker: BrokerId, now: float) -> list[Effect]:
        share, window = packet.share, self.window
        assert share is not None
        wanted = (share.ack_within or window.ack_within, share.attempts_max or window.attempts_max)
        if (*wanted, share.failed or self.failed_stream) != (
            window.ack_within,
            window.attempts_max,
            self.failed_stream,
        ):
            window.ack_within, window.attempts_max = wanted
            self.failed_stream = share.failed or self.failed_stream
            window.dirty = True
        member = window.members.get(packet.reader)
        repeated = member is not None and (member.broker, member.request) == (broker, packet.request)
        session = member.session if member is not None and repeated else 0
        session = session or self._core.random.getrandbits(SESSION_BITS) + 1
        member = window.join(packet.reader, broker, session, packet.credit, self._elapsed(now))
        member.request = packet.request
        at = window.floor()
        core = self._core
        answer = Registered(packet.request, core.name, self.name, core.epoch, session, position=at, done=at)
        return core.send(broker, answer, now)

    def member(self, session: int) -> Member | None:
        """The member of this session."""
        members = self.window.members.values()
        return next((one for one in members if one.session == session), None) if session else None

    def renew(self, member: Member, now: float) -> None:
        member.heard_at = self._elapsed(now)

    def leave(self, member: Member, now: float) -> list[Effect]:
        """It has left; what it has not settled goes to others."""
        self.window.leave(member, self._elapsed(now))
        return self.pump(now)

    def end(self, problem: str, now: float) -> list[Effect]:
        """Nobody reads under this name any more, for this reason."""
        effects: list[Effect] = []
        for member in list(self.window.members.values()):
            self.window.leave(member, self._elapsed(now))
            if member.session:
                ended = SessionEnded(self._core.name, self.name, member.session, problem)
                effects += self._core.send(member.broker, ended, now)
        return effects + self._refuse_joining(problem, False, now)

    def _refuse_joining(self, problem: str, again: bool, now: float) -> list[Effect]:
        joining, self._joining = self._joining, []
        effects: list[Effect] = []
        for packet, broker in joining:
            answer = Registered(packet.request, packet.pubend, packet.name, problem=problem, again=again)
            effects += self._core.send(broker, answer, now)
        return effects

    # What members say.

    def verdicts(self, packet: Verdicts, member: Member, now: float) -> list[Effect]:
        """A member says what became of messages."""
        at = self._elapsed(now)
        new, member.ready, member.heard_at = not member.ready, True, at
        effects: list[Effect] = []
        for tick, attempt, number in packet.verdicts:
            verdict = ShareVerdict(number)
            if not attempt:
                self._gap_heard(tick)
                continue
            problem = self.window.judge(member, tick, attempt, verdict, at)
            if problem:  # it counts for nothing, and need not be said again
                effects.append(InputRefused(member.reader, f"'{self.name}': {problem}"))
            over = bool(problem) or verdict in SETTLING or not self.window.holds(member, tick, attempt)
            if over and len(self._settled) < SETTLED_MAX:
                self._settled.append((member.reader, (tick, attempt)))
        if new:
            effects += self._send(member, self.window.resend(member, at), now)
        return effects + self.pump(now)

    # The log.

    def committed(self, items: Sequence[Item], now: float) -> list[Effect]:
        """The log has grown by these. Who stands at its end takes them as they are."""
        at_end = self.window.upto >= self._newest and not self._reading and self._gap() is None
        self._newest = items[-1][0]
        if at_end and self.window.hungry() and self.window.room() >= len(items):
            self._look_at(items, self._newest)
        return self.pump(now)

    def _look_at(self, items: Sequence[Item], upto: Tick) -> None:
        for tick, message in items:
            if self._matches(message.attributes):
                self.window.add(tick, message)
        self.window.upto = upto

    def _read(self, now: float) -> list[Effect]:
        """Look further, or read again what an earlier life had looked at."""
        window = self.window
        if self._reading or not window.serving():
            return []
        wanted = next((tick for tick in window.without_content if tick > self._core.gone), None)
        if wanted is not None:
            return self._ask_for(wanted, wanted, 1)
        if window.upto >= self._newest or self._gap() is not None or window.room() <= 0 or not window.hungry():
            return []
        return self._ask_for(window.upto + 1, self._newest, min(window.room(), READ_MAX))

    def _ask_for(self, first: Tick, last: Tick, count: int) -> list[Effect]:
        self._reading = True

        def answered(result: StorageResult, now: float) -> list[Effect]:
            self._reading = False
            if not isinstance(result, Entries):
                assert isinstance(result, StorageFailed)
                return self._core.failed(result)  # the timer tries again
            try:
                items = decode_messages(result.entries)
            except UnreadableEntry as error:
                return self._core.stop(f"{self._core.name}: {error}")
            loaded = first <= self.window.upto
            self._have_read(items, first, last if result.complete or not items else items[-1][0])
            return (self._send_again(now) if loaded else []) + self.pump(now)

        return self._core.disk.ask(Read(first, last, count), answered)

    def _have_read(self, items: Sequence[Item], first: Tick, upto: Tick) -> None:
        window = self.window
        if first <= window.upto:
            for tick, message in items:
                window.load(tick, message)
            if not items and self._core.gone < first:
                window.forget((first,))  # the log never had it
        elif first == window.upto + 1 and self._core.gone < first:
            self._look_at(items, upto)

    # What is gone.

    def _gap(self) -> Range | None:
        """Ticks that nobody keeps any more, and that are not done with."""
        window, gone = self.window, self._core.gone
        firsts = [tick for tick in (*window.without_content, *window.failed) if tick <= gone]
        if window.upto < gone:
            firsts.append(window.upto + 1)
        return (min(firsts), gone) if firsts else None

    def _tell_gap(self, now: float) -> list[Effect]:
        gap = self._gap()
        at = self._elapsed(now)
        serving = [one for one in self.window.members.values() if one.ready]
        if gap is None or not serving or at < self._gap_told_at + GAP_AGAIN:
            return []
        self._gap_told_at = at
        member = min(serving, key=lambda one: (one.stalled, -one.heard_at))
        packet = SharedHandout(self._core.name, self._core.epoch, self.name, member.session, (), gap)
        return self._core.send(member.broker, packet, now)

    def _gap_heard(self, last: Tick) -> None:
        """A member knows of the gap up to this tick; what it has not been told of is none."""
        gap = self._gap()
        if gap is None or last > gap[1]:
            return
        lost = [tick for tick in (*self.window.without_content, *self.window.failed) if tick <= last]
        self.window.forget(lost)
        self.window.upto = max(self.window.upto, last)

    # Time.

    def pass_time(self, now: float) -> list[Effect]:
        """Look for members that are gone, for what is overdue, and for what must be sent again."""
        at = self._elapsed(now)
        self.window.pass_time(at)
        effects = self._send_again(now)
        stored = self._durable.stored
        passed = stored is not None and stored.share is not None and self.window.upto > stored.share.upto
        if passed and at >= self._written_at + PASSED_EVERY:
            self.window.dirty = True
        return effects + self.pump(now)

    def _send_again(self, now: float) -> list[Effect]:
        """What members have not said to have got."""
        effects: list[Effect] = []
        for member in self.window.members.values():
            effects += self._send(member, self.window.resend(member, self._elapsed(now)), now)
        return effects

    def busy(self) -> bool:
        """Whether time matters to it."""
        return bool(self.window.members or self._joining or (self.failed_stream and self.window.failed))

    def pump(self, now: float) -> list[Effect]:
        """Do all that can be done now."""
        name = self._durable
        lives = self._names.find(self.name) is name and name.removed_by is None and name.stored is not None
        if not self._core.ready or not lives:
            return []
        effects = self._tell_gap(now) + self._read(now)
        if self.mover is not None:
            effects += self.mover.start(now)
        if not self._writing:
            self.window.plan(self._elapsed(now))
            if self.window.dirty:
                effects += self._write(now)
            else:
                effects += self._confirm(now)
        return effects

    # The disk.

    def _write(self, now: float) -> list[Effect]:
        self._writing = True
        self._written_at = self._elapsed(now)
        self.window.dirty = False
        self._confirming, self._settled = self._settled, []
        record = record_of(self.window, self._durable.newest, self.failed_stream, self._core.ticks.horizon_told)
        return self._names.write(self._durable, record)

    def written(self, failure: StorageFailed | None, now: float) -> list[Effect]:
        """The record is on disk; or is not, and is written again by timer."""
        self._writing = False
        at = self._elapsed(now)
        if failure is not None:
            self.window.plan_failed(at)
            self.window.dirty = True
            self._settled = self._confirming + self._settled
            self._confirming = []
            problem = self._core.problem or f"{self._core.name} could not store it: {failure.problem}"
            return self._refuse_joining(problem, not self._core.problem, now)
        by_holder: dict[str, list[OpenMessage]] = {}
        for message in self.window.plan_stored(at):
            assert message.holder is not None
            by_holder.setdefault(message.holder.reader, []).append(message)
        effects: list[Effect] = []
        for reader, messages in by_holder.items():
            effects += self._send(self.window.members[reader], messages, now)
        confirmed, self._confirming = self._confirming, []
        effects += self._tell_settled(confirmed, now)
        joining, self._joining = self._joining, []
        for packet, broker in joining:
            effects += self._join(packet, broker, now)
        return effects + self.pump(now)

    def _confirm(self, now: float) -> list[Effect]:
        """Nothing is to be written, so what was said before is on disk."""
        settled, self._settled = self._settled, []
        return self._tell_settled(settled, now)

    def _tell_settled(self, settled: Sequence[tuple[str, Handout]], now: float) -> list[Effect]:
        by_reader: dict[str, list[Handout]] = {}
        for reader, handout in settled:
            by_reader.setdefault(reader, []).append(handout)
        effects: list[Effect] = []
        for reader, handouts in by_reader.items():
            member = self.window.members.get(reader)
            if member is not None and member.session:
                for at in range(0, len(handouts), SHARED_ITEMS_MAX):
                    some = tuple(handouts[at : at + SHARED_ITEMS_MAX])
                    packet = VerdictsStored(self._core.name, self._core.epoch, self.name, member.session, some)
                    effects += self._core.send(member.broker, packet, now)
        return effects

    # Parts.

    def _send(self, member: Member, messages: Sequence[OpenMessage], now: float) -> list[Effect]:
        """These to their holder, in packets of bounded size."""
        effects: list[Effect] = []
        items: list[SharedItem] = []
        size_bytes = 0
        for message in messages:
            assert message.message is not None
            items.append((message.tick, message.attempts, message.message))
            size_bytes += message.message.size_bytes
            if len(items) == SHARED_ITEMS_MAX or size_bytes >= HANDOUT_BYTES:
                effects += self._hand_out(member, items, now)
                items, size_bytes = [], 0
        return effects + (self._hand_out(member, items, now) if items else [])

    def _hand_out(self, member: Member, items: Sequence[SharedItem], now: float) -> list[Effect]:
        packet = SharedHandout(self._core.name, self._core.epoch, self.name, member.session, tuple(items))
        return self._core.send(member.broker, packet, now)

    def _elapsed(self, now: float) -> float:
        self._core.ticks.clock.read(now)
        return self._core.ticks.clock.elapsed

    def state(self) -> SharedState:
        """As it would be written now."""
        record = record_of(self.window, self._durable.newest, self.failed_stream, self._core.ticks.horizon_told)
        assert record.share is not None
        return record.share

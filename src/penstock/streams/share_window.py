"""The open messages of a shared name, its members, and who gets what: a table without disk, packets or a log.

A message is *open* from the moment it was looked at until a member is done with it. Each time it is handed to a member
is an *attempt*. It has one holder at a time:

    state      is                                             leaves it
    waiting    nobody holds it                                `plan` chooses a member
    planned    chosen; the attempt is not on disk yet         the record is on disk -> held; the member left -> waiting
    held       with a member                                  done -> gone from the table; rejected, returned, overdue,
                                                              member gone -> waiting, or failed after `attempts_max`
    failed     tried too often                                redelivered, dropped, or stored elsewhere

An attempt that may have reached the application counts, whatever became of it. One that the member returns unseen does
not, nor one that was planned and never sent.

Who gets it. A message goes to the member that holds the fewest, in the order of ticks, as far as credit reaches. One
whose last attempt ended without a word, because its member was gone or it was overdue, is a *suspect*, and is handed
out alone: to a member that holds nothing else, and that gets nothing else until it is settled; and to another member
than the last, if one is free. So a message that kills its readers fails by itself, and does not take those with it that
happened to be in the same client. As many members as there are suspects that wait get nothing else meanwhile. What was
rejected is none: its reader has survived it. It is tried again after a pause.

Time. A member that is not heard of for a lease is gone. A message is overdue `ack_within` seconds after the application
took it; before that, after the application last took or settled anything: who works through a queue is not late with
its end. A member that let something become overdue is *stalled* until it takes or settles something: it gets one
message at a time, and that only if no other member is free.

After a restart, members are known by name only until they register again, and keep what they hold for one lease.

State: open messages, members. Bounds: OPEN_MAX messages and OPEN_BYTES_MAX of content (and one message more),
MEMBERS_MAX members, FAILED_MAX failed ones; if there is no room for another, it stays open, and nobody gets it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from penstock.content.message import Message
from penstock.overlay.packets import BrokerId
from penstock.streams.packets import SETTLING, ShareVerdict, Tick

OPEN_MAX = 1_000
OPEN_BYTES_MAX = 4 << 20
MEMBERS_MAX = 256
FAILED_MAX = 1_000
REJECTED_PAUSE = 0.1  # seconds after the first rejection of a message, doubled each time
REJECTED_PAUSE_MAX = 10.0
RESEND_FIRST = 0.5  # seconds without a word that it has come, doubled each time
RESEND_MAX = 8.0


class Member:
    """One reader among several."""

    __slots__ = (
        *("broker", "credit", "heard_at", "holding", "progress_at", "reader", "ready", "request", "session"),
        *("stalled", "turn"),
    )

    def __init__(self, reader: str, at: float) -> None:
        self.reader = reader
        self.broker: BrokerId = 0
        self.session = 0  # 0: known from disk only
        self.ready = False  # its client has said something under this session
        self.request = 0  # of the registration that was answered with this session
        self.credit = 1
        self.heard_at = self.progress_at = at
        self.stalled = False
        self.turn = 0
        self.holding: dict[Tick, OpenMessage] = {}

    def room(self) -> int:
        """How many more it may be given."""
        alone = self.stalled or any(message.suspect for message in self.holding.values())
        return 0 if self.holding and alone else self.credit - len(self.holding)

    def made_progress(self, at: float) -> None:
        self.progress_at = at
        self.stalled = False


class OpenMessage:
    """A message that nobody is done with."""

    __slots__ = (
        *(
            "attempts",
            "forgiven",
            "given_at",
            "given_to",
            "holder",
            "last_reader",
            "message",
            "planned",
            "prepaid",
            "ready_at",
        ),
        *("received", "resend_at", "resend_delay", "suspect", "taken_at", "tick"),
    )

    def __init__(self, tick: Tick, message: Message | None) -> None:
        self.tick = tick
        self.message = message  # None: to be read from the log
        self.attempts = 0  # in all: each has a number that was never used before
        self.forgiven = 0  # of them, that do not count any more
        self.prepaid = False  # the last attempt is counted, and was never sent
        self.holder: Member | None = None
        self.planned = False
        self.given_to: dict[int, str] = {}  # attempt -> reader, as far as this life knows
        self.last_reader = ""
        self.suspect = False  # the last attempt ended without a word
        self.ready_at = 0.0  # not before then
        self.received = False
        self.given_at = self.resend_at = self.resend_delay = 0.0
        self.taken_at: float | None = None

    @property
    def tried(self) -> int:
        """Attempts that may have reached an application."""
        return self.attempts - self.prepaid

    def overdue_at(self, ack_within: float) -> float:
        assert self.holder is not None
        since = max(self.given_at, self.holder.progress_at) if self.taken_at is None else self.taken_at
        return since + ack_within


class ShareWindow:
    """The table of one shared name at one pubend."""

    def __init__(self, upto: Tick, *, ack_within: float, attempts_max: int, lease: float) -> None:
        self.upto = upto  # everything up to here was looked at
        self.ack_within = ack_within
        self.attempts_max = attempts_max
        self.open: dict[Tick, OpenMessage] = {}
        self.failed: dict[Tick, OpenMessage] = {}
        self.members: dict[str, Member] = {}
        self.without_content: dict[Tick, None] = {}  # open, and to be read from the log
        self.dirty = False  # something is to be written
        self.size_bytes = 0
        self.redelivered = self.done = self.rejected = self.overdue = 0
        self._lease = lease
        self._waiting: list[Tick] = []
        self._suspects: list[Tick] = []  # waiting too
        self._stuck: list[Tick] = []  # to be failed, and there is no room
        self._planned: list[OpenMessage] = []
        self._turns = 0

    # What is in it.

    def room(self) -> int:
        """How many more messages may be looked at."""
        return OPEN_MAX - len(self.open) if self.size_bytes < OPEN_BYTES_MAX else 0

    def floor(self) -> Tick:
        """Nothing up to here is needed."""
        first = min(min(self.open, default=self.upto + 1), min(self.failed, default=self.upto + 1))
        return min(self.upto, first - 1)

    def waiting(self) -> int:
        return len(self._waiting) + len(self._suspects) + len(self._stuck)

    def serving(self) -> bool:
        """Whether there is a member that can be sent something."""
        return any(member.ready for member in self.members.values())

    def hungry(self) -> bool:
        """Whether members could soon take more than what waits: what they cannot take need not be kept here."""
        could_go = len(self._waiting) + len(self._suspects)
        return could_go < 2 * sum(member.credit for member in self.members.values() if member.ready)

    def add(self, tick: Tick, message: Message) -> None:
        """One more message matches."""
        self.open[tick] = OpenMessage(tick, message)
        self.size_bytes += message.size_bytes
        self._wait(self.open[tick], 0.0)

    def restore(self, tick: Tick, attempts: int, holder: str, at: float, *, forgiven: int = 0) -> None:
        """It was open when an earlier life ended, with this member or with none."""
        found = self.open[tick] = OpenMessage(tick, None)
        self.without_content[tick] = None
        found.attempts, found.forgiven = attempts, forgiven
        if not holder:
            found.suspect = attempts > 0
            self._tried_before(found, at)
            return
        member = self.members.setdefault(holder, Member(holder, at))
        found.holder, found.given_to[attempts] = member, holder
        found.given_at = found.resend_at = at
        member.holding[tick] = found

    def restore_failed(self, tick: Tick, attempts: int) -> None:
        found = self.failed[tick] = OpenMessage(tick, None)
        found.attempts = attempts

    def load(self, tick: Tick, message: Message) -> None:
        """It was read from the log."""
        if tick in self.without_content:
            del self.without_content[tick]
            self.open[tick].message = message
            self.size_bytes += message.size_bytes

    def forget(self, ticks: Sequence[Tick]) -> None:
        """Nobody can get these any more."""
        for tick in ticks:
            self.failed.pop(tick, None)
            if tick in self.open:
                self._close(self.open[tick])
        self.dirty = True

    # Members.

    def join(self, reader: str, broker: BrokerId, session: int, credit: int, at: float) -> Member:
        """A member begins; or comes back, perhaps at another broker, and keeps what it holds."""
        member = self.members.setdefault(reader, Member(reader, at))
        member.ready = member.ready and member.session == session
        member.broker, member.session, member.credit = broker, session, max(1, credit)
        member.heard_at, member.stalled = at, False
        for message in member.holding.values():
            if not message.planned:
                message.received, message.resend_at, message.resend_delay = False, at, 0.0
        return member

    def leave(self, member: Member, at: float) -> None:
        """A member is gone; what it holds was tried, for all we know."""
        del self.members[member.reader]
        for message in list(member.holding.values()):
            self._end_in_silence(message, at)

    def pass_time(self, at: float) -> None:
        """Members that were not heard of are gone; what is overdue goes to others."""
        for member in list(self.members.values()):
            if member.heard_at < at - self._lease:
                self.leave(member, at)
                continue
            for message in list(member.holding.values()):
                if not message.planned and message.overdue_at(self.ack_within) <= at:
                    self.overdue += 1
                    member.stalled = True
                    self._end_in_silence(message, at)

    # Who gets what.

    def plan(self, at: float) -> bool:
        """Choose members for what waits; True: something is planned, and to be written before it is sent."""
        serving = [member for member in self.members.values() if member.ready]
        self._plan_others(self._plan_suspects(serving), at)
        return bool(self._planned)

    def _plan_suspects(self, members: list[Member]) -> list[Member]:
        """Each goes to a member that holds nothing; returns who is not needed for it."""
        free = list(members)
        for tick in list(self._suspects):
            message = self.open[tick]
            if not free:
                break
            if message.message is None:
                continue
            member = min(free, key=lambda one: _fitness(one, message))
            free.remove(member)
            if not member.holding:
                self._suspects.remove(tick)
                self._give(message, member)
        return free

    def _plan_others(self, members: list[Member], at: float) -> None:
        free = [member for member in members if member.room() > 0]
        kept: list[Tick] = []
        looked_at = 0
        for tick in self._waiting:
            if not free:
                break
            looked_at += 1
            message = self.open[tick]
            if message.ready_at > at or message.message is None:
                kept.append(tick)
                continue
            member = min(free, key=lambda one: (one.reader == message.last_reader, *_load(one)))
            self._give(message, member)
            if member.room() <= 0:
                free.remove(member)
        self._waiting[:looked_at] = kept

    def _give(self, message: OpenMessage, member: Member) -> None:
        message.attempts += not message.prepaid
        message.prepaid = False
        message.holder, message.planned = member, True
        message.received, message.taken_at = False, None
        message.given_to[message.attempts] = member.reader
        member.holding[message.tick] = message
        self._turns += 1
        member.turn = self._turns
        self._planned.append(message)
        self.dirty = True

    def plan_stored(self, at: float) -> list[OpenMessage]:
        """The plan is on disk: these are to be sent to their holders."""
        planned, self._planned = self._planned, []
        sent = [message for message in planned if message.planned and self.open.get(message.tick) is message]
        for message in sent:
            message.planned = False
            message.given_at = at
            message.resend_delay, message.resend_at = RESEND_FIRST, at + RESEND_FIRST
            self.redelivered += message.attempts > 1
        return sent

    def plan_failed(self, at: float) -> None:
        """The plan is not on disk: nobody gets anything."""
        planned, self._planned = self._planned, []
        for message in planned:
            if message.planned and self.open.get(message.tick) is message:
                self._end_attempt(message, at)

    def resend(self, member: Member, at: float) -> list[OpenMessage]:
        """What it has not said to have got for a while: one at a time, lest what is slow becomes slower.

        After it has registered anew, all at once.
        """
        sent = [message for message in member.holding.values() if not message.planned and message.message is not None]
        due = [message for message in sent if member.ready and not message.received and message.resend_at <= at]
        found = [message for message in due if not message.resend_delay] or due[:1]
        for message in found:
            message.resend_delay = min(RESEND_MAX, 2 * message.resend_delay or RESEND_FIRST)
            message.resend_at = at + message.resend_delay
        return found

    # What members say.

    def judge(self, member: Member, tick: Tick, attempt: int, verdict: ShareVerdict, at: float) -> str:
        """A member says what became of a handout; returns what is wrong with that, if anything is."""
        message = self.open.get(tick) or self.failed.get(tick)
        if message is None:
            return "" if tick <= self.upto else f"tick {tick} was never handed out"
        earlier = attempt not in message.given_to and attempt <= message.tried  # an earlier life may have handed it out
        ours = message.given_to.get(attempt) == member.reader and not (message.planned and attempt == message.attempts)
        if not ours and not earlier:
            return f"tick {tick} was not handed to it in attempt {attempt}"
        current = message.holder is member and message.attempts == attempt
        if verdict is ShareVerdict.DONE:
            self._settle(member, message, at)
        elif current and verdict in SETTLING:
            self._give_up(member, message, verdict, at)
        elif current:
            message.received = True
            if verdict is ShareVerdict.TAKEN and message.taken_at is None:
                message.taken_at = at
                member.made_progress(at)
        return ""

    def holds(self, member: Member, tick: Tick, attempt: int) -> bool:
        """Whether this attempt is under way."""
        message = member.holding.get(tick)
        return message is not None and message.attempts == attempt

    def _settle(self, member: Member, message: OpenMessage, at: float) -> None:
        """Done with, also if that comes late, and somebody else has it by now."""
        self.done += 1
        member.made_progress(at)
        self.failed.pop(message.tick, None)
        if message.tick in self.open:
            self._close(message)
        self.dirty = True

    def _give_up(self, member: Member, message: OpenMessage, verdict: ShareVerdict, at: float) -> None:
        member.made_progress(at)
        pause, message.suspect = 0.0, False
        if verdict is ShareVerdict.REJECTED:
            self.rejected += 1
            pause = min(REJECTED_PAUSE_MAX, REJECTED_PAUSE * 2.0 ** min(30, message.attempts - message.forgiven - 1))
        else:
            message.attempts -= 1
        self._end_attempt(message, at, pause)
        self.dirty = True

    # Failed ones.

    def redeliver_failed(self) -> int:
        """They are tried again, as often as before."""
        count = 0
        for tick in list(self.failed)[: OPEN_MAX - len(self.open)]:
            message = self.open[tick] = self.failed.pop(tick)
            message.forgiven, message.suspect = message.attempts, False
            self.without_content[tick] = None
            self._wait(message, 0.0)
            self.dirty = True
            count += 1
        self._fail_stuck()
        return count

    def drop_failed(self, ticks: Sequence[Tick]) -> None:
        """They are done with: stored elsewhere, or given up."""
        for tick in ticks:
            self.failed.pop(tick, None)
        self.dirty = True
        self._fail_stuck()

    def _fail(self, message: OpenMessage) -> None:
        if len(self.failed) >= FAILED_MAX:
            self._stuck.append(message.tick)
            return
        self._close(message)
        message.message = None
        self.failed[message.tick] = message
        self.dirty = True

    def _fail_stuck(self) -> None:
        stuck, self._stuck = self._stuck, []
        for tick in stuck:
            self._fail(self.open[tick])

    # Parts.

    def _end_in_silence(self, message: OpenMessage, at: float) -> None:
        message.suspect = message.suspect or not message.planned
        self._end_attempt(message, at)

    def _end_attempt(self, message: OpenMessage, at: float, pause: float = 0.0) -> None:
        assert message.holder is not None
        del message.holder.holding[message.tick]
        message.last_reader = message.holder.reader
        message.holder = None
        if message.planned:
            message.planned, message.prepaid = False, True
            self._wait(message, at)
        else:
            self._tried_before(message, at + pause)

    def _tried_before(self, message: OpenMessage, ready_at: float) -> None:
        if message.attempts - message.forgiven >= self.attempts_max:
            self._fail(message)
        else:
            self._wait(message, ready_at)

    def _wait(self, message: OpenMessage, ready_at: float) -> None:
        message.ready_at = ready_at
        insort(self._suspects if message.suspect else self._waiting, message.tick)

    def _close(self, message: OpenMessage) -> None:
        """It is open no longer."""
        del self.open[message.tick]
        self.without_content.pop(message.tick, None)
        if message.message is not None:
            self.size_bytes -= message.message.size_bytes
        if message.holder is not None:
            del message.holder.holding[message.tick]
            message.holder, message.planned = None, False
            return
        for waiting in (self._waiting, self._suspects, self._stuck):
            if message.tick in waiting:
                waiting.remove(message.tick)


def _load(member: Member) -> tuple[bool, int, int]:
    """Who is stalled comes last; who holds less goes first, and then who was given something longer ago."""
    return member.stalled, len(member.holding), member.turn


def _fitness(member: Member, message: OpenMessage) -> tuple[bool, bool, bool, int]:
    """For a suspect: who holds nothing, and has not had it last."""
    return member.stalled, bool(member.holding), member.reader == message.last_reader, member.turn

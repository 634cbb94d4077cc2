"""One durable subscription of a client: every matching message once and in order, across connections.

State: a cursor for each pubend (`cursor`), and what the application has not taken yet. On each new connection the
subscription is asked for anew with the positions of its cursors, again and again until the broker answers; the ticket
is answered the first time. From the answer on it is in force.

What comes. A delivery says which tick it follows. One that follows the position is handed over, message by message,
and moves the position; one that is known already is a duplicate; one that begins beyond the position shows a hole: it
is dropped, and Resume asks the broker to go back. A gap is what nobody keeps any more; it is recorded and passed over.
Nothing else ever moves a position, so no answer and no reconnection can skip a message.

Credit. At most `window` messages wait for the application. A Take says how many may be sent in all since the
subscription was last asked for; it goes out when half a window was taken. Where deliveries may have been lost on the
way (a hole, or QUIET_AFTER seconds without any), Resume also says how many came, so that lost ones cost no credit.

Acknowledgements are cumulative for each pubend. One is under way at a time; what comes meanwhile goes out when it is
answered, or after ACKNOWLEDGE_EVERY. One that is not answered is sent again, also over a new connection. Silence is
acknowledged now and then, so that logs can be trimmed.

Timers: CLIENT_SUBSCRIBE, CLIENT_ACKNOWLEDGE (subscription), CLIENT_RESUME (subscription, pubend).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Refused, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused
from penstock.streams.config import StreamsClientConfig
from penstock.streams.cursor import Cursor
from penstock.streams.durable_options import DurableRequest
from penstock.streams.message import placed
from penstock.streams.packets import (
    PUBENDS_MAX,
    TICK_MAX,
    Acknowledge,
    Acknowledged,
    DurableAnswer,
    DurableLeave,
    DurableSubscribe,
    Position,
    Resume,
    StreamDelivery,
    Take,
    Tick,
    stream_of,
)
from penstock.streams.records import DurableBegan, DurableDelayed, DurableStopped, GapNoticed, StreamDelivered
from penstock.streams.timers import StreamTimer

ACKNOWLEDGE_EVERY = 0.05  # seconds, while the one before is not answered
SILENCE_EVERY = 5.0  # seconds between acknowledgements of nothing but silence
QUIET_AFTER = 10.0  # seconds without a delivery, then what is on the way may be lost


class DurableReport(Struct, frozen=True):
    """How a durable subscription fares."""

    stream: str
    durable: str
    in_force: bool
    problem: str  # why it is not
    ended: bool  # it will not be again
    positions: tuple[Position, ...]  # that the application may keep
    acknowledged: tuple[Position, ...]  # on disk at the pubends
    received: int
    duplicates: int
    holes: int
    gaps: int
    waiting: int  # messages that the application has not taken
    credit: int  # messages that the broker may still send


class DurableReader:
    """A sub-machine of the client's, for one subscription."""

    def __init__(
        self,
        request: DurableRequest,
        positions: Sequence[Position],  # that the application has kept
        ticket: Ticket,
        client: tuple[str, int],  # its name and incarnation
        config: StreamsClientConfig,
        timers: ServiceTimers,
        *,
        traced: bool,
    ) -> None:
        self.request = request
        self.in_force = False
        self.began = False  # it has been in force
        self.ended = False
        self.problem = ""
        self.cursors = {pubend: Cursor(pubend, epoch, tick, stored=0) for pubend, epoch, tick in positions}
        self._ticket: Ticket | None = ticket  # None: answered
        self._client, self._incarnation = client
        self._rewinds = bool(positions)  # the application has chosen where to begin
        self._config = config
        self._timers = timers
        self._traced = traced
        self._home: Link | None = None
        self._asked = 0  # the request that is under way; 0: none
        self._requests = 0
        self._delay = 0.0
        self._acknowledge_at: float | None = None  # when the timer is set for
        self._untaken: deque[tuple[Cursor, Tick]] = deque()
        self._allowed = 0  # messages in all, since it was last asked for
        self._came = 0  # since it was last asked for
        self._received = self._duplicates = self._holes = self._gaps = 0

    # Being in force.

    def connected(self, home: Link, *, now: float) -> list[Effect]:
        """Ask the broker for it."""
        self._home = home
        self._asked, self._delay = 0, 0.0
        return [] if self.ended else self.ask(now=now)

    def disconnected(self) -> None:
        """It is in force no more, until it is asked for again."""
        self._home = None
        self.in_force = False
        self._stop_timers()

    def ask(self, *, now: float) -> list[Effect]:
        """Ask for it, first or again: the timer says that no answer came, or that it is time to try again."""
        if self._home is None:
            return []
        if not self._asked:
            self._requests += 1
            self._asked = self._requests
            self._came, self._allowed = 0, max(0, self._config.window - len(self._untaken))
        self._delay = min(self._config.retry_max, 2 * self._delay or self._config.retry_min)
        self._timers.set(StreamTimer.CLIENT_SUBSCRIBE, now + self._delay, self.request.number)
        asked = self.request
        packet = DurableSubscribe(
            self._asked,
            asked.number,
            asked.stream,
            asked.durable,
            asked.where,
            asked.start,
            tuple(cursor.presented for cursor in self.cursors.values()),
            asked.takeover and not self.began,  # whoever took over from us since then keeps it
            self._allowed,
            self._incarnation,
            self._rewinds and not self.began,
        )
        return self._send(packet)

    def answered(self, packet: DurableAnswer, *, now: float) -> list[Effect]:
        """The broker has answered."""
        if not self._asked or packet.request != self._asked:
            return []
        if packet.problem:
            return self._refused(packet, now)
        wrong = self._wrong(packet.positions)
        if wrong:
            return [InputRefused("broker", wrong)]
        self._timers.cancel(StreamTimer.CLIENT_SUBSCRIBE, self.request.number)
        self._asked, self._delay = 0, 0.0
        self.in_force, self.problem = True, ""
        effects = self._begin(packet.positions, now)
        self.began = True
        if self._ticket is not None:
            effects.append(Done(self._ticket, Accepted()))
            self._ticket = None
        for cursor in self.cursors.values():
            cursor.sent = cursor.stored
            if cursor.acknowledged > cursor.stored:
                effects += self._acknowledge(cursor, now)
        return effects

    def _refused(self, packet: DurableAnswer, now: float) -> list[Effect]:
        self._asked = 0
        if not packet.again:
            return self.end(packet.problem)
        repeated = packet.problem == self.problem
        self.problem = packet.problem
        asked = self.request
        return [] if repeated else [DurableDelayed(asked.number, asked.stream, asked.durable, packet.problem)]

    def _wrong(self, positions: tuple[Position, ...]) -> str:
        pubends = dict.fromkeys(pubend for pubend, _, _ in positions)
        if not 0 < len(pubends) == len(positions) <= PUBENDS_MAX:
            return f"an answer with {len(positions)} positions for '{self.request.durable}'"
        if any(stream_of(pubend) != self.request.stream for pubend in pubends):
            return f"an answer about another stream than '{self.request.stream}'"
        if not all(0 < epoch <= TICK_MAX and 0 <= tick <= TICK_MAX for _, epoch, tick in positions):
            return f"an answer with ticks that cannot be for '{self.request.durable}'"
        return ""

    def _begin(self, positions: tuple[Position, ...], now: float) -> list[Effect]:
        """Take the positions of the answer where we have none; ours count where we have."""
        effects: list[Effect] = []
        asked = self.request
        for pubend, epoch, tick in positions:
            cursor = self.cursors.get(pubend)
            if cursor is None or cursor.epoch != epoch:
                if cursor is not None:
                    effects += cursor.abandon(f"{pubend} was removed and made anew")
                cursor = self.cursors[pubend] = Cursor(pubend, epoch, tick, stored=tick)
                new = True
            else:
                new = not self.began
            if new:
                at = (pubend, epoch, cursor.position)
                effects.append(DurableBegan(asked.number, asked.stream, asked.durable, *at, asked.where))
            cursor.hole, cursor.resume_delay, cursor.resume_at = False, 0.0, now
            cursor.heard_at = now
            self._timers.set(StreamTimer.CLIENT_RESUME, now + QUIET_AFTER, asked.number, pubend)
        return effects

    def end(self, problem: str) -> list[Effect]:
        """It is over: refused, or served no longer. The ticket is answered, and nobody waits for an acknowledgement."""
        self.ended, self.in_force, self.problem = True, False, problem
        self._stop_timers()
        effects: list[Effect] = [InputRefused(self._client, problem)]
        if self._ticket is not None:
            effects.append(Done(self._ticket, Refused(problem)))
            self._ticket = None
        if self.began:
            effects.append(DurableStopped(self.request.number, self.request.stream, self.request.durable, problem))
        for cursor in self.cursors.values():
            effects += cursor.abandon(f"not stored: {problem}")
        return effects

    def leave(self) -> list[Effect]:
        """The application is done with it: tell the broker what it has acknowledged, and that it leaves."""
        effects: list[Effect] = []
        if self.in_force:
            for cursor in self.cursors.values():
                if cursor.done > cursor.stored:
                    effects += self._send(Acknowledge(self.request.number, cursor.pubend, cursor.epoch, cursor.done))
        if not self.ended:
            effects += self._send(DurableLeave(self.request.number))
        self._stop_timers()
        left = "unsubscribed before the broker had answered"
        if self._ticket is not None:
            effects.append(Done(self._ticket, Refused(left)))
        for cursor in self.cursors.values():
            effects += cursor.abandon(left)
        return effects

    # What comes.

    def delivered(self, packet: StreamDelivery, *, now: float) -> list[Effect]:
        """What follows the position is handed over."""
        if not self.in_force:
            return []
        self._came += len(packet.items)
        cursor = self.cursors.get(packet.pubend)
        if cursor is None or cursor.epoch != packet.epoch:
            problem = f"a delivery of '{packet.pubend}', which '{self.request.durable}' does not read"
            return [InputRefused("broker", problem), *self._grant()]
        if packet.upto <= cursor.position:
            self._duplicates += len(packet.items)
            return self._grant()
        if packet.after > cursor.position or (self._overfull and packet.items):
            self._holes += not cursor.hole
            cursor.hole = True
            return self._resume(cursor, now) + self._grant()
        effects = self._gap(packet, cursor) if packet.gap else self._messages(packet, cursor)
        cursor.position = packet.upto
        cursor.heard_at = now
        cursor.hole, cursor.resume_delay = False, 0.0
        if cursor.done > cursor.sent:
            self._acknowledge_soon(now + SILENCE_EVERY)
        return effects + self._grant()

    def _gap(self, packet: StreamDelivery, cursor: Cursor) -> list[Effect]:
        self._gaps += 1
        asked = self.request
        return [GapNoticed(asked.number, asked.stream, cursor.pubend, cursor.position + 1, packet.upto)]

    def _messages(self, packet: StreamDelivery, cursor: Cursor) -> list[Effect]:
        number, effects, before = self.request.number, list[Effect](), cursor.position
        if not cursor.untaken:
            cursor.taken = before
        for tick, message in packet.items:
            if tick <= before:
                self._duplicates += 1
                continue
            self._received += 1
            cursor.last_message = tick
            cursor.untaken += 1
            self._untaken.append((cursor, tick))
            if self._traced:
                who = message.identity
                place = (number, cursor.pubend, cursor.epoch, tick)
                effects.append(StreamDelivered(*place, who.publisher, who.incarnation, who.count))
            effects.append(Deliver(number, placed(message, cursor.pubend, cursor.epoch, tick)))
        return effects

    def resume_due(self, pubend: str, *, now: float) -> list[Effect]:
        """A hole has not closed, or nothing has come for a while: go back to where we are."""
        cursor = self.cursors[pubend]
        quiet = now >= cursor.heard_at + QUIET_AFTER and len(self._untaken) < self._config.window
        if cursor.hole or quiet:
            return self._resume(cursor, now)
        self._timers.set(StreamTimer.CLIENT_RESUME, now + QUIET_AFTER, self.request.number, pubend)
        return []

    @property
    def _overfull(self) -> bool:
        """Whether the broker has sent far more than it was allowed."""
        return len(self._untaken) > 2 * self._config.window

    def _resume(self, cursor: Cursor, now: float) -> list[Effect]:
        if now < cursor.resume_at or self._overfull:
            at = max(cursor.resume_at, now + self._config.retry_min)
            self._timers.set(StreamTimer.CLIENT_RESUME, at, self.request.number, cursor.pubend)
            return []
        cursor.resume_delay = min(self._config.retry_max, 2 * cursor.resume_delay or self._config.retry_min)
        cursor.resume_at = now + cursor.resume_delay
        wait = cursor.resume_delay if cursor.hole else QUIET_AFTER
        number = self.request.number
        self._timers.set(StreamTimer.CLIENT_RESUME, now + wait, number, cursor.pubend)
        return self._send(Resume(number, cursor.pubend, cursor.epoch, cursor.position, self._came))

    # Credit.

    def taken(self, count: int) -> list[Effect]:
        """The application has taken so many."""
        for _ in range(min(count, len(self._untaken))):
            cursor, tick = self._untaken.popleft()
            cursor.message_taken(tick)
        return self._grant()

    def _grant(self) -> list[Effect]:
        """Let the broker send more, if enough was taken."""
        room = self._came + self._config.window - len(self._untaken)
        if not self.in_force or room - self._allowed < max(1, self._config.window // 2):
            return []
        self._allowed = room
        return self._send(Take(self.request.number, room))

    # Acknowledgements.

    def acknowledge(self, pubend: str, tick: Tick, *, ticket: Ticket, now: float) -> list[Effect]:
        """The application is done with everything of this pubend up to this tick."""
        cursor = self.cursors.get(pubend)
        if self.ended:
            problem = self.problem
        elif cursor is None:
            problem = f"'{pubend}' is no pubend that '{self.request.durable}' reads"
        else:
            problem = cursor.refusal(tick, ticket)
        if problem or cursor is None:
            told = f"not acknowledged: {problem}"
            return [Done(ticket, Refused(told)) if ticket else InputRefused(self._client, told)]
        effects = cursor.acknowledge(tick, ticket)
        if cursor.acknowledged > cursor.sent:
            if cursor.sent <= cursor.stored:
                effects += self._acknowledge(cursor, now)
            else:
                self._acknowledge_soon(now + ACKNOWLEDGE_EVERY)
        return effects

    def acknowledged(self, packet: Acknowledged, *, now: float) -> list[Effect]:
        """A pubend has stored one."""
        cursor = self.cursors.get(packet.pubend)
        if cursor is None or cursor.epoch != packet.epoch or self.ended:
            return []
        effects = cursor.acknowledgement_stored(packet.tick)
        if cursor.acknowledged > cursor.sent:
            effects += self._acknowledge(cursor, now)
        return effects

    def acknowledge_due(self, *, now: float) -> list[Effect]:
        """Send what has gathered, and again what was not answered."""
        self._acknowledge_at = None
        effects: list[Effect] = []
        for cursor in self.cursors.values():
            overdue = cursor.sent > cursor.stored and now >= cursor.sent_at + self._config.retry_min
            if cursor.done > cursor.sent or overdue:
                effects += self._acknowledge(cursor, now)
            elif cursor.sent > cursor.stored:
                self._acknowledge_soon(cursor.sent_at + self._config.retry_min)
        return effects

    def _acknowledge(self, cursor: Cursor, now: float) -> list[Effect]:
        if not self.in_force:
            return []
        cursor.sent, cursor.sent_at = cursor.done, now
        self._acknowledge_soon(now + self._config.retry_min)
        return self._send(Acknowledge(self.request.number, cursor.pubend, cursor.epoch, cursor.sent))

    def _acknowledge_soon(self, at: float) -> None:
        if self._acknowledge_at is None or at < self._acknowledge_at:
            self._acknowledge_at = at
            self._timers.set(StreamTimer.CLIENT_ACKNOWLEDGE, at, self.request.number)

    # Parts.

    def positions(self) -> tuple[Position, ...]:
        """What an application may keep that is done with all it has taken."""
        return tuple(cursor.kept for _, cursor in sorted(self.cursors.items()))

    def report(self) -> DurableReport:
        """How it fares."""
        cursors = [cursor for _, cursor in sorted(self.cursors.items())]
        return DurableReport(
            stream=self.request.stream,
            durable=self.request.durable,
            in_force=self.in_force,
            problem=self.problem,
            ended=self.ended,
            positions=self.positions(),
            acknowledged=tuple((cursor.pubend, cursor.epoch, cursor.stored) for cursor in cursors),
            received=self._received,
            duplicates=self._duplicates,
            holes=self._holes,
            gaps=self._gaps,
            waiting=len(self._untaken),
            credit=max(0, self._allowed - self._came),
        )

    def _send(self, packet: Packet) -> list[Effect]:
        return [] if self._home is None else [Send((self._home,), packet, Lane.CONTROL)]

    def _stop_timers(self) -> None:
        number = self.request.number
        self._timers.cancel(StreamTimer.CLIENT_SUBSCRIBE, number)
        self._timers.cancel(StreamTimer.CLIENT_ACKNOWLEDGE, number)
        self._acknowledge_at = None
        for pubend in self.cursors:
            self._timers.cancel(StreamTimer.CLIENT_RESUME, number, pubend)

"""Packets between two brokers that must come once: what a link or a full queue loses is sent again.

Each packet to a neighbour has a number. The neighbour tells what has come and what is missing (RetrievalReceipt), soon
after something has come, and at once where numbers are missing. What is missing is sent again at once, if that was
not done a moment ago; what has no receipt for `resend_after` seconds too, or for longer if receipts take longer (the
mean of their times and four mean deviations), at intervals that double while no receipt comes. A number that has come
before is left out. Numbers belong to the present lives of both brokers: one that restarts has nothing to repeat, and
must not get what was meant for its former life, because that may have used it.

A packet is made anew when it is sent again, because it carries times that pass.

Publications share their lane with everybody's messages, and a cache has hundreds of them for one interest. So few are
under way at a time: the window, which is halved when one is lost and grows by one with each receipt. The others wait
without a number, in a queue by score or in line (`forwarding`). An answer that nobody waits for any more when its turn
comes is dropped; with the pending flag on it stands back until nothing else waits, because nobody else can be sent that
flag. Interests and overloads do not wait.

State: for each neighbour what has no receipt, what waits, and which numbers have come. Bounds: `unreceipted_max`
packets for each; what finds no room is dropped and recorded. A neighbour that is gone for `forget_after` seconds is
forgotten.
Timers: RECEIPT and RESEND for each neighbour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from penstock.kernel.answer_time import AnswerTime
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import dropped_record
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing
from penstock.retrieval.config import RetrievalConfig
from penstock.retrieval.forwarding import ForwardingQueue, forwarding_queue
from penstock.retrieval.packets import MISSING_MAX, NumberedPacket, RetrievalReceipt
from penstock.retrieval.timers import RetrievalTimer

RECEIPT_DELAY = 0.05  # seconds in which receipts are gathered
RECEIPT_EVERY = 8  # packets that need one at once
RECEIPT_EVERY_BYTES = 32 << 10  # likewise
WINDOW_MIN, WINDOW_MAX = 2, 32  # publications under way
WINDOW_BYTES = 128 << 10  # and the bytes of all but the last of them
RESEND_AT_ONCE = 64  # packets, and in RECEIPT_DELAY for what receipts ask for
RESEND_AFTER_MAX = 8.0  # seconds

Header = tuple[int, int, int, int]  # receiver, sender, number, first
Make = Callable[[Header, float], NumberedPacket]  # with the times of now


class PublicationInLine(NamedTuple):
    """What link recovery must know of a publication."""

    size_bytes: int
    pending: bool
    wanted: Callable[[], bool]
    score: Callable[[], float]


Waiting = ForwardingQueue[tuple[Make, PublicationInLine]]


class NeighbourSession:
    """What two lives of two brokers keep of each other."""

    def __init__(self, life: int, resend_after: float, now: float, waiting: Waiting) -> None:
        self.life = life  # the neighbour's
        self.at_least = resend_after
        self.receipts = AnswerTime()
        self.sent_at: dict[int, float] = {}  # of what has no receipt and was sent once
        self.seen_at = now
        self.next_number = 1
        self.unreceipted: dict[int, Make] = {}  # in the order of numbers
        self.resent_at: dict[int, float] = {}  # those of them that were said to be missing
        self.told_at, self.resends_left = -inf, 0  # how many more may be sent again since then
        self.under_way: dict[int, int] = {}  # bytes of those that are publications
        self.under_way_bytes = 0
        self.waiting = waiting  # publications without a number
        self.standing_back: deque[tuple[Make, PublicationInLine]] = deque()  # nobody waits for these now
        self.window = WINDOW_MAX
        self.resend_after = resend_after  # now; it doubles
        self.upto = 0  # all numbers up to this have come
        self.beyond: dict[int, None] = {}  # and these
        self.untold = self.untold_bytes = 0  # since the last receipt
        self.paused = False  # the neighbour is not there

    @property
    def first(self) -> int:
        """The lowest number that may be sent again."""
        return next(iter(self.unreceipted), self.next_number)

    @property
    def has_room(self) -> bool:
        """Whether one more publication may be under way."""
        return len(self.under_way) < self.window and self.under_way_bytes < WINDOW_BYTES

    @property
    def kept(self) -> int:
        """Packets that may still be sent."""
        return len(self.unreceipted) + len(self.waiting) + len(self.standing_back)

    def numbered(self, make: Make, size_bytes: int, now: float) -> int:
        """The number under which it is sent."""
        number = self.next_number
        self.next_number += 1
        self.unreceipted[number] = make
        self.sent_at[number] = now
        if size_bytes:
            self.under_way[number] = size_bytes
            self.under_way_bytes += size_bytes
        return number

    def received(self, numbers: Sequence[int], now: float) -> None:
        """They need not be sent again. The last of them tells how long receipts take, unless it was sent twice."""
        last = self.sent_at.get(numbers[-1]) if numbers else None
        if last is not None and now >= last:
            self.receipts.measured(min(now - last, RESEND_AFTER_MAX))
        for number in numbers:
            del self.unreceipted[number]
            self.sent_at.pop(number, None)
            self.resent_at.pop(number, None)
            self.under_way_bytes -= self.under_way.pop(number, 0)
        self.fresh_timer()

    def fresh_timer(self) -> None:
        """A receipt has come, or the neighbour is back: intervals no longer double."""
        self.resend_after = min(max(self.at_least, self.receipts.within(0.0)), RESEND_AFTER_MAX)

    def lost(self, missing: Sequence[int], now: float) -> list[int]:
        """Which of these to send again: a receipt may tell of numbers whose next copy is on its way; few at a time."""
        if now - self.told_at >= RECEIPT_DELAY:
            self.told_at, self.resends_left = now, RESEND_AT_ONCE
        due = [n for n in missing if n in self.unreceipted and now - self.resent_at.get(n, -inf) >= RECEIPT_DELAY]
        due = due[: self.resends_left]
        self.resends_left -= len(due)
        self.resent_at.update(dict.fromkeys(due, now))
        return due

    def missing(self) -> tuple[int, ...]:
        """Numbers that have been overtaken."""
        found: list[int] = []
        last = max(self.beyond, default=0)
        number = self.upto + 1
        while number < last and len(found) < MISSING_MAX:
            if number not in self.beyond:
                found.append(number)
            number += 1
        return tuple(found)


class LinkRecovery:
    """The links of one broker to its neighbours."""

    def __init__(self, life: int, routing: Routing, timers: ServiceTimers, config: RetrievalConfig) -> None:
        self.resent = 0
        self.repeated = 0  # came twice
        self._life = life
        self._routing = routing
        self._timers = timers
        self._config = config
        self._by_score = config.forwarding == "score"
        self._sessions: dict[BrokerId, NeighbourSession] = {}

    @property
    def busy(self) -> bool:
        """Whether anything is kept of neighbours."""
        return bool(self._sessions)

    def unreceipted(self) -> int:
        """Packets that may have to be sent again."""
        return sum(session.kept for session in self._sessions.values())

    def room(self, broker: BrokerId) -> int:
        """How many answers may be added to what is kept for a neighbour: half of all, for others come unasked."""
        session = self._sessions.get(broker)
        kept = 0 if session is None else session.kept
        return max(0, self._config.unreceipted_max // 2 - kept) if broker in self._routing.link_to else 0

    def send(self, broker: BrokerId, make: Make, now: float, in_line: PublicationInLine | None = None) -> list[Effect]:
        """To a neighbour, soon and until it has come."""
        effects, session = self._session(broker, now)
        if session is None or session.kept >= self._config.unreceipted_max:
            cause = "no neighbour" if session is None else "neighbour behind"
            return [*effects, _dropped(cause, make((0, self._life, 0, 0), now))]
        if in_line is None:
            return effects + self._first_time(broker, session, make, 0, now)
        waits = not session.has_room  # else it leaves at once
        session.waiting.push((make, in_line), in_line.score() if waits and self._by_score else 0.0)
        return effects + self._next(broker, session, now)

    def take(self, packet: NumberedPacket, broker: BrokerId, now: float) -> tuple[bool, list[Effect]]:
        """Whether a packet of a neighbour comes for the first time; and what follows."""
        effects, session = self._session(broker, now)
        if session is None or packet.sender != session.life or packet.receiver != self._life:
            return False, effects
        if len(session.beyond) >= self._config.unreceipted_max and packet.number > session.upto + 1:
            return False, effects  # it will be sent again
        if not session.untold:
            self._timers.set(RetrievalTimer.RECEIPT, now + RECEIPT_DELAY, broker)
        session.untold += 1
        message = packet.carried()
        session.untold_bytes += 0 if message is None else message.size_bytes
        if packet.first > session.upto + 1:  # nobody can send again what is missing below
            session.upto = packet.first - 1
            session.beyond = {number: None for number in session.beyond if number > session.upto}
        if packet.number <= session.upto or packet.number in session.beyond:
            self.repeated += 1
            self._settle(session)
            return False, effects
        overtakes = packet.number > session.upto + 1 and packet.number > max(session.beyond, default=session.upto) + 1
        session.beyond[packet.number] = None
        self._settle(session)
        much = session.untold >= RECEIPT_EVERY or session.untold_bytes >= RECEIPT_EVERY_BYTES
        return True, effects + (self._receipt(broker, session) if overtakes or much else [])

    def receipt(self, packet: RetrievalReceipt, broker: BrokerId, now: float) -> list[Effect]:
        """A neighbour tells what has come."""
        effects, session = self._session(broker, now)
        if session is None or packet.sender != session.life or packet.receiver != self._life:
            return effects
        missing = dict.fromkeys(packet.missing)
        last = packet.missing[-1] if packet.missing else packet.upto
        came = [number for number in session.unreceipted if number <= last and number not in missing]
        session.received(came, now)
        lost = session.lost(packet.missing, now)
        session.window = max(session.window // 2, WINDOW_MIN) if lost else min(session.window + 1, WINDOW_MAX)
        for number in lost:
            effects += self._again(broker, session, number, now, repeated=True)
        effects += self._next(broker, session, now)
        self._watch(broker, session, now)
        return effects

    def expired(self, timer: int, broker: BrokerId, now: float) -> list[Effect]:
        """It is time to tell what has come, or to send again what has no receipt."""
        effects, session = self._session(broker, now)
        if session is None:
            kept = self._sessions.get(broker)
            if kept is not None:
                kept.untold, kept.untold_bytes, kept.paused = 0, 0, True
                kept.sent_at.clear()  # receipts of these would tell how long the link was down
            return effects
        if timer == RetrievalTimer.RECEIPT:
            return effects + self._receipt(broker, session)
        session.resend_after = min(2 * session.resend_after, RESEND_AFTER_MAX)
        session.window = max(session.window // 2, WINDOW_MIN)
        for number in list(session.unreceipted)[:RESEND_AT_ONCE]:
            effects += self._again(broker, session, number, now, repeated=True)
        self._watch(broker, session, now)
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Forget who is gone, and go on with who is back."""
        effects: list[Effect] = []
        for broker, session in list(self._sessions.items()):
            if broker in self._routing.link_to:
                session.seen_at = now
                effects += self._resume(broker, now) if session.paused else []
            elif now - session.seen_at > self._config.forget_after:
                effects += self._forget(broker, session, "neighbour gone", now)
        return effects

    def _resume(self, broker: BrokerId, now: float) -> list[Effect]:
        """A neighbour is there again: what it has not received is sent at once, if it is the same life of it."""
        effects, session = self._session(broker, now)
        if session is not None and session.unreceipted:
            session.paused = False
            session.fresh_timer()
            self._timers.set(RetrievalTimer.RESEND, now, broker)
        return effects

    def _session(self, broker: BrokerId, now: float) -> tuple[list[Effect], NeighbourSession | None]:
        """With the present life of a neighbour; what was kept for an earlier one goes."""
        link = self._routing.link_to.get(broker)
        neighbour = None if link is None else self._routing.neighbour(link)
        if neighbour is None:
            return [], None
        session = self._sessions.get(broker)
        effects: list[Effect] = []
        if session is not None and session.life != neighbour.incarnation:
            effects = self._forget(broker, session, "neighbour restarted", now)
            session = None
        if session is None:
            config = self._config
            waiting: Waiting = forwarding_queue(config.forwarding, config.unreceipted_max)
            session = NeighbourSession(neighbour.incarnation, config.resend_after, now, waiting)
            self._sessions[broker] = session
        return effects, session

    def _forget(self, broker: BrokerId, session: NeighbourSession, cause: str, now: float) -> list[Effect]:
        del self._sessions[broker]
        self._timers.cancel(RetrievalTimer.RESEND, broker)
        self._timers.cancel(RetrievalTimer.RECEIPT, broker)
        header = (session.life, self._life, 0, 0)
        waiting = [session.waiting.pop() for _ in range(len(session.waiting))]
        lost = [*session.unreceipted.values(), *(make for make, _ in (*waiting, *session.standing_back))]
        return [_dropped(cause, make(header, now)) for make in lost]

    def _next(self, broker: BrokerId, session: NeighbourSession, now: float) -> list[Effect]:
        """What waits, as far as there is room under way."""
        effects: list[Effect] = []
        while session.has_room and (session.waiting or session.standing_back):
            if not session.waiting:
                make, in_line = session.standing_back.popleft()
            else:
                make, in_line = session.waiting.pop()
                if not in_line.wanted():
                    if in_line.pending:
                        session.standing_back.append((make, in_line))
                    else:
                        effects.append(_dropped("nobody waits for it", make((session.life, self._life, 0, 0), now)))
                    continue
            effects += self._first_time(broker, session, make, in_line.size_bytes, now)
        return effects

    def _first_time(
        self, broker: BrokerId, session: NeighbourSession, make: Make, size_bytes: int, now: float
    ) -> list[Effect]:
        if not session.unreceipted:
            self._timers.set(RetrievalTimer.RESEND, now + session.resend_after, broker)
        return self._again(broker, session, session.numbered(make, size_bytes, now), now)

    def _again(
        self, broker: BrokerId, session: NeighbourSession, number: int, now: float, *, repeated: bool = False
    ) -> list[Effect]:
        if repeated:
            self.resent += 1
            session.sent_at.pop(number, None)
        packet = session.unreceipted[number]((session.life, self._life, number, session.first), now)
        return [Send((self._routing.link_to[broker],), packet, packet.travels_in())]

    def _watch(self, broker: BrokerId, session: NeighbourSession, now: float) -> None:
        if session.unreceipted:
            self._timers.set(RetrievalTimer.RESEND, now + session.resend_after, broker)
        else:
            self._timers.cancel(RetrievalTimer.RESEND, broker)

    def _receipt(self, broker: BrokerId, session: NeighbourSession) -> list[Effect]:
        session.untold = session.untold_bytes = 0
        self._timers.cancel(RetrievalTimer.RECEIPT, broker)
        receipt = RetrievalReceipt(session.life, self._life, session.upto, session.missing())
        return [Send((self._routing.link_to[broker],), receipt, Lane.CONTROL)]

    def _settle(self, session: NeighbourSession) -> None:
        while session.upto + 1 in session.beyond:
            session.upto += 1
            del session.beyond[session.upto]


def _dropped(cause: str, packet: NumberedPacket) -> Effect:
    kind = type(packet).__name__
    return dropped_record("route", cause, "", packet.travels_in(), kind, packet.carried(), 1)

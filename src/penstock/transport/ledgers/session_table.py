"""All sessions of a client, in the order of their last message, and where those were that ended.

A publisher's name comes from its connection, but which life it is in only the publisher says. So one name has LIVES_MAX
sessions at most: whoever invents lives pushes out its own.

Where a session was when it ended is remembered, so that a publisher that goes on is followed from there and nothing
comes twice. The oldest of these is forgotten first, and then its publisher counts as new.

State: sessions; lives by name; for each that ended the first number that it had not seen. Bounds: `sessions_max`
sessions, and as many that ended. No messages, no timers.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.kernel.trace import LimitReached
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.lateness import Lateness
from penstock.transport.ledgers.number_window import SPAN
from penstock.transport.ledgers.round_trip import ReplyTimeout
from penstock.transport.ledgers.session import LedgerSession

LIVES_MAX = 16  # of one publisher, at a time
PLACED_EVERY = 1.0  # seconds between two moves of a session to the end of all


class SessionTable(OrderedDict[tuple[str, int], LedgerSession]):
    """Sessions by publisher and life."""

    def __init__(self, config: TransportConfig) -> None:
        super().__init__()
        self._config = config
        self._ended: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._lives: dict[str, list[int]] = {}  # in the order of their beginnings

    def in_the_way(self, publisher: str) -> tuple[LedgerSession, LimitReached] | None:
        """The session that must end before one more of this publisher begins, and which bound says so."""
        lives = self._lives.get(publisher, [])
        if len(lives) >= LIVES_MAX:
            return self[publisher, lives[0]], LimitReached("lives of a publisher", LIVES_MAX)
        if len(self) >= self._config.sessions_max:
            return next(iter(self.values())), LimitReached("sessions", self._config.sessions_max)
        return None

    def begin(
        self, publisher: str, incarnation: int, first: int, trips: ReplyTimeout, lateness: Lateness
    ) -> LedgerSession:
        """A session from this number on, or from where its last one ended."""
        first = max(1, first)
        new = (publisher, incarnation) not in self._ended
        known = self._ended.pop((publisher, incarnation), 1)  # so far all is delivered or reported
        if known > first + SPAN:  # so far ahead, it was no number of this publisher's
            known = 1
        base = max(first, known)
        session = LedgerSession(publisher, incarnation, self._config, base, trips, lateness, first=new)
        session.before = max(0, first - known)
        self[publisher, incarnation] = session
        lives = self._lives.setdefault(publisher, [])
        for life in lives:
            self[publisher, min(life, incarnation)].outlived = True
        lives.append(incarnation)
        return session

    def received_from(self, session: LedgerSession, now: float) -> None:
        """Its publisher lives."""
        session.received_at = now
        if not 0.0 <= now - session.placed_at < PLACED_EVERY:
            session.placed_at = now
            self.move_to_end((session.publisher, session.incarnation))

    def end(self, session: LedgerSession) -> None:
        """Forget it, but for where it was."""
        self._ended[session.publisher, session.incarnation] = session.window.top + 1
        if len(self._ended) > self._config.sessions_max:
            self._ended.popitem(last=False)
        del self[session.publisher, session.incarnation]
        lives = self._lives[session.publisher]
        lives.remove(session.incarnation)
        if not lives:
            del self._lives[session.publisher]

"""What becomes of a message whose header cannot be, and when its publisher's order begins anew.

Its message is delivered at once, without order, and its number stays as it was. Such headers count: the ones that were
refused; those below the window, which nobody knows; and those that came in ascending order after a higher number had.
After a row of them that agree, what came ahead of them was wrong, or their publisher's clock was set (`header_sanity`).
Those that left before the messages ahead of them may only be late, so they must be eight times as many as these. Then
order and numbers go on from the last of the row. A number that leapt costs no more than that row.

Numbers below the window that may have come are not delivered: as far as we know they are copies.

State: how many were refused, and forgotten numbers of which nothing was known. What is remembered of messages stands
in the session (`unbelieved`). No messages, no timers.
"""

from __future__ import annotations

from penstock.content.message import Message
from penstock.kernel.trace import InputRefused
from penstock.transport.bearer import TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.record import DataHeader
from penstock.transport.ledgers.recovery import Recovery
from penstock.transport.ledgers.session import LedgerSession
from penstock.transport.ordering.header_sanity import BACKWARDS_MAX
from penstock.transport.subscriptions import TransportSubscriptions


class Refusal:
    """Headers of one client's publishers that were not believed."""

    def __init__(self, config: TransportConfig, subscriptions: TransportSubscriptions, recovery: Recovery) -> None:
        self._config = config
        self._subscriptions = subscriptions
        self._recovery = recovery
        self.count = self.unrevealed = 0

    def message(
        self,
        session: LedgerSession,
        head: DataHeader,
        wanted: tuple[int, ...],
        message: Message,
        problem: str,
        now: float,
    ) -> list[TransportEffect]:
        """A header that cannot be: its message is delivered without order, unless it has come."""
        number, window, unbelieved = head.sequence, session.window, session.unbelieved
        came = window.came(number)
        if (came and not session.another(number, head.departure)) or unbelieved.knows(number, message):
            session.duplicates += 1
            return []
        effects: list[TransportEffect] = []
        old = came is None and not problem and _before(session, head, BACKWARDS_MAX)
        if old:
            session.duplicates += 1
        else:
            self.count += 1
            effects.append(InputRefused(session.publisher, problem or f"message {number} after {window.top}"))
            effects += self._subscriptions.hand_over(message, wanted, True)
            unbelieved.delivered(number, message)
            if number < window.base and window.before is not None:
                window.before.receive(number)
        unbelieved.refused(number)
        if self.believed(session, head, now):
            effects += self.begin_anew(session, head, now)
        return effects

    def believed(self, session: LedgerSession, head: DataHeader, now: float) -> bool:
        """Whether so many agree with this header that what we believed was wrong.

        One that was itself accepted, below several others, is no witness against them: a shorter way overtakes.
        """
        above = session.window.received_above(head.sequence) if _before(session, head) else 0
        if above > 1 and session.window.has(head.sequence):
            return False
        return session.unbelieved.refusals.believe(head, now, above=above)

    def late(self, session: LedgerSession, head: DataHeader, now: float) -> list[TransportEffect]:
        """This one was accepted, but a higher number had come before; was that one wrong?"""
        if session.unbelieved.refusals.ahead_of(head):
            session.unbelieved.clear()
        session.unbelieved.refused(head.sequence)
        return self.begin_anew(session, head, now) if self.believed(session, head, now) else []

    def accepted(self, session: LedgerSession, head: DataHeader, now: float) -> None:
        """A header that can be. If those that were refused before it agree with it, they were true."""
        if session.unbelieved.refusals.agrees(head, now):
            for number in session.unbelieved.row:
                if session.window.base <= number <= session.window.top:
                    session.window.receive(number)
                self._recovery.settled(session, number)
        session.unbelieved.clear()

    def begin_anew(self, session: LedgerSession, head: DataHeader, now: float) -> list[TransportEffect]:
        """Numbers and order go on from here; what waits goes out."""
        row = list(session.unbelieved.row)
        effects: list[TransportEffect] = self.let_go(session, now)
        forgotten = session.begin_anew(head.sequence, head.departure, self._config.jump_max, now)
        if forgotten is None:
            for number in [*row, *(one for one in session.missed if one > session.window.top)]:
                self._recovery.settled(session, number)
        else:
            effects += self._recovery.end(session)
            self.unrevealed += forgotten
        return effects

    def let_go(self, session: LedgerSession, now: float) -> list[TransportEffect]:
        """All that waits, in order."""
        effects: list[TransportEffect] = []
        for held in session.order.close():
            effects += self._subscriptions.let_go(held.item, False, 0.0, max(0.0, now - held.arrived_at))
        return effects


def _before(session: LedgerSession, head: DataHeader, by: float = 0.0) -> bool:
    """Whether it left before the message that it is held against, so that it may be no more than late."""
    return session.reference is not None and head.departure < session.reference.departure - by

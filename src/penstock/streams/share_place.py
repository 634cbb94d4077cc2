"""What a member's client holds of one pubend, and what it has said of it.

A handout (a tick and an attempt) is

    held       it has come; from `taken` on the application has it
    settled    the application is done with it, or rejects it; the pubend has not confirmed that yet
    stale      the pubend says that this attempt is over; the application may be done with it all the same
    past       confirmed; remembered for a while, so that a copy of the packet that arrives late is not taken for news

State: one entry for each. Bounds: twice `window` for what is held and settled, PAST_MAX stale ones and past ones. Who
hands out more than that is not heard; it sends it again.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from penstock.kernel.machine import Accepted, Done, Effect, Refused
from penstock.kernel.storage import Ticket
from penstock.streams.packets import Handout, ShareVerdict, Tick, VerdictItem

PAST_MAX = 1_024
T = TypeVar("T")

WAITERS_MAX = 16  # for one handout


class Settled(Struct):
    """What the application has said, until it is confirmed."""

    verdict: ShareVerdict
    waiters: list[Ticket]
    said_at: float


class SharePlace:
    """One pubend of one member."""

    def __init__(self, window: int) -> None:
        self._window = window
        self.held: dict[Handout, bool] = {}  # whether the application has it
        self.settled: dict[Handout, Settled] = {}
        self.gap: Tick = 0  # the end of the last one that was told
        self._stale: dict[Handout, None] = {}
        self._past: dict[Handout, ShareVerdict] = {}
        self._unsaid: dict[Handout, ShareVerdict] = {}

    def comes(self, handout: Handout) -> bool:
        """A handout has come; True: it is new, and for the application. What is known is said again."""
        if handout in self.settled:
            self._unsaid[handout] = self.settled[handout].verdict
            return False
        if handout in self._past:
            self._unsaid[handout] = self._past[handout]
            return False
        if handout in self._stale:
            return False
        known = handout in self.held
        if not known and len(self.held) + len(self.settled) >= 2 * self._window:
            return False
        self._unsaid[handout] = ShareVerdict.TAKEN if self.held.setdefault(handout, False) else ShareVerdict.RECEIVED
        return not known

    def gap_comes(self, last: Tick) -> bool:
        """A gap was told; True: it is new."""
        new = last > self.gap
        self.gap = max(self.gap, last)
        self._unsaid[last, 0] = ShareVerdict.RECEIVED
        return new

    def taken(self, handout: Handout) -> None:
        """The application has it."""
        if handout in self.held:
            self.held[handout] = True
            self._unsaid[handout] = ShareVerdict.TAKEN

    def settle(self, handout: Handout, verdict: ShareVerdict, ticket: Ticket) -> list[Effect]:
        """The application says what became of it; the ticket is answered when that is on disk."""
        if handout in self._past:
            return [Done(ticket, Accepted())] if ticket else []
        settled = self.settled.get(handout)
        if settled is None:
            if handout not in self.held and handout not in self._stale:
                problem = f"tick {handout[0]}, attempt {handout[1]}, was not handed to this subscription"
                return [Done(ticket, Refused(problem))] if ticket else []
            self.held.pop(handout, None)
            self._stale.pop(handout, None)
            settled = self.settled[handout] = Settled(verdict, [], 0.0)
            self._unsaid[handout] = verdict
        if not ticket:
            return []
        if len(settled.waiters) >= WAITERS_MAX:
            return [Done(ticket, Refused(f"{WAITERS_MAX} wait for the same message already"))]
        settled.waiters.append(ticket)
        return []

    def stored(self, handout: Handout) -> list[Effect]:
        """The pubend has it on disk, or has ended the attempt."""
        settled = self.settled.pop(handout, None)
        if settled is None:
            if self.held.pop(handout, None) is not None:
                _remember(self._stale, handout, None)
            return []
        self._unsaid.pop(handout, None)
        _remember(self._past, handout, settled.verdict)
        return [Done(ticket, Accepted()) for ticket in settled.waiters]

    def give_back(self) -> None:
        """The member leaves: what the application has not seen was not tried."""
        for handout, taken in list(self.held.items()):
            if not taken:
                self.settle(handout, ShareVerdict.RETURNED, 0)

    def say_all(self) -> None:
        """Somebody may have forgotten what was said."""
        for handout, taken in self.held.items():
            self._unsaid[handout] = ShareVerdict.TAKEN if taken else ShareVerdict.RECEIVED
        for handout, settled in self.settled.items():
            self._unsaid[handout] = settled.verdict

    def say(self, now: float, again_after: float) -> tuple[VerdictItem, ...]:
        """What is to be said now: what is new, and what was not confirmed for so long."""
        unsaid, self._unsaid = self._unsaid, {}
        for handout, settled in self.settled.items():
            if handout in unsaid or now >= settled.said_at + again_after:
                unsaid[handout] = settled.verdict
                settled.said_at = now
        return tuple((tick, attempt, int(verdict)) for (tick, attempt), verdict in unsaid.items())

    def abandon(self, problem: str) -> list[Effect]:
        """Nothing will be confirmed any more."""
        waiters = [ticket for settled in self.settled.values() for ticket in settled.waiters]
        self.settled.clear()
        return [Done(ticket, Refused(problem)) for ticket in waiters]


def _remember(table: dict[Handout, T], handout: Handout, value: T) -> None:
    """One more, and the oldest no more if there are too many."""
    table[handout] = value
    if len(table) > PAST_MAX:
        del table[next(iter(table))]

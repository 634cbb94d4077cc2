"""Where a client's durable subscription stands at one pubend: what came, what was taken, what is done with.

    stored <= sent <= acknowledged <= position         ticks up to which ...

    position        everything has come that matches; what comes next must follow it
    acknowledged    the application is done with it
    sent            the broker has been told so
    stored          the pubend has it on disk

An acknowledgement of a tick covers all before it, so none is ever taken back. Waiters are those who want to know when a
tick is stored; bound: WAITERS_MAX.
"""

from __future__ import annotations

from penstock.kernel.machine import Accepted, Done, Effect, Refused
from penstock.kernel.storage import Ticket
from penstock.streams.packets import Position, Tick

WAITERS_MAX = 1_000


class PubendPlace:
    """One pubend of one durable subscription."""

    __slots__ = (
        *(
            "acknowledged",
            "came",
            "epoch",
            "gap",
            "hole",
            "position",
            "pubend",
            "resume_at",
            "resume_delay",
            "sent",
            "sent_at",
        ),
        *("stored", "taken", "untaken", "waiters"),
    )

    def __init__(self, pubend: str, epoch: int, position: Tick) -> None:
        self.pubend = pubend
        self.epoch = epoch
        self.position = self.taken = position
        self.acknowledged = self.sent = self.stored = 0  # where it begins is not what the application is done with
        self.came: Tick = 0  # of the last message that came
        self.gap: Tick = 0  # the end of the last one that was told
        self.untaken = 0  # messages that came and that the application has not taken
        self.waiters: list[tuple[Tick, Ticket]] = []
        self.sent_at = 0.0
        self.hole = False  # something came that does not follow the position
        self.resume_at = 0.0  # not before then
        self.resume_delay = 0.0

    @property
    def kept(self) -> Position:
        """What an application may keep that is done with all it has taken."""
        return (self.pubend, self.epoch, self.taken if self.untaken else self.position)

    @property
    def presented(self) -> Position:
        """What has come, for a broker that is to go on from there."""
        return (self.pubend, self.epoch, self.position)

    def moved(self, position: Tick) -> None:
        """Everything up to here has come."""
        self.position = position
        self.hole, self.resume_delay = False, 0.0

    def message_came(self, tick: Tick) -> None:
        """A message waits for the application; to be called before the position moves."""
        self.came = tick
        if not self.untaken:
            self.taken = self.position
        self.untaken += 1

    def gap_came(self, upto: Tick) -> None:
        """The application was told that nobody keeps what is up to here."""
        self.gap = upto
        self._acknowledge_gap()

    def _acknowledge_gap(self) -> None:
        """With the messages before it: from then on the durable name is behind it, and nobody is told of it again."""
        if self.acknowledged >= self.came:
            self.acknowledged = max(self.acknowledged, self.gap)

    def message_taken(self, tick: Tick) -> None:
        """The application has taken a message."""
        self.untaken -= 1
        if tick > self.taken:
            self.taken = tick

    def refusal(self, tick: Tick, ticket: Ticket) -> str:
        """Why this tick cannot be acknowledged; empty if it can."""
        if tick > self.position:
            return f"{self.pubend}: tick {tick} has not come yet; the last one that has is {self.position}"
        if ticket and len(self.waiters) >= WAITERS_MAX:
            return f"{WAITERS_MAX} acknowledgements are not stored yet; wait for them, or acknowledge the last alone"
        return ""

    def acknowledge(self, tick: Tick, ticket: Ticket) -> list[Effect]:
        """The application is done with all up to this tick; the ticket waits until that is stored."""
        self.acknowledged = max(self.acknowledged, tick)
        self._acknowledge_gap()
        if not ticket:
            return []
        if tick <= self.stored:
            return [Done(ticket, Accepted())]
        self.waiters.append((tick, ticket))
        return []

    def acknowledge_silence(self) -> None:
        """If all messages that came are acknowledged, so is the silence after them: nobody need keep it for us."""
        if self.acknowledged >= self.came:
            self.acknowledged = max(self.acknowledged, self.position)

    def acknowledgement_stored(self, tick: Tick) -> list[Effect]:
        """The pubend has it on disk."""
        self.stored = max(self.stored, min(tick, self.position))
        self.sent = max(self.sent, self.stored)
        ready = [ticket for wanted, ticket in self.waiters if wanted <= self.stored]
        self.waiters = [(wanted, ticket) for wanted, ticket in self.waiters if wanted > self.stored]
        return [Done(ticket, Accepted()) for ticket in ready]

    def abandon(self, problem: str) -> list[Effect]:
        """No acknowledgement will be stored any more."""
        waiters, self.waiters = self.waiters, []
        return [Done(ticket, Refused(problem)) for _, ticket in waiters]

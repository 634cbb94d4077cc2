"""What a client reads of the log without subscribing: slices of a pubend, each asked for until it comes.

State: the questions that are not answered. Each is asked again when no answer comes within RETRY_FIRST seconds, doubled
each time, when the broker says `again`, and when the connection is back; an answer to an earlier attempt is as good.
After `give_up_after` seconds it has failed: to read changes nothing, so nothing is in doubt.

Bound: READS_MAX at once. Timer: CLIENT_READ (request).
"""

from __future__ import annotations

from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidPredicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Done, Effect, Refused, Reported, Send
from penstock.kernel.packet import Lane
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.streams.config import StreamsClientConfig
from penstock.streams.message import StreamSlice
from penstock.streams.packets import LogSlice, ReadLog, Tick
from penstock.streams.timers import StreamTimer

READS_MAX = 256
RETRY_FIRST = 2.0  # seconds: a slice may be a while on its way


class _Question:
    __slots__ = ("deadline", "delay", "packet", "problem", "ticket")

    def __init__(self, packet: ReadLog, ticket: Ticket, deadline: float) -> None:
        self.packet = packet
        self.ticket = ticket
        self.deadline = deadline
        self.delay = RETRY_FIRST
        self.problem = "no answer"  # the last that a broker named


class StreamReads:
    """The part of a client that waits for slices."""

    def __init__(self, timers: ServiceTimers, config: StreamsClientConfig) -> None:
        self._timers = timers
        self._config = config
        self._home: Link | None = None
        self._next = 0
        self._open: dict[int, _Question] = {}

    def connected(self, home: Link) -> list[Effect]:
        """What is open is asked for here."""
        self._home = home
        return [self._asked(home, question) for question in self._open.values()]

    def disconnected(self) -> None:
        self._home = None

    def read(
        self, pubend: str, epoch: int, first: Tick, last: Tick, where: str, *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """Ask for a slice; the ticket is answered with it, under `slice`."""
        try:
            parse_predicate(where)
        except InvalidPredicate as error:
            return [Done(ticket, Refused(str(error)))]
        if len(self._open) >= READS_MAX:
            return [Done(ticket, Refused(f"{READS_MAX} slices are asked for already; wait for them"))]
        self._next += 1
        packet = ReadLog(self._next, pubend, epoch, first, last, where)
        question = self._open[self._next] = _Question(packet, ticket, now + self._config.give_up_after)
        self._timers.set(StreamTimer.CLIENT_READ, now + question.delay, self._next)
        return [] if self._home is None else [self._asked(self._home, question)]

    def answered(self, packet: LogSlice) -> list[Effect]:
        """A slice has come, or the reason why there is none."""
        question = self._open.get(packet.request)
        if question is None:
            return []
        if packet.problem and packet.again:  # the timer asks again
            question.problem = packet.problem
            return []
        if packet.problem:
            return self._done(packet.request, Refused(packet.problem))
        asked = question.packet
        found = StreamSlice(asked.pubend, asked.epoch, packet.upto, packet.gone, packet.ticks, packet.entries)
        return self._done(packet.request, Reported({"slice": found}))

    def expired(self, request: int, *, now: float) -> list[Effect]:
        """No slice has come in time."""
        question = self._open[request]
        if now >= question.deadline:
            asked = f"ticks {question.packet.first} to {question.packet.last} of {question.packet.pubend}"
            return self._done(request, Refused(f"{asked} could not be read: {question.problem}"))
        question.delay *= 2.0
        self._timers.set(StreamTimer.CLIENT_READ, min(now + question.delay, question.deadline), request)
        return [] if self._home is None else [self._asked(self._home, question)]

    def _asked(self, home: Link, question: _Question) -> Effect:
        return Send((home,), question.packet, Lane.CONTROL)

    def _done(self, request: int, outcome: Refused | Reported) -> list[Effect]:
        ticket = self._open.pop(request).ticket
        self._timers.cancel(StreamTimer.CLIENT_READ, request)
        return [Done(ticket, outcome)]

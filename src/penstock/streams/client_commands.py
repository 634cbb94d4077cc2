"""What a client asks of streams as such: add, ls, info, trim, rm, failed, verify, survey, begin.

State: the commands that are not answered. A command is sent once and never repeated. If the connection is lost or the
time is up before the answer, one that only looks has failed, and of one that changes something the outcome is unknown.

Bound: COMMANDS_MAX at once. Timer: CLIENT_COMMAND (request).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import wrong_choice
from penstock.kernel.link import Link
from penstock.kernel.machine import Done, Effect, Outcome, Refused, Reported, Send, Unknown
from penstock.kernel.packet import Lane
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.streams.packets import (
    COMMAND_BYTES_MAX,
    STREAM_NAME_BYTES_MAX,
    StreamCommand,
    StreamReport,
    name_problem,
)
from penstock.streams.timers import StreamTimer

COMMANDS_MAX = 100
VERIFY_WITHIN = 660.0  # seconds: brokers read whole logs
LOOKING = ("begin", "info", "ls", "survey", "verify")  # to begin a batch twice is to begin it once
VERBS = ("add", "begin", "failed", "info", "ls", "rm", "survey", "trim", "verify")


class StreamCommands:
    """The part of a client that waits for reports."""

    def __init__(self, timers: ServiceTimers, within: float) -> None:
        self._timers = timers
        self._within = within
        self._home: Link | None = None
        self._next = 0
        self._open: dict[int, tuple[Ticket, str]] = {}  # request -> whose, and the verb

    def connected(self, home: Link) -> None:
        """Commands can be sent."""
        self._home = home

    def disconnected(self) -> list[Effect]:
        """Nobody will answer what is open."""
        self._home = None
        return [effect for request in list(self._open) for effect in self._failed(request, "the connection was lost")]

    def command(
        self, verb: str, stream: str, arguments: Mapping[str, Any], *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """Ask for this; the ticket gets the report."""
        try:
            written = msgspec.json.encode(arguments)
        except (TypeError, ValueError) as error:  # what has no JSON, a lone surrogate
            return [Done(ticket, Refused(f"the arguments of '{verb}' have no form as JSON: {error}"))]
        problem = self._problem(verb, stream, len(written))
        if problem or self._home is None:
            return [Done(ticket, Refused(problem))]
        self._next += 1
        self._open[self._next] = (ticket, verb)
        within = VERIFY_WITHIN if verb == "verify" else self._within
        self._timers.set(StreamTimer.CLIENT_COMMAND, now + within, self._next)
        return [Send((self._home,), StreamCommand(self._next, verb, stream, written), Lane.CONTROL)]

    def _problem(self, verb: str, stream: str, length: int) -> str:
        if verb not in VERBS:
            return f"the command {wrong_choice(verb[:40], VERBS)}"
        if (stream or verb != "ls") and (wrong := name_problem(stream, "a stream", STREAM_NAME_BYTES_MAX)):
            return wrong
        if length > COMMAND_BYTES_MAX:
            return f"arguments of {length} bytes; the limit is {COMMAND_BYTES_MAX}"
        if len(self._open) >= COMMANDS_MAX:
            return f"{COMMANDS_MAX} commands are not answered yet; wait for them"
        return "" if self._home is not None else "not connected to a broker; try again once the link is up"

    def answered(self, packet: StreamReport) -> list[Effect]:
        """A report has come."""
        if packet.request not in self._open:
            return []
        if packet.problem:
            return self._done(packet.request, Refused(packet.problem))
        try:
            return self._done(packet.request, Reported(msgspec.json.decode(packet.report, type=dict[str, Any])))
        except msgspec.DecodeError:
            return self._failed(packet.request, "the broker's report cannot be read")

    def expired(self, request: int) -> list[Effect]:
        """No report has come in time."""
        return self._failed(request, "no answer in time")

    def _failed(self, request: int, problem: str) -> list[Effect]:
        verb = self._open[request][1]
        if verb in LOOKING:
            return self._done(request, Refused(f"{verb}: {problem}; try again"))
        return self._done(request, Unknown(f"{verb}: {problem}; whether it was carried out is unknown: look with 'ls'"))

    def _done(self, request: int, outcome: Outcome) -> list[Effect]:
        ticket, _ = self._open.pop(request)
        self._timers.cancel(StreamTimer.CLIENT_COMMAND, request)
        return [Done(ticket, outcome)]

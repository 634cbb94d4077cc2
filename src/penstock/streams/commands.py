"""Commands about streams: a client asks its home broker, which asks the brokers of the pubends and gathers the answers.

`ls` is answered from what this broker knows. `add` goes to the brokers that shall host; all others go to every pubend
of the stream. Whoever does not answer within the time is named in the answer.

State: a gathering for each command that is under way. Bound: GATHERINGS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.timers import ServiceTimers
from penstock.overlay.packets import BrokerId
from penstock.streams.command_json import UnreadableJson, read_json
from penstock.streams.directory import Directory
from penstock.streams.home_broker import HomeBroker
from penstock.streams.packets import (
    PUBENDS_MAX,
    STREAM_NAME_BYTES_MAX,
    Command,
    CommandAnswer,
    StreamCommand,
    StreamReport,
    name_problem,
    pubend_name,
)
from penstock.streams.timers import StreamTimer

GATHERINGS_MAX = 64
WITHIN = 5.0  # seconds
VERIFY_WITHIN = 600.0
VERBS = ("add", "ls", "info", "trim", "rm", "failed", "verify", "survey", "begin")


class _Gathering:
    def __init__(self, link: Link, command: StreamCommand) -> None:
        self.link = link
        self.command = command
        self.waiting: dict[int, str] = {}  # request -> what it is about
        self.reports: list[Any] = []
        self.problems: list[str] = []


class Commands:
    """What a home broker does with its clients' commands."""

    def __init__(
        self,
        broker: HomeBroker,
        directory: Directory,
        timers: ServiceTimers,
        broker_named: Callable[[str], BrokerId | None],
    ) -> None:
        self._broker = broker
        self._directory = directory
        self._timers = timers
        self._broker_named = broker_named
        self._gatherings: dict[int, _Gathering] = {}
        self._requests: dict[int, int] = {}  # request -> gathering

    def receive(self, packet: StreamCommand, link: Link, *, now: float) -> list[Effect]:
        """A client wants something done."""
        try:
            arguments = read_json(packet.arguments, dict[str, Any])
        except UnreadableJson as error:
            return [_report(link, packet, None, f"arguments that cannot be read: {error}")]
        if packet.verb == "ls":
            listed = [msgspec.to_builtins(stream) for stream in self._directory.streams()]
            return [_report(link, packet, {"streams": listed})]
        problem = name_problem(packet.stream, "the name of a stream", STREAM_NAME_BYTES_MAX)
        if packet.verb not in VERBS:
            problem = f"there is no command '{packet.verb}'; there are {', '.join(VERBS)}"
        elif len(self._gatherings) >= GATHERINGS_MAX:
            problem = f"{GATHERINGS_MAX} commands are under way at this broker; try again later"
        if problem:
            return [_report(link, packet, None, problem)]
        gathering = _Gathering(link, packet)
        number = self._broker.next_request()
        self._gatherings[number] = gathering
        asked = self._add(packet.stream, arguments) if packet.verb == "add" else self._each(packet.stream, arguments)
        if isinstance(asked, str):
            del self._gatherings[number]
            return [_report(link, packet, None, asked)]
        self._timers.set(StreamTimer.COMMAND, now + (VERIFY_WITHIN if packet.verb == "verify" else WITHIN), number)
        effects: list[Effect] = []
        requests = [(self._broker.next_request(), *one) for one in asked]
        for request, about, _, _ in requests:
            gathering.waiting[request] = about
            self._requests[request] = number
        for request, _, broker, given in requests:
            command = Command(request, packet.verb, packet.stream, msgspec.json.encode(given))
            effects += self._broker.send_to(broker, command, now=now)
        return effects

    def answered(self, packet: CommandAnswer) -> list[Effect]:
        """One of those asked has answered."""
        number = self._requests.pop(packet.request, None)
        gathering = self._gatherings.get(number) if number is not None else None
        if number is None or gathering is None:
            return []
        about = gathering.waiting.pop(packet.request)
        if packet.problem:
            gathering.problems.append(f"{about}: {packet.problem}")
        elif packet.report:
            try:
                gathering.reports.append(read_json(packet.report))
            except UnreadableJson as error:
                gathering.problems.append(f"{about}: an answer that cannot be read: {error}")
        return [] if gathering.waiting else self._finish(number)

    def overdue(self, number: int) -> list[Effect]:
        """Somebody has not answered in time."""
        gathering = self._gatherings.get(number)
        if gathering is None:
            return []
        for request, about in gathering.waiting.items():
            self._requests.pop(request, None)
            gathering.problems.append(f"{about}: no answer; {self._broker.unreachable(about) or 'try again'}")
        return self._finish(number)

    def link_down(self, link: Link) -> None:
        """A client is gone."""
        for gathering in self._gatherings.values():
            if gathering.link == link:
                gathering.link = -1

    def _finish(self, number: int) -> list[Effect]:
        gathering = self._gatherings.pop(number)
        self._timers.cancel(StreamTimer.COMMAND, number)
        if gathering.link < 0:
            return []
        report = {"stream": gathering.command.stream, "pubends": gathering.reports}
        return [_report(gathering.link, gathering.command, report, "; ".join(gathering.problems))]

    def _add(self, stream: str, arguments: Mapping[str, Any]) -> list[tuple[str, BrokerId, dict[str, Any]]] | str:
        at = arguments.get("at", ())
        if not isinstance(at, list) or not 0 < len(at) <= PUBENDS_MAX or not all(isinstance(one, str) for one in at):
            return f"name the brokers of its pubends, 1 to {PUBENDS_MAX}: penstock stream add {stream} --at BROKER"
        if self._directory.count_of(stream):
            return f"there is a stream '{stream}' already"
        asked = []
        for number, name in enumerate(at):
            broker = self._broker_named(name)
            if broker is None:
                return f"there is no broker '{name}' in this network"
            asked.append((pubend_name(stream, number), broker, {"number": number, "of": len(at)}))
        return asked

    def _each(self, stream: str, arguments: Mapping[str, Any]) -> list[tuple[str, BrokerId, dict[str, Any]]] | str:
        count, problem, _ = self._broker.pubends(stream)
        if problem:
            return problem
        asked = []
        for number in range(count):
            pubend = pubend_name(stream, number)
            host = self._broker.host(pubend)
            if host is None:
                return self._broker.unreachable(pubend)
            asked.append((pubend, host, {**arguments, "pubend": pubend}))
        return asked


def _report(link: Link, packet: StreamCommand, report: Any, problem: str = "") -> Effect:
    data = b"" if report is None else msgspec.json.encode(report)
    return Send((link,), StreamReport(packet.request, data, problem), Lane.CONTROL)

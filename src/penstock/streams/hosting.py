"""The pubends of this broker: those that the network file declares here, and those that were made by command.

Which were made is on disk, under one name of the service's table. When the broker starts it reads that, opens them all,
and says what it hosts when the first is ready (`directory`).

State: the pubends. Bound: ADVERTISED_MAX; over it `add` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Get, Put, ServiceStorage, StorageFailed, StorageResult, Ticket, Value
from penstock.overlay.packets import BrokerId
from penstock.streams.command_json import UnreadableJson, read_json
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import (
    ADVERTISED_MAX,
    PUBENDS_MAX,
    STREAM_NAME_BYTES_MAX,
    Command,
    CommandAnswer,
    ForPubend,
    LogSlice,
    Payload,
    PublishAnswer,
    PublishRequest,
    ReadLog,
    Register,
    Registered,
    name_problem,
    pubend_name,
)
from penstock.streams.pubend import Forgotten, Pubend

MADE = "pubends"  # the name under which the list is kept

Made = list[tuple[str, int, int]]  # stream, number, of how many


class Hosting:
    """Opens, makes and removes pubends."""

    def __init__(
        self,
        storage: ServiceStorage,
        declared: Made,
        make: Callable[[str, int, int], Pubend],
        answer: Callable[..., list[Effect]],  # answer(broker, CommandAnswer, now=now)
    ) -> None:
        self.pubends: dict[str, Pubend] = {}
        self.started = False
        self.problem = ""  # why the list could not be read
        self._storage = storage
        self._declared = declared
        self._make = make
        self._answer = answer
        self._made: Made = []
        self._listing: Ticket | None = None
        self._early: list[tuple[Command, BrokerId]] = []  # pubends to be made when the list has been read
        self._writing: dict[Ticket, tuple[BrokerId, Command, Pubend]] = {}
        self._forgetting: dict[Ticket, tuple[str, Forgotten]] = {}
        self._creating: dict[str, tuple[BrokerId, Command]] = {}  # pubends that somebody waits for

    def start(self) -> list[Effect]:
        """Read which pubends were made here."""
        self.started = True
        asked = self._storage.ask(Get(MADE))
        self._listing = asked.ticket
        return [asked]

    def hosted(self) -> list[tuple[str, int, int, int]]:
        """What others may be told of."""
        return [(one.stream, one.number, one.of, one.epoch) for one in self.pubends.values() if one.epoch]

    def opening(self, stream: str) -> tuple[str, bool]:
        """Why others are not told yet of a stream that may be stored here, and whether that may pass; else empty."""
        if self.problem:
            return f"which streams are stored here cannot be read: {self.problem}", True
        if self._listing is not None:
            return "the broker has just started, and reads which streams it stores; try again in a second", True
        unheard = (one for one in self.pubends.values() if one.stream == stream and not one.ready and not one.removed)
        return next(((one.problem or f"{one.name} is being opened", not one.problem) for one in unheard), ("", False))

    def ready(self, pubend: Pubend, *, now: float) -> list[Effect]:
        """A pubend can be used; somebody may wait for that."""
        waiting = self._creating.pop(pubend.name, None)
        return [] if waiting is None else self._report(*waiting, {"pubend": pubend.name, "epoch": pubend.epoch}, now)

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect] | None:
        """An answer of the disk; None if it is for somebody else."""
        if ticket == self._listing:
            self._listing = None
            return self._listed(result, now)
        if ticket in self._writing:
            broker, command, pubend = self._writing.pop(ticket)
            return self._written(broker, command, pubend, result, now)
        if ticket in self._forgetting:
            return self._forgotten(*self._forgetting.pop(ticket), result, now)
        for pubend in list(self.pubends.values()):
            effects = pubend.completed(ticket, result, now=now)
            if effects is not None:
                return effects
        return None

    def _listed(self, result: StorageResult, now: float) -> list[Effect]:
        if not isinstance(result, Value):
            self.started = False  # tried again
            self.problem = result.problem if isinstance(result, StorageFailed) else "no answer of the disk"
            return self._add_early(now)
        self.problem = ""
        self._made = msgspec.json.decode(result.value, type=Made) if result.value else []
        effects: list[Effect] = []
        for stream, number, of in dict.fromkeys([*self._declared, *self._made]):
            pubend = self.pubends[pubend_name(stream, number)] = self._make(stream, number, of)
            effects += pubend.open(create=True, now=now)
        return effects + self._add_early(now)

    def _add_early(self, now: float) -> list[Effect]:
        """Carry out what was asked for before the list was read."""
        early, self._early = self._early, []
        return [effect for command, broker in early for effect in self.add(command, broker, now=now)]

    # Commands.

    def add(self, command: Command, broker: BrokerId, *, now: float) -> list[Effect]:
        """Make a pubend."""
        arguments = _arguments(command)
        number, of = arguments.get("number"), arguments.get("of")
        problem = name_problem(command.stream, "the name of a stream", STREAM_NAME_BYTES_MAX)
        if problem or type(number) is not int or type(of) is not int:
            problem = problem or "say which pubend of how many to add"
            return self._answer(broker, CommandAnswer(command.request, b"", problem), now=now)
        name = pubend_name(command.stream, number)
        problem = self.problem
        if name in self.pubends or any((stream, at) == (command.stream, number) for stream, at, _ in self._made):
            problem = f"there is a pubend '{name}' here already"
        elif not 0 <= number < of <= PUBENDS_MAX:
            problem = f"pubend {number} of {of}; a stream has at most {PUBENDS_MAX}"
        elif len(self.pubends) >= ADVERTISED_MAX:
            problem = f"{len(self.pubends)} pubends here; the limit ADVERTISED_MAX is {ADVERTISED_MAX}"
        elif self._listing is not None and len(self._early) < ADVERTISED_MAX:
            self._early.append((command, broker))
            return []
        elif not self.started or self._listing is not None:
            problem = "the broker has just started; try again in a second"
        if problem:
            return self._answer(broker, CommandAnswer(command.request, b"", problem), now=now)
        self._made.append((command.stream, number, of))
        return self._write(broker, command, self._make(command.stream, number, of))

    def forget(self, pubend: Pubend, then: Forgotten) -> list[Effect]:
        """A pubend has been removed with all it had; `then` is called when it is not on the list on disk either."""
        self.pubends.pop(pubend.name, None)
        self._made = [one for one in self._made if pubend_name(one[0], one[1]) != pubend.name]
        asked = self._storage.ask(Put(MADE, msgspec.json.encode(self._made)))
        self._forgetting[asked.ticket] = (pubend.name, then)
        return [asked]

    def declares(self, pubend: str) -> bool:
        """Whether the network file wants it here."""
        return any(pubend_name(stream, number) == pubend for stream, number, _ in self._declared)

    def pubend_of(self, command: Command) -> Pubend | None:
        """The pubend that a command is about."""
        return self.pubends.get(str(_arguments(command).get("pubend", "")))

    def removes_name(self, command: Command) -> bool:
        """Whether a command removes a durable name only."""
        return bool(_arguments(command).get("durable"))

    def all(self) -> Iterator[Pubend]:
        yield from self.pubends.values()

    def _write(self, broker: BrokerId, command: Command, pubend: Pubend) -> list[Effect]:
        asked = self._storage.ask(Put(MADE, msgspec.json.encode(self._made)))
        self._writing[asked.ticket] = (broker, command, pubend)
        return [asked]

    def _written(
        self, broker: BrokerId, command: Command, pubend: Pubend, result: StorageResult, now: float
    ) -> list[Effect]:
        if isinstance(result, StorageFailed):
            self._made = [one for one in self._made if pubend_name(one[0], one[1]) != pubend.name]
            return self._answer(broker, CommandAnswer(command.request, b"", result.problem), now=now)
        self.pubends[pubend.name] = pubend
        self._creating[pubend.name] = (broker, command)
        return pubend.open(create=True, now=now)

    def _forgotten(self, pubend: str, then: Forgotten, result: StorageResult, now: float) -> list[Effect]:
        if not isinstance(result, StorageFailed):
            return then("", now)
        lasts = f"{pubend} is deleted with all it had, but not the note that it is here: {result.problem}"
        return then(f"{lasts}; if the broker is started again it is there again, and empty: remove it then", now)

    def _report(self, broker: BrokerId, command: Command, report: dict[str, object], now: float) -> list[Effect]:
        return self._answer(broker, CommandAnswer(command.request, msgspec.json.encode(report)), now=now)


def _arguments(command: Command) -> dict[str, Any]:
    """Those of a command; none at all if they cannot be read."""
    try:
        arguments: dict[str, Any] = read_json(command.arguments, dict[str, Any])
    except UnreadableJson:
        return {}
    return arguments


def declared_at(broker: str, config: StreamsConfig) -> Made:
    """The pubends that the network file wants at this broker."""
    return [
        (stream, number, len(hosts))
        for stream, hosts in config.declared.items()
        for number, host in enumerate(hosts)
        if host == broker
    ]


def not_hosted(payload: ForPubend) -> Payload | None:
    """For who takes us for the host of a pubend that we do not have, or have not opened yet; None: nobody waits."""
    problem = f"{payload.pubend} is not at this broker, or not open yet"
    match payload:
        case PublishRequest():
            return PublishAnswer(payload.request, payload.pubend, 0, problem, True)
        case Register():
            return Registered(payload.request, payload.pubend, payload.name, problem=problem, again=True)
        case ReadLog():
            return LogSlice(payload.request, payload.pubend, problem=problem, again=True)
    return None

"""A pubend on a bench: a disk that answers when it is told to, a broker that notes what it is told, and a clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from penstock.content.message import Message
from penstock.kernel.machine import Effect
from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.storage import Append, Ask, Entries, Operation, Read, ServiceStorage, StorageFailed, StorageTickets
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import Record
from penstock.overlay.packets import BrokerId
from penstock.streams.config import StreamsConfig
from penstock.streams.log_codec import LogEntry, decode
from penstock.streams.packets import (
    TICK_MAX,
    Command,
    CommandAnswer,
    Item,
    Payload,
    Progress,
    PublishAnswer,
    PublishRequest,
    PublishStored,
    Register,
    Registered,
    Renew,
    Share,
    Tick,
    Unregister,
)
from penstock.streams.pubend import Forgotten, Pubend
from penstock.streams.share_failed import Answered
from penstock.streams.timers import StreamTimer
from penstock.testing.pump import a_message

P = TypeVar("P")

START = 1_000.0
FULL = StorageFailed("the disk is full")
DAMAGED = StorageFailed("entry 7 has a wrong checksum", damaged=True)


class PubendBench:
    """One pubend, life after life, over one store."""

    def __init__(self, config: StreamsConfig | None = None, *, seed: int = 1, open_it: bool = True) -> None:
        self.config = config or StreamsConfig()
        self.store = MemoryStore()
        self.now = START
        self.random = Random(seed)
        self.held: list[Ask] = []  # asked, and not answered
        self.hold = False  # whether the disk answers by itself
        self.failing: Callable[[Operation], StorageFailed | None] = lambda operation: None
        self.sent: list[tuple[BrokerId, Payload]] = []
        self.committed_items: list[Item] = []
        self.gone_told: list[Tick] = []
        self.slices: dict[int, tuple[Tick, Tick, list[Item]] | None] = {}
        self.records: list[Record] = []
        self.ready_count = 0
        self.elsewhere: list[tuple[str, str, Message, Answered]] = []  # what it wants stored in other streams
        self.requests = 0
        self.start(open_it=open_it)

    def start(self, *, create: bool = True, open_it: bool = True) -> None:
        """A life begins, with nothing but what is on disk."""
        self.timers = Timers()
        self.held = []
        self.pubend = Pubend(
            "orders",
            0,
            1,
            storage=ServiceStorage("streams", StorageTickets()),
            config=self.config,
            timers=ServiceTimers("streams", self.timers, StreamTimer),
            random=self.random,
            outlet=self,
        )
        if open_it:
            self.run(self.pubend.open(create=create, now=self.now))

    def restart(self, *, carried_out: int = 0, after: float = 0.0) -> None:
        """A crash; of what was not answered the disk has done so many operations. Time passes, then a new life."""
        for ask in self.held[:carried_out]:
            if self.failing(ask.operation) is None:
                self.store.carry_out(ask.area, ask.operation)
        self.store.reopen()
        self.now += after
        self.start()

    # The broker around it.

    def send_to(self, broker: BrokerId, payload: Payload, *, now: float) -> list[Effect]:
        if isinstance(payload, PublishStored):  # answers like any other
            answers = [PublishAnswer(request, payload.pubend, tick) for request, tick in payload.stored]
            self.sent += [(broker, answer) for answer in answers]
        else:
            self.sent.append((broker, payload))
        return []

    def committed(self, pubend: Pubend, data: Sequence[Item], *, now: float) -> list[Effect]:
        assert pubend.horizon(now) >= data[-1][0]
        self.committed_items += data
        return []

    def store_elsewhere(
        self, stream: str, key: str, publication_id: str, message: Message, answered: Answered, *, now: float
    ) -> list[Effect]:
        self.elsewhere.append((stream, publication_id, message, answered))
        return []

    def pubend_ready(self, pubend: Pubend, *, now: float) -> list[Effect]:
        self.ready_count += 1
        return []

    def pubend_gone(self, pubend: Pubend, *, now: float) -> list[Effect]:
        self.gone_told.append(pubend.gone)
        return []

    def pubend_removed(self, pubend: Pubend, then: Forgotten, *, now: float) -> list[Effect]:
        return [*self.pubend_gone(pubend, now=now), *then("", now)]

    def slice_read(
        self, pubend: Pubend, token: int, first: Tick, upto: Tick, items: Sequence[Item], *, now: float
    ) -> list[Effect]:
        self.slices[token] = (first, upto, list(items))
        return []

    def slice_failed(self, pubend: Pubend, token: int, *, now: float) -> list[Effect]:
        self.slices[token] = None
        return []

    # The host.

    def run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                self.held.append(effect)
            else:
                assert isinstance(effect, Record), effect
                self.records.append(effect)
        if not self.hold:
            self.answer()

    def answer(self, count: int | None = None) -> None:
        """Let the disk answer so many operations, in order; without a number all, and what follows from them."""
        hold, self.hold = self.hold, True
        while self.held and count != 0:
            ask = self.held.pop(0)
            result = self.failing(ask.operation) or self.store.carry_out(ask.area, ask.operation)
            effects = self.pubend.completed(ask.ticket, result, now=self.now)
            assert effects is not None, ask
            self.run(effects)
            count = None if count is None else count - 1
        self.hold = hold

    def advance(self, seconds: float) -> None:
        """Time passes; timers expire when they should."""
        until = self.now + seconds
        while True:
            at = self.timers.deadline()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.wake()
        self.now = until

    def wake(self) -> None:
        """Timers that are due expire, each once."""
        while (name := self.timers.pop_due(self.now)) is not None:
            _, timer, pubend = name
            assert pubend == self.pubend.name
            self.run(self.pubend.expired(StreamTimer(int(timer)), now=self.now))

    # What brokers send.

    def publish(
        self,
        publication_id: str,
        message: Message | None = None,
        *,
        age: float = 0.0,
        broker: BrokerId = 5,
    ) -> int:
        """The number of the request; `answer_to` has what came of it."""
        self.requests += 1
        content = a_message(self.requests) if message is None else message
        packet = PublishRequest(self.requests, self.pubend.name, publication_id, age, content)
        self.run(self.pubend.publish(packet, broker, now=self.now))
        return self.requests

    def register(
        self,
        name: str = "billing",
        where: str = "n > 0",
        start: str = "earliest",
        *,
        position: Tick = -1,
        epoch: int | None = None,
        reader: str = "r",
        takeover: bool = False,
        rewind: bool = True,
        broker: BrokerId = 5,
        share: Share | None = None,
        credit: int = 0,
    ) -> int:
        self.requests += 1
        epoch = self.pubend.epoch if epoch is None else epoch
        packet = Register(
            *(self.requests, self.pubend.name, name, where, start, epoch, position, reader, takeover, rewind),
            *(share, credit),
        )
        self.run(self.pubend.register(packet, broker, now=self.now))
        return self.requests

    def progress(
        self,
        name: str,
        session: int,
        tick: Tick,
        *,
        epoch: int | None = None,
        silent: bool = False,
        broker: BrokerId = 5,
    ) -> None:
        epoch = self.pubend.epoch if epoch is None else epoch
        packet = Progress(self.pubend.name, epoch, ((name, session, tick),), silent)
        self.run(self.pubend.progress(packet, broker, now=self.now))

    def renew(self, name: str, session: int, *, broker: BrokerId = 5) -> None:
        packet = Renew(self.pubend.name, ((name, session),))
        self.run(self.pubend.renew(packet, broker, now=self.now))

    def unregister(self, name: str, session: int, *, broker: BrokerId = 5) -> None:
        packet = Unregister(self.pubend.name, name, session)
        self.run(self.pubend.unregister(packet, broker, now=self.now))

    def command(self, verb: str, **arguments: Any) -> int:
        self.requests += 1
        packet = Command(self.requests, verb, "orders", json.dumps(arguments).encode())
        self.run(self.pubend.command(packet, 5, now=self.now))
        return self.requests

    # What came of it.

    def all_sent(self, kind: type[P]) -> list[P]:
        return [payload for _, payload in self.sent if isinstance(payload, kind)]

    def _answer_to(self, request: int, kind: type[P]) -> P:
        found = [payload for payload in self.all_sent(kind) if getattr(payload, "request", None) == request]
        assert len(found) == 1, (request, found)
        return found[0]

    def published(self, request: int) -> PublishAnswer:
        return self._answer_to(request, PublishAnswer)

    def registered(self, request: int) -> Registered:
        return self._answer_to(request, Registered)

    def report(self, request: int) -> dict[str, Any]:
        answer = self._answer_to(request, CommandAnswer)
        assert answer.problem == ""
        report: dict[str, Any] = json.loads(answer.report)
        return report

    def refusal(self, request: int) -> str:
        return self._answer_to(request, CommandAnswer).problem

    def store_one(self, publication_id: str, message: Message | None = None) -> Tick:
        """Publish, and see it stored."""
        answer = self.published(self.publish(publication_id, message))
        assert answer.problem == ""
        return answer.tick

    def log(self) -> list[tuple[Tick, LogEntry]]:
        """What is on disk."""
        found: list[tuple[Tick, LogEntry]] = []
        first = 1
        while True:
            result = self.store.carry_out("streams/orders/0", Read(first, TICK_MAX, 10_000))
            assert isinstance(result, Entries)
            found += [(tick, decode(data, LogEntry)) for tick, data in result.entries]
            if result.complete:
                return found
            first = result.entries[-1][0] + 1

    def appends_held(self) -> list[Append]:
        return [ask.operation for ask in self.held if isinstance(ask.operation, Append)]

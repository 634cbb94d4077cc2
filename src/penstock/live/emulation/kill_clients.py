"""Applications that use a stream while its brokers are being killed, and tell the checkers what they were told.

    a publisher     publishes under ids of its own, several messages at a time; when the outcome is unknown it publishes
                    again under the same id, until it knows
    a keeper        keeps its position beside what it has read, crashes now and then, and goes on there, at any broker
    a confirmer     acknowledges what it has read and waits for that, crashes now and then, and relies on the stream;
                    it may see again only what was not confirmed
    a steady reader never crashes; whoever asks for the next message is done with the one before

They live in this process: a crash of one is a connection that breaks without a word, and an object that is thrown away.
What is told to the checkers is what the application knows, in the order in which it learnt it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from random import Random

from penstock.content.message import Identity, Value, make_message
from penstock.errors import OutcomeUnknown, StreamError, StreamGap
from penstock.live.client.network import Network, connect
from penstock.live.client.stream_subscription import StreamSubscription
from penstock.scenario.checker import Checker
from penstock.scenario.stream_facts import (
    Acknowledging,
    GapRead,
    MessageRead,
    PositionSeen,
    ProgressOnDisk,
    Reader,
    ReadingBegan,
    ReadingEnded,
    ReadingInForce,
    StoreAsked,
    StoreConfirmed,
    StoreRefused,
    StreamFact,
)
from penstock.streams.config import StreamsClientConfig
from penstock.streams.packets import Position

KEYS = 8
BODY = bytes(100)
UNDER_WAY_MAX = 20  # messages of one publisher
BATCH_MAX = 8
WORK_MEAN = 0.03  # seconds that a reader works on what it has taken
CONNECT_WITHIN = 120.0  # seconds; all brokers may be dead at once


class Facts:
    """Tells all checkers, with the time since the beginning."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        self.checkers = checkers
        self.stored = self.read = 0
        self._began = time.monotonic()

    def tell(self, fact: StreamFact) -> None:
        self.stored += isinstance(fact, StoreConfirmed)
        self.read += isinstance(fact, MessageRead)
        at = time.monotonic() - self._began
        for checker in self.checkers:
            checker.stream_fact(at, fact)


class StormApplication:
    """What they have in common: a stream, a way to a broker, and chance."""

    def __init__(self, name: str, stream: str, url: Callable[[], str], facts: Facts, random: Random) -> None:
        self.name = name
        self._stream = stream
        self._url = url
        self._facts = facts
        self._random = random
        self._lives = count(1)

    def _connect(self, **settings: float) -> Network:
        name = f"{self.name}-{next(self._lives)}"
        config = StreamsClientConfig(**settings)  # type: ignore[arg-type]  # its fields are numbers
        return connect(self._url(), name=name, connect_within=CONNECT_WITHIN, streams=config)


class StormPublisher(StormApplication):
    """Publishes until it is told to stop, and then until everything is answered."""

    def __init__(
        self, name: str, stream: str, url: Callable[[], str], facts: Facts, random: Random, *, rate: float
    ) -> None:
        super().__init__(name, stream, url, facts, random)
        self._rate = rate
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """All its life: one client."""
        room = asyncio.Semaphore(UNDER_WAY_MAX)
        async with self._connect(give_up_after=5.0, retry_min=0.2) as network, asyncio.TaskGroup() as group:
            for number in count(1):
                if self._stopped:
                    break
                await room.acquire()
                task = group.create_task(self._store(network, number))
                task.add_done_callback(lambda _: room.release())
                await asyncio.sleep(self._random.expovariate(self._rate))

    async def _store(self, network: Network, number: int) -> None:
        """One message, under one id, until it is known to be stored or refused."""
        attributes: dict[str, Value] = {"kind": self._random.choice("abc"), "number": number, "key": number % KEYS}
        publication_id = f"{network.name}:{number}"
        orders = network.stream(self._stream)
        while True:
            identity = Identity(network.name, network.incarnation, network._count + 1)  # that it gets in this turn
            message = make_message(identity, attributes, BODY)
            self._facts.tell(StoreAsked(self._stream, publication_id, message))
            try:
                receipt = await orders.publish(
                    attributes, BODY, key=str(attributes["key"]), publication_id=publication_id
                )
            except OutcomeUnknown as unknown:
                self._facts.tell(StoreRefused(identity, str(unknown), unknown=True))
            except StreamError as refused:
                self._facts.tell(StoreRefused(identity, str(refused), unknown=False))
                return
            else:
                self._facts.tell(StoreConfirmed(identity, receipt.pubend, receipt.tick))
                return


class StormReader(StormApplication):
    """Reads under one durable name, in one life after the other."""

    def __init__(
        self,
        name: str,
        stream: str,
        url: Callable[[], str],
        facts: Facts,
        random: Random,
        *,
        where: str,
        way: str,  # "keep", "confirm" or "steady"
        life: float,  # seconds, on average
    ) -> None:
        super().__init__(name, stream, url, facts, random)
        self._where = where
        self._way = way
        self._life = life
        self._kept: tuple[Position, ...] = ()
        self._immortal = way == "steady"

    def stop_crashing(self) -> None:
        """Its next life is its last."""
        self._immortal = True

    async def run(self) -> None:
        """One life after the other, until it is cancelled."""
        while True:
            await self._one_life()

    async def _one_life(self) -> None:
        lasts = None if self._immortal else self._random.expovariate(1.0 / self._life)
        network = await self._connect().open()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(lasts):
                    await self._read(network)
        finally:
            await vanish(network)

    async def _read(self, network: Network) -> None:
        messages = network.stream(self._stream).subscribe(
            self._where,
            durable=self.name,
            start="earliest",
            ack="auto" if self._way == "steady" else "manual",
            takeover=True,
            positions=self._kept,
        )
        reader = (network.name, messages.number)
        self._facts.tell(ReadingBegan(reader, self._stream, self.name, self._where, "earliest", self._kept))
        try:
            await messages.open()
            self._facts.tell(ReadingInForce(reader, messages.in_force_after))
            while True:
                await self._read_some(reader, messages)
        finally:
            self._facts.tell(ReadingEnded(reader))

    async def _read_some(self, reader: Reader, messages: StreamSubscription) -> None:
        try:
            batch = await messages.take(self._random.randint(1, BATCH_MAX))
        except StreamGap as gap:
            self._facts.tell(GapRead(reader, gap.pubend, gap.first, gap.last))
            return
        for message in batch:
            self._facts.tell(MessageRead(reader, message))
        positions = messages.positions()
        self._facts.tell(PositionSeen(reader, positions))
        if self._way == "keep":
            self._kept = positions  # in the same moment as what it has read: nothing can come between
        await asyncio.sleep(self._random.expovariate(1.0 / WORK_MEAN))  # more comes meanwhile, and it may crash
        if self._way == "confirm":
            done = {message.pubend: message.tick for message in batch}
            for pubend, tick in done.items():
                self._facts.tell(Acknowledging(reader, pubend, tick, confirmed=False))
            await messages.ack()
            for pubend, tick in done.items():
                self._facts.tell(ProgressOnDisk(pubend, self.name, tick))  # nobody can look there, so it is believed
                self._facts.tell(Acknowledging(reader, pubend, tick, confirmed=True))


async def vanish(network: Network) -> None:
    """End a client as a crash would: its broker hears nothing, and finds the connection broken."""
    link = network._link
    if link is not None:
        for task in link.tasks:
            task.cancel()
        if link.port is not None:
            link.port.connection.abort("the client crashed")
    await network.close()

"""What must hold of streams in every run: watchers of publishers, readers, disks and links.

    stream-once         a reader gets every message once, in tick order of each pubend, and nothing that its durable
                        name was confirmed to be done with, or that the position it presented covers
    stream-true         nothing is invented: what is read was published to this stream, is unchanged, matches, and
                        stands at the tick of its receipt; what was refused never appears; a publication_id has one
                        tick and one content
    stream-in-force     every matching message after the tick that the subscription's answer named is read before the
                        position passes it, whatever routing knew then; and the answer names no tick of the future
    stream-ticks        the ticks of a pubend are given once and grow, through restarts and clock steps; none is given
                        that was told as silence before; a receipt, and data told, are on disk
    stream-kept         nothing is trimmed that a durable name still needs within `retain`, or at all within `history`;
                        nobody is told of a gap that is none
    stream-positions    positions and epochs do not go back; what is confirmed as acknowledged is on disk
    stream-converges    in the end everything that is on disk was read under every durable name that has a reader, by
                        one who acknowledged it or may still do so; and every application has its answers

All but the last are safe to judge at any time. The last is for runs that heal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.content.message import Identity, Message
from penstock.scenario.checker import Checker
from penstock.scenario.spec import Scenario
from penstock.scenario.stream_book import BookedName, NameReading, StreamBook, StreamPublication
from penstock.scenario.stream_facts import (
    Acknowledging,
    BrokerStarted,
    ClockStepped,
    GapRead,
    LogTrimming,
    LogWriting,
    MessageCommitted,
    MessageRead,
    PositionSeen,
    ProgressOnDisk,
    ReadingInForce,
    StoreConfirmed,
    StreamFact,
    TicksTold,
)
from penstock.streams.config import StreamsConfig
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Position, Tick, stream_of

DRIFT = 0.01  # how much a clock may run too fast, as a share, in the judgement of ages
AGE_SLACK = 0.1  # seconds


class StreamChecker(Checker):
    """Keeps a book and judges facts by it; `judge` sees the book as it was before the fact."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.book = StreamBook()

    def stream_fact(self, time: float, fact: StreamFact) -> None:
        self.judge(time, fact)
        self.book.enter(time, fact)

    def judge(self, time: float, fact: StreamFact) -> None:
        """The subclass looks at what it is there for."""


class StreamOnce(StreamChecker):
    """Each message once for each reader, in order, and none that its durable name is done with."""

    def judge(self, time: float, fact: StreamFact) -> None:
        if not isinstance(fact, MessageRead):
            return
        message, reading = fact.message, self.book.readings[fact.reader]
        pubend, tick = message.pubend, message.tick
        if reading.over:
            self.problem(f"{time:.6f}: {_who(reading)} got {_what(message)} after its end {reading.problem}".rstrip())
        floor, last = reading.floor.get(pubend, 0), reading.last.get(pubend, 0)
        if tick <= floor:
            self.problem(f"{time:.6f}: {_who(reading)} got {_what(message)}; it is done with all up to {floor}")
        elif tick <= last:
            twice = "twice" if reading in reading.name.read.get(pubend, {}).get(tick, ()) else "out of order"
            self.problem(f"{time:.6f}: {_who(reading)} got {_what(message)} {twice}; it had {last}")


class StreamTrue(StreamChecker):
    """Nothing is invented, changed, misplaced or unwanted."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._places: dict[Identity, tuple[str, Tick]] = {}
        self._at: dict[tuple[str, Tick], Identity] = {}
        self._of_id: dict[str, tuple[str, Tick]] = {}
        self._read: dict[Identity, None] = {}

    def judge(self, time: float, fact: StreamFact) -> None:
        if isinstance(fact, StoreConfirmed):
            self._receipt(time, fact)
        elif isinstance(fact, MessageCommitted) and fact.identity in self.book.publications:
            self._place(time, fact.identity, fact.pubend, fact.tick)
        elif isinstance(fact, MessageRead):
            self._message(time, self.book.readings[fact.reader], fact.message)

    def _receipt(self, time: float, fact: StoreConfirmed) -> None:
        publication = self.book.publications[fact.identity]
        if stream_of(fact.pubend) != publication.stream:
            self.problem(f"{time:.6f}: {fact.identity} for {publication.stream} was stored at {fact.pubend}")
        if not publication.publication_id:
            self._place(time, fact.identity, fact.pubend, fact.tick)
            return
        self._place_of_id(time, publication, fact.pubend, fact.tick)
        for other in self.book.by_id[publication.publication_id]:
            if other.receipt is not None and not _same_content(other.message, publication.message):
                self.problem(f"{time:.6f}: {fact.identity} was confirmed, and {other.message.identity} of the same id")

    def _message(self, time: float, reading: NameReading, message: StreamMessage) -> None:
        self._read[message.identity] = None
        publication = self.book.publications.get(message.identity)
        moved = self.book.stored.get(message.pubend, {}).get(message.tick) == message.identity
        if publication is None and moved and ":" in message.identity.publisher:  # a shared name has failed with it
            return
        if publication is None or publication.stream != reading.name.stream:
            self.problem(f"{time:.6f}: {_who(reading)} got {_what(message)}, which nobody published there")
            return
        original = publication.message
        if not _same_content(message, original):
            self.problem(f"{time:.6f}: {_who(reading)} got {_what(message)} with another content")
        if not reading.name.predicate.matches(original.attributes):
            self.problem(f"{time:.6f}: {_who(reading)} got {_what(message)}, which does not match")
        self._place(time, message.identity, message.pubend, message.tick)
        if publication.publication_id:
            self._place_of_id(time, publication, message.pubend, message.tick)

    def _place(self, time: float, identity: Identity, pubend: str, tick: Tick) -> None:
        """A message has one tick, and a tick one message."""
        place = self._places.setdefault(identity, (pubend, tick))
        if place != (pubend, tick):
            self.problem(f"{time:.6f}: {identity} stands at {pubend} {tick}, and at {place[0]} {place[1]}")
        other = self._at.setdefault((pubend, tick), identity)
        if other != identity:
            self.problem(f"{time:.6f}: {pubend} {tick} is {identity}, and {other}")

    def _place_of_id(self, time: float, publication: StreamPublication, pubend: str, tick: Tick) -> None:
        """A publication_id has one tick."""
        place = self._of_id.setdefault(publication.publication_id, (pubend, tick))
        if place != (pubend, tick):
            two = f"at {pubend} {tick}, and at {place[0]} {place[1]}"
            self.problem(f"{time:.6f}: publication_id {publication.publication_id} is stored {two}")

    def finish(self) -> None:
        for identity in self._read:
            publication = self.book.publications.get(identity)
            if publication is not None and publication.problem and not publication.unknown:
                self.problem(f"{identity} was refused ({publication.problem}), and was read")


class StreamInForce(StreamChecker):
    """A subscription is in force from the ticks that its answer names."""

    def judge(self, time: float, fact: StreamFact) -> None:
        if isinstance(fact, ReadingInForce):
            reading = self.book.readings[fact.reader]
            if reading.name.in_force_at is None:
                self._begins(time, reading, {pubend: tick for pubend, _, tick in fact.positions})

    def _begins(self, time: float, reading: NameReading, start: dict[str, Tick]) -> None:
        """The first answer of a durable name: `earliest` begins before everything that is kept."""
        if reading.name.start_at != "earliest":
            return
        matches = reading.name.predicate.matches
        for pubend, tick, publication in self.book.messages(reading.name.stream):
            kept = self.book.trimmed.get(pubend, 0) < tick <= start.get(pubend, 0)
            if kept and matches(publication.message.attributes):
                begins = f"{start[pubend]}, and {tick} is kept"
                self.problem(f"{time:.6f}: {_who(reading)} begins at the earliest of {pubend} after {begins}")

    def finish(self) -> None:
        for name in self.book.names.values():
            self._passed(name)
            self._future(name)

    def _passed(self, name: BookedName) -> None:
        reached = name.reached()
        for pubend, tick, publication in self.book.due(name):
            if tick <= reached.get(pubend, 0) and not name.has(pubend, tick):
                identity = publication.message.identity
                passed = f"its position is {reached[pubend]}, and it began after {name.start[pubend]}"
                self.problem(f"{name} passed over {identity} at {pubend} {tick}; {passed}")

    def _future(self, name: BookedName) -> None:
        """What is published when the answer is there comes after it."""
        for pubend, tick, publication in self.book.messages(name.stream):
            early = name.in_force_at is not None and self.book.first_asked(publication) > name.in_force_at
            if early and tick <= name.start.get(pubend, 0):
                at = f"published at {publication.asked_at:.6f} and stored at {pubend} {tick}"
                self.problem(f"{name} is in force after {name.start[pubend]} since {name.in_force_at}, {at}")


class StreamTicks(StreamChecker):
    """Ticks are given once, grow, and are never silence first."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._newest: dict[str, Tick] = {}  # on disk
        self._told: dict[str, Tick] = {}  # up to here somebody was told what the ticks are

    def judge(self, time: float, fact: StreamFact) -> None:
        if isinstance(fact, LogWriting):
            self._writing(time, fact)
        elif isinstance(fact, TicksTold):
            self._told[fact.pubend] = max(fact.last, self._told.get(fact.pubend, 0))
            for tick, _ in fact.data:
                self._on_disk(time, fact.pubend, tick, "was told to a neighbour")
        elif isinstance(fact, StoreConfirmed):
            self._on_disk(time, fact.pubend, fact.tick, f"was confirmed to the publisher of {fact.identity}")

    def _writing(self, time: float, fact: LogWriting) -> None:
        told, newest = self._told.get(fact.pubend, 0), self._newest.get(fact.pubend, 0)
        if fact.ticks and not fact.committed and fact.ticks[0] <= told:
            self.problem(f"{time:.6f}: {fact.pubend} gives tick {fact.ticks[0]}; all up to {told} was told before")
        for tick in fact.ticks if fact.committed else ():
            if tick <= newest:
                self.problem(f"{time:.6f}: {fact.pubend} has tick {tick} on disk after {newest}")
            self._newest[fact.pubend] = newest = max(tick, newest)

    def _on_disk(self, time: float, pubend: str, tick: Tick, what: str) -> None:
        if (pubend, tick) not in self.book.committed_at:
            self.problem(f"{time:.6f}: {pubend} {tick} {what}, and is not on disk")


class StreamKept(StreamChecker):
    """Nothing goes that somebody needs."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._settings = stream_settings(scenario)
        self._steps: dict[str, float] = {}  # by broker: how far its clocks have leapt, in all
        self._hosts = {
            f"{stream.name}/{number}": broker for stream in scenario.stream for number, broker in enumerate(stream.at)
        }

    def judge(self, time: float, fact: StreamFact) -> None:
        if isinstance(fact, LogTrimming):
            self._trim(time, fact.pubend, fact.upto)
        elif isinstance(fact, GapRead):
            trimmed = self.book.trimmed.get(fact.pubend, 0)
            if fact.last > trimmed:
                reading = self.book.readings[fact.reader]
                told = f"was told of a gap of {fact.pubend} up to {fact.last}"
                self.problem(f"{time:.6f}: {_who(reading)} {told}; only what is up to {trimmed} was trimmed")
        elif isinstance(fact, ClockStepped):
            self._steps[fact.broker] = self._steps.get(fact.broker, 0.0) + abs(fact.seconds)
        elif isinstance(fact, BrokerStarted):
            self._steps[fact.broker] = self._steps.get(fact.broker, -self._settings.lease) + self._settings.lease

    def _trim(self, time: float, pubend: str, upto: Tick) -> None:
        before = self.book.trimmed.get(pubend, 0)
        for other, tick, publication in self.book.messages(stream_of(pubend)):
            if other == pubend and before < tick <= upto:
                self._forgotten(time, pubend, tick, publication)

    def _forgotten(self, time: float, pubend: str, tick: Tick, publication: StreamPublication) -> None:
        age = (time - self.book.given_at.get((pubend, tick), 0.0)) * (1.0 + DRIFT) + AGE_SLACK
        age += self._steps.get(self._hosts.get(pubend, ""), 0.0)
        what = f"{time:.6f}: {publication.message.identity} at {pubend} {tick} was trimmed"
        if age < min(self._settings.history, self._settings.retain):
            self.problem(f"{what} at an age of {age:.3f} at most; history is {self._settings.history}")
        if age < self._settings.retain:
            for name in self.book.names.values():
                if self._needs(name, pubend, tick, publication):
                    self.problem(f"{what}, and {name} needs it")

    def _needs(self, name: BookedName, pubend: str, tick: Tick, publication: StreamPublication) -> bool:
        if name.stream != publication.stream or not name.predicate.matches(publication.message.attributes):
            return False
        start = name.start.get(pubend)
        return start is not None and tick > start and tick > name.done.get(pubend, 0)


class StreamPositions(StreamChecker):
    """Positions do not go back, and a pubend stays the same."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._epochs: dict[str, int] = {}
        self._on_disk: dict[tuple[str, str], Tick] = {}  # of a pubend, for a durable name

    def judge(self, time: float, fact: StreamFact) -> None:
        if isinstance(fact, PositionSeen | ReadingInForce):
            reading = self.book.readings[fact.reader]
            for pubend, epoch, tick in fact.positions:
                self._epoch(time, pubend, epoch)
                self._position(time, reading, (pubend, epoch, tick))
        elif isinstance(fact, MessageRead):
            self._epoch(time, fact.message.pubend, fact.message.epoch)
        elif isinstance(fact, ProgressOnDisk):
            place = (fact.pubend, fact.durable)  # a reader that presents an older position may have it set back
            self._on_disk[place] = max(fact.tick, self._on_disk.get(place, 0))
        elif isinstance(fact, Acknowledging) and fact.confirmed:
            reading = self.book.readings[fact.reader]
            on_disk = self._on_disk.get((fact.pubend, reading.name.durable), 0)
            if on_disk < fact.tick:
                done = f"was told that it is done with {fact.pubend} {fact.tick}"
                self.problem(f"{time:.6f}: {_who(reading)} {done}; the disk has {on_disk}")

    def _epoch(self, time: float, pubend: str, epoch: int) -> None:
        first = self._epochs.setdefault(pubend, epoch)
        if first != epoch:
            self.problem(f"{time:.6f}: {pubend} has epoch {epoch}; it was {first}")

    def _position(self, time: float, reading: NameReading, position: Position) -> None:
        pubend, _, tick = position
        before = max(reading.position.get(pubend, 0), reading.floor.get(pubend, 0))
        if tick < before:
            self.problem(f"{time:.6f}: {_who(reading)} is at {pubend} {tick}; it was at {before}")


class StreamConverges(StreamChecker):
    """In the end nothing is missing, and nobody waits."""

    def finish(self) -> None:
        for identity, publication in self.book.publications.items():
            if not publication.answered and identity.publisher not in self.book.crashed:
                self.problem(f"{identity} for {publication.stream} of {publication.asked_at:.6f} was never answered")
        for name in self.book.names.values():
            live = [reading for reading in name.readings if not reading.over]
            for reading in live:
                if reading.in_force_at is None:
                    self.problem(f"{_who(reading)} of {reading.began_at:.6f} was never answered")
            if live:
                self._missing(name)

    def _missing(self, name: BookedName) -> None:
        for pubend, tick, publication in self.book.due(name):
            what = f"{publication.message.identity} at {pubend} {tick}"
            if not name.has(pubend, tick):
                self.problem(f"{what} never came to {name}")
            elif name.forsaken(pubend, tick):
                reading = name.read[pubend][tick][-1]
                self.problem(f"{what} came to {_who(reading)}, which ended without acknowledging it, and to no other")


STREAM_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "stream-once": StreamOnce,
    "stream-true": StreamTrue,
    "stream-in-force": StreamInForce,
    "stream-ticks": StreamTicks,
    "stream-kept": StreamKept,
    "stream-positions": StreamPositions,
    "stream-converges": StreamConverges,
}


def stream_settings(scenario: Scenario) -> StreamsConfig:
    """The settings of the streams of a scenario, whether it was read or built."""
    given = scenario.services.get("streams", StreamsConfig())
    return msgspec.convert(given, StreamsConfig) if isinstance(given, Mapping) else given


def _same_content(one: Message, other: Message) -> bool:
    return one.attributes == other.attributes and one.body == other.body


def _who(reading: NameReading) -> str:
    return f"{reading.reader[0]}:{reading.reader[1]} under {reading.name}"


def _what(message: StreamMessage) -> str:
    return f"{message.identity} at {message.pubend} {message.tick}"

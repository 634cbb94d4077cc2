"""The book of a run's streams: what was published, stored and read, put together from facts.

Checkers of streams each keep one and judge by it. A fact that contradicts another is entered all the same: what is
wrong is the checkers' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message
from penstock.content.predicate import Predicate
from penstock.scenario.stream_facts import (
    Acknowledging,
    GapRead,
    LogTrimming,
    LogWriting,
    MessageCommitted,
    MessageRead,
    PositionSeen,
    PublisherCrashed,
    Reader,
    ReadingBegan,
    ReadingEnded,
    ReadingInForce,
    ReadingRefused,
    StoreAsked,
    StoreConfirmed,
    StoreRefused,
    StreamFact,
    TicksTold,
)
from penstock.streams.packets import Position, Range, Tick, stream_of

Ticks = dict[str, Tick]  # by pubend


@dataclass(eq=False)
class StreamPublication:
    """One message for a stream, and what its application was told."""

    asked_at: float
    stream: str
    publication_id: str
    message: Message
    receipt: tuple[str, Tick] | None = None
    problem: str = ""
    unknown: bool = False

    @property
    def answered(self) -> bool:
        """Whether its application was told anything."""
        return self.receipt is not None or bool(self.problem)


@dataclass(eq=False)
class NameReading:
    """One reader's time under a durable name."""

    reader: Reader
    name: BookedName
    began_at: float
    floor: Ticks  # what it may not get again
    last: Ticks  # of what it got
    position: Ticks = field(default_factory=dict)
    in_force_at: float | None = None
    over: bool = False
    problem: str = ""


@dataclass(eq=False)
class BookedName:
    """A durable name of a stream, over all its readers."""

    stream: str
    durable: str
    predicate: Predicate
    start_at: str
    asked_at: float
    start: Ticks = field(default_factory=dict)  # in force from here, by its first answer
    in_force_at: float | None = None
    read: dict[str, dict[Tick, list[NameReading]]] = field(default_factory=dict)  # by whom
    gaps: dict[str, list[Range]] = field(default_factory=dict)
    done: Ticks = field(default_factory=dict)  # what applications have said that they are done with
    confirmed: Ticks = field(default_factory=dict)  # and were told that this is on disk
    readings: list[NameReading] = field(default_factory=list)

    def has(self, pubend: str, tick: Tick) -> bool:
        """Whether a reader got this message, or was told that nobody has it any more."""
        return tick in self.read.get(pubend, ()) or self._missed(pubend, tick)

    def _missed(self, pubend: str, tick: Tick) -> bool:
        return any(first <= tick <= last for first, last in self.gaps.get(pubend, ()))

    def forsaken(self, pubend: str, tick: Tick) -> bool:
        """Whether all who read this message have ended, and none has said that it is done with it."""
        readings = self.read.get(pubend, {}).get(tick, [])
        ended = bool(readings) and all(reading.over for reading in readings)
        return ended and tick > self.done.get(pubend, 0) and not self._missed(pubend, tick)

    def reached(self) -> Ticks:
        """Up to where its readers have all that matches."""
        reached: Ticks = {}
        for reading in self.readings:
            for pubend, tick in reading.position.items():
                reached[pubend] = max(tick, reached.get(pubend, 0))
        return reached

    def __str__(self) -> str:
        return f"'{self.durable}' of {self.stream} ({self.predicate.text})"


class StreamBook:
    """Everything that is known so far."""

    def __init__(self) -> None:
        self.publications: dict[Identity, StreamPublication] = {}
        self.by_id: dict[str, list[StreamPublication]] = {}  # under an id that the application chose
        self.names: dict[tuple[str, str], BookedName] = {}
        self.readings: dict[Reader, NameReading] = {}
        self.stored: dict[str, dict[Tick, Identity]] = {}  # by pubend: confirmed, or said to be on disk
        self.given_at: dict[tuple[str, Tick], float] = {}  # ticks, to messages that were to be written
        self.committed_at: dict[tuple[str, Tick], float] = {}
        self.trimmed: Ticks = {}
        self.crashed: dict[str, None] = {}  # clients

    def enter(self, time: float, fact: StreamFact) -> None:
        """Put one more fact into the book."""
        if type(fact) is TicksTold:  # most facts are that, and the book has no page for it
            return
        match fact:
            case StoreAsked():
                publication = StreamPublication(time, fact.stream, fact.publication_id, fact.message)
                self.publications[fact.message.identity] = publication
                if fact.publication_id:
                    self.by_id.setdefault(fact.publication_id, []).append(publication)
            case StoreConfirmed(identity, pubend, tick):
                self.publications[identity].receipt = (pubend, tick)
                self.stored.setdefault(pubend, {}).setdefault(tick, identity)
            case StoreRefused(identity, problem, unknown):
                self.publications[identity].problem = problem or "no reason given"
                self.publications[identity].unknown = unknown
            case MessageCommitted(pubend, tick, identity):
                self.stored.setdefault(pubend, {}).setdefault(tick, identity)
            case LogWriting(pubend, ticks, committed):
                times = self.committed_at if committed else self.given_at
                for tick in ticks:
                    times.setdefault((pubend, tick), time)
            case LogTrimming(pubend, upto):
                self.trimmed[pubend] = max(upto, self.trimmed.get(pubend, 0))
            case PublisherCrashed(client):
                self.crashed[client] = None
            case _:
                self._enter_reading(time, fact)

    def _enter_reading(self, time: float, fact: StreamFact) -> None:
        match fact:
            case ReadingBegan():
                self._begin(time, fact)
            case ReadingInForce(reader, positions):
                self._in_force(time, self.readings[reader], positions)
            case ReadingRefused(reader, problem):
                self.readings[reader].problem = problem or "no reason given"
                self.readings[reader].over = True
            case ReadingEnded(reader):
                self.readings[reader].over = True
            case MessageRead(reader, message):
                reading = self.readings[reader]
                reading.name.read.setdefault(message.pubend, {}).setdefault(message.tick, []).append(reading)
                reading.last[message.pubend] = max(message.tick, reading.last.get(message.pubend, 0))
            case GapRead(reader, pubend, first, last):
                self.readings[reader].name.gaps.setdefault(pubend, []).append((first, last))
            case PositionSeen(reader, positions):
                _raise_to(self.readings[reader].position, positions)
            case Acknowledging(reader, pubend, tick, confirmed):
                name = self.readings[reader].name
                of = name.confirmed if confirmed else name.done
                of[pubend] = max(tick, of.get(pubend, 0))
            case _:
                pass

    def _begin(self, time: float, fact: ReadingBegan) -> None:
        name = self.names.setdefault(
            (fact.stream, fact.durable),
            BookedName(fact.stream, fact.durable, parse_predicate(fact.where), fact.start_at, time),
        )
        floor = {**name.confirmed, **{pubend: tick for pubend, _, tick in fact.kept}}  # what it presents counts
        _raise_to(name.done, fact.kept)
        reading = NameReading(fact.reader, name, time, floor, dict(floor))
        name.readings.append(reading)
        self.readings[fact.reader] = reading

    def _in_force(self, time: float, reading: NameReading, positions: tuple[Position, ...]) -> None:
        reading.in_force_at = time
        _raise_to(reading.position, positions)
        if reading.name.in_force_at is None:
            reading.name.in_force_at = time
            _raise_to(reading.name.start, positions)

    def first_asked(self, publication: StreamPublication) -> float:
        """When its application first tried, perhaps under another identity and the same id."""
        tried = self.by_id.get(publication.publication_id, [publication])
        return min(other.asked_at for other in tried)

    def messages(self, stream: str) -> Iterator[tuple[str, Tick, StreamPublication]]:
        """All messages of this stream that are on disk, as far as anybody said, in order."""
        for pubend in sorted(self.stored):
            if stream_of(pubend) == stream:
                for tick, identity in sorted(self.stored[pubend].items()):
                    if identity in self.publications:
                        yield pubend, tick, self.publications[identity]

    def due(self, name: BookedName) -> Iterator[tuple[str, Tick, StreamPublication]]:
        """Those that the name must get: they match, and came after the ticks that its first answer named."""
        for pubend, tick, publication in self.messages(name.stream):
            start = name.start.get(pubend)
            if start is not None and tick > start and name.predicate.matches(publication.message.attributes):
                yield pubend, tick, publication


def _raise_to(ticks: Ticks, positions: tuple[Position, ...]) -> None:
    for pubend, _, tick in positions:
        ticks[pubend] = max(tick, ticks.get(pubend, 0))

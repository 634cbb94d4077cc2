"""The book of a run's shared names: what each message went through, put together from facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity
from penstock.content.predicate import Predicate
from penstock.scenario.shared_facts import (
    FailedOnDisk,
    Reader,
    SharedCame,
    SharedGapRead,
    SharedSaid,
    SharedTaken,
    SharingBegan,
    SharingEnded,
    SharingInForce,
)
from penstock.scenario.stream_book import StreamPublication, Ticks
from penstock.scenario.stream_facts import MessageCommitted, StoreAsked, StoreConfirmed, StreamFact
from penstock.streams.packets import Range, ShareVerdict, Tick, stream_of
from penstock.streams.share_record import ACK_WITHIN, ATTEMPTS

Life = tuple[Reader, int]  # a subscription, and the how-manieth time it was asked for


@dataclass(eq=False)
class Attempt:
    """One handout, as its member saw it."""

    life: Life
    attempt: int
    came_at: float
    taken_at: float | None = None
    ended_at: float | None = None  # the member has settled it, or has ended


@dataclass(eq=False)
class SharedMessage:
    """What one message went through under one name."""

    attempts: list[Attempt] = field(default_factory=list)
    done_at: float | None = None  # some application said so
    confirmed_at: float | None = None  # and was told that it is on disk


@dataclass(eq=False)
class SharedBookName:
    """A shared name of a stream."""

    stream: str
    durable: str
    predicate: Predicate
    ack_within: float
    attempts_max: int
    failed: str
    start: Ticks = field(default_factory=dict)
    in_force: bool = False
    members: dict[Life, bool] = field(default_factory=dict)  # whether it lives
    messages: dict[tuple[str, Tick], SharedMessage] = field(default_factory=dict)
    gaps: dict[str, list[Range]] = field(default_factory=dict)
    failed_on_disk: dict[str, tuple[Tick, ...]] = field(default_factory=dict)  # by pubend
    moved: dict[tuple[str, Tick], None] = field(default_factory=dict)  # to the stream for what failed

    def missed(self, pubend: str, tick: Tick) -> bool:
        """Whether somebody was told that nobody has it any more."""
        return any(first <= tick <= last for first, last in self.gaps.get(pubend, ()))

    def __str__(self) -> str:
        return f"shared '{self.durable}' of {self.stream} ({self.predicate.text})"


class SharedBook:
    """Everything that is known so far."""

    def __init__(self) -> None:
        self.publications: dict[Identity, StreamPublication] = {}
        self.stored: dict[str, dict[Tick, Identity]] = {}
        self.names: dict[tuple[str, str], SharedBookName] = {}
        self._lives: dict[Reader, tuple[Life, SharedBookName]] = {}

    def of(self, reader: Reader) -> tuple[Life, SharedBookName]:
        """The present life of a subscription, and the name that it is a member of."""
        return self._lives[reader]

    def message(self, name: SharedBookName, pubend: str, tick: Tick) -> SharedMessage:
        return name.messages.setdefault((pubend, tick), SharedMessage())

    def attempt(self, reader: Reader, pubend: str, tick: Tick, attempt: int) -> Attempt | None:
        """The handout that this member got."""
        life, name = self._lives[reader]
        found = self.message(name, pubend, tick).attempts
        return next((one for one in found if (one.life, one.attempt) == (life, attempt)), None)

    def due(self, name: SharedBookName) -> Iterator[tuple[str, Tick, StreamPublication]]:
        """What is on disk, matches, and came after the ticks that the first answer named."""
        for pubend in sorted(self.stored):
            for tick, identity in sorted(self.stored[pubend].items()):
                publication = self.publications.get(identity)
                start = name.start.get(pubend)
                if publication is None or stream_of(pubend) != name.stream or start is None or tick <= start:
                    continue
                if name.predicate.matches(publication.message.attributes):
                    yield pubend, tick, publication

    def enter(self, time: float, fact: StreamFact) -> None:
        """Put one more fact into the book."""
        match fact:
            case StoreAsked():
                asked = StreamPublication(time, fact.stream, fact.publication_id, fact.message)
                self.publications[fact.message.identity] = asked
            case StoreConfirmed(identity, pubend, tick):
                self.stored.setdefault(pubend, {}).setdefault(tick, identity)
            case MessageCommitted(pubend, tick, identity):
                self._committed(pubend, tick, identity)
            case SharingBegan():
                self._begin(fact)
            case SharingInForce(reader, positions):
                _, name = self._lives[reader]
                if not name.in_force:
                    name.in_force = True
                    name.start.update({pubend: tick for pubend, _, tick in positions})
            case SharingEnded(reader):
                self._end(time, reader)
            case FailedOnDisk(pubend, durable, ticks):
                found = self.names.get((stream_of(pubend), durable))
                if found is not None:
                    found.failed_on_disk[pubend] = ticks
            case SharedGapRead(reader, pubend, first, last):
                self._lives[reader][1].gaps.setdefault(pubend, []).append((first, last))
            case _:
                self._enter_handout(time, fact)

    def _enter_handout(self, time: float, fact: StreamFact) -> None:
        match fact:
            case SharedCame(reader, message):
                life, name = self._lives[reader]
                attempts = self.message(name, message.pubend, message.tick).attempts
                attempts.append(Attempt(life, message.attempt, time))
            case SharedTaken(reader, pubend, tick, attempt):
                taken = self.attempt(reader, pubend, tick, attempt)
                if taken is not None:
                    taken.taken_at = time
            case SharedSaid(reader, pubend, tick, attempt, verdict, confirmed):
                said = self.attempt(reader, pubend, tick, attempt)
                if said is not None and said.ended_at is None:
                    said.ended_at = time
                found = self.message(self._lives[reader][1], pubend, tick)
                if verdict is ShareVerdict.DONE:
                    found.done_at = found.done_at or time
                    found.confirmed_at = found.confirmed_at or (time if confirmed else None)
            case _:
                pass

    def _committed(self, pubend: str, tick: Tick, identity: Identity) -> None:
        self.stored.setdefault(pubend, {}).setdefault(tick, identity)
        for name in self.names.values():  # what moves has the place that it comes from in its identity
            source, _, durable = identity.publisher.partition(":")
            if name.failed == stream_of(pubend) and (stream_of(source), durable) == (name.stream, name.durable):
                name.moved[source, identity.count] = None

    def _begin(self, fact: SharingBegan) -> None:
        name = self.names.setdefault(
            (fact.stream, fact.durable),
            SharedBookName(
                fact.stream,
                fact.durable,
                parse_predicate(fact.where),
                fact.ack_within or ACK_WITHIN,
                fact.attempts_max or ATTEMPTS,
                fact.failed,
            ),
        )
        before = self._lives.get(fact.reader)
        life = (fact.reader, 0 if before is None else before[0][1] + 1)
        self._lives[fact.reader] = (life, name)
        name.members[life] = True

    def _end(self, time: float, reader: Reader) -> None:
        life, name = self._lives[reader]
        name.members[life] = False
        for message in name.messages.values():
            for attempt in message.attempts:
                if attempt.life == life and attempt.ended_at is None:
                    attempt.ended_at = time

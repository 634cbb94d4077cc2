"""Facts about streams that checkers judge: what applications asked for and were told, and what disks and links did.

Whoever plays the applications tells the facts of publishers and readers, in the simulator (`sim.stream_application`) or
in real time. The simulator alone sees the facts of disks and links.

A *reader* is one durable subscription of one client, from subscribe to unsubscribe. Several readers may follow each
other under one durable name. A reader that begins may present a position that the one before it has kept.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.content.message import Identity, Message
from penstock.scenario.shared_facts import SharedFact
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Item, Position, Tick

Reader = tuple[str, int]  # the client, and the number of its subscription

# Publishers.


class StoreAsked(Struct, frozen=True):
    """An application publishes to a stream, under an id of its own or under none."""

    stream: str
    publication_id: str
    message: Message


class StoreConfirmed(Struct, frozen=True):
    """It was told that the message is on disk."""

    identity: Identity
    pubend: str
    tick: Tick


class StoreRefused(Struct, frozen=True):
    """It was told that the message is not stored; or, if `unknown`, that nobody knows."""

    identity: Identity
    problem: str
    unknown: bool


class PublisherCrashed(Struct, frozen=True):
    """A client is gone; nobody will answer its application any more."""

    client: str


# Readers.


class ReadingBegan(Struct, frozen=True):
    """An application subscribes under a durable name; `kept` is the position that it presents."""

    reader: Reader
    stream: str
    durable: str
    where: str
    start_at: str
    kept: tuple[Position, ...] = ()


class ReadingInForce(Struct, frozen=True):
    """Its subscription is in force for every tick after these."""

    reader: Reader
    positions: tuple[Position, ...]


class ReadingRefused(Struct, frozen=True):
    """It was told that it is not served, or no longer; nothing more may come."""

    reader: Reader
    problem: str


class ReadingEnded(Struct, frozen=True):
    """It has unsubscribed, or its client has crashed; nothing more may come."""

    reader: Reader


class MessageRead(Struct, frozen=True):
    """A message reached the application."""

    reader: Reader
    message: StreamMessage


class GapRead(Struct, frozen=True):
    """The application was told that nobody keeps these ticks any more."""

    reader: Reader
    pubend: str
    first: Tick
    last: Tick


class PositionSeen(Struct, frozen=True):
    """Up to these ticks the application has all that matches."""

    reader: Reader
    positions: tuple[Position, ...]


class Acknowledging(Struct, frozen=True):
    """The application is done with everything up to this tick, or, if `confirmed`, was told that this is on disk."""

    reader: Reader
    pubend: str
    tick: Tick
    confirmed: bool


# Disks and links.


class LogWriting(Struct, frozen=True):
    """A pubend has asked its disk to write messages under these ticks; if `committed`, they are there."""

    pubend: str
    ticks: tuple[Tick, ...]
    committed: bool


class MessageCommitted(Struct, frozen=True):
    """A pubend says that this message is on disk."""

    pubend: str
    tick: Tick
    identity: Identity


class LogTrimming(Struct, frozen=True):
    """A pubend has asked its disk to forget everything up to this tick."""

    pubend: str
    upto: Tick


class ProgressOnDisk(Struct, frozen=True):
    """The disk of a pubend says how far a durable name is."""

    pubend: str
    durable: str
    tick: Tick


class TicksTold(Struct, frozen=True):
    """A broker has told a neighbour what these ticks are: data if they are listed, else silence."""

    pubend: str
    first: Tick
    last: Tick
    data: tuple[Item, ...]


class ClockStepped(Struct, frozen=True):
    """The clock of a broker was set."""

    broker: str
    seconds: float


class BrokerStarted(Struct, frozen=True):
    """A broker came to life; the clocks of its pubends may have leapt forward by a lease."""

    broker: str


StreamFact = (
    StoreAsked
    | StoreConfirmed
    | StoreRefused
    | PublisherCrashed
    | ReadingBegan
    | ReadingInForce
    | ReadingRefused
    | ReadingEnded
    | MessageRead
    | GapRead
    | PositionSeen
    | Acknowledging
    | LogWriting
    | MessageCommitted
    | LogTrimming
    | ProgressOnDisk
    | TicksTold
    | ClockStepped
    | BrokerStarted
    | SharedFact
)

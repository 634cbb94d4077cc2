"""Facts about shared names: what their members asked for, got, and said of it. Told like those of `stream_facts`."""

from __future__ import annotations

from msgspec import Struct

from penstock.streams.message import StreamMessage
from penstock.streams.packets import Position, ShareVerdict, Tick

Reader = tuple[str, int]  # the client, and the number of its subscription; one life of it, in `SharingBegan`


class SharingBegan(Struct, frozen=True):
    """An application wants to be a member of a shared name; 0 or empty: as the name has it."""

    reader: Reader
    stream: str
    durable: str
    where: str
    ack_within: float
    attempts_max: int
    failed: str


class SharingInForce(Struct, frozen=True):
    """It is a member. A new name is in force for every tick after these."""

    reader: Reader
    positions: tuple[Position, ...]


class SharingEnded(Struct, frozen=True):
    """It is a member no longer: it has left, has crashed, or was told so."""

    reader: Reader
    problem: str = ""


class SharedCame(Struct, frozen=True):
    """A message came to a member's client."""

    reader: Reader
    message: StreamMessage


class SharedTaken(Struct, frozen=True):
    """The application has taken it."""

    reader: Reader
    pubend: str
    tick: Tick
    attempt: int


class SharedSaid(Struct, frozen=True):
    """The application says what became of it; or, if `confirmed`, was told that this is on disk."""

    reader: Reader
    pubend: str
    tick: Tick
    attempt: int
    verdict: ShareVerdict
    confirmed: bool


class SharedGapRead(Struct, frozen=True):
    """A member was told that nobody keeps these ticks any more."""

    reader: Reader
    pubend: str
    first: Tick
    last: Tick


class FailedOnDisk(Struct, frozen=True):
    """The disk of a pubend says which messages were tried too often under a shared name."""

    pubend: str
    durable: str
    ticks: tuple[Tick, ...]


SharedFact = (
    FailedOnDisk | SharingBegan | SharingInForce | SharingEnded | SharedCame | SharedTaken | SharedSaid | SharedGapRead
)

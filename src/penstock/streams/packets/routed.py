"""Between any two brokers: what travels inside `Routed`, and `Routed` itself."""

from __future__ import annotations

from typing import Self

from penstock.content.message import Message, MessageLimits
from penstock.kernel.packet import BROKER, CLIENT_NAME_BYTES_MAX, Lane, Packet, check_integers, measured, require
from penstock.overlay.packets import BROKER_ID_MAX, HOPS_MAX, BrokerId
from penstock.streams.packets.common import (
    COMMAND_BYTES_MAX,
    DURABLE_NAME_BYTES_MAX,
    KEY_CHARACTERS_MAX,
    NAMES_MAX,
    PUBLICATION_ID_BYTES_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    WHERE_BYTES_MAX,
    Tick,
    WaitNotice,
    about_pubend,
    check_pubend,
    check_stored,
    check_waiting,
    fits,
)
from penstock.streams.packets.reads import LogSlice, ReadLog
from penstock.streams.packets.shared import Share, SharedHandout, Verdicts, VerdictsStored


class PublishRequest(Packet, frozen=True, gc=False):
    """Store this. `age`: seconds since the publisher first tried. The key is kept with the message."""

    request: int
    pubend: str
    publication_id: str
    age: float
    message: Message
    key: str = ""

    def checked(self, limits: MessageLimits) -> Self:
        about_pubend(self, self.pubend)
        require(fits(self.publication_id, PUBLICATION_ID_BYTES_MAX), "a publication_id")
        require(0.0 <= self.age < 1e9, "the age of a publication")
        require(len(self.key) <= KEY_CHARACTERS_MAX, "a key that is too long")
        message = measured(self.message, limits)
        if message is self.message:
            return self
        return type(self)(self.request, self.pubend, self.publication_id, self.age, message, self.key)

    def size_bytes(self) -> int:
        return 60 + len(self.pubend) + len(self.publication_id) + len(self.key) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.STREAM


class PublishAnswer(Packet, frozen=True, gc=False):
    """It is on disk under this tick; or a problem, which may pass if it is tried `again`.

    `unknown`: an earlier attempt may have been stored, and nobody can tell any more.
    """

    request: int
    pubend: str
    tick: Tick = 0
    problem: str = ""
    again: bool = False
    unknown: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class PublishStored(Packet, frozen=True, gc=False):
    """Several are on disk since the same write: (request, tick)."""

    pubend: str
    stored: tuple[tuple[int, Tick], ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_stored(self.pubend, self.stored)
        return self

    def size_bytes(self) -> int:
        return 20 + len(self.pubend) + 19 * len(self.stored)


class PublishWaits(Packet, frozen=True):
    """These wait at the pubend, because its rate is limited."""

    requests: tuple[int, ...]
    notice: WaitNotice

    def checked(self, limits: MessageLimits) -> Self:
        check_waiting(self.requests, self.notice)
        return self


class Register(Packet, frozen=True):
    """A reader begins under a durable name.

    `position` is what the reader itself has kept, in this epoch; -1: none. It begins at the later of this and what the
    name is done with; with `rewind` at this one, wherever the name stood. `start` counts if the name is new:
    "earliest", "latest", "tick:N", "time:SECONDS" (of the epoch of clocks) or "ago:SECONDS".
    """

    request: int
    pubend: str
    name: str
    where: str
    start: str
    epoch: int
    position: Tick
    reader: str  # a subscription of one life of a client: under the same one it replaces itself, wherever it is now
    takeover: bool
    rewind: bool = False
    share: Share | None = None  # as one member among several
    credit: int = 0  # messages that a member may hold

    def checked(self, limits: MessageLimits) -> Self:
        require(-1 <= self.position <= TICK_MAX, f"position {self.position}")
        if self.share is not None:
            self.share.check()
        check_pubend(self.pubend)
        require(fits(self.name, DURABLE_NAME_BYTES_MAX), "a durable name")
        require(len(self.where) <= WHERE_BYTES_MAX, "a predicate that is too long")
        require(fits(self.reader, CLIENT_NAME_BYTES_MAX + 64), "a reader")
        return self


class Registered(Packet, frozen=True):
    """The subscription is in force for every tick after `position`; or a problem.

    `done` is what the name has acknowledged. `gone_from` is above 0 if the reader has missed something: it is the first
    tick that is kept no longer, and `position` the last.
    """

    request: int
    pubend: str
    name: str
    epoch: int = 0
    session: int = 0
    position: Tick = 0
    done: Tick = 0
    gone_from: Tick = 0
    problem: str = ""
    again: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Unregister(Packet, frozen=True):
    """The reader has left; the name and its position stay."""

    pubend: str
    name: str
    session: int

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Renew(Packet, frozen=True):
    """These sessions of mine live: (durable name, session)."""

    pubend: str
    sessions: tuple[tuple[str, int], ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.sessions) <= NAMES_MAX, f"{len(self.sessions)} sessions in one Renew")
        return about_pubend(self, self.pubend)


class SessionEnded(Packet, frozen=True):
    """You have no such session. Without a problem: register again."""

    pubend: str
    name: str
    session: int
    problem: str = ""

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Progress(Packet, frozen=True):
    """Readers are done with everything up to these ticks: (durable name, session, tick).

    `silent`: nothing was acknowledged but silence, which moves on all the time; nobody waits for an answer.
    """

    pubend: str
    epoch: int
    done: tuple[tuple[str, int, Tick], ...]
    silent: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.done) <= NAMES_MAX, f"{len(self.done)} names in one Progress")
        require(all(0 <= tick <= TICK_MAX for _, _, tick in self.done), "a tick")
        return about_pubend(self, self.pubend)


class ProgressStored(Packet, frozen=True):
    """That is on disk: (pubend, session, tick), of any pubends of one broker."""

    done: tuple[tuple[str, int, Tick], ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.done) <= NAMES_MAX, f"{len(self.done)} sessions in one ProgressStored")
        for pubend, _, _ in self.done:
            check_pubend(pubend)
        return self


class Command(Packet, frozen=True):
    """Do something with a stream: a verb and its arguments as JSON."""

    request: int
    verb: str
    stream: str
    arguments: bytes

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.verb) <= 16, "a verb")
        require(fits(self.stream, STREAM_NAME_BYTES_MAX), "the name of a stream")
        require(len(self.arguments) <= COMMAND_BYTES_MAX, "arguments that are too long")
        check_integers(self)
        return self


class CommandAnswer(Packet, frozen=True):
    """What came of it, as JSON; or a problem."""

    request: int
    report: bytes
    problem: str = ""


ForPubend = PublishRequest | Register | Unregister | Renew | Progress | Verdicts | ReadLog
ForReader = Registered | SessionEnded | ProgressStored | SharedHandout | VerdictsStored | LogSlice
ForPublisher = PublishAnswer | PublishStored | PublishWaits
Payload = ForPubend | ForReader | ForPublisher | Command | CommandAnswer


class Routed(Packet, frozen=True, gc=False):
    """From one broker to another, over those between them."""

    sent_by = (BROKER,)

    to: BrokerId
    origin: BrokerId
    hops_left: int
    payload: Payload

    def checked(self, limits: MessageLimits) -> Self:
        require(0 <= self.to <= BROKER_ID_MAX and 0 <= self.origin <= BROKER_ID_MAX, "a broker id")
        require(0 <= self.hops_left <= HOPS_MAX, f"hops_left is {self.hops_left}; the limit HOPS_MAX is {HOPS_MAX}")
        payload = self.payload.checked(limits)
        return self if payload is self.payload else type(self)(self.to, self.origin, self.hops_left, payload)

    def size_bytes(self) -> int:
        return 12 + self.payload.size_bytes()

    def carried(self) -> Message | None:
        return self.payload.carried()

    def travels_in(self) -> Lane:
        return self.payload.travels_in()

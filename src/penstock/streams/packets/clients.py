"""Between a client and its home broker."""

from __future__ import annotations

from typing import Self

from penstock.content.message import INTEGER_MAX, Message, MessageLimits
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, check_integers, measured, require
from penstock.streams.packets.common import (
    COMMAND_BYTES_MAX,
    DURABLE_NAME_BYTES_MAX,
    KEY_CHARACTERS_MAX,
    PUBENDS_MAX,
    PUBLICATION_ID_BYTES_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    WHERE_BYTES_MAX,
    Item,
    Position,
    Tick,
    WaitNotice,
    about_pubend,
    check_pubend,
    check_stored,
    check_waiting,
    checked_items,
    fits,
)
from penstock.streams.packets.shared import Share


class StreamPublish(Packet, frozen=True, gc=False):
    """Store this in the stream; the key chooses the pubend (empty: the publisher's name does)."""

    sent_by = (CLIENT,)

    request: int
    stream: str
    key: str
    publication_id: str
    age: float
    message: Message

    def checked(self, limits: MessageLimits) -> Self:
        require(0 <= self.request <= INTEGER_MAX, "the number of a request")
        require(fits(self.stream, STREAM_NAME_BYTES_MAX), "the name of a stream")
        require(len(self.key) <= KEY_CHARACTERS_MAX, "a key that is too long")
        require(fits(self.publication_id, PUBLICATION_ID_BYTES_MAX), "a publication_id")
        require(0.0 <= self.age < 1e9, "the age of a publication")
        message = measured(self.message, limits)
        if message is self.message:
            return self
        return type(self)(self.request, self.stream, self.key, self.publication_id, self.age, message)

    def size_bytes(self) -> int:
        return 40 + len(self.stream) + len(self.key) + len(self.publication_id) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.STREAM


class StreamPublished(Packet, frozen=True, gc=False):
    """The answer: on disk at this tick of this pubend; or a problem, which may pass if it is tried `again`.

    `unknown`: an earlier attempt may have been stored, and nobody can tell any more.
    """

    sent_by = (BROKER,)

    request: int
    pubend: str = ""
    tick: Tick = 0
    problem: str = ""
    again: bool = False
    unknown: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        require(0 <= self.request <= INTEGER_MAX and 0 <= self.tick <= TICK_MAX, "the number of a request, or a tick")
        return self

    def size_bytes(self) -> int:
        return 40 + len(self.pubend) + len(self.problem)


class StreamStored(Packet, frozen=True, gc=False):
    """Several are on disk at this pubend: (request, tick)."""

    sent_by = (BROKER,)

    pubend: str
    stored: tuple[tuple[int, Tick], ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_stored(self.pubend, self.stored)
        return self

    def size_bytes(self) -> int:
        return 20 + len(self.pubend) + 19 * len(self.stored)


class StreamWaits(Packet, frozen=True):
    """These wait at a pubend, because its rate is limited: they will be stored when their turn comes."""

    sent_by = (BROKER,)

    requests: tuple[int, ...]
    notice: WaitNotice

    def checked(self, limits: MessageLimits) -> Self:
        check_waiting(self.requests, self.notice)
        return self


class DurableSubscribe(Packet, frozen=True):
    """Serve me what matches under a durable name. `positions` is what the reader has kept itself."""

    sent_by = (CLIENT,)

    request: int
    subscription: int
    stream: str
    name: str
    where: str
    start: str
    positions: tuple[Position, ...]
    takeover: bool
    credit: int  # messages that may be sent before the first Take
    incarnation: int = 0  # of the client: the same client may take its own place
    rewind: bool = False  # the application has chosen the positions itself: they count even if the name is further
    share: Share | None = None  # as one member among several; it may hold `credit` messages

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        if self.share is not None:
            self.share.check()
        require(len(self.stream) <= 4 * STREAM_NAME_BYTES_MAX, "the name of a stream")
        require(len(self.name) <= 4 * DURABLE_NAME_BYTES_MAX, "a durable name that is too long")
        require(len(self.where) <= WHERE_BYTES_MAX, "a predicate that is too long")
        require(len(self.start) <= 64, "a start that is too long")
        require(len(self.positions) <= PUBENDS_MAX, f"{len(self.positions)} positions")
        for pubend, epoch, tick in self.positions:
            check_pubend(pubend)
            require(0 <= epoch <= TICK_MAX and 0 <= tick <= TICK_MAX, "a position")
        return self


class DurableAnswer(Packet, frozen=True):
    """It is in force for every tick after these; or a problem."""

    sent_by = (BROKER,)

    request: int
    subscription: int
    positions: tuple[Position, ...] = ()
    problem: str = ""
    again: bool = False


class DurableLeave(Packet, frozen=True):
    """Serve it no more; the name and its position stay."""

    sent_by = (CLIENT,)

    subscription: int


class StreamDelivery(Packet, frozen=True, gc=False):
    """All that matches after the tick `after`, up to and with `upto`; or, if `gap`, that nobody keeps it any more."""

    sent_by = (BROKER,)

    subscription: int
    pubend: str
    epoch: int
    after: Tick
    upto: Tick
    items: tuple[Item, ...]
    gap: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        about_pubend(self, self.pubend)
        require(self.after <= self.upto <= TICK_MAX, f"ticks after {self.after} up to {self.upto}")
        items = checked_items(self.items, self.after + 1, self.upto, limits)
        if items is self.items:
            return self
        return type(self)(self.subscription, self.pubend, self.epoch, self.after, self.upto, items, self.gap)

    def size_bytes(self) -> int:
        return 50 + len(self.pubend) + sum(10 + message.size_bytes for _, message in self.items)

    def travels_in(self) -> Lane:
        return Lane.STREAM

    def carried(self) -> Message | None:
        return self.items[0][1] if self.items else None


class Take(Packet, frozen=True):
    """So many messages, counted since DurableSubscribe, may be sent for this subscription; so many have come."""

    sent_by = (CLIENT,)

    subscription: int
    messages_in_all: int
    messages_received: int


class Acknowledge(Packet, frozen=True):
    """The application is done with everything up to this tick."""

    sent_by = (CLIENT,)

    subscription: int
    pubend: str
    epoch: int
    tick: Tick

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Acknowledged(Packet, frozen=True):
    """That is on disk at the pubend."""

    sent_by = (BROKER,)

    subscription: int
    pubend: str
    epoch: int
    tick: Tick


class Resume(Packet, frozen=True):
    """Something did not come, or may not have: go back to this tick.

    So many messages have come since DurableSubscribe, those that were no use included: the others that were sent do not
    count against what a Take allows.
    """

    sent_by = (CLIENT,)

    subscription: int
    pubend: str
    epoch: int
    tick: Tick
    messages_received: int

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class DurableEnded(Packet, frozen=True):
    """It is served no longer, for this reason."""

    sent_by = (BROKER,)

    subscription: int
    problem: str


class StreamCommand(Packet, frozen=True):
    """Do something with a stream: a verb (add, ls, info, trim, rm, verify, failed) and its arguments as JSON."""

    sent_by = (CLIENT,)

    request: int
    verb: str
    stream: str
    arguments: bytes

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(len(self.verb) <= 16 and len(self.stream) <= 4 * STREAM_NAME_BYTES_MAX, "a verb and a stream")
        require(len(self.arguments) <= COMMAND_BYTES_MAX, "arguments that are too long")
        return self


class StreamReport(Packet, frozen=True):
    """What came of a command, as JSON; or a problem."""

    sent_by = (BROKER,)

    request: int
    report: bytes
    problem: str = ""

"""The packets of streams.

Between neighbours, hop by hop, each about one pubend:
    Join, JoinRefresh, JoinWanted, Leave   downstream tells upstream what it wants, as a set of filters with a version
    Knowledge    downstream: what every tick of a range is, as far as the receiver's filters select it
    Nack         upstream: ranges of ticks that the sender knows nothing of
    Advert       flooded: who a broker is, and which pubends it hosts
    AdvertsWanted   of a new neighbour: tell me all adverts that you know

Between any two brokers, carried along the shortest path (`Routed`), lost like everything else, asked again by whoever
waits for the answer:
    PublishRequest, PublishAnswer                  a message for a pubend; the tick under which it is on disk
    Register, Registered, Unregister, Renew        a reader begins, ends, and lives on under a durable name
    SessionEnded                                   the pubend knows no such session, or another reader took over
    Progress, ProgressStored                       a reader has acknowledged up to a tick; that is on disk
    Command, CommandAnswer                         add, info, trim, rm, verify

Between a client and its home broker:
    StreamPublish, DurableSubscribe, DurableLeave, Take, Acknowledge, Resume, StreamCommand   from the client
    StreamPublished, DurableAnswer, StreamDelivery, Acknowledged, DurableEnded, StreamReport  from the broker

A pubend is named `stream/number`. Its *epoch* is drawn when it is made and tells it from one of the same name that was
removed before: ticks of another epoch mean nothing. Ranges of ticks include both ends. A version of interest counts
within one life of the broker that joined, so it travels with that broker's incarnation (`life`).
"""

from __future__ import annotations

from typing import Self, TypeVar

from msgspec.structs import replace

from penstock.content.message import Message, MessageLimits
from penstock.kernel.packet import (
    BROKER,
    CLIENT,
    CLIENT_NAME_BYTES_MAX,
    Lane,
    Packet,
    check_integers,
    increasing,
    measured,
    require,
)
from penstock.overlay.packets import BROKER_ID_MAX, HOPS_MAX, BrokerId

P = TypeVar("P", bound=Packet)
Tick = int  # microseconds of the pubend's clock, which never goes back

TICK_MAX = (1 << 62) - 1
STREAM_NAME_BYTES_MAX = 64
DURABLE_NAME_BYTES_MAX = 128
PUBLICATION_ID_BYTES_MAX = 64
WHERE_BYTES_MAX = 16_384
PUBENDS_MAX = 64  # of one stream
ADVERTISED_MAX = 1_024  # pubends of one broker
FILTERS_MAX = 512  # of one Join; more than that and everything passes
FILTER_BYTES_MAX = 48 << 10  # all of them together
RANGES_MAX = 64  # of one Nack
ITEMS_MAX = 512  # messages of one Knowledge or StreamDelivery
NAMES_MAX = 256  # durable names of one Renew, Progress or ProgressStored
COMMAND_BYTES_MAX = 1 << 18

Range = tuple[Tick, Tick]  # both ends included
Item = tuple[Tick, Message]  # a d tick
Position = tuple[str, int, Tick]  # pubend, epoch, and the tick up to which it is done with


# Between neighbours.


class Advert(Packet, frozen=True):
    """This broker is there, under this name, and hosts these pubends: (stream, number, of how many, epoch)."""

    sent_by = (BROKER,)

    origin: BrokerId
    incarnation: int
    version: int
    name: str
    stores: bool  # whether it can host pubends
    pubends: tuple[tuple[str, int, int, int], ...] = ()

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.origin <= BROKER_ID_MAX, f"broker id {self.origin}")
        require(_fits(self.name, CLIENT_NAME_BYTES_MAX), "the name of a broker")
        require(len(self.pubends) <= ADVERTISED_MAX, f"{len(self.pubends)} pubends of one broker")
        for stream, number, of, epoch in self.pubends:
            require(_fits(stream, STREAM_NAME_BYTES_MAX), "the name of a stream")
            require(0 <= number < of <= PUBENDS_MAX, f"pubend {number} of {of}")
            require(0 < epoch <= TICK_MAX, f"epoch {epoch}")
        return self


class AdvertsWanted(Packet, frozen=True):
    """I am new here: tell me who hosts what."""

    sent_by = (BROKER,)


class Join(Packet, frozen=True):
    """Send me knowledge of this pubend; of data only what these filters select (none at all: everything)."""

    sent_by = (BROKER,)

    pubend: str
    life: int
    version: int
    filters: tuple[bytes, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_pubend(self.pubend)
        require(len(self.filters) <= FILTERS_MAX, f"{len(self.filters)} filters in one Join")
        require(sum(map(len, self.filters)) <= FILTER_BYTES_MAX, "filters that are too long")
        return self


class JoinRefresh(Packet, frozen=True):
    """I still want it, as my Join of this version said."""

    sent_by = (BROKER,)

    pubend: str
    life: int
    version: int

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


class JoinWanted(Packet, frozen=True):
    """I do not know your Join: send it."""

    sent_by = (BROKER,)

    pubend: str

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


class Leave(Packet, frozen=True):
    """I want no more of it."""

    sent_by = (BROKER,)

    pubend: str

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


class Knowledge(Packet, frozen=True, gc=False):
    """What every tick from `first` to `last` is: data if it is listed, otherwise silence.

    Silence may be data that the receiver's filters of this version do not select. `gone` is the newest tick that the
    pubend keeps no longer: whatever was there up to it is final. `cut`: an answer to a Nack ends here, because it would
    have been too long; ask on.
    """

    sent_by = (BROKER,)
    as_datagram = True
    large_by_connection = True

    pubend: str
    epoch: int
    life: int
    version: int
    first: Tick
    last: Tick
    data: tuple[Item, ...] = ()
    gone: Tick = 0
    cut: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        _about_pubend(self, self.pubend)
        require(0 < self.first <= self.last <= TICK_MAX, f"ticks from {self.first} to {self.last}")
        data = _items(self.data, self.first, self.last, limits)
        if data is self.data:
            return self
        return replace(self, data=data)

    def size_bytes(self) -> int:
        return 50 + len(self.pubend) + sum(10 + message.size_bytes for _, message in self.data)

    def travels_in(self) -> Lane:
        return Lane.STREAM

    def carried(self) -> Message | None:
        return self.data[0][1] if self.data else None


class Nack(Packet, frozen=True):
    """I know nothing of these ticks; my filters are those of this version."""

    sent_by = (BROKER,)
    as_datagram = True

    pubend: str
    life: int
    version: int
    ranges: tuple[Range, ...]

    def checked(self, limits: MessageLimits) -> Self:
        _about_pubend(self, self.pubend)
        require(0 < len(self.ranges) <= RANGES_MAX, f"{len(self.ranges)} ranges in one Nack")
        require(increasing(tuple(first for first, _ in self.ranges)), "ranges must increase")
        good = all(0 < first <= last <= TICK_MAX for first, last in self.ranges)
        require(good, "a range that ends before it begins")
        return self


# Between any two brokers. What follows travels inside `Routed`.


class PublishRequest(Packet, frozen=True):
    """Store this. `age`: seconds since the publisher first tried."""

    request: int
    pubend: str
    publication_id: str
    age: float
    message: Message

    def checked(self, limits: MessageLimits) -> Self:
        _about_pubend(self, self.pubend)
        require(_fits(self.publication_id, PUBLICATION_ID_BYTES_MAX), "a publication_id")
        require(0.0 <= self.age < 1e9, f"age {self.age}")
        message = measured(self.message, limits)
        if message is self.message:
            return self
        return type(self)(self.request, self.pubend, self.publication_id, self.age, message)

    def size_bytes(self) -> int:
        return 60 + len(self.pubend) + len(self.publication_id) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.STREAM


class PublishAnswer(Packet, frozen=True):
    """It is on disk under this tick; or a problem, which may pass if it is tried `again`."""

    request: int
    pubend: str
    tick: Tick = 0
    problem: str = ""
    again: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


class Register(Packet, frozen=True):
    """A reader begins under a durable name.

    `position` is what the reader itself has kept, in this epoch; -1: none. It begins at the later of this and what the
    name is done with; with `rewind` at this one, wherever the name stood. `start` counts if the name is new: "earliest",
    "latest", "tick:N", "time:SECONDS" (of the epoch of clocks) or "ago:SECONDS".
    """

    request: int
    pubend: str
    name: str
    where: str
    start: str
    epoch: int
    position: Tick
    reader: str  # whoever registers again under the same one replaces itself
    takeover: bool
    rewind: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        require(-1 <= self.position <= TICK_MAX, f"position {self.position}")
        _check_pubend(self.pubend)
        require(_fits(self.name, DURABLE_NAME_BYTES_MAX), "a durable name")
        require(len(self.where) <= WHERE_BYTES_MAX, "a predicate that is too long")
        require(_fits(self.reader, 2 * CLIENT_NAME_BYTES_MAX), "a reader")
        return self


class Registered(Packet, frozen=True):
    """The subscription is in force for every tick after `position`; or a problem.

    `done` is what the name has acknowledged. `gone_from` is above 0 if the reader has missed what was between it and
    `position`.
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
        return _about_pubend(self, self.pubend)


class Unregister(Packet, frozen=True):
    """The reader has left; the name and its position stay."""

    pubend: str
    name: str
    session: int

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


class Renew(Packet, frozen=True):
    """These sessions of mine live: (durable name, session)."""

    pubend: str
    sessions: tuple[tuple[str, int], ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.sessions) <= NAMES_MAX, f"{len(self.sessions)} sessions in one Renew")
        return _about_pubend(self, self.pubend)


class SessionEnded(Packet, frozen=True):
    """You have no such session. Without a problem: register again."""

    pubend: str
    name: str
    session: int
    problem: str = ""

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


class Progress(Packet, frozen=True):
    """Readers are done with everything up to these ticks: (durable name, session, tick)."""

    pubend: str
    epoch: int
    done: tuple[tuple[str, int, Tick], ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.done) <= NAMES_MAX, f"{len(self.done)} names in one Progress")
        require(all(0 <= tick <= TICK_MAX for _, _, tick in self.done), "a tick")
        return _about_pubend(self, self.pubend)


class ProgressStored(Packet, frozen=True):
    """That is on disk: (durable name, session, tick)."""

    pubend: str
    epoch: int
    done: tuple[tuple[str, int, Tick], ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.done) <= NAMES_MAX, f"{len(self.done)} names in one ProgressStored")
        return _about_pubend(self, self.pubend)


class Command(Packet, frozen=True):
    """Do something with a stream: a verb and its arguments as JSON."""

    request: int
    verb: str
    stream: str
    arguments: bytes

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.verb) <= 16, "a verb")
        require(_fits(self.stream, STREAM_NAME_BYTES_MAX), "the name of a stream")
        require(len(self.arguments) <= COMMAND_BYTES_MAX, "arguments that are too long")
        check_integers(self)
        return self


class CommandAnswer(Packet, frozen=True):
    """What came of it, as JSON; or a problem."""

    request: int
    report: bytes
    problem: str = ""


Payload = (
    PublishRequest
    | PublishAnswer
    | Register
    | Registered
    | Unregister
    | Renew
    | SessionEnded
    | Progress
    | ProgressStored
    | Command
    | CommandAnswer
)


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


# Between a client and its home broker.


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
        check_integers(self)
        require(_fits(self.stream, STREAM_NAME_BYTES_MAX), "the name of a stream")
        require(len(self.key) <= 256, "a key of more than 256 characters")
        require(_fits(self.publication_id, PUBLICATION_ID_BYTES_MAX), "a publication_id")
        require(0.0 <= self.age < 1e9, f"age {self.age}")
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


class StreamPublished(Packet, frozen=True):
    """The answer: on disk at this tick of this pubend; or a problem, which may pass if it is tried `again`."""

    sent_by = (BROKER,)

    request: int
    pubend: str = ""
    tick: Tick = 0
    problem: str = ""
    again: bool = False


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

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(len(self.stream) <= 4 * STREAM_NAME_BYTES_MAX, "the name of a stream")
        require(len(self.name) <= 4 * DURABLE_NAME_BYTES_MAX, "a durable name that is too long")
        require(len(self.where) <= WHERE_BYTES_MAX, "a predicate that is too long")
        require(len(self.start) <= 64, "a start that is too long")
        require(len(self.positions) <= PUBENDS_MAX, f"{len(self.positions)} positions")
        for pubend, epoch, tick in self.positions:
            _check_pubend(pubend)
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
        _about_pubend(self, self.pubend)
        require(self.after <= self.upto <= TICK_MAX, f"ticks after {self.after} up to {self.upto}")
        items = _items(self.items, self.after + 1, self.upto, limits)
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
    """So many messages, counted since DurableSubscribe, may be sent for this subscription."""

    sent_by = (CLIENT,)

    subscription: int
    messages_in_all: int


class Acknowledge(Packet, frozen=True):
    """The application is done with everything up to this tick."""

    sent_by = (CLIENT,)

    subscription: int
    pubend: str
    epoch: int
    tick: Tick

    def checked(self, limits: MessageLimits) -> Self:
        return _about_pubend(self, self.pubend)


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
        return _about_pubend(self, self.pubend)


class DurableEnded(Packet, frozen=True):
    """It is served no longer, for this reason."""

    sent_by = (BROKER,)

    subscription: int
    problem: str


class StreamCommand(Packet, frozen=True):
    """Do something with a stream: a verb (add, ls, info, trim, rm, verify) and its arguments as JSON."""

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


BROKER_PACKETS: tuple[type[Packet], ...] = (
    Advert,
    AdvertsWanted,
    Join,
    JoinRefresh,
    JoinWanted,
    Leave,
    Knowledge,
    Nack,
    Routed,
)
FROM_CLIENT: tuple[type[Packet], ...] = (
    StreamPublish,
    DurableSubscribe,
    DurableLeave,
    Take,
    Acknowledge,
    Resume,
    StreamCommand,
)
TO_CLIENT: tuple[type[Packet], ...] = (
    StreamPublished,
    DurableAnswer,
    StreamDelivery,
    Acknowledged,
    DurableEnded,
    StreamReport,
)


# Names, and parts of checks.


def pubend_name(stream: str, number: int) -> str:
    return f"{stream}/{number}"


def stream_of(pubend: str) -> str:
    return pubend.rpartition("/")[0]


def name_problem(name: str, what: str, bytes_max: int) -> str:
    """Why this is no name for a stream or a durable subscription; empty if it is one."""
    if not name:
        return f"{what} is empty; give it a name, such as 'orders'"
    if len(name.encode(errors="replace")) > bytes_max:
        return f"{what} of {len(name)} characters; the limit is {bytes_max} bytes"
    if not all(letter.isalnum() or letter in "-_.:" for letter in name):
        return f"{what} '{name}' may have letters, digits, and - _ . : only"
    return ""


def _fits(text: str, bytes_max: int) -> bool:
    return 0 < len(text.encode(errors="replace")) <= bytes_max


def _check_pubend(pubend: str) -> None:
    stream, _, number = pubend.rpartition("/")
    require(_fits(stream, STREAM_NAME_BYTES_MAX) and number.isdecimal() and len(number) <= 3, "the name of a pubend")


def _about_pubend(packet: P, pubend: str) -> P:
    check_integers(packet)
    _check_pubend(pubend)
    return packet


def _items(items: tuple[Item, ...], first: Tick, last: Tick, limits: MessageLimits) -> tuple[Item, ...]:
    """Ticks that grow within the range, each with a message that was measured; the same tuple if all were."""
    if not items:
        return items
    require(len(items) <= ITEMS_MAX, f"{len(items)} messages in one packet")
    ticks = tuple(tick for tick, _ in items)
    require(increasing(ticks) and first <= ticks[0] and ticks[-1] <= last, "ticks of data must grow within the range")
    found = tuple((tick, measured(message, limits)) for tick, message in items)
    return items if all(new[1] is old[1] for new, old in zip(found, items, strict=True)) else found

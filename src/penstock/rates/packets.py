"""The packets of fair rates.

LinkRate   a broker, against the way of the data, to the homes of those who send over its link: so much each
RateHeard  a home, back to that broker: heard; so that it knows how long its word takes
ReaderRate a client to its broker: one of my subscriptions takes so many messages per second
ClientTerms      a client to its broker: what to do with messages of mine, and for me, for which a link has no room
WithheldNotice   a broker to its client: messages that you published, or wanted, were withheld
WithheldFrom     a home to another broker: these were withheld from you
ReadersWithheld  a broker, against the way of the data, to homes: these were withheld from slow readers of mine
"""

from __future__ import annotations

from math import isfinite
from typing import Literal, Self

from msgspec import Struct

from penstock.content.message import MessageLimits
from penstock.errors import InvalidHeader, InvalidPacket
from penstock.kernel.number_ranges import WrittenRanges, read_ranges
from penstock.kernel.packet import BROKER, CLIENT, CLIENT_NAME_BYTES_MAX, Packet, check_integers, require
from penstock.overlay.packets import BROKER_ID_MAX, BrokerId
from penstock.rates.config import Keep, WhenFull

RATE_MIN, RATE_MAX = 1e-3, 1e15  # bytes per second; what is told lies between
VERSION_MAX = 1 << 53
NOTES_MAX = 50  # in one packet
SECONDS_MAX = 1e9
NO_SUBSCRIPTION = -1


class LinkRate(Packet, frozen=True):
    """Each publisher may send so many bytes per second over the link from `origin` to `neighbour`."""

    sent_by = (BROKER,)

    origin: BrokerId
    life: int  # of the origin
    neighbour: BrokerId
    version: int
    rate: float

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.origin <= BROKER_ID_MAX, "the origin is no broker id")
        require(self.neighbour <= BROKER_ID_MAX, "the neighbour is no broker id")
        require(self.version < VERSION_MAX, f"version {self.version}")
        require(isfinite(self.rate) and RATE_MIN <= self.rate <= RATE_MAX, f"a rate of {self.rate}")
        return self


class RateHeard(Packet, frozen=True):
    """`home` has heard version `version` of the rate of the link from `origin` to `neighbour`."""

    sent_by = (BROKER,)

    origin: BrokerId
    neighbour: BrokerId
    version: int
    home: BrokerId

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(max(self.origin, self.neighbour, self.home) <= BROKER_ID_MAX, "that is no broker id")
        require(self.version < VERSION_MAX, f"version {self.version}")
        return self


class ReaderRate(Packet, frozen=True):
    """This subscription takes so many messages per second, 0: any number; of the rest the newest may wait."""

    sent_by = (CLIENT,)

    subscription: int
    rate: float
    newest: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(isfinite(self.rate) and 0.0 <= self.rate <= RATE_MAX, f"a rate of {self.rate}")
        return self


class ClientTerms(Packet, frozen=True):
    """What becomes of messages for which a link has no room, as long as the connection lasts.

    Of this client's own messages (`when_full`), and of those for it that the link to it has no room for (`keep`).
    """

    sent_by = (CLIENT,)

    when_full: WhenFull = "thin"
    keep: Keep = "oldest"


class Note(Struct, frozen=True, array_like=True):
    """Whose messages were withheld, by which link, from whom, how many and since when."""

    publisher: str
    link: tuple[str, str]  # the broker before it, and the broker or client behind it
    rate: float  # bytes per second of each publisher, 0: unlimited again; of a slow reader, messages per second
    to: str  # the broker that did not get them, or the client
    messages: int
    size_bytes: int
    seconds: float  # since the first of them
    life: int = 0  # of the publisher
    counts: WrittenRanges = ()  # of their identities, if they have headers of the transport
    slow_reader: bool = False  # whether a client did not get them that reads slowly
    subscription: int = NO_SUBSCRIPTION  # which one of it
    next_word: float = 0.0  # seconds until there may be room for more word of it; 0: as soon as there is any


class WithheldNotice(Packet, frozen=True):
    """A broker has withheld, or been told of, messages that this client published, or that it or others here wanted."""

    sent_by = (BROKER,)

    role: Literal["publisher", "reader"]  # what the client is to them
    notes: tuple[Note, ...]
    left_off: int = 0  # messages of notes that found no room

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_notes(self.notes)
        return self


class WithheldFrom(Packet, frozen=True):
    """A home has withheld messages of its clients from one broker."""

    sent_by = (BROKER,)

    destination: BrokerId
    home: BrokerId
    notes: tuple[Note, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(max(self.destination, self.home) <= BROKER_ID_MAX, "that is no broker id")
        _check_notes(self.notes)
        return self


class ReadersWithheld(Packet, frozen=True):
    """A broker has withheld messages from clients of its own that read slowly."""

    sent_by = (BROKER,)

    broker: BrokerId
    life: int
    notes: tuple[Note, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.broker <= BROKER_ID_MAX, "that is no broker id")
        _check_notes(self.notes)
        return self


def _check_notes(notes: tuple[Note, ...]) -> None:
    require(len(notes) <= NOTES_MAX, f"{len(notes)} notes; the limit is {NOTES_MAX}")
    for note in notes:
        names = (note.publisher, *note.link, note.to)
        require(max(map(len, names)) <= CLIENT_NAME_BYTES_MAX, "a name that is too long")
        require(isfinite(note.rate) and 0.0 <= note.rate <= RATE_MAX, f"a rate of {note.rate}")
        for seconds in (note.seconds, note.next_word):
            require(isfinite(seconds) and 0.0 <= seconds <= SECONDS_MAX, f"{seconds} seconds")
        numbers = (note.messages, note.size_bytes, note.life)
        require(min(numbers) >= 0 and max(numbers) < VERSION_MAX, "a count that cannot be")
        require(NO_SUBSCRIPTION <= note.subscription < VERSION_MAX, "a number of no subscription")
        try:
            read_ranges(note.counts)
        except InvalidHeader as error:
            raise InvalidPacket(str(error)) from None

"""What the packets of streams have in common: ticks, names, limits, and the parts of their checks."""

from __future__ import annotations

from math import isfinite
from typing import TypeVar

from msgspec import Struct

from penstock.content.message import INTEGER_MAX, Message, MessageLimits
from penstock.kernel.packet import CLIENT_NAME_BYTES_MAX, Packet, check_integers, measured, require

P = TypeVar("P", bound=Packet)
Tick = int  # microseconds of the pubend's clock, which never goes back

TICK_MAX = (1 << 62) - 1
STREAM_NAME_BYTES_MAX = 64
DURABLE_NAME_BYTES_MAX = 128
PUBLICATION_ID_BYTES_MAX = 64
KEY_CHARACTERS_MAX = 256
WHERE_BYTES_MAX = 16_384
PUBENDS_MAX = 64  # of one stream
ADVERTISED_MAX = 1_024  # pubends of one broker
FILTERS_MAX = 512  # of one Join; more than that and everything passes
FILTER_BYTES_MAX = 48 << 10  # all of them together
RANGES_MAX = 64  # of one Nack
ITEMS_MAX = 512  # messages of one Knowledge or StreamDelivery
NAMES_MAX = 256  # durable names of one Renew, Progress or ProgressStored
STORED_MAX = 1_024  # publications of one answer
WAITING_MAX = 512  # publications of one PublishWaits
COMMAND_BYTES_MAX = 1 << 18

Range = tuple[Tick, Tick]  # both ends included
Item = tuple[Tick, Message]  # a d tick
Position = tuple[str, int, Tick]  # pubend, epoch, and the tick up to which it is done with


class WaitNotice(Struct, frozen=True, array_like=True):
    """A pubend takes no more than so many publications per second: some wait, and none of them is lost."""

    pubend: str
    rate: float
    limited_for: float  # seconds
    edge: str  # the broker with the lowest pace; empty: nobody knows
    recovering: bool  # it catches up, too slowly; otherwise it cannot keep up
    pace: float  # of that broker: seconds of ticks per second
    again_in: float  # seconds until the next notice comes, if it still waits then

    def check(self) -> None:
        check_pubend(self.pubend)
        numbers = (self.rate, self.limited_for, self.pace, self.again_in)
        require(all(isfinite(number) and number >= 0.0 for number in numbers), "a rate or a time")
        require(self.again_in <= 3_600.0, "a notice that comes too late")
        require(not self.edge or fits(self.edge, CLIENT_NAME_BYTES_MAX), "the name of a broker")


def check_waiting(requests: tuple[int, ...], notice: WaitNotice) -> None:
    """The parts of a packet that tells of waiting publications."""
    require(0 < len(requests) <= WAITING_MAX, f"{len(requests)} publications in one notice")
    require(all(0 <= request < 2**64 for request in requests), "the number of a request")
    notice.check()


def pubend_name(stream: str, number: int) -> str:
    return f"{stream}/{number}"


def stream_of(pubend: str) -> str:
    return pubend.rpartition("/")[0]


def client_of(reader: str) -> str:
    """The name of the client that reads: a reader is one subscription of one of its lives (`client/life/number`)."""
    return reader.rsplit("/", 2)[0]


def name_problem(name: str, what: str, bytes_max: int) -> str:
    """Why this is no name for a stream or a durable subscription; empty if it is one."""
    if not name:
        return f"{what} is empty; give it a name, such as 'orders'"
    if len(name.encode(errors="replace")) > bytes_max:
        return f"{what} of {len(name)} characters; the limit is {bytes_max} bytes"
    if not name.isalnum() and not all(letter.isalnum() or letter in "-_.:" for letter in name):
        return f"{what} '{name}' may have letters, digits, and - _ . : only"
    return ""


def check_stored(pubend: str, stored: tuple[tuple[int, Tick], ...]) -> None:
    """Requests, each with the tick under which it is on disk."""
    check_pubend(pubend)
    require(0 < len(stored) <= STORED_MAX, f"{len(stored)} publications in one answer")
    requests, ticks = zip(*stored, strict=True)
    require(min(requests) >= 0 and max(requests) <= INTEGER_MAX, "the number of a request")
    require(min(ticks) > 0 and max(ticks) <= TICK_MAX, "a tick")


def fits(text: str, bytes_max: int) -> bool:
    return 0 < (len(text) if text.isascii() else len(text.encode(errors="replace"))) <= bytes_max


def check_pubend(pubend: str) -> None:
    stream, _, number = pubend.rpartition("/")
    require(fits(stream, STREAM_NAME_BYTES_MAX) and number.isdecimal() and len(number) <= 3, "the name of a pubend")


def about_pubend(packet: P, pubend: str) -> P:
    check_integers(packet)
    check_pubend(pubend)
    return packet


def checked_items(items: tuple[Item, ...], first: Tick, last: Tick, limits: MessageLimits) -> tuple[Item, ...]:
    """Ticks that grow within the range, each with a message that was measured; the same tuple if all were."""
    if not items:
        return items
    require(len(items) <= ITEMS_MAX, f"{len(items)} messages in one packet")
    before, changed = first - 1, False
    for tick, message in items:
        require(before < tick, "ticks of data must grow within the range")
        before = tick
        if measured(message, limits) is not message:
            changed = True
    require(before <= last, "ticks of data must grow within the range")
    return tuple((tick, measured(message, limits)) for tick, message in items) if changed else items

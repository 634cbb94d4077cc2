"""What crosses a link, and in which lane.

Each kind of packet belongs to one service and says all about itself: who may send it, whether it may travel as a
datagram, how large it is, and what makes it invalid beyond its types (`checked`). The codec, what each role may send
and what goes by UDP are derived from that.

A *lane* is a class of traffic. It decides the queue in which a packet waits, and it stands on the wire in every packet
that carries a message, so that all brokers on the way treat the message alike. Control goes first; the data lanes share
a link by weight. What services send each other to keep data in check (feedback, requests, questions) is carried as
messages, in a lane of its own: it neither waits behind data nor loses its place to it. It does not go first, because
any client can send it; its messages are short, and its share of a link is bounded like any other's.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import ClassVar, Self

import msgspec
from msgspec import Struct

from penstock.content.message import INTEGER_MAX, Message, MessageLimits, make_message, plain_size
from penstock.errors import InvalidMessage, InvalidPacket

CLIENT_NAME_BYTES_MAX = 128
_encode = msgspec.msgpack.Encoder().encode

BROKER = "broker"
CLIENT = "client"


class Lane(IntEnum):
    """Who a packet travels for."""

    CONTROL = 0
    STREAM = 1
    PRICED = 2
    TRANSPORT = 3
    BEST_EFFORT = 4
    SERVICE_CONTROL = 5


SERVICE_CONTROL_BYTES_MAX = 60_000  # of a message in that lane: it fits a datagram
DATA_LANES = tuple(lane for lane in Lane if lane is not Lane.CONTROL)


class Packet(Struct, frozen=True, array_like=True, tag=True):
    """The base of all kinds."""

    sent_by: ClassVar[tuple[str, ...]] = ()  # the roles that may send it: BROKER, CLIENT, or both
    as_datagram: ClassVar[bool] = False  # on a datagram link it goes by UDP; everything else takes the connection
    large_by_connection: ClassVar[bool] = False  # and if it fits no datagram, by the connection; else it is dropped

    def size_bytes(self) -> int:
        """How long it is on the wire; kinds that travel often know it without encoding themselves."""
        return len(_encode(self))

    def carried(self) -> Message | None:
        """The message in it, if there is one: the record of its loss names it."""
        return None

    def travels_in(self) -> Lane:
        """The lane that it is sent in; kinds that travel in a data lane say so, because credit counts them by it."""
        return Lane.CONTROL

    def meant_for(self) -> int:
        """How many nodes miss it if it is lost here."""
        return 1

    def checked(self, limits: MessageLimits) -> Self:
        """Itself, if it is valid beyond its types; raises InvalidPacket. Kinds with rules of their own override it."""
        check_integers(self)
        return self


# Parts of checks.


def require(holds: bool, problem: str) -> None:
    """Raise InvalidPacket unless it holds."""
    if not holds:
        raise InvalidPacket(problem)


def increasing(numbers: tuple[int, ...]) -> bool:
    """Whether each number is larger than the one before."""
    return all(a < b for a, b in pairwise(numbers))


def check_integers(packet: Packet) -> None:
    """Every integer field is a count or a number of something: never negative, never beyond 64 bits."""
    for name in packet.__struct_fields__:
        value = getattr(packet, name)
        if isinstance(value, int) and not 0 <= value <= 2**64 - 1:
            raise InvalidPacket(f"{type(packet).__name__}.{name} is {value}")


def measured(message: Message, limits: MessageLimits) -> Message:
    """The message, checked; the same object if the peer has measured it as we do, otherwise with our size."""
    identity = message.identity
    publisher = identity.publisher
    if not (0 <= identity.count <= INTEGER_MAX and 0 <= identity.incarnation <= INTEGER_MAX):
        raise InvalidPacket("incarnation or count is no count")
    if not 0 < len(publisher) <= CLIENT_NAME_BYTES_MAX:
        raise InvalidPacket("publisher name is empty or too long")
    if plain_size(identity, message.attributes, message.body, limits, True) == message.size_bytes != 0:
        return message
    if not publisher.isascii() and len(publisher.encode()) > CLIENT_NAME_BYTES_MAX:
        raise InvalidPacket("publisher name is empty or too long")
    try:
        return make_message(identity, message.attributes, message.body, limits=limits, reserved=True)
    except InvalidMessage as error:
        raise InvalidPacket(str(error)) from None

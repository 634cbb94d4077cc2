"""The packets of the broker network.

Between brokers:
    Hello        every interval on every link: I am alive, and this is a hash of all versions I know
    LinkState    who an origin's neighbours are; flooded
    Interest     what an origin's clients want, as a change since version `base`; flooded
    Summary      all versions that the sender knows; sent when hashes differ, answered with whatever is newer
    ConfirmRequest, Confirmation   does everybody behind you have this version of an origin's interest? They do
    Publication  a message, and the brokers that this copy is still meant for

Between a client and its home broker:
    Attach, Subscribe, Unsubscribe, ReadyRequest, Publish   from the client
    Answer, Ready, Delivery                                 from the broker

Brokers have small integer ids. A broker's incarnation grows with every restart and beats any version of an older
life. Interest travels as entries of bytes (`interest_form`). Nothing a peer sends is believed: sizes are counted again,
and a destination set that is not strictly increasing is refused, because a broker named twice would get the message
twice.
"""

from __future__ import annotations

from typing import Self

from penstock.content.message import Message, MessageLimits
from penstock.errors import InvalidPacket
from penstock.kernel.packet import (
    BROKER,
    CLIENT,
    CLIENT_NAME_BYTES_MAX,
    SERVICE_CONTROL_BYTES_MAX,
    Lane,
    Packet,
    check_integers,
    increasing,
    measured,
    require,
)

BrokerId = int

_CONTROL, _SERVICE_CONTROL = Lane.CONTROL, Lane.SERVICE_CONTROL  # looked up for every message

BROKER_ID_MAX = 65_535
DESTINATIONS_MAX = 4096  # as many as there may be brokers (RoutingConfig.brokers_max)
HOPS_MAX = 255
COST_MAX = 65_535
SNAPSHOT_PARTS_MAX = 4096
INTEREST_ENTRIES_MAX = 256  # in one packet: 128 of each kind
INTEREST_BYTES_MAX = 1 << 16  # two packets' worth of entries, or one entry of the longest kind each
UNCONFIRMED_MAX = 16  # brokers that are named
READY_WITHIN_MAX = 30.0  # seconds that a client may wait for all brokers


class Hello(Packet, frozen=True):
    """A keepalive. `scheme` names the form of interest: brokers that tell it differently cannot be neighbours."""

    sent_by = (BROKER,)

    broker: BrokerId
    incarnation: int
    scheme: str
    versions_hash: int

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_broker_id(self.broker)
        return self


class LinkState(Packet, frozen=True):
    """All neighbours of `origin` with the cost to each, as of `version`."""

    sent_by = (BROKER,)

    origin: BrokerId
    incarnation: int
    version: int
    neighbours: tuple[tuple[BrokerId, int], ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_broker_id(self.origin)
        require(increasing(tuple(broker for broker, _ in self.neighbours)), "neighbours must increase")
        good = all(0 <= broker <= BROKER_ID_MAX and 1 <= cost <= COST_MAX for broker, cost in self.neighbours)
        require(good, "bad neighbour")
        return self


class Interest(Packet, frozen=True):
    """Takes what `origin` wants from version `base` to `version`; from base 0, the empty set, it is a snapshot.

    A snapshot may come in several parts; a change always fits one.
    """

    sent_by = (BROKER,)

    origin: BrokerId
    incarnation: int
    base: int
    version: int
    added: tuple[bytes, ...]
    removed: tuple[bytes, ...] = ()
    part: int = 0
    parts: int = 1

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_broker_id(self.origin)
        require(self.base < self.version, f"interest from version {self.base} to {self.version}")
        require(self.part < self.parts <= SNAPSHOT_PARTS_MAX, f"part {self.part} of {self.parts}")
        require(self.base == 0 or self.parts == 1, "a change has one part")
        require(self.base > 0 or not self.removed, "a snapshot removes nothing")
        entries = (*self.added, *self.removed)
        require(len(entries) <= INTEREST_ENTRIES_MAX, f"{len(entries)} entries of interest in one packet")
        require(sum(map(len, entries)) <= INTEREST_BYTES_MAX, "interest that should come in several packets")
        return self


class Summary(Packet, frozen=True):
    """(origin, incarnation, version of its links, version of its interest) for every origin the sender can reach."""

    sent_by = (BROKER,)

    known: tuple[tuple[BrokerId, int, int, int], ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(increasing(tuple(entry[0] for entry in self.known)), "origins must increase")
        require(all(entry[0] <= BROKER_ID_MAX and min(entry) >= 0 for entry in self.known), "bad entry in a summary")
        return self


class ConfirmRequest(Packet, frozen=True):
    """Tell me when all behind you have this version of `origin`'s interest; `again`: I have asked before."""

    sent_by = (BROKER,)

    origin: BrokerId
    incarnation: int
    version: int
    again: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_broker_id(self.origin)
        return self


class Confirmation(Packet, frozen=True):
    """All behind me have it, but those named, which give no answer; or, if not `done`, I still wait for those named."""

    sent_by = (BROKER,)

    origin: BrokerId
    incarnation: int
    version: int
    unconfirmed: tuple[BrokerId, ...] = ()
    done: bool = True

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_broker_id(self.origin)
        require(len(self.unconfirmed) <= UNCONFIRMED_MAX, f"{len(self.unconfirmed)} brokers named")
        require(all(0 <= broker <= BROKER_ID_MAX for broker in self.unconfirmed), "bad broker id")
        return self


class Publication(Packet, frozen=True, gc=False):
    """One copy of a message on its way to the brokers in `destinations` (increasing)."""

    sent_by = (BROKER,)
    as_datagram = True

    destinations: tuple[BrokerId, ...]
    hops_left: int
    message: Message
    lane: Lane = Lane.BEST_EFFORT

    def checked(self, limits: MessageLimits) -> Self:
        destinations, hops_left = self.destinations, self.hops_left
        if not 0 < len(destinations) <= DESTINATIONS_MAX:
            raise InvalidPacket(f"{len(destinations)} destinations")
        if len(destinations) > 1:
            require(increasing(destinations), "destinations must increase")
        if destinations[0] < 0 or destinations[-1] > BROKER_ID_MAX:
            raise InvalidPacket("a destination is no broker id")
        if not 0 <= hops_left <= HOPS_MAX:
            raise InvalidPacket(f"hops_left is {hops_left}; the limit HOPS_MAX is {HOPS_MAX}")
        message = _message(self, limits)
        return self if message is self.message else type(self)(destinations, hops_left, message, self.lane)

    def size_bytes(self) -> int:
        return 20 + 3 * len(self.destinations) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return self.lane

    def meant_for(self) -> int:
        return len(self.destinations)


class Attach(Packet, frozen=True):
    """The first word of a client on a new link."""

    sent_by = (CLIENT,)

    client: str
    incarnation: int

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        fits = 0 < len(self.client.encode()) <= CLIENT_NAME_BYTES_MAX
        require(fits, f"client name of {len(self.client)} characters")
        return self


class Subscribe(Packet, frozen=True):
    """Send me what matches `where`, under this number of mine."""

    sent_by = (CLIENT,)

    ticket: int
    subscription: int
    where: str


class Unsubscribe(Packet, frozen=True):
    """Send me no more for this number."""

    sent_by = (CLIENT,)

    ticket: int
    subscription: int


class Answer(Packet, frozen=True):
    """The ticket's verb was carried out, or refused with a reason."""

    sent_by = (BROKER,)

    ticket: int
    problem: str = ""  # empty: carried out


class ReadyRequest(Packet, frozen=True):
    """Tell me when all brokers know what I have subscribed to so far, or after so many seconds who does not."""

    sent_by = (CLIENT,)

    ticket: int
    within: float

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(0 <= self.within <= READY_WITHIN_MAX, f"within {self.within} s; at most {READY_WITHIN_MAX:g}")
        return self


class Ready(Packet, frozen=True):
    """All brokers that can be reached know it; or, if some are named, these have not confirmed it."""

    sent_by = (BROKER,)

    ticket: int
    unconfirmed: tuple[str, ...] = ()


class Publish(Packet, frozen=True, gc=False):
    """A client's message, at the start of its way."""

    sent_by = (CLIENT,)

    message: Message
    lane: Lane = Lane.BEST_EFFORT

    def checked(self, limits: MessageLimits) -> Self:
        message = _message(self, limits)
        return self if message is self.message else type(self)(message, self.lane)

    def size_bytes(self) -> int:
        return 12 + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return self.lane


class Delivery(Packet, frozen=True, gc=False):
    """A message at the end of its way, with all the client's subscriptions that it matches."""

    sent_by = (BROKER,)

    subscriptions: tuple[int, ...]
    message: Message
    lane: Lane = Lane.BEST_EFFORT

    def checked(self, limits: MessageLimits) -> Self:
        subscriptions = self.subscriptions
        if len(subscriptions) > 1:
            require(increasing(subscriptions), "subscriptions must increase")
        if subscriptions and subscriptions[0] < 0:
            raise InvalidPacket("a subscription's number is negative")
        message = _message(self, limits)
        return self if message is self.message else type(self)(subscriptions, message, self.lane)

    def size_bytes(self) -> int:
        return 12 + 5 * len(self.subscriptions) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return self.lane


def _message(packet: Publication | Publish | Delivery, limits: MessageLimits) -> Message:
    """The message in the packet, in a data lane and measured."""
    lane = packet.lane
    if lane is _CONTROL:
        raise InvalidPacket("the control lane carries no messages")
    message = measured(packet.message, limits)
    if lane is _SERVICE_CONTROL and message.size_bytes > SERVICE_CONTROL_BYTES_MAX:
        limit = f"the limit SERVICE_CONTROL_BYTES_MAX is {SERVICE_CONTROL_BYTES_MAX}"
        raise InvalidPacket(f"a message of {message.size_bytes} bytes in lane SERVICE_CONTROL; {limit}")
    return message


def _check_broker_id(broker: BrokerId) -> None:
    require(broker <= BROKER_ID_MAX, f"broker id {broker}; the limit BROKER_ID_MAX is {BROKER_ID_MAX}")

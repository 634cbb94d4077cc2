"""The packets of priced sending.

ClassesRequest      a client to its broker: which content is priced?
PricedClasses       a broker to its client: this content is priced, and so many messages may be on their way to me
PricedPublish       a client to its broker: a message to be bought
Bought              the broker to the client: these have been bought, and have left
NotBought           the broker to the client: this one never will be
PricedPublication   between brokers: a copy that was paid for, on the spanning tree
PriceRequest, Prices   how does my account stand?
"""

from __future__ import annotations

from typing import Self

from penstock.content.message import Message, MessageLimits
from penstock.errors import InvalidPacket
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, check_integers, increasing, measured, require
from penstock.overlay.packets import BROKER_ID_MAX, DESTINATIONS_MAX, HOPS_MAX, BrokerId

CLASSES_TOLD_MAX = 64
NUMBERS_MAX = 4_096  # in one Bought


class ClassesRequest(Packet, frozen=True):
    """Which content is priced?"""

    sent_by = (CLIENT,)


class PricedClasses(Packet, frozen=True):
    """Messages that match one of these are priced; `window`: how many may be unanswered."""

    sent_by = (BROKER,)

    where: tuple[str, ...]
    window: int

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(len(self.where) <= CLASSES_TOLD_MAX, f"{len(self.where)} classes")
        require(1 <= self.window <= 1 << 20, f"a window of {self.window}")
        return self


class PricedPublish(Packet, frozen=True, gc=False):
    """A message that waits for its price; `number` grows by one with each of this connection."""

    sent_by = (CLIENT,)

    number: int
    message: Message

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        message = measured(self.message, limits)
        return self if message is self.message else type(self)(self.number, message)

    def size_bytes(self) -> int:
        return 14 + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.PRICED


class Bought(Packet, frozen=True):
    """The messages of these numbers have left."""

    sent_by = (BROKER,)

    numbers: tuple[int, ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(0 < len(self.numbers) <= NUMBERS_MAX, f"{len(self.numbers)} numbers")
        require(all(number >= 0 for number in self.numbers), "a number is negative")
        return self


class NotBought(Packet, frozen=True):
    """The message of this number was refused."""

    sent_by = (BROKER,)

    number: int
    problem: str


class PricedPublication(Packet, frozen=True, gc=False):
    """One copy of a message on its way to the brokers in `destinations` (increasing)."""

    sent_by = (BROKER,)

    destinations: tuple[BrokerId, ...]
    hops_left: int
    message: Message

    def checked(self, limits: MessageLimits) -> Self:
        destinations = self.destinations
        require(0 < len(destinations) <= DESTINATIONS_MAX, f"{len(destinations)} destinations")
        require(increasing(destinations), "destinations must increase")
        if destinations[0] < 0 or destinations[-1] > BROKER_ID_MAX:
            raise InvalidPacket("a destination is no broker id")
        require(0 <= self.hops_left <= HOPS_MAX, f"hops_left is {self.hops_left}; the limit HOPS_MAX is {HOPS_MAX}")
        message = measured(self.message, limits)
        return self if message is self.message else type(self)(destinations, self.hops_left, message)

    def size_bytes(self) -> int:
        return 20 + 3 * len(self.destinations) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.PRICED

    def meant_for(self) -> int:
        return len(self.destinations)


class PriceRequest(Packet, frozen=True):
    """How does my account stand?"""

    sent_by = (CLIENT,)

    ticket: int


class Prices(Packet, frozen=True):
    """The accounts of a client, as a JSON object."""

    sent_by = (BROKER,)

    ticket: int
    report: bytes

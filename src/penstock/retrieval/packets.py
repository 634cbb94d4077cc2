"""The packets of retrieval. They carry times that are left and ages, never times of a clock: clocks differ.

Between brokers, numbered on each link (`link_recovery`):
    RetrievalInterest    somebody asks for this; flooded
    RetrievalOverload    it has all that it asked for; whoever has its state drops it and passes this on
    RetrievalAnswer      a publication for one interest, one hop back along its way
    RetrievalMulticast   a publication for whoever waits for it
    RetrievalFlush       a publication that the sender has no room for, and nobody has had
    RetrievalReceipt     what has come, and what is missing

Between a client and its home broker:
    RetrieveRequest      one lifetime of a subscription, or the rest of one after a new connection
    RetrieveStop         no more of it
    RetrieveReply        it is in force, or why not; and which home, and life of its cache, this is
    RetrievedItem        a publication
"""

from __future__ import annotations

from math import isfinite
from typing import Self

from msgspec.structs import replace

from penstock.content.message import Identity, Message, MessageLimits
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
from penstock.overlay.packets import BROKER_ID_MAX, BrokerId
from penstock.retrieval.config import TIME_MAX
from penstock.retrieval.interest import EVERYTHING, LISTED_MAX

InterestName = tuple[BrokerId, int, int]  # its home, the life of that, and its number there; nonces look the same
HomeLife = tuple[BrokerId, int]  # a broker, and the life of its cache

HASH_BYTES = 16
HOMES_MAX = 256  # brokers that one copy is for
MISSING_MAX = 256  # numbers in one receipt
WHERE_BYTES_MAX = 1 << 14


class NumberedPacket(Packet, frozen=True):
    """What both ends of a link keep track of."""

    receiver: int  # the life of the broker that it is meant for
    sender: int  # the life of the broker that sends it
    number: int
    first: int  # the sender keeps nothing below this number

    def later(self, seconds: float) -> Self:
        """The same after it has been held for so long: times have passed."""
        return self


class RetrievalInterest(NumberedPacket, frozen=True):
    """An interest, as it is left after the brokers on its way have answered."""

    sent_by = (BROKER,)

    name: InterestName
    where: str
    max: int
    left: float  # seconds of its lifetime
    age: float  # that publications may have now; negative: they must be uploaded later than now
    refreshed: bool
    moved: float | None  # seconds since its chain came to its home from another; none: it always was there
    listed: tuple[Identity, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        check_name(self.name)
        require(0 < self.max <= EVERYTHING, f"an interest in {self.max} items")
        require(len(self.where) <= WHERE_BYTES_MAX, "a text that no client may ask for")
        for seconds in (self.left, self.age, self.moved or 0.0):
            check_time(seconds)
        require(len(self.listed) <= LISTED_MAX, f"{len(self.listed)} publications are listed")
        require(all(0 < len(one.publisher) <= CLIENT_NAME_BYTES_MAX for one in self.listed), "a publisher's name")
        return self

    def later(self, seconds: float) -> Self:
        moved = None if self.moved is None else self.moved + seconds
        return replace(self, left=self.left - seconds, age=self.age + seconds, moved=moved)

    def travels_in(self) -> Lane:
        return Lane.SERVICE_CONTROL


class RetrievalOverload(NumberedPacket, frozen=True):
    """An interest is satisfied, or its receiver has left."""

    sent_by = (BROKER,)

    name: InterestName

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        check_name(self.name)
        return self

    def travels_in(self) -> Lane:
        return Lane.SERVICE_CONTROL


class CarriedPublication(NumberedPacket, frozen=True):
    """A publication on a link."""

    message: Message
    content_hash: bytes
    age: float  # seconds since it was uploaded
    pending: bool  # it leaves its first broker for the first time

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        check_time(self.age)
        require(len(self.content_hash) == HASH_BYTES, f"a hash of {len(self.content_hash)} bytes")
        message = measured(self.message, limits)
        return self if message is self.message else replace(self, message=message)

    def later(self, seconds: float) -> Self:
        return replace(self, age=self.age + seconds)

    def size_bytes(self) -> int:
        return 80 + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.BEST_EFFORT


class RetrievalAnswer(CarriedPublication, frozen=True):
    """For one interest."""

    sent_by = (BROKER,)

    name: InterestName

    def checked(self, limits: MessageLimits) -> Self:
        check_name(self.name)
        return super().checked(limits)


class RetrievalMulticast(CarriedPublication, frozen=True):
    """For these brokers' clients, or for whoever waits; no broker passes on the same nonce twice for one of them."""

    sent_by = (BROKER,)

    nonce: InterestName
    homes: tuple[BrokerId, ...] = ()  # none: for all who wait

    def checked(self, limits: MessageLimits) -> Self:
        check_name(self.nonce)
        require(len(self.homes) <= HOMES_MAX, f"a publication for {len(self.homes)} brokers")
        require(increasing(self.homes) and all(0 <= one <= BROKER_ID_MAX for one in self.homes), "brokers increase")
        return super().checked(limits)


class RetrievalFlush(CarriedPublication, frozen=True):
    """For the receiver's cache, if it has room."""

    sent_by = (BROKER,)


class RetrievalReceipt(Packet, frozen=True):
    """Everything up to `upto` has come, and some above it, but not these."""

    sent_by = (BROKER,)

    receiver: int  # the life of the broker whose packets they are
    sender: int
    upto: int
    missing: tuple[int, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(len(self.missing) <= MISSING_MAX, f"{len(self.missing)} numbers are missing")
        require(increasing(self.missing) and all(one > self.upto for one in self.missing), "missing numbers increase")
        return self


class RetrieveRequest(Packet, frozen=True):
    """At most `max` items for this subscription, in this lifetime of it."""

    sent_by = (CLIENT,)

    subscription: int
    lifetime: int  # a number that grows by one with each
    where: str
    max: int  # 0: all
    left: float
    freshness: float  # counted from the beginning of the lifetime
    elapsed: float  # seconds of the lifetime that are over
    once: bool  # one-shot: `left` is for answers only
    refreshed: bool
    home: HomeLife | None  # that the chain had last
    moved: float | None  # seconds since it came there from another

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(len(self.where) <= WHERE_BYTES_MAX, "the text is too long")
        for seconds in (self.left, self.freshness, self.elapsed):
            check_time(seconds)
            require(seconds >= 0.0, f"a time of {seconds} s")
        check_time(self.moved or 0.0)
        if self.home is not None:
            require(0 <= self.home[0] <= BROKER_ID_MAX and 0 <= self.home[1] < 1 << 63, "no home")
        return self


class RetrieveStop(Packet, frozen=True):
    """No more for this subscription."""

    sent_by = (CLIENT,)

    subscription: int


class RetrieveReply(Packet, frozen=True):
    """A lifetime is in force, or refused."""

    sent_by = (BROKER,)

    subscription: int
    lifetime: int
    home: HomeLife
    moved: bool  # for this home the chain comes from another
    problem: str = ""
    items_max: int = 0  # what "all" asks for here


class RetrievedItem(Packet, frozen=True):
    """A publication for one subscription."""

    sent_by = (BROKER,)

    subscription: int
    lifetime: int
    message: Message

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        message = measured(self.message, limits)
        return self if message is self.message else type(self)(self.subscription, self.lifetime, message)

    def size_bytes(self) -> int:
        return 20 + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def travels_in(self) -> Lane:
        return Lane.BEST_EFFORT


BROKER_PACKETS: tuple[type[Packet], ...] = (
    RetrievalInterest,
    RetrievalOverload,
    RetrievalAnswer,
    RetrievalMulticast,
    RetrievalFlush,
    RetrievalReceipt,
)
FROM_CLIENT: tuple[type[Packet], ...] = (RetrieveRequest, RetrieveStop)
TO_CLIENT: tuple[type[Packet], ...] = (RetrieveReply, RetrievedItem)


def check_name(name: InterestName) -> None:
    """A broker's id, a life and a number."""
    require(0 <= name[0] <= BROKER_ID_MAX and all(0 <= part < 1 << 63 for part in name), f"{name} names nothing")


def check_time(seconds: float) -> None:
    """Finite, and no longer than a century."""
    require(isfinite(seconds) and abs(seconds) <= TIME_MAX, f"a time of {seconds} s")

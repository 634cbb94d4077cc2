"""The packets of fair rates.

LinkRate   a broker, against the way of the data, to the homes of those who send over its link: so much each
RateHeard  a home, back to that broker: heard; so that it knows how long its word takes
ReaderRate a client to its broker: one of my subscriptions takes so many messages per second
PublisherTerms  a client to its broker: what to do with my messages for which a link has no room
"""

from __future__ import annotations

from math import isfinite
from typing import Self

from penstock.content.message import MessageLimits
from penstock.kernel.packet import BROKER, CLIENT, Packet, check_integers, require
from penstock.overlay.packets import BROKER_ID_MAX, BrokerId
from penstock.rates.config import WhenFull

RATE_MIN, RATE_MAX = 1e-3, 1e15  # bytes per second; what is told lies between
VERSION_MAX = 1 << 53


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


class PublisherTerms(Packet, frozen=True):
    """What becomes of this client's messages for which a link has no room, as long as the connection lasts."""

    sent_by = (CLIENT,)

    when_full: WhenFull

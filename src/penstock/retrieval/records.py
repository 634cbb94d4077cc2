"""What retrieval writes into a trace."""

from __future__ import annotations

from penstock.kernel.trace import Record


class LifetimeBegan(Record, frozen=True):
    """A client asks for items: the first time in this lifetime, or again after a new connection."""

    subscription: int
    lifetime: int
    where: str
    most: int  # items in this lifetime; 0: all
    left: float  # seconds
    freshness: float  # seconds before the beginning of the lifetime
    elapsed: float  # seconds of the lifetime that are over
    refreshed: bool


class LifetimeEnded(Record, frozen=True):
    """A lifetime of a client's subscription is over; `last`: it asks for no more."""

    subscription: int
    lifetime: int
    items: int
    last: bool
    problem: str = ""  # why it was refused


class ItemRetrieved(Record, frozen=True):
    """An item has come to a client."""

    subscription: int
    lifetime: int
    publisher: str
    incarnation: int
    count: int


class CachePlaced(Record, frozen=True):
    """A cache lists a publication in another table: pending, used, overflowing or disseminated; none: in no table."""

    publisher: str
    incarnation: int
    count: int
    table: str


class CacheStoreFailed(Record, frozen=True):
    """The cache cannot be kept in the store; for the rest of this life it is in memory alone."""

    problem: str


RECORDS: tuple[type[Record], ...] = (LifetimeBegan, LifetimeEnded, ItemRetrieved, CachePlaced, CacheStoreFailed)

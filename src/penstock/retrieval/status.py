"""What a broker and a client say of retrieval, for `penstock report` and a subscription's report."""

from __future__ import annotations

from msgspec import Struct


class RetrievalStatus(Struct, frozen=True):
    """A broker's cache and interests."""

    cached: int  # with those in line
    waiting: int  # of them in line to be cached
    cache_size: int
    pending: int  # publications that never left
    overflowing: int
    disseminated: int
    stored: bool
    interests: int  # pending ones, of all brokers
    own_interests: int  # of its clients
    refused: int  # interests for which there was no room
    evicted: int
    unreceipted: int  # packets to neighbours
    resent: int
    counts: dict[str, int]  # what was sent, delivered and dropped, by what it was


class RetrievalReport(Struct, frozen=True):
    """A client's subscription."""

    lifetime: int  # the how-manieth
    items: int  # in this lifetime
    items_in_all: int
    max: int  # items that a lifetime may bring; if all were asked for, what the broker allows, and 0 until it says so
    length: float  # of the lifetime, in seconds
    moved: int  # how often its chain came to another home
    problem: str  # why the broker refuses this lifetime, which is asked for again; "": it does not

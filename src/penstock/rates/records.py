"""What fair rates write into a trace."""

from __future__ import annotations

from penstock.kernel.trace import Record


class Thinned(Record, frozen=True):
    """A home broker has withheld a client's messages from one broker, because a link on the way has no room for them.

    One record sums up what was withheld since the last one. A message withheld from two brokers counts for each.
    """

    publisher: str
    origin: int  # the broker before the link
    neighbour: int  # and behind it
    destination: int  # the broker that did not get them
    messages: int
    size_bytes: int
    since: float  # when the first of them was withheld, by the broker's clock


class LinkRated(Record, frozen=True):
    """A broker has told what each publisher may send over one of its links, in bytes per second."""

    neighbour: int
    rate: float
    capacity: float  # what the link carries when it is busy
    offered: float  # what publishers send over it
    other: float  # and what else does
    backlog: float  # seconds that it would take to empty the queue
    publishers: int  # seen in the last second


class ReaderThinned(Record, frozen=True):
    """A broker has withheld messages from a client of its own that reads slowly; one record sums them up."""

    client: str
    subscription: int
    messages: int
    since: float  # when the first of them was withheld, by the broker's clock


class WithheldTold(Record, frozen=True):
    """A client was told that messages were withheld that it published, or that its broker or itself did not get."""

    role: str  # what the client is to them: publisher or reader
    publisher: str  # empty: several
    origin: str  # the broker before the link
    neighbour: str  # and the broker or slow reader behind it
    rate: float  # bytes per second that the link gave each publisher, 0: any; of a slow reader, messages per second
    to: str  # who did not get them
    messages: int
    slow_reader: bool  # whether it was no full link, but a client that reads slowly


RECORDS: tuple[type[Record], ...] = (Thinned, LinkRated, ReaderThinned, WithheldTold)

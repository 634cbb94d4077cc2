"""What a broker reports of fair rates."""

from __future__ import annotations

from msgspec import Struct


class RatedLink(Struct, frozen=True):
    """One of a broker's own links that is busy; in bytes per second."""

    rate: float  # of each publisher
    capacity: float
    offered: float  # by publishers
    other: float
    backlog: float  # seconds
    publishers: int
    policed: int  # messages dropped because their publisher was over its rate for long


class WithheldReport(Struct, frozen=True):
    """Whose messages were withheld, from which broker, because of which link, and since when."""

    publisher: str
    link: tuple[str, str]
    rate: float | None  # bytes per second that the link gives each publisher; None: it limits nobody any more
    destination: str
    messages: int
    size_bytes: int
    seconds: float  # since the first of them


class SlowReaderReport(Struct, frozen=True):
    """A client of the broker's own that reads slowly, or did in the last minute."""

    client: str
    subscription: int
    rate: float  # messages per second that it takes; 0: any
    messages: int  # withheld from it in the last minute


class RatesStatus(Struct, frozen=True):
    """A broker's part of a report: its busy links by neighbour, and what it withheld from its clients' messages."""

    links: dict[str, RatedLink]
    withheld: list[WithheldReport]  # in the last minute; of many, the most
    withheld_in_all: int
    waiting: int  # messages that wait for their share
    slow_readers: list[SlowReaderReport]  # of many, those with most
    withheld_from_readers: int  # in all: deliveries to clients of its own that read slowly

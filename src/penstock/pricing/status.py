"""What brokers and clients report of priced sending."""

from __future__ import annotations

from msgspec import Struct


class LinkPrice(Struct, frozen=True):
    """One of a broker's links: messages in its buffer, on the mean of the last interval, and what it costs."""

    buffer: float
    price: float


class PriceReport(Struct, frozen=True):
    """One flow of a client: to whom, what it has, what a message costs, and which link makes it dear."""

    receivers: tuple[str, ...]  # the first brokers that it goes to
    receivers_in_all: int
    balance: float
    price: float
    dearest_link: tuple[str, str] | None
    dearest_price: float
    salary_period: float  # seconds
    waiting: int  # messages, at the broker
    blocked_for: float | None  # seconds; None: it can pay


class PricingStatus(Struct, frozen=True):
    """A broker's part of a report: its links by neighbour, and the flows of its clients in which messages wait."""

    links: dict[str, LinkPrice]
    waiting: dict[str, list[PriceReport]]  # by client
    waiting_in_all: int  # clients; of many, the first are named

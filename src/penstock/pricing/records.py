"""What priced sending writes into a trace."""

from __future__ import annotations

from penstock.kernel.trace import Record


class LinkPriced(Record, frozen=True):
    """A broker's price of one of its links: the mean number of messages in its buffer, the most, and the price."""

    neighbour: int
    mean: float
    most: int
    price: float


class MessageBought(Record, frozen=True):
    """A home broker bought a message its way."""

    publisher: str
    incarnation: int
    count: int
    price: float
    balance: float  # afterwards
    period: float
    held: float  # seconds that it waited at the broker


RECORDS: tuple[type[Record], ...] = (LinkPriced, MessageBought)

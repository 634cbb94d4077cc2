"""What came of one publisher under headers that were not believed, and the message that leapt ahead last.

A message whose header cannot be is delivered all the same, so it must be known again when its copy comes, or its
repair. Its number alone does not tell, since a forged message has the number of a true one. So what is remembered of it
is a digest of the whole message.

Refused headers that agree stand in a row (`header_sanity`). The numbers of the row have come if it is believed, or if
the next header that is accepted agrees with it.

State: the row; digests by number; the last message that came ahead of others, which may be what is wrong. Bounds:
APART_MAX numbers with PER_NUMBER_MAX digests each; ROW_MAX numbers of the row; of a leaping message that is larger than
LEAP_BYTES_MAX the digest alone. No messages, no timers.
"""

from __future__ import annotations

from hashlib import blake2b

from penstock.content.message import Message
from penstock.transport.config import TransportConfig
from penstock.transport.ordering.header_sanity import RefusedHeaders

APART_MAX, PER_NUMBER_MAX, ROW_MAX = 64, 4, 64
LEAP_BYTES_MAX = 4_096  # a digest costs more than to keep a small message until the next leap


class Unbelieved:
    """Messages of one session that were delivered apart from its numbers."""

    __slots__ = ("apart", "leap", "refusals", "row")

    def __init__(self, config: TransportConfig) -> None:
        self.refusals = RefusedHeaders(config)
        self.row: list[int] = []  # numbers of the messages refused in a row, the last ones
        self.leap: tuple[int, float, Message | bytes] | None = None  # number, departure, and itself or its digest
        self.apart: dict[int, tuple[bytes, ...]] = {}  # digests of those delivered apart, by their numbers

    def clear(self) -> None:
        """The row has ended."""
        self.refusals.clear()
        self.row.clear()

    def refused(self, number: int) -> None:
        """One more in the row."""
        self.row.append(number)
        del self.row[:-ROW_MAX]

    def leapt(self, number: int, departure: float, message: Message) -> None:
        """It came ahead of others."""
        small = message.size_bytes <= LEAP_BYTES_MAX
        self.leap = (number, departure, message if small else _digest(message))

    def knows(self, number: int, message: Message) -> bool:
        """Whether this message was delivered under this number."""
        known = self.apart.get(number)
        return known is not None and _digest(message) in known

    def delivered(self, number: int, message: Message | bytes) -> None:
        """It was; a message, or its digest."""
        known = self.apart.pop(number, ())
        digest = message if isinstance(message, bytes) else _digest(message)
        self.apart[number] = (*known, digest)[-PER_NUMBER_MAX:]
        if len(self.apart) > APART_MAX:
            del self.apart[next(iter(self.apart))]


def _digest(message: Message) -> bytes:
    told = (message.identity.count, sorted(message.attributes.items()))
    return blake2b(message.body, key=blake2b(repr(told).encode(), digest_size=32).digest(), digest_size=16).digest()

"""What was withheld from whom, and because of which link: counted once, told in records that sum it up.

Of messages with a header of the transport it is also noted which they were, by the counts of their identities. What is
withheld of repairs is counted apart: the message itself has been counted already, or was lost.

State: counts since the last records, and those of the last minute for reports. Bound: KEYS_MAX of each; when the first
table is full its records are due at once, and in reports the oldest entry goes. COUNTS_MAX messages are noted one by
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Identity, Message
from penstock.overlay.packets import BrokerId
from penstock.overlay.spanning_tree import Hop
from penstock.rates.records import Thinned

KEYS_MAX = 4_096
COUNTS_MAX = 100_000
REPORTED_FOR = 60.0  # seconds


class WithheldKey(NamedTuple):
    """Whose messages, which link, and who did not get them."""

    publisher: str
    hop: Hop
    destination: BrokerId


class WithheldCount:
    """How many, how large, since when."""

    __slots__ = ("counts", "last", "life", "messages", "since", "size_bytes")

    def __init__(self, now: float) -> None:
        self.messages = self.size_bytes = 0
        self.since = self.last = now
        self.life = 0  # of the publisher, and which of its messages, if that is noted
        self.counts: list[int] = []

    def add(self, messages: int, size_bytes: int, now: float) -> None:
        self.messages += messages
        self.size_bytes += size_bytes
        self.last = now

    def note(self, identity: Identity) -> None:
        """Which one it was."""
        if identity.incarnation != self.life:
            self.life = identity.incarnation
            self.counts.clear()
        self.counts.append(identity.count)

    def join(self, other: WithheldCount) -> None:
        """More of the same."""
        self.add(other.messages, other.size_bytes, other.last)
        if other.counts and other.life != self.life:
            self.life = other.life
            self.counts.clear()
        self.counts += other.counts


class WithheldBooks:
    """The books of one home broker."""

    def __init__(self) -> None:
        self.messages = 0  # in all, one for each broker that did not get it
        self.repairs = 0  # the same of repairs
        self._noted = 0
        self._untold: dict[WithheldKey, WithheldCount] = {}
        self._lately: dict[WithheldKey, WithheldCount] = {}

    @property
    def full(self) -> bool:
        """Whether records are due now."""
        return len(self._untold) >= KEYS_MAX

    def __bool__(self) -> bool:
        return bool(self._untold)

    def add(self, publisher: str, hop: Hop, destination: BrokerId, message: Message, now: float) -> None:
        """A message was withheld from this broker."""
        kind = message.attributes.get(FLAG)
        if kind is not None and kind != DATA:
            self.repairs += 1
            return
        key = WithheldKey(publisher, hop, destination)
        self.messages += 1
        count = self._untold.get(key)
        if count is None:
            count = self._untold[key] = WithheldCount(now)
        count.add(1, message.size_bytes, now)
        if kind is not None and self._noted < COUNTS_MAX:
            self._noted += 1
            count.note(message.identity)

    def take(self, now: float) -> dict[WithheldKey, WithheldCount]:
        """All that was not told yet."""
        untold, self._untold, self._noted = self._untold, {}, 0
        for key, count in untold.items():
            known = self._lately.pop(key, None)
            if known is None or now - known.last > REPORTED_FOR:
                known = WithheldCount(count.since)
            known.add(count.messages, count.size_bytes, count.last)
            self._lately[key] = known
        while len(self._lately) > KEYS_MAX:
            del self._lately[next(iter(self._lately))]
        return untold

    def lately(self, now: float) -> list[tuple[WithheldKey, WithheldCount]]:
        """What was withheld in the last minute and told."""
        return [(key, count) for key, count in self._lately.items() if now - count.last <= REPORTED_FOR]


def records(taken: Mapping[WithheldKey, WithheldCount]) -> list[Thinned]:
    """Records of what was withheld."""
    return [
        Thinned(key.publisher, *key.hop, key.destination, count.messages, count.size_bytes, count.since)
        for key, count in taken.items()
    ]

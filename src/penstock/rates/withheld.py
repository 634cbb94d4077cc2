"""What was withheld from whom, and because of which link: counted once, told in records that sum it up.

State: counts since the last records, and those of the last minute for reports. Bound: KEYS_MAX of each; when the first
table is full its records are due at once, and in reports the oldest entry goes.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.overlay.packets import BrokerId
from penstock.overlay.spanning_tree import Hop
from penstock.rates.records import Thinned

KEYS_MAX = 4_096
REPORTED_FOR = 60.0  # seconds


class WithheldKey(NamedTuple):
    """Whose messages, which link, and who did not get them."""

    publisher: str
    hop: Hop
    destination: BrokerId


class WithheldCount:
    """How many, how large, since when."""

    __slots__ = ("last", "messages", "since", "size_bytes")

    def __init__(self, now: float) -> None:
        self.messages = self.size_bytes = 0
        self.since = self.last = now

    def add(self, messages: int, size_bytes: int, now: float) -> None:
        self.messages += messages
        self.size_bytes += size_bytes
        self.last = now


class WithheldBooks:
    """The books of one home broker."""

    def __init__(self) -> None:
        self.messages = 0  # in all, one for each broker that did not get it
        self._untold: dict[WithheldKey, WithheldCount] = {}
        self._lately: dict[WithheldKey, WithheldCount] = {}

    @property
    def full(self) -> bool:
        """Whether records are due now."""
        return len(self._untold) >= KEYS_MAX

    def __bool__(self) -> bool:
        return bool(self._untold)

    def add(self, publisher: str, hop: Hop, destination: BrokerId, size_bytes: int, now: float) -> None:
        """A message was withheld from this broker."""
        key = WithheldKey(publisher, hop, destination)
        self.messages += 1
        count = self._untold.get(key)
        if count is None:
            count = self._untold[key] = WithheldCount(now)
        count.add(1, size_bytes, now)

    def take_records(self, now: float) -> list[Thinned]:
        """Records of all that was not told yet."""
        untold, self._untold = self._untold, {}
        for key, count in untold.items():
            known = self._lately.pop(key, None)
            if known is None or now - known.last > REPORTED_FOR:
                known = WithheldCount(count.since)
            known.add(count.messages, count.size_bytes, count.last)
            self._lately[key] = known
        while len(self._lately) > KEYS_MAX:
            del self._lately[next(iter(self._lately))]
        return [
            Thinned(key.publisher, *key.hop, key.destination, count.messages, count.size_bytes, count.since)
            for key, count in untold.items()
        ]

    def lately(self, now: float) -> list[tuple[WithheldKey, WithheldCount]]:
        """What was withheld in the last minute and told."""
        return [(key, count) for key, count in self._lately.items() if now - count.last <= REPORTED_FOR]

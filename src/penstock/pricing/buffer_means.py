"""How full the buffers of a broker's links were lately: the running mean that prices are made of (003 section 4.2.1).

Buffers are looked at some times in each interval; the mean of these looks is the mean of the interval. `most` is the
most that was ever seen in one look since it was taken.

State: two numbers for each link.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name")


class BufferMeans(Generic[Name]):
    """Means over one interval."""

    def __init__(self) -> None:
        self._sums: dict[Name, float] = {}
        self._most: dict[Name, int] = {}
        self._looks = 0

    def look(self, packets: Mapping[Name, int]) -> None:
        """So many wait now."""
        self._looks += 1
        for name, count in packets.items():
            self._sums[name] = self._sums.get(name, 0.0) + count
            self._most[name] = max(self._most.get(name, 0), count)

    def take(self) -> dict[Name, tuple[float, int]]:
        """Mean and most of each since the last call."""
        looks = max(1, self._looks)
        found = {name: (total / looks, self._most[name]) for name, total in self._sums.items()}
        self._sums.clear()
        self._most.clear()
        self._looks = 0
        return found

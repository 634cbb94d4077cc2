"""Which neighbours are likely to have something, learned from whose answers came before.

For each shelf, how many answers came over each interface. Bounded: when there are too many shelves, what was learned
first is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from penstock.retrieval.interest import Interface

SHELVES_MAX = 10_000


class LikelyInterfaces:
    """The memory of one router."""

    def __init__(self, interfaces: Callable[[], Sequence[Interface]]) -> None:
        self._interfaces = interfaces
        self._answers: dict[Hashable, dict[Interface, int]] = {}

    def helped(self, shelf: Hashable, interface: Interface) -> None:
        """An answer came from there."""
        if interface < 0:
            return
        found = self._answers.get(shelf)
        if found is None:
            if len(self._answers) >= SHELVES_MAX:
                del self._answers[next(iter(self._answers))]
            found = self._answers[shelf] = {}
        found[interface] = found.get(interface, 0) + 1

    def count(self) -> int:
        """How many interfaces there are."""
        return len(self._interfaces())

    def order(self, shelf: Hashable) -> list[Interface]:
        """All interfaces, the most helpful first."""
        counts = self._answers.get(shelf, {})
        return sorted(self._interfaces(), key=lambda interface: (-counts.get(interface, 0), interface))

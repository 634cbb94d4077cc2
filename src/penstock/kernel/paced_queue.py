"""Work that may have to wait its turn: so much per second in all, and everybody's work in turn.

A node must not stand still because somebody sends it much to do at once. Items that fit the budget are handed out at
once; others wait, those of each source in their order, and sources take turns. So a burst becomes a steady trickle,
and one source's burst delays the others by one item each.

State: the items that wait, and a bucket. Bound: `items_max` for each source; sources are links of a node.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from penstock.kernel.link import Link
from penstock.kernel.token_bucket import TokenBucket

T = TypeVar("T")


class PacedQueue(Generic[T]):
    """Items by the link that they came over, each with its cost in tokens."""

    def __init__(self, rate: float, depth: float, items_max: int) -> None:
        self._bucket = TokenBucket(rate, depth, 0.0)
        self._items_max = items_max
        self._waiting: dict[Link, deque[tuple[T, float]]] = {}  # in the order of their turns; none is empty

    def put(self, source: Link, item: T, cost: float) -> bool:
        """One more item; False if its source has too many waiting, and then it is not kept."""
        items = self._waiting.setdefault(source, deque())
        if len(items) >= self._items_max:
            return False
        items.append((item, min(cost, self._bucket.depth)))  # what costs more than a full bucket takes a full one
        return True

    def take(self, now: float) -> list[tuple[Link, T]]:
        """The items whose turn it is."""
        taken: list[tuple[Link, T]] = []
        while self._waiting:
            source, items = next(iter(self._waiting.items()))
            item, cost = items[0]
            if not self._bucket.take(now, cost):
                break
            items.popleft()
            del self._waiting[source]
            if items:
                self._waiting[source] = items  # behind all others
            taken.append((source, item))
        return taken

    def waits(self, source: Link) -> bool:
        """Whether something of this source waits."""
        return source in self._waiting

    def ready_at(self) -> float | None:
        """When the next item can be taken; None if none waits."""
        if not self._waiting:
            return None
        return self._bucket.ready_at(next(iter(self._waiting.values()))[0][1])

    def drop(self, source: Link) -> None:
        """Its items are wanted no more."""
        self._waiting.pop(source, None)

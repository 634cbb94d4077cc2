"""Queues of publications that wait to be matched or sent: first come first served, or by score (004 section 3.3.6).

Brokers have one for each neighbour (`link_recovery`, which takes nothing more when it is full); the experiments have
another one before matching.

The score of a publication is how many interests downstream wait for it, over the time that the most urgent of them has
left (4). An answer has one interest. It is computed again at every hop, and by when the queue is looked at only what
was true on arrival. A full queue drops the newcomer (FIFO), or whatever has the lowest score.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, Literal, Protocol, TypeVar

from penstock.retrieval.interest import InterestId, Interface, PublishedItem
from penstock.retrieval.pending_interests import InterestTable

T = TypeVar("T")
Forwarding = Literal["score", "fifo"]


def score(deadlines: Iterable[float], now: float) -> float:
    """|S_P| over the shortest time left; interests whose time is up do not count."""
    left = [deadline - now for deadline in deadlines if deadline > now]
    return len(left) / min(left) if left else 0.0


def score_of_answer(table: InterestTable, interest: InterestId, now: float) -> float:
    """One interest waits for it."""
    found = table.get(interest)
    return score((found[0].deadline,), now) if found is not None else 0.0


def score_of_copy(
    table: InterestTable, publication: PublishedItem, goes: Callable[[Interface], bool], *, pending: bool, now: float
) -> float:
    """Those wait for it that came from the interfaces on which it goes."""
    waiting = table.matching(publication, pending=pending)
    return score((one.deadline for interface, those in waiting if goes(interface) for one in those), now)


def forwarding_queue(kind: Forwarding, size: int) -> ForwardingQueue[T]:
    """An empty one."""
    return ScoreQueue(size) if kind == "score" else FifoQueue(size)


class ForwardingQueue(Protocol[T]):
    """What a router keeps until it has time."""

    dropped: int

    def __len__(self) -> int: ...

    def push(self, item: T, score: float) -> T | None:
        """Add one; returns the one that had to go."""

    def pop(self) -> T:
        """The next one."""


class FifoQueue(Generic[T]):
    """First come, first served."""

    def __init__(self, size: int) -> None:
        self.dropped = 0
        self._size = size
        self._items: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T, score: float) -> T | None:
        """Add one; a full queue takes no more."""
        if len(self._items) >= self._size:
            self.dropped += 1
            return item
        self._items.append(item)
        return None

    def pop(self) -> T:
        """The oldest."""
        return self._items.popleft()


class ScoreQueue(Generic[T]):
    """The highest score first; among equals the oldest."""

    def __init__(self, size: int) -> None:
        self.dropped = 0
        self._size = size
        self._count = 0
        self._best: list[tuple[float, int, T]] = []
        self._worst: list[tuple[float, int]] = []  # may name some that have left
        self._waiting: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, item: T, score: float) -> T | None:
        """Add one; a full queue drops the lowest score, and among equals the youngest."""
        self._count += 1
        self._waiting[self._count] = item
        heappush(self._best, (-score, self._count, item))
        heappush(self._worst, (score, -self._count))
        if len(self._waiting) <= self._size:
            self._tidy()
            return None
        self.dropped += 1
        while True:
            _, number = heappop(self._worst)
            if -number in self._waiting:
                return self._waiting.pop(-number)

    def pop(self) -> T:
        """The most wanted."""
        while True:
            _, number, item = heappop(self._best)
            if number in self._waiting:
                del self._waiting[number]
                return item

    def _tidy(self) -> None:
        """Forget those that have left, when they are the most of a heap."""
        if len(self._worst) > 2 * len(self._waiting) + 64:
            self._worst = [entry for entry in self._worst if -entry[1] in self._waiting]
            heapify(self._worst)
        if len(self._best) > 2 * len(self._waiting) + 64:
            self._best = [entry for entry in self._best if entry[1] in self._waiting]
            heapify(self._best)

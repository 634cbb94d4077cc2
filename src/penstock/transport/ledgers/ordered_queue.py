"""Puts one publisher's messages back in order: what came is held while an earlier one is missed and still young.

A missed message has a time until which it is waited for. A message leaves when no lower number is waited for. One that
comes after a higher number has left is late: it is delivered late, or dropped, as the settings say; repairs never are.

State: messages that wait, by number; missed numbers that are waited for. Bounds: `queue_max` messages; beyond it the
first goes early. Timers: none of its own, `deadline` says when to look.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(slots=True, order=True)
class HeldMessage(Generic[Item]):
    """A message that waits."""

    number: int
    item: Item
    arrived_at: float
    until: float  # the latest time that it waited for when it came


class OrderedQueue(Generic[Item]):
    """The order of one publisher's messages."""

    __slots__ = ("_queue", "_queue_max", "_waited_for", "highest")

    def __init__(self, queue_max: int) -> None:
        self._queue: list[HeldMessage[Item]] = []
        self._queue_max = queue_max
        self._waited_for: dict[int, float] = {}
        self.highest = 0  # that left

    def __len__(self) -> int:
        return len(self._queue)

    def wait_for(self, number: int, until: float) -> None:
        """This one is missed; those after it wait for it so long."""
        self._waited_for[number] = until

    def wait_no_more(self, number: int) -> None:
        """It has come, or is of no concern."""
        self._waited_for.pop(number, None)

    def in_order(self, number: int) -> bool:
        """Whether a message of this number leaves at once, with nothing else to do; if so it has left."""
        if self._queue or self._waited_for or number < self.highest:
            return False
        self.highest = number
        return True

    def late(self, number: int) -> bool:
        """Whether a higher one has left."""
        return number < self.highest

    def put(self, number: int, item: Item, now: float) -> None:
        """It waits, perhaps for no time at all."""
        until = max([at for missed, at in self._waited_for.items() if missed < number], default=now)
        insort(self._queue, HeldMessage(number, item, now, max(now, until)), key=lambda held: held.number)

    def release(self, now: float) -> list[HeldMessage[Item]]:
        """What may leave now, in order."""
        waited_for = self._waited_for
        for number in [one for one, until in waited_for.items() if until <= now]:
            del waited_for[number]
        queue = self._queue
        first = min(waited_for) if waited_for else inf
        count = 0
        while count < len(queue) and (queue[count].number < first or len(queue) - count > self._queue_max):
            count += 1
        if not count:
            return []
        left, self._queue = queue[:count], queue[count:]
        self.highest = max(self.highest, left[-1].number)
        return left

    def close(self) -> list[HeldMessage[Item]]:
        """All that waits, in order."""
        self._waited_for.clear()
        return self.release(inf)

    def deadline(self) -> float | None:
        """When to look again; None while nothing waits."""
        return min(self._waited_for.values(), default=None) if self._queue else None

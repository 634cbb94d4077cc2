"""Named deadlines, one heap for a whole node.

Timers are state, not callbacks: a service sets a deadline for one of its timers and is called when the time has come.
The timers of a service are a closed enumeration; a timer that exists many times (one per session, say) has a key
besides. Setting the same timer and key again moves it. Inside, a name is (service, timer, *key), so that the node knows
whom to tell.

Moving and cancelling leave a dead entry in the heap; when the dead outnumber the living the heap is built anew, so
its size is bounded by twice the number of names in use.

A host asks for the deadline after every input and most inputs change no timer, so the answer is remembered.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush

Key = tuple[str | int, ...]
TimerName = tuple[str | int, ...]  # (service, timer, *key)


class Timers:
    """A set of named deadlines."""

    def __init__(self) -> None:
        self._current: dict[TimerName, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, TimerName]] = []
        self._count = 0
        self._earliest: float | None = None  # what `deadline` answers, while no timer has changed
        self._changed = False

    def __len__(self) -> int:
        return len(self._current)

    def set(self, name: TimerName, at: float) -> None:
        """Let `name` expire at `at`, and at no other time."""
        self._count += 1
        self._changed = True
        self._current[name] = (at, self._count)
        heappush(self._heap, (at, self._count, name))
        if len(self._heap) > 2 * len(self._current) + 64:
            self._heap = [(at, count, name) for name, (at, count) in self._current.items()]
            heapify(self._heap)

    def cancel(self, name: TimerName) -> None:
        """Let `name` never expire; a name that is not set is no mistake."""
        self._changed = True
        self._current.pop(name, None)

    def deadline(self) -> float | None:
        """The earliest deadline of all."""
        if self._changed:
            self._changed = False
            self._earliest = self._find_earliest()
        return self._earliest

    def pop_due(self, now: float) -> TimerName | None:
        """Take out the earliest name whose deadline has come; equal deadlines expire in the order they were set."""
        at = self.deadline()
        if at is None or at > now:
            return None
        name = heappop(self._heap)[2]
        del self._current[name]
        self._changed = True
        return name

    def _find_earliest(self) -> float | None:
        heap = self._heap
        while heap:
            at, count, name = heap[0]
            if self._current.get(name) == (at, count):
                return at
            heappop(heap)
        return None


class ServiceTimers:
    """The timers of one service, in the heap of its node."""

    def __init__(self, service: str, timers: Timers, kinds: type[IntEnum] = IntEnum) -> None:
        self._service = service
        self._timers = timers
        self._kinds = kinds  # the service's enumeration: it has no other timers

    def set(self, timer: IntEnum, at: float, *key: str | int) -> None:
        """Let the timer of this key expire at `at`, and at no other time."""
        assert isinstance(timer, self._kinds), f"{timer!r} is no timer of service '{self._service}'"
        self._timers.set((self._service, timer, *key), at)

    def cancel(self, timer: IntEnum, *key: str | int) -> None:
        """Let it never expire; one that is not set is no mistake."""
        self._timers.cancel((self._service, timer, *key))

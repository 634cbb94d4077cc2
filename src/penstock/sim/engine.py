"""The event queue: things happen in order of time, and of scheduling where times are equal.

One heap, and beside it a plain queue for whatever happens at once: with no delay there is nothing to sort, and most
hops between a client and its broker have none. An action is a function of one argument, so that scheduling allocates
one tuple and nothing else. Nothing is ever cancelled; whoever schedules checks on arrival whether it still applies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


class Engine:
    """Virtual time and what is due in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # how many actions have been run
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._at_once: deque[tuple[Action, Any]] = deque()
        self._scheduled = 0

    def at(self, time: float, action: Action, argument: Any) -> None:
        """Run `action(argument)` at this time, which must not have passed."""
        assert time >= self.now, f"scheduled at {time}, but it is {self.now} already"
        self._scheduled += 1
        heappush(self._heap, (time, self._scheduled, action, argument))

    def soon(self, action: Action, argument: Any) -> None:
        """Run `action(argument)` now, after everything that was scheduled for now in this way before."""
        self._at_once.append((action, argument))

    def run(self, until: float, events_max: int | None = None) -> None:
        """Let time pass up to and including `until`, or up to so many events in all."""
        heap, at_once = self._heap, self._at_once
        events, limit = self.events, -1 if events_max is None else events_max
        while events != limit:
            if at_once:
                action, argument = at_once.popleft()
            elif heap and heap[0][0] <= until:
                self.now, _, action, argument = heappop(heap)
            else:
                self.now = max(self.now, until)
                break
            events += 1
            action(argument)
        self.events = events

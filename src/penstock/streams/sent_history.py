"""How many messages a pubend has sent lately, from the rates that it had.

State: rates, each from a moment on. Bounds: those of the last SECONDS, at most ENTRIES.
"""

from __future__ import annotations

from collections import deque

SECONDS = 30.0
ENTRIES = 256


class SentHistory:
    """The rates of one pubend."""

    def __init__(self) -> None:
        self._rates: deque[tuple[float, float]] = deque(maxlen=ENTRIES)  # (from when on, messages per second)

    def begin(self, rate: float, now: float) -> None:
        """It has sent so many messages per second until now."""
        self._rates.clear()
        self._rates.append((now - SECONDS, rate))

    def note(self, rate: float, now: float) -> None:
        """From now on it sends so many messages per second."""
        if self._rates and now < self._rates[-1][0]:  # the clock was set back
            self._rates.clear()
        while len(self._rates) > 1 and self._rates[1][0] < now - SECONDS:
            self._rates.popleft()
        if not self._rates or self._rates[-1][1] != rate:
            self._rates.append((now, rate))

    def between(self, start: float, stop: float) -> float:
        """Messages sent from start to stop; before the first rate that is known it was the same."""
        total, later = 0.0, stop
        for begin, rate in reversed(self._rates):
            if begin < later:
                total += rate * (later - max(begin, start))
                later = begin
            if begin <= start:
                return total
        return total + (self._rates[0][1] * (later - start) if self._rates and later > start else 0.0)

    def highest(self) -> float:
        """The highest rate of the last SECONDS."""
        return max((rate for _, rate in self._rates), default=0.0)

"""How many events happen per second, lately.

Old events count less and less: after one `window` an event weighs 1/e of what it did. Two sums are kept, that of the
events' weights and that of the weight of the time in which they were watched; their quotient is the rate. So it is
right from the first moments on, when the watch is much shorter than the window, and needs no table of events.

The first event only begins the watch and is not counted, nor is whatever comes at the very same time: an interval that
begins with an event and counts it would show one event too many (10 events in 1 s where 9 are due).

State: two sums and a time, whatever the rate. A clock that stands still or steps back lets no time pass; one that leaps
forward lets the past fade. The rate is never negative, never infinite, and nothing here raises.
"""

from __future__ import annotations

from math import exp, floor, inf, log10

WATCHED_MIN = 1e-9  # of the window: a shorter watch says nothing about a rate


class RateEstimator:
    """Events per second over a sliding time constant of `window` seconds."""

    __slots__ = ("_events", "_last", "_watched", "_window")

    def __init__(self, window: float) -> None:
        if not 0.0 < window < float("inf"):
            raise ValueError(f"a window of {window} s; it must be above 0 and finite")
        self._window = window
        self._events = 0.0
        self._watched = 0.0  # seconds, weighted as the events are: goes from 0 to the window
        self._last: float | None = None

    def add(self, now: float, count: int = 1) -> None:
        """So many events have happened now."""
        if self._last is not None:
            self._events, self._watched = self._faded(now, self._last)
            if self._watched > 0.0:
                self._events += count
        self._last = now

    def rate(self, now: float) -> float:
        """Events per second; 0 until there have been two at different times."""
        if self._last is None:
            return 0.0
        events, watched = self._faded(now, self._last)
        return events / watched if watched > WATCHED_MIN * self._window else 0.0

    def _faded(self, now: float, last: float) -> tuple[float, float]:
        """Both sums as they are now."""
        gone = now - last
        if not gone > 0.0:
            return self._events, self._watched
        keep = exp(-gone / self._window)
        return self._events * keep, self._watched * keep + self._window * (1.0 - keep)


def rate_text(rate: float) -> str:
    """A rate for people: three significant digits, thousands apart, and never an exponent."""
    if not 0.0 < rate < inf:
        return f"{max(0.0, rate):.0f}"
    digits = 2 - floor(log10(rate))  # after the point; below 0: zeros before it
    rounded = round(rate, digits)
    return f"{rounded:,.0f}" if digits <= 0 else f"{rounded:,.{digits}f}".rstrip("0").rstrip(".")

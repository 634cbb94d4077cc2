"""How long to wait for a publisher's reply: TCP's estimator (RFC 6298), from the echo in each reply.

RTO = smoothed round trip + 4 deviations, within [RTO_MIN, RTO_MAX]; RTO_FIRST until one came back. The i-th attempt
waits RTO x 1.5^i, at most WAIT_MAX.
"""

from __future__ import annotations

RTO_MIN, RTO_FIRST, RTO_MAX = 0.1, 0.5, 3.0
BACK_OFF, WAIT_MAX = 1.5, 3.0


class ReplyTimeout:
    """The round trip to one publisher."""

    __slots__ = ("_deviation", "smoothed")

    def __init__(self) -> None:
        self.smoothed: float | None = None
        self._deviation = 0.0

    def measured(self, trip: float) -> None:
        """A reply came after so long."""
        if not 0.0 <= trip < 60.0:
            return
        if self.smoothed is None:
            self.smoothed, self._deviation = trip, trip / 2.0
            return
        self._deviation += (abs(trip - self.smoothed) - self._deviation) / 4.0
        self.smoothed += (trip - self.smoothed) / 8.0

    def wait(self, attempts: int) -> float:
        """How long to wait after so many attempts, 1 being the first."""
        base = RTO_FIRST
        if self.smoothed is not None:
            base = min(max(self.smoothed + 4.0 * self._deviation, RTO_MIN), RTO_MAX)
        return float(min(base * BACK_OFF ** (attempts - 1), WAIT_MAX))

"""How fast a link may send: a bucket that fills at the link's rate and may be overdrawn by one packet.

`BURST_SECONDS` is what an idle link has saved up at most: long enough for an event loop that wakes a millisecond late,
short enough that a bottleneck of 500 kbit/s behaves like one packet at a time.
"""

from __future__ import annotations

BURST_SECONDS = 0.005
BURST_BYTES_MIN = 1500


class Pacer:
    """A token bucket."""

    def __init__(self, rate_bytes_per_s: float, now: float) -> None:
        self.rate_bytes_per_s = rate_bytes_per_s
        self._burst_bytes = max(BURST_BYTES_MIN, rate_bytes_per_s * BURST_SECONDS)
        self._credit_bytes = self._burst_bytes
        self._at = now

    def spend(self, size_bytes: int, now: float) -> None:
        """So much has been sent; the credit may go below zero."""
        self._fill(now)
        self._credit_bytes -= size_bytes

    def room_bytes(self, now: float) -> int:
        """How much may be sent now, the last packet perhaps more than that."""
        self._fill(now)
        return max(0, int(self._credit_bytes))

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; 0 if it may be now."""
        self._fill(now)
        # A timer that fires when it was told to must not find a rounding error in its way.
        return 0.0 if self._credit_bytes >= 1.0 - 1e-6 else (1.0 - self._credit_bytes) / self.rate_bytes_per_s

    def _fill(self, now: float) -> None:
        elapsed = max(0.0, now - self._at)
        self._credit_bytes = min(self._burst_bytes, self._credit_bytes + elapsed * self.rate_bytes_per_s)
        self._at = now

"""What a TCP flow did: bytes delivered per bin of time, losses, recoveries, and how its window moved.

Bounds. The trace of the window is thinned to half when it is full; bytes that come after the last bin are counted in
`unbinned_bytes`.
"""

from __future__ import annotations

from penstock.sim.tcp.config import TcpConfig


class TcpStatistics:
    """What a flow did. Bytes count when a segment arrives for the first time, in order or not."""

    def __init__(self, config: TcpConfig) -> None:
        self.delivered_segments = 0
        self.bins: list[int] = []  # bytes per `bin_seconds`, from time 0 on
        self.unbinned_bytes = 0
        self.retransmissions = 0
        self.timeouts = 0
        self.fast_recoveries = 0
        self.loss_events = 0  # losses that made the window smaller: once per window, not per segment
        self.window_trace: list[tuple[float, float]] = []  # (time, segments)
        self.trace_interval = config.trace_interval
        self.finished_at: float | None = None  # when the last segment of a finite transfer was acknowledged
        self._config = config
        self._trace_next = 0.0

    def delivered(self, now: float) -> None:
        """A segment came that had not come before."""
        self.delivered_segments += 1
        bins, number = self.bins, int(now / self._config.bin_seconds)
        if number >= self._config.bins_max:
            self.unbinned_bytes += self._config.segment_bytes
            return
        if number >= len(bins):
            bins.extend([0] * (number + 1 - len(bins)))
        bins[number] += self._config.segment_bytes

    def window(self, now: float, segments: float) -> None:
        """Note the window, if it is time again."""
        if now < self._trace_next:
            return
        self.window_trace.append((now, segments))
        if len(self.window_trace) >= self._config.trace_max:
            del self.window_trace[1::2]
            self.trace_interval *= 2.0
        self._trace_next = now + self.trace_interval

    def rate_bits_per_s(self, start: float, end: float) -> float:
        """Mean rate of delivery over the whole bins between two times."""
        first, last = round(start / self._config.bin_seconds), round(end / self._config.bin_seconds)
        assert last > first, f"no whole bin between {start} and {end}"
        return 8.0 * sum(self.bins[first:last]) / ((last - first) * self._config.bin_seconds)

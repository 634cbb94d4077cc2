"""Constants of link repair. A network file has one switch, `repair` of a link; these are not for users.

All defaults are our own choice, measured in decision 0018.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RepairConfig:
    """How one end of a link repairs."""

    # What was sent is kept for this long, and so much of it.
    keep_for: float = 0.9
    keep_datagrams: int = 65_536
    keep_bytes: int = 16 << 20

    # Who misses something waits for what may only be late, asks, and asks again.
    tries: int = 4
    late_min: float = 0.002
    late_max: float = 0.05
    answer_within: float = 0.1  # until the first answers have shown how long they take
    answer_within_min: float = 0.01
    answer_within_max: float = 0.4
    missing_max: int = 4_096

    # The last number is told after so many mean gaps of silence, on links that have lost something lately.
    tail_gaps: float = 3.0
    tail_after_min: float = 0.005
    tail_after_max: float = 0.25
    tail_times: int = 2
    lossy_for: float = 10.0

    # Repairs may take this share of what the link carries; less where losses go with rising delay.
    share: float = 0.2
    share_min: float = 0.01
    share_step: float = 0.02
    burst_bytes: int = 1 << 18
    burst_min_bytes: int = 1 << 12

    @property
    def settled_after(self) -> float:
        """Seconds after its departure in which no copy of a datagram leaves any more, or arrives on a short way."""
        return self.keep_for + 0.05

    def __post_init__(self) -> None:
        if not 0.0 < self.late_min <= self.late_max < self.answer_within_max < self.keep_for:
            raise ValueError("times must grow: 0 < late_min <= late_max < answer_within_max < keep_for")
        if not 0.0 < self.share_min <= self.share < 1.0:
            raise ValueError("shares must grow: 0 < share_min <= share < 1")
        if min(self.tries, self.keep_datagrams, self.keep_bytes, self.missing_max) < 1:
            raise ValueError("tries, keep_datagrams, keep_bytes and missing_max must be at least 1")

"""How long answers take: a smoothed mean and the mean deviation from it, as TCP's timer keeps them (RFC 6298)."""

from __future__ import annotations


class AnswerTime:
    """Of one peer, or of all."""

    __slots__ = ("_deviation", "mean")

    def __init__(self) -> None:
        self.mean: float | None = None  # seconds; none: no answer has been timed
        self._deviation = 0.0

    def measured(self, seconds: float) -> None:
        """An answer took so long."""
        if self.mean is None:
            self.mean, self._deviation = seconds, seconds / 2.0
            return
        self._deviation += (abs(seconds - self.mean) - self._deviation) / 4.0
        self.mean += (seconds - self.mean) / 8.0

    def stretch(self, factor: float) -> None:
        """It was too short: answers that counted as lost have come."""
        if self.mean is not None:
            self.mean *= factor

    def within(self, first: float) -> float:
        """How long to wait before one counts as lost: the mean and four deviations; `first` while none was timed."""
        return first if self.mean is None else self.mean + 4.0 * self._deviation

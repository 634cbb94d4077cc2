"""How long to hold a message for a missed one, where no probability of disorder was stated.

A missed message is waited for while it is younger than the *reach*: 12 times the mean difference between two delays,
at least 10 ms and at most 2 s, which a few messages that an outage held up would exceed. Most networks reorder by far
less, and what is lost holds nobody longer. It is a latch like those of 002 (`ordering/latch`), which are used where the
settings state a probability.

State: the mean, smoothed over the last differences.
"""

from __future__ import annotations

REACH_MIN, REACH_MAX = 0.010, 2.0
REACH_DIFFERENCES = 12.0
_FIRST, _WEIGHT = 16, 1.0 / 32.0  # samples that count alike, and the weight of later ones


class Reach:
    """The latch of one publisher's messages."""

    __slots__ = ("_mean", "_samples")

    def __init__(self) -> None:
        self._mean = 0.0
        self._samples = 0

    @property
    def seconds(self) -> float:
        """How old a missed message may be for others to wait for it."""
        return min(max(REACH_MIN, REACH_DIFFERENCES * self._mean), REACH_MAX)

    def observe(self, difference: float) -> None:
        """A delay difference was measured."""
        if self._samples >= _FIRST:
            self._mean += _WEIGHT * (abs(difference) - self._mean)
        else:
            self._samples += 1
            self._mean += (abs(difference) - self._mean) / self._samples

    def wait(self, interval: float) -> float:
        """How long to hold a message that left `interval` seconds after a missed one."""
        return max(0.0, self.seconds - interval)

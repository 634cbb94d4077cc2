"""The last few delay differences of one publisher: how much its messages' delays vary (002 section 3.2.2).

The delay of a message cannot be measured without synchronised clocks, but the difference of two delays can: arrival
less arrival, departure less departure, and the offset of the clocks is gone. A ring of the last q of them (25 in the
paper) is all that a reorder buffer remembers of the network.

The sum of |x| is kept as samples come and go, and is added up anew once per turn of the ring, so that rounding errors
never outlive a turn. The other figures are wanted only where a latch is computed and are worked out when asked for.
The mean of a difference is zero by symmetry, so the variance is the mean square.

Departure (erratum O5): the paper divides by q even before the ring is full; we divide by the samples there are.
"""

from __future__ import annotations

from math import fsum


class DelayDifferences:
    """A ring of delay differences, in seconds."""

    __slots__ = ("_absolute_sum", "_at", "_samples", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._samples: list[float] = []
        self._at = 0  # where the next sample goes, once the ring is full
        self._absolute_sum = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, difference: float) -> None:
        """Remember this one; the oldest is forgotten when the ring is full."""
        samples = self._samples
        if len(samples) < self._size:
            samples.append(difference)
            self._absolute_sum += abs(difference)
            return
        at = self._at
        self._absolute_sum += abs(difference) - abs(samples[at])
        samples[at] = difference
        self._at = at = at + 1
        if at == self._size:
            self._at = 0
            self._absolute_sum = fsum(map(abs, samples))

    @property
    def mean_absolute(self) -> float:
        """The mean of |x|; 0 while there is none."""
        return max(0.0, self._absolute_sum) / len(self._samples) if self._samples else 0.0

    @property
    def scale(self) -> float:
        """The paper's estimator of b: (2/3) mean |x|."""
        return 2.0 / 3.0 * self.mean_absolute

    @property
    def variance(self) -> float:
        """The mean of x^2; 0 while there is none."""
        return fsum([x * x for x in self._samples]) / len(self._samples) if self._samples else 0.0

    @property
    def largest(self) -> float:
        """The largest |x|; 0 while there is none."""
        return max(map(abs, self._samples), default=0.0)

    def sizes(self) -> list[float]:
        """All |x|, smallest first."""
        return sorted(map(abs, self._samples))

"""Gilbert's model of a wire that loses packets in bursts.

The wire is good or bad. When it is good nothing is lost, when it is bad everything is. With each packet it may change:
from bad to good with probability 1/burst, so that a burst has `burst` packets on average; from good to bad with the
probability that makes the share of lost packets `loss`:

    P(good -> bad) / (P(good -> bad) + P(bad -> good)) = loss
"""

from __future__ import annotations


class GilbertLoss:
    """One wire: says of each packet, given a number drawn from [0, 1), whether it is lost."""

    def __init__(self, loss: float, burst: float) -> None:
        assert burst > 1.0
        assert 0.0 <= loss <= burst / (1.0 + burst), "so many are not lost in bursts of this length"
        self._bad = False
        self._ends = 1.0 / burst
        self._begins = loss / (burst * (1.0 - loss))

    def loses(self, draw: float) -> bool:
        """Whether the next packet is lost."""
        self._bad = draw >= self._ends if self._bad else draw < self._begins
        return self._bad

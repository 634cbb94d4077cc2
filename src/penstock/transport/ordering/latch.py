"""How long to wait for a missing message: one small strategy per rule (002 sections 3.2.2, 3.2.5, 3.5.2 and 6.2).

A message came that left `interval` seconds after a missing one. The missing one can still be overtaken as long as its
delay exceeds this one's by more than the interval and the wait together. So each latch estimates, from the delay
differences it was shown, the x that a difference exceeds with probability P_t, and waits what is left of x:
tau = max(0, x - interval), never above `latch_max` (equation (3.4)). Nothing was seen yet: no wait (erratum O8).

    two-laplace   x = factor * b, the factor worked out once (erratum O1: exact, or with the appendix's slip)
    conditional   P_t given that the missing one is indeed missing (erratum O3): it waits at least b ln(1/P_t)
    stages        the exact law of `hops` equal brokers in the place of two (erratum O4)
    static        the same wait for all, whatever was seen: the paper's baseline
    chebyshev, bernstein, hoeffding, normal     x by the bounds of 3.2.2; what they assume stands in `delay_laws`
    two-paths     the paper's open case: messages take one of two ways of different constant delay

Two paths. Differences then lie around zero (both took the same way) or around plus or minus the gap between the ways.
The sizes |x| are split in two where this leaves the least squares; the gap is the median of the upper part, and b
comes from what is left when each is measured from its own centre. A split is believed if the gap is far above b, else
one law for all is taken. The missing message may be on either way, so the longer of both waits counts: gap + factor*b.

State: a ring of differences, nothing else. `observe` costs one store; `wait` is asked only at gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum, sqrt
from typing import Protocol

from penstock.kernel import delay_laws as laws
from penstock.transport.config import TransportConfig
from penstock.transport.ordering.delay_differences import DelayDifferences

GAP_BELIEVED = (
    8.0  # scales; a single way of two brokers looks so in 8 of 100 rings of 25, and then waits a little longer
)
GAP_SAMPLES_MIN = 2  # a single outlier is no second way


class Latch(Protocol):
    """What a reorder buffer asks."""

    def observe(self, difference: float) -> None:
        """A delay difference was measured."""

    def wait(self, interval: float) -> float:
        """How long to hold a message that left `interval` seconds after a missing one."""

    def chance(self, interval: float) -> float:
        """How likely a message is overtaken by one that leaves `interval` seconds later, as far as we know."""


def make_latch(config: TransportConfig, hops: int) -> Latch:
    """The latch that the configuration names; `hops` brokers lie on the way."""
    return _MAKERS[config.latch](config, max(1, hops))


class _Measured:
    """What all latches share: the ring, and the paper's law for reports."""

    def __init__(self, config: TransportConfig, hops: int) -> None:
        self._differences = DelayDifferences(config.delay_samples)
        self.observe: Callable[[float], None] = self._differences.add  # one call less for each message
        self._probability = config.latch_probability
        self._wait_max = config.latch_max
        self._hops = hops

    def wait(self, interval: float) -> float:
        return max(0.0, min(self._wait_max, self._reach() - interval))

    def chance(self, interval: float) -> float:
        return laws.two_laplace_tail(interval, self._differences.scale)

    def _reach(self) -> float:
        """The x that a difference exceeds with probability P_t."""
        raise NotImplementedError


class _TwoLaplace(_Measured):
    def __init__(self, config: TransportConfig, hops: int) -> None:
        super().__init__(config, hops)
        self._factor = laws.two_laplace_factor(config.latch_probability, config.quantile)

    def _reach(self) -> float:
        return self._factor * self._differences.scale


class _Conditional(_Measured):
    def wait(self, interval: float) -> float:
        scale = self._differences.scale
        return min(self._wait_max, laws.two_laplace_conditional(max(0.0, interval), scale, self._probability))


class _Stages(_Measured):
    def __init__(self, config: TransportConfig, hops: int) -> None:
        super().__init__(config, hops)
        self._scale_per_mean = 1.0 / laws.stages_mean_absolute(hops)
        self._factor = laws.stages_factor(hops, config.latch_probability)

    def _reach(self) -> float:
        return self._factor * self._scale_per_mean * self._differences.mean_absolute

    def chance(self, interval: float) -> float:
        return laws.stages_tail(interval, self._scale_per_mean * self._differences.mean_absolute, self._hops)


class _Static(_Measured):
    def __init__(self, config: TransportConfig, hops: int) -> None:
        super().__init__(config, hops)
        self._static = min(config.static_latch, config.latch_max)

    def wait(self, interval: float) -> float:
        return self._static


class _Chebyshev(_Measured):
    def _reach(self) -> float:
        return laws.chebyshev_quantile(self._probability, self._differences.variance)


class _Bernstein(_Measured):
    def _reach(self) -> float:
        bound = laws.stage_bound(self._differences.largest, self._hops)
        return laws.bernstein_quantile(self._probability, self._differences.variance, bound)


class _Hoeffding(_Measured):
    def _reach(self) -> float:
        bound = laws.stage_bound(self._differences.largest, self._hops)
        return laws.hoeffding_quantile(self._probability, bound, self._hops)


class _Normal(_Measured):
    def __init__(self, config: TransportConfig, hops: int) -> None:
        super().__init__(config, hops)
        self._factor = laws.normal_factor(config.latch_probability)

    def _reach(self) -> float:
        return self._factor * sqrt(self._differences.variance)


class _TwoPaths(_TwoLaplace):
    def _reach(self) -> float:
        gap, scale, _ = two_ways(self._differences)
        return gap + self._factor * scale

    def chance(self, interval: float) -> float:
        gap, scale, share = two_ways(self._differences)
        ways = ((1.0 - share, 0.0), (share / 2.0, gap), (share / 2.0, -gap))
        return sum((weight * laws.two_laplace_tail(interval - centre, scale) for weight, centre in ways), 0.0)


def two_ways(differences: DelayDifferences) -> tuple[float, float, float]:
    """The gap between two ways, the scale within one, and the share of pairs that took both; gap 0: a single way."""
    sizes = differences.sizes()
    at = _split(sizes)
    upper = sizes[at:]
    if len(upper) >= GAP_SAMPLES_MIN:
        gap = upper[len(upper) // 2]
        scale = laws.two_laplace_scale([*sizes[:at], *[size - gap for size in upper]])
        if gap > GAP_BELIEVED * scale:
            return gap, scale, len(upper) / len(sizes)
    return 0.0, differences.scale, 0.0


def _split(sizes: list[float]) -> int:
    """Where the upper part begins if the lower is measured from zero and the upper from its mean."""
    count, rest = len(sizes), fsum(sizes)
    best, at = 0.0, count
    for index, size in enumerate(sizes):
        gain = rest * rest / (count - index)  # the squares that the upper part's mean takes away
        if gain > best:
            best, at = gain, index
        rest -= size
    return at


_MAKERS: dict[str, Callable[[TransportConfig, int], Latch]] = {
    "two-laplace": _TwoLaplace,
    "conditional": _Conditional,
    "stages": _Stages,
    "static": _Static,
    "chebyshev": _Chebyshev,
    "bernstein": _Bernstein,
    "hoeffding": _Hoeffding,
    "normal": _Normal,
    "two-paths": _TwoPaths,
}

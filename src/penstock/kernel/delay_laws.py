"""The laws of delay differences: what a latch has to outlast (002 sections 3.2.2 to 3.2.5 and appendix A).

A message's delay is a constant and, at each of k brokers, an exponential time of mean b. The difference X of two such
delays is a sum of k Laplace variables of scale b, symmetric about zero. A latch needs the x with P(X > x) = P_t.

    two Laplace    P(X > x) = (2 b + x) / (4 b) e^(-x/b);  E|X| = 3 b / 2, so b = (2/3) mean |x|;  variance 4 b^2
                   x = -b (W(-4 P_t / e^2) + 2), W the lower branch of Lambert's function. The paper always takes this
    k stages       the exact law for k equal brokers; its positive half is a mixture of Gamma laws, hence
                   P(X > x) = e^(-u) sum over i < k of c_i u^i / i!,  u = x / b;  E|X| = 2 k C(2k, k) 4^-k b
    Chebyshev      P(X >= x) <= v / (2 x^2): needs the variance v alone, and that X is symmetric. Without symmetry
                   Cantelli's v / (v + x^2) holds; for probabilities up to 1/2 it is never the better one
    Bernstein      P(X >= x) <= exp(-x^2 / (2 v + 2 m x / 3)): v and a bound m on one stage's difference
    Hoeffding      P(X >= x) <= exp(-x^2 / (2 k m^2)): a bound m on one stage's difference, and the number of stages
    Normal         its limit for many stages; an approximation and no bound

A bound m on one stage cannot be known: exponential times have none, and only sums are seen. If the largest |x| ever
seen, A, were the bound of the sum, then stages of one kind would have m = A / k; but A is the largest of a few samples
and all stages are hardly ever extreme at once. One stage alone making all of A would be m = A. In between, sums of k
equal stages spread like sqrt(k), and so do their largest: m = A / sqrt(k), which we take. It makes both bounds honest
for exponential stages (a test says so), but they are not proofs any more.

Departures. The paper prints the quantile twice, each time with another slip of sign (erratum O1): with W the lower
branch the appendix prints the right value plus 4 b. `exact` is right, `appendix` reproduces the paper's numbers. It
takes the law of k stages for an open problem, which it is only for different scales (erratum O4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb, e, erfc, exp, inf, log, sqrt
from typing import Literal

QuantileForm = Literal["exact", "appendix"]

SIZE_MAX = 1e6  # scales: the tail is nothing from here on, and infinity times nothing would be no number
_INVERSE_E, _INVERSE_E_REST = 0.36787944117144233, -1.2428753672788363e-17  # 1/e in two parts
_NEAR_BRANCH = 0.01  # below it the series of six terms is exact to the last digits
_BRANCH_SERIES = (1.0, 1.0 / 3.0, 11.0 / 72.0, 43.0 / 540.0, 769.0 / 17_280.0, 221.0 / 8_505.0)


# --- Lambert's function, lower branch


def lambert_lower(y: float) -> float:
    """The w <= -1 with w e^w = y, for -1/e <= y < 0."""
    rest = (y + _INVERSE_E) + _INVERSE_E_REST  # the first sum is exact near -1/e
    if rest < -2e-17 or not y < 0.0:  # the float nearest to -1/e lies just below it
        raise ValueError(f"{y} lies outside [-1/e, 0), where the lower branch is real")
    near = sqrt(2.0 * e * max(0.0, rest))
    if near < _NEAR_BRANCH:
        series = 0.0
        for coefficient in reversed(_BRANCH_SERIES):
            series = (series + coefficient) * near
        return -1.0 - series
    return -lambert_of_log(-log(-y))


def lambert_of_log(level: float) -> float:
    """The t >= 1 with t - ln t = level, for level >= 1: minus the lower branch at -e^-level, however small that is."""
    excess = max(0.0, level - 1.0)
    t = 1.0 + sqrt(2.0 * excess) + excess  # never below the root, so that Newton's steps come down to it
    for _ in range(50):
        step = (t - log(t) - level) * t / (t - 1.0) if t > 1.0 else 0.0
        t -= step
        if step <= 1e-15 * t:
            break
    return t


# --- The sum of two Laplace variables


def two_laplace_density(x: float, scale: float) -> float:
    """f(x)"""
    size = min(abs(x) / scale, SIZE_MAX)
    return (1.0 + size) * exp(-size) / (4.0 * scale)


def two_laplace_tail(x: float, scale: float) -> float:
    """P(X > x), for x of either sign; a scale of 0 is the law of a constant delay."""
    if scale <= 0.0:
        return 0.5 if x == 0.0 else float(x < 0.0)
    size = min(abs(x) / scale, SIZE_MAX)
    tail = (2.0 + size) / 4.0 * exp(-size)
    return tail if x >= 0.0 else 1.0 - tail


def two_laplace_cdf(x: float, scale: float) -> float:
    """F(x), exact in the lower tail too."""
    return two_laplace_tail(-x, scale)


def two_laplace_factor(probability: float, form: QuantileForm = "exact") -> float:
    """The x with P(X > x) = probability for a scale of 1, where 0 < probability <= 1/2."""
    branch = lambert_lower(-4.0 * exp(-2.0) * probability)
    return 2.0 - branch if form == "appendix" else max(0.0, -branch - 2.0)


def two_laplace_quantile(p: float, scale: float, form: QuantileForm = "exact") -> float:
    """The x with F(x) = p; the appendix's form is given for p >= 1/2 only, as there."""
    if not 0.0 < p < 1.0 or (form == "appendix" and p < 0.5):
        raise ValueError("p must lie between 0 and 1, and at 1/2 or above for the appendix's form")
    if p >= 0.5:
        return scale * two_laplace_factor(1.0 - p, form)
    return -scale * two_laplace_factor(p)


def two_laplace_conditional(interval: float, scale: float, probability: float) -> float:
    """The further wait t with P(X > interval + t) = probability * P(X > interval), for interval >= 0 (erratum O3).

    With d = interval / b and s = (interval + t) / b + 2 it is s - ln s = 2 + d - ln(probability (2 + d)). The law's
    tail is nearly without memory, so that t never falls below b ln(1 / probability), however long the interval.
    """
    if scale <= 0.0:
        return 0.0
    size = interval / scale
    level = 2.0 + size - log(probability * (2.0 + size))
    return max(0.0, scale * (lambert_of_log(level) - 2.0 - size))


def two_laplace_scale(differences: Sequence[float]) -> float:
    """b = (2/3) mean |x|, unbiased because E|X| = 3 b / 2 (erratum O5)."""
    return 2.0 / 3.0 * sum(map(abs, differences)) / len(differences)


# --- The sum of k equal Laplace variables


@lru_cache(maxsize=256)
def _tail_weights(stages: int) -> tuple[float, ...]:
    """c_i = the sum over shapes above i of the weights C(k-1+j, j) / 2^(k+j), where the shape is k - j."""
    weights, total = [], 0.0
    for shape in range(stages, 0, -1):
        j = stages - shape
        total += comb(stages - 1 + j, j) / (1 << (stages + j))
        weights.append(total)
    return tuple(reversed(weights))


def stages_tail(x: float, scale: float, stages: int) -> float:
    """P(X > x) for the sum of `stages` Laplace variables."""
    if scale <= 0.0:
        return two_laplace_tail(x, scale)
    size = min(abs(x) / scale, SIZE_MAX)
    term, tail = exp(-size), 0.0
    for i, weight in enumerate(_tail_weights(stages)):
        tail += weight * term
        term *= size / (i + 1)
    return tail if x >= 0.0 else 1.0 - tail


def stages_mean_absolute(stages: int) -> float:
    """E|X| for a scale of 1."""
    return 2 * stages * comb(2 * stages, stages) / (1 << (2 * stages))


@lru_cache(maxsize=1024)
def stages_factor(stages: int, probability: float) -> float:
    """The x with P(X > x) = probability for a scale of 1, where 0 < probability <= 1/2."""
    return _where(lambda x: stages_tail(x, 1.0, stages), probability)


# --- General bounds: P(X >= x) at most, and the x from which on it is at most `probability`


def chebyshev_tail(x: float, variance: float) -> float:
    """For a symmetric law: half of the two-sided bound; Cantelli's where that one is the smaller."""
    if x <= 0.0:
        return 1.0
    return min(variance / 2.0 / x / x, cantelli_tail(x, variance))


def chebyshev_quantile(probability: float, variance: float) -> float:
    """For probabilities up to 1/2, where the symmetric form is never the worse one."""
    return sqrt(variance / (2.0 * probability))


def cantelli_tail(x: float, variance: float) -> float:
    """For any law of mean 0."""
    return variance / (variance + x * x) if x > 0.0 and variance > 0.0 else float(x <= 0.0)


def cantelli_quantile(probability: float, variance: float) -> float:
    """For any law of mean 0."""
    return sqrt(variance * (1.0 - probability) / probability)


def bernstein_tail(x: float, variance: float, bound: float) -> float:
    """`bound` is that of one stage, `variance` that of the sum."""
    room = 2.0 * variance + 2.0 * bound * x / 3.0
    return exp(-x * x / room) if x > 0.0 and room > 0.0 else float(x <= 0.0)


def bernstein_quantile(probability: float, variance: float, bound: float) -> float:
    """The positive root of x^2 = 2 L (v + m x / 3), L = ln(1 / probability)."""
    level = log(1.0 / probability)
    linear = level * bound / 3.0
    return linear + sqrt(linear * linear + 2.0 * level * variance)


def hoeffding_tail(x: float, bound: float, stages: int) -> float:
    """`bound` is that of one stage."""
    room = 2.0 * stages * bound * bound
    return exp(-x * x / room) if x > 0.0 and room > 0.0 else float(x <= 0.0)


def hoeffding_quantile(probability: float, bound: float, stages: int) -> float:
    """The x at which the bound reaches the probability."""
    return bound * sqrt(2.0 * stages * log(1.0 / probability))


def stage_bound(largest: float, stages: int) -> float:
    """What to take for the largest difference of one stage when only sums were seen: see the header."""
    return largest / sqrt(stages)


def normal_tail(x: float, variance: float) -> float:
    """P(X > x) under a Normal law of mean 0."""
    return erfc(x / sqrt(2.0 * variance)) / 2.0 if variance > 0.0 else two_laplace_tail(x, 0.0)


@lru_cache(maxsize=1024)
def normal_factor(probability: float) -> float:
    """The x with P(X > x) = probability for a variance of 1, where 0 < probability <= 1/2."""
    return _where(lambda x: normal_tail(x, 1.0), probability)


def _where(tail: Callable[[float], float], probability: float) -> float:
    """The x >= 0 at which a falling tail comes down to the probability, by halving a bracket until it is a point."""
    low, high = 0.0, 1.0
    while tail(high) > probability and high < inf:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if tail(middle) > probability else (low, middle)
    return high if tail(0.0) > probability else 0.0

"""The law of delay differences: a sum of Laplace variables of one scale b (002 sections 3.2.4, 3.2.5 and appendix A).

A message's delay is a constant plus an exponential service time, of mean b, at each of k brokers. The difference of
two such delays is a sum of k Laplace(b) variables. The paper always takes two of them, whatever k is:

    density   f(x) = (b + |x|) / (4 b^2) * exp(-|x| / b)
    cdf       F(x) = 1 - (2 b + x) / (4 b) * exp(-x / b)      for x >= 0;  F(-x) = 1 - F(x)
    moments   E|x| = 3 b / 2,  variance 4 b^2
    quantile  x    = -b * (W(4 (p - 1) / e^2) + 2)            for p >= 1/2, W the lower branch of Lambert's

Departure from the paper (erratum O1): it prints the quantile twice, each time with another slip of sign. With W the
lower branch, the appendix prints the right value plus 4 b. `exact` is right; `appendix` is what the measured system
may have used, kept to reproduce its numbers. The `sum_of_laplace_*` functions are the exact law for k equal stages,
which the paper takes for an open problem (it is open only for different scales, erratum O4).
"""

from __future__ import annotations

from math import comb, exp
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
QuantileForm = Literal["exact", "appendix"]


def density(x: ArrayLike, scale: float) -> Floats:
    """f(x)"""
    size = np.abs(np.asarray(x, dtype=np.float64)) / scale
    return np.asarray((1.0 + size) * np.exp(-size) / (4.0 * scale), dtype=np.float64)


def cdf(x: ArrayLike, scale: float) -> Floats:
    """F(x), for x of either sign."""
    size = np.asarray(x, dtype=np.float64) / scale
    tail = (2.0 + np.abs(size)) / 4.0 * np.exp(-np.abs(size))
    return np.where(size >= 0.0, 1.0 - tail, tail)


def quantile(p: ArrayLike, scale: float, *, form: QuantileForm = "exact") -> Floats:
    """The x with F(x) = p, for 0 < p < 1; the appendix's form is given for p >= 1/2 only, as there."""
    from scipy.special import lambertw

    p = np.asarray(p, dtype=np.float64)
    if np.any((p <= 0.0) | (p >= 1.0)) or (form == "appendix" and np.any(p < 0.5)):
        raise ValueError("p must lie between 0 and 1, and at 1/2 or above for the appendix's form")
    upper = np.maximum(p, 1.0 - p)
    branch = np.real(lambertw(4.0 * exp(-2.0) * (upper - 1.0), k=-1))
    if form == "appendix":
        return np.asarray(-scale * (branch - 2.0))
    return np.asarray(np.sign(p - 0.5) * np.maximum(0.0, -scale * (branch + 2.0)))


def scale_of(differences: ArrayLike) -> float:
    """b = (2/3) mean |x|: the estimator of appendix A.0.3. It is unbiased, because E|x| = 3 b / 2 (erratum O5)."""
    return float(2.0 / 3.0 * np.mean(np.abs(np.asarray(differences, dtype=np.float64))))


def likeliest_scale_of(differences: ArrayLike) -> float:
    """The root of (A.5), which the paper replaces by its expectation: b = (sum|x| + b^2 sum 1/(b + |x|)) / (2 n)."""
    sizes = np.abs(np.asarray(differences, dtype=np.float64))
    scale = scale_of(sizes)
    for _ in range(100):
        if scale == 0.0:
            break
        following = float(np.mean(sizes) + scale**2 * np.mean(1.0 / (scale + sizes))) / 2.0
        if abs(following - scale) <= 1e-12 * scale:
            return following
        scale = following
    return scale


def sum_of_laplace_density(x: ArrayLike, scale: float, stages: int) -> Floats:
    """The exact density of the sum of `stages` Laplace variables of one scale, by their weights in Gamma densities."""
    from scipy.special import gammaln

    size = np.abs(np.asarray(x, dtype=np.float64)) / scale
    total = np.zeros_like(size)
    for shape, weight in _gamma_weights(stages):
        total += weight * size ** (shape - 1) * np.exp(-size - gammaln(shape))
    return total / scale


def sum_of_laplace_tail(x: ArrayLike, scale: float, stages: int) -> Floats:
    """P(X > x) under the exact law, for x >= 0."""
    from scipy.special import gammaincc

    size = np.asarray(x, dtype=np.float64) / scale
    if np.any(size < 0.0):
        raise ValueError("x must not be negative; the law is symmetric: P(X > -x) = 1 - P(X > x)")
    return np.asarray(sum(weight * gammaincc(shape, size) for shape, weight in _gamma_weights(stages)))


def sum_of_laplace_mean_absolute(scale: float, stages: int) -> float:
    """E|x| = 2 k C(2k, k) 4^-k b"""
    return 2.0 * stages * comb(2 * stages, stages) * 4.0**-stages * scale


def _gamma_weights(stages: int) -> list[tuple[int, float]]:
    """(shape, weight) of the Gamma laws whose mixture is the positive half; the weights add up to one half."""
    return [(stages - j, comb(stages - 1 + j, j) / 2.0 ** (stages + j)) for j in range(stages)]

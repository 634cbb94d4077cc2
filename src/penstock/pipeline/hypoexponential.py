"""The law of delays: a sum of k exponential phases with rates of their own (002 section 3.2.3), and its fit by EM.

The textbook density, a weighted sum of exponentials, divides by differences of rates and is useless when two of them
are close. Here the phases are walked through by a clock that ticks at a rate no phase exceeds (uniformisation): at
each tick the walker leaves phase i with probability rate_i / clock, and the number of ticks until x is Poisson(clock
* x). Then

    f(x) = sum over n of Poisson(n; clock x) c_n,     c_n = the density of leaving the last phase after n ticks

is a sum of positive terms, equally good for equal rates and for different ones. All but a few of the Poisson weights
are nothing (ten standard deviations away), so they are kept as a sparse matrix; and the walker's places after n ticks
are found by doubling: those after n + 2^j ticks are those after n ticks times the 2^j-th power of one small matrix.

The fit (Asmussen, Nerman and Olsson, cited as [ANO96]; here for phases in a row): given x, the time spent in phase i
is expected to be g_i(x) / (rate_i f(x)), where g_i is the density with phase i walked through twice. The next rate_i
is one over the mean of these times, so that the mean of the law is the mean of the samples after every step. Steps
are lengthened by SQUAREM (Varadhan and Roland 2008) when that raises the likelihood; plain EM needs thousands of
steps here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

POINTS_MAX = 1_000  # more samples are put together in groups of neighbours, each with its mean
TICKS_MAX = 20_000  # until the largest sample; bounds the memory at 35 MB, and so the shortest phase of a fit
PHASE_MEAN_MIN = 1 / 200  # of the whole mean: a shorter phase cannot be seen in the data, and would only cost time
STEPS_MAX = 400
GAIN_MIN = 1e-9  # nats per sample and step; a smaller gain ends the fit


@dataclass(frozen=True, kw_only=True)
class HypoexponentialFit:
    """What EM found. Rates are sorted, slowest first: the order of the phases does not change the law."""

    rates: tuple[float, ...]
    log_likelihood: float  # mean per sample, in nats
    steps: int
    converged: bool  # False: STEPS_MAX came first

    @property
    def mean(self) -> float:
        return sum(1.0 / rate for rate in self.rates)


def density(x: ArrayLike, rates: ArrayLike) -> Floats:
    """f(x); 0 for x < 0."""
    rates = _checked(rates)
    return _mixed(x, rates, lambda places: places[:, -1] * rates[-1])


def cdf(x: ArrayLike, rates: ArrayLike) -> Floats:
    """P(X <= x): the walker is in no phase any more."""
    points = np.asarray(x, dtype=np.float64)
    inside = _mixed(points, _checked(rates), lambda places: places.sum(axis=1))
    return np.where(points < 0.0, 0.0, np.clip(1.0 - inside, 0.0, 1.0))


def fit(samples: ArrayLike, phases: int, *, points_max: int = POINTS_MAX) -> HypoexponentialFit:
    """The rates that make the samples likeliest. Samples are delays without their constant part: none is negative."""
    values = np.sort(np.asarray(samples, dtype=np.float64))
    if phases < 1 or values.size == 0 or values[0] < 0.0 or not np.isfinite(values[-1]) or values[-1] == 0.0:
        raise ValueError("give at least one phase and finite samples, none negative and not all zero")
    mean = float(values.mean())
    points, weights = _grouped(values / mean, points_max)
    walk = _Walk(np.maximum(points, 1e-6), weights / values.size)
    start = _start(points, weights / values.size, phases, walk.shortest)
    logs, likelihood, steps, converged = _climb(walk, np.log(start))
    rates = np.sort(np.exp(logs)) / mean
    return HypoexponentialFit(
        rates=tuple(rates.tolist()),
        log_likelihood=likelihood - log(mean),
        steps=steps,
        converged=converged,
    )


class _Walk:
    """The samples, with mean 1, and one step of EM on them; keeps the Poisson weights while the clock serves."""

    def __init__(self, points: Floats, weights: Floats) -> None:
        self._points = points
        self._weights = weights
        self._clock = 0.0
        self._ticks: csr_array | None = None
        self.shortest = max(PHASE_MEAN_MIN, 1.5 * float(points.max()) / TICKS_MAX)

    def step(self, logs: Floats) -> tuple[Floats, float]:
        """From the logarithms of the rates to the next ones, and the mean log-likelihood of the given ones."""
        rates = np.exp(logs)
        if self._ticks is None or rates.max() > self._clock:
            self._clock = 1.5 * float(rates.max())
            self._ticks = _ticks(self._points, self._clock)
        walked = _walked(_twice(rates / self._clock), self._ticks.shape[1])[:, rates.size - 1 :] * rates[-1]
        found = np.maximum(self._ticks @ walked, 1e-300)
        times = self._weights @ (found[:, 1:] / found[:, :1]) / rates
        following = -np.log(np.maximum(times, self.shortest))
        return following, float(self._weights @ np.log(found[:, 0]))


def _climb(walk: _Walk, start: Floats) -> tuple[Floats, float, int, bool]:
    """EM with lengthened steps: two plain ones, a jump along their curve, kept if it climbs as high as they did."""
    current, (first, height) = start, walk.step(start)
    steps = 1
    while steps < STEPS_MAX:
        second, first_height = walk.step(first)
        jump = np.clip(_jump(current, first, second), -5.0, -log(walk.shortest))
        landed, jump_height = walk.step(jump)
        steps += 2
        gain = max(first_height, jump_height) - height
        if jump_height >= first_height:
            current, first, height = jump, landed, jump_height
        else:
            current, first, height = first, second, first_height
        if gain < GAIN_MIN:
            return current, height, steps, True
    return current, height, steps, False


def _jump(current: Floats, first: Floats, second: Floats) -> Floats:
    move, bend = first - current, second - 2.0 * first + current
    bend_size = float(np.linalg.norm(bend))
    if bend_size == 0.0:
        return second
    length = max(1.0, float(np.linalg.norm(move)) / bend_size)
    return current + 2.0 * length * move + length**2 * bend


def _start(points: Floats, weights: Floats, phases: int, shortest: float) -> Floats:
    """Rates in geometric progression with the samples' mean and, as far as `phases` allow, their variance.

    They must differ: from equal rates, EM never leaves equal rates.
    """
    variation = float(weights @ (points - 1.0) ** 2)
    low, high = 0.02, 0.95  # the ratio of neighbouring means
    for _ in range(40):
        middle = (low + high) / 2.0
        means = middle ** np.arange(phases)
        if float((means**2).sum() / means.sum() ** 2) > variation:
            low = middle
        else:
            high = middle
    means = low ** np.arange(phases)
    return np.asarray(1.0 / np.maximum(means / means.sum(), shortest))


def _grouped(values: Floats, points_max: int) -> tuple[Floats, Floats]:
    """Sorted values as at most `points_max` points with the number of values that each stands for."""
    if values.size <= points_max:
        return values, np.ones(values.size)
    ends = np.linspace(0, values.size, points_max + 1).astype(np.int64)
    sizes = np.diff(ends).astype(np.float64)
    return np.add.reduceat(values, ends[:-1]) / sizes, sizes


def _checked(rates: ArrayLike) -> Floats:
    found = np.atleast_1d(np.asarray(rates, dtype=np.float64))
    if found.ndim != 1 or found.size == 0 or not np.all(np.isfinite(found)) or np.any(found <= 0.0):
        raise ValueError("rates are a row of positive numbers")
    return found


def _mixed(x: ArrayLike, rates: Floats, of_places: Callable[[Floats], Floats]) -> Floats:
    """The mean of something about the walker's place at time x; 0 for x < 0. In parts, to bound the memory."""
    points = np.asarray(x, dtype=np.float64)
    flat, clock = np.maximum(points, 0.0).ravel(), float(rates.max())
    found = np.empty(flat.size)
    for begin in range(0, flat.size, POINTS_MAX):
        ticks = _ticks(flat[begin : begin + POINTS_MAX], clock)
        found[begin : begin + POINTS_MAX] = ticks @ of_places(_walked(_in_a_row(rates / clock), ticks.shape[1]))
    return np.where(points < 0.0, 0.0, found.reshape(points.shape))


def _ticks(points: Floats, clock: float) -> csr_array:
    """For each point the Poisson probabilities of 0, 1, 2 ... ticks until then, as far as they matter."""
    from scipy.sparse import csr_array
    from scipy.special import gammaln, xlogy

    expected = clock * points
    reach = 10.0 * np.sqrt(expected) + 40.0
    first = np.maximum(expected - reach, 0.0).astype(np.int64)
    many = np.ceil(expected + reach).astype(np.int64) - first
    starts = np.concatenate([[0], np.cumsum(many)])
    counts = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, many)
    most = int((first + many).max(initial=1))
    factorials = gammaln(np.arange(most) + 1.0)
    weights = np.exp(
        xlogy(counts, np.repeat(expected, many)) - np.repeat(expected, many) - factorials[counts], dtype=np.float64
    )
    return csr_array((weights, counts, starts), shape=(points.size, most))


def _in_a_row(leaves: Floats) -> Floats:
    """What a tick does: from each phase (rows) to each phase (columns). `leaves` is the chance to leave each."""
    return np.diag(1.0 - leaves) + np.diag(leaves[:-1], 1)


def _twice(leaves: Floats) -> Floats:
    """The same with one more phase for each: whoever leaves the last one walks through phase i a second time."""
    phases = leaves.size
    step = np.zeros((2 * phases, 2 * phases))
    step[:phases, :phases] = _in_a_row(leaves)
    step[phases - 1, phases:] = leaves
    step[phases:, phases:] = np.diag(1.0 - leaves)
    return step


def _walked(step: Floats, terms: int) -> Floats:
    """The probability of standing in each phase (columns) after 0, 1, 2 ... ticks (rows), from the first phase on."""
    places = np.zeros((terms, len(step)))
    places[0, 0] = 1.0
    done = 1
    while done < terms:
        more = min(done, terms - done)
        places[done : done + more] = places[:more] @ step
        step = step @ step
        done *= 2
    return places

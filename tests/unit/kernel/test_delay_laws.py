"""The laws of delay differences, held against root finding, other forms of the same law, and samples."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import comb, e, exp, inf, isclose, log, nextafter, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gammaincc, lambertw
from scipy.stats import norm

from penstock.kernel import delay_laws as laws

PROBABILITIES = (0.5, 0.2, 0.1, 0.05, 0.01, 0.001, 1e-9)
small = st.floats(1e-12, 0.5)
scales = st.floats(1e-6, 1e3)


def lambert_in_many_digits(y: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        level = -(-Decimal(y)).ln()
        t = 1 + (2 * (level - 1)).sqrt() + (level - 1)
        for _ in range(300):
            step = (t - t.ln() - level) * t / (t - 1)
            t -= step
            if abs(step) < Decimal("1e-45") * t:
                break
        return -t


@given(st.one_of(st.floats(-0.3678794411714423, -1e-300), st.floats(-320, -1).map(lambda power: -(10.0**power))))
def test_lambert_is_right_to_twelve_digits_everywhere(y: float) -> None:
    right = lambert_in_many_digits(y)
    assert abs((Decimal(laws.lambert_lower(y)) - right) / right) < Decimal("1e-12")


@given(st.floats(0.5, 16.2))
def test_lambert_is_right_next_to_the_branch_point(digits: float) -> None:
    y = -0.36787944117144233 + 10.0**-digits
    right = lambert_in_many_digits(y)
    assert abs((Decimal(laws.lambert_lower(y)) - right) / right) < Decimal("1e-12")


def test_lambert_at_the_branch_point_and_outside() -> None:
    assert laws.lambert_lower(-1.0 / e) == -1.0
    assert laws.lambert_lower(-2.0 * exp(-2.0)) == pytest.approx(-2.0, rel=1e-14)
    assert laws.lambert_lower(-5e-324) < -745.0
    for outside in (-0.4, nextafter(-1.0 / e, -1.0), 0.0, 1.0, inf, float("nan")):
        with pytest.raises(ValueError, match="outside"):
            laws.lambert_lower(outside)


def test_the_two_laplace_law_is_a_law() -> None:
    total, _ = quad(laws.two_laplace_density, -60.0, 60.0, args=(1.5,), points=[0.0])
    assert total == pytest.approx(1.0, abs=1e-9)
    tail, _ = quad(laws.two_laplace_density, 2.0, 90.0, args=(1.5,))
    assert tail == pytest.approx(laws.two_laplace_tail(2.0, 1.5), abs=1e-9)
    assert laws.two_laplace_tail(0.0, 0.0) == 0.5
    assert laws.two_laplace_tail(1.0, 0.0) == 0.0
    assert laws.two_laplace_tail(-1.0, 0.0) == 1.0


@given(st.floats(-50, 50), st.floats(0.01, 100))
def test_the_law_agrees_with_the_formulas_of_the_paper(x: float, scale: float) -> None:
    density = (scale + abs(x)) / (4.0 * scale**2) * exp(-abs(x) / scale)
    above = (2.0 * scale + abs(x)) / (4.0 * scale) * exp(-abs(x) / scale)
    assert laws.two_laplace_density(x, scale) == pytest.approx(density, rel=1e-12)
    assert laws.two_laplace_cdf(x, scale) == pytest.approx(1.0 - above if x >= 0.0 else above, rel=1e-12)
    assert laws.two_laplace_cdf(x, scale) + laws.two_laplace_tail(x, scale) == pytest.approx(1.0)


@given(st.floats(0.001, 0.999), scales)
def test_the_quantile_agrees_with_scipy_s_lambert_function_and_undoes_the_cdf(p: float, scale: float) -> None:
    x = laws.two_laplace_quantile(p, scale)
    branch = float(np.real(lambertw(4.0 * exp(-2.0) * (max(p, 1.0 - p) - 1.0), k=-1)))
    right = max(0.0, -scale * (branch + 2.0))
    assert x == pytest.approx(right if p >= 0.5 else -right, rel=1e-9, abs=1e-9 * scale)
    assert laws.two_laplace_cdf(x, scale) == pytest.approx(p, rel=1e-9)
    if p >= 0.5:
        appendix = laws.two_laplace_quantile(p, scale, "appendix")
        assert appendix == pytest.approx(-scale * (branch - 2.0), rel=1e-9)
        assert appendix == pytest.approx(x + 4.0 * scale, rel=1e-9)


def test_quantiles_outside_their_range_are_refused() -> None:
    for p in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="between"):
            laws.two_laplace_quantile(p, 1.0)
    with pytest.raises(ValueError, match="appendix"):
        laws.two_laplace_quantile(0.4, 1.0, "appendix")


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8, 50, 255])
def test_the_law_of_equal_stages_is_a_mixture_of_gamma_laws(stages: int) -> None:
    weights = [(stages - j, comb(stages - 1 + j, j) / 2.0 ** (stages + j)) for j in range(stages)]
    for x in (0.0, 0.1, 1.0, 3.0, 10.0, 40.0):
        right = float(sum(weight * gammaincc(shape, x / 1.3) for shape, weight in weights))
        assert laws.stages_tail(x, 1.3, stages) == pytest.approx(right, rel=1e-9)
        assert laws.stages_tail(-x, 1.3, stages) == pytest.approx(1.0 - right)
    mean = 2.0 * sum(weight * shape for shape, weight in weights)
    assert laws.stages_mean_absolute(stages) == pytest.approx(mean)
    for probability in PROBABILITIES:
        x = laws.stages_factor(stages, probability)
        assert laws.stages_tail(x, 1.0, stages) == pytest.approx(probability, rel=1e-9)


def test_two_stages_are_the_two_laplace_law_and_one_is_laplace_s() -> None:
    for probability in PROBABILITIES:
        assert laws.stages_factor(2, probability) == pytest.approx(laws.two_laplace_factor(probability), abs=1e-9)
        assert laws.stages_factor(1, probability) == pytest.approx(log(0.5 / probability), abs=1e-9)


@given(st.floats(0.0, 1e6), st.floats(1e-3, 1e3), small)
def test_the_conditional_wait_solves_its_equation(interval: float, scale: float, probability: float) -> None:
    wait = laws.two_laplace_conditional(interval, scale, probability)
    before, after = interval / scale, (interval + wait) / scale
    # In logarithms, because the tails themselves vanish: ln (2 + u) - u.
    assert isclose(log(2 + after) - after, log(probability) + log(2 + before) - before, rel_tol=1e-9, abs_tol=1e-6)
    assert wait >= scale * log(1.0 / probability) * (1 - 1e-6) - 1e-9 * interval
    assert laws.two_laplace_conditional(interval, 0.0, probability) == 0.0


@given(small, st.floats(1e-9, 1e3), st.floats(1e-6, 1e3), st.integers(1, 255))
def test_bounds_and_their_quantiles_fit_together(p: float, variance: float, bound: float, stages: int) -> None:
    assert laws.chebyshev_tail(laws.chebyshev_quantile(p, variance), variance) == pytest.approx(p)
    assert laws.cantelli_tail(laws.cantelli_quantile(p, variance), variance) == pytest.approx(p)
    assert laws.chebyshev_quantile(p, variance) <= laws.cantelli_quantile(p, variance) * (1 + 1e-12)
    assert laws.bernstein_tail(laws.bernstein_quantile(p, variance, bound), variance, bound) == pytest.approx(p)
    assert laws.hoeffding_tail(laws.hoeffding_quantile(p, bound, stages), bound, stages) == pytest.approx(p)
    normal = laws.normal_factor(p)
    assert normal == pytest.approx(norm.isf(p), abs=1e-9)
    assert laws.normal_tail(normal * sqrt(variance), variance) == pytest.approx(p)


def test_bounds_of_nothing_are_nothing() -> None:
    for tail in (laws.chebyshev_tail(1.0, 0.0), laws.cantelli_tail(1.0, 0.0), laws.bernstein_tail(1.0, 0.0, 0.0)):
        assert tail == 0.0
    assert laws.hoeffding_tail(1.0, 0.0, 3) == laws.normal_tail(1.0, 0.0) == 0.0
    assert laws.chebyshev_tail(0.0, 1.0) == laws.cantelli_tail(-1.0, 1.0) == laws.bernstein_tail(0.0, 1.0, 1.0) == 1.0


@given(st.floats(0.0, 100.0), st.floats(0.01, 10.0))
def test_chebyshev_holds_for_the_law(x: float, scale: float) -> None:
    assert laws.two_laplace_tail(x, scale) <= laws.chebyshev_tail(x, 4.0 * scale * scale) + 1e-12


@pytest.mark.parametrize("stages", [1, 2, 5, 8])
def test_bounds_from_a_ring_of_samples_are_honest_for_exponential_stages(stages: int) -> None:
    """The one that the header promises: the chance of exceeding the reach is at most P_t on average."""
    rng = np.random.default_rng(3)
    for probability in (0.2, 0.05, 0.01):
        exceeded: dict[str, list[float]] = {"chebyshev": [], "bernstein": [], "hoeffding": []}
        for _ in range(200):
            ring = np.diff(rng.exponential(1.0, (26, stages)).sum(axis=1))
            variance, largest = float(np.mean(ring**2)), float(np.max(np.abs(ring)))
            bound = laws.stage_bound(largest, stages)
            for name, reach in (
                ("chebyshev", laws.chebyshev_quantile(probability, variance)),
                ("bernstein", laws.bernstein_quantile(probability, variance, bound)),
                ("hoeffding", laws.hoeffding_quantile(probability, bound, stages)),
            ):
                exceeded[name].append(laws.stages_tail(reach, 1.0, stages))
        for name, tails in exceeded.items():
            assert np.mean(tails) <= probability, (name, probability, np.mean(tails))


def test_the_estimator_is_unbiased() -> None:
    samples = np.random.default_rng(1).laplace(0.0, 2.0, (20_000, 2)).sum(axis=1)
    assert laws.two_laplace_scale(samples.tolist()) == pytest.approx(2.0, rel=0.02)
    assert laws.two_laplace_scale([3.0, -3.0]) == 2.0

"""The laws of delays and of their differences: formulas against brute force, fits against known parameters.

Claims of 002 carry their section (3.2.3, 3.2.4, appendix A), errata of protocols.md their number.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from scipy import integrate, stats

from penstock.kernel import delay_laws as laws
from penstock.pipeline import difference_scale, hypoexponential, models

Floats = NDArray[np.float64]


def delays(means: list[float], size: int, seed: int = 1) -> Floats:
    """Sums of exponential service times, one for each broker."""
    rng = np.random.default_rng(seed)
    return np.sum([rng.exponential(mean, size) for mean in means], axis=0)


def differences(stages: int, size: int, scale: float = 1.0, seed: int = 2) -> Floats:
    """Independent differences of two delays over equal brokers."""
    return delays([scale] * stages, size, seed) - delays([scale] * stages, size, seed + 1000)


# Delay differences: 3.2.4, 3.2.5 and appendix A -------------------------------------------------------------------


def test_a_0_1_the_density_is_the_convolution_of_two_laplace_densities() -> None:
    scale = 0.7
    laplace = stats.laplace(scale=scale).pdf
    for x in (0.0, 0.3, -1.1, 4.0):
        brute, _ = integrate.quad(
            lambda t, x=x: laplace(t) * laplace(x - t), -40, 40, points=sorted({0.0, x}), limit=200
        )
        assert laws.two_laplace_density(x, scale) == pytest.approx(brute, rel=1e-8)


def test_a_0_2_the_cdf_is_the_integral_of_the_density_on_both_sides() -> None:
    for x in (-3.0, -0.2, 0.0, 0.5, 6.0):
        below, _ = integrate.quad(lambda t: laws.two_laplace_density(t, 1.3), -60, x, points=[min(x, 0.0)], limit=200)
        assert laws.two_laplace_cdf(x, 1.3) == pytest.approx(below, abs=1e-9)


def test_a_0_2_the_exact_quantile_inverts_the_cdf() -> None:
    for p in (1e-6, 0.01, 0.3, 0.5, 0.7, 0.95, 0.999999):
        assert laws.two_laplace_cdf(laws.two_laplace_quantile(p, 2.5), 2.5) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize(
    ("tail", "factor"), [(0.5, 0.0), (0.2, 1.4662), (0.1, 2.3973), (0.05, 3.2718), (0.01, 5.1918), (0.001, 7.8043)]
)
def test_o1_the_appendix_prints_the_exact_quantile_plus_four_scales(tail: float, factor: float) -> None:
    exact = laws.two_laplace_quantile(1.0 - tail, 2.0)
    assert exact == pytest.approx(2.0 * factor, abs=2e-4)
    assert laws.two_laplace_quantile(1.0 - tail, 2.0, form="appendix") == pytest.approx(exact + 4.0 * 2.0, abs=1e-7)


@pytest.mark.parametrize(("p", "form"), [(0.0, "exact"), (1.0, "exact"), (1.1, "exact"), (0.4, "appendix")])
def test_quantiles_outside_their_range_are_refused(p: float, form: laws.QuantileForm) -> None:
    with pytest.raises(ValueError, match="p must lie"):
        laws.two_laplace_quantile(p, 1.0, form=form)


def test_3_2_4_the_estimator_is_unbiased_at_two_brokers() -> None:
    """002 derives it as an approximation; E|x| = 3b/2 makes it exact (erratum O5)."""
    samples = differences(2, 25 * 4000).reshape(4000, 25)
    estimates = np.array([difference_scale.scale_of(row) for row in samples])
    assert estimates.mean() == pytest.approx(1.0, abs=0.01)
    assert estimates.std() == pytest.approx(0.177, abs=0.01)
    assert np.mean(np.abs(samples)) / difference_scale.scale_of(samples) == pytest.approx(1.5)


def test_a_0_3_the_likeliest_scale_solves_a_5_and_is_hardly_better() -> None:
    samples = differences(2, 25 * 1000).reshape(1000, 25)
    estimates = np.array([difference_scale.likeliest_scale_of(row) for row in samples])
    sizes, scale = np.abs(samples[0]), estimates[0]
    assert np.sum(sizes) + scale**2 * np.sum(1.0 / (scale + sizes)) == pytest.approx(2.0 * 25 * scale)
    assert estimates.std() == pytest.approx(0.176, abs=0.01)


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_the_exact_law_for_equal_stages_agrees_with_samples(stages: int) -> None:
    samples = differences(stages, 200_000)
    for x in (0.0, 1.0, 3.0):
        assert laws.stages_tail(x, 1.0, stages) == pytest.approx(np.mean(samples > x), abs=0.004)
    assert laws.stages_mean_absolute(stages) == pytest.approx(np.mean(np.abs(samples)), rel=0.01)


def test_two_stages_of_the_exact_law_are_the_papers_law() -> None:
    for x in np.linspace(-5.0, 5.0, 41).tolist():
        assert laws.stages_tail(x, 0.4, 2) == pytest.approx(laws.two_laplace_tail(x, 0.4))


@pytest.mark.parametrize(
    ("stages", "tail", "peak"),
    [(1, 0.0565, 0.707), (2, 0.05, 0.5), (3, 0.0473, 0.459), (5, 0.0448, 0.432), (8, 0.0434, 0.419)],
)
def test_o4_the_tail_is_honest_and_the_peak_shrinks_with_equal_stages(stages: int, tail: float, peak: float) -> None:
    """3.2.4 says that the density at zero grows with the number of brokers; for equal ones it falls."""
    scale = 2.0 / 3.0 * laws.stages_mean_absolute(stages)
    nominal = laws.two_laplace_quantile(0.95, scale)
    assert laws.stages_tail(nominal, 1.0, stages) == pytest.approx(tail, abs=1e-4)
    at_zero = (0.5 - laws.stages_tail(1e-6, 1.0, stages)) / 1e-6
    assert at_zero * np.sqrt(2.0 * stages) == pytest.approx(peak, abs=1e-3)


# Delays: 3.2.3 ----------------------------------------------------------------------------------------------------


def test_hypoexponential_with_equal_rates_is_erlang() -> None:
    x = np.linspace(0.0, 12.0, 200)
    erlang = stats.gamma(4, scale=0.5)
    assert hypoexponential.density(x, [2.0] * 4) == pytest.approx(erlang.pdf(x), abs=1e-12)
    assert hypoexponential.cdf(x, [2.0] * 4) == pytest.approx(erlang.cdf(x), abs=1e-12)


def test_hypoexponential_with_different_rates_is_the_textbook_sum() -> None:
    rates, x = np.array([0.5, 2.0, 7.0]), np.linspace(0.01, 10.0, 100)
    weights = [np.prod([other / (other - rate) for other in rates if other != rate]) for rate in rates]
    textbook = sum(weight * rate * np.exp(-rate * x) for weight, rate in zip(weights, rates, strict=True))
    assert hypoexponential.density(x, rates) == pytest.approx(textbook, rel=1e-9)


@pytest.mark.parametrize("apart", [1e-3, 1e-6, 1e-9, 1e-15, 0.0])
def test_hypoexponential_is_smooth_where_rates_meet(apart: float) -> None:
    """The textbook sum loses all its digits here."""
    x = np.linspace(0.0, 10.0, 50)
    close = hypoexponential.cdf(x, [2.0, 2.0 + apart, 2.0 - apart, 0.3])
    assert close == pytest.approx(hypoexponential.cdf(x, [2.0, 2.0, 2.0, 0.3]), abs=1e-6 + apart**2)
    assert np.all(np.diff(close) >= 0.0)


@pytest.mark.parametrize("means", [[1.0], [1.0, 1.0, 1.0], [0.1, 1.0, 5.0], [1.0, 1.0, 1.0, 1.0, 10.0]])
def test_hypoexponential_agrees_with_samples(means: list[float]) -> None:
    samples = delays(means, 40_000)
    rates = [1.0 / mean for mean in means]
    assert models.goodness(samples, lambda x: hypoexponential.cdf(x, rates)).p > 0.01
    whole, _ = integrate.quad(lambda x: float(hypoexponential.density(x, rates)), 0, 60 * max(means), limit=200)
    assert whole == pytest.approx(1.0, abs=1e-6)


def test_hypoexponential_of_a_negative_time_is_zero_and_the_shape_is_kept() -> None:
    x = np.array([[-1.0, 0.0], [1.0, 50.0]])
    assert hypoexponential.cdf(x, [1.0, 2.0])[0].tolist() == [0.0, 0.0]
    assert hypoexponential.density(x, [1.0, 2.0]).shape == (2, 2)
    with pytest.raises(ValueError, match="positive"):
        hypoexponential.cdf(x, [1.0, 0.0])


def test_3_2_3_em_recovers_different_rates() -> None:
    fit = hypoexponential.fit(delays([1e-3, 3e-3, 12e-3], 30_000), 3)
    assert fit.converged
    assert [1.0 / rate for rate in fit.rates] == pytest.approx([12e-3, 3e-3, 1e-3], rel=0.1)


@pytest.mark.parametrize(("phases", "size"), [(1, 6500), (3, 10_000), (5, 6500), (10, 6500)])
def test_3_2_3_a_fit_to_equal_brokers_follows_the_data_closely(phases: int, size: int) -> None:
    """Figure 3.4(b): 6500 samples, five phases; "in all cases" up to a diameter of 10."""
    samples = delays([1e-3] * phases, size)
    fit = hypoexponential.fit(samples, phases)
    assert models.goodness(samples, lambda x: hypoexponential.cdf(x, fit.rates)).distance <= 0.02
    assert fit.mean == pytest.approx(samples.mean(), rel=1e-3)
    truth = np.mean(np.log(hypoexponential.density(samples, [1e3] * phases)))
    assert fit.log_likelihood >= truth - 1e-4, "EM must find something at least as likely as what made the samples"


def test_em_takes_phases_that_are_not_there_and_outliers_without_harm() -> None:
    samples = delays([1.0], 3000)
    fit = hypoexponential.fit(samples, 3)
    assert 1.0 / fit.rates[0] == pytest.approx(samples.mean(), rel=0.05)
    wild = np.random.default_rng(3).pareto(1.5, 2000)
    assert hypoexponential.fit(wild, 4).mean == pytest.approx(wild.mean(), rel=0.2)


@pytest.mark.parametrize("samples", [[], [0.0, 0.0], [-1.0, 2.0], [1.0, np.inf]])
def test_em_refuses_what_no_delays_can_be(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="finite samples"):
        hypoexponential.fit(samples, 2)


# Other laws and tests ---------------------------------------------------------------------------------------------


def test_gamma_and_power_law_recover_their_parameters() -> None:
    rng = np.random.default_rng(4)
    gamma = models.fit_gamma(rng.gamma(2.5, 0.3, 50_000))
    assert gamma == pytest.approx((2.5, 0.3), rel=0.03)
    pareto = models.fit_pareto(0.1 * (1.0 + rng.pareto(3.0, 50_000)))
    assert pareto == pytest.approx((0.1, 3.0), rel=0.03)


def test_goodness_is_scipys() -> None:
    samples = np.random.default_rng(5).exponential(1.0, 500)
    found = models.goodness(samples, lambda x: stats.expon.cdf(x, scale=1.1))
    theirs = stats.kstest(samples, lambda x: stats.expon.cdf(x, scale=1.1), method="asymp")
    assert found == pytest.approx((theirs.statistic, theirs.pvalue))


def test_o11_the_two_sample_test_sees_a_scale_that_the_rank_sum_test_does_not() -> None:
    narrow, wide = differences(2, 500), differences(2, 500, scale=1.5, seed=9)
    assert stats.ranksums(narrow, wide).pvalue > 0.05
    assert models.compare_samples(narrow, wide).p < 0.01
    assert models.compare_samples(narrow, differences(2, 500, seed=11)).p > 0.05


def test_3_2_3_neither_power_law_nor_gamma_fits_unequal_brokers_as_well() -> None:
    """Figure 3.4(a): three brokers, two links of 50 ms. For equal brokers the law is a Gamma, so these differ."""
    observed = 0.1 + delays([1e-3, 1e-3, 6e-3], 10_000)
    model = models.fit_pair(observed, phases=3, constant=0.1)
    assert model.skewness > 0.8
    assert model.hypoexponential_distance < 0.02
    assert model.hypoexponential_distance < model.gamma_distance
    assert model.pareto_distance is not None
    assert model.hypoexponential_distance < model.pareto_distance / 3


def test_3_2_4_a_spike_at_zero_means_unequal_brokers() -> None:
    """Figure 3.5 shows one; equal stages have none (erratum O4), scales of 1:1:1:1:10 do."""

    def excess(means: list[float]) -> float:
        samples = delays(means, 100_000) - delays(means, 100_000, seed=7)
        scale = difference_scale.scale_of(samples)
        near = np.mean(np.abs(samples) < 0.2 * scale)
        return float(near / (2.0 * laws.two_laplace_cdf(0.2 * scale, scale) - 1.0))

    assert excess([1.0] * 5) < 1.0
    assert excess([1.0, 1.0, 1.0, 1.0, 10.0]) > 1.1


def test_skewness_of_equal_phases() -> None:
    assert models.skewness(delays([1.0] * 4, 200_000)) == pytest.approx(2.0 / np.sqrt(4), abs=0.03)


def test_clocks_that_disagree_leave_only_the_power_law_out() -> None:
    delays = np.random.default_rng(4).gamma(2.0, 0.01, 2000) - 0.005
    assert delays.min() < 0.0
    model = models.fit_pair(delays, phases=2)
    assert (model.pareto_exponent, model.pareto_distance) == (None, None)
    assert model.gamma_distance < 0.05


def test_a_pair_needs_delays_that_differ() -> None:
    with pytest.raises(ValueError, match="at least three"):
        models.fit_pair([0.1, 0.1, 0.1], phases=2)


# On Spark ---------------------------------------------------------------------------------------------------------

DELAYS = (
    "run string, publisher string, incarnation bigint, count bigint, client string, published_at double, delay double"
)


def test_differences_and_scales_in_order_of_publication(spark: SparkSession) -> None:
    rows = [
        ("r", "p", 1, 3, "c", 3.0, 0.4),
        ("r", "p", 1, 1, "c", 1.0, 0.1),
        ("r", "p", 1, 1, "c", 1.0, 9.9),  # for another of the client's subscriptions: the first delivery counts
        ("r", "p", 1, 2, "c", 2.0, 0.3),
        ("r", "p", 1, 1, "d", 1.0, 0.2),
        ("s", "p", 1, 1, "c", 1.0, 0.5),
    ]
    table = spark.createDataFrame(rows, DELAYS)
    found = sorted(tuple(row) for row in models.delay_differences(table).collect())
    assert [row[:4] for row in found] == [("r", "p", "c", 2.0), ("r", "p", "c", 3.0)]
    assert [row[5] for row in found] == pytest.approx([0.2, 0.1])
    (scale,) = models.difference_scales(table).collect()
    assert (scale["samples"], scale["difference_scale"]) == (2, pytest.approx(0.1))


def test_one_row_for_each_pair_with_enough_samples(spark: SparkSession) -> None:
    both = {"c": 0.1 + delays([1e-3, 2e-3], 1200), "d": delays([1e-3], 1200, seed=5), "few": delays([1e-3], 50)}
    rows = [
        ("r", "p", 1, count, client, float(count), float(delay))
        for client, some in both.items()
        for count, delay in enumerate(some)
    ]
    table = spark.createDataFrame(rows, DELAYS).repartition(3)
    found = {row["client"]: row.asDict() for row in models.pair_models(table, phases=2).collect()}
    assert set(found) == {"c", "d"}
    expected = models.fit_pair(both["c"], phases=2)
    assert found["c"]["phase_rates"] == pytest.approx(expected.phase_rates)
    assert found["c"]["difference_scale"] == pytest.approx(expected.difference_scale)
    assert found["c"]["samples"] == 1200

    known = table.where("client = 'c'").selectExpr("*", "0.1D AS constant", "1 AS phases")
    (row,) = models.pair_models(known, phases=7).collect()
    assert (len(row["phase_rates"]), row["constant"]) == (1, 0.1)

"""Which law do the delays of a publisher-subscriber pair follow? Fits, and how good they are (002 3.2.3, 3.2.4).

The pure half works on arrays: `fit_pair` takes the delays of one pair in the order of publication and fits

    two-Laplace        the differences of consecutive delays: scale b, see `difference_scale` and `kernel.delay_laws`
    hypoexponential    the delays without their constant part: k phases by EM, see `hypoexponential`
    Gamma              the same data: [Muk92] found it for packets, 002 finds that it does not fit
    power law          the delays as they are (Pareto): [ZGG05] found it for packets, 002 finds that it does not fit

and measures each fit by its Kolmogorov-Smirnov distance. A p-value of a law fitted to the same data is too kind (its
parameters have been chosen to be close), so it can reject a law but not confirm one; the rank-sum test of 3.5.1 does
not even see a difference of scale (erratum O11), `compare_samples` does.

The Spark half maps pairs to rows. Its input, `delays`, has one row per delivery: run, publisher, incarnation, count,
client, published_at, delay; where one client had a message several times, the first delivery counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.kernel.delay_laws import two_laplace_cdf
from penstock.pipeline import difference_scale, hypoexponential
from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import grouped
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import key_table
from penstock.pipeline.parcels import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Floats = NDArray[np.float64]

PAIR = ("run", "publisher", "client")
SAMPLES_MIN = 1_000  # deliveries of a pair: fewer say little about a law
PAIR_MODEL_SCHEMA = (
    "run string, publisher string, client string, samples bigint, constant double, mean double, skewness double,"
    " difference_scale double, difference_scale_likeliest double, difference_distance double,"
    " phase_rates array<double>, hypoexponential_distance double, hypoexponential_p double,"
    " gamma_shape double, gamma_scale double, gamma_distance double,"
    " pareto_exponent double, pareto_distance double"
)


DIFFERENCE_SCALE_SCHEMA = "run string, publisher string, client string, samples bigint, difference_scale double"


class Goodness(NamedTuple):
    """The largest gap between two cumulative distributions, and how probable one as large is if they are the same."""

    distance: float
    p: float


class GammaFit(NamedTuple):
    shape: float
    scale: float


class ParetoFit(NamedTuple):
    """P(X > x) = (smallest / x)^exponent"""

    smallest: float
    exponent: float


@dataclass(frozen=True, kw_only=True)
class PairModel:
    """All fits to one pair; the columns of PAIR_MODEL_SCHEMA after the pair itself."""

    samples: int
    constant: float  # seconds taken off before the hypoexponential and Gamma fits
    mean: float
    skewness: float
    difference_scale: float  # b of 3.2.4, by (2/3) mean |x|
    difference_scale_likeliest: float
    difference_distance: float
    phase_rates: list[float]  # per second, slowest first
    hypoexponential_distance: float
    hypoexponential_p: float
    gamma_shape: float
    gamma_scale: float
    gamma_distance: float
    pareto_exponent: float | None  # None where a delay is not above zero: two clocks that disagree
    pareto_distance: float | None


def fit_pair(delays: ArrayLike, *, phases: int, constant: float | None = None) -> PairModel:
    """Fit all laws to the delays of one pair, given in the order of publication.

    `constant` is the part of the delay that the links make, where it is known; otherwise the smallest delay is taken,
    which is too much by the least time that all brokers together ever needed.
    """
    ordered = np.asarray(delays, dtype=np.float64)
    if ordered.size < 3 or ordered.min() == ordered.max():
        raise ValueError("a fit needs at least three delays, not all equal")
    constant = float(ordered.min()) if constant is None else constant
    variable = np.maximum(ordered - constant, 0.0)
    differences = np.diff(ordered)
    scale = difference_scale.scale_of(differences)
    phase_fit = hypoexponential.fit(variable, phases)
    phase_goodness = goodness(variable, lambda x: hypoexponential.cdf(x, phase_fit.rates))
    gamma = fit_gamma(variable)
    pareto = fit_pareto(ordered) if ordered.min() > 0.0 else None
    return PairModel(
        samples=ordered.size,
        constant=constant,
        mean=float(ordered.mean()),
        skewness=skewness(ordered),
        difference_scale=scale,
        difference_scale_likeliest=difference_scale.likeliest_scale_of(differences),
        difference_distance=goodness(differences, lambda x: _two_laplace(x, scale)).distance,
        phase_rates=list(phase_fit.rates),
        hypoexponential_distance=phase_goodness.distance,
        hypoexponential_p=phase_goodness.p,
        gamma_shape=gamma.shape,
        gamma_scale=gamma.scale,
        gamma_distance=goodness(variable, lambda x: gamma_cdf(x, gamma)).distance,
        pareto_exponent=None if pareto is None else pareto.exponent,
        pareto_distance=None if pareto is None else goodness(ordered, partial(pareto_cdf, fit=pareto)).distance,
    )


def skewness(samples: ArrayLike) -> float:
    """The third standardised moment: 0 for a symmetric law, 2 for one exponential phase, 2/sqrt(k) for k equal ones."""
    values = np.asarray(samples, dtype=np.float64)
    centred = values - values.mean()
    return float(np.mean(centred**3) / np.mean(centred**2) ** 1.5)


def _two_laplace(values: Floats, scale: float) -> Floats:
    """The cdf at each of these."""
    return np.array([two_laplace_cdf(x, scale) for x in values.tolist()])


def goodness(samples: ArrayLike, cdf: Callable[[Floats], Floats]) -> Goodness:
    """Kolmogorov and Smirnov's distance of the samples from a continuous law."""
    from scipy.special import kolmogorov  # what scipy.stats calls kstwobign.sf, at a tenth of the import

    values = np.sort(np.asarray(samples, dtype=np.float64))
    steps = np.arange(values.size + 1) / values.size
    expected = cdf(values)
    distance = float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])))
    return Goodness(distance, float(kolmogorov(distance * np.sqrt(values.size))))


def compare_samples(first: ArrayLike, second: ArrayLike) -> Goodness:
    """The two-sample test: may both come from one law, whatever it is?"""
    from scipy.stats import ks_2samp

    found = ks_2samp(np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64))
    return Goodness(float(found.statistic), float(found.pvalue))


def fit_gamma(samples: ArrayLike) -> GammaFit:
    """The likeliest Gamma law with location 0: solves ln k - digamma(k) = ln mean - mean ln (Minka 2002)."""
    from scipy.special import digamma, polygamma

    values = np.asarray(samples, dtype=np.float64)
    mean = float(values.mean())
    excess = float(np.log(mean) - np.mean(np.log(np.maximum(values, 1e-9 * mean))))
    shape = (3.0 - excess + np.sqrt((excess - 3.0) ** 2 + 24.0 * excess)) / (12.0 * excess)
    for _ in range(50):
        slope = 1.0 / shape - polygamma(1, shape)
        following = 1.0 / (1.0 / shape + (np.log(shape) - digamma(shape) - excess) / (shape**2 * slope))
        if abs(following - shape) <= 1e-10 * shape:
            break
        shape = following
    return GammaFit(float(shape), mean / float(shape))


def gamma_cdf(x: ArrayLike, fit: GammaFit) -> Floats:
    from scipy.special import gammainc

    return np.asarray(gammainc(fit.shape, np.maximum(np.asarray(x, dtype=np.float64), 0.0) / fit.scale))


def fit_pareto(samples: ArrayLike) -> ParetoFit:
    """The likeliest power law: it begins at the smallest sample; exponent = 1 / mean of ln(x / smallest)."""
    values = np.asarray(samples, dtype=np.float64)
    smallest = float(values.min())
    if smallest <= 0.0:
        raise ValueError("a power law needs samples above zero")
    return ParetoFit(smallest, 1.0 / float(np.mean(np.log(values / smallest))))


def pareto_cdf(x: ArrayLike, fit: ParetoFit) -> Floats:
    return np.asarray(1.0 - np.minimum(1.0, (fit.smallest / np.asarray(x, dtype=np.float64)) ** fit.exponent))


# The Spark half ---------------------------------------------------------------------------------------------------

_ORDER = ("published_at", "incarnation", "count")
_KNOWN = ("phases", "constant")


def delay_differences(delays: DataFrame) -> DataFrame:
    """run, publisher, client, published_at, delay, difference: the delay less that of the publication before."""
    return table_of(_DIFFERENCES_METRIC, {"delays": delays}, [samples()])


def difference_scales(delays: DataFrame) -> DataFrame:
    """run, publisher, client, samples, difference_scale: b of every pair."""
    return table_of(DIFFERENCE_SCALES_METRIC, {"delays": delays}, [samples()])


def pair_models(
    delays: DataFrame, *, phases: int, constant: float | None = None, samples_min: int = SAMPLES_MIN
) -> DataFrame:
    """PAIR_MODEL_SCHEMA, one row for each pair with at least `samples_min` deliveries.

    `delays` may bring columns `phases` and `constant` of its own, for pairs that are different numbers of brokers
    apart; they come before the arguments.
    """
    known = [name for name in _KNOWN if name in delays.columns]
    metric = pair_models_metric(phases, constant, samples_min, known)
    return table_of(metric, {"delays": delays}, [samples(known)])


# The metrics behind them.


def samples(known: Sequence[str] = ()) -> Metric:
    """The delays of each pair in the order of publication; of a message that came several times, the least."""

    def work(tables: ArrowTables) -> pa.Table:

        keys, rows = grouped(tables["delays"], PAIR, [*_ORDER, "delay", *known])
        rows = rows.take(
            np.lexsort((rows["delay"], rows["count"], rows["incarnation"], rows["published_at"], rows.number))
        )
        again = np.zeros(len(rows), dtype=bool)
        again[1:] = rows.number[1:] == rows.number[:-1]
        for name in ("incarnation", "count"):
            again[1:] &= rows[name][1:] == rows[name][:-1]
        rows = rows.take(~again)
        columns = {name: rows[name] for name in ("published_at", "delay", *known)}
        return key_table(keys, rows.number, **columns)

    ddl = "run string, publisher string, client string, published_at double, delay double"
    ddl += "".join(f", {name} {kind}" for name, kind in (("phases", "bigint"), ("constant", "double")) if name in known)
    reads = {"delays": (*PAIR[1:], *_ORDER, "delay", *known)}
    return Metric("samples", ddl, reads, work, together={"delays": PAIR[1:]})


def _differences(tables: ArrowTables) -> pa.Table:
    keys, rows = grouped(tables["samples"], PAIR, ["published_at", "delay"])
    later = np.flatnonzero(np.diff(rows.number, prepend=-1) == 0)
    difference = rows["delay"][later] - rows["delay"][later - 1]
    later_rows = rows.take(later)
    return key_table(keys, later_rows.number, **later_rows.values, difference=difference)


def _difference_scales(tables: ArrowTables) -> pa.Table:
    keys, rows = grouped(tables["samples"], PAIR, ["delay"])
    spans = enumerate(zip(rows.starts, rows.ends, strict=True))
    pairs = [(group, begin, end) for group, (begin, end) in spans if end - begin > 1]
    scales = [difference_scale.scale_of(np.diff(rows["delay"][begin:end])) for _, begin, end in pairs]
    many = [end - begin - 1 for _, begin, end in pairs]
    numbers = np.array([group for group, *_ in pairs], dtype=np.int64)
    return key_table(keys, numbers, samples=np.array(many, dtype=np.int64), difference_scale=np.array(scales, float))


def pair_models_metric(
    phases: int, constant: float | None = None, samples_min: int = SAMPLES_MIN, known: Sequence[str] = ()
) -> Metric:
    """All fits to each pair that has samples enough; a fit may take a second, so pairs are spread over all tasks."""

    def work(tables: ArrowTables) -> pa.Table:
        import pyarrow as pa

        keys, rows = grouped(tables["samples"], PAIR, ["delay", *known])
        found = []
        for key, begin, end in zip(keys.to_pylist(), rows.starts, rows.ends, strict=True):
            values = rows["delay"][begin:end]
            if end - begin >= samples_min and values.min() < values.max():
                own = {name: rows[name][begin].item() for name in known}
                model = fit_pair(values, **{"phases": phases, "constant": constant, **own})
                found.append(key | {field.name: getattr(model, field.name) for field in fields(model)})
        return pa.Table.from_pylist(found, schema=arrow_schema(PAIR_MODEL_SCHEMA))

    reads = {"samples": (*PAIR[1:], "delay", *known)}
    return Metric("pair_models", PAIR_MODEL_SCHEMA, reads, work, together={"samples": PAIR[1:]}, dear=True)


_DIFFERENCES_METRIC = Metric(
    "differences",
    "run string, publisher string, client string, published_at double, delay double, difference double",
    {"samples": (*PAIR[1:], "published_at", "delay")},
    _differences,
    together={"samples": PAIR[1:]},
)
DIFFERENCE_SCALES_METRIC = Metric(
    "difference_scales",
    DIFFERENCE_SCALE_SCHEMA,
    {"samples": (*PAIR[1:], "delay")},
    _difference_scales,
    together={"samples": PAIR[1:]},
)

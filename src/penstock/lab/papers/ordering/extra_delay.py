"""Figures 3.12 and 3.14: what ordering costs. Measured is the mean latch over the messages of a pair, as in the paper.

The static latch beside it is the *optimal* one, as in the paper: the shortest that leaves as few violations as the
probabilistic instance. It is the same for every message that comes at a gap, whoever sent it and however seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.engine.trace_ordering_runs import OrderedTraces
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.ordering.instances import (
    EIGHT,
    EIGHT_PARAMETERS,
    FORTY_SIX,
    FORTY_SIX_PARAMETERS,
    appendix,
    eight_plan,
    forty_six_plan,
    of_slow_publishers,
    ratio,
)

BASIC, RECORD_5, RECORD_25 = (appendix(0.05, entries) for entries in (0, 5, 25))
STATIC_OPTIMAL = "CST, optimal"


def _optimal(traces: OrderedTraces, instance: str) -> float:
    return traces.static_latch_leaving(traces.total(instance, "violations"))


def _measure_eight(views: Views) -> Mapping[str, float]:
    view = views["best effort"]
    traces = view.ordered_traces(EIGHT)
    basic, five, many = (traces.extra_delay(name) for name in (BASIC, RECORD_5, RECORD_25))
    optimal = _optimal(traces, RECORD_25)
    static = traces.static_extra_delay(optimal)
    return {
        "mean with record 5 over basic": ratio(five.mean(), basic.mean()),
        "mean with record 25 over record 5": ratio(many.mean(), five.mean()),
        "median over that of the optimal static latch": ratio(np.median(many), np.median(static)),
        "slow publishers: optimal static latch over P-0.05-25, medians": _advantage(view, traces, optimal, np.median),
        "slow publishers: optimal static latch over P-0.05-25, means": _advantage(view, traces, optimal, np.mean),
        "slow publishers: CST-30 over P-0.05-25, means": _advantage(view, traces, 0.030, np.mean),
        "mean of CST-30 over mean of P-0.05-25": ratio(traces.static_extra_delay(0.030).mean(), many.mean()),
        "optimal static latch (ms)": 1000 * optimal,
        "basic: mean (ms)": 1000 * float(basic.mean()),
        "P-0.05-25: mean (ms)": 1000 * float(many.mean()),
        "P-0.05-25: held per message (ms)": _held(traces, RECORD_25),
    }


def _advantage(view: View, traces: OrderedTraces, latch: float, middle: Callable[[Floats], np.floating[Any]]) -> float:
    """The static latch's extra delay over that of P-0.05-25, for the pairs of slow publishers."""
    slow = of_slow_publishers(view, traces)
    static, adaptive = traces.static_extra_delay(latch, slow), traces.extra_delay(RECORD_25, slow)
    return ratio(float(middle(static)), float(middle(adaptive)))


def _held(traces: OrderedTraces, instance: str) -> float:
    return 1000 * traces.total(instance, "held") / traces.total(instance, "messages")


def _measure_forty_six(views: Views) -> Mapping[str, float]:
    traces = views["best effort"].ordered_traces(FORTY_SIX)
    basic, many = traces.extra_delay(BASIC), traces.extra_delay(RECORD_25)
    return {
        "median over that of basic mode": ratio(np.median(many), np.median(basic)),
        "90th percentile over the largest of basic mode": ratio(np.quantile(many, 0.9), basic.max()),
        "basic: largest (ms)": 1000 * float(basic.max()),
        "P-0.05-25: median (ms)": 1000 * float(np.median(many)),
        "P-0.05-25: 90th percentile (ms)": 1000 * float(np.quantile(many, 0.9)),
        "P-0.05-25: held per message (ms)": _held(traces, RECORD_25),
    }


def _draw(curves: Mapping[str, Floats], caption: str) -> Sequence[Figure]:
    """Which share of the pairs has at most so much extra delay."""
    rows = []
    shares = np.linspace(0.0, 1.0, 201)
    for name, values in curves.items():
        points = zip(1000 * np.quantile(values, shares), shares, strict=True)
        rows += [{"extra": float(x), "share": float(y), "series": name} for x, y in points]
    spec = style.lines(
        rows,
        x="extra",
        y="share",
        series=list(curves),
        x_title="mean latch of a pair's messages (ms)",
        y_title="share of pairs",
    )
    spec["encoding"]["x"]["scale"] = {"type": "symlog"}
    return (Figure(caption=caption, spec=spec),)


def _draw_eight(views: Views) -> Sequence[Figure]:
    traces = views["best effort"].ordered_traces(EIGHT)
    curves = {name: traces.extra_delay(name) for name in (BASIC, RECORD_5, RECORD_25)}
    curves["CST-30"] = traces.static_extra_delay(0.030)
    curves[STATIC_OPTIMAL] = traces.static_extra_delay(_optimal(traces, RECORD_25))
    return _draw(curves, "Extra delay over all pairs of publisher and subscriber, 8 brokers (Figure 3.12).")


def _draw_forty_six(views: Views) -> Sequence[Figure]:
    traces = views["best effort"].ordered_traces(FORTY_SIX)
    curves = {name: traces.extra_delay(name) for name in (BASIC, RECORD_25)}
    curves[STATIC_OPTIMAL] = traces.static_extra_delay(_optimal(traces, RECORD_25))
    return _draw(curves, "Extra delay over all pairs of publisher and subscriber, 46 brokers (Figure 3.14).")


def _reported(name: str, paper: str) -> Criterion:
    return Criterion(name=name, paper=paper, kind="goal", note="reported")


EIGHT_BROKERS = Experiment(
    name="fifo-extra-delay-8-brokers",
    title="What ordering costs, 8 brokers",
    source="002 section 3.5.2, Figure 3.12",
    about="Without a record every gap looks like a message on its way. With one, most waits turn out to be for"
    " nothing and are left out; a static latch cannot tell.",
    plans=eight_plan,
    measure=_measure_eight,
    draw=_draw_eight,
    parameters=EIGHT_PARAMETERS,
    criteria=(
        Criterion(name="mean with record 5 over basic", paper="considerably smaller", high=1.0),
        Criterion(name="mean with record 25 over record 5", paper="smaller still", high=1.0),
        Criterion(name="median over that of the optimal static latch", paper="P-0.05-25 better than CST-30", high=1.0),
        Criterion(
            name="slow publishers: optimal static latch over P-0.05-25, means",
            paper="grows significantly at lower rates",
            low=3.0,
            scales=("paper",),
            note="means over pairs, as the neighbouring bounds on all pairs",
        ),
        _reported(
            "slow publishers: optimal static latch over P-0.05-25, medians", "grows significantly at lower rates"
        ),
        _reported("slow publishers: CST-30 over P-0.05-25, means", "grows significantly at lower rates"),
        _reported("mean of CST-30 over mean of P-0.05-25", "above 1"),
        _reported("optimal static latch (ms)", "about 30"),
        _reported("P-0.05-25: held per message (ms)", "-"),
    ),
)

FORTY_SIX_BROKERS = Experiment(
    name="fifo-extra-delay-46-brokers",
    title="What ordering costs, 46 brokers",
    source="002 section 3.5.2, Figure 3.14",
    about="On longer ways delays vary more, and basic mode waits longer for messages that nobody sent to this client."
    " With a record, more than half of the pairs wait for nearly nothing.",
    plans=forty_six_plan,
    measure=_measure_forty_six,
    draw=_draw_forty_six,
    parameters=FORTY_SIX_PARAMETERS,
    criteria=(
        Criterion(
            name="median over that of basic mode", paper="nearly zero for more than half", high=0.05, scales=("paper",)
        ),
        Criterion(
            name="90th percentile over the largest of basic mode", paper="190 over 960 ms", high=0.2, scales=("paper",)
        ),
        _reported("basic: largest (ms)", "960"),
        _reported("P-0.05-25: 90th percentile (ms)", "below 190"),
        _reported("P-0.05-25: held per message (ms)", "-"),
    ),
)

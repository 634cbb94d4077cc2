"""002 section 3.1: how a best-effort network behaves under load, beside one that stores and forwards.

Figure 3.1, throughput: best effort reaches a ceiling and then loses what is too much; store and forward loses nothing,
falls behind, collapses, and in the end blocks its publishers. Figure 3.2, order: best effort violates FIFO order about
as often as it delivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.lab import setups
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style


def broker_text(service_mean: float) -> str:
    """How a broker with this mean works."""
    return (
        f"{setups.WORKERS} workers, service exponential with mean b = {1000 * service_mean:g} ms, "
        f"{1000 * setups.DELIVERY_COST:g} ms per delivery, {setups.INGRESS_PACKETS} messages may wait"
    )


PARAMETERS = {
    "network": "8 brokers in a ring with two chords (diameter 3), links 10 Mbit/s, 50 ms ± 5 ms",
    "clients": "400, of which 48 publish slowly (1.5 to 25 messages/s) and two fast (1200/s, from 90 s and 190 s)",
    "receivers per message": f"{setups.RECEIVERS_SLOW} (slow) and {setups.RECEIVERS_FAST} (fast), calibrated",
    "broker": broker_text(setups.SERVICE_MEAN),
    "records": "do not occupy the links (experiments section 0.1)",
}


def bdrp_plan(scale: Scale) -> Mapping[str, Plan]:
    """The run that five experiments share."""
    return {"best effort": Plan(scenario=setups.eight_brokers(scale))}


def _both(scale: Scale) -> Mapping[str, Plan]:
    scenario = setups.eight_brokers(scale)
    stored = replace(scenario, name=f"{scenario.name}-store-and-forward")
    return {**bdrp_plan(scale), "store and forward": Plan(scenario=stored, simulator="store and forward")}


def _measure_throughput(views: Views) -> Mapping[str, float]:
    ours, baseline = views["best effort"], views["store and forward"]
    delivered, stored = ours.delivered_per_second(), baseline.delivered_per_second()
    published = ours.published_per_second()
    overload = slice(_starts(ours)[1] + 10, None)
    ceiling = _mean(delivered[overload])
    smooth = np.convolve(stored, np.ones(5) / 5, mode="valid")
    peak = int(np.argmax(smooth)) if len(smooth) else 0
    missed = ours.missed_per_second[overload]
    return {
        "ceiling (deliveries/s)": ceiling,
        "ceiling: least over mean": _least(delivered[overload]) / ceiling,
        "publications at the end (messages/s)": _mean(published[-5:]),
        "step at the first fast publisher": _step(delivered, _starts(ours)[0]),
        "step at the second fast publisher": _step(delivered, _starts(ours)[1]),
        "misses grow under overload": _mean(missed[len(missed) // 2 :]) - _mean(missed[: len(missed) // 2]),
        "baseline: peak (deliveries/s)": float(smooth[peak]) if len(smooth) else np.nan,
        "baseline: fall after the peak": float(1 - smooth[peak:].min() / smooth[peak]) if len(smooth) else np.nan,
        "baseline: publishers blocked": float(baseline.counted_per_second("blocked publishers").max()),
        "baseline: FIFO violations": float(baseline.violations_per_second.sum()),
    }


def _draw_throughput(views: Views) -> Sequence[Figure]:
    ours, baseline = views["best effort"], views["store and forward"]
    curves = {
        "published": ours.published_per_second(),
        "best effort": ours.delivered_per_second(),
        "best effort, missed": ours.missed_per_second,
        "store and forward": baseline.delivered_per_second(),
    }
    return (
        Figure(
            caption="Publications, deliveries and missed deliveries per second (Figure 3.1).",
            spec=style.over_time(curves, "per second"),
        ),
    )


def _measure_violations(views: Views) -> Mapping[str, float]:
    ours = views["best effort"]
    violations, delivered = ours.violations_per_second, ours.delivered_per_second()
    return {
        "correlation of violation rate and delivery rate": float(np.corrcoef(violations, delivered)[0, 1]),
        "violations in all": float(violations.sum()),
        "violations per 1000 deliveries": float(1000 * violations.sum() / delivered.sum()),
        "step at the first fast publisher": _step(violations + 1.0, _starts(ours)[0]),
        "step at the second fast publisher": _step(violations + 1.0, _starts(ours)[1]),
        "baseline: FIFO violations": float(views["store and forward"].violations_per_second.sum()),
    }


def _draw_violations(views: Views) -> Sequence[Figure]:
    curves = {"FIFO violations": views["best effort"].violations_per_second}
    return (
        Figure(
            caption="FIFO violations per second (Figure 3.2).", spec=style.over_time(curves, "violations per second")
        ),
    )


def _starts(view: View) -> list[int]:
    return setups.fast_starts(view.scenario)


def _step(rates: Floats, start: int) -> float:
    """By how much a rate grows when a fast publisher joins: up to ten seconds after over up to ten before."""
    before, after = rates[max(0, start - 10) : start], rates[start + 1 : start + 11]
    return float(after.mean() / before.mean())


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _least(values: Floats) -> float:
    return float(values.min()) if len(values) else float("nan")


EXPERIMENTS = (
    Experiment(
        name="bdrp-vs-activemq-throughput",
        title="Throughput under load: best effort beside store and forward",
        source="002 section 3.1, Figure 3.1",
        about="A best-effort network and one that stores and forwards carry the same workload, which grows beyond what"
        " either can bear. One drops what is too much and keeps its pace; the other keeps all and loses its pace.",
        plans=_both,
        measure=_measure_throughput,
        draw=_draw_throughput,
        parameters=PARAMETERS,
        criteria=(
            Criterion(
                name="ceiling (deliveries/s)",
                paper="about 30,000",
                low=27_000,
                high=33_000,
                kind="illustration",
                scales=("paper",),
                note="the time of a delivery was chosen for it",
            ),
            Criterion(
                name="ceiling: least over mean",
                judged="every seed",
                paper="flat, no collapse",
                low=0.85,
                scales=("paper",),
            ),
            Criterion(
                name="publications at the end (messages/s)",
                paper="3600 (2 x 1200 + 48 x 25)",
                low=3_420,
                high=3_780,
                kind="illustration",
                scales=("paper",),
                note="it is the workload",
            ),
            *(
                Criterion(
                    name=f"step at the {which} fast publisher",
                    paper=f"a step at {when} s",
                    low=1.3,
                    kind="illustration",
                    note="it is the workload",
                )
                for which, when in (("first", 90), ("second", 190))
            ),
            Criterion(
                name="misses grow under overload",
                paper="false negatives grow",
                low=1.0,
                kind="illustration",
                scales=("paper",),
                note="more is published, above a fixed ceiling;"
                " mean per second in the second half of the overload less that in the first",
            ),
            Criterion(
                name="baseline: fall after the peak",
                paper="32,500/s at 240 s, then a collapse",
                low=0.3,
                kind="illustration",
                scales=("paper",),
                note="a constant of the baseline sets it",
            ),
            Criterion(
                name="baseline: publishers blocked",
                paper="about 20 s after the collapse",
                low=1,
                kind="illustration",
                scales=("paper",),
                note="the baseline's rule",
            ),
            Criterion(name="baseline: FIFO violations", paper="0", low=0, high=0, kind="illustration"),
            Criterion(
                name="baseline: peak (deliveries/s)",
                paper="32,500",
                low=29_250,
                high=35_750,
                kind="illustration",
                scales=("paper",),
                note="the baseline's costs were chosen for it",
            ),
        ),
    ),
    Experiment(
        name="bdrp-fifo-violations-over-time",
        title="How often best effort gets the order wrong",
        source="002 section 3.1, Figure 3.2",
        about="Messages of one publisher overtake each other inside brokers that work on several at once. The more"
        " there is to deliver, the more often a subscriber sees a later message first.",
        plans=_both,
        measure=_measure_violations,
        draw=_draw_violations,
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="correlation of violation rate and delivery rate", paper="roughly proportional", low=0.8),
            Criterion(name="step at the first fast publisher", paper="jumps at 90 s", low=1.3),
            Criterion(name="step at the second fast publisher", paper="jumps at 190 s", low=1.3),
            Criterion(
                name="violations in all",
                paper="almost 173,000 (3.5.2)",
                low=86_500,
                high=346_000,
                kind="illustration",
                scales=("paper",),
                note="b, which is ours, decides it; the report gives it",
            ),
            Criterion(name="baseline: FIFO violations", paper="0", low=0, high=0, kind="illustration"),
        ),
    ),
)

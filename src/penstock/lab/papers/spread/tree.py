"""003 scenarios 1 and 2: a tree with a bottleneck for each group, and with one for both (Figures 4, 5, 7 to 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import log, log2

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats
from penstock.lab.pages.style import lines
from penstock.lab.papers.spread.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    STARTED,
    PricedCounts,
    buffers_figure,
    counted,
    curves,
    deviation,
    jain,
    link_name,
    rates_figure,
)
from penstock.lab.setups.spread import GROUPS, PAPER_PRICING, SCENARIO_1, SCENARIO_2, TREE, spread_network
from penstock.pricing.config import PricingConfig
from penstock.scenario.spec import Scenario

SECONDS = {"paper": 400.0, "smoke": 12.0}
SENDERS = {"paper": 20, "smoke": 4}  # of each group
START = {"paper": STARTED, "smoke": 4.0}  # measured from here on
COUNTS = {"paper": (2, 10, 40, 100, 200, 400), "smoke": (2, 8)}  # of both groups together
CALMED = {"paper": 200.0, "smoke": 7.0}  # when the delayed group starts
SETTLED = {"paper": 10.0, "smoke": 2.0}  # seconds after which both groups should get the same
AB, BC, BD, DE, DF = TREE
ACE, AEF = GROUPS


def tree(
    scale: Scale,
    links: Mapping[tuple[str, str], float],
    name: str,
    *,
    senders: int | None = None,
    starts: Mapping[str, float] | None = None,
    pricing: PricingConfig = PAPER_PRICING,
) -> Scenario:
    """The tree with these rates."""
    return spread_network(
        f"{name}-{scale}",
        links,
        GROUPS,
        duration=SECONDS[scale],
        senders=SENDERS[scale] if senders is None else senders,
        starts=starts,
        pricing=adapted(pricing, scale),
    )


def adapted(pricing: PricingConfig, scale: Scale) -> PricingConfig:
    """At smoke scale the first salaries come within a second."""
    return pricing if scale == "paper" else replace(pricing, first_period=1.0)


def first_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 1."""
    return {"run": Plan(scenario=tree(scale, SCENARIO_1, "cb-scenario-1"))}


def second_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 2."""
    return {"run": Plan(scenario=tree(scale, SCENARIO_2, "cb-scenario-2"))}


def measure_buffers(views: Views) -> Mapping[str, float]:
    """The most that waited for each link."""
    counts, start = counted(views["run"]), START[views.scale]
    most = {link: counts.largest(link, start) for link in TREE}
    return {
        **{f"{link_name(link)}, largest buffer": value for link, value in most.items()},
        "largest of all": max(most.values()),
        "A-B over the largest of B-D and D-E": most[AB] / max(most[BD], most[DE], 1.0),  # 1: never over nothing
        "B-D, mean buffer": float(counts.means(BD, start).mean()),
    }


def measure_rates(views: Views) -> Mapping[str, float]:
    """What both groups got."""
    counts, start = counted(views["run"]), START[views.scale]
    ace, aef = (counts.mean_rate(group, start) for group in GROUPS)
    return {"G_ace (Mbit/s)": ace, "G_aef (Mbit/s)": aef, "G_ace over G_aef": ace / max(aef, 1e-9)}


def measure_fairness(views: Views) -> Mapping[str, float]:
    """How alike the senders of each group fared."""
    counts, start = counted(views["run"]), START[views.scale]
    rates = [counts.sender_rates(group, start) for group in GROUPS]
    return {
        "largest deviation (%)": max(deviation(one) for one in rates),
        "Jain's index": min(jain(one) for one in rates),
        "Poisson noise of the largest of so many (%)": _noise(rates, SECONDS[views.scale] - start),
    }


def _noise(rates: Sequence[Floats], seconds: float) -> float:
    """How far the furthest of n independent Poisson counts with these means would be, about: sqrt(2 ln n / count)."""
    n = sum(len(one) for one in rates)
    count = float(np.concatenate(rates).mean()) * 1e6 / 8000 * seconds
    return 100.0 * float(np.sqrt(2.0 * log(n) / count)) if count > 0.0 and n > 1 else NAN


# How many senders.


def count_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 2 with few senders and with many."""
    return {
        str(count): second_plans(scale)["run"]
        if count == 2 * SENDERS[scale]
        else Plan(scenario=tree(scale, SCENARIO_2, f"cb-scenario-2-{count}", senders=count // 2))
        for count in COUNTS[scale]
    }


def measure_counts(views: Views) -> Mapping[str, float]:
    """The largest buffer and the rate of all together, against the number of senders."""
    start = START[views.scale]
    most = {int(name): counted(view).largest(BD, start) for name, view in views.items()}
    sums = [sum(counted(view).mean_rate(group, start) for group in GROUPS) for view in views.values()]
    known = sorted(most)
    values = {f"largest buffer, {count} senders": most[count] for count in known}
    return {
        **values,
        "least of all rates (Mbit/s)": min(sums),
        "largest of all rates (Mbit/s)": max(sums),
        "spread of the rates (%)": 100.0 * (max(sums) - min(sums)) / max(sums),
        "largest buffer, 400 over 40": most[400] / most[40] if 400 in most else NAN,
        "growth per doubling, largest rise from step to step": _bending(most),
        "growth per doubling, 40 to 400 over 2 to 40": _growth(most, 40, 400) / max(_growth(most, 2, 40), 1e-9),
    }


def _growth(most: Mapping[int, float], few: int, many: int) -> float:
    """Messages more for each doubling of the senders."""
    return (most[many] - most[few]) / log2(many / few) if few in most and many in most else NAN


def _bending(most: Mapping[int, float]) -> float:
    """By how much the growth per doubling ever rises: at most 0 if the curve is concave in the logarithm."""
    slopes = [_growth(most, few, many) for few, many in pairwise(sorted(most))]
    return max((later - earlier for earlier, later in pairwise(slopes)), default=NAN)


# A group that comes later.


def delayed_plans(scale: Scale) -> Mapping[str, Plan]:
    """G_aef starts when G_ace has long been sending."""
    return {
        "run": Plan(scenario=tree(scale, SCENARIO_2, "cb-scenario-2-delayed", starts={AEF: CALMED[scale]})),
    }


def measure_delayed_buffers(views: Views) -> Mapping[str, float]:
    """Before and after."""
    counts, at = counted(views["run"]), CALMED[views.scale]
    before, after = counts.largest(BD, START[views.scale], at), counts.largest(BD, at)
    return {
        "B-D, largest before": before,
        "B-D, largest after": after,
        "B-D, after over before": after / max(before, 1e-9),
        "B-C, largest before": counts.largest(BC, START[views.scale], at),
        "B-C, largest after": counts.largest(BC, at + 1.0),
    }


def measure_delayed_rates(views: Views) -> Mapping[str, float]:
    """How soon both groups get the same."""
    counts, at, wait = counted(views["run"]), CALMED[views.scale], SETTLED[views.scale]
    ace, aef = (counts.mean_rate(group, at + wait) for group in GROUPS)
    return {
        "seconds until ten begin in which both are within 5 %": _alike_after(counts, at, int(wait)),
        "G_ace over G_aef, ten seconds after": ace / max(aef, 1e-9),
        "G_ace before (Mbit/s)": counts.mean_rate(ACE, START[views.scale], at),
        "both after (Mbit/s)": ace + aef,
    }


def _alike_after(counts: PricedCounts, at: float, width: int) -> float:
    """The first second from which on the mean of the next `width` seconds differs by at most 5 %."""
    ace, aef = counts.rate(ACE), counts.rate(AEF)
    for second in range(int(at), counts.seconds - width):
        one, other = ace[second : second + width].mean(), aef[second : second + width].mean()
        if abs(one - other) <= 0.05 * max(one, other):
            return float(second - at)
    return NAN


# Figures.


def _draw_buffers(figure: str) -> Callable[[Views], Sequence[Figure]]:
    return lambda views: (buffers_figure(f"Buffers ({figure}).", counted(views["run"]), TREE),)


def _draw_rates(figure: str) -> Callable[[Views], Sequence[Figure]]:
    return lambda views: (rates_figure(f"Rates ({figure}).", counted(views["run"]), list(GROUPS)),)


def _draw_fairness(views: Views) -> Sequence[Figure]:
    counts, start = counted(views["run"]), START[views.scale]
    rows = []
    for group in GROUPS:
        rates = counts.sender_rates(group, start)
        shares = 100.0 * (rates / rates.mean() - 1.0)
        rows += [{"sender": n, "value": float(share), "series": group} for n, share in enumerate(shares)]
    spec = lines(
        rows, x="sender", y="value", series=list(GROUPS), x_title="sender", y_title="from its group's mean (%)"
    )
    return (Figure(caption="How far each sender is from the mean of its group (Figure 9).", spec=spec),)


def _draw_counts(views: Views) -> Sequence[Figure]:
    rows = [
        {"senders": int(name), "value": counted(view).largest(BD, START[views.scale]), "series": "B-D"}
        for name, view in views.items()
    ]
    spec = lines(rows, x="senders", y="value", series=["B-D"], x_title="senders", y_title="largest buffer (messages)")
    return (Figure(caption="The largest buffer against the number of senders (Figure 10).", spec=spec),)


def _draw_delayed(views: Views) -> Sequence[Figure]:
    counts = counted(views["run"])
    peaks = {link_name(link): counts.peaks(link) for link in (AB, BC, BD)}
    return (curves("The largest buffer in each second (Figure 11).", peaks, "messages"),)


RATES_1 = "A-B 3, B-C 2, B-D 3, D-E 3, D-F 1 Mbit/s"
RATES_2 = "A-B 3, B-C 3, B-D 2, D-E 3, D-F 1.5 Mbit/s"
EXPERIMENTS = (
    Experiment(
        name="cb-s1-buffers",
        title="Buffers where each group has a bottleneck of its own",
        source="003 section 6, scenario 1, Figure 4",
        about="G_ace is limited by B-C and G_aef by D-F. No buffer grows above its soft limit by much.",
        plans=first_plans,
        measure=measure_buffers,
        draw=_draw_buffers("Figure 4"),
        parameters={**PARAMETERS, "rates": RATES_1},
        criteria=(
            Criterion(name="largest of all", judged="every seed", paper="usually below 90", high=110.0),
            Criterion(name="A-B over the largest of B-D and D-E", paper="A-B is highest", low=1.0, scales=PAPER),
        ),
    ),
    Experiment(
        name="cb-s1-throughput",
        title="Rates where each group has a bottleneck of its own",
        source="003 section 6, scenario 1, Figure 5",
        about="G_ace is limited by B-C and G_aef by D-F. Each gets nearly all of its own.",
        plans=first_plans,
        measure=measure_rates,
        draw=_draw_rates("Figure 5"),
        parameters={**PARAMETERS, "rates": RATES_1},
        criteria=(
            Criterion(name="G_ace (Mbit/s)", paper="1.840", low=1.7, high=2.0, scales=PAPER),
            Criterion(name="G_aef (Mbit/s)", paper="0.9679", low=0.9, high=1.0, scales=PAPER),
        ),
    ),
    Experiment(
        name="cb-s2-buffers",
        title="Buffers where both groups share a bottleneck",
        source="003 section 6, scenario 2, Figure 7",
        about="Both groups cross B-D, which is the only link that costs much.",
        plans=second_plans,
        measure=measure_buffers,
        draw=_draw_buffers("Figure 7"),
        parameters={**PARAMETERS, "rates": RATES_2},
        criteria=(
            Criterion(
                name="B-D, largest buffer",
                judged="every seed",
                paper="around and below 100",
                low=50.0,
                high=115.0,
                scales=PAPER,
            ),
            Criterion(name="B-C, largest buffer", judged="every seed", paper="minimal cost", high=20.0),
            Criterion(name="D-F, largest buffer", judged="every seed", paper="minimal cost", high=20.0),
        ),
    ),
    Experiment(
        name="cb-s2-throughput",
        title="Rates where both groups share a bottleneck",
        source="003 section 6, scenario 2, Figure 8",
        about="Both groups cross B-D, and get the same.",
        plans=second_plans,
        measure=measure_rates,
        draw=_draw_rates("Figure 8"),
        parameters={**PARAMETERS, "rates": RATES_2},
        criteria=(
            Criterion(name="G_ace (Mbit/s)", paper="0.9685", low=0.9, high=1.0, scales=PAPER),
            Criterion(name="G_aef (Mbit/s)", paper="0.9698", low=0.9, high=1.0, scales=PAPER),
            Criterion(name="G_ace over G_aef", paper="1", low=0.97, high=1.03, scales=PAPER),
        ),
    ),
    Experiment(
        name="cb-s2-client-fairness",
        title="Do equal senders get the same?",
        source="003 section 6, scenario 2, Figure 9",
        about="Twenty senders of each group share the bottleneck. How far each is from the mean of its group.",
        plans=second_plans,
        measure=measure_fairness,
        draw=_draw_fairness,
        parameters={**PARAMETERS, "rates": RATES_2},
        criteria=(
            Criterion(name="largest deviation (%)", judged="every seed", paper="below 3.5", high=10.0, scales=PAPER),
            Criterion(name="Jain's index", paper="-", low=0.99, scales=PAPER),
        ),
    ),
    Experiment(
        name="cb-s2-clients-vs-buffers",
        title="Few senders and many",
        source="003 section 6, scenario 2, Figure 10",
        about="From 2 to 400 senders: the largest buffer grows ever more slowly, the rate of all stays the same.",
        plans=count_plans,
        measure=measure_counts,
        draw=_draw_counts,
        parameters={**PARAMETERS, "rates": RATES_2},
        criteria=(
            Criterion(name="least of all rates (Mbit/s)", judged="every seed", paper="1.928", low=1.85, scales=PAPER),
            Criterion(name="largest of all rates (Mbit/s)", judged="every seed", paper="1.944", high=2.0, scales=PAPER),
            Criterion(name="spread of the rates (%)", paper="0.8", high=3.0, scales=PAPER),
            Criterion(name="largest buffer, 400 over 40", paper="grows ever more slowly", high=2.0, scales=PAPER),
            Criterion(
                name="growth per doubling, largest rise from step to step",
                judged="every seed",
                paper="concave",
                high=0.0,
                scales=PAPER,
            ),
            Criterion(
                name="growth per doubling, 40 to 400 over 2 to 40",
                paper="concave",
                kind="goal",
                high=1.0,
                scales=PAPER,
                note="the same over wider steps, which chance moves less",
            ),
        ),
    ),
    Experiment(
        name="cb-s2-delayed-group-buffers",
        title="Buffers when a second group comes",
        source="003 section 6, scenario 2, Figure 11",
        about="G_aef starts after 200 s. It finds a price that it must pay, so there is no spike.",
        plans=delayed_plans,
        measure=measure_delayed_buffers,
        draw=_draw_delayed,
        parameters={**PARAMETERS, "rates": RATES_2},
        criteria=(
            Criterion(name="B-D, after over before", paper="only slightly more", high=1.3, scales=PAPER),
            Criterion(name="B-C, largest after", judged="every seed", paper="zero", high=3.0, scales=PAPER),
        ),
    ),
    Experiment(
        name="cb-s2-delayed-group-throughput",
        title="Rates when a second group comes",
        source="003 section 6, scenario 2, Figure 12",
        about="G_aef starts after 200 s. Soon both groups get the same.",
        plans=delayed_plans,
        measure=measure_delayed_rates,
        draw=_draw_rates("Figure 12"),
        parameters={**PARAMETERS, "rates": RATES_2},
        criteria=(
            Criterion(
                name="seconds until ten begin in which both are within 5 %",
                paper="very quickly",
                high=10.0,
                scales=PAPER,
            ),
            Criterion(name="G_ace over G_aef, ten seconds after", paper="the same", low=0.95, high=1.05, scales=PAPER),
        ),
    ),
)

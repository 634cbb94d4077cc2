"""001 E4: how long a recovery takes for each recovery threshold (Figure 16).

As E1 with 500 KB/s from the pubends. The lower the threshold, the sooner an edge that recovers is content, and the less
the pubends leave to it. A threshold of 0 or less may never let it arrive.

001 does not say how long its links are. With ours of 5 ms the window of a recovering edge finds no optimum, since the
round trip follows the window: some pubends' windows fall to the least, and their alerts stop publishers whatever the
threshold is. `pdcc-recovery-time-afar` is the same with links of 100 ms, which fit Figure 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.pages.style import lines
from penstock.lab.papers.gryphon.link_failure import CALM, DOWN, EDGE, LONG_DELAY, failure
from penstock.lab.papers.gryphon.setting import NAN, PAPER, PARAMETERS, PUBEND_NAMES, between, counted
from penstock.lab.setups.gryphon import DELAY, PAPER_CONTROL

THRESHOLDS = {
    "paper": tuple(round(-0.2 + 0.2 * number, 1) for number in range(12)),
    "smoke": (0.2, 1.8),
}
SOME_THRESHOLDS = {"paper": (0.2, 0.6, 1.0, 1.4, 1.8), "smoke": (0.2, 1.8)}


def plans(scale: Scale) -> Mapping[str, Plan]:
    """A run for each threshold."""
    return {f"{threshold:.1f}": _plan(scale, threshold, "pdcc-threshold", DELAY) for threshold in THRESHOLDS[scale]}


def afar_plans(scale: Scale) -> Mapping[str, Plan]:
    """The same with long links, for some thresholds."""
    return {
        f"{threshold:.1f}": _plan(scale, threshold, "pdcc-threshold-afar", LONG_DELAY)
        for threshold in SOME_THRESHOLDS[scale]
    }


def _plan(scale: Scale, threshold: float, name: str, delay: float) -> Plan:
    control = replace(PAPER_CONTROL, recovery_gain=threshold)
    return Plan(scenario=failure(scale, 500.0, f"{name}-{threshold:.1f}", control, delay))


def recoveries(views: Views) -> dict[float, float]:
    """Seconds for each threshold; NaN: not within the run."""
    back = CALM[views.scale] + DOWN[views.scale]
    return {float(name): counted(view).recovered_at(EDGE, back) - back for name, view in views.items()}


def unfairness(views: Views, threshold: str) -> float:
    """The largest mean rate of a pubend while SB2 recovers, over the smallest."""
    if threshold not in views:
        return NAN
    counts = counted(views[threshold])
    back = CALM[views.scale] + DOWN[views.scale]
    done = counts.recovered_at(EDGE, back)
    rates = [between(counts.published_by[pubend], back, done) for pubend in PUBEND_NAMES] if done == done else [NAN]
    return max(rates) / min(rates)


def measure(views: Views) -> Mapping[str, float]:
    """Whether a higher threshold is faster."""
    found = recoveries(views)
    positive = [seconds for threshold, seconds in sorted(found.items()) if 0.2 <= threshold <= 1.8]
    rises = [later / earlier for earlier, later in pairwise(positive)]
    measured = {
        "largest rise from one threshold to the next": float(np.max(rises)) if rises else NAN,
        "time at 0.2 over time at 1.8": found[0.2] / found[1.8],
        "time at 2.0 over time at 1.8": found.get(2.0, NAN) / found[1.8],
        "pubends' rates at 1.0, largest over smallest": unfairness(views, "1.0"),
    }
    return measured | {f"recovery at {threshold:.1f} (s)": seconds for threshold, seconds in found.items()}


def _draw(views: Views) -> Sequence[Figure]:
    found = recoveries(views)
    rows = [{"threshold": k, "seconds": v, "series": "recovery"} for k, v in found.items() if v == v]
    rows += [
        {"threshold": k, "seconds": DOWN[views.scale] / k, "series": "outage over threshold"} for k in found if k > 0.3
    ]
    spec = lines(
        rows,
        x="threshold",
        y="seconds",
        series=["recovery", "outage over threshold"],
        x_title="recovery threshold (ticksec/s)",
        y_title="recovery time (s)",
    )
    return (Figure(caption="Recovery time against the threshold (Figure 16).", spec=spec),)


INVERSE = (
    Criterion(
        name="largest rise from one threshold to the next",
        judged="every seed",
        paper="inverse relation",
        high=1.1,
        scales=PAPER,
        note="10 % for noise, thresholds 0.2 to 1.8",
    ),
    Criterion(name="time at 0.2 over time at 1.8", paper="clearly longer", low=1.5, scales=PAPER),
)
FAIRNESS = Criterion(
    name="pubends' rates at 1.0, largest over smallest",
    paper="unfair at 1.0 and below",
    kind="goal",
    scales=PAPER,
    note="reported",
)
LINK = "PB - IB 500 KB/s, IB - SB2 down for 120 s"
EXPERIMENTS = (
    Experiment(
        name="pdcc-recovery-time-vs-threshold",
        title="How fast an edge wants to recover",
        source="001 section 5, E4, Figure 16",
        about="The recovery of E1 for twelve thresholds: the more an edge asks for, the sooner it is back, until the"
        " link from the pubends is full.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "link": LINK},
        criteria=(
            *INVERSE,
            Criterion(name="time at 2.0 over time at 1.8", paper="saturated", low=0.9, high=1.1, scales=PAPER),
            FAIRNESS,
        ),
    ),
    Experiment(
        name="pdcc-recovery-time-afar",
        title="How fast an edge wants to recover, on long links",
        source="001 section 5, E4, Figure 16; the length of links is not in the paper",
        about="Five of the thresholds with links of 100 ms instead of 5: a round trip of 0.4 s, as Figure 8 suggests.",
        plans=afar_plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "link": f"{LINK}; every link is {LONG_DELAY * 1000:g} ms long"},
        criteria=(*INVERSE, FAIRNESS),
    ),
)

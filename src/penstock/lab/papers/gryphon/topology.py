"""001 E3: a larger network with two bottlenecks and a link failure (Figures 12 to 15, of one run).

The recovery threshold is 0.5 here: an edge that recovers must be half again as fast as real time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats
from penstock.lab.papers.gryphon.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    PUBEND_NAMES,
    SECOND,
    StreamCounts,
    between,
    counted,
    noted_figure,
    rates_figure,
)
from penstock.lab.setups.gryphon import PAPER_CONTROL, RATE, complex_network, outage, rate_fault
from penstock.scenario.spec import Scenario

EDGE, FAILING = "SB5", ("IB3", "SB5")
EDGES = tuple(f"SB{number}" for number in range(1, 6))
CONTROL = replace(PAPER_CONTROL, recovery_gain=0.5)
LIMITED = {"paper": 120.0, "smoke": 12.0}  # when PB - IB1 becomes narrow
FAILS = {"paper": 240.0, "smoke": 20.0}
BACK = {"paper": 360.0, "smoke": 35.0}
END = {"paper": 530.0, "smoke": 60.0}
FEWER = {"paper": 1, "smoke": 20}


def network(scale: Scale) -> Scenario:
    """One PHB, three IBs, five SHBs."""
    faults = [rate_fault(LIMITED[scale], ("PB", "IB1"), 150.0), *outage(FAILS[scale], BACK[scale], FAILING)]
    return complex_network(
        f"pdcc-complex-topology-{scale}",
        duration=END[scale],
        control=CONTROL,
        rates=[("IB1", "SB1", 250.0)],
        faults=faults,
        fewer=FEWER[scale],
    )


def plans(scale: Scale) -> Mapping[str, Plan]:
    """One run for three figures."""
    return {"run": Plan(scenario=network(scale))}


def recovering(counts: StreamCounts, scale: Scale) -> tuple[float, float]:
    """The first and the last query at which SB5 was recovering any pubend."""
    times = [one["time"][one["recovering"].astype(bool)] for one in _horizons(counts)]
    found = np.concatenate(times)
    return (float(found.min()), float(found.max())) if len(found) else (BACK[scale], NAN)


def _horizons(counts: StreamCounts) -> list[dict[str, Floats]]:
    return [counts.horizon(EDGE, pubend) for pubend in PUBEND_NAMES]


def measure_rates(views: Views) -> Mapping[str, float]:
    """Before the limit, after it, and while SB5 recovers."""
    counts, scale = counted(views["run"]), views.scale
    warm, limited, fails, back = LIMITED[scale] / 4, LIMITED[scale], FAILS[scale], BACK[scale]
    settled = limited + (fails - limited) / 4
    _, done = recovering(counts, scale)
    phase_before = between(counts.published, settled, back)
    meanwhile = between(counts.published, back, done) if done > back else NAN
    edges = [between(counts.received[edge], warm, limited) for edge in EDGES]
    faults = [counts.faults(edge) for edge in EDGES]
    return {
        "PB before (messages/s)": between(counts.published, warm, limited),
        "edges before, least (messages/s)": min(edges),
        "edges before, most (messages/s)": max(edges),
        "PB with 150 KB/s (messages/s)": between(counts.published, settled, fails),
        "PB while SB5 recovers, over before": meanwhile / phase_before,
        "missed, repeated or disordered": float(sum(sum(one) - one.waiting for one in faults)),
        "not delivered at the end": float(sum(one.waiting for one in faults)) * counts.fewer,
        "largest queue (MB)": counts.largest_queue / 1e6,
    }


def measure_pace(views: Views) -> Mapping[str, float]:
    """The doubt horizon of SB5, all pubends together; from one query to the next where nothing is smoothed."""
    counts, scale = counted(views["run"]), views.scale
    fails, back = FAILS[scale], BACK[scale]
    start, done = recovering(counts, scale)
    before, during, peaks, exact = [], [], [], []
    progress = 0.0
    for one in _horizons(counts):
        times, pace, horizon = one["time"], one["pace"], one["horizon"]
        before.append(float(pace[(times > LIMITED[scale] / 4) & (times < fails)].mean()))
        inside = (times >= back) & (times <= done)
        if inside.sum() < 2:
            return dict.fromkeys(PACES, NAN)
        during.append(float((horizon[inside][-1] - horizon[inside][0]) / SECOND / np.ptp(times[inside])))
        peaks.append(float(pace[times >= back].max()))
        down = (times >= fails + 1.0) & (times <= back)
        progress += float(np.ptp(horizon[down])) if down.sum() > 1 else 0.0
        flags = one["recovering"].astype(bool)
        exact.append(float((np.diff(flags.astype(int)) == 1).sum()))  # how often it began
    values = (fmean(before), progress / SECOND, fmean(during), max(peaks), max(exact), start - back)
    return dict(zip(PACES, values, strict=True))


PACES = (
    "pace before the failure",
    "progress while the link is down (s)",
    "mean pace while it recovers",
    "highest pace",
    "recoveries of a pubend, most",
    "recovery begins after (s)",
)


def measure_classes(views: Views) -> Mapping[str, float]:
    """Alerts of both classes at PB."""
    counts, scale = counted(views["run"]), views.scale
    alerts = counts.alerts
    start, done = recovering(counts, scale)
    times, rec = alerts["time"], alerts["recovering"]
    told = rec == rec
    outside = told & ((times < start - 1.0) | (times > done + 2.0))
    most = max(
        (int(np.unique(alerts["sequence"][alerts["pubend"] == pubend], return_counts=True)[1].max(initial=0)))
        for pubend in PUBEND_NAMES
    )
    limited = (times >= LIMITED[scale]) & (times < FAILS[scale])
    keeping = alerts["keeping_up"] == alerts["keeping_up"]
    return {
        "alerts of recovering edges": float(told.sum()),
        "of these outside SB5's recovery": float(outside.sum()),
        "alerts for one query, most": float(most),
        "alerts of edges that keep up, after the limit": float((keeping & limited).sum()),
    }


def _draw_rates(views: Views) -> Sequence[Figure]:
    return (rates_figure("Rates (Figure 13).", counted(views["run"])),)


def _draw_pace(views: Views) -> Sequence[Figure]:
    counts = counted(views["run"])
    series = {pubend: (one["time"], one["pace"]) for pubend, one in zip(PUBEND_NAMES, _horizons(counts), strict=True)}
    return (noted_figure("The pace of SB5's doubt horizon, smoothed (Figure 14).", series, "ticksec/s"),)


def _draw_classes(views: Views) -> Sequence[Figure]:
    alerts = counted(views["run"]).alerts
    series = {
        "edges that keep up": (alerts["time"], alerts["keeping_up"]),
        "edges that recover": (alerts["time"], alerts["recovering"]),
    }
    return (noted_figure("Alerts that reach PB (Figure 15).", series, "ticksec/s"),)


ABOUT = (
    "Nine brokers: the link from the pubends becomes narrow, then the one to the fifth edge is down for two minutes."
)
NETWORK = {
    "network": "PB - IB1; IB1 - SB1, IB2; IB2 - SB2, SB3, IB3; IB3 - SB4, SB5 (the paper's graph is not printed)",
    "link": "IB1 - SB1 250 KB/s; PB - IB1 150 KB/s from 120 s on; IB3 - SB5 down from 240 to 360 s",
    "threshold": f"{CONTROL.recovery_gain:g} ticksec/s",
}
EXPERIMENTS = (
    Experiment(
        name="pdcc-complex-topology-rates",
        title="Several bottlenecks at once",
        source="001 section 5, E3, Figures 12 and 13",
        about=f"{ABOUT} The pubends follow the worst of them.",
        plans=plans,
        measure=measure_rates,
        draw=_draw_rates,
        parameters={**PARAMETERS, **NETWORK},
        criteria=(
            Criterion(name="PB before (messages/s)", paper="500", low=0.95 * RATE, high=1.05 * RATE),
            Criterion(
                name="edges before, least (messages/s)",
                judged="every seed",
                paper="200",
                low=190.0,
                high=210.0,
                scales=PAPER,
            ),
            Criterion(name="edges before, most (messages/s)", paper="200", low=190.0, high=210.0, scales=PAPER),
            Criterion(name="PB with 150 KB/s (messages/s)", paper="reduced", low=250.0, high=420.0, scales=PAPER),
            Criterion(name="PB while SB5 recovers, over before", paper="drops further", high=0.9, scales=PAPER),
            Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0),
            Criterion(name="not delivered at the end", paper="all recover", high=0.0),
            Criterion(name="largest queue (MB)", judged="every seed", paper="do not build up", high=1.0),
        ),
    ),
    Experiment(
        name="pdcc-doubt-horizon-rate",
        title="The doubt horizon of an edge that recovers",
        source="001 section 5, E3, Figure 14",
        about=f"{ABOUT} Its doubt horizon moves with real time, stands still, and then moves faster, fastest at the end"
        " where there is more silence between messages.",
        plans=plans,
        measure=measure_pace,
        draw=_draw_pace,
        parameters={**PARAMETERS, **NETWORK},
        criteria=(
            Criterion(name="pace before the failure", paper="about 1", low=0.9, high=1.1),
            Criterion(name="progress while the link is down (s)", paper="0", high=0.0),
            Criterion(name="mean pace while it recovers", paper="above 1.5", low=1.3, scales=PAPER),
            Criterion(name="highest pace", paper="about 5", low=3.0, scales=PAPER),
            Criterion(name="recoveries of a pubend, most", paper="one", low=1.0, high=1.0, scales=PAPER),
            Criterion(name="recovery begins after (s)", paper="at once", low=0.0, high=3.0),
        ),
    ),
    Experiment(
        name="pdcc-uca-classes",
        title="Alerts of edges that recover, and of others",
        source="001 section 5, E3, Figure 15",
        about=f"{ABOUT} Alerts of both classes reach the pubends, one for each query at most.",
        plans=plans,
        measure=measure_classes,
        draw=_draw_classes,
        parameters={**PARAMETERS, **NETWORK},
        criteria=(
            Criterion(name="of these outside SB5's recovery", paper="none", high=0.0),
            Criterion(name="alerts for one query, most", paper="1", high=1.0),
            Criterion(name="alerts of recovering edges", paper="whenever below the threshold", low=1.0),
            Criterion(name="alerts of edges that keep up, after the limit", paper="regularly", low=1.0, scales=PAPER),
        ),
    ),
)

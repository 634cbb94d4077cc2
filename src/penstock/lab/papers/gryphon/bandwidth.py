"""001 E2: the link to an edge becomes narrow, wider, and narrow again (Figures 9, 10 and 11, of one run)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    between,
    counted,
    curves,
    first_second,
    noted_figure,
    rates_figure,
    smoothed,
)
from penstock.lab.setups.gryphon import PAPER_CONTROL, link_messages_per_s, rate_fault, simple_network
from penstock.scenario.spec import Scenario
from penstock.streams.config import StreamsConfig

LINK = ("IB", "SB1")
STEPS = (60.0, 150.0, 60.0)  # KB/s
PHASE = {"paper": 120.0, "smoke": 15.0}
FEWER = {"paper": 1, "smoke": 20}
STARTED = 30.0  # seconds after which start-up is over
MOSTLY = (0.85, 0.95)


def steps(scale: Scale, name: str, control: StreamsConfig = PAPER_CONTROL) -> Scenario:
    """Four phases of the same length."""
    phase = PHASE[scale]
    faults = [rate_fault((number + 1) * phase, LINK, kilobytes) for number, kilobytes in enumerate(STEPS)]
    return simple_network(f"{name}-{scale}", duration=4 * phase, control=control, faults=faults, fewer=FEWER[scale])


def step_plans(scale: Scale) -> Mapping[str, Plan]:
    """One run for three figures."""
    return {"run": Plan(scenario=steps(scale, "pdcc-bandwidth-steps"))}


def measure_rates(views: Views) -> Mapping[str, float]:
    """The second half of each phase, as a share of what the link carries."""
    counts, phase = counted(views["run"]), PHASE[views.scale]
    shares = [
        between(counts.published, (number + 1.5) * phase, (number + 2) * phase) / link_messages_per_s(kilobytes)
        for number, kilobytes in enumerate(STEPS)
    ]
    faults = [counts.faults(edge) for edge in ("SB1", "SB2")]
    return {
        "first 60 KB/s, share of the link": shares[0],
        "150 KB/s, share of the link": shares[1],
        "second 60 KB/s, share of the link": shares[2],
        "150 KB/s: seconds until 300 messages/s": first_second(smoothed(counts.published) >= 300.0, 2 * phase),
        "missed, repeated or disordered": float(sum(sum(one) - one.waiting for one in faults)),
    }


def measure_queue(views: Views) -> Mapping[str, float]:
    """The most that waited at IB."""
    return {"largest queue (MB)": float(counted(views["run"]).queue_bytes(*LINK).max()) / 1e6}


def measure_alerts(views: Views) -> Mapping[str, float]:
    """What alerts said of edges that keep up; the first half of a phase is adaptation."""
    alerts, phase = counted(views["run"]).alerts, PHASE[views.scale]
    times, paces = alerts["time"], alerts["keeping_up"]
    calm = (times >= min(STARTED, phase / 2)) & (times < phase)
    later = np.zeros(len(times), dtype=bool)
    for number in range(len(STEPS)):
        later |= (times >= (number + 1.5) * phase) & (times < (number + 2) * phase)
    told = paces[later & (paces == paces)]
    within = (told >= MOSTLY[0]) & (told <= MOSTLY[1])
    return {
        "alerts in the free phase": float(calm.sum()),
        "lowest pace that was told": float(np.nanmin(paces)) if len(paces) else NAN,
        "later alerts from 0.85 to 0.95, share": float(within.mean()) if len(told) else NAN,
    }


def _draw_rates(views: Views) -> Sequence[Figure]:
    return (rates_figure("Rates (Figure 9).", counted(views["run"])),)


def _draw_queue(views: Views) -> Sequence[Figure]:
    queue = counted(views["run"]).queue_bytes(*LINK) / 1e6
    return (curves("What waits at IB for SB1 (Figure 10).", {"IB to SB1": queue}, "MB"),)


def _draw_alerts(views: Views) -> Sequence[Figure]:
    alerts = counted(views["run"]).alerts
    series = {"edges that keep up": (alerts["time"], alerts["keeping_up"])}
    return (noted_figure("The pace in the alerts that reach the pubends (Figure 11).", series, "ticksec/s"),)


ABOUT = "The link to SB1 has 60, then 150, then 60 KB/s, two minutes each, and congestion control is on."
LINK_PARAMETER = {"link": "IB - SB1 free, 60, 150 and 60 KB/s, 120 s each"}
EXPERIMENTS = (
    Experiment(
        name="pdcc-bandwidth-steps",
        title="A link that changes its rate",
        source="001 section 5, E2, Figure 9",
        about=f"{ABOUT} The pubends follow it, and probe around the best rate.",
        plans=step_plans,
        measure=measure_rates,
        draw=_draw_rates,
        parameters={**PARAMETERS, **LINK_PARAMETER},
        criteria=(
            Criterion(
                name="first 60 KB/s, share of the link", paper="near the optimum", low=0.6, high=1.0, scales=PAPER
            ),
            Criterion(name="150 KB/s, share of the link", paper="near the optimum", low=0.6, high=1.0, scales=PAPER),
            Criterion(
                name="second 60 KB/s, share of the link", paper="near the optimum", low=0.6, high=1.0, scales=PAPER
            ),
            Criterion(name="150 KB/s: seconds until 300 messages/s", paper="quickly", high=100.0, scales=PAPER),
            Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0),
        ),
    ),
    Experiment(
        name="pdcc-queue-bound",
        title="The queue before a link that changes its rate",
        source="001 section 5, E2, Figure 10",
        about=f"{ABOUT} What waits before the link stays small.",
        plans=step_plans,
        measure=measure_queue,
        draw=_draw_queue,
        parameters={**PARAMETERS, **LINK_PARAMETER},
        criteria=(Criterion(name="largest queue (MB)", judged="every seed", paper="never above 1", high=1.0),),
    ),
    Experiment(
        name="pdcc-uca-trace",
        title="What the alerts say",
        source="001 section 5, E2, Figure 11",
        about=f"{ABOUT} Alerts tell of half the pace of real time at first, and later of a little less than all of it.",
        plans=step_plans,
        measure=measure_alerts,
        draw=_draw_alerts,
        parameters={**PARAMETERS, **LINK_PARAMETER},
        criteria=(
            Criterion(name="alerts in the free phase", paper="only at start-up", high=0.0),
            Criterion(name="lowest pace that was told", paper="about half", low=0.3, high=0.7, scales=PAPER),
            Criterion(name="later alerts from 0.85 to 0.95, share", paper="slightly below 1", low=0.5, scales=PAPER),
        ),
    ),
)

"""001 section 2: what becomes of a network without congestion control (Figures 2, 3 and 4).

A link to an edge that is too narrow fills its queue until it overflows; what is lost is asked for again and lost again,
and the edge delivers nothing. An edge that comes back after two minutes asks for so much that the link from the pubends
overflows, and both edges starve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.setting import (
    PARAMETERS,
    between,
    counted,
    curves,
    first_second,
    rates_figure,
)
from penstock.lab.setups.gryphon import PAPER_CONTROL, QUEUE_BYTES, RATE, outage, rate_fault, simple_network
from penstock.scenario.spec import Scenario

NO_CONTROL = replace(PAPER_CONTROL, pubend_control=False, edge_control=False)
EDGE_LINK, FAILING = ("IB", "SB1"), ("IB", "SB2")
SLOW, NARROW = 60.0, 250.0  # KB/s

# Slow edge: seconds before, and after; messages fewer.
CALM = {"paper": 60.0, "smoke": 6.0}
SLOWED = {"paper": 240.0, "smoke": 140.0}
LAST = {"paper": 60.0, "smoke": 10.0}
FEWER = {"paper": 1, "smoke": 20}

# Link failure.
DOWN = {"paper": 120.0, "smoke": 20.0}
AFTER = {"paper": 400.0, "smoke": 30.0}
LAST_AFTER = {"paper": 100.0, "smoke": 10.0}


def slow_edge(scale: Scale) -> Scenario:
    """IB - SB1 has 60 KB/s after a while."""
    faults = [rate_fault(CALM[scale], EDGE_LINK, SLOW)]
    duration = CALM[scale] + SLOWED[scale]
    name = f"gryphon-slow-edge-{scale}"
    return simple_network(name, duration=duration, control=NO_CONTROL, faults=faults, fewer=FEWER[scale])


def failure(scale: Scale) -> Scenario:
    """PB - IB has 250 KB/s, and IB - SB2 fails for two minutes."""
    back = CALM[scale] + DOWN[scale]
    return simple_network(
        f"gryphon-link-failure-{scale}",
        duration=back + AFTER[scale],
        control=NO_CONTROL,
        rates=[("PB", "IB", NARROW)],
        faults=outage(CALM[scale], back, FAILING),
        fewer=FEWER[scale],
    )


def slow_plans(scale: Scale) -> Mapping[str, Plan]:
    """One run for both figures."""
    return {"run": Plan(scenario=slow_edge(scale))}


def failure_plans(scale: Scale) -> Mapping[str, Plan]:
    """Figure 4."""
    return {"run": Plan(scenario=failure(scale))}


def measure_slow(views: Views) -> Mapping[str, float]:
    """Rates in the last minute."""
    counts = counted(views["run"])
    stop = CALM[views.scale] + SLOWED[views.scale]
    start = stop - LAST[views.scale]
    return {
        "SB1, share of what it should get": between(counts.received["SB1"], start, stop) / RATE,
        "published (messages/s)": between(counts.published, start, stop),
        "SB2 (messages/s)": between(counts.received["SB2"], start, stop),
    }


def measure_queue(views: Views) -> Mapping[str, float]:
    """How full, and how soon."""
    queue = counted(views["run"]).queue_bytes(*EDGE_LINK)
    return {
        "largest queue (MB)": float(queue.max()) / 1e6,
        "seconds until it is full": first_second(queue >= 0.95 * QUEUE_BYTES, CALM[views.scale]),
    }


def measure_failure(views: Views) -> Mapping[str, float]:
    """Rates long after the repair, and whether SB2's lag shrinks."""
    counts, scale = counted(views["run"]), views.scale
    stop = CALM[scale] + DOWN[scale] + AFTER[scale]
    start = stop - LAST_AFTER[scale]
    published = between(counts.published, start, stop)
    behind = np.cumsum(counts.published) - np.cumsum(counts.received["SB2"])
    return {
        "published (messages/s)": published,
        "SB1, share of what is published": between(counts.received["SB1"], start, stop) / published,
        "SB2, share of what is published": between(counts.received["SB2"], start, stop) / published,
        "SB2's backlog grows by (messages/s)": float(behind[int(stop) - 1] - behind[int(start)]) / (stop - start),
    }


def _draw_slow(views: Views) -> Sequence[Figure]:
    return (rates_figure("Rates (Figure 2): the link to SB1 becomes too narrow.", counted(views["run"])),)


def _draw_queue(views: Views) -> Sequence[Figure]:
    queue = counted(views["run"]).queue_bytes(*EDGE_LINK) / 1e6
    return (curves("What waits at IB for SB1 (Figure 3).", {"IB to SB1": queue}, "MB"),)


def _draw_failure(views: Views) -> Sequence[Figure]:
    return (rates_figure("Rates (Figure 4): the link to SB2 was down for two minutes.", counted(views["run"])),)


ABOUT_SLOW = "Without congestion control, the link to one of two edges is limited to 60 KB/s, a third of what it needs."
EXPERIMENTS = (
    Experiment(
        name="gryphon-collapse-slow-edge-link",
        title="Collapse behind a slow link",
        source="001 section 2, Figure 2",
        about=f"{ABOUT_SLOW} Its queue overflows, what is lost is lost again when it is resent, and in the end the edge"
        " delivers nothing.",
        plans=slow_plans,
        measure=measure_slow,
        draw=_draw_slow,
        parameters={**PARAMETERS, "control": "none", "link": f"IB - SB1 {SLOW:g} KB/s after {CALM['paper']:g} s"},
        criteria=(
            Criterion(name="SB1, share of what it should get", paper="drops to zero", high=0.05),
            Criterion(name="published (messages/s)", paper="500", low=490.0),
            Criterion(name="SB2 (messages/s)", paper="not affected (implied)", low=475.0),
        ),
    ),
    Experiment(
        name="gryphon-collapse-queue",
        title="The queue before the slow link",
        source="001 section 2, Figure 3",
        about=f"{ABOUT_SLOW} What waits for it grows until the queue is full.",
        plans=slow_plans,
        measure=measure_queue,
        draw=_draw_queue,
        parameters={**PARAMETERS, "control": "none"},
        criteria=(
            Criterion(
                name="largest queue (MB)", judged="every seed", paper="5, overflows", low=0.95 * QUEUE_BYTES / 1e6
            ),
            Criterion(
                name="seconds until it is full",
                paper="43 (at 119 KB/s)",
                low=30.0,
                high=56.0,
                note="43 s within 30 %, from the calibrated size of a message",
            ),
        ),
    ),
    Experiment(
        name="gryphon-collapse-after-link-failure",
        title="Collapse after a link failure",
        source="001 section 2, Figure 4",
        about="The link to SB2 is down for two minutes. When it is back, SB2 asks for all that it missed, the link"
        " from the pubends overflows, and neither edge recovers.",
        plans=failure_plans,
        measure=measure_failure,
        draw=_draw_failure,
        parameters={**PARAMETERS, "control": "none", "link": f"PB - IB {NARROW:g} KB/s, IB - SB2 down for 120 s"},
        criteria=(
            Criterion(name="published (messages/s)", paper="500", low=490.0),
            Criterion(name="SB1, share of what is published", paper="far below, never recovers", high=0.7),
            Criterion(name="SB2, share of what is published", paper="far below, never recovers", high=0.7),
            Criterion(name="SB2's backlog grows by (messages/s)", paper="never recovers", low=0.0),
        ),
    ),
)

"""Filtering at relays with congestion control on (001 section 1.1): edges that want a tenth each, behind a narrow link.

"This normalizes the rate at different SHBs regardless of which subset of messages they receive": a pace is measured in
ticks, so an edge that gets a tenth of the messages, or none, keeps up like any other. The link from the pubends carries
half of what they offer. Four edges together want 40 %: nothing may be slowed down. Eight want 80 %: the pubends may
take 5/8 of what is offered and no more. One more edge wants what nobody publishes: silence alone must keep its doubt
horizon moving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.outcome import Outcome, outcome
from penstock.lab.papers.gryphon.setting import NAN, PAPER, PARAMETERS, PUBEND_NAMES, between, curves, smoothed
from penstock.lab.setups.gryphon import RATE, WIRE_BYTES, stream_network
from penstock.scenario.spec import Scenario

PARTS = 10
CARRIED = 0.5  # of what is offered, by the link from the pubends
FITS, TOO_MUCH = "four edges", "eight edges"
EDGES = {FITS: 4, TOO_MUCH: 8}
SILENT = "SB0"  # wants what nobody publishes
SECONDS = {"paper": 200.0, "smoke": 30.0}
FEWER = {"paper": 1, "smoke": 20}


def network(scale: Scale, name: str) -> Scenario:
    """PB - IB, and the edges below IB."""
    edges = {f"SB{number + 1}": [f"part = {number}"] for number in range(EDGES[name])}
    wants = {SILENT: [f"part > {PARTS}"], **edges}
    return stream_network(
        f"pdcc-filtering-{len(edges)}-{scale}",
        brokers=["PB", "IB", *wants],
        pairs=[("PB", "IB"), *(("IB", edge) for edge in wants)],
        wants=wants,
        duration=SECONDS[scale],
        rates=[("PB", "IB", CARRIED * RATE * WIRE_BYTES / 1024.0)],
        fewer=FEWER[scale],
        parts=PARTS,
    )


def plans(scale: Scale) -> Mapping[str, Plan]:
    """What fits the link, and what does not."""
    return {name: Plan(scenario=network(scale, name)) for name in EDGES}


def silent_pace(counts: Outcome) -> float:
    """The least pace of the doubt horizons of the edge that gets silence alone, over the second half of the run."""
    paces = []
    for pubend in PUBEND_NAMES:
        found = counts.horizon(SILENT, pubend)
        late = found["time"] >= counts.seconds / 2
        if late.sum() < 2:
            return NAN
        paces.append(float(np.ptp(found["horizon"][late])) / 1e6 / float(np.ptp(found["time"][late])))
    return min(paces)


def measure(views: Views) -> Mapping[str, float]:
    """What is published, as a share of what could be."""
    values: dict[str, float] = {}
    for name, view in views.items():
        counts = outcome(view)
        half = counts.seconds / 2
        possible = min(1.0, CARRIED * PARTS / EDGES[name])
        values |= {
            f"{name}: published, share of what could be": between(counts.published, half, counts.seconds)
            / (possible * RATE),
            f"{name}: alerts in the second half": float((counts.alerts["time"] >= half).sum()),
            f"{name}: largest lag (s)": counts.largest_lag(half, counts.seconds),
            f"{name}: pace with silence alone": silent_pace(counts),
            f"{name}: largest queue (MB)": counts.largest_queue / 1e6,
            f"{name}: missed, repeated or disordered": counts.wrong,
            f"{name}: not delivered at the end": float(counts.all_faults.waiting) * counts.fewer,
        }
    return values


def _draw(views: Views) -> Sequence[Figure]:
    return tuple(
        curves(f"What is published for {name}.", {"PB": smoothed(outcome(view).published)}, "messages per second")
        for name, view in views.items()
    )


def _both(what: str, paper: str, *, low: float | None = None, high: float | None = None) -> tuple[Criterion, ...]:
    return tuple(
        Criterion(name=f"{name}: {what}", paper=paper, judged="every seed", low=low, high=high) for name in EDGES
    )


EXPERIMENTS = (
    Experiment(
        name="pdcc-filtering",
        title="Edges that want a part, behind a narrow link",
        source="001 section 1.1",
        about="Edges want a tenth of the messages each, and the link from the pubends carries half of them. Four edges"
        " do not slow anybody down, eight do so just enough.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={
            **PARAMETERS,
            "readers": "one at each edge, for one of ten parts; one more for what nobody publishes",
            "link": f"PB - IB {CARRIED * RATE * WIRE_BYTES / 1024.0:.0f} KB/s",
        },
        criteria=(
            Criterion(name=f"{FITS}: published, share of what could be", paper="not throttled", low=0.98),
            Criterion(name=f"{FITS}: alerts in the second half", paper="none", high=0.0, scales=PAPER),
            Criterion(
                name=f"{TOO_MUCH}: published, share of what could be",
                paper="near the optimum",
                low=0.6,
                high=1.0,
                scales=PAPER,
                note="the bounds of E2",
            ),
            *_both("pace with silence alone", "regardless of which subset", low=0.95),
            *_both("largest queue (MB)", "never above 1", high=1.0),
            *_both("missed, repeated or disordered", "exactly once, in order", high=0.0),
        ),
    ),
)

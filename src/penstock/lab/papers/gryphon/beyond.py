"""Our own goals on the set-ups of E1, E2 and E4: a faster recovery, a fuller link, and pubends that fare alike.

The floor of a pubend's rate is FLOOR here: so much is left to new messages while an edge recovers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.bandwidth import LINK, PHASE, STEPS, steps
from penstock.lab.papers.gryphon.link_failure import CALM, DOWN, EDGE, FEWER, failure, recovery
from penstock.lab.papers.gryphon.setting import PAPER, PARAMETERS, PUBEND_NAMES, between, counted, rates_figure
from penstock.lab.setups.gryphon import PAPER_CONTROL, link_messages_per_s

FLOOR = 18.0  # messages/s
FAILURE, BANDWIDTH, FAIR = "link failure", "bandwidth steps", "threshold 1.0"


def plans(scale: Scale) -> Mapping[str, Plan]:
    """E1, E2, and E4 with the threshold at which the paper saw its pubends fare differently."""
    ours = replace(PAPER_CONTROL, rate_floor=FLOOR / FEWER[scale])
    return {
        FAILURE: Plan(scenario=failure(scale, 250.0, "pdcc-beyond-failure", ours)),
        BANDWIDTH: Plan(scenario=steps(scale, "pdcc-beyond-steps", ours)),
        FAIR: Plan(scenario=failure(scale, 500.0, "pdcc-beyond-fair", ours)),
    }


def measure(views: Views) -> Mapping[str, float]:
    """How near each goal is."""
    scale = views.scale
    failed, stepped, fair = (counted(views[name]) for name in (FAILURE, BANDWIDTH, FAIR))
    found = recovery(failed, scale)
    phase = PHASE[scale]
    shares = [
        between(stepped.published, (number + 1.5) * phase, (number + 2) * phase) / link_messages_per_s(kilobytes)
        for number, kilobytes in enumerate(STEPS)
    ]
    back = CALM[scale] + DOWN[scale]
    done = fair.recovered_at(EDGE, back)
    rates = [
        between(fair.published_by[pubend], back, done if done == done else fair.seconds) for pubend in PUBEND_NAMES
    ]
    return {
        "E1: recovery (s)": found["recovery (s)"],
        "E1: mean rate meanwhile (messages/s)": found["mean rate meanwhile (messages/s)"],
        "E2: least share of the link": min(shares),
        "E2: largest queue (MB)": float(stepped.queue_bytes(*LINK).max()) / 1e6,
        "E4: pubends' rates, largest over smallest": max(rates) / max(min(rates), 1e-9),
    }


def _draw(views: Views) -> Sequence[Figure]:
    return tuple(rates_figure(f"Rates: {name}.", counted(view)) for name, view in views.items())


EXPERIMENTS = (
    Experiment(
        name="pdcc-beyond",
        title="Faster than the paper",
        source="001 section 5, E1, E2 and E4; goals of our own",
        about="The set-ups of the paper with a higher floor for what a pubend takes. How near each goal comes.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "control": f"Table 1; a floor of {FLOOR:g} messages/s for each pubend"},
        criteria=(
            Criterion(name="E1: recovery (s)", paper="160", high=110.0, kind="goal", scales=PAPER),
            Criterion(name="E1: mean rate meanwhile (messages/s)", paper="-", low=70.0, kind="goal", scales=PAPER),
            Criterion(
                name="E2: least share of the link", paper="near the optimum", low=0.95, kind="goal", scales=PAPER
            ),
            Criterion(name="E2: largest queue (MB)", paper="1", high=0.2, kind="goal", scales=PAPER),
            Criterion(
                name="E4: pubends' rates, largest over smallest", paper="unfair", high=1.05, kind="goal", scales=PAPER
            ),
        ),
    ),
)

"""Our own goals on the set-ups of E1, E2 and E4: a faster recovery, a fuller link, and pubends that fare alike.

The rule is the product's (`control_rule = "measured"`) with its own floor; cache, windows and packets are those of the
set-up. E1 is run once more with the product's cache, where IB keeps all that was published meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.bandwidth import LINK, PHASE, STEPS, steps
from penstock.lab.papers.gryphon.link_failure import CALM, DOWN, EDGE, FEWER, failure, recovery
from penstock.lab.papers.gryphon.setting import (
    PAPER,
    PARAMETERS,
    PUBEND_NAMES,
    StreamCounts,
    between,
    counted,
    rates_figure,
)
from penstock.lab.setups.gryphon import PAPER_CONTROL, link_messages_per_s
from penstock.streams.config import StreamsConfig

PRODUCT = StreamsConfig()
FAILURE, CACHED, BANDWIDTH, FAIR = "link failure", "with the product's cache", "bandwidth steps", "threshold 1.0"


def plans(scale: Scale) -> Mapping[str, Plan]:
    """E1, E2, and E4 with the threshold at which the paper saw its pubends fare differently."""
    fewer = FEWER[scale]
    ours = replace(PAPER_CONTROL, control_rule="measured", rate_floor=PRODUCT.rate_floor / fewer)
    cached = replace(ours, cache_bytes=PRODUCT.cache_bytes)
    return {
        CACHED: Plan(scenario=failure(scale, 250.0, "pdcc-beyond-cached", cached)),
        FAILURE: Plan(scenario=failure(scale, 250.0, "pdcc-beyond-failure", ours)),
        BANDWIDTH: Plan(scenario=steps(scale, "pdcc-beyond-steps", ours)),
        FAIR: Plan(scenario=failure(scale, 500.0, "pdcc-beyond-fair", ours)),
    }


def measure(views: Views) -> Mapping[str, float]:
    """How near each goal is."""
    scale = views.scale
    failed, kept, stepped, fair = (counted(views[name]) for name in (FAILURE, CACHED, BANDWIDTH, FAIR))
    found, cached = recovery(failed, scale), recovery(kept, scale)
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
        f"E1 {CACHED}: recovery (s)": cached["recovery (s)"],
        f"E1 {CACHED}: mean rate (messages/s)": cached["mean rate meanwhile (messages/s)"],
        "missed, repeated or disordered": _faults(failed, kept, stepped, fair),
        "E2: least share of the link": min(shares),
        "E2: largest queue (MB)": float(stepped.queue_bytes(*LINK).max()) / 1e6,
        "E4: pubends' rates, largest over smallest": max(rates) / max(min(rates), 1e-9),
    }


def _faults(*runs: StreamCounts) -> float:
    found = [counts.faults(edge) for counts in runs for edge in ("SB1", "SB2")]
    return float(sum(sum(one) - one.waiting for one in found))


def _draw(views: Views) -> Sequence[Figure]:
    return tuple(rates_figure(f"Rates: {name}.", counted(view)) for name, view in views.items())


EXPERIMENTS = (
    Experiment(
        name="pdcc-beyond",
        title="Faster than the paper",
        source="001 section 5, E1, E2 and E4; goals of our own",
        about="The set-ups of the paper with the product's rule: alerts say how long data wait and how fast they come,"
        " so pubends need not guess. How near each goal comes.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "control": "the product's rule and floor"},
        product="it has the product's settings already",
        criteria=(
            Criterion(name="E1: recovery (s)", paper="160", high=110.0, kind="goal", scales=PAPER),
            Criterion(name="E1: mean rate meanwhile (messages/s)", paper="-", low=70.0, kind="goal", scales=PAPER),
            Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0),
            Criterion(name=f"E1 {CACHED}: recovery (s)", paper="160", kind="goal", scales=PAPER, note="reported"),
            Criterion(
                name=f"E1 {CACHED}: mean rate (messages/s)", paper="-", kind="goal", scales=PAPER, note="reported"
            ),
            Criterion(
                name="E2: least share of the link",
                judged="every seed",
                paper="near the optimum",
                low=0.95,
                kind="goal",
                scales=PAPER,
            ),
            Criterion(
                name="E2: largest queue (MB)", judged="every seed", paper="1", high=0.2, kind="goal", scales=PAPER
            ),
            Criterion(
                name="E4: pubends' rates, largest over smallest", paper="unfair", high=1.05, kind="goal", scales=PAPER
            ),
        ),
    ),
)

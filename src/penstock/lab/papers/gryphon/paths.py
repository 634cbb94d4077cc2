"""Several paths with congestion control on (001 section 2): "We allow for the path from a pubend to a particular SHB to
change", and "routing messages from different pubends on different paths".

`pdcc-path-change`: two relays stand between PB and both edges. The link to the one in use fails, the way leads over the
other one, whose link is narrow, and later back. `pdcc-separate-trees`: two brokers with two pubends each have trees
over different relays to the same edges, and one link of one tree is narrow: only its own pubends may be slowed down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.outcome import outcome
from penstock.lab.papers.gryphon.setting import (
    PAPER,
    PARAMETERS,
    PUBEND_NAMES,
    between,
    curves,
    first_second,
    rates_figure,
    smoothed,
)
from penstock.lab.setups.gryphon import PUBENDS, RATE, READERS, link_messages_per_s, outage, stream_network
from penstock.scenario.spec import Scenario

FEWER = {"paper": 1, "smoke": 20}
EDGES = ("SB1", "SB2")
ALL = [f"part = {part}" for part in range(READERS)]

# A path that changes.
FAILS = {"paper": 60.0, "smoke": 8.0}
BACK = {"paper": 180.0, "smoke": 24.0}
END = {"paper": 330.0, "smoke": 40.0}
NARROW = 100.0  # KB/s, of the other path

# Trees of their own.
SECONDS = {"paper": 200.0, "smoke": 24.0}
SLOW = 60.0  # KB/s
SLOWED, FREE = PUBEND_NAMES[:2], PUBEND_NAMES[2:]
HALF = RATE * len(FREE) / PUBENDS  # what two pubends are offered


def changing(scale: Scale) -> Scenario:
    """PB - IB1 and PB - IB2; both relays have links to both edges."""
    pairs = [("PB", "IB1"), ("PB", "IB2"), *((relay, edge) for relay in ("IB1", "IB2") for edge in EDGES)]
    return stream_network(
        f"pdcc-path-change-{scale}",
        brokers=["PB", "IB1", "IB2", *EDGES],
        pairs=pairs,
        wants=dict.fromkeys(EDGES, ALL),
        duration=END[scale],
        rates=[("PB", "IB2", NARROW)],
        faults=outage(FAILS[scale], BACK[scale], ("PB", "IB1")),
        fewer=FEWER[scale],
    )


def change_plans(scale: Scale) -> Mapping[str, Plan]:
    """One run."""
    return {"run": Plan(scenario=changing(scale))}


def measure_change(views: Views) -> Mapping[str, float]:
    """Before, on the other path, and afterwards."""
    counts, scale = outcome(views["run"]), views.scale
    fails, back = FAILS[scale], BACK[scale]
    settled = fails + (back - fails) / 2
    received = {edge: counts.received[edge] for edge in EDGES}
    return {
        "before, share of what is offered": between(counts.published, fails / 2, fails) / RATE,
        "on the other path, share of its link": between(counts.published, settled, back) / link_messages_per_s(NARROW),
        "seconds without a delivery after the failure": max(
            first_second(received[edge] > 0.0, fails + 1.0) for edge in EDGES
        ),
        "back to 95 % after the return (s)": first_second(smoothed(counts.published) >= 0.95 * RATE, back),
        "largest queue (MB)": counts.largest_queue / 1e6,
        "largest lag on the other path (s)": counts.largest_lag(settled, back),
        "bytes over IB2 before, share": between(counts.link_bytes("PB", "IB2"), fails / 2, fails)
        / max(between(counts.link_bytes("PB", "IB1"), fails / 2, fails), 1.0),
        "missed, repeated or disordered": counts.wrong,
        "not delivered at the end": float(counts.all_faults.waiting) * counts.fewer,
    }


def trees(scale: Scale) -> Scenario:
    """PB1 - IB1 and PB2 - IB2, and both relays have links to both edges."""
    pairs = [("PB1", "IB1"), ("PB2", "IB2"), *((relay, edge) for relay in ("IB1", "IB2") for edge in EDGES)]
    return stream_network(
        f"pdcc-separate-trees-{scale}",
        brokers=["PB1", "PB2", "IB1", "IB2", *EDGES],
        pairs=pairs,
        wants=dict.fromkeys(EDGES, ALL),
        duration=SECONDS[scale],
        rates=[("IB1", "SB1", SLOW)],
        fewer=FEWER[scale],
        homes=("PB1", "PB1", "PB2", "PB2"),
    )


def tree_plans(scale: Scale) -> Mapping[str, Plan]:
    """One run."""
    return {"run": Plan(scenario=trees(scale))}


def measure_trees(views: Views) -> Mapping[str, float]:
    """The second half of the run."""
    counts = outcome(views["run"])
    start, stop = counts.seconds / 2, counts.seconds
    slowed = sum(between(counts.published_by[pubend], start, stop) for pubend in SLOWED)
    free = sum(between(counts.published_by[pubend], start, stop) for pubend in FREE)
    return {
        "pubends before the slow link, share of the link": slowed / link_messages_per_s(SLOW),
        "other pubends, share of what is offered": free / HALF,
        "largest queue (MB)": counts.largest_queue / 1e6,
        "missed, repeated or disordered": counts.wrong,
        "not delivered at the end": float(counts.all_faults.waiting) * counts.fewer,
    }


def _draw_change(views: Views) -> Sequence[Figure]:
    return (rates_figure("Rates while the path changes.", outcome(views["run"])),)


def _draw_trees(views: Views) -> Sequence[Figure]:
    counts = outcome(views["run"])
    named = {pubend: smoothed(counts.published_by[pubend]) for pubend in PUBEND_NAMES}
    return (curves("What each pubend takes; 0 and 1 are before the slow link.", named, "messages per second"),)


ONCE = (
    Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0),
    Criterion(name="not delivered at the end", paper="every message", high=0.0, scales=PAPER),
    Criterion(name="largest queue (MB)", judged="every seed", paper="never above 1", high=1.0),
)
EXPERIMENTS = (
    Experiment(
        name="pdcc-path-change",
        title="A path that changes",
        source="001 section 2",
        about="The link to the relay in use fails for two minutes and the way leads over another, narrow one. The"
        " pubends follow it there and back.",
        plans=change_plans,
        measure=measure_change,
        draw=_draw_change,
        parameters={
            **PARAMETERS,
            "network": "PB - IB1, IB2; both have links to SB1 and SB2",
            "link": f"PB - IB1 down for 120 s; PB - IB2 {NARROW:g} KB/s",
        },
        criteria=(
            Criterion(name="before, share of what is offered", paper="not throttled", low=0.98),
            Criterion(
                name="on the other path, share of its link",
                paper="near the optimum",
                low=0.6,
                high=1.0,
                scales=PAPER,
                note="the bounds of E2",
            ),
            Criterion(
                name="back to 95 % after the return (s)",
                paper="raised afterwards",
                high=150.0,
                scales=PAPER,
                note="the bound of E1",
            ),
            *ONCE,
        ),
    ),
    Experiment(
        name="pdcc-separate-trees",
        title="Pubends with trees of their own",
        source="001 section 2",
        about="Two brokers with two pubends each reach the same edges over different relays, and a link of the first"
        " tree is narrow. The pubends of the second do not notice.",
        plans=tree_plans,
        measure=measure_trees,
        draw=_draw_trees,
        parameters={
            **PARAMETERS,
            "network": "PB1 - IB1, PB2 - IB2; both relays have links to SB1 and SB2",
            "link": f"IB1 - SB1 {SLOW:g} KB/s",
        },
        criteria=(
            Criterion(name="other pubends, share of what is offered", paper="not throttled", low=0.98),
            Criterion(
                name="pubends before the slow link, share of the link",
                paper="near the optimum",
                low=0.6,
                high=1.0,
                scales=PAPER,
                note="the bounds of E2",
            ),
            *ONCE,
        ),
    ),
)

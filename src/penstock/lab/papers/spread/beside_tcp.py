"""003 scenario 3: priced senders beside one TCP, and beside two (Figure 13); and a link whose rate changes without TCP.

On the tree of scenario 1 TCPs share D-E. All priced messages on a link travel inside one TCP connection, so together
they count as one TCP, however many senders there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.spread.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    PricedCounts,
    between,
    buffers_figure,
    counted,
    rates_figure,
    smoothed,
)
from penstock.lab.papers.spread.tree import ACE, AEF, BC, BD, DE, RATES_1, adapted
from penstock.lab.setups.spread import (
    GROUPS,
    MBIT,
    PAPER_PRICING,
    SCENARIO_1,
    TCP_WINDOW,
    TREE,
    WIRE_BYTES,
    spread_network,
)
from penstock.scenario.spec import FaultSpec, Scenario, TcpSpec

TIMES = {"paper": (100.0, 300.0, 400.0, 500.0), "smoke": (5.0, 8.0, 11.0, 14.0)}  # TCP 1, TCP 2, neither, the end
ADAPTING = {"paper": 20.0, "smoke": 1.0}  # seconds at the beginning of each phase that do not count
COUNTS = {"paper": (1, 5, 10, 20, 50), "smoke": (4,)}  # senders of each group
USUAL = {"paper": 20, "smoke": 4}
FIRST, SECOND = "TCP 1", "TCP 2"


def scenario(scale: Scale, senders: int) -> Scenario:
    """Two TCPs that come one after the other, and go together."""
    first, second, stop, end = TIMES[scale]
    tcp = [
        TcpSpec(name=name, path=DE, start=start, stop=stop, segment_bytes=WIRE_BYTES, receive_window=TCP_WINDOW)
        for name, start in ((FIRST, first), (SECOND, second))
    ]
    return spread_network(
        f"cb-scenario-3-{senders}-{scale}",
        SCENARIO_1,
        GROUPS,
        duration=end,
        senders=senders,
        tcp=tcp,
        pricing=adapted(PAPER_PRICING, scale),
    )


def plans(scale: Scale) -> Mapping[str, Plan]:
    """With few senders and with many."""
    return {str(count): Plan(scenario=scenario(scale, count)) for count in COUNTS[scale]}


def measure(views: Views) -> Mapping[str, float]:
    """What groups and TCPs got in each phase; and whether other numbers of senders change that."""
    usual = str(USUAL[views.scale])
    values = dict(_phases(counted(views[usual]), views.scale))
    for name, view in views.items():
        if name != usual:
            found = _phases(counted(view), views.scale)
            values |= {f"{name} senders a group: {what}": found[what] for what in ("phase 2: both over TCP 1", BOTH_3)}
    others = [values[name] for name in values if "senders a group" in name]
    values["other numbers of senders: least share of TCP's"] = min(others, default=NAN)
    values["other numbers of senders: largest share of TCP's"] = max(others, default=NAN)
    return values


BOTH_3 = "phase 3: both over the mean of the TCPs"


def _phases(counts: PricedCounts, scale: Scale) -> dict[str, float]:
    first, second, stop, end = TIMES[scale]
    wait = ADAPTING[scale]
    ends = [(2 * wait, first), (first + wait, second), (second + wait, stop), (stop + wait, end)]
    ace, aef = ([counts.mean_rate(group, *phase) for phase in ends] for group in GROUPS)
    one, other = ([between(counts.tcp(name), *phase) for phase in ends] for name in (FIRST, SECOND))
    tcps = (one[2] + other[2]) / 2
    return {
        "phase 1: G_ace": ace[0],
        "phase 1: G_aef": aef[0],
        "phase 2: G_ace": ace[1],
        "phase 2: G_aef": aef[1],
        "phase 2: TCP 1": one[1],
        "phase 3: G_ace": ace[2],
        "phase 3: G_aef": aef[2],
        "phase 3: TCP 1": one[2],
        "phase 3: TCP 2": other[2],
        "phase 4 over phase 1: G_ace": ace[3] / max(ace[0], 1e-9),
        "phase 4 over phase 1: G_aef": aef[3] / max(aef[0], 1e-9),
        "phase 2: both over TCP 1": (ace[1] + aef[1]) / max(one[1], 1e-9),
        BOTH_3: (ace[2] + aef[2]) / max(tcps, 1e-9),
    }


def _draw(views: Views) -> Sequence[Figure]:
    usual = counted(views[str(USUAL[views.scale])])
    return (
        rates_figure("Rates of both groups, and of both TCPs (Figure 13).", usual, list(GROUPS), [FIRST, SECOND]),
        buffers_figure("The largest buffers so far.", usual, TREE),
    )


# A link whose rate changes.

STEPS = {"paper": (100.0, 200.0, 300.0, 400.0), "smoke": (5.0, 8.0, 11.0, 14.0)}
SLOWER, FASTER = 1.0, 3.0  # Mbit/s of D-E
REACTED = 0.1  # of what it should be


def changing(scale: Scale) -> Scenario:
    """D-E has 3, then 1, then 3 Mbit/s; and then B-C, which only one group needs, has 1 instead of 2."""
    first, second, third, end = STEPS[scale]
    faults = [
        FaultSpec(at=at, kind="link_rate", link=link, rate_bits_per_s=rate * MBIT)
        for at, link, rate in ((first, DE, SLOWER), (second, DE, FASTER), (third, BC, SLOWER))
    ]
    return spread_network(
        f"cb-changing-capacity-{scale}",
        SCENARIO_1,
        GROUPS,
        duration=end,
        senders=USUAL[scale],
        faults=faults,
        pricing=adapted(PAPER_PRICING, scale),
    )


def changing_plans(scale: Scale) -> Mapping[str, Plan]:
    """One run."""
    return {"run": Plan(scenario=changing(scale))}


def measure_changing(views: Views) -> Mapping[str, float]:
    """What came in each phase, how soon, and what waited."""
    counts, scale = counted(views["run"]), views.scale
    first, second, third, end = STEPS[scale]
    wait = ADAPTING[scale]
    both = counts.rate(ACE) + counts.rate(AEF)
    return {
        "1 Mbit/s: both (Mbit/s)": between(both, first + wait, second),
        "1 Mbit/s: G_ace over G_aef": counts.mean_rate(ACE, first + wait, second)
        / max(counts.mean_rate(AEF, first + wait, second), 1e-9),
        "3 Mbit/s again: both over before": between(both, second + wait, third) / between(both, 2 * wait, first),
        "B-C slower: G_ace (Mbit/s)": counts.mean_rate(ACE, third + wait, end),
        "B-C slower: G_aef over before": counts.mean_rate(AEF, third + wait, end)
        / max(counts.mean_rate(AEF, second + wait, third), 1e-9),
        "seconds until 1 Mbit/s is kept to": _reaction(both, first, high=SLOWER * (1 + REACTED)),
        "seconds until 3 Mbit/s are used": _reaction(both, second, low=FASTER * (1 - REACTED)),
        "largest buffer": max(counts.largest(link, 2 * wait) for link in TREE),
        "largest buffer before the change": max(counts.largest(link, 2 * wait, first) for link in TREE),
    }


def _reaction(
    rates: np.ndarray[tuple[int], np.dtype[np.float64]], at: float, low: float = 0.0, high: float = 1e9
) -> float:
    """Seconds until the mean of three seconds is within these bounds."""
    smooth = smoothed(rates, 3)[int(at) + 1 :]
    found = np.flatnonzero((smooth >= low) & (smooth <= high))
    return float(found[0] + 1) if len(found) else NAN


def _draw_changing(views: Views) -> Sequence[Figure]:
    counts = counted(views["run"])
    return (
        rates_figure("Rates of both groups.", counts, list(GROUPS)),
        buffers_figure("The largest buffers so far.", counts, (BC, BD, DE)),
    )


def _share(name: str, paper: str, low: float, high: float) -> Criterion:
    return Criterion(name=name, paper=paper, low=low, high=high, scales=PAPER)


EXPERIMENTS = (
    Experiment(
        name="cb-s3-competing-tcp",
        title="Priced senders beside TCP",
        source="003 section 6, scenario 3, Figure 13",
        about="One TCP joins on D-E, then another, then both stop. All forty senders together count as one TCP.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={
            **PARAMETERS,
            "rates": RATES_1,
            "TCP": "NewReno on D-E, TCP 1 from 100 s, TCP 2 from 300 s, both until 400 s; the first 20 s of a phase are"
            " not counted",
            "senders": "20 for each group; beside them 1, 5, 10 and 50",
        },
        criteria=(
            _share("phase 2: G_ace", "0.742", 0.67, 0.80),
            _share("phase 2: G_aef", "0.739", 0.67, 0.80),
            _share("phase 2: TCP 1", "1.49", 1.3, 1.6),
            _share("phase 3: G_ace", "0.495", 0.42, 0.55),
            _share("phase 3: G_aef", "0.495", 0.42, 0.55),
            _share("phase 3: TCP 1", "1.0", 0.85, 1.1),
            _share("phase 3: TCP 2", "1.0", 0.85, 1.1),
            _share("phase 4 over phase 1: G_ace", "as before", 0.9, 1.1),
            _share("phase 4 over phase 1: G_aef", "as before", 0.9, 1.1),
            _share("phase 2: both over TCP 1", "0.99", 0.88, 1.12),
            _share(BOTH_3, "0.99", 0.88, 1.12),
            Criterion(
                name="other numbers of senders: least share of TCP's",
                judged="every seed",
                paper="similar",
                low=0.88,
                kind="goal",
                scales=PAPER,
            ),
            Criterion(
                name="other numbers of senders: largest share of TCP's",
                judged="every seed",
                paper="similar",
                high=1.12,
                kind="goal",
                scales=PAPER,
            ),
        ),
    ),
    Experiment(
        name="cb-changing-capacity",
        title="A link whose rate changes, without TCP beside it",
        source="003 section 1 (a dynamic capacity of every overlay link); the tree of scenario 1",
        about="D-E has 3, then 1, then 3 Mbit/s; then B-C, which only G_ace needs, falls to 1. Senders follow, each its"
        " own bottleneck.",
        plans=changing_plans,
        measure=measure_changing,
        draw=_draw_changing,
        parameters={**PARAMETERS, "rates": RATES_1, "changes": "at 100, 200 and 300 s"},
        criteria=(
            Criterion(name="1 Mbit/s: both (Mbit/s)", paper="-", low=0.93, high=1.0, kind="goal", scales=PAPER),
            Criterion(name="1 Mbit/s: G_ace over G_aef", paper="-", low=0.95, high=1.05, kind="goal", scales=PAPER),
            Criterion(
                name="3 Mbit/s again: both over before", paper="-", low=0.95, high=1.05, kind="goal", scales=PAPER
            ),
            Criterion(name="B-C slower: G_ace (Mbit/s)", paper="-", low=0.93, high=1.0, kind="goal", scales=PAPER),
            Criterion(name="B-C slower: G_aef over before", paper="-", low=0.95, kind="goal", scales=PAPER),
            Criterion(name="seconds until 1 Mbit/s is kept to", paper="-", high=10.0, kind="goal", scales=PAPER),
            Criterion(name="seconds until 3 Mbit/s are used", paper="-", high=10.0, kind="goal", scales=PAPER),
            Criterion(name="largest buffer", judged="every seed", paper="-", high=115.0, kind="goal", scales=PAPER),
        ),
    ),
)

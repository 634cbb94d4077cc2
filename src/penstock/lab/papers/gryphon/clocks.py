"""001 footnote 3: "The brokers do not need to have synchronized clocks, but the difference in clock rates should be
small." How small, in a network without congestion, and whether a drift that clocks do have matters with it.

An edge divides ticks, which are the pubend's time, by its own time. A clock at the edge that runs d too fast, or one at
the pubend that runs d too slow, makes the pace of an edge that keeps up 1 - d: beyond the threshold of alerts, 5 %, the
edge takes the drift for congestion. Offsets do not matter: only differences of one clock are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.pages.style import named_bars
from penstock.lab.papers.gryphon.bandwidth import LINK
from penstock.lab.papers.gryphon.outcome import outcome
from penstock.lab.papers.gryphon.setting import NAN, PAPER, PARAMETERS, between
from penstock.lab.setups.gryphon import RATE, link_messages_per_s, rate_fault, simple_network
from penstock.scenario.spec import Scenario

SECONDS = {"paper": 60.0, "smoke": 20.0}
FEWER = {"paper": 10, "smoke": 20}
SETTLED = 10.0
OFFSET = 7_200.0
DRIFTS = {"paper": (0.001, 0.01, 0.04, 0.06, 0.1), "smoke": (0.04,)}
HARMLESS = 0.04
SLOW = 60.0  # KB/s
SLOW_SECONDS = {"paper": 240.0, "smoke": 40.0}
PLACES = {  # brokers and the sign of their drift
    "edges fast": {"SB1": 1.0, "SB2": 1.0},
    "edges slow": {"SB1": -1.0, "SB2": -1.0},
    "pubend slow": {"PB": -1.0},
    "pubend fast": {"PB": 1.0},
    "relay fast": {"IB": 1.0},
    "edges fast, pubend slow": {"SB1": 0.5, "SB2": 0.5, "PB": -0.5},
}
DEFAULT_PLACES = {"paper": tuple(PLACES), "smoke": ("edges fast", "pubend slow")}
CONGESTED = "congested, edges fast and pubend slow by 0.1 %"


def drifting(scenario: Scenario, drift: float, signs: Mapping[str, float]) -> Scenario:
    """Clocks that run too fast or too slow, and are hours apart."""
    brokers = tuple(
        replace(broker, clock_offset=OFFSET * (number + 1), clock_drift=round(drift * signs.get(broker.name, 0.0), 6))
        for number, broker in enumerate(scenario.broker)
    )
    return replace(scenario, broker=brokers)


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Each place with each drift, and a congested network."""
    found = {}
    for place in DEFAULT_PLACES[scale]:
        for drift in DRIFTS[scale]:
            name = f"{place}, {drift:.1%}"
            scenario = simple_network(f"pdcc-clocks-{scale}", duration=SECONDS[scale], fewer=FEWER[scale])
            found[name] = Plan(scenario=drifting(scenario, drift, PLACES[place]))
    slow = simple_network(
        f"pdcc-clocks-congested-{scale}",
        duration=SLOW_SECONDS[scale],
        faults=[rate_fault(SECONDS[scale] / 2, LINK, SLOW)],
        fewer=FEWER[scale],
    )
    found[CONGESTED] = Plan(scenario=drifting(slow, 0.002, PLACES["edges fast, pubend slow"]))
    return found


def _drift(name: str) -> float:
    return float(name.rpartition(" ")[2].rstrip("%")) / 100.0


def measure(views: Views) -> Mapping[str, float]:
    """What is published, and how often somebody alerts."""
    values: dict[str, float] = {}
    harmless, alerts, first = [], 0, NAN
    for name, view in views.items():
        counts = outcome(view)
        if name == CONGESTED:
            half = counts.seconds / 2
            values[f"{name}: share of the link"] = between(counts.published, half, counts.seconds) / (
                link_messages_per_s(SLOW)
            )
            continue
        share = between(counts.published, SETTLED, counts.seconds) / RATE
        values[f"{name}: published, share"] = share
        if _drift(name) <= HARMLESS:
            harmless.append(share)
            alerts += int((counts.alerts["time"] > SETTLED).sum())
        elif share < 0.98:
            first = _drift(name) if first != first else min(first, _drift(name))
    wrong = sum(outcome(view).wrong for view in views.values())
    return values | {
        f"published with a drift up to {HARMLESS:.0%}, least share": min(harmless),
        f"alerts with a drift up to {HARMLESS:.0%}": float(alerts),
        "least drift that was taken for congestion": first,
        "missed, repeated or disordered": wrong,
    }


def _draw(views: Views) -> Sequence[Figure]:
    rows = [
        {"clocks": name, "share": between(outcome(view).published, SETTLED, outcome(view).seconds) / RATE}
        for name, view in views.items()
        if name != CONGESTED
    ]
    spec = named_bars(rows, x="clocks", y="share", y_title="published, as a share of what is offered")
    return (Figure(caption="What is published without congestion, by whose clock drifts and how much.", spec=spec),)


EXPERIMENTS = (
    Experiment(
        name="pdcc-clock-drift",
        title="Clocks that drift",
        source="001 section 1.1, footnote 3",
        about="Clocks are hours apart and run too fast or too slow, and nothing is congested. Up to 4 % nobody takes it"
        " for congestion; ordinary clocks drift by less than 0.02 %.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "clocks": "two hours apart, drifts from 0.1 to 10 %"},
        criteria=(
            Criterion(
                name=f"published with a drift up to {HARMLESS:.0%}, least share",
                judged="every seed",
                paper="clocks need not be synchronized",
                low=0.98,
            ),
            Criterion(name=f"alerts with a drift up to {HARMLESS:.0%}", paper="none", high=0.0),
            Criterion(name=f"{CONGESTED}: share of the link", paper="-", low=0.6, high=1.0, scales=PAPER),
            Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0),
            Criterion(
                name="least drift that was taken for congestion",
                paper="should be small",
                kind="goal",
                scales=PAPER,
                note="reported; the threshold of alerts is 5 %",
            ),
        ),
    ),
)

"""001 section 3.1: feedback that does not grow with the number of edges.

"They are aggregated at IBs so that the pubend eventually receives a single UCA message", and queries and alerts
"consume little resources in the system". Here 2, 8 and 32 edges stand behind one narrow link from the pubends, four
relays below the first one share them, and all edges alert. What comes to the pubends is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.pages.style import named_bars
from penstock.lab.papers.gryphon.outcome import Outcome, outcome
from penstock.lab.papers.gryphon.setting import PAPER, PARAMETERS, PUBEND_NAMES, between
from penstock.lab.setups.gryphon import PAPER_CONTROL, link_messages_per_s, stream_network
from penstock.scenario.spec import Scenario
from penstock.streams.packets import TICK_MAX, Dcq, Uca

EDGES = {"paper": (2, 8, 32), "smoke": (2, 8)}
SECONDS = {"paper": 180.0, "smoke": 30.0}
FEWER = {"paper": 10, "smoke": 40}
RELAYS = 4
NARROW = 150.0  # KB/s
SETTLED = 0.25  # of the run


def network(scale: Scale, edges: int) -> Scenario:
    """PB - IB; IB - IB1 to IB4; the edges below these in turn."""
    relays = [f"IB{number + 1}" for number in range(RELAYS)]
    names = [f"SB{number + 1}" for number in range(edges)]
    pairs = [("PB", "IB"), *(("IB", relay) for relay in relays)]
    pairs += [(relays[number % RELAYS], name) for number, name in enumerate(names)]
    return stream_network(
        f"pdcc-feedback-{edges}-{scale}",
        brokers=["PB", "IB", *relays, *names],
        pairs=pairs,
        wants={name: ["part >= 0"] for name in names},
        duration=SECONDS[scale],
        rates=[("PB", "IB", NARROW)],
        fewer=FEWER[scale],
    )


def plans(scale: Scale) -> Mapping[str, Plan]:
    """A run for each number of edges."""
    return {f"{edges} edges": Plan(scenario=network(scale, edges)) for edges in EDGES[scale]}


def alerts_per_s(counts: Outcome) -> float:
    """That came to all pubends together."""
    start = SETTLED * counts.seconds
    return float((counts.alerts["time"] >= start).sum()) / (counts.seconds - start)


def feedback_bytes_per_s(counts: Outcome) -> float:
    """Of queries and alerts on the link of the pubends, of all pubends together."""
    query = Dcq(PUBEND_NAMES[0], TICK_MAX, TICK_MAX, TICK_MAX).size_bytes()
    alert = Uca(PUBEND_NAMES[0], TICK_MAX, TICK_MAX, 0.5, 0.5).size_bytes()
    return len(PUBEND_NAMES) / PAPER_CONTROL.query_interval * query + alerts_per_s(counts) * alert


def _most_for_one_query(counts: Outcome) -> float:
    alerts = counts.alerts
    return float(
        max(
            np.unique(alerts["sequence"][alerts["pubend"] == pubend], return_counts=True)[1].max(initial=0)
            for pubend in PUBEND_NAMES
        )
    )


def measure(views: Views) -> Mapping[str, float]:
    """Alerts and bytes for each number of edges, and how they grow."""
    values: dict[str, float] = {}
    for name, view in views.items():
        counts = outcome(view)
        start = SETTLED * counts.seconds
        values |= {
            f"{name}: alerts at the pubends (1/s)": alerts_per_s(counts),
            f"{name}: queries and alerts (bytes/s)": feedback_bytes_per_s(counts),
            f"{name}: all that goes up to the pubends (bytes/s)": between(
                counts.link_bytes("IB", "PB"), start, counts.seconds
            ),
            f"{name}: share of the link": between(counts.published, start, counts.seconds)
            / link_messages_per_s(NARROW),
            f"{name}: alerts for one query, most": _most_for_one_query(counts),
        }
    least, most = f"{EDGES[views.scale][0]} edges", f"{EDGES[views.scale][-1]} edges"
    narrow = NARROW * 1024.0
    return values | {
        "alerts for one query, most": max(_most_for_one_query(outcome(view)) for view in views.values()),
        "alerts, most edges over least": values[f"{most}: alerts at the pubends (1/s)"]
        / max(values[f"{least}: alerts at the pubends (1/s)"], 1e-9),
        "queries and alerts, share of the link": max(
            feedback_bytes_per_s(outcome(view)) / narrow for view in views.values()
        ),
        "missed, repeated or disordered": sum(outcome(view).wrong for view in views.values()),
    }


def _draw(views: Views) -> Sequence[Figure]:
    rows = [{"edges": name, "alerts": alerts_per_s(outcome(view))} for name, view in views.items()]
    spec = named_bars(rows, x="edges", y="alerts", y_title="alerts at the pubends (1/s)")
    return (Figure(caption="Alerts that reach the pubends, by the number of edges that alert.", spec=spec),)


EXPERIMENTS = (
    Experiment(
        name="pdcc-feedback-edges",
        title="Feedback from many edges",
        source="001 section 3.1",
        about="2, 8 and 32 edges behind one narrow link all fall behind. Relays make one alert of theirs, so that the"
        " pubends hear no more of 32 than of 2.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "link": f"PB - IB {NARROW:g} KB/s", "network": "IB, four relays, edges below them"},
        criteria=(
            Criterion(name="alerts for one query, most", paper="a single UCA message", high=1.0),
            Criterion(
                name="alerts, most edges over least",
                paper="scalable",
                high=1.5,
                scales=PAPER,
                note="16 times as many edges; bound of ours",
            ),
            Criterion(name="queries and alerts, share of the link", paper="little resources", high=0.01),
            Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0),
        ),
    ),
)

"""Our own goals on the set-ups of 003, with what Penstock does by default beyond the paper (see protocols/pricing.md).

Chance is kept to (`even_chance`), senders are patient, brokers see their own links as they are now, and first salaries
come within a second. On the chain whoever cannot pay waits up to CHAIN_PERIOD seconds for a salary, four times as long
as in the other experiments: the flow that crosses all links gives way further, as the goal asks. That is a choice of
this experiment and not a default, for the flow that gives way would rather not. Connections have small send buffers
(16 packets instead of 40): no link has a TCP beside it here, so nothing need be lost to find out how fast it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.spread.chain import FLOWS
from penstock.lab.papers.spread.setting import NAN, PAPER, buffers_figure, counted, curves, deviation, jain, smoothed
from penstock.lab.papers.spread.tree import BD, RATES_2, SENDERS
from penstock.lab.setups.spread import CHAIN, GROUPS, SCENARIO_2, SMALL_BUFFER, TREE, spread_network
from penstock.pricing.config import PricingConfig
from penstock.scenario.spec import Scenario

OURS = PricingConfig()
CHAIN_PERIOD = 4.0
ALIKE, MANY, TOGETHER, CHAINED = "40 senders", "400 senders", "100 at once", "chain"
SECONDS = {
    ALIKE: {"paper": 400.0, "smoke": 10.0},
    MANY: {"paper": 200.0, "smoke": 8.0},
    TOGETHER: {"paper": 30.0, "smoke": 8.0},
    CHAINED: {"paper": 150.0, "smoke": 8.0},
}
COUNT = {
    ALIKE: {"paper": 20, "smoke": SENDERS["smoke"]},
    MANY: {"paper": 200, "smoke": 20},
    TOGETHER: {"paper": 50, "smoke": 50},
}
START = {"paper": 30.0, "smoke": 4.0}


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 2 three times, and the chain with all flows from the beginning."""
    found = {name: Plan(scenario=_tree(scale, name)) for name in (ALIKE, MANY, TOGETHER)}
    return {**found, CHAINED: Plan(scenario=_chain(scale))}


def _tree(scale: Scale, name: str) -> Scenario:
    word = name.replace(" ", "-")
    return spread_network(
        f"cb-beyond-{word}-{scale}",
        SCENARIO_2,
        GROUPS,
        duration=SECONDS[name][scale],
        senders=COUNT[name][scale],
        pricing=OURS,
        send_buffer=SMALL_BUFFER,
    )


def _chain(scale: Scale) -> Scenario:
    ends = {FLOWS[0]: ("A", ("F",)), **{f"{a}-{b}": (a, (b,)) for a, b in CHAIN}}
    return spread_network(
        f"cb-beyond-chain-{scale}",
        CHAIN,
        ends,
        duration=SECONDS[CHAINED][scale],
        senders=20 if scale == "paper" else 2,
        pricing=PricingConfig(period_max=CHAIN_PERIOD),
        send_buffer=SMALL_BUFFER,
    )


def measure(views: Views) -> Mapping[str, float]:
    """How near each goal is."""
    start = START[views.scale]
    alike, many, together, chain = (counted(views[name]) for name in (ALIKE, MANY, TOGETHER, CHAINED))
    rates = [alike.sender_rates(group, start) for group in GROUPS]
    stop = min(SECONDS[ALIKE][views.scale], SECONDS[MANY][views.scale])  # a longer look finds a larger maximum
    few, most = alike.largest(BD, start, stop), many.largest(BD, start, stop)
    return {
        "chain, all flows together (Mbit/s)": sum(chain.mean_rate(flow, start) for flow in FLOWS),
        "chain, A-F (Mbit/s)": chain.mean_rate(FLOWS[0], start),
        "largest deviation of a sender (%)": max(deviation(one) for one in rates),
        "Jain's index": min(jain(one) for one in rates),
        "40 senders: all (Mbit/s)": sum(alike.mean_rate(group, start) for group in GROUPS),
        "400 senders: all (Mbit/s)": sum(many.mean_rate(group, start) for group in GROUPS),
        "largest buffer with 40 senders": few,
        "largest buffer with 400 senders": most,
        "largest buffer, 400 over 40": most / few if few else NAN,
        "100 at once: largest buffer of any link, ever": max(together.largest(link, 0.0, inf) for link in TREE),
        "400 at once: largest buffer of any link, ever": max(many.largest(link, 0.0, inf) for link in TREE),
    }


def _draw(views: Views) -> Sequence[Figure]:
    chain = counted(views[CHAINED])
    named = {flow: smoothed(chain.rate(flow)) for flow in FLOWS}
    return (
        curves("Rates on the chain.", named, "Mbit/s"),
        buffers_figure("The largest buffers so far, 40 senders.", counted(views[ALIKE]), TREE),
        buffers_figure("The largest buffers so far, 400 senders.", counted(views[MANY]), TREE),
    )


def _goal(name: str, paper: str, *, low: float | None = None, high: float | None = None) -> Criterion:
    return Criterion(name=name, paper=paper, low=low, high=high, kind="goal", judged="every seed", scales=PAPER)


EXPERIMENTS = (
    Experiment(
        name="cb-beyond",
        title="Calmer and more alike than the paper",
        source="003 section 6, scenarios 2 and 4; goals of our own",
        about="The set-ups of the paper with what Penstock adds by default, but for longer periods on the chain."
        " How near each goal comes.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={
            "prices": "salary 10, savings 20, fee 1, soft limit 100, updates every 50 ms, threshold 15",
            "ours": "even chance, patient senders, own links as they are now; 1 dollar to begin with, first salary"
            " within 1 s",
            "chain": f"all six flows from the beginning, 20 senders each, periods up to {CHAIN_PERIOD:g} s",
            "links": "TCP connections, 10 ms, which hold 16 packets each",
            "rates": RATES_2,
            "start": "the first 30 s do not count, but where 'ever' is said; the buffers of 40 and 400"
            " senders are compared over the same time",
        },
        product="it has the product's settings already",
        criteria=(
            _goal("chain, all flows together (Mbit/s)", "9.61", low=9.8),
            _goal("largest deviation of a sender (%)", "3.5", high=2.0),
            _goal("largest buffer, 400 over 40", "grows ever more slowly", high=1.3),
            _goal("100 at once: largest buffer of any link, ever", "-", high=100.0),
        ),
    ),
)

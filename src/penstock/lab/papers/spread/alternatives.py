"""What 003 chose, beside what it says it did not: chance, the price of a link, the fee (4.2.1, 4.2.3, Figure 2).

All on scenario 2, where both groups share B-D. The fee and the least price of a link are tried on an idle chain too,
for the paper's objection to the latter is that it does not scale with the length of ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.papers.spread.setting import PAPER, PARAMETERS, counted, curves, deviation
from penstock.lab.papers.spread.tree import BD, RATES_2, START, adapted, second_plans, tree
from penstock.lab.setups.spread import CHAIN, GROUPS, PAPER_PRICING, SCENARIO_2, spread_network
from penstock.pricing.config import PricingConfig
from penstock.scenario.spec import Scenario

WITH, WITHOUT = "with chance", "without chance"
DRAWN = 60  # seconds of a figure of buffers
IDLE_SECONDS = {"paper": 60.0, "smoke": 8.0}
IDLE_PERIOD = 0.1  # seconds between salaries, at least: so little that no link is full
COSTS = {"base e": "exponential", "base 20": "exponential-20", "linear": "linear", "square": "square"}
FEE, NO_FEE, LINK_FEE = "a fee of 1", "no fee", "at least 1 for each link"
FEES: Mapping[str, PricingConfig] = {
    FEE: PAPER_PRICING,
    NO_FEE: replace(PAPER_PRICING, fee=0.0),
    LINK_FEE: replace(PAPER_PRICING, fee=0.0, link_fee=1.0),
}


def chance_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 2 with chance, and without."""
    without = replace(PAPER_PRICING, randomised=False)
    return {
        WITH: second_plans(scale)["run"],
        WITHOUT: Plan(scenario=tree(scale, SCENARIO_2, "cb-without-chance", pricing=without)),
    }


def measure_chance(views: Views) -> Mapping[str, float]:
    """How much the buffer of the bottleneck swings."""
    start = START[views.scale]
    means = {name: counted(view).means(BD, start) for name, view in views.items()}
    most = {name: counted(view).largest(BD, start) for name, view in views.items()}
    return {
        "standard deviation with chance": float(means[WITH].std()),
        "standard deviation without": float(means[WITHOUT].std()),
        "standard deviation, with over without": float(means[WITH].std()) / max(float(means[WITHOUT].std()), 1e-9),
        "largest with chance": most[WITH],
        "largest without": most[WITHOUT],
        "largest, with over without": most[WITH] / max(most[WITHOUT], 1e-9),
        "mean with chance": float(means[WITH].mean()),
        "mean without": float(means[WITHOUT].mean()),
        "all without (Mbit/s)": _all_rate(views[WITHOUT], start),
    }


def _all_rate(view: View, start: float) -> float:
    return sum(counted(view).mean_rate(group, start) for group in GROUPS)


def _swing(view: View) -> Floats:
    """What waits for B-D, five times a second, in the first minute."""
    found = counted(view).buffer(BD)
    at = (found["time"] * 5).astype(int)
    values = np.zeros(5 * DRAWN)
    within = at < len(values)
    values[at[within]] = found["mean"][within]
    return values


def _draw_chance(views: Views) -> Sequence[Figure]:
    swings = {name: _swing(view) for name, view in views.items()}
    return (_finer("What waits for B-D in the first minute, with chance and without (Figure 2).", swings),)


def _finer(caption: str, named: Mapping[str, Floats]) -> Figure:
    figure = curves(caption, named, "messages")
    for row in figure.spec["data"]["values"]:
        row["second"] /= 5
    return figure


# What a link costs.


def cost_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 2 with each function."""
    found = {}
    for name, cost in COSTS.items():
        pricing = replace(PAPER_PRICING, cost=cost)
        scenario = tree(scale, SCENARIO_2, f"cb-cost-{cost}", pricing=pricing)
        found[name] = second_plans(scale)["run"] if cost == PAPER_PRICING.cost else Plan(scenario=scenario)
    return found


def measure_costs(views: Views) -> Mapping[str, float]:
    """Buffers and rates with each, and whether the paper's choice is best in one of the two."""
    start = START[views.scale]
    values: dict[str, float] = {}
    for name, view in views.items():
        counts = counted(view)
        rates = sum(counts.rate(group)[int(start) :] for group in GROUPS)
        assert isinstance(rates, np.ndarray)
        values |= {
            f"{name}: largest buffer": counts.largest(BD, start),
            f"{name}: standard deviation of the buffer": float(counts.means(BD, start).std()),
            f"{name}: mean buffer": float(counts.means(BD, start).mean()),
            f"{name}: all (Mbit/s)": float(rates.mean()),
            f"{name}: standard deviation of the rate (Mbit/s)": float(rates.std()),
            f"{name}: largest deviation of a sender (%)": max(
                deviation(counts.sender_rates(group, start)) for group in GROUPS
            ),
        }
    ours = "base e"
    ratios = [
        values[f"{ours}: {what}"] / max(min(values[f"{name}: {what}"] for name in COSTS if name != ours), 1e-9)
        for what in ("largest buffer", "standard deviation of the rate (Mbit/s)")
    ]
    values["base e over the best other, in the better of buffer and rate"] = min(ratios)
    return values


def _draw_costs(views: Views) -> Sequence[Figure]:
    return (_finer("What waits for B-D in the first minute.", {name: _swing(view) for name, view in views.items()}),)


# The fee.


def fee_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 2 and the chain with each."""
    found = {FEE: second_plans(scale)["run"]}
    for name, pricing in FEES.items():
        word = name.replace(" ", "-")
        if name != FEE:
            found[name] = Plan(scenario=tree(scale, SCENARIO_2, f"cb-{word}", pricing=pricing))
        found[f"{name}, chain"] = Plan(scenario=_idle_chain(scale, f"cb-{word}-chain", pricing))
    return found


def _idle_chain(scale: Scale, name: str, pricing: PricingConfig) -> Scenario:
    """A few senders on the first link of the chain, and as many on all of it, all with little to say."""
    ends = {"A-F": ("A", ("F",)), "A-B": ("A", ("B",))}
    return spread_network(
        f"{name}-{scale}",
        CHAIN,
        ends,
        duration=IDLE_SECONDS[scale],
        senders=2,
        pricing=replace(adapted(pricing, scale), period_min=IDLE_PERIOD),
    )


def measure_fees(views: Views) -> Mapping[str, float]:
    """The first seconds, and the long way through an idle network."""
    start = START[views.scale]
    values: dict[str, float] = {}
    for name in FEES:
        counts = counted(views[name])
        values |= {
            f"{name}: largest buffer of all time": counts.largest(("A", "B"), 0.0, inf),
            f"{name}: largest buffer of B-D later": counts.largest(BD, start),
            f"{name}: all (Mbit/s)": _all_rate(views[name], start),
            f"{name}: chain, A-F over A-B": _long_over_short(views[f"{name}, chain"], views.scale),
        }
    return values


def _long_over_short(view: View, scale: Scale) -> float:
    long, short = (counted(view).mean_rate(flow, START[scale]) for flow in ("A-F", "A-B"))
    return long / max(short, 1e-9)


def _draw_fees(views: Views) -> Sequence[Figure]:
    return (_finer("What waits for B-D in the first minute.", {name: _swing(views[name]) for name in FEES}),)


ON_SCENARIO_2 = {**PARAMETERS, "rates": RATES_2}
EXPERIMENTS = (
    Experiment(
        name="cb-randomisation-effect",
        title="Does chance calm the buffers?",
        source="003 section 4.2.3, Figure 2",
        about="Whoever can pay sends with probability 1/price only. Without that, all buy when a lower price is told.",
        plans=chance_plans,
        measure=measure_chance,
        draw=_draw_chance,
        parameters=ON_SCENARIO_2,
        criteria=(
            Criterion(name="standard deviation, with over without", paper="calm", high=0.6, scales=PAPER),
            Criterion(name="largest, with over without", paper="lower", high=0.999, scales=PAPER),
        ),
    ),
    Experiment(
        name="cb-cost-function-alternatives",
        title="Other prices of links",
        source="003 section 4.2.1",
        about="The paper's choice is base e; it calls a straight line and a square unstable, and base 20 late.",
        plans=cost_plans,
        measure=measure_costs,
        draw=_draw_costs,
        parameters=ON_SCENARIO_2,
        criteria=(
            Criterion(
                name="base e over the best other, in the better of buffer and rate",
                paper="others are unstable",
                high=1.0,
                scales=PAPER,
            ),
        ),
    ),
    Experiment(
        name="cb-fee-alternatives",
        title="Why a fee for each message?",
        source="003 section 4.2.3",
        about="Without a fee an idle network is free, and anybody sends without end until the next prices. A least"
        " price for each link does away with that, and makes long ways dear in an idle network.",
        plans=fee_plans,
        measure=measure_fees,
        draw=_draw_fees,
        parameters={
            **ON_SCENARIO_2,
            "chain": "2 senders from A to F and 2 from A to B, with salaries at most every 0.1 s: no link is full",
        },
        criteria=tuple(
            Criterion(name=f"{name}: {what}", paper=paper, kind="goal", scales=PAPER, note="reported")
            for name, paper in ((FEE, "-"), (NO_FEE, "sends without end"), (LINK_FEE, "does not scale"))
            for what in ("largest buffer of all time", "all (Mbit/s)", "chain, A-F over A-B")
        ),
    ),
)

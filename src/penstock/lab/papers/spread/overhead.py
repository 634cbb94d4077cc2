"""003 sections 1 and 7: what control costs. It grows with links, and not with groups.

Control is everything in the lanes of control between brokers: prices, and also Hellos and credit, which the paper does
not count. Shares are of what brokers say to each other, without headers of TCP. Beside scenario 2 with two groups there
is one with the same senders in twenty groups; CAIRN's first scenario has the interval of the paper's live runs, whose
share the paper tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.pages.style import named_bars
from penstock.lab.papers.spread.cairn import EXPERIMENTS as CAIRN_EXPERIMENTS
from penstock.lab.papers.spread.setting import PAPER, PARAMETERS, counted
from penstock.lab.papers.spread.tree import adapted
from penstock.lab.setups.spread import GROUPS, PAPER_PRICING, SCENARIO_2, spread_network

FEW, MANY, LIVE = "2 groups", "20 groups", "CAIRN"
SECONDS = {"paper": 100.0, "smoke": 8.0}
SENDERS = {"paper": 40, "smoke": 20}  # of all groups together


def plans(scale: Scale) -> Mapping[str, Plan]:
    """The same senders in few groups and in many, and CAIRN."""
    ends = list(GROUPS.values())
    found = {}
    for name, count in ((FEW, 2), (MANY, 20)):
        scenario = spread_network(
            f"cb-control-{count}-{scale}",
            SCENARIO_2,
            {f"G{number}": ends[number % 2] for number in range(count)},
            duration=SECONDS[scale],
            senders=SENDERS[scale] // count,
            pricing=adapted(PAPER_PRICING, scale),
        )
        found[name] = Plan(scenario=scenario)
    first = next(one for one in CAIRN_EXPERIMENTS if one.name == "cb-cairn-s1")
    return {**found, LIVE: first.plans(scale)["run"]}


def measure(views: Views) -> Mapping[str, float]:
    """Shares, and bytes in each second."""
    rates = {name: counted(views[name]).on_links("control bytes") / counted(views[name]).seconds for name in views}
    return {
        **{f"{name}: control (%)": counted(view).control_share() for name, view in views.items()},
        **{f"{name}: control (bytes/s)": rate for name, rate in rates.items()},
        "20 groups over 2, bytes": rates[MANY] / max(rates[FEW], 1.0),
    }


def _draw(views: Views) -> Sequence[Figure]:
    rows = [{"run": name, "share": counted(view).control_share()} for name, view in views.items()]
    spec = named_bars(rows, x="run", y="share", y_title="control, % of what links carry")
    return (Figure(caption="What control costs.", spec=spec),)


EXPERIMENTS = (
    Experiment(
        name="cb-control-overhead",
        title="What control costs",
        source="003 sections 1 and 7",
        about="Prices of links travel to all brokers, whatever the groups. Their share of what links carry.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, "CAIRN": "scenario 1 of section 7, updates every 100 ms"},
        criteria=(
            Criterion(name="CAIRN: control (%)", paper="below 0.16 of data", high=0.5, scales=PAPER),
            Criterion(name="20 groups over 2, bytes", paper="independent of groups", low=0.9, high=1.1, scales=PAPER),
            Criterion(
                name="2 groups: control (%)",
                paper="-",
                kind="goal",
                scales=PAPER,
                note="reported; 50 ms instead of 100",
            ),
        ),
    ),
)

"""One table of what fair rates of links promise, and how near they come.

Each row is a network that the seed draws (`setups.network_rates`), run with the control of rates and without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.pages.style import named_bars
from penstock.lab.papers.congestion.setting import in_namespaces
from penstock.lab.papers.network_rates.outcome import NAN, RatesRun
from penstock.lab.papers.network_rates.rows import MEASURES, YIELDS_WITHIN
from penstock.lab.setups.network_rates import rates_network
from penstock.lab.setups.network_rates.live import ROWS as LIVE_ROWS
from penstock.lab.setups.network_rates.live import live_network
from penstock.lab.setups.network_rates.rows import ROWS
from penstock.lab.setups.network_rates.town import town, town_is_here

FREE, CONTROLLED = "without control", "with rates"
SECONDS: Mapping[Scale, float] = {"paper": 30.0, "smoke": 5.0}
LONGER = {"ten by ten": 60.0, "beside TCP": 60.0}  # of these rows, at paper scale
SHORTER = {"large": 20.0, "busy": 20.0, "idle": 10.0}
SMOKE = ("ten by ten", "nested", "series", "fast and slow", "flaps", "on and off")
PAPER: tuple[Scale, ...] = ("paper",)
LIVE_SECONDS = 15.0


def drawn(scale: Scale, seed: int) -> Mapping[str, Plan]:
    """Both runs of every row, on the networks of this seed."""
    rows = ROWS if scale == "paper" else SMOKE
    found = {}
    for row in rows:
        seconds = {**LONGER, **SHORTER}.get(row, SECONDS[scale]) if scale == "paper" else SECONDS[scale]
        for name in (FREE, CONTROLLED):
            scenario = rates_network(row, seed, seconds=seconds, controlled=name == CONTROLLED)
            found[f"{row}, {name}"] = Plan(scenario=scenario)
    if scale == "paper" and town_is_here():
        found |= {f"town, {name}": Plan(scenario=town(controlled=name == CONTROLLED)) for name in (FREE, CONTROLLED)}
    return found


def in_real_networks() -> Mapping[str, Plan]:
    """Four rows between network namespaces, with a bottleneck of the kernel."""
    return in_namespaces(
        {
            f"{row}, {name}": Plan(scenario=live_network(row, seconds=LIVE_SECONDS, controlled=name == CONTROLLED))
            for row in LIVE_ROWS
            for name in (FREE, CONTROLLED)
        },
        brokers_traced=True,
    )


def measure(views: Views) -> Mapping[str, float]:
    """Every row. What a scale leaves out is not a number."""
    found: dict[str, float] = {criterion.name: NAN for criterion in CRITERIA}
    for row, measured in MEASURES.items():
        if f"{row}, {FREE}" in views:
            free, controlled = (RatesRun(views[f"{row}, {name}"]) for name in (FREE, CONTROLLED))
            found |= {f"{row}: {what}": value for what, value in measured(free, controlled).items()}
    return found


def _draw(views: Views) -> Sequence[Figure]:
    found = measure(views)
    figures = []
    for word, caption in (("received", "Received, over the same run without control."), ("lost", "Lost, in per cent.")):
        rows = [{"row": name, "value": value} for name, value in found.items() if word in name and value == value]
        figures.append(Figure(caption=caption, spec=named_bars(rows, x="row", y="value", y_title=word)))
    return figures


def _goal(name: str, today: str, *, low: float | None = None, high: float | None = None, note: str = "") -> Criterion:
    judged: Literal["mean", "every seed"] = "mean" if low is None and high is None else "every seed"
    live = (low, high) if name.partition(":")[0] in LIVE_ROWS else None  # the same bounds on real sockets
    return Criterion(
        name=name, paper=today, low=low, high=high, kind="goal", scales=PAPER, note=note, judged=judged, live=live
    )


def _reported(name: str) -> Criterion:
    return _goal(name, "-", note="reported")


CRITERIA = (
    _goal("ten by ten: lost (%)", "26 to 40", high=1.0),
    _goal("ten by ten: received", "1.04", low=0.97),
    _goal("ten by ten: Jain index of flows", "0.91", low=0.98),
    _goal("overlapping: received behind the bottleneck", "0.78", low=0.97),
    _goal("overlapping: lost (%)", "1.1", high=1.0),
    _goal("overlapping: received before it", "0.78 in all", low=0.99),
    _goal("nested: received", "0.68", low=0.97),
    _goal("nested: lost (%)", "1.2", high=1.0),
    _goal("large: received behind the bottleneck", "0.35", low=0.97),
    _goal("large: received before it", "0.16 in all", low=0.99),
    _goal("large: median delay from publish()", "4.1", high=1.0, note="over that without control"),
    _reported("large: lost (%)"),
    _goal("series: use of 1 Mbit/s", "1.0", low=0.95),
    _goal("series: use of 0.5 Mbit/s", "0.91", low=0.95),
    _goal("series: use of 0.25 Mbit/s", "0.59", low=0.95),
    _reported("series: lost (%)"),
    _goal("fast and slow: received by the fast one", "that of the slow one", low=0.999, note="unchanged"),
    _reported("fast and slow: lost (%)"),
    _goal("round trips: larger share over smaller", "15", high=1.5),
    _reported("round trips: lost (%)"),
    _reported("round trips: received"),
    _goal("flaps: lost (%)", "4", high=1.0),
    _goal("flaps: lost in the second after a drop, worst (%)", "28 to 48", high=20.0),
    _reported("flaps: lost in the second after a drop, mean (%)"),
    _goal("first seconds: lost (%)", "22", high=0.0),
    _goal("fifty at once: lost (%)", "58 to 69", high=1.0),
    _reported("sparse and greedy: received"),
    _reported("sparse and greedy: lost (%)"),
    _reported("sparse and greedy: of the sparse, came"),
    _goal("on and off: lost (%)", "-", high=1.0),
    _goal("on and off: received", "-", low=0.93),
    _goal("town: received at the depot", "0.62 to 0.87", low=0.97),
    _goal("town: lost at the depot (%)", "2 to 5", high=0.5),
    _goal("beside TCP: share of content", "0.41 to 0.5", low=0.4, high=0.55),
    _goal("beside TCP: yields within (s)", "1 to 3.4", high=3.0),
    _reported("beside TCP: share of TCP"),
    _goal("cheating: share of the cheat", "-", high=1.3),
    _goal("cheating: share of the honest", "-", low=0.9),
    _reported("cheating: lost of the honest (%)"),
    _goal("busy: control (% of data)", "-", high=2.0),
    _goal("idle: control (% of data)", "-", high=0.0),
)

EXPERIMENTS = (
    Experiment(
        name="network-rates",
        title="Fair rates of links",
        source="beyond 000; networks of our own",
        about="Brokers tell the homes of publishers what each may send over a busy link, and what has no place there is"
        " withheld from those behind it alone. What users get, judged by what was published and what came.",
        plans=lambda scale: drawn(scale, 1),
        product="it has the product's settings already",
        drawn=drawn,
        live=in_real_networks,
        measure=measure,
        draw=_draw,
        parameters={
            "control": "the product's defaults; without control: the same brokers with rates switched off",
            "network": "1 to 4 brokers with fast links on each side of a bottleneck; of 5 to 40 ms, datagram, shaped or"
            " reliable, and 50 to 200 packets may wait for it",
            "messages": "150 to 1000 bytes on the wire, one size in a run, no headers; 1.4 to 2.5 times what the"
            " bottleneck carries",
            "received": "over the same run without control",
            "lost": "of what was not withheld",
            "yields": f"two seconds with at most its later share and {YIELDS_WITHIN:.0%} of the link",
            "bound": "what we aim for; the paper's column is end-to-end control, as it was measured before",
        },
        criteria=CRITERIA,
    ),
)

"""What we aim for beyond 000 and 002, on the runs of their own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.pages import style
from penstock.lab.papers.congestion import large_network, load, sharing
from penstock.lab.papers.congestion.setting import PAPER, longest

PARTS = {
    "load": (load.load_plans, load.measure_load),
    "bandwidth": (load.bandwidth_plans, load.measure_bandwidth),
    "fairness": (sharing.fairness_plans, sharing.measure_fairness),
    "friendliness": (sharing.friendliness_plans, sharing.measure_friendliness),
    "large": (large_network.plans, large_network.measure_large),
}


def _plans(scale: Scale) -> Mapping[str, Plan]:
    return {f"{part}: {name}": plan for part, (plans, _) in PARTS.items() for name, plan in plans(scale).items()}


def _of(views: Views, part: str) -> Mapping[str, float]:
    begin = f"{part}: "
    runs = {name.removeprefix(begin): view for name, view in views.items() if name.startswith(begin)}
    return PARTS[part][1](Views(runs, seed=views.seed, scale=views.scale))


def _measure(views: Views) -> Mapping[str, float]:
    held, link = _of(views, "load"), _of(views, "bandwidth")
    fair, shared = _of(views, "fairness"), _of(views, "friendliness")
    return {
        "losses in the hold phase, with over without control": held[
            "losses in the hold phase, with over without control"
        ],
        "link use in the hold phase": held["link use in the hold phase"],
        "adaptation, slowest of both ways (s)": longest(
            [
                link["after a rise: time until reception is steady (s)"],
                link["after a drop: time until sending is steady (s)"],
            ]
        ),
        "Jain index of three flows, lower of both phases": min(
            fair["phase 2: Jain index"], fair["phase 3: Jain index"]
        ),
        "TCP less content (share of the link)": shared["TCP less content"],
        "received in the large network, with over without": _of(views, "large")["received, with over without control"],
    }


def _draw(views: Views) -> Sequence[Figure]:
    found = _measure(views)
    rows = [{"goal": name, "value": value} for name, value in found.items()]
    spec = style.named_bars(rows, x="goal", y="value", y_title="measured", log=True)
    return (Figure(caption="What was measured for each goal.", spec=spec),)


EXPERIMENTS = (
    Experiment(
        name="cacc-beyond",
        title="Better than the papers",
        source="beyond 000 section IV, on its own figures",
        about="Fewer losses, a fuller link, quicker adaptation and evener shares than in 000, with one setting.",
        plans=_plans,
        measure=_measure,
        draw=_draw,
        parameters={"runs": "those of Figures 7 to 11"},
        criteria=(
            Criterion(
                name="losses in the hold phase, with over without control",
                paper="a twentieth",
                judged="every seed",
                high=0.01,
                kind="goal",
                scales=PAPER,
            ),
            Criterion(name="link use in the hold phase", paper="-", low=0.97, kind="goal", scales=PAPER),
            Criterion(name="adaptation, slowest of both ways (s)", paper="2", high=1.0, kind="goal", scales=PAPER),
            Criterion(
                name="Jain index of three flows, lower of both phases",
                paper="-",
                low=0.995,
                kind="goal",
                scales=PAPER,
            ),
            Criterion(
                name="TCP less content (share of the link)",
                paper="0.05",
                low=-0.03,
                high=0.03,
                kind="goal",
                scales=PAPER,
                note="the mean over all seeds: in 100 s of one run either may be ahead by 0.07",
            ),
            Criterion(
                name="received in the large network, with over without",
                paper="0.88",
                low=0.97,
                kind="goal",
                scales=PAPER,
            ),
        ),
    ),
)

"""How publications are sent: overload notifications or delayed pushes, queues by score, duplicates (004 3.3, 4.2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.papers.retrieval.setting import (
    PAPER,
    PARAMETERS,
    VIOLATIONS,
    NewsSweep,
    by_name,
    curves,
    each,
    falls,
    kept,
    no_plans,
    of,
    violations,
)

PUSH = {"dissemination": "delayed push"}
GRID = {"paper": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0), "smoke": (1.0, 4.0, 16.0)}
BUFFERS = {"paper": (10, 100, 1_000, 10_000, 50_000), "smoke": (2, 10, 1_000)}
SERVICE = {"paper": 5.6, "smoke": 0.18}  # messages a tick: 60 % of what a router is offered on average
ONE_QUEUE = ", one queue"
KINDS = ("none", "in network", "proactive", "both")


def _both(scale: str) -> dict[str, dict[str, Any]]:
    grid = GRID[scale]
    plain = {f"EON {value:g}": {"selectivity": value} for value in grid}
    return plain | {f"PDP {value:g}": {"selectivity": value, **PUSH} for value in grid}


def _queues(scale: str) -> dict[str, dict[str, Any]]:
    return {
        f"{name} {buffer}": {"service": SERVICE[scale], "queue": queue, "buffer": buffer}
        for name, queue in (("CBF", "score"), ("FIFO", "fifo"))
        for buffer in BUFFERS[scale]
    } | {
        "unlimited": {},
        f"CBF {max(BUFFERS[scale])}{ONE_QUEUE}": {"service": SERVICE[scale], "two_queues": False},
        f"FIFO {max(BUFFERS[scale])}{ONE_QUEUE}": {"service": SERVICE[scale], "two_queues": False, "queue": "fifo"},
    }


def _ends(prefixes: Sequence[str], values: Sequence[str]) -> list[str]:
    return [f"{prefix} {value}" for prefix in prefixes for value in values]


SWEEP = NewsSweep(_both("paper"), _both("smoke"), ends=_ends(("EON", "PDP"), ("1", "10", "100")), baseline=False)
QUEUES = NewsSweep(
    _queues("paper"),
    _queues("smoke"),
    ends=[*_ends(("CBF", "FIFO"), ("10", "50000")), "unlimited"],
    baseline=False,
)
DUPLICATES = NewsSweep(
    {kind: {"duplicates": kind} for kind in KINDS},
    {kind: {"duplicates": kind} for kind in KINDS},
    ends=("none", "both"),
    baseline=False,
)


def _methods(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {VIOLATIONS: violations(views)}
    starved, sent, control = [], [], []
    for value in GRID[views.scale]:
        eon, pdp = f"EON {value:g}", f"PDP {value:g}"
        if eon not in views.numbers:
            continue
        starved.append(abs(of(views, pdp, "starvation") - of(views, eon, "starvation")))
        sent.append(100.0 * (of(views, pdp, "publication messages") / of(views, eon, "publication messages") - 1.0))
        control.append(of(views, pdp, "control messages") / of(views, eon, "control messages"))
        found[f"starvation at {value:g}, EON (%)"] = of(views, eon, "starvation")
        found[f"starvation at {value:g}, PDP (%)"] = of(views, pdp, "starvation")
        found[f"publication messages at {value:g}, PDP over EON (%)"] = sent[-1]
    return found | {
        "largest difference in starvation (points)": max(starved),
        "largest difference in publication messages (%)": max(map(abs, sent)),
        "largest control of PDP over EON": max(control),
    }


def _draw_methods(views: Views) -> Sequence[Figure]:
    def series(number: str) -> dict[str, dict[str, float]]:
        return {
            kind: {
                f"{value:g}": of(views, f"{kind} {value:g}", number)
                for value in GRID[views.scale]
                if f"{kind} {value:g}" in views.numbers
            }
            for kind in ("EON", "PDP")
        }

    titles = {
        "starvation": "starved (%)",
        "publication messages": "publication messages",
        "control messages": "control messages",
    }
    return tuple(
        curves(
            f"{title.capitalize()} (Figure 17{letter}).",
            views,
            series(number),
            x_title="mean selectivity",
            y_title=title,
        )
        for letter, (number, title) in zip("abc", titles.items(), strict=True)
    )


def _queued(views: Views) -> Mapping[str, float]:
    buffers = BUFFERS[views.scale]
    starved = {
        kind: [of(views, f"{kind} {buffer}", "starvation") for buffer in buffers if f"{kind} {buffer}" in views.numbers]
        for kind in ("CBF", "FIFO")
    }
    fifo = starved["FIFO"]
    found = {
        f"starvation at {buffer}, {kind} (%)": of(views, f"{kind} {buffer}", "starvation")
        for kind in starved
        for buffer in buffers
        if f"{kind} {buffer}" in views.numbers
    }
    found |= {
        f"starvation at {name} (%)": of(views, name, "starvation") for name in views.numbers if name.endswith(ONE_QUEUE)
    }
    found[VIOLATIONS] = violations(views)
    found["CBF over FIFO at the largest buffer"] = starved["CBF"][-1] / fifo[-1] if fifo[-1] else float("nan")
    found["FIFO: spread over buffers (%)"] = 100.0 * (max(fifo) - min(fifo)) / max(fifo) if max(fifo) else float("nan")
    if len(fifo) == len(buffers):
        found["CBF never starves more with more buffer"] = falls(starved["CBF"], slack=0.1)
    return found


def _draw_queued(views: Views) -> Sequence[Figure]:
    series = {
        kind: {
            f"{buffer}": of(views, f"{kind} {buffer}", "starvation")
            for buffer in BUFFERS[views.scale]
            if f"{kind} {buffer}" in views.numbers
        }
        for kind in ("CBF", "FIFO")
    }
    title = "buffer (publications)"
    return (curves("Starvation (Figure 18a).", views, series, x_title=title, y_title="starved (%)"),)


def _duplicated(views: Views) -> Mapping[str, float]:
    found = {VIOLATIONS: violations(views)}
    sent = each(views, KINDS, lambda kind: of(views, kind, "publication messages"))
    again = each(views, KINDS, lambda kind: of(views, kind, "answers in vain"))
    found |= {f"publication messages, {kind}": value for kind, value in sent.items()}
    found |= {f"answers in vain, {kind}": value for kind, value in again.items()}
    if len(sent) == len(KINDS):
        found["answers twice on a branch with PDD"] = of(views, "proactive", "answered twice on a branch")
        found["answers twice on a branch without"] = of(views, "none", "answered twice on a branch")
        found["both at most as many messages as either"] = float(
            sent["both"] <= 1.005 * min(sent["in network"], sent["proactive"])
        )
    return found


EXPERIMENTS = (
    Experiment(
        name="ecbn-eon-vs-pdp",
        title="Overload notifications beside delayed pushes",
        source="004 section 4.2.1, Figure 17",
        about="Either a satisfied interest is called back everywhere, or publications wait to be asked for until the"
        " nearest deadline.",
        plans=no_plans,
        tasks=SWEEP.tasks,
        measure=_methods,
        draw=_draw_methods,
        parameters=PARAMETERS | {"delayed push": "one time unit before the nearest deadline (beta = 1)"},
        criteria=(
            Criterion(name="largest difference in starvation (points)", paper="less than 2 %", high=2.0, scales=PAPER),
            Criterion(name="largest difference in publication messages (%)", paper="similar", high=15.0, scales=PAPER),
            Criterion(name="largest control of PDP over EON", paper="slightly less", high=1.0, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-cbf-vs-fifo",
        title="Queues by score beside first come, first served",
        source="004 section 4.2.1, Figure 18a",
        about="Routers have time for six in ten of the publications they are offered on average, to match them and to"
        " send them. Which of them they take up first decides who starves.",
        plans=no_plans,
        tasks=QUEUES.tasks,
        measure=_queued,
        draw=_draw_queued,
        parameters=PARAMETERS
        | {"service": f"{SERVICE['paper']:g} publication messages a hop time in each queue of a router"},
        criteria=(
            Criterion(name="CBF over FIFO at the largest buffer", paper="better", high=0.7, scales=PAPER),
            Criterion(name="FIFO: spread over buffers (%)", paper="insensitive", high=20.0, scales=PAPER),
            Criterion(name="CBF never starves more with more buffer", paper="improving", low=1.0, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-idd-pdd",
        title="Answers that come twice",
        source="004 section 3.3.6, Figure 16b",
        about="Several routers answer an interest with the same publication. Routers drop what they have themselves"
        " (IDD), and interests carry what was sent already (PDD).",
        plans=no_plans,
        tasks=DUPLICATES.tasks,
        measure=_duplicated,
        draw=lambda views: (
            by_name(
                "Publication messages by duplicate dropping.",
                each(views, KINDS, lambda kind: of(views, kind, "publication messages")),
                "publication messages",
            ),
        ),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="answers twice on a branch with PDD", paper="eliminated", low=0, high=0),
            Criterion(name="both at most as many messages as either", paper="yes", low=1.0, scales=PAPER),
            kept(),
        ),
    ),
)

"""Claims of 000 and 002 without a figure of numbers: what it is good for that control looks at content.

A publisher reaches one subscriber over a congested link and another over a free one: only what the first wants is
slowed down (000 section II-B). Of two subscribers of which one wants part of what the other wants, only the latter
speaks (002 Figure 5.3). And the publisher's table grows far more slowly than the number of subscribers (000 IV-E).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.congestion.load import CONTROLLED, FREE
from penstock.lab.papers.congestion.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    curves,
    delay_criteria,
    each_second,
    mean_delays,
    measured,
)
from penstock.lab.setups.congestion import covered, fork, nested
from penstock.lab.setups.dumbbell import PUBLISHING_STARTS

FORK_RATE = 1200.0
FORK_SECONDS = {"paper": 60.0, "smoke": 8.0}
COVERED_SECONDS = {"paper": 60.0, "smoke": 15.0}
SUBSCRIBERS: dict[Scale, tuple[int, ...]] = {"paper": (100, 400, 1600), "smoke": (25, 100)}
NESTED_SECONDS = {"paper": 20.0, "smoke": 6.0}


# A slow way and a fast one.


def _fork_plans(scale: Scale) -> Mapping[str, Plan]:
    return {
        name: Plan(
            scenario=fork(
                duration=FORK_SECONDS[scale],
                rate=FORK_RATE,
                controlled=name == CONTROLLED,
                name=f"content-awareness-{scale}",
            )
        )
        for name in (FREE, CONTROLLED)
    }


def _left(view: View, slow: bool) -> Floats:
    """Messages for the fast side that left in each second, those that the slow side wants too or the others."""
    published = view.tables.published.where("attributes like '%\"fast\":true%'")
    flag = "true" if slow else "false"
    rows = (
        published.where(f"attributes like '%\"slow\":{flag}%'")
        .selectExpr("cast(time as int) as second")
        .groupBy("second")
        .count()
        .toArrow()
    )
    found = np.zeros(int(view.scenario.duration))
    for second, count in zip(rows["second"].to_pylist(), rows["count"].to_pylist(), strict=True):
        if second < len(found):
            found[second] = count
    return found


def _measure_fork(views: Views) -> Mapping[str, float]:
    alone = {name: float(_left(view, slow=False)[3:].sum()) for name, view in views.items()}
    shared = {name: float(_left(view, slow=True)[3:].sum()) for name, view in views.items()}
    return {
        "what only the free side wants, with over without control": alone[CONTROLLED] / alone[FREE],
        "the same with a single rate for all, reckoned": shared[CONTROLLED] / shared[FREE],
        **mean_delays(views),
    }


def _draw_fork(views: Views) -> Sequence[Figure]:
    return [
        curves(
            f"{name.capitalize()}.",
            {
                "also wanted by the slow side": _left(view, slow=True),
                "only by the fast side": _left(view, slow=False),
            },
            "messages per second",
        )
        for name, view in views.items()
    ]


# A subscriber that another covers.


def _covered_plans(scale: Scale) -> Mapping[str, Plan]:
    return {
        name: Plan(
            scenario=covered(
                duration=COVERED_SECONDS[scale], controlled=name == CONTROLLED, name=f"covered-receiver-{scale}"
            )
        )
        for name in (FREE, CONTROLLED)
    }


def _measure_covered(views: Views) -> Mapping[str, float]:
    found = measured(views[CONTROLLED])
    limiting = set().union(*found.limiting().values()) if found.limiting() else set()
    flows = found.counted("flows", "p")[1:]
    second = int(PUBLISHING_STARTS) + 1
    return {
        "limiting receivers other than the covering one": float(len(limiting - {"b"})),
        "the covering one is a limiting receiver": float("b" in limiting),
        "largest flow table": float(flows.max()),
        "feedback of the covered one after its first second": float(
            found.counted("feedback sent", "c", "p")[second:].sum()
        ),
        "feedback of the covering one after that": float(found.counted("feedback sent", "b", "p")[second:].sum()),
    }


def _draw_covered(views: Views) -> Sequence[Figure]:
    received = measured(views[CONTROLLED]).received
    names = {"the covering subscriber": each_second(received["b"]), "the covered one": each_second(received["c"])}
    return (curves("What the two received.", names, "messages per second"),)


# Many subscribers.


def _nested_plans(scale: Scale) -> Mapping[str, Plan]:
    return {
        str(count): Plan(scenario=nested(count, duration=NESTED_SECONDS[scale], name=f"nested-{count}-{scale}"))
        for count in SUBSCRIBERS[scale]
    }


def _entries(views: Views) -> dict[int, float]:
    """The mean size of the flow table in the second half of each run."""
    found = {}
    for name, view in views.items():
        flows = measured(view).counted("flows", "p")
        found[int(name)] = float(flows[len(flows) // 2 :].mean())
    return found


def _measure_nested(views: Views) -> Mapping[str, float]:
    entries = _entries(views)
    sizes = np.array(list(entries.values()))
    fits = len(sizes) > 1 and bool((sizes > 0.0).all())
    slope = float(np.polyfit(np.log(list(entries)), np.log(sizes), 1)[0]) if fits else NAN
    most = max(entries)
    return {"exponent of growth": slope, "entries per subscriber, most subscribers": entries[most] / most}


def _draw_nested(views: Views) -> Sequence[Figure]:
    rows = [{"subscribers": str(count), "entries": size} for count, size in _entries(views).items()]
    spec = style.named_bars(rows, x="subscribers", y="entries", y_title="entries in the flow table")
    return (Figure(caption="The publisher's table by the number of subscribers.", spec=spec),)


EXPERIMENTS = (
    Experiment(
        name="cacc-content-awareness",
        title="Only what is congested is slowed down",
        source="000 section II-B, Figure 1 (002 section 5.1.3, Figure 5.2)",
        about="One subscriber is behind a slow link, one behind a fast one. What only the second wants leaves as if"
        " there were no congestion; with a single rate for the whole publisher it would suffer with the rest. The"
        " curves are the messages for the fast side that left.",
        plans=_fork_plans,
        measure=_measure_fork,
        draw=_draw_fork,
        parameters={
            **PARAMETERS,
            "network": "a hub, 500 kbit/s to one side and 10 Mbit/s to the other",
            "publisher": f"{FORK_RATE:g} messages/s; half match each subscriber, independently",
            "single rate": "one for the whole publisher would have to be the slow flow's share of its rate",
        },
        criteria=(
            Criterion(
                name="what only the free side wants, with over without control",
                paper="not affected",
                low=0.98,
                high=1.02,
            ),
            Criterion(
                name="the same with a single rate for all, reckoned",
                paper="reduced",
                high=0.9,
                kind="illustration",
                note="the share of the slow flow that left, which a single rate would impose on all",
            ),
            *delay_criteria(FREE, CONTROLLED),
        ),
    ),
    Experiment(
        name="cacc-covered-receiver",
        title="Who is covered need not speak",
        source="002 section 5.1.3, Figure 5.3",
        about="One subscriber wants 100 messages/s, another ten of them, over a link that takes 50. The first limits"
        " the flow, and that is enough for both.",
        plans=_covered_plans,
        measure=_measure_covered,
        draw=_draw_covered,
        parameters={**PARAMETERS, "network": "a hub, a link for 50 messages/s, and a side for each subscriber"},
        product="it counts limiting receivers, flow tables and feedback, and the product's links have none of these",
        criteria=(
            Criterion(name="limiting receivers other than the covering one", paper="none", high=0.0),
            Criterion(name="the covering one is a limiting receiver", paper="yes", low=1.0),
            Criterion(name="largest flow table", judged="every seed", paper="1", high=1.0),
            Criterion(name="feedback of the covered one after its first second", paper="none is necessary", high=0.0),
            Criterion(name="feedback of the covering one after that", paper="-", kind="goal", note="reported"),
        ),
    ),
    Experiment(
        name="cacc-state-sublinear",
        title="The table grows more slowly than the number of subscribers",
        source="000 section IV-E",
        about="Subscribers behind one slow link, each with a filter of its own, of one to three levels. Only flows with"
        " a high rate are limited, and one entry is enough for all that it covers.",
        plans=_nested_plans,
        measure=_measure_nested,
        draw=_draw_nested,
        parameters={
            **PARAMETERS,
            "link": "500 kbit/s",
            "publisher": "so many messages/s that 400 are wanted by somebody, whatever the number of subscribers",
            "filters": "one to three levels of 200, 5 and 4 values, drawn 1 : 3 : 6, and no two alike",
        },
        criteria=(
            Criterion(name="exponent of growth", paper="sub-linear", high=0.7, scales=PAPER),
            Criterion(name="entries per subscriber, most subscribers", paper="low", kind="goal", note="reported"),
        ),
    ),
)

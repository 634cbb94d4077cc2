"""Beyond the paper: heartbeats for those who hear too little (002 sections 4.3 and 6.2), and the product's own scheme.

A subscriber that wants one message in a hundred gets none of the next ten, nine times out of ten, and so never learns
what it lost. A heartbeat tells it: a record without a message, for whoever asked for it.

`recovery-beyond` runs the product's own scheme (decision 0019) on the paper's network. What was tried before it, a
second copy of every message, reached the goals on recovery and time where losses are independent, and is no proposal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.papers.any_content.fates import MessageFates, fates
from penstock.lab.papers.recovery.effect import PAPER, median
from penstock.lab.papers.recovery.setting import ANSWERING, PARAMETERS, RARE_12, RECORD, recovering, sizes
from penstock.lab.papers.recovery.speed import cumulative
from penstock.lab.setups.product import with_product_defaults

HEARTBEAT_INTERVAL = 0.5


# Heartbeats.


def _heartbeat_plans(scale: Scale) -> Mapping[str, Plan]:
    return {
        "without": recovering(12, scale, wanted=RARE_12),
        "with": recovering(12, scale, wanted=RARE_12, heartbeat_interval=HEARTBEAT_INTERVAL),
    }


def _measure_heartbeats(views: Views) -> Mapping[str, float]:
    noticed = {name: _noticed(view) for name, view in views.items()}
    back = {name: _came_back(view) for name, view in views.items()}
    in_both = sorted(back["with"].keys() & back["without"].keys())
    alone = {name: _median(found.values()) for name, found in back.items()}
    both = {name: _median(found[message] for message in in_both) for name, found in back.items()}
    ever = {name: median(recovery_times(view, _rare(view))) for name, view in views.items()}
    return {
        "losses noticed, over those without heartbeats": noticed["with"] / noticed["without"],
        "median time to recover of what came back in both, without heartbeats over with": both["without"]
        / both["with"],
        "the same, what came back in each of them": alone["without"] / alone["with"],
        "the same, what never came back until the end of the run": ever["without"] / ever["with"],
        "losses noticed": noticed["with"],
        "losses noticed without heartbeats": noticed["without"],
        "messages that came back in both": float(len(in_both)),
        "median time to recover of what came back (s)": alone["with"],
    }


def _came_back(view: View) -> dict[tuple[str, str, int], float]:
    """From publication to repair, of what these clients lost and got back: by client, publisher and count."""
    back, rare = view.recoveries, set(_rare(view))
    rows = zip(*(back[name].tolist() for name in ("client", "publisher", "sequence", "delay")), strict=True)
    return {(client, publisher, count): delay for client, publisher, count, delay in rows if client in rare}


def _median(times: Iterable[float]) -> float:
    return median(np.array(list(times)))


def _rare(view: View) -> list[str]:
    """The subscribers that want two classes of messages out of two hundred."""
    wheres = {client.name: client.subscribe[0].where for client in view.scenario.client if client.subscribe}
    return [name for name, where in wheres.items() if where.count(" OR ") == 1]


def _noticed(view: View) -> float:
    """Which share of their losses these clients noticed by themselves."""
    chosen = np.isin(view.losses["client"], _rare(view))
    return float((~np.isnan(view.losses["detected_at"][chosen])).mean())


def recovery_times(view: View, clients: Sequence[str] | None = None) -> Floats:
    """From the publication of each lost message to its repair; until the end of the run if there was none."""
    back, lost = view.recoveries, view.losses
    gone = ~lost["recovered"]
    if clients is not None:
        gone = gone & np.isin(lost["client"], clients)
        delays = back["delay"][np.isin(back["client"], clients)]
    else:
        delays = back["delay"]
    end = view.scenario.duration + view.scenario.drain
    times: Floats = np.concatenate([delays, end - lost["published_at"][gone]])
    return times


def _draw_heartbeats(views: Views) -> Sequence[Figure]:
    curves = {f"{name} heartbeats": recovery_times(view, _rare(view)) for name, view in views.items()}
    caption = (
        "Time until a lost message came back to subscribers with match probability 0.01 (the end of the run if never)."
    )
    return (Figure(caption=caption, spec=cumulative(curves)),)


# The product's own scheme.

RECORDED, ENDS, LINKS = "a record of 10", "end to end", "links repair"


def _beyond_plans(scale: Scale) -> Mapping[str, Plan]:
    brokers = sizes(scale)[-1]
    record = recovering(brokers, scale, ANSWERING)
    ours = with_product_defaults(record.scenario)
    ends = replace(ours, name=f"{ours.name}-ends", link=tuple(replace(link, repair=False) for link in ours.link))
    return {RECORDED: record, ENDS: Plan(scenario=ends), LINKS: Plan(scenario=ours)}


def _measure_beyond(views: Views) -> Mapping[str, float]:
    record = views[RECORDED]
    came = {name: fates(view) for name, view in views.items()}
    times = {name: median(found.recovery_times()) for name, found in came.items()}
    found = {f"{RECORDED}: share of lost messages recovered": _recovered(came[RECORDED])}
    for name in (ENDS, LINKS):
        found |= {
            f"{name}: share of lost messages recovered": _recovered(came[name]),
            f"{name}: bytes on the links over those of a record of 10": views[name].link_bytes / record.link_bytes,
            f"{name}: median recovery time over that of a record of 10": times[name] / times[RECORDED],
            f"{name}: median recovery time (s)": times[name],
            f"{name}: neither recovered nor reported": float(came[name].silent.sum()),
        }
    return found


def _recovered(found: MessageFates) -> float:
    return float(found.recovered.sum() / found.lost.sum())


def _draw_beyond(views: Views) -> Sequence[Figure]:
    curves = {name: fates(view).recovery_times() for name, view in views.items()}
    return (Figure(caption="Time from the loss until the message came, of those that did.", spec=cumulative(curves)),)


def _goals(name: str) -> tuple[Criterion, ...]:
    bounds: tuple[tuple[str, str, float | None, float | None], ...] = (
        ("share of lost messages recovered", "two thirds", 0.99, None),
        ("bytes on the links over those of a record of 10", "1", None, 1.15),
        ("median recovery time over that of a record of 10", "1", None, 0.5),
    )
    goals = tuple(
        Criterion(name=f"{name}: {what}", paper=paper, low=low, high=high, kind="goal", scales=PAPER)
        for what, paper, low, high in bounds
    )
    reported = ("median recovery time (s)", "neither recovered nor reported")
    return (
        *goals,
        *(
            Criterion(name=f"{name}: {what}", paper="-", kind="goal", scales=PAPER, note="reported")
            for what in reported
        ),
    )


EXPERIMENTS = (
    Experiment(
        name="recovery-digest",
        title="Heartbeats for those who want few messages",
        source="002 sections 4.3 and 6.2",
        about="Forty subscribers want one message in a hundred. Without heartbeats they seldom notice what they lost;"
        f" with one every {HEARTBEAT_INTERVAL:g} s they do.",
        plans=_heartbeat_plans,
        measure=_measure_heartbeats,
        draw=_draw_heartbeats,
        parameters={
            **PARAMETERS,
            "network": "12 brokers; 40 subscribers want 2 classes of 200, the others 9",
            "time to recover": "from publication to repair, of what was lost and came back in both runs",
        },
        product="both runs would have the same settings",
        criteria=(
            Criterion(
                name="losses noticed, over those without heartbeats",
                paper="enhances the loss detection",
                low=2.0,
            ),
            Criterion(
                name="median time to recover of what came back in both, without heartbeats over with",
                paper="faster",
                low=2.0,
                scales=PAPER,
            ),
            Criterion(name="messages that came back in both", paper="-", kind="goal", note="reported"),
            Criterion(name="the same, what came back in each of them", paper="-", kind="goal", note="reported"),
            Criterion(
                name="the same, what never came back until the end of the run",
                paper="-",
                kind="goal",
                note="reported",
            ),
            Criterion(name="losses noticed", paper="-", kind="goal", note="reported"),
            Criterion(name="median time to recover of what came back (s)", paper="-", kind="goal", note="reported"),
        ),
    ),
    Experiment(
        name="recovery-beyond",
        title="More comes back, sooner, for the same bytes",
        source="002 section 4.4, our goal",
        about="The product's own scheme on the paper's lossy network, with nothing set: typed records and ledgers, end"
        " to end alone, and with links that repair themselves, which is the default.",
        plans=_beyond_plans,
        measure=_measure_beyond,
        draw=_draw_beyond,
        product="it has the product's settings already",
        parameters={
            **PARAMETERS,
            "network": "46 brokers at paper scale, 12 at smoke scale",
            "beside it": "a record of 10 entries, and publishers that answer",
            "lost": "a link lost a copy on the way, repaired or not; time is from there to the delivery",
        },
        criteria=(
            *_goals(ENDS),
            *_goals(LINKS),
            Criterion(
                name=f"{RECORDED}: share of lost messages recovered",
                paper="two thirds",
                kind="goal",
                scales=PAPER,
                note=f"reported; {RECORD} entries, the paper's best setting",
            ),
        ),
    ),
)

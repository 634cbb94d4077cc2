"""Beyond the paper: heartbeats for those who hear too little (002 sections 4.3 and 6.2), and our best setting.

A subscriber that wants one message in a hundred gets none of the next ten, nine times out of ten, and so never learns
what it lost. A heartbeat tells it: a record without a message, for whoever asked for it.

Our best setting (`BEST`) spends the bytes of a record of ten entries in another way. A message carries no record at
all. The publisher says it once more after a moment, which brings back what a single link lost in the time of one way
through the network; heartbeats tell of what is still missing, and requests for it go straight to the publisher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.papers.recovery.effect import PAPER
from penstock.lab.papers.recovery.setting import PARAMETERS, RARE_12, RECORD, recovering, sizes
from penstock.lab.papers.recovery.speed import cumulative

HEARTBEAT_INTERVAL = 0.5
BEST: Mapping[str, Any] = {
    "proactive_repair_after": 0.05,
    "heartbeat_interval": 0.5,
    "heartbeat_spans": 1,
    "request_to": "publisher",
    "requests_max": 6,
}


# Heartbeats.


def _heartbeat_plans(scale: Scale) -> Mapping[str, Plan]:
    return {
        "without": recovering(12, scale, wanted=RARE_12),
        "with": recovering(12, scale, wanted=RARE_12, heartbeat_interval=HEARTBEAT_INTERVAL),
    }


def _measure_heartbeats(views: Views) -> Mapping[str, float]:
    noticed = {name: _noticed(view) for name, view in views.items()}
    times = {name: float(np.median(recovery_times(view, _rare(view)))) for name, view in views.items()}
    return {
        "losses noticed, over those without heartbeats": noticed["with"] / noticed["without"],
        "median time to recover without heartbeats, over that with": times["without"] / times["with"],
        "losses noticed": noticed["with"],
        "losses noticed without heartbeats": noticed["without"],
        "median time to recover (s)": times["with"],
    }


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


# The best setting.


def _beyond_plans(scale: Scale) -> Mapping[str, Plan]:
    brokers = sizes(scale)[-1]
    return {
        "record": recovering(brokers, scale),
        "best": recovering(brokers, scale, 0, **BEST),
    }


def _measure_beyond(views: Views) -> Mapping[str, float]:
    best, paper = views["best"], views["record"]
    lost = best.losses["recovered"]
    waited = {view: view.recoveries["delay"] for view in (best, paper)}
    return {
        "share of lost messages recovered": float(lost.mean()),
        "bytes on the links over those of a record of 10": best.link_bytes / paper.link_bytes,
        "median recovery time over that of a record of 10": float(np.median(waited[best]) / np.median(waited[paper])),
        "median recovery time (s)": float(np.median(waited[best])),
        "share of lost messages recovered by a record of 10": float(paper.losses["recovered"].mean()),
        "recovered without a request": float((best.recoveries["requested"] < 0.0).mean()),
    }


def _draw_beyond(views: Views) -> Sequence[Figure]:
    curves = {"record of 10": recovery_times(views["record"]), "our best setting": recovery_times(views["best"])}
    caption = "Time until a lost message came back (the end of the run if never)."
    return (Figure(caption=caption, spec=cumulative(curves)),)


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
            "time to recover": "of all lost messages; one that never came back counts until the end of the run",
        },
        criteria=(
            Criterion(
                name="losses noticed, over those without heartbeats",
                paper="enhances the loss detection",
                low=2.0,
            ),
            Criterion(
                name="median time to recover without heartbeats, over that with",
                paper="faster",
                low=2.0,
            ),
            Criterion(name="losses noticed", paper="-", kind="goal", note="reported"),
            Criterion(name="median time to recover (s)", paper="-", kind="goal", note="reported"),
        ),
    ),
    Experiment(
        name="recovery-beyond",
        title="More comes back, sooner, for the same bytes",
        source="002 section 4.4, our goal",
        about="The bytes that records of ten entries cost are spent on a second copy of each message and on heartbeats."
        " What is still missing is asked for straight from its publisher.",
        plans=_beyond_plans,
        measure=_measure_beyond,
        draw=_draw_beyond,
        parameters={
            **PARAMETERS,
            "network": "46 brokers at paper scale, 12 at smoke scale",
            "best setting": "no record; a second copy after 50 ms; heartbeats every 0.5 s, each with only what is new;"
            " requests to the publisher, up to 6, and repairs to the requester alone",
        },
        criteria=(
            Criterion(name="share of lost messages recovered", paper="two thirds", low=0.99, kind="goal", scales=PAPER),
            Criterion(
                name="bytes on the links over those of a record of 10", paper="1", high=1.15, kind="goal", scales=PAPER
            ),
            Criterion(
                name="median recovery time over that of a record of 10", paper="1", high=0.5, kind="goal", scales=PAPER
            ),
            Criterion(
                name="share of lost messages recovered by a record of 10",
                paper="two thirds",
                kind="goal",
                scales=PAPER,
                note=f"reported; {RECORD} entries, the paper's best setting",
            ),
            Criterion(name="median recovery time (s)", paper="-", kind="goal", scales=PAPER, note="reported"),
            Criterion(name="recovered without a request", paper="-", kind="goal", scales=PAPER, note="reported"),
        ),
    ),
)

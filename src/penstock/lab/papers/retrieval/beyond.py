"""ecbn-beyond: the default set-up with what Penstock adds (004 section 4; goals of our own).

Cursors: the cache of a home numbers what comes in, and a chain keeps the number of the last item that it got. So a
refreshed interest may have what others at its home used after that, and a home asks for what one receiver needs and not
for what each needs. Least fresh first, so that a chain passes over little. A home that remembers: refreshed interests
may be sent anything that their home never used, from any cache. Patience: a home asks others when 0.85 of a lifetime is
over, one receiver for all that look for the same, likely neighbours one by one before everybody, and each branch for
its share. Addressed: a multicast names the homes that each copy is for, so that none gets two; exhaustive filtering has
the paper's nonces. Brokers have all of it but patience, probes and shares, which cost time (decision 0017).

The ceiling of satisfaction is set by Req 1 itself: whoever got all there was cannot get it again. It is that of a
receiver that is given the oldest of everything that fits and that it never had, from anywhere and at once (`ceiling`).

`ecbn-readings` shows what the paper's own rules do if what it leaves open is read in other ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.fast.oracle import oracle_satisfaction
from penstock.lab.papers.retrieval.setting import (
    COUNTED,
    PAPER,
    PARAMETERS,
    VIOLATIONS,
    NewsSweep,
    by_name,
    gain,
    gained,
    kept,
    no_plans,
    of,
    overhead,
    saved,
    violations,
)

OURS: dict[str, Any] = {
    "cursors": True,
    "policy": "LF",
    "remembers": True,
    "patience": 0.85,
    "together": True,
    "probes": 3,
    "budgeted": True,
    "addressed": True,
    "duplicates": "proactive",
}
LARGEST = {"paper": 100.0, "smoke": 16.0}
BACKGROUND = 0.7
READINGS: dict[str, dict[str, Any]] = {
    "as read": {},
    "refreshed interests counted": COUNTED,
    "events by their volumes": {"drawn": "by volume"},
    "events by their volumes, refreshed counted": {"drawn": "by volume", **COUNTED},
    "whole events": {"topics": 1},
    "arrivals evenly over a unit": {"batched": False},
}


def _points(scale: str) -> dict[str, dict[str, Any]]:
    return {
        "paper's rules": {},
        "addressed multicasts alone": {"addressed": True},
        "cursors alone": {"cursors": True, "policy": "LF"},
        "ours": OURS,
        "ours, largest selectivity": {**OURS, "selectivity": LARGEST[scale]},
        "ours, background": {**OURS, "background": BACKGROUND},
    }


OTHERWISE = NewsSweep(READINGS, READINGS, ends=("as read", "refreshed interests counted"))
SWEEP = NewsSweep(
    _points("paper"), _points("smoke"), ends=("paper's rules", "ours", "ours, largest selectivity", "ours, background")
)


def _measure(views: Views) -> Mapping[str, float]:
    found = {VIOLATIONS: violations(views)}
    for name in _points(views.scale):
        if name in views.numbers:
            found[f"gain, {name} (points)"] = gain(views, name)
            found[f"saved, {name} (%)"] = saved(views, name)
            found[f"overhead, {name}"] = overhead(views, name)
            found[f"starvation, {name} (%)"] = of(views, name, "starvation")
    ceiling = oracle_satisfaction(SWEEP.setting(views.scale, "ours"), views.seed)
    found["ceiling of the gain (points)"] = ceiling - of(views, "EF ours", "satisfaction")
    return found


def _read(views: Views) -> Mapping[str, float]:
    found = {VIOLATIONS: violations(views)}
    for name in READINGS:
        if name in views.numbers:
            found[f"gain, {name} (points)"] = gain(views, name)
            found[f"saved, {name} (%)"] = saved(views, name)
            found[f"satisfied more, {name} (%)"] = gained(views, name)
            found[f"overhead, {name}"] = overhead(views, name)
            found[f"overhead with notifications, {name}"] = overhead(views, name, "control messages")
    return found


def _draw_readings(views: Views) -> Sequence[Figure]:
    names = [name for name in READINGS if name in views.numbers]
    return (by_name("Bandwidth saved.", {name: saved(views, name) for name in names}, "%"),) if names else ()


def _draw(views: Views) -> Sequence[Figure]:
    names = [name for name in _points(views.scale) if name in views.numbers]
    return (
        by_name("More satisfied than by EF.", {name: gain(views, name) for name in names}, "points"),
        by_name("Bandwidth saved.", {name: saved(views, name) for name in names}, "%"),
    )


EXPERIMENTS = (
    Experiment(
        name="ecbn-beyond",
        title="More from the same caches",
        source="004 section 4; goals of our own",
        about="The default set-up with homes that know what they have had and ask late: how near each goal comes.",
        plans=no_plans,
        tasks=SWEEP.tasks,
        measure=_measure,
        draw=_draw,
        parameters=PARAMETERS
        | {
            "ours": "cursors, LF/LF, homes that remember, are patient and ask together, three probes, shares, addresses"
        },
        criteria=(
            Criterion(
                name="gain, ours (points)",
                paper="13 %",
                low=14.0,
                kind="goal",
                scales=PAPER,
            ),
            Criterion(name="saved, ours (%)", paper="-", low=95.0, kind="goal", scales=PAPER),
            Criterion(name="saved, ours, largest selectivity (%)", paper="40 %", low=60.0, kind="goal", scales=PAPER),
            Criterion(
                name="starvation, ours, background (%)", paper="less than 1 %", high=0.5, kind="goal", scales=PAPER
            ),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-readings",
        title="What the paper leaves open, read in other ways",
        source="004 section 4.2; errata E2 and E8",
        about="The default set-up with the paper's rules, when arrivals, refreshed interests, events and topics are"
        " understood differently. Nothing is gated.",
        plans=no_plans,
        tasks=OTHERWISE.tasks,
        measure=_read,
        draw=_draw_readings,
        parameters=PARAMETERS,
        criteria=(kept(),),
    ),
)

"""Req 1 as a run of its own, and what 004 names and did not evaluate: other kinds of requests, fairness, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.lab.engine.experiment import Criterion, Experiment, Views
from penstock.lab.papers.retrieval.setting import (
    PAPER,
    PARAMETERS,
    VIOLATIONS,
    NewsSweep,
    by_name,
    each,
    gain,
    kept,
    no_plans,
    of,
    overhead,
    saved,
    violations,
)

PUSH = {"dissemination": "delayed push"}
ENDED = "deliveries to ended lifetimes"
METHODS: dict[str, dict[str, Any]] = {"EON": {}, "PDP": PUSH, "cursors": {"cursors": True}}
FAIR = ("LFU", "MRU", "MF", "PPF")
BOTH = NewsSweep(METHODS, METHODS, ends=tuple(METHODS), baseline=True)
_SHOTS: dict[str, dict[str, Any]] = {"one-shot": {"lifetime": 0.0}}
SHOTS = NewsSweep(_SHOTS, _SHOTS, ends=("one-shot",), baseline=True)
_EVERYTHING: dict[str, dict[str, Any]] = {"everything": {"selectivity": 0.0, "freshness": 0.0}}
EVERYTHING = NewsSweep(_EVERYTHING, _EVERYTHING, ends=("everything",), baseline=True)
_STEEP: dict[str, dict[str, Any]] = {"exponent 1": {}, "exponent 2.4": {"exponent": 2.4}}
STEEP = NewsSweep(_STEEP, _STEEP, ends=tuple(_STEEP), baseline=True)
_FAIR = {name: {"policy": name} for name in FAIR}
FAIRNESS = NewsSweep(_FAIR, _FAIR, ends=("MF", "LFU"), baseline=False)


def _once(views: Views) -> Mapping[str, float]:
    found = {f"given twice, {name}": of(views, name, "given twice") for name in METHODS}
    found |= {f"deliveries, {name}": of(views, name, "deliveries") for name in METHODS}
    return found | {VIOLATIONS: violations(views)}


def _shot(views: Views) -> Mapping[str, float]:
    return {
        "satisfied at once (%)": of(views, "one-shot", "satisfaction"),
        "publication messages a request": of(views, "one-shot", "publication messages")
        / of(views, "one-shot", "interests"),
        "interest messages a request": of(views, "one-shot", "interest messages") / of(views, "one-shot", "interests"),
        VIOLATIONS: violations(views),
    }


def _all(views: Views) -> Mapping[str, float]:
    return {
        "deliveries over those of EF (%)": 100.0 * of(views, "everything", ENDED) / of(views, "EF everything", ENDED),
        "publication messages over those of EF": of(views, "everything", "publication messages")
        / of(views, "EF everything", "publication messages"),
        VIOLATIONS: violations(views),
    }


def _steep(views: Views) -> Mapping[str, float]:
    found = {VIOLATIONS: violations(views)}
    for name in _STEEP:
        found[f"gain, {name} (points)"] = gain(views, name)
        found[f"saved, {name} (%)"] = saved(views, name)
        found[f"overhead, {name}"] = overhead(views, name)
    return found


def _fair(views: Views) -> Mapping[str, float]:
    found = each(views, FAIR, lambda name: of(views, name, "fairness"))
    return {f"Jain's index, {name}": value for name, value in found.items()} | {VIOLATIONS: violations(views)}


def _tables(views: Views) -> Mapping[str, float]:
    found = {f"interests in a table, {name}": of(views, name, "interests in a table") for name in METHODS}
    found |= {f"largest table, {name}": of(views, name, "largest table") for name in METHODS}
    return found | {VIOLATIONS: violations(views)}


EXPERIMENTS = (
    Experiment(
        name="ecbn-req1-at-most-once",
        title="Never the same twice",
        source="004 section 3.2, Req 1",
        about="Every interest is refreshed whenever it ends. No chain of lifetimes may get a publication twice.",
        plans=no_plans,
        tasks=BOTH.tasks,
        measure=_once,
        draw=lambda views: (
            by_name("Deliveries.", {name: of(views, name, "deliveries") for name in METHODS}, "deliveries"),
        ),
        parameters=PARAMETERS | {"delayed push": "refreshed interests refuse copies with the pending flag off (E7)"},
        criteria=(
            Criterion(name="given twice, EON", paper="0", low=0, high=0),
            Criterion(name="given twice, PDP", paper="0", low=0, high=0),
            Criterion(name="given twice, cursors", paper="0", low=0, high=0),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-one-shot",
        title="Requests for what is there",
        source="004 section 3.2 (not evaluated there)",
        about="Interests with a lifetime of 0 take what caches hold now, and nothing follows them.",
        plans=no_plans,
        tasks=SHOTS.tasks,
        measure=_shot,
        draw=lambda views: (by_name("One-shot requests.", _shot(views), "see the names"),),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="satisfied at once (%)", paper="-", low=70.0, kind="goal", scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-exhaustive-requests",
        title="Receivers that want everything",
        source="004 section 3.2, Table 1 (not evaluated there)",
        about="Interests without a limit, for future publications alone: retrieval must not bring less than exhaustive"
        " filtering, nor cost more.",
        plans=no_plans,
        tasks=EVERYTHING.tasks,
        measure=_all,
        draw=lambda views: (by_name("Deliveries.", _all(views), "see the names"),),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="deliveries over those of EF (%)", paper="all", low=99.0, high=101.0, kind="goal"),
            Criterion(name="publication messages over those of EF", paper="-", high=1.05, kind="goal", scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-exponent",
        title="One event that outweighs all",
        source="004 section 4.2, Figure 12 (exponent 2.4, not evaluated there)",
        about="On the third day the power law was steeper. A single event then makes most of the traffic.",
        plans=no_plans,
        tasks=STEEP.tasks,
        measure=_steep,
        draw=lambda views: (by_name("Bandwidth saved.", {name: saved(views, name) for name in _STEEP}, "saved (%)"),),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="gain, exponent 2.4 (points)", paper="more favourable", low=0.0, kind="goal", scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-provider-fairness",
        title="Whose publications are read",
        source="004 section 3.3.2 (not evaluated there)",
        about="LFU/MFU is meant to be fair to providers: publications of one event should be delivered equally often.",
        plans=no_plans,
        tasks=FAIRNESS.tasks,
        measure=_fair,
        draw=lambda views: (
            by_name("Jain's index of deliveries within an event.", dict(_fair(views)), "Jain's index"),
        ),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="Jain's index, LFU", paper="fair", low=0.8, kind="goal", scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-interest-tables",
        title="How large the tables of interests are",
        source="004 section 3.3.1 (not evaluated there)",
        about="An interest that is satisfied leaves the tables of all routers with overload notifications, and stays"
        " until its deadline with delayed pushes.",
        plans=no_plans,
        tasks=BOTH.tasks,
        measure=_tables,
        draw=lambda views: (
            by_name(
                "Interests of others in a table, on average.",
                {name: of(views, name, "interests in a table") for name in METHODS},
                "interests",
            ),
        ),
        parameters=PARAMETERS,
        criteria=(kept(),),
    ),
)

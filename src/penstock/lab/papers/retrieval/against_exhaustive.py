"""Retrieval beside exhaustive filtering (004 section 4.2.1, Figures 14 to 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Scale, Views
from penstock.lab.fast.news_task import NewsTask
from penstock.lab.papers.retrieval.setting import (
    COUNTED,
    PAPER,
    PARAMETERS,
    VIOLATIONS,
    NewsSweep,
    curves,
    each,
    falls,
    gain,
    gained,
    kept,
    no_plans,
    of,
    one_sweep,
    overhead,
    rises,
    saved,
    violations,
)

OTHERWISE = ", refreshed counted"
SELECTIVITY = one_sweep("selectivity", (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0), (1.0, 4.0, 16.0))
READ_OTHERWISE = NewsSweep(
    {f"{value:g}{OTHERWISE}": {"selectivity": value, **COUNTED} for value in (1.0, 10.0, 100.0)},
    {f"{value:g}{OTHERWISE}": {"selectivity": value, **COUNTED} for value in (4.0,)},
    ends=[f"{value}{OTHERWISE}" for value in (1, 10, 100)],
)
CACHE = one_sweep("cache_size", (50, 100, 200, 500, 1_000, 2_000), (6, 24, 96))
ROUTERS = one_sweep("routers", (50, 100, 200, 300), (8, 16, 32))
DEFAULT = {"paper": "10", "smoke": "4"}
LESS = 0.999
ENOUGH = 95.0  # percent satisfied: beyond it there is nothing to gain


def _common(views: Views, names: Sequence[str]) -> dict[str, float]:
    found = {f"saved at {name} (%)": saved(views, name) for name in names if name in views.numbers}
    found |= {f"gain at {name} (points)": gain(views, name) for name in names if name in views.numbers}
    found |= {f"overhead at {name}": overhead(views, name) for name in names if name in views.numbers}
    found |= {
        f"overhead at {name}, with notifications": overhead(views, name, "control messages")
        for name in names
        if name in views.numbers
    }
    found |= {
        f"satisfied more than by EF at {name} (%)": gained(views, name) for name in names if name in views.numbers
    }
    found |= {f"satisfaction at {name} (%)": of(views, name, "satisfaction") for name in names if name in views.numbers}
    return found | {VIOLATIONS: violations(views)}


def _both_readings(scale: Scale, seed: int) -> dict[str, NewsTask]:
    """The one that gates at every selectivity, and the other at its default and ends."""
    return SELECTIVITY.tasks(scale, seed) | READ_OTHERWISE.tasks(scale, seed)


def _selectivity(views: Views) -> Mapping[str, float]:
    names = SELECTIVITY.names(views.scale)
    found = _common(views, [*names, *READ_OTHERWISE.names(views.scale)])
    there = [name for name in names if name in views.numbers]
    contested = [name for name in there if of(views, f"EF {name}", "satisfaction") < ENOUGH]
    default = DEFAULT[views.scale]
    found |= {
        "gain at the default (points)": gain(views, default),
        "gain of interests that are new (points)": _gain_of_new(views, default),
        "least gain where EF is below 95 % (points)": min((gain(views, name) for name in contested), default=0.0),
        "saved at the largest selectivity (%)": saved(views, names[-1]),
        "largest overhead": max(overhead(views, name) for name in there),
    }
    if len(there) == len(names):
        small = [name for name in names if float(name) <= 2.0]
        found["least saved at selectivity up to 2 (%)"] = min(saved(views, name) for name in small)
        found["savings fall with selectivity"] = falls([saved(views, name) for name in names])
    return found


def _gain_of_new(views: Views, name: str) -> float:
    """Of first lifetimes alone."""
    number = "satisfaction of new interests"
    return of(views, name, number) - of(views, f"EF {name}", number)


def _cache(views: Views) -> Mapping[str, float]:
    names = CACHE.names(views.scale)
    found = _common(views, names)
    if all(name in views.numbers for name in names):
        satisfied = [of(views, name, "satisfaction") for name in names]
        found["satisfaction never falls with the cache"] = rises(satisfied, slack=0.1)
        found["savings never fall with the cache"] = rises([saved(views, name) for name in names], slack=0.5)
    if views.scale == "paper":
        found["gain from 500 to 2000 (points)"] = of(views, "2000", "satisfaction") - of(views, "500", "satisfaction")
    return found


def _routers(views: Views) -> Mapping[str, float]:
    names = ROUTERS.names(views.scale)
    found = _common(views, names)
    there = [name for name in names if name in views.numbers]
    found["least gain (points)"] = min(gain(views, name) for name in there)
    if len(there) == len(names):
        found["savings rise with the network"] = rises([saved(views, name) for name in names])
    return found


def _three_figures(views: Views, names: Sequence[str], x_title: str, numbers: str) -> Sequence[Figure]:
    satisfied = {
        "e-CBN": each(views, names, lambda name: of(views, name, "satisfaction")),
        "EF": each(views, names, lambda name: of(views, f"EF {name}", "satisfaction")),
    }
    less = {"e-CBN": each(views, names, lambda name: saved(views, name))}
    control = {"e-CBN": each(views, names, lambda name: overhead(views, name))}
    return (
        curves(f"Satisfaction (Figure {numbers}a).", views, satisfied, x_title=x_title, y_title="satisfied (%)"),
        curves(f"Bandwidth saved (Figure {numbers}b).", views, less, x_title=x_title, y_title="saved (%)"),
        curves(f"Control overhead (Figure {numbers}c).", views, control, x_title=x_title, y_title="over EF"),
    )


EXPERIMENTS = (
    Experiment(
        name="ecbn-vs-ef-selectivity",
        title="Retrieval beside exhaustive filtering, by what is asked for",
        source="004 section 4.2.1, Figure 14",
        about="Receivers ask for more and more. Retrieval sends what is asked for, from caches too; exhaustive"
        " filtering sends all.",
        plans=no_plans,
        tasks=_both_readings,
        measure=_selectivity,
        draw=lambda views: _three_figures(views, SELECTIVITY.names(views.scale), "mean selectivity", "14"),
        parameters=PARAMETERS,
        criteria=(
            Criterion(
                name="gain at the default (points)",
                paper="13 % more",
                low=8.0,
                scales=PAPER,
            ),
            Criterion(name="least gain where EF is below 95 % (points)", paper="above EF", low=0.0),
            Criterion(name="least saved at selectivity up to 2 (%)", paper="almost 100 %", low=90.0, scales=PAPER),
            Criterion(name="saved at the largest selectivity (%)", paper="up to 40 %", low=30.0, scales=PAPER),
            Criterion(name="savings fall with selectivity", paper="yes", low=1.0, scales=PAPER),
            Criterion(name="largest overhead", paper="less than EF", high=LESS, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-vs-ef-cache-size",
        title="How much cache is enough",
        source="004 section 4.2.1, Figure 15",
        about="More cache satisfies more interests and saves more messages, up to one percent of all publications.",
        plans=no_plans,
        tasks=CACHE.tasks,
        measure=_cache,
        draw=lambda views: _three_figures(views, CACHE.names(views.scale), "cache (publications)", "15"),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="satisfaction never falls with the cache", paper="grows", low=1.0, scales=PAPER),
            Criterion(name="savings never fall with the cache", paper="grow", low=1.0, scales=PAPER),
            Criterion(name="gain from 500 to 2000 (points)", paper="no incentive", high=3.0, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-vs-ef-network-size",
        title="Larger networks",
        source="004 section 4.2.1, Figure 16",
        about="The same workload in networks of 50 to 300 routers.",
        plans=no_plans,
        tasks=ROUTERS.tasks,
        measure=_routers,
        draw=lambda views: _three_figures(views, ROUTERS.names(views.scale), "routers", "16"),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="saved at 50 (%)", paper="88 %", low=80.0, scales=PAPER),
            Criterion(name="saved at 300 (%)", paper="98 %", low=93.0, scales=PAPER),
            Criterion(name="savings rise with the network", paper="yes", low=1.0, scales=PAPER),
            Criterion(name="least gain (points)", paper="10-34 % above EF", low=0.0, scales=PAPER),
            kept(),
        ),
    ),
)

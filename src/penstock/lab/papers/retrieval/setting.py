"""What the experiments on retrieval share: their settings at both scales, sweeps, and the numbers they compare (004).

*Saved* is the share of publication messages that exhaustive filtering (EF) needs and retrieval does not. *Overhead* is
interest messages over those of EF, as the paper defines control traffic (section 4); with overload notifications, which
it does not name there, it is told beside it. Satisfaction and starvation are as in 004
section 3.2, in percent of the lifetimes that ended. At paper scale the default and the end points of a sweep have as
many seeds as the command asks for, other points one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from penstock.lab.engine.experiment import Criterion, Figure, Plan, Scale, Views
from penstock.lab.fast.news_task import NewsTask
from penstock.lab.fast.setting import NewsSetting
from penstock.lab.pages.style import lines, named_bars

PAPER: tuple[Scale, ...] = ("paper",)
FIRST_SEED = 1
SMOKE: dict[str, Any] = {
    "routers": 16,
    "units": 16,
    "interests": 200,
    "publications": 240,
    "events": 6,
    "topics": 2,
    "lifetime": 6.0,
    "freshness": 15.0,
    "selectivity": 4.0,
    "cache_size": 24,
}
COUNTED: dict[str, Any] = {"counts_refreshed": True}  # the other reading of 4.2, told beside the one that gates
PARAMETERS = {
    "network": "100 routers, mean degree 4, diameter 6, power-law degrees; a hop takes 0.1 time units",
    "workload": "100 time units; in each 500 publications and then 1,000 new interests; refreshed ones on top",
    "events": "50 of 12 topics each, as likely one as another until its volume is reached",
    "interests": "max Poisson 10, lifetime Poisson 20, freshness 50 (printed rule), refreshed when they end",
    "routers": "cache 500, MF, overload notifications, both kinds of duplicate dropping, unless varied",
}


def news(scale: Scale, **changes: Any) -> NewsSetting:
    """Table 4 of 004 with changes; the same in small."""
    return replace(NewsSetting(), **changes) if scale == "paper" else replace(NewsSetting(**SMOKE), **changes)


def no_plans(scale: Scale) -> Mapping[str, Plan]:
    """These simulations leave no trace."""
    return {}


class NewsSweep:
    """Named settings, by scale, and which of them have many seeds."""

    def __init__(
        self,
        paper: Mapping[str, Mapping[str, Any]],
        smoke: Mapping[str, Mapping[str, Any]],
        *,
        ends: Sequence[str] = (),
        baseline: bool = True,
    ) -> None:
        self._settings = {"paper": paper, "smoke": smoke}
        self._ends = ends
        self._baseline = baseline

    def names(self, scale: Scale) -> list[str]:
        """All points, in order."""
        return list(self._settings[scale])

    def setting(self, scale: Scale, name: str) -> NewsSetting:
        """One point."""
        return news(scale, **self._settings[scale][name])

    def tasks(self, scale: Scale, seed: int) -> dict[str, NewsTask]:
        """The runs of a seed."""
        found = {}
        for name in self.names(scale):
            if seed != FIRST_SEED and scale == "paper" and name not in self._ends:
                continue
            setting = self.setting(scale, name)
            found[name] = NewsTask(setting, seed)
            if self._baseline:
                found[f"EF {name}"] = NewsTask(baseline(setting), seed, exhaustive=True)
        return found


def baseline(setting: NewsSetting) -> NewsSetting:
    """The workload alone, so that settings that share it share one run of exhaustive filtering."""
    plain = NewsSetting()
    return replace(
        setting,
        freshness=plain.freshness,  # everything comes when it is published
        freshness_rule=plain.freshness_rule,
        cache_size=plain.cache_size,
        policy=plain.policy,
        dissemination=plain.dissemination,
        push_margin=plain.push_margin,
        duplicates=plain.duplicates,
        en_route=plain.en_route,
        flushing=plain.flushing,
        cursors=plain.cursors,
        probes=plain.probes,
        budgeted=plain.budgeted,
        addressed=plain.addressed,
        remembers=plain.remembers,
        patience=plain.patience,
        together=plain.together,
        service=plain.service,
        two_queues=plain.two_queues,
        queue=plain.queue,
        buffer=plain.buffer,
    )


def one_sweep(name: str, paper: Sequence[Any], smoke: Sequence[Any], **options: Any) -> NewsSweep:
    """A sweep over one setting; points are named by its value, and the ends have many seeds."""

    def points(values: Sequence[Any]) -> dict[str, dict[str, Any]]:
        return {f"{value:g}": {name: value} for value in values}

    default = f"{getattr(NewsSetting(), name):g}"
    ends = [f"{paper[0]:g}", f"{paper[-1]:g}", default]
    return NewsSweep(points(paper), points(smoke), ends=ends, **options)


# Numbers.


def saved(views: Views, name: str, before: str | None = None) -> float:
    """Publication messages that were not needed, in percent of the baseline's."""
    needed = views.numbers[before or f"EF {name}"]["publication messages"]
    return 100.0 * (1.0 - views.numbers[name]["publication messages"] / needed) if needed else float("nan")


def overhead(views: Views, name: str, number: str = "interest messages") -> float:
    """Interest messages over those of the baseline; "control messages" are notifications too."""
    return views.numbers[name][number] / views.numbers[f"EF {name}"]["control messages"]


def gain(views: Views, name: str) -> float:
    """By how many points more lifetimes are satisfied than by the baseline."""
    return views.numbers[name]["satisfaction"] - views.numbers[f"EF {name}"]["satisfaction"]


def gained(views: Views, name: str) -> float:
    """The same in percent of what the baseline satisfies, as the paper says it."""
    return 100.0 * gain(views, name) / (views.numbers[f"EF {name}"]["satisfaction"] or float("nan"))


def of(views: Views, name: str, number: str) -> float:
    """One number of one run."""
    return views.numbers[name][number]


def violations(views: Views) -> float:
    """What no run may do: give a chain something twice, or too much, or what is too old."""
    bad = ("given twice", "too old", "too many")
    return float(sum(numbers.get(name, 0.0) for numbers in views.numbers.values() for name in bad))


VIOLATIONS = "given twice, too much or too old"


def kept() -> Criterion:
    """Req 1 and its companions, in every run."""
    return Criterion(name=VIOLATIONS, paper="0 (Req 1)", low=0, high=0)


def rises(values: Sequence[float], slack: float = 0.0) -> float:
    """1 if no value is below the one before by more than the slack."""
    return float(all(later >= sooner - slack for sooner, later in pairwise(values)))


def falls(values: Sequence[float], slack: float = 0.0) -> float:
    """1 if no value is above the one before by more than the slack."""
    return rises([-value for value in values], slack)


# Figures.


def curves(
    caption: str,
    views: Views,
    series: Mapping[str, Mapping[str, float]],  # name in the legend -> x as text -> y
    *,
    x_title: str,
    y_title: str,
) -> Figure:
    """Curves over the points of a sweep."""
    rows = [
        {"x": float(x), "y": y, "series": name} for name, points in series.items() for x, y in points.items() if y == y
    ]
    spec = lines(rows, x="x", y="y", series=list(series), x_title=x_title, y_title=y_title)
    return Figure(caption=caption, spec=spec)


def by_name(caption: str, values: Mapping[str, float], y_title: str) -> Figure:
    """A bar for each name."""
    rows = [{"name": name, "value": value} for name, value in values.items()]
    return Figure(caption=caption, spec=named_bars(rows, x="name", y="value", y_title=y_title))


def each(views: Views, names: Sequence[str], number: Callable[[str], float]) -> dict[str, float]:
    """A number of each point that this seed has."""
    return {name: number(name) for name in names if name in views.numbers}

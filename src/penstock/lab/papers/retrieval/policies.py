"""Selection and replacement, en-route caching, freshness, background traffic, refreshing (004 section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.fast.setting import NewsSetting
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
    overhead,
    rises,
    saved,
    violations,
)
from penstock.retrieval.selection import CONFIGURATIONS

ALL = tuple(CONFIGURATIONS)
SIZES = {"paper": (100, 500, 2_000), "smoke": (8, 24)}
MIDDLE = {"paper": 500, "smoke": 24}
AGES = {"paper": (5.0, 20.0, 50.0, 100.0), "smoke": (3.0, 15.0)}
AGED = ("MRU", "MF", "LF")
SHARES = {"paper": (0.0, 0.3, 0.7), "smoke": (0.0, 0.7)}
STEADY, SENSITIVE = ("PPF", "LFU", "MRU"), ("MF", "LF", "DPF")
CHANCES = {"paper": (0.0, 0.25, 0.5, 0.75, 1.0), "smoke": (0.0, 1.0)}
REFRESHED = ("DPF", "PPF")
PLACES = ("realistic", "random")
NAN = float("nan")


def _grid(names: Sequence[str], setting: str, values: Sequence[Any], **more: Any) -> dict[str, dict[str, Any]]:
    return {f"{name} {value:g}": {"policy": name, setting: value, **more} for name in names for value in values}


def _over(scale: str, setting: str, names: Sequence[str], values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    more = {"cache_size": 100} if setting == "refresh_probability" and scale == "paper" else {}
    return _grid(names, setting, values[scale], **more)


def _sweep(setting: str, names: Sequence[str], values: Mapping[str, Sequence[Any]]) -> NewsSweep:
    many = (values["paper"][0], getattr(NewsSetting(), setting), values["paper"][-1])
    ends = [f"{name} {value:g}" for name in names for value in many]
    return NewsSweep(_over("paper", setting, names, values), _over("smoke", setting, names, values), ends=ends)


POLICIES = _sweep("cache_size", ALL, SIZES)
FRESHNESS = _sweep("freshness", AGED, AGES)
BACKGROUND = _sweep("background", STEADY + SENSITIVE, SHARES)
REFRESH = _sweep("refresh_probability", REFRESHED, CHANCES)
_ROUTES = {
    f"{place}, {word}": {"locality": place, "en_route": word == "en route"}
    for place in PLACES
    for word in ("default", "en route")
}
ROUTES = NewsSweep(_ROUTES, _ROUTES, ends=("realistic, default", "realistic, en route"), baseline=False)


def _row(views: Views, names: Sequence[str], value: float, number: str) -> dict[str, float]:
    """A number of each policy at one point."""
    return {name: of(views, f"{name} {value:g}", number) for name in names if f"{name} {value:g}" in views.numbers}


def _chosen(views: Views) -> Mapping[str, float]:
    at = MIDDLE[views.scale]
    starved = _row(views, ALL, at, "starvation")
    sent = _row(views, ALL, at, "publication messages")
    found = {f"starvation, {name} (%)": value for name, value in starved.items()}
    found |= {f"publication messages, {name}": value for name, value in sent.items()}
    found |= {f"control messages, {name}": value for name, value in _row(views, ALL, at, "control messages").items()}
    found |= {f"satisfaction, {name} (%)": value for name, value in _row(views, ALL, at, "satisfaction").items()}
    found[VIOLATIONS] = violations(views)
    if len(sent) == len(ALL):
        rank = sorted(sent, key=lambda name: sent[name])
        best = sorted(starved.values())[2]
        found |= {
            "PPF has the least publication traffic": float(rank[0] in ("PPF", "PPFu")),
            "MRU and DPF have the most": float({name.rstrip("u") for name in rank[-3:]} == {"MRU", "DPF"}),
            "spread of starvation (points)": max(starved.values()) - min(starved.values()),
            "MF and LF are among the best three": float(max(starved["MF"], starved["LF"]) <= best),
        }
    return found


def _by_size(views: Views, number: str) -> dict[str, dict[str, float]]:
    sizes = SIZES[views.scale]
    return {
        name: {f"{size}": of(views, f"{name} {size}", number) for size in sizes if f"{name} {size}" in views.numbers}
        for name in ALL
    }


def _draw_chosen(views: Views) -> Sequence[Figure]:
    numbers = ("starvation", "publication messages", "control messages")
    return tuple(
        curves(
            f"{number.capitalize()} (Figure 19{letter}).",
            views,
            _by_size(views, number),
            x_title="cache (publications)",
            y_title=number,
        )
        for letter, number in zip("abc", numbers, strict=True)
    )


def _routed(views: Views) -> Mapping[str, float]:
    found = {VIOLATIONS: violations(views)}
    for place in PLACES:
        plain, cached = f"{place}, default", f"{place}, en route"
        if cached not in views.numbers or plain not in views.numbers:
            continue
        change = of(views, cached, "starvation") - of(views, plain, "starvation")
        sent = of(views, cached, "publication messages") / of(views, plain, "publication messages") - 1.0
        found[f"change of starvation, {place} (points)"] = abs(change)
        found[f"change of traffic, {place} (%)"] = abs(100.0 * sent)
        found[f"gain of satisfaction, {place} (points)"] = of(views, cached, "satisfaction") - of(
            views, plain, "satisfaction"
        )
    return found


def _aged(views: Views) -> Mapping[str, float]:
    ages = AGES[views.scale]
    first = _row(views, AGED, ages[0], "starvation")
    found = {
        f"starvation at {age:g}, {name} (%)": value
        for age in ages
        for name, value in _row(views, AGED, age, "starvation").items()
    }
    found |= {
        f"overhead at {age:g}, {name}": overhead(views, f"{name} {age:g}")
        for age in ages
        for name in AGED
        if f"{name} {age:g}" in views.numbers
    }
    found[VIOLATIONS] = violations(views)
    found["least starvation at the smallest freshness (%)"] = min(first.values())
    if all(f"{name} {age:g}" in views.numbers for name in AGED for age in ages):
        found["starvation falls with freshness"] = min(
            falls([of(views, f"{name} {age:g}", "starvation") for age in ages], slack=0.05) for name in AGED
        )
        found["control falls with freshness"] = min(
            falls([overhead(views, f"{name} {age:g}") for age in ages], slack=0.01) for name in AGED
        )
    return found


def _backed(views: Views) -> Mapping[str, float]:
    shares = SHARES[views.scale]
    last = _row(views, STEADY + SENSITIVE, shares[-1], "starvation")
    found = {f"starvation at {shares[-1]:g}, {name} (%)": value for name, value in last.items()}
    found[VIOLATIONS] = violations(views)
    found["most starvation with background traffic (%)"] = max(last.values())
    loss = {}
    for name in STEADY + SENSITIVE:
        before, after = f"{name} {shares[0]:g}", f"{name} {shares[-1]:g}"
        if before in views.numbers and after in views.numbers:
            had = saved(views, before)
            loss[name] = 100.0 * (had - saved(views, after)) / abs(had) if had else NAN
            found[f"loss of saving, {name} (%)"] = loss[name]
    if len(loss) == len(STEADY + SENSITIVE):
        steady = max(loss[name] for name in STEADY)
        found["largest loss of saving of PPF, LFU and MRU (%)"] = steady
        found["MF, LF and DPF lose more than they"] = float(min(loss[name] for name in SENSITIVE) > steady)
    return found


def _renewed(views: Views) -> Mapping[str, float]:
    chances = CHANCES[views.scale]
    found = {VIOLATIONS: violations(views)}
    savings = {}
    for name in REFRESHED:
        points = [f"{name} {chance:g}" for chance in chances]
        found |= {f"saved at {point} (%)": saved(views, point) for point in points if point in views.numbers}
        found |= {f"overhead at {point}": overhead(views, point) for point in points if point in views.numbers}
        if all(point in views.numbers for point in points):
            savings[name] = [saved(views, point) for point in points]
            found[f"control rises with refreshing, {name}"] = rises([overhead(views, point) for point in points])
    if len(savings) == len(REFRESHED):
        found["DPF saves less the fewer are refreshed"] = rises(savings["DPF"])
        found["PPF: spread of savings (points)"] = max(savings["PPF"]) - min(savings["PPF"])
    return found


def _draw_over(
    views: Views, names: Sequence[str], values: Sequence[float], x_title: str, number: int
) -> Sequence[Figure]:
    def series(value_of: Any) -> dict[str, dict[str, float]]:
        return {name: each(views, [f"{name} {value:g}" for value in values], value_of) for name in names}

    def as_x(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        return {name: {point.rpartition(" ")[2]: y for point, y in points.items()} for name, points in found.items()}

    starved = as_x(series(lambda point: of(views, point, "starvation")))
    less = as_x(series(lambda point: saved(views, point)))
    control = as_x(series(lambda point: overhead(views, point)))
    return (
        curves(f"Starvation (Figure {number}).", views, starved, x_title=x_title, y_title="starved (%)"),
        curves(f"Bandwidth saved (Figure {number}).", views, less, x_title=x_title, y_title="saved (%)"),
        curves(f"Control overhead (Figure {number}).", views, control, x_title=x_title, y_title="over EF"),
    )


EXPERIMENTS = (
    Experiment(
        name="ecbn-selection-replacement-policies",
        title="Which publication to serve, and which to evict",
        source="004 section 4.3, Figure 19, Table 2",
        about="Eight ways to choose. They differ little in what receivers get, and much in what it costs.",
        plans=no_plans,
        tasks=POLICIES.tasks,
        measure=_chosen,
        draw=_draw_chosen,
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="PPF has the least publication traffic", paper="by far", low=1.0, scales=PAPER),
            Criterion(name="MRU and DPF have the most", paper="the two highest", low=1.0, scales=PAPER),
            Criterion(name="spread of starvation (points)", paper="comparable", high=5.0, scales=PAPER),
            Criterion(
                name="MF and LF are among the best three",
                paper="slightly better",
                low=1.0,
                kind="illustration",  # at this size nobody starves, with any policy
                scales=PAPER,
            ),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-enroute-caching",
        title="Caching what passes",
        source="004 section 4.3",
        about="Routers keep publications that only pass. With events that live in one region it gains nothing.",
        plans=no_plans,
        tasks=ROUTES.tasks,
        measure=_routed,
        draw=lambda views: (
            by_name(
                "Publication messages.",
                each(views, list(_ROUTES), lambda name: of(views, name, "publication messages")),
                "publication messages",
            ),
        ),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="change of starvation, realistic (points)", paper="no improvement", high=1.0, scales=PAPER),
            Criterion(name="change of traffic, realistic (%)", paper="no improvement", high=10.0, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-freshness",
        title="How old a publication may be",
        source="004 section 4.3, Figure 20",
        about="The less old publications may be, the fewer there are to serve an interest with.",
        plans=no_plans,
        tasks=FRESHNESS.tasks,
        measure=_aged,
        draw=lambda views: _draw_over(views, AGED, AGES[views.scale], "freshness (time units)", 20),
        parameters=PARAMETERS,
        criteria=(
            Criterion(
                name="least starvation at the smallest freshness (%)", paper="above 10 %", low=10.0, scales=PAPER
            ),
            Criterion(name="starvation falls with freshness", paper="yes", low=1.0, scales=PAPER),
            Criterion(name="control falls with freshness", paper="yes", low=1.0, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-background-traffic",
        title="Publications that nobody asks for",
        source="004 section 4.3, Figure 21",
        about="Up to seven in ten publications are never requested and fill the caches.",
        plans=no_plans,
        tasks=BACKGROUND.tasks,
        measure=_backed,
        draw=lambda views: _draw_over(views, STEADY + SENSITIVE, SHARES[views.scale], "share of background", 21),
        parameters=PARAMETERS | {"background": "added to the 50,000 publications, at any router"},
        criteria=(
            Criterion(
                name="most starvation with background traffic (%)", paper="less than 1 %", high=2.0, scales=PAPER
            ),
            Criterion(
                name="largest loss of saving of PPF, LFU and MRU (%)", paper="insensitive", high=5.0, scales=PAPER
            ),
            Criterion(name="MF, LF and DPF lose more than they", paper="markedly", low=1.0, scales=PAPER),
            kept(),
        ),
    ),
    Experiment(
        name="ecbn-refresh-probability",
        title="How many interests are refreshed",
        source="004 section 4.3, Figure 22",
        about="With a small cache, what is kept for refreshed interests is of no use when few of them are.",
        plans=no_plans,
        tasks=REFRESH.tasks,
        measure=_renewed,
        draw=lambda views: _draw_over(views, REFRESHED, CHANCES[views.scale], "refresh probability", 22),
        parameters=PARAMETERS | {"cache": "100 publications"},
        criteria=(
            Criterion(name="DPF saves less the fewer are refreshed", paper="collapses", low=1.0, scales=PAPER),
            Criterion(name="PPF: spread of savings (points)", paper="low throughout", high=15.0, scales=PAPER),
            Criterion(name="control rises with refreshing, DPF", paper="increases", low=1.0, scales=PAPER),
            Criterion(name="control rises with refreshing, PPF", paper="increases", low=1.0, scales=PAPER),
            kept(),
        ),
    ),
)

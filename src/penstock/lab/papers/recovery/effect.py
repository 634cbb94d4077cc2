"""002 sections 4.4.1 and 4.4.2: the workload, and how many lost messages come back.

A *false negative* is a message that was due and never came. With recovery there are fewer, and the longer the record
the fewer: the residual is their number over that without recovery, in the same network with the same publications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.recovery.setting import (
    LOW_LOSS,
    NETWORKS,
    PARAMETERS,
    PUBLISHERS,
    RECORD,
    SIZES,
    bare,
    both,
    named,
    networks,
    recovering,
    sizes,
    without,
)
from penstock.lab.setups.recovery import PUBLISHING_STARTS, Size

NAN = float("nan")
WINDOW = {"paper": 30, "smoke": 6}  # seconds


# Figures 4.3 and 4.4.


def _measure_workload(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers in NETWORKS:
        view = views.get(f"{brokers}, none")
        found |= {f"{brokers} brokers: {name}": value for name, value in _workload(view).items()}
    return found


def _workload(view: View | None) -> dict[str, float]:
    names = (
        "share of messages with at most two receivers",
        "share of pairs with match probability below 0.08",
        "largest match probability",
        "largest rate of a publisher over its median",
        "receivers per message",
    )
    if view is None:
        return dict.fromkeys(names, NAN)
    published = float(view.published_per_second().sum())
    few = published - float((view.receivers > 2).sum())
    match = view.match_probabilities
    peaks = [rates.max() / np.median(rates) for rates in publishing(view).values()]
    values = (few / published, float((match < 0.08).mean()), float(match.max()), float(np.median(peaks)))
    return dict(zip(names, (*values, float(view.receivers.sum()) / published), strict=True))


def publishing(view: View) -> dict[str, Floats]:
    """Publications of each publisher in each second, from the first on."""
    return {name: rates[int(PUBLISHING_STARTS) :] for name, rates in view.published_by_publisher.items()}


def _draw_workload(views: Views) -> Sequence[Figure]:
    figures = []
    for brokers in NETWORKS:
        view = views.get(f"{brokers}, none")
        if view is not None:
            rates = {"published": view.published_per_second(), "delivered": view.delivered_per_second()}
            caption = f"Publications and deliveries without recovery, {brokers} brokers (Figure 4.4)."
            figures.append(Figure(caption=caption, spec=style.over_time(rates, "per second")))
    rows = [
        {"value": float(value), "share": float(share), "series": name}
        for name, view in views.items()
        for value, share in _quantiles(view.match_probabilities)
    ]
    spec = style.lines(
        _renamed(rows),
        x="value",
        y="share",
        series=_series(rows),
        x_title="match probability",
        y_title="share of pairs",
    )
    return (*figures, Figure(caption="Match probabilities of all pairs (Figure 4.3b).", spec=spec))


# Figure 4.5.


def _size_plans(scale: Scale) -> Mapping[str, Plan]:
    chosen = SIZES if scale == "paper" else (1, RECORD)
    plans = {
        f"{b}, {publishers}, {entries}": recovering(b, scale, publishers, entries=entries)
        for b, publishers in networks(scale)
        for entries in chosen
    }
    return {**bare(scale), **plans}


def _measure_sizes(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers, publishers in networks("paper"):
        left = {entries: _residual(views, brokers, f"{publishers}, {entries}") for entries in SIZES}
        known = [1.0, *(value for value in left.values() if value == value)]
        name = named(brokers, publishers)
        found[f"{name}: 1 over 10 entries"] = left[1] / left[RECORD]
        found[f"{name}: least fall from one size to the next"] = (
            min(a - b for a, b in pairwise(known)) if len(known) > 1 else NAN
        )
        found |= {f"{name}: residual at {entries} entries": value for entries, value in left.items()}
    for publishers in PUBLISHERS:
        factors = [found[f"{named(brokers, publishers)}: 1 over 10 entries"] for brokers in NETWORKS]
        found[f"46 brokers steeper than 12, {publishers} (ratio of the factors)"] = factors[1] / factors[0]
    return found


def _residual(views: Views, brokers: int, name: str) -> float:
    view = views.get(f"{brokers}, {name}")
    return residual(view, views[f"{brokers}, none"]) if view is not None else NAN


def residual(view: View, bare: View) -> float:
    """Which share of the false negatives is left."""
    return float(view.missed_per_second.sum() / bare.missed_per_second.sum())


def _draw_sizes(views: Views) -> Sequence[Figure]:
    rows = [
        {"entries": entries, "missed": float(views[run].missed_per_second.sum()), "series": named(brokers, publishers)}
        for brokers, publishers in networks("paper")
        for entries in (0, *SIZES)
        if (run := f"{brokers}, {publishers}, {entries}" if entries else f"{brokers}, none") in views
    ]
    spec = style.lines(
        rows,
        x="entries",
        y="missed",
        series=list(dict.fromkeys(str(row["series"]) for row in rows)),
        x_title="entries of the record (0: no recovery)",
        y_title="false negatives",
    )
    return (Figure(caption="False negatives by the size of the record (Figure 4.5).", spec=spec),)


# The variant with less loss.


def _low_plans(scale: Scale) -> Mapping[str, Plan]:
    brokers = sizes(scale)[-1]
    plans = {"none": without(brokers, scale, loss=LOW_LOSS)}
    for publishers in PUBLISHERS:
        plans[publishers] = recovering(brokers, scale, publishers, loss=LOW_LOSS)
        plans[f"{publishers}, more loss"] = recovering(brokers, scale, publishers)
    return plans


def _measure_low(views: Views) -> Mapping[str, float]:
    found = {}
    for publishers in PUBLISHERS:
        found[f"{publishers}: residual"] = residual(views[publishers], views["none"])
        less, more = (request_to_repair(views[name]) for name in (publishers, f"{publishers}, more loss"))
        found[f"{publishers}: request to repair, median over that with more loss"] = median(less) / median(more)
    return found


def median(values: Floats) -> float:
    """NaN of nothing."""
    return float(np.median(values)) if len(values) else NAN


def request_to_repair(view: View) -> Floats:
    """For each message that was asked for and sent again: from the first request to the first repair."""
    waits: Floats = view.rounds["first_repair_at"] - view.rounds["first_request_at"]
    return waits[waits > 0.0]


def _draw_low(views: Views) -> Sequence[Figure]:
    return (_missed_figure(views, "none", PUBLISHERS, "False negatives with a loss of 0.001 per link"),)


# Figure 4.6.


def _measure_over_time(views: Views) -> Mapping[str, float]:
    found = {}
    for brokers, publishers in networks("paper"):
        ratios = _ratios(views, brokers, publishers)
        mean = _residual(views, brokers, publishers)
        name = named(brokers, publishers)
        found[f"{name}: largest distance of a window from the mean"] = (
            float(np.abs(ratios / mean - 1.0).max()) if len(ratios) and mean else NAN
        )
        found[f"{name}: factor"] = 1.0 / mean if mean else inf  # inf: everything came back
        found[f"{name}: share of the losses that came back"] = 1.0 - mean
    return found


def _ratios(views: Views, brokers: Size, publishers: str) -> Floats:
    """The residual in each window of the run, the incomplete ones at its ends left out."""
    if f"{brokers}, {publishers}" not in views:
        return np.zeros(0)
    width = WINDOW[views.scale]
    begin = int(PUBLISHING_STARTS)
    sums = []
    for name in (publishers, "none"):
        missed = views[f"{brokers}, {name}"].missed_per_second[begin:]
        sums.append(missed[: len(missed) // width * width].reshape(-1, width).sum(axis=1))
    ratios: Floats = sums[0] / sums[1]
    return ratios


def _draw_over_time(views: Views) -> Sequence[Figure]:
    return [
        _missed_figure(
            views,
            f"{brokers}, none",
            [f"{brokers}, {publishers}" for publishers in PUBLISHERS],
            f"False negatives per second of publication, {brokers} brokers (Figure 4.6)",
        )
        for brokers in NETWORKS
        if f"{brokers}, none" in views
    ]


def _missed_figure(views: Views, none: str, recovered: Sequence[str], caption: str) -> Figure:
    curves = {"without recovery": views[none].missed_per_second}
    curves |= {f"with recovery, {name.split(', ')[-1]}": views[name].missed_per_second for name in recovered}
    return Figure(caption=f"{caption}.", spec=style.over_time(curves, "false negatives per second"))


def _quantiles(values: Floats) -> list[tuple[float, float]]:
    shares = np.linspace(0.0, 1.0, 101)
    return list(zip(np.quantile(values, shares), shares, strict=True))


def _renamed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """`12, none` is called `12 brokers` in a figure."""
    for row in rows:
        row["series"] = f"{str(row['series']).split(',')[0]} brokers"
    return rows


def _series(rows: Sequence[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(f"{str(row['series']).split(',')[0].split()[0]} brokers" for row in rows))


PAPER: tuple[Scale, ...] = ("paper",)


def _of_workload(brokers: int) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    return (
        Criterion(
            name=f"{brokers} brokers: share of messages with at most two receivers",
            paper="50 % have at most two",
            low=0.5,
            kind="illustration",
            scales=scales,
        ),
        Criterion(
            name=f"{brokers} brokers: share of pairs with match probability below 0.08",
            paper="80 %",
            low=0.8,
            kind="illustration",
            scales=PAPER,
        ),
        Criterion(
            name=f"{brokers} brokers: largest match probability",
            paper="not higher than 0.1",
            high=0.1,
            kind="illustration",
            scales=PAPER,
        ),
        Criterion(
            name=f"{brokers} brokers: largest rate of a publisher over its median",
            paper="spikes: 20 to 500 or 250 messages/s",
            low=4.0,
            kind="illustration",
            scales=scales,
            note="our reading of a visible spike",
        ),
        Criterion(
            name=f"{brokers} brokers: receivers per message",
            paper="5 (conclusion)",
            kind="goal",
            scales=PAPER,
            note="reported; with 54 subscribers and such match probabilities no more than 4.5 are possible",
        ),
    )


def _of_sizes(brokers: Size, publishers: str, low: float, high: float) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    name, factor = named(brokers, publishers), {12: 2, 46: 3}[brokers]
    return (
        Criterion(
            name=f"{name}: residual at 10 entries",
            paper=f"from 1 to 10 entries {factor} times fewer",
            low=low,
            high=high,
            scales=PAPER,
        ),
        Criterion(
            name=f"{name}: least fall from one size to the next",
            judged="every seed",
            paper="decreases",
            low=0.0,
            scales=scales,
        ),
        Criterion(name=f"{name}: 1 over 10 entries", paper=str(factor), kind="goal", scales=scales, note="reported"),
        *(
            Criterion(
                name=f"{name}: residual at {entries} entries", paper="-", kind="goal", scales=PAPER, note="reported"
            )
            for entries in SIZES[:-1]
        ),
    )


def _of_low_loss(publishers: str) -> tuple[Criterion, ...]:
    return (
        Criterion(
            name=f"{publishers}: residual",
            paper="more than 8 times fewer",
            high=0.2,
            scales=PAPER,
            note="002 names its equation (4.1) as the reason, which gives 0.398 with a loss of 0.01 and 0.401 with"
            " 0.001 at match probability 0.05 and 10 entries",
        ),
        Criterion(
            name=f"{publishers}: request to repair, median over that with more loss",
            paper="almost 50 % smaller (4.4.2)",
            high=0.6,
            scales=PAPER,
        ),
    )


def _of_time(brokers: Size, publishers: str) -> tuple[Criterion, ...]:
    name = named(brokers, publishers)
    return (
        Criterion(
            name=f"{name}: largest distance of a window from the mean",
            judged="every seed",
            paper="persistent during the whole course",
            high=0.3,
            scales=PAPER,
        ),
        Criterion(
            name=f"{name}: factor",
            paper="almost 2" if brokers == 12 else "almost 3",
            kind="goal",
            scales=("paper", "smoke") if brokers == 12 else PAPER,
            note="reported",
        ),
        Criterion(
            name=f"{name}: share of the losses that came back",
            paper="more than 75 % (4.5)",
            low=0.75,
            scales=PAPER,
            note="a factor of almost 2 or 3, as 4.4.2 has it, would be 50 to 67 %",
        ),
    )


EXPERIMENTS = (
    Experiment(
        name="recovery-workload-characterisation",
        title="The workload of the experiments on recovery",
        source="002 section 4.4.1, Figures 4.3 and 4.4",
        about="Subscribers want few of the messages, and most messages have few receivers: the hardest case for loss"
        " detection by records. Publishers have sudden spikes.",
        plans=bare,
        measure=_measure_workload,
        draw=_draw_workload,
        parameters=PARAMETERS,
        criteria=(*_of_workload(12), *_of_workload(46)),
    ),
    Experiment(
        name="recovery-vs-record-size",
        title="The longer the record, the fewer messages stay lost",
        source="002 section 4.4.2, Figure 4.5",
        about="A longer record tells of a loss to more of those who get a later message. In the larger network more"
        " clients share a loss, and one who notices is enough. Publishers are silent, as 4.4.1 has it, or answer.",
        product="the product's record has a size of its own",
        plans=_size_plans,
        measure=_measure_sizes,
        draw=_draw_sizes,
        parameters=PARAMETERS,
        criteria=(
            *(one for publishers in PUBLISHERS for one in _of_sizes(12, publishers, 0.4, 0.65)),
            *(one for publishers in PUBLISHERS for one in _of_sizes(46, publishers, 0.25, 0.45)),
            *(
                Criterion(
                    name=f"46 brokers steeper than 12, {publishers} (ratio of the factors)",
                    paper="3 against 2",
                    low=1.0,
                    scales=PAPER,
                )
                for publishers in PUBLISHERS
            ),
        ),
    ),
    Experiment(
        name="recovery-low-loss",
        title="With less loss, does a larger part of it come back?",
        source="002 section 4.4.2",
        about="A loss of 0.001 per link instead of 0.01. The paper finds a much larger part recovered, and quicker.",
        plans=_low_plans,
        measure=_measure_low,
        draw=_draw_low,
        parameters={**PARAMETERS, "network": "46 brokers at paper scale, 12 at smoke scale"},
        criteria=tuple(one for publishers in PUBLISHERS for one in _of_low_loss(publishers)),
    ),
    Experiment(
        name="recovery-false-negatives-over-time",
        title="Recovery helps all the time",
        source="002 section 4.4.2, Figure 4.6",
        about="The share of false negatives that recovery leaves is the same throughout the run, whatever the rate.",
        plans=both,
        measure=_measure_over_time,
        draw=_draw_over_time,
        parameters={**PARAMETERS, "windows": "30 s at paper scale, 6 s at smoke scale"},
        criteria=tuple(one for place in networks("paper") for one in _of_time(*place)),
    ),
)

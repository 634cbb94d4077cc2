"""The workload itself: events, who asks for what, and how much there is of it (004 section 4.2, Figures 12 and 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import ceil
from statistics import fmean, median, pstdev

import numpy as np

from penstock.kernel.randomness import generator
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Scale, Views
from penstock.lab.fast.news_workload import NewsWorkload
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.lab.papers.retrieval.setting import PAPER, PARAMETERS, by_name, news, no_plans

DAYS = {"12 April 2011": (33, 9_507, 30.0), "13 April 2011": (31, 7_941, 40.0), "14 April 2011": (29, 8_875, 45.0)}
DRAWS = 200


def zipf(events: int, exponent: float) -> list[float]:
    """The shares of a plain power law, in percent."""
    weights = [rank**-exponent for rank in range(1, events + 1)]
    return [100.0 * one / sum(weights) for one in weights]


def _trace(views: Views) -> Mapping[str, float]:
    shares = NewsSetting().shares()
    found = {f"top share, {events} events, exponent 1 (%)": zipf(events, 1.0)[0] for events, _, _ in DAYS.values()}
    return found | {
        "top share of the generator, exponent 1, 50 events (%)": zipf(50, 1.0)[0],
        "top share of the series in use (%)": 100.0 * shares[0],
        "second share of the series in use (%)": 100.0 * shares[1],
        "top share, exponent 2.4, 50 events (%)": zipf(50, 2.4)[0],
    }


class NewsFacts:
    """What a workload is like, without any network."""

    def __init__(self, setting: NewsSetting, seed: int) -> None:
        workload = NewsWorkload(setting, seed)
        ticks = setting.units * TICKS
        topics = setting.events * setting.topics
        uploads = np.zeros((topics, setting.units), dtype=np.int64)
        requests = []
        for tick in range(ticks):
            for _, topic in workload.uploads(tick):
                uploads[topic, tick // TICKS] += 1
            requests += [(tick // TICKS, one) for one in workload.new_requests(tick, 0)]
        asked = np.bincount([one.topic for _, one in requests], minlength=topics)
        homes: list[dict[int, None]] = [{} for _ in range(topics)]
        for _, one in requests:
            homes[one.topic][one.router] = None
        volume = uploads.sum(axis=1)
        self.match = np.repeat(100.0 * asked / len(requests), volume)  # percent of interests, of each publication
        density = np.array([100.0 * len(those) / setting.routers for those in homes])
        self.density = np.repeat(density, volume)
        total = np.concatenate([np.zeros((topics, 1), dtype=np.int64), uploads.cumsum(axis=1)], axis=1)

        def gaps(before: float) -> list[float]:
            found = []
            for unit, one in requests:
                end = unit + one.lifetime
                if end <= setting.units:
                    begin = max(0, ceil(unit + 1 - before)) if before else unit + 1
                    first = max(begin, 0)
                    found.append(float(total[one.topic, end] - total[one.topic, first] - one.max))
            return found

        self.gap_in_lifetime = gaps(0.0)
        self.gap = gaps(setting.freshness - setting.lifetime)


@cache
def facts(scale: Scale, locality: str, seed: int) -> NewsFacts:
    """Made once for the experiments that share them."""
    return NewsFacts(news(scale, locality=locality), seed)


def _matching(views: Views) -> Mapping[str, float]:
    match = facts(views.scale, "realistic", views.seed).match
    return {"most that match a publication (% of interests)": float(match.max()), "mean (%)": float(match.mean())}


def _density(views: Views) -> Mapping[str, float]:
    realistic = facts(views.scale, "realistic", views.seed).density
    random = facts(views.scale, "random", views.seed).density
    return {
        "most recipients, realistic (% of routers)": float(realistic.max()),
        "median recipients, random (% of routers)": float(median(random)),
    }


def _series(views: Views) -> Mapping[str, float]:
    """Shares sampled from the power law instead of computed: how far the largest goes up and down."""
    draw = generator(views.seed, "news", "series")
    tops = []
    for _ in range(DRAWS):
        sample = sorted((draw.paretovariate(1.0) for _ in range(50)), reverse=True)
        tops.append(100.0 * sample[0] / sum(sample))
    return {"largest event of a draw, mean (%)": fmean(tops), "its standard deviation (points)": pstdev(tops)}


def _gap(views: Views) -> Mapping[str, float]:
    found = facts(views.scale, "realistic", views.seed)
    return {
        "interests with more supply than demand (%)": 100.0 * fmean(gap > 0 for gap in found.gap),
        "counting uploads in the lifetime alone (%)": 100.0 * fmean(gap > 0 for gap in found.gap_in_lifetime),
    }


def _bars(caption: str, y_title: str, values: Mapping[str, float]) -> Sequence[Figure]:
    return (by_name(caption, values, y_title),)


EXPERIMENTS = (
    Experiment(
        name="ecbn-news-trace-statistics",
        title="How news is spread over events",
        source="004 section 4.2, Table 5, Figure 12",
        about="Three days of a news front page follow a power law. The generator uses exponent 1 with the two largest"
        " events as printed.",
        plans=no_plans,
        measure=_trace,
        draw=lambda views: _bars(
            "Peak share of the three days (Table 5).", "%", {day: peak for day, (_, _, peak) in DAYS.items()}
        ),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="top share of the generator, exponent 1, 50 events (%)", paper="30 %", low=20.0, high=32.0),
            Criterion(name="top share of the series in use (%)", paper="30 %", low=30.0, high=30.0),
        ),
    ),
    Experiment(
        name="ecbn-workload-matching-distribution",
        title="How many interests a publication matches",
        source="004 section 4.2, Figure 13a",
        about="A publication of the largest event matches one in forty interests, for an interest asks for one of 12"
        " topics.",
        plans=no_plans,
        measure=_matching,
        draw=lambda views: _bars("Interests that match a publication.", "%", _matching(views)),
        parameters=PARAMETERS,
        criteria=(
            Criterion(
                name="most that match a publication (% of interests)",
                paper="2.5 % (E8)",
                high=2.75,
                kind="goal",
                scales=PAPER,
                note="follows from the 12 topics, not from the printed parameters",
            ),
        ),
    ),
    Experiment(
        name="ecbn-workload-recipient-density",
        title="How many routers ask for a publication",
        source="004 section 4.2, Figure 13b",
        about="With realistic locality an event lives in one region; with random locality it lives everywhere.",
        plans=no_plans,
        measure=_density,
        draw=lambda views: _bars("Routers that ask for a publication.", "% of routers", _density(views)),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="most recipients, realistic (% of routers)", paper="24 %", high=30.0, scales=PAPER),
            Criterion(name="median recipients, random (% of routers)", paper="90 % and more", low=80.0, scales=PAPER),
        ),
    ),
    Experiment(
        name="ecbn-workload-popularity-series",
        title="Why one series of events is used everywhere",
        source="004 section 4.2, Figure 13c",
        about="Shares that are drawn from a power law differ much from draw to draw.",
        plans=no_plans,
        measure=_series,
        draw=lambda views: _bars("The largest event of a draw.", "%", _series(views)),
        parameters=PARAMETERS,
        criteria=(Criterion(name="its standard deviation (points)", paper="much volatility", low=5.0),),
    ),
    Experiment(
        name="ecbn-workload-gap",
        title="More is published than anybody wants",
        source="004 section 4.2, Figure 13d",
        about="What matches an interest and is fresh enough, less what it asks for.",
        plans=no_plans,
        measure=_gap,
        draw=lambda views: _bars("Interests with more supply than demand.", "% of interests", _gap(views)),
        parameters=PARAMETERS,
        criteria=(
            Criterion(name="interests with more supply than demand (%)", paper="positive", low=80.0, scales=PAPER),
        ),
    ),
)

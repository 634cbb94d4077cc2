"""002 sections 4.4.3 and 4.4.4: requests and repairs, how many are in vain, and what the caches keep.

What a duplicate and a hit are stands in `pipeline/metrics/recovery.py`. The network is looked at as one cache: a
request is a hit if anybody who received it has the message. The hit ratio of the caches alone leaves out publishers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.recovery.effect import NAN, PAPER
from penstock.lab.papers.recovery.setting import NETWORKS, PARAMETERS, recovering, silent, sizes, with_recovery
from penstock.lab.setups.recovery import BASE_RATE, PUBLISHING_STARTS

CACHE_MIN, CACHE_MAX = 5, 300
FIXED = 5  # messages: the mean size of an adaptive cache here is 5.4
SETTLED = {"paper": 20, "smoke": 8}  # seconds after which the hit ratio is looked at
WINDOW = {"paper": 10, "smoke": 3}
TRAFFIC_WINDOW = {"paper": 60, "smoke": 12}
SPIKE = 5.0 * BASE_RATE  # messages per second that make a spike
RISES_WITHIN = 5  # seconds


# Figure 4.8.


def _traffic_plans(scale: Scale) -> Mapping[str, Plan]:
    return {**with_recovery(scale), **(silent(scale) if scale == "paper" else {})}


def _measure_traffic(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers in NETWORKS:
        view = views.get(f"{brokers}, record")
        found |= {f"{brokers} brokers: {name}": value for name, value in _traffic(view, views.scale).items()}
    alone = _traffic(views.get("12, publishers silent"), views.scale)
    return found | {f"12 brokers, publishers silent: {name}": value for name, value in alone.items()}


def _traffic(view: View | None, scale: Scale) -> dict[str, float]:
    names = (
        "requests that are no duplicates",
        "repairs that are no duplicates",
        "requests over repairs, least of all windows",
        "requests and repairs over publications",
        "share of messages that anybody lost",
    )
    if view is None:
        return dict.fromkeys(names, NAN)
    rounds = view.rounds
    requests, repairs = float(rounds["requests"].sum()), float(rounds["repairs"].sum())
    published = float(view.published_per_second().sum())
    ratios = _windows(view.sent_per_second("request_sent"), TRAFFIC_WINDOW[scale]) / _windows(
        view.sent_per_second("repair_sent"), TRAFFIC_WINDOW[scale]
    )
    lost = view.losses
    messages = len(set(zip(lost["publisher"].tolist(), lost["count"].tolist(), strict=True)))
    values = (
        1.0 - float(rounds["duplicate_requests"].sum()) / requests,
        1.0 - float(rounds["duplicate_repairs"].sum()) / repairs,
        float(ratios.min()),
        (requests + repairs) / published,
        messages / published,
    )
    return dict(zip(names, values, strict=True))


def _windows(rates: Floats, width: int) -> Floats:
    """Sums over windows of so many seconds, from the first publication on."""
    rates = rates[int(PUBLISHING_STARTS) :]
    sums: Floats = rates[: len(rates) // width * width].reshape(-1, width).sum(axis=1)
    return sums


def _draw_traffic(views: Views) -> Sequence[Figure]:
    figures = []
    for brokers in NETWORKS:
        view = views.get(f"{brokers}, record")
        if view is not None:
            curves = {
                "published": view.published_per_second(),
                "requests": view.sent_per_second("request_sent"),
                "repairs": view.sent_per_second("repair_sent"),
            }
            caption = f"Publications, requests and repairs per second, {brokers} brokers (Figure 4.8)."
            figures.append(Figure(caption=caption, spec=style.over_time(curves, "per second")))
    return figures


# Figure 4.10.


def hit_ratios(view: View, kind: str, settled: int, width: int) -> tuple[float, Floats]:
    """The share of requests that hit, after the network has settled; all together, and in each window."""
    answers = view.answers
    at, hit = answers["requested_at"], answers[kind] > 0
    late = (at >= settled) & (at < view.scenario.duration)
    window = ((at[late] - settled) // width).astype(int)
    asked = np.bincount(window)
    shares = np.bincount(window, weights=hit[late])[asked > 0] / asked[asked > 0]
    return float(hit[late].mean()), shares


def _measure_hits(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers in NETWORKS:
        view = views.get(f"{brokers}, record")
        names = ("hit ratio", "standard deviation over windows", "hit ratio of the caches alone")
        values = (NAN, NAN, NAN)
        if view is not None:
            settled, width = SETTLED[views.scale], WINDOW[views.scale]
            ratio, shares = hit_ratios(view, "hits", settled, width)
            values = (ratio, float(shares.std()), hit_ratios(view, "cache_hits", settled, width)[0])
        found |= {f"{brokers} brokers: {name}": value for name, value in zip(names, values, strict=True)}
    return found


def _draw_hits(views: Views) -> Sequence[Figure]:
    rows = []
    for name, view in views.items():
        begin, width = int(PUBLISHING_STARTS), 3
        for kind, words in (("hits", "all"), ("cache_hits", "caches alone")):
            series = f"{name.split(',')[0]} brokers, {words}"
            shares = hit_ratios(view, kind, begin, width)[1]
            rows += [
                {"time": begin + width * n, "ratio": float(share), "series": series} for n, share in enumerate(shares)
            ]
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    spec = style.lines(rows, x="time", y="ratio", series=names, x_title="time (s)", y_title="hit ratio")
    return (Figure(caption="Share of requests that found their message (Figure 4.10).", spec=spec),)


# Figure 4.11.


def _cache_plans(scale: Scale) -> Mapping[str, Plan]:
    fixed = {
        f"{brokers}, fixed": recovering(brokers, scale, cache_fixed=True, cache_max=FIXED)
        for brokers in sizes(scale)[:1]
    }
    return {**with_recovery(scale), **fixed}


def _measure_caches(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers in NETWORKS:
        found |= {
            f"{brokers} brokers: {name}": value for name, value in _caches(views.get(f"{brokers}, record")).items()
        }
    settled, width = SETTLED[views.scale], WINDOW[views.scale]
    ours, fixed = (hit_ratios(views[f"12, {name}"], "cache_hits", settled, width)[0] for name in ("record", "fixed"))
    return found | {
        "12 brokers: hit ratio of the caches over that of fixed ones": ours / fixed,
        "12 brokers: hit ratio of fixed caches": fixed,
    }


def _caches(view: View | None) -> dict[str, float]:
    names = (
        "share of time with a cache at its minimum",
        "mean size over the largest allowed",
        "mean size",
        "share of spikes after which the largest cache grew",
    )
    if view is None:
        return dict.fromkeys(names, NAN)
    least, mean, _ = size_curves(view)
    begin = int(PUBLISHING_STARTS)
    average = float(mean[begin:].mean())
    return dict(
        zip(
            names,
            (float((least[begin:] == CACHE_MIN).mean()), average / CACHE_MAX, average, _grown(view)),
            strict=True,
        )
    )


def size_curves(view: View) -> tuple[Floats, Floats, Floats]:
    """The least, mean and largest size of all caches in each second; a cache that says nothing has its minimum."""
    told, seconds = view.cache_sizes, int(view.scenario.duration)
    within = told["second"] < seconds
    second, entries = told["second"][within], told["entries"][within].astype(float)
    rings = len(view.published_by_publisher) * sum(bool(client.subscribe) for client in view.scenario.client)
    number = np.bincount(second, minlength=seconds)
    total = np.bincount(second, weights=entries, minlength=seconds) + CACHE_MIN * (rings - number)
    most = np.full(seconds, float(CACHE_MIN))
    np.maximum.at(most, second, entries)
    least = np.full(seconds, float(CACHE_MAX))
    np.minimum.at(least, second, entries)
    least[number < rings] = CACHE_MIN
    return least, total / rings, most


def _grown(view: View) -> float:
    """After which share of the spikes the largest cache of that publisher's messages grew, in good time."""
    told, seconds = view.cache_sizes, int(view.scenario.duration)
    rose = []
    for publisher, rates in view.published_by_publisher.items():
        mine = (told["publisher"] == publisher) & (told["second"] < seconds)
        most = np.full(seconds, float(CACHE_MIN))
        np.maximum.at(most, told["second"][mine], told["entries"][mine].astype(float))
        starts = np.flatnonzero((rates[1:] >= SPIKE) & (rates[:-1] < SPIKE)) + 1
        rose += [most[start : start + 1 + RISES_WITHIN].max() > most[start - 1] for start in starts]
    return float(np.mean(rose)) if rose else NAN


def _draw_caches(views: Views) -> Sequence[Figure]:
    figures = []
    for brokers in NETWORKS:
        view = views.get(f"{brokers}, record")
        if view is not None:
            curves = dict(zip(("smallest cache", "mean cache", "largest cache"), size_curves(view), strict=True))
            caption = f"Messages that caches keep of one publisher, {brokers} brokers (Figure 4.11)."
            figures.append(Figure(caption=caption, spec=style.over_time(curves, "messages")))
    return figures


def _of_traffic(brokers: int, requests: tuple[str, float], repairs: tuple[str, float]) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    return (
        Criterion(
            name=f"{brokers} brokers: requests that are no duplicates",
            paper=requests[0],
            low=requests[1],
            scales=scales,
        ),
        Criterion(
            name=f"{brokers} brokers: repairs that are no duplicates", paper=repairs[0], low=repairs[1], scales=PAPER
        ),
        Criterion(
            name=f"{brokers} brokers: requests over repairs, least of all windows",
            paper="more requests than repairs",
            low=1.0,
            scales=PAPER,
            note="missed where publishers answer: nearly every first request brings a repair, and some bring two",
        ),
        Criterion(
            name=f"{brokers} brokers: requests and repairs over publications",
            paper="insignificant",
            high=0.2,
            scales=scales,
        ),
        Criterion(
            name=f"{brokers} brokers: share of messages that anybody lost",
            paper="-",
            kind="goal",
            scales=PAPER,
            note="reported; each needs at least a request and a repair",
        ),
    )


def _of_hits(brokers: int) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    return (
        Criterion(name=f"{brokers} brokers: hit ratio", paper="high, level not printed", low=0.9, scales=scales),
        Criterion(
            name=f"{brokers} brokers: standard deviation over windows",
            paper="does not exhibit large changes",
            high=0.05,
            scales=scales,
        ),
        Criterion(
            name=f"{brokers} brokers: hit ratio of the caches alone",
            paper="-",
            kind="goal",
            scales=scales,
            note="reported; publishers left out",
        ),
    )


def _of_caches(brokers: int) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    return (
        Criterion(
            name=f"{brokers} brokers: share of time with a cache at its minimum",
            paper="most nodes keep to the minimum",
            low=0.5,
            scales=scales,
        ),
        Criterion(
            name=f"{brokers} brokers: mean size over the largest allowed", paper="small", high=0.25, scales=scales
        ),
        Criterion(
            name=f"{brokers} brokers: share of spikes after which the largest cache grew",
            paper="active repairers follow the rate",
            low=0.5,
            scales=PAPER,
            note="within 5 s; our reading: after most spikes",
        ),
    )


EXPERIMENTS = (
    Experiment(
        name="recovery-control-traffic",
        title="Requests and repairs, and how many are in vain",
        source="002 section 4.4.3, Figure 4.8",
        about="Whoever hears another's request or repair holds its own back, so most are said once. Requests get lost"
        " and are said again, so there are more of them than repairs.",
        plans=_traffic_plans,
        measure=_measure_traffic,
        draw=_draw_traffic,
        parameters=PARAMETERS,
        criteria=(
            *_of_traffic(12, ("more than 90 %", 0.85), ("more than 80 %", 0.75)),
            *_of_traffic(46, ("80 %", 0.75), ("70 %", 0.65)),
            Criterion(
                name="12 brokers, publishers silent: requests over repairs, least of all windows",
                paper="more requests than repairs",
                low=1.0,
                scales=PAPER,
                note="as in the paper, where only those who received a message send it again",
            ),
        ),
    ),
    Experiment(
        name="recovery-cache-hit-ratio",
        title="Nearly every request finds its message",
        source="002 section 4.4.4, Figure 4.10",
        about="The caches of all clients, and what publishers keep of their own, answer nearly every request, from the"
        " first seconds on and whatever the rates.",
        plans=with_recovery,
        measure=_measure_hits,
        draw=_draw_hits,
        parameters=PARAMETERS,
        criteria=(*_of_hits(12), *_of_hits(46)),
    ),
    Experiment(
        name="recovery-cache-size",
        title="Caches stay small, and grow where they are needed",
        source="002 section 4.4.4, Figure 4.11",
        about="Whoever sends repairs keeps what the rate asks for, everybody else shrinks to the minimum. A fixed cache"
        " of the same mean size keeps as much, but in the wrong places.",
        plans=_cache_plans,
        measure=_measure_caches,
        draw=_draw_caches,
        parameters={**PARAMETERS, "fixed cache": f"{FIXED} messages per publisher, 12 brokers"},
        criteria=(
            *_of_caches(12),
            *_of_caches(46),
            Criterion(
                name="12 brokers: hit ratio of the caches over that of fixed ones",
                paper="-",
                low=1.0,
                scales=PAPER,
                note="a baseline that the experiments page asks for; publishers left out of both",
            ),
            Criterion(name="12 brokers: mean size", paper="small", kind="goal", note="reported"),
        ),
    ),
)

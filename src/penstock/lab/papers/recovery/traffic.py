"""002 sections 4.4.3 and 4.4.4: requests and repairs, how many are in vain, and what the caches keep.

What a duplicate and a hit are stands in `pipeline/metrics/recovery.py`. The network is looked at as one cache: a
request is a hit if anybody who received it has the message in its cache. What a publisher keeps of its own is no cache
in the paper's sense, since nothing adapts it, and does not count; the ratio with it is reported beside that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.recovery.effect import NAN, PAPER
from penstock.lab.papers.recovery.setting import (
    ANSWERING,
    PARAMETERS,
    SILENT,
    named,
    networks,
    recovering,
    with_recovery,
)
from penstock.lab.setups.recovery import BASE_RATE, PUBLISHING_STARTS, Size

CACHE_MIN, CACHE_MAX = 5, 300
FIXED = {"paper": (5, 10, 20, 40, 80), "smoke": (5, 20, 80)}  # messages: sizes of fixed caches
SETTLED = {"paper": 20, "smoke": 8}  # seconds after which the hit ratio is looked at
WINDOW = {"paper": 10, "smoke": 3}
TRAFFIC_WINDOW = {"paper": 60, "smoke": 12}
SPIKE = 5.0 * BASE_RATE  # messages per second that make a spike
RISES_WITHIN = 5  # seconds
NO_CACHES = "the product's clients keep no messages of others"


# Figure 4.8.


def _measure_traffic(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers, publishers in networks("paper"):
        view = views.get(f"{brokers}, {publishers}")
        found |= {f"{named(brokers, publishers)}: {k}": value for k, value in _traffic(view, views.scale).items()}
    return found


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
    if not requests or not repairs:
        return dict.fromkeys(names, NAN)
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
    for brokers, publishers in networks("paper"):
        view = views.get(f"{brokers}, {publishers}")
        if view is not None:
            curves = {
                "published": view.published_per_second(),
                "requests": view.sent_per_second("request_sent"),
                "repairs": view.sent_per_second("repair_sent"),
            }
            caption = f"Publications, requests and repairs per second, {named(brokers, publishers)} (Figure 4.8)."
            figures.append(Figure(caption=caption, spec=style.over_time(curves, "per second")))
    return figures


# Figure 4.10.


def hit_ratios(view: View | None, kind: str, settled: int, width: int) -> tuple[float, Floats]:
    """The share of requests that hit, after the network has settled; all together, and in each window."""
    if view is None:
        return NAN, np.zeros(0)
    answers = view.answers
    at, hit = answers["requested_at"], answers[kind] > 0
    late = (at >= settled) & (at < view.scenario.duration)
    if not late.any():
        return NAN, np.zeros(0)
    window = ((at[late] - settled) // width).astype(int)
    asked = np.bincount(window)
    shares = np.bincount(window, weights=hit[late])[asked > 0] / asked[asked > 0]
    return float(hit[late].mean()), shares


def _measure_hits(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    settled, width = SETTLED[views.scale], WINDOW[views.scale]
    for brokers, publishers in networks("paper"):
        view, name = views.get(f"{brokers}, {publishers}"), named(brokers, publishers)
        ratio, shares = hit_ratios(view, "cache_hits", settled, width)
        found[f"{name}: hit ratio of the caches"] = ratio
        found[f"{name}: standard deviation over windows"] = float(shares.std()) if len(shares) else NAN
        if publishers == ANSWERING:
            found[f"{name}: hit ratio with what publishers keep"] = hit_ratios(view, "hits", settled, width)[0]
    return found


def _draw_hits(views: Views) -> Sequence[Figure]:
    rows = []
    for name, view in views.items():
        begin, width = int(PUBLISHING_STARTS), 3
        shares = hit_ratios(view, "cache_hits", begin, width)[1]
        rows += [{"time": begin + width * n, "ratio": float(share), "series": name} for n, share in enumerate(shares)]
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    spec = style.lines(rows, x="time", y="ratio", series=names, x_title="time (s)", y_title="hit ratio")
    return (Figure(caption="Share of requests that found their message (Figure 4.10).", spec=spec),)


# Figure 4.11.


def _cache_plans(scale: Scale) -> Mapping[str, Plan]:
    fixed = {
        f"12, fixed at {size}": recovering(12, scale, SILENT, cache_fixed=True, cache_max=size) for size in FIXED[scale]
    }
    return {**with_recovery(scale), **fixed}


def _measure_caches(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers, publishers in networks("paper"):
        view = views.get(f"{brokers}, {publishers}")
        found |= {f"{named(brokers, publishers)}: {k}": value for k, value in _caches(view).items()}
    settled, width = SETTLED[views.scale], WINDOW[views.scale]
    name, sizes = named(12, SILENT), FIXED[views.scale]
    runs = (f"12, {SILENT}", *(f"12, fixed at {size}" for size in sizes))
    ours, *fixed = (hit_ratios(views[run], "cache_hits", settled, width)[0] for run in runs)
    alike = hits_at(found[f"{name}: mean size"], sizes, fixed)
    found[f"{name}: hit ratio over that of a fixed cache of the same mean size"] = ours / alike
    found[f"{name}: hit ratio of a fixed cache of the same mean size"] = alike
    return found


def hits_at(mean: float, sizes: Sequence[int], hits: Sequence[float]) -> float:
    """What fixed caches of this size would reach, between those that were run; NaN outside of them."""
    return float(np.interp(np.log(mean), np.log(sizes), hits, left=NAN, right=NAN))


def _caches(view: View | None) -> dict[str, float]:
    names = (
        "share of time with a cache at its minimum",
        "share of caches at their minimum",
        "mean size over the largest allowed",
        "mean size",
        "share of spikes within 5 s of which the largest of all caches rose",
        "share of spikes within 5 s of which the largest cache of that publisher rose",
    )
    if view is None:
        return dict.fromkeys(names, NAN)
    least, mean, most = size_curves(view)
    begin = int(PUBLISHING_STARTS)
    average = float(mean[begin:].mean())
    at_least = float((least[begin:] == CACHE_MIN).mean())
    values = (at_least, _at_minimum(view), average / CACHE_MAX, average, _grown(view, most), _grown(view))
    return dict(zip(names, values, strict=True))


def _at_minimum(view: View) -> float:
    """Which share of the caches has the least size, over time; one that says nothing has it."""
    sizes, begin, end = view.cache_sizes, int(PUBLISHING_STARTS), int(view.scenario.duration)
    within = (sizes["second"] >= begin) & (sizes["second"] < end) & (sizes["entries"] > CACHE_MIN)
    return 1.0 - float(within.sum()) / (_rings(view) * (end - begin))


def _rings(view: View) -> int:
    """A cache for each subscriber and publisher."""
    return len(view.published_by_publisher) * sum(bool(client.subscribe) for client in view.scenario.client)


def size_curves(view: View) -> tuple[Floats, Floats, Floats]:
    """The least, mean and largest size of all caches in each second; a cache that says nothing has its minimum."""
    sizes, seconds = view.cache_sizes, int(view.scenario.duration)
    within = sizes["second"] < seconds
    second, entries = sizes["second"][within], sizes["entries"][within].astype(float)
    rings = _rings(view)
    number = np.bincount(second, minlength=seconds)
    total = np.bincount(second, weights=entries, minlength=seconds) + CACHE_MIN * (rings - number)
    most = np.full(seconds, float(CACHE_MIN))
    np.maximum.at(most, second, entries)
    least = np.full(seconds, float(CACHE_MAX))
    np.minimum.at(least, second, entries)
    least[number < rings] = CACHE_MIN
    return least, total / rings, most


def _grown(view: View, most_of_all: Floats | None = None) -> float:
    """After which share of the spikes the largest cache rose in good time: that of the publisher, or of all."""
    sizes, seconds = view.cache_sizes, int(view.scenario.duration)
    rose = []
    for publisher, rates in view.published_by_publisher.items():
        mine = (sizes["publisher"] == publisher) & (sizes["second"] < seconds)
        most = np.full(seconds, float(CACHE_MIN))
        np.maximum.at(most, sizes["second"][mine], sizes["entries"][mine].astype(float))
        most = most if most_of_all is None else most_of_all
        starts = np.flatnonzero((rates[1:] >= SPIKE) & (rates[:-1] < SPIKE)) + 1
        rose += [most[start : start + 1 + RISES_WITHIN].max() > most[start - 1] for start in starts]
    return float(np.mean(rose)) if rose else NAN


def _draw_caches(views: Views) -> Sequence[Figure]:
    figures = []
    for brokers, publishers in networks("paper"):
        view = views.get(f"{brokers}, {publishers}")
        if view is not None:
            curves = dict(zip(("smallest cache", "mean cache", "largest cache"), size_curves(view), strict=True))
            caption = f"Messages that caches keep of one publisher, {named(brokers, publishers)} (Figure 4.11)."
            figures.append(Figure(caption=caption, spec=style.over_time(curves, "messages")))
    return figures


def _of_traffic(brokers: Size, publishers: str) -> tuple[Criterion, ...]:
    name = named(brokers, publishers)
    requests, repairs = {
        12: (("more than 90 %", 0.85), ("more than 80 %", 0.75)),
        46: (("80 %", 0.75), ("70 %", 0.65)),
    }[brokers]
    return (
        Criterion(name=f"{name}: requests that are no duplicates", paper=requests[0], low=requests[1], scales=PAPER),
        Criterion(name=f"{name}: repairs that are no duplicates", paper=repairs[0], low=repairs[1], scales=PAPER),
        Criterion(
            name=f"{name}: requests over repairs, least of all windows",
            judged="every seed",
            paper="more requests than repairs",
            low=1.0,
            scales=PAPER,
        ),
        Criterion(
            name=f"{name}: requests and repairs over publications", paper="insignificant", high=0.2, scales=PAPER
        ),
        Criterion(
            name=f"{name}: share of messages that anybody lost",
            paper="-",
            kind="goal",
            scales=PAPER,
            note="reported; each needs at least a request and a repair",
        ),
    )


def _of_hits(brokers: Size, publishers: str) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    name = named(brokers, publishers)
    with_publishers = Criterion(
        name=f"{name}: hit ratio with what publishers keep", paper="-", kind="goal", scales=scales, note="reported"
    )
    return (
        Criterion(name=f"{name}: hit ratio of the caches", paper="high, level not printed", low=0.9, scales=PAPER),
        Criterion(
            name=f"{name}: standard deviation over windows",
            paper="does not exhibit large changes",
            high=0.05,
            scales=PAPER,
        ),
        *((with_publishers,) if publishers == ANSWERING else ()),
    )


def _of_caches(brokers: Size, publishers: str) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    name = named(brokers, publishers)
    fixed = (
        Criterion(
            name=f"{name}: hit ratio over that of a fixed cache of the same mean size",
            paper="-",
            low=1.0,
            scales=PAPER,
            note="a baseline that the experiments page asks for, interpolated between fixed caches"
            f" of {', '.join(map(str, FIXED['paper']))} messages",
        ),
        Criterion(name=f"{name}: mean size", paper="small", kind="goal", note="reported"),
    )
    return (
        Criterion(
            name=f"{name}: share of time with a cache at its minimum",
            paper="the smallest cache has the minimum",
            low=0.5,
            kind="illustration",
            scales=scales,
            note="of hundreds of caches one is always idle",
        ),
        Criterion(
            name=f"{name}: share of caches at their minimum",
            paper="most nodes keep to the minimum",
            low=0.5,
            scales=scales,
        ),
        Criterion(name=f"{name}: mean size over the largest allowed", paper="small", high=0.25, scales=scales),
        Criterion(
            name=f"{name}: share of spikes within 5 s of which the largest of all caches rose",
            paper="active repairers follow the rate",
            low=1.0,
            scales=PAPER,
            note="as the experiments page words it",
        ),
        Criterion(
            name=f"{name}: share of spikes within 5 s of which the largest cache of that publisher rose",
            paper="active repairers follow the rate",
            kind="goal",
            scales=PAPER,
            note="reported",
        ),
        *(fixed if (brokers, publishers) == (12, SILENT) else ()),
    )


EXPERIMENTS = (
    Experiment(
        name="recovery-control-traffic",
        title="Requests and repairs, and how many are in vain",
        source="002 section 4.4.3, Figure 4.8",
        about="Whoever receives another's request or repair holds its own back, so most are sent once. Requests get"
        " lost and are sent again, so there are more of them than repairs.",
        plans=with_recovery,
        measure=_measure_traffic,
        draw=_draw_traffic,
        parameters=PARAMETERS,
        criteria=tuple(one for place in networks("paper") for one in _of_traffic(*place)),
    ),
    Experiment(
        name="recovery-cache-hit-ratio",
        title="How many requests find their message in a cache",
        source="002 section 4.4.4, Figure 4.10",
        about="The network is looked at as one cache: the caches of all clients that a request reaches.",
        plans=with_recovery,
        measure=_measure_hits,
        product=NO_CACHES,
        draw=_draw_hits,
        parameters=PARAMETERS,
        criteria=tuple(one for place in networks("paper") for one in _of_hits(*place)),
    ),
    Experiment(
        name="recovery-cache-size",
        title="Caches stay small, and grow where they are needed",
        source="002 section 4.4.4, Figure 4.11",
        about="Whoever sends repairs keeps what the rate asks for, everybody else shrinks to the minimum. A fixed cache"
        " of the same mean size keeps as much, but in the wrong places.",
        plans=_cache_plans,
        measure=_measure_caches,
        product=NO_CACHES,
        draw=_draw_caches,
        parameters={
            **PARAMETERS,
            "fixed caches": f"of {FIXED['paper']} messages per publisher, 12 brokers, publishers silent",
        },
        criteria=tuple(one for place in networks("paper") for one in _of_caches(*place)),
    ),
)

"""002 sections 4.4.2 and 4.4.3: how long it takes to get a message back, and how much longer all others take.

The delay of a repair runs from the publication to its delivery. It has two parts: until the client notices the loss,
and from there until the repair comes, which is mostly waiting and two ways through the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.recovery.effect import NAN, PAPER, median, request_to_repair
from penstock.lab.papers.recovery.setting import PARAMETERS, SILENT, both, named, networks, recovering, with_recovery
from penstock.lab.setups.recovery import Size

ENTRY_BYTES = 36  # of a record: 32 for the encoding, 4 for its age


# Figure 4.7.


def _cdf_plans(scale: Scale) -> Mapping[str, Plan]:
    slow: dict[str, Any] = {
        "request_first": 2.0,
        "request_spread": 2.0,
        "repair_first": 1.0,
        "repair_spread": 1.0,
        "adaptive_suppression": False,
    }
    return {**with_recovery(scale), **({"12, SRM": recovering(12, scale, SILENT, **slow)} if scale == "paper" else {})}


def _measure_cdf(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers, publishers in networks("paper"):
        parts = _parts(views.get(f"{brokers}, {publishers}"))
        found |= {f"{named(brokers, publishers)}: {name}": value for name, value in parts.items()}
    slow = _parts(views.get("12, SRM"))
    name = "request to repair, 80th percentile (s)"
    return found | {f"12 brokers, SRM's constants: {name}": slow[name]}


def _parts(view: View | None) -> dict[str, float]:
    names = (
        "request to repair, 80th percentile (s)",
        "repair over original, median delay",
        "share of the time to recover that is not between request and repair",
        "share of the time to recover until the loss was noticed",
        "recovery, median (s)",
    )
    if view is None:
        return dict.fromkeys(names, NAN)
    back, waits = view.recoveries, request_to_repair(view)
    if not len(waits) or not len(back["delay"]):
        return dict.fromkeys(names, NAN)
    own = back["detected"] > 0.0  # it noticed the loss itself
    noticed = back["delay"][own] - back["detected"][own]
    repaired = median(back["delay"])
    values = (
        float(np.quantile(waits, 0.8)),
        repaired / median(view.original_delays),
        1.0 - float(waits.mean() / back["delay"].mean()),
        float(noticed.sum() / back["delay"][own].sum()),
        repaired,
    )
    return dict(zip(names, values, strict=True))


def _draw_cdf(views: Views) -> Sequence[Figure]:
    figures = []
    for brokers, publishers in networks("paper"):
        view = views.get(f"{brokers}, {publishers}")
        if view is not None:
            curves = {
                "original messages": view.original_delays,
                "repairs": view.recoveries["delay"],
                "request to repair": request_to_repair(view),
            }
            words = f"Delays of originals and repairs, and from request to repair, {named(brokers, publishers)}"
            figures.append(Figure(caption=f"{words} (Figure 4.7).", spec=cumulative(curves)))
    return figures


def cumulative(curves: Mapping[str, Floats]) -> dict[str, object]:
    """Cumulative distributions, up to their 99th percentile."""
    shares = np.linspace(0.0, 0.99, 100)
    rows = [
        {"delay": float(delay), "share": float(share), "series": name}
        for name, values in curves.items()
        if len(values)
        for delay, share in zip(np.quantile(values, shares), shares, strict=True)
    ]
    return style.lines(rows, x="delay", y="share", series=list(curves), x_title="delay (s)", y_title="share")


# Figure 4.9.


def _measure_overhead(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for brokers, publishers in networks("paper"):
        shift, name = _shift(views, brokers, publishers), named(brokers, publishers)
        found[f"{name}: median shift (ms)"] = shift[1]
        found[f"{name}: shift at 80 % less that at 20 % (ms)"] = abs(shift[2] - shift[0])
        found[f"{name}: the same over the median shift"] = abs(shift[2] - shift[0]) / shift[1]
        found[f"{name}: of the shift, sending the record (ms)"] = _sending(views, brokers)
    return found


def _shift(views: Views, brokers: Size, publishers: str) -> Floats:
    """By how much the delays of originals grow, at 20, 50 and 80 %, in milliseconds."""
    if f"{brokers}, {publishers}" not in views:
        return np.full(3, NAN)
    shares = (0.2, 0.5, 0.8)
    after = np.quantile(views[f"{brokers}, {publishers}"].original_delays, shares)
    before = np.quantile(views[f"{brokers}, none"].original_delays, shares)
    shift: Floats = 1000 * (after - before)
    return shift


def _sending(views: Views, brokers: int) -> float:
    """How long the bytes of a record of ten entries take on the links of a median way, in milliseconds."""
    view = views.get(f"{brokers}, none")
    if view is None:
        return NAN
    links = view.scenario.link
    per_link = float(np.mean([link.delay for link in links]))
    rate = links[0].rate_bits_per_s
    assert rate is not None
    hops = float(np.median(view.original_delays)) / per_link
    return 1000 * hops * 10 * ENTRY_BYTES * 8 / rate


def _draw_overhead(views: Views) -> Sequence[Figure]:
    return [
        Figure(
            caption=f"Delays of originals without and with recovery, {named(brokers, publishers)} (Figure 4.9).",
            spec=cumulative(
                {
                    "without recovery": views[f"{brokers}, none"].original_delays,
                    "with recovery": views[f"{brokers}, {publishers}"].original_delays,
                }
            ),
        )
        for brokers, publishers in networks("paper")
        if f"{brokers}, none" in views
    ]


def _of_cdf(brokers: Size, publishers: str) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    name = named(brokers, publishers)
    reported, bound = {12: ("below 200 ms", 0.25), 46: ("below 350 ms", 0.45)}[brokers]
    return (
        Criterion(
            name=f"{name}: request to repair, 80th percentile (s)",
            paper=f"{reported} for 80 %",
            high=bound,
            scales=PAPER,
        ),
        Criterion(
            name=f"{name}: repair over original, median delay", paper="considerably larger", low=2.0, scales=scales
        ),
        Criterion(
            name=f"{name}: share of the time to recover that is not between request and repair",
            paper="a large part, taken for late detection",
            kind="goal",
            scales=PAPER,
            note="reported; reckoned as in the paper: all but the time from request to repair",
        ),
        Criterion(
            name=f"{name}: share of the time to recover until the loss was noticed",
            paper="a large part",
            low=0.5,
            scales=PAPER,
            note="of what the client noticed itself",
        ),
        Criterion(name=f"{name}: recovery, median (s)", paper="-", kind="goal", scales=scales, note="reported"),
    )


def _of_overhead(brokers: Size, publishers: str) -> tuple[Criterion, ...]:
    scales: tuple[Scale, ...] = ("paper", "smoke") if brokers == 12 else PAPER
    name = named(brokers, publishers)
    return (
        Criterion(name=f"{name}: median shift (ms)", paper="about 25 ms", low=1.0, high=40.0, scales=PAPER),
        Criterion(
            name=f"{name}: shift at 80 % less that at 20 % (ms)",
            paper="a constant increase",
            high=20.0,
            kind="illustration",
            scales=scales,
            note="our shifts are a tenth of the paper's, so none of them could be so uneven",
        ),
        Criterion(
            name=f"{name}: the same over the median shift",
            paper="a constant increase: 0",
            kind="goal",
            scales=PAPER,
            note="reported",
        ),
        Criterion(
            name=f"{name}: of the shift, sending the record (ms)",
            paper="-",
            kind="goal",
            scales=PAPER,
            note="reported; what is left is queueing",
        ),
    )


EXPERIMENTS = (
    Experiment(
        name="recovery-delay-cdf",
        title="How long it takes to get a message back",
        source="002 section 4.4.2, Figure 4.7",
        about="From the first request to the first repair it takes little more than a way through the network; most of"
        " the rest is the time until somebody notices the loss.",
        plans=_cdf_plans,
        measure=_measure_cdf,
        draw=_draw_cdf,
        parameters=PARAMETERS,
        criteria=(
            *(one for place in networks("paper") for one in _of_cdf(*place)),
            Criterion(
                name="12 brokers, SRM's constants: request to repair, 80th percentile (s)",
                paper="below 200 ms for 80 %",
                kind="goal",
                scales=PAPER,
                note="reported; C1 = C2 = 2, D1 = D2 = 1, no tuning",
            ),
        ),
    ),
    Experiment(
        name="recovery-delivery-delay-overhead",
        title="What recovery costs the messages that were not lost",
        source="002 section 4.4.3, Figure 4.9",
        about="Records make messages longer, and requests and repairs share the links with them. All messages take a"
        " little longer; whether by the same time, the spread of the shift beside its median tells.",
        plans=both,
        measure=_measure_overhead,
        draw=_draw_overhead,
        parameters=PARAMETERS,
        criteria=tuple(one for place in networks("paper") for one in _of_overhead(*place)),
    ),
)

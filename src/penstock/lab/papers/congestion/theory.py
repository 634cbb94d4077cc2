"""What the control is built on, without a network: TCP's response function, and how well losses can be counted.

002 Figure 5.1: the response function over loss and round trip. 000 Figure 5: a subscriber sees the losses of its flow
only as far as publication records tell of them. A flow is sent over a link that cannot carry it; the same arrivals are
counted with a record that tells everything, with five entries and with two, by the very class that the transport uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.kernel.randomness import derive
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.engine.view import Floats
from penstock.lab.pages import style
from penstock.lab.papers.congestion.setting import curves
from penstock.transport.receiver.loss_intervals import GapRule, LossIntervals
from penstock.transport.receiver.tcp_equation import allowed_rate

# Figure 5.1, and the experiments page's exact values of it.
PACKET_BYTES = 1000
PER_ROUND_TRIP = {0.001: 38.384, 0.01: 11.233, 0.02: 7.325, 0.05: 3.686, 0.1: 1.770, 0.2: 0.537, 1.0: 0.0041099}
KBITS_AT_100_MS = {0.001: 3070.7, 0.01: 898.7, 0.05: 294.9, 0.1: 141.6}
ROUND_TRIPS = (0.010, 0.020, 0.100, 0.200)
LOSSES = (0.001, 0.01, 0.1)

# Figure 5.
PUBLISHED = 1000.0  # messages/s
MATCH = 0.2
CARRIED = 0.97  # of the matched rate
QUEUE = 30  # messages
ROUND_TRIP = 0.1
SECONDS = 100.0
SETTLED = 10.0  # from here on means are taken
REPEATS = {"paper": 20, "smoke": 3}
EVERYTHING = 1_000_000
NO_LOSS = 2 * EVERYTHING
LOOK_EVERY = 10  # arrivals
SIZES = {"all known": EVERYTHING, "record of 5": 5, "record of 2": 2}


# The response function.


def _measure_response(views: Views) -> Mapping[str, float]:
    per_round_trip = [allowed_rate(p, 1.0) / exact - 1.0 for p, exact in PER_ROUND_TRIP.items()]
    kbits = [_kbits(p, 0.1) / exact - 1.0 for p, exact in KBITS_AT_100_MS.items()]
    slopes = [
        np.log(allowed_rate(p, after) / allowed_rate(p, before)) / np.log(after / before)
        for p in LOSSES
        for before, after in pairwise(ROUND_TRIPS)
    ]
    to_loss = [_kbits(0.01, trip) - _kbits(0.1, trip) for trip in ROUND_TRIPS]
    to_trip = [_kbits(p, 0.01) - _kbits(p, 0.2) for p in LOSSES]
    return {
        "furthest from the exact values (relative)": float(np.abs(per_round_trip + kbits).max()),
        "elasticity to the round trip, furthest from -1": float(np.abs(np.array(slopes) + 1.0).max()),
        "longer round trips react less to loss (smallest fall, kbit/s)": float(min(-np.diff(to_loss))),
        "less loss reacts more to the round trip (smallest fall, kbit/s)": float(min(-np.diff(to_trip))),
    }


def _kbits(p: float, round_trip: float) -> float:
    return 8.0 * PACKET_BYTES * allowed_rate(p, round_trip) / 1000.0


def _draw_response(views: Views) -> Sequence[Figure]:
    over_loss = [
        {"loss": float(p), "rate": _kbits(float(p), trip), "series": f"RTT {1000 * trip:g} ms"}
        for trip in ROUND_TRIPS
        for p in np.linspace(0.01, 0.1, 91)
    ]
    over_trip = [
        {"trip": float(trip), "rate": _kbits(p, float(trip) / 1000.0), "series": f"loss {p:g}"}
        for p in LOSSES
        for trip in np.linspace(10.0, 200.0, 96)
    ]
    names = ([f"RTT {1000 * trip:g} ms" for trip in ROUND_TRIPS], [f"loss {p:g}" for p in LOSSES])
    return (
        Figure(
            caption="TCP's rate over the loss event rate (Figure 5.1a).",
            spec=style.lines(
                over_loss, x="loss", y="rate", series=names[0], x_title="loss event rate", y_title="kbit/s"
            ),
        ),
        Figure(
            caption="TCP's rate over the round trip (Figure 5.1b).",
            spec=style.lines(
                over_trip, x="trip", y="rate", series=names[1], x_title="round trip (ms)", y_title="kbit/s"
            ),
        ),
    )


# The estimator.


class Arrival(NamedTuple):
    """A message that came: when, how many numbers are missing before it, and which of those were lost, counted back."""

    time: float
    gap: int
    nearest_loss: int  # 1: the message just before it was wanted and lost; NO_LOSS: none was


def arrivals(seed: int, repeat: int) -> list[Arrival]:
    """Poisson publications of which some are wanted, through a queue in front of a link that is a little too slow."""
    random = np.random.default_rng(derive(seed, "loss-estimator", repeat))
    count = int(1.05 * PUBLISHED * SECONDS)
    times = np.cumsum(random.exponential(1.0 / PUBLISHED, count))
    wanted = random.random(count) < MATCH
    step = 1.0 / (CARRIED * MATCH * PUBLISHED)
    found: list[Arrival] = []
    free_at, last, lost_at = 0.0, -1, -1
    for number in np.flatnonzero(wanted & (times < SECONDS)).tolist():
        now = float(times[number])
        if free_at - now > QUEUE * step:
            lost_at = number
            continue
        free_at = max(free_at, now) + step
        nearest = number - lost_at if lost_at > last else NO_LOSS
        found.append(Arrival(free_at, number - last - 1, nearest))
        last = number
    return found


def estimates(came: Sequence[Arrival], record: int, rule: GapRule) -> tuple[Floats, Floats, Floats]:
    """Times, loss event rates and allowed rates, at every tenth arrival after the first loss event."""
    events = LossIntervals(rule=rule)
    received = CARRIED * MATCH * PUBLISHED
    rows = []
    for number, (time, gap, nearest) in enumerate(came):
        events.delivered(
            gap,
            record,
            nearest <= record,
            match_probability=received / PUBLISHED,
            round_trip=ROUND_TRIP,
            reception_rate=received,
            now=time,
        )
        if number % LOOK_EVERY == 0 and events.events:
            rows.append((time, events.rate, allowed_rate(events.rate, ROUND_TRIP)))
    table = np.array(rows).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _measure_estimator(views: Views) -> Mapping[str, float]:
    ways: dict[str, tuple[int, GapRule]] = {name: (size, "probable") for name, size in SIZES.items()}
    ways |= {f"{name}, no correction": (SIZES[name], "optimistic") for name in list(SIZES)[1:]}
    sums = {name: np.zeros(2) for name in ways}
    for repeat in range(REPEATS[views.scale]):
        came = arrivals(views.seed, repeat)
        for name, way in ways.items():
            times, loss, allowed = estimates(came, *way)
            settled = times >= SETTLED
            sums[name] += (loss[settled].mean(), allowed[settled].mean())
    found = {f"{name}: loss event rate": float(both[0]) / REPEATS[views.scale] for name, both in sums.items()}
    ratios = {name: float(both[1] / sums["all known"][1]) for name, both in sums.items()}
    found |= {f"{name}: throughput over the ideal": value for name, value in ratios.items() if name != "all known"}
    levels = [found[f"{name}: loss event rate"] for name in SIZES]
    found["the longer the record, the more losses are seen (smallest step)"] = min(a - b for a, b in pairwise(levels))
    found["correction nearer to the ideal (smallest gain)"] = min(
        abs(ratios[f"{name}, no correction"] - 1.0) - abs(ratios[name] - 1.0) for name in list(SIZES)[1:]
    )
    return found


def _draw_estimator(views: Views) -> Sequence[Figure]:
    came = arrivals(views.seed, 0)
    seconds = np.arange(int(SECONDS))
    loss: dict[str, Floats] = {}
    rates: dict[str, Floats] = {}
    for name, size in SIZES.items():
        times, events, allowed = estimates(came, size, "probable")
        places = np.clip(np.searchsorted(times, seconds, side="right") - 1, 0, len(times) - 1)
        loss[name], rates[name] = events[places], allowed[places]
    return (
        curves("Estimated loss event rate (Figure 5, left).", loss, "loss event rate"),
        curves("TCP's rate at that loss (Figure 5, right).", rates, "messages per second"),
    )


EXPERIMENTS = (
    Experiment(
        name="tcp-response-curves",
        title="What a TCP connection would reach",
        source="002 section 5.1.2, Figure 5.1",
        about="The response function of TCP, by which a flow knows its fair rate. It falls with loss and with the round"
        " trip.",
        plans=lambda scale: {},
        measure=_measure_response,
        draw=_draw_response,
        parameters={"packets": f"{PACKET_BYTES} bytes"},
        criteria=(
            Criterion(
                name="furthest from the exact values (relative)", judged="every seed", paper="the equation", high=1e-3
            ),
            Criterion(
                name="elasticity to the round trip, furthest from -1",
                judged="every seed",
                paper="-1",
                high=1e-9,
                kind="illustration",
            ),
            Criterion(
                name="longer round trips react less to loss (smallest fall, kbit/s)",
                judged="every seed",
                paper="less sensitive",
                low=0.0,
                kind="illustration",
                note="in absolute terms (erratum C12)",
            ),
            Criterion(
                name="less loss reacts more to the round trip (smallest fall, kbit/s)",
                judged="every seed",
                paper="reacts more",
                low=0.0,
                kind="illustration",
                note="in absolute terms (erratum C12)",
            ),
        ),
    ),
    Experiment(
        name="loss-estimator-record-size",
        title="How well a short record shows the losses",
        source="000 section III-C, Figure 5 (002 section 5.2.3, Figure 5.7)",
        about="A subscriber that wants one message in five sees gaps all the time. A record of five tells it nearly all"
        " about its losses, one of two misses many, and so it takes itself for better off than it is.",
        plans=lambda scale: {},
        measure=_measure_estimator,
        draw=_draw_estimator,
        parameters={
            "publisher": f"{PUBLISHED:g} messages/s, Poisson, of which {MATCH:.0%} match",
            "link": f"{CARRIED:.0%} of the matched rate, a queue of {QUEUE} messages, round trip 100 ms",
            "means": f"over {REPEATS['paper']} times {SECONDS:g} s, without the first {SETTLED:g}",
        },
        criteria=(
            Criterion(
                name="the longer the record, the more losses are seen (smallest step)",
                judged="every seed",
                paper="k = 2 misses many, k = 5 is reasonably accurate",
                low=0.0,
            ),
            Criterion(name="correction nearer to the ideal (smallest gain)", judged="every seed", paper="-", low=0.0),
            Criterion(name="record of 5: throughput over the ideal", paper="close to the ideal", low=1.0, high=1.25),
            Criterion(name="record of 2: throughput over the ideal", paper="often larger", low=1.2, high=1.7),
        ),
    ),
)

"""Figure 3.15: one pair through time. The latch follows the publisher's rate, and a record spares most of the waits.

The paper shows a pair of its network whose publisher changes its rate. Here it is a chain of five brokers with one
publisher whose rate climbs, with spikes between, and one subscriber that wants a fifth of its messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace as changed
from scipy import stats

from penstock.lab import setups
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.trace_ordering import RecordedPair, order_trace
from penstock.lab.engine.trace_ordering_runs import read_pairs
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages import style
from penstock.lab.papers.ordering.instances import EIGHT, appendix
from penstock.scenario.spec import Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.transport.config import TransportConfig
from penstock.transport.ordering.reorder_buffer import ReorderBuffer

STAGES = 5
SECONDS = {"paper": 120.0, "smoke": 24.0}
RATES = (20.0, 400.0)
SPIKE_RATE = 1200.0
VALUES = 10  # of which the subscriber wants two
INSTANCES = {one.name: one for one in EIGHT}
BASIC, ENHANCED = INSTANCES[appendix(0.05, 0)], INSTANCES[appendix(0.05, 25)]
FRAME_HEIGHT = 110


def _scenario(scale: Scale) -> Scenario:
    chain = setups.chain(STAGES, messages=1)
    publisher, subscriber = chain.client
    flow = PublisherSpec(
        rate_messages_per_s=RATES[0],
        rate_end_messages_per_s=RATES[1],
        spike_rate_messages_per_s=SPIKE_RATE,
        spike_every=8.0,
        spike_lasts=(1.0, 3.0),
        start=2.0,
        attributes={"kind": "probe", "value": Recipe(integer=(0, VALUES - 1))},
    )
    subscription = SubscriptionSpec(where="value = 3 OR value = 7")
    return changed(
        chain,
        name=f"adaptivity-{scale}",
        duration=SECONDS[scale],
        client=(changed(publisher, publish=(flow,)), changed(subscriber, subscribe=(subscription,))),
    )


@dataclass(frozen=True)
class Frames:
    """What the machine of one mode showed, second by second; nan where no message came at a gap."""

    chance: Floats  # mean estimated probability that the missing one is still on its way, before any latch
    latch: Floats  # mean latch of the messages that got one, 0 if none did
    latched: int  # messages that got one


def _frames(pair: RecordedPair, config: TransportConfig, seconds: int) -> Frames:
    sums = np.zeros((4, seconds))  # gaps, chance, latched, assigned, each summed over the seconds
    before = [0.0] * 4

    def watch(now: float, ordering: ReorderBuffer[int]) -> None:
        after = [ordering.gaps, ordering.overtaking_sum, ordering.latched, ordering.assigned_seconds]
        if now < seconds:
            sums[:, int(now)] += [new - old for new, old in zip(after, before, strict=True)]
        before[:] = after

    outcome = order_trace(pair, config, watch)
    gaps, chance, latched, assigned = sums
    with np.errstate(invalid="ignore"):
        return Frames(chance / gaps, assigned / np.maximum(1.0, latched), outcome.latched)


def _pair(view: View) -> tuple[RecordedPair, int]:
    (pair,) = read_pairs(view.tables, (BASIC, ENHANCED)).values()
    return pair, int(view.scenario.duration)


def _measure(views: Views) -> Mapping[str, float]:
    view = views["chain"]
    pair, seconds = _pair(view)
    basic, enhanced = _frames(pair, BASIC.config, seconds), _frames(pair, ENHANCED.config, seconds)
    seen = np.isfinite(basic.chance)
    rates = view.published_per_second()
    return {
        "rank correlation of rate and estimated probability": _rank_correlation(rates[seen], basic.chance[seen]),
        "rank correlation of rate and latch, basic": _rank_correlation(rates[seen], basic.latch[seen]),
        "latches in basic mode over enhanced": basic.latched / max(1, enhanced.latched),
        "match": len(pair.arrivals) / len(pair.departures),
        "FIFO violations": float(pair.late.sum()),
    }


def _rank_correlation(a: Floats, b: Floats) -> float:
    return float(stats.spearmanr(a, b).statistic)


def _draw(views: Views) -> Sequence[Figure]:
    view = views["chain"]
    pair, seconds = _pair(view)
    basic, enhanced = _frames(pair, BASIC.config, seconds), _frames(pair, ENHANCED.config, seconds)
    late = [{"time": float(time), "late": 1} for time in pair.arrivals[pair.late]]
    points = style.points(late, x="time", y="late", x_title="time (s)", y_title="")
    frames = {
        "messages that came out of order": points,
        "publication rate": _curve(view.published_per_second(), "messages/s"),
        "estimated probability of a violation": _curve(np.nan_to_num(basic.chance), "probability"),
        "mean latch with a record of 25": _curve(1000 * enhanced.latch, "ms"),
        "mean latch in basic mode": _curve(1000 * basic.latch, "ms"),
    }
    return tuple(
        Figure(caption=f"{name.capitalize()} (Figure 3.15, frame {number}).", spec={**spec, "height": FRAME_HEIGHT})
        for number, (name, spec) in enumerate(frames.items(), start=1)
    )


def _curve(values: Floats, title: str) -> Mapping[str, object]:
    return style.over_time({"measured": values}, title)


EXPERIMENT = Experiment(
    name="fifo-adaptivity-trace",
    title="The latch follows the publisher's rate",
    source="002 section 3.5.3, Figure 3.15",
    about="The closer messages follow each other, the likelier one is overtaken, and the longer the latch. Without a"
    " record the latch closes at every gap, and most gaps are messages for others.",
    plans=lambda scale: {"chain": Plan(scenario=_scenario(scale))},
    measure=_measure,
    draw=_draw,
    parameters={
        "network": f"{STAGES} brokers in a chain, links 50 ms, constant; exponential service, mean 1 ms, never a queue",
        "publisher": f"{RATES[0]:g} to {RATES[1]:g} messages/s, climbing, and spikes of {SPIKE_RATE:g}/s",
        "subscriber": f"wants 2 of {VALUES} equally likely values",
        "ordering": "P_t 0.05, the appendix's quantile, ring of 25",
    },
    criteria=(
        Criterion(
            name="rank correlation of rate and estimated probability", paper="follows the trend of the rate", low=0.7
        ),
        Criterion(name="latches in basic mode over enhanced", paper="spikes more frequently", low=3.0),
        Criterion(
            name="match",
            paper="-",
            high=0.25,
            kind="illustration",
            note="the second bound is for a match of at most about 0.2",
        ),
        Criterion(name="rank correlation of rate and latch, basic", paper="follows too", kind="goal", note="reported"),
    ),
)

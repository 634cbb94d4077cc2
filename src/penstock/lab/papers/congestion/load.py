"""000 section IV-B: one publisher, one subscriber, and a bottleneck that is too small or changes (Figures 7 and 8).

Figure 7: the publisher's rate climbs, stays far above what the link takes, falls, and then has bursts. Figure 8: the
link's rate alternates. What matters is that hardly anything is lost, that the link stays full, and that messages which
do not go through the link leave as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.congestion.setting import (
    PAPER,
    PARAMETERS,
    delay_criteria,
    each_second,
    in_namespaces,
    link_figure,
    longest,
    mean_delays,
    measured,
    message_rates,
    rate,
    time_until,
)
from penstock.lab.setups.dumbbell import DumbbellPair, Stretch, dumbbell
from penstock.scenario.spec import Scenario

LINK = ("left", "right")
FREE, CONTROLLED = "without control", "with control"

# Figure 7. The smoke version is eight times shorter and has a quarter of the messages, of which four times as many are
# wanted.
LOAD_BITS = 500e3
MATCH = 0.223  # losses begin at 1000 messages/s
RAMP, HOLD, FALL, END = 60.0, 120.0, 150.0, 250.0
BURST_EVERY, BURST_LASTS = 20.0, 5.0
SHORTER, FEWER = 8.0, 4.0

# Figure 8.
LOW_BITS, HIGH_BITS = 1e6, 2e6
PERIOD = {"paper": 40.0, "smoke": 8.0}
ALTERNATES = {"paper": 250.0, "smoke": 24.0}
OFFERED = {"paper": (4000.0, 0.3), "smoke": (1200.0, 1.0)}  # published messages/s, and the share that is wanted
WITHIN = 0.15  # of the new level


# Variable load.


def load_plans(scale: Scale) -> Mapping[str, Plan]:
    """Figure 7."""
    return {name: Plan(scenario=_load(scale, name == CONTROLLED)) for name in (FREE, CONTROLLED)}


def _load(scale: Scale, controlled: bool) -> Scenario:
    shorter, fewer = (1.0, 1.0) if scale == "paper" else (SHORTER, FEWER)
    bursts = [float(at) for at in np.arange(FALL, END, BURST_EVERY)]
    quiet = BURST_EVERY - BURST_LASTS
    profile = [Stretch(0.0, RAMP, 400, 4000), Stretch(RAMP, HOLD, 4000), Stretch(HOLD, FALL, 4000, 600)]
    profile += [Stretch(at, at + quiet, 600) for at in bursts]
    profile += [Stretch(at + quiet, at + BURST_EVERY, 2500) for at in bursts]
    scaled = tuple(
        Stretch(s.start / shorter, s.stop / shorter, s.rate / fewer, s.rate_end / fewer if s.rate_end else None)
        for s in profile
    )
    return dumbbell(
        f"variable-load-{scale}",
        [DumbbellPair(MATCH * fewer, scaled)],
        rate_bits_per_s=LOAD_BITS,
        duration=END / shorter,
        controlled=controlled,
    )


def hold_phase(scale: Scale) -> slice:
    """The seconds of persistent congestion."""
    shorter = 1.0 if scale == "paper" else SHORTER
    return slice(round(RAMP / shorter), round(HOLD / shorter))


def measure_load(views: Views) -> Mapping[str, float]:
    """Losses, deliveries and use of the link."""
    free, controlled = measured(views[FREE]), measured(views[CONTROLLED])
    hold = hold_phase(views.scale)
    use = controlled.link_bits(*LINK)[hold].mean() / LOAD_BITS
    return {
        "losses over the run, with over without control": controlled.missed.sum() / free.missed.sum(),
        "losses in the hold phase, with over without control": controlled.missed[hold].sum() / free.missed[hold].sum(),
        "received, with over without control": controlled.received_together.sum() / free.received_together.sum(),
        "link use in the hold phase": float(use),
        "messages that do not match, with over without control": controlled.unwanted / free.unwanted,
        "received without control": float(free.received_together.sum()),
        "received with control": float(controlled.received_together.sum()),
        "rate at which losses begin (messages/s)": _losses_begin(views),
        **mean_delays(views),
    }


def _losses_begin(views: Views) -> float:
    """The publication rate, without control, in the first second of the ramp from which on every second has losses."""
    free = measured(views[FREE])
    ramp = free.missed[: hold_phase(views.scale).start]
    calm = np.flatnonzero(ramp == 0)
    first = int(calm[-1]) + 1 if len(calm) else 0
    published = each_second(np.sum(list(free.published.values()), axis=0))
    fewer = 1.0 if views.scale == "paper" else FEWER
    return float(published[min(first, len(published) - 1)] * fewer)


def _draw_load(views: Views) -> Sequence[Figure]:
    return (
        link_figure("Traffic on the bottleneck (Figure 7, top).", dict(views), *LINK),
        message_rates("Without control (Figure 7a, bottom).", views[FREE]),
        message_rates("With control (Figure 7b, bottom).", views[CONTROLLED]),
    )


# Variable bandwidth.


def bandwidth_plans(scale: Scale) -> Mapping[str, Plan]:
    """Figure 8."""
    published, match = OFFERED[scale]
    return {
        name: Plan(
            scenario=dumbbell(
                f"variable-bandwidth-{scale}",
                [DumbbellPair(match, (Stretch(0.0, ALTERNATES[scale], published),))],
                rate_bits_per_s=LOW_BITS,
                duration=ALTERNATES[scale],
                controlled=name == CONTROLLED,
                later_rates=[(at, _bits_at(at, scale)) for at in changes(scale)],
            )
        )
        for name in (FREE, CONTROLLED)
    }


def changes(scale: Scale) -> list[float]:
    """When the link's rate changes."""
    return [float(at) for at in np.arange(PERIOD[scale], ALTERNATES[scale] - 5.0, PERIOD[scale])]


def _bits_at(at: float, scale: Scale) -> float:
    return HIGH_BITS if int(at / PERIOD[scale]) % 2 else LOW_BITS


def measure_bandwidth(views: Views) -> Mapping[str, float]:
    """How soon it adapts, what that costs, and how full the link is; the slowest of all changes counts."""
    found = measured(views[CONTROLLED])
    received, sent, period = found.received_together, found.wanted, PERIOD[views.scale]
    falls, rises, sending_falls = [], [], []
    for at in changes(views.scale):
        stop = min(at + period, ALTERNATES[views.scale])
        level = rate(received, (at + stop) / 2.0, stop)
        low, high = (1.0 - WITHIN) * level, (1.0 + WITHIN) * level
        took = time_until(received, at, low, high, stop=stop)
        if _bits_at(at, views.scale) == HIGH_BITS:
            rises.append(took)
        else:
            falls.append(took)
            sending_falls.append(time_until(sent, at, 0.0, high, stop=stop))
    return {
        "after a drop: time until reception is steady (s)": longest(falls),
        "after a rise: time until reception is steady (s)": longest(rises),
        "after a drop: time until sending is steady (s)": longest(sending_falls),
        "lost over received, but 3 s after a drop": _lost_share(views),
        "link use": _use(views),
        "lost over received without control": float(
            measured(views[FREE]).missed.sum() / measured(views[FREE]).received_together.sum()
        ),
        **mean_delays(views),
    }


def _lost_share(views: Views) -> float:
    """Outside the three seconds after the link became slower."""
    found = measured(views[CONTROLLED])
    counts = np.ones(found.seconds, dtype=bool)
    drops = [at for at in changes(views.scale) if _bits_at(at, views.scale) == LOW_BITS]
    for at in drops:
        counts[int(at) : int(at) + 3] = False
    return float(found.missed[counts].sum() / each_second(found.received_together)[counts].sum())


def _use(views: Views) -> float:
    bits = measured(views[CONTROLLED]).link_bits(*LINK)
    capacity = np.array([_bits_at(float(second), views.scale) for second in range(len(bits))])
    return float((bits[2:] / capacity[2:]).mean())


def _draw_bandwidth(views: Views) -> Sequence[Figure]:
    return (
        link_figure("Traffic on the bottleneck (Figure 8, top).", dict(views), *LINK),
        message_rates("Without control (Figure 8a, bottom).", views[FREE]),
        message_rates("With control (Figure 8b, bottom).", views[CONTROLLED]),
    )


EXPERIMENTS = (
    Experiment(
        name="cacc-variable-load",
        title="A publisher that says too much",
        source="000 section IV-B, Figure 7 (002 section 5.3.2, Figure 5.9)",
        about="One publisher offers more than the link to its subscriber takes: slowly more, then for a minute four"
        " times as much, then in bursts. With control the surplus stays at the publisher.",
        plans=load_plans,
        live=lambda: in_namespaces(load_plans("smoke")),
        measure=measure_load,
        draw=_draw_load,
        parameters={
            **PARAMETERS,
            "link": f"{LOAD_BITS / 1000:g} kbit/s",
            "publisher": f"400 to 4000 messages/s in {RAMP:g} s, 60 s of that, down to 600 in 30 s, then bursts of"
            f" {BURST_LASTS:g} s to 2500 every {BURST_EVERY:g} s; {MATCH:.1%} match",
        },
        criteria=(
            Criterion(
                name="losses over the run, with over without control",
                paper="a twentieth",
                judged="every seed",
                high=0.1,
            ),
            Criterion(
                name="losses in the hold phase, with over without control",
                paper="a twentieth, above all where congestion lasts",
                judged="every seed",
                high=0.05,
            ),
            Criterion(
                name="received, with over without control",
                paper="45,000 of 46,000",
                low=0.95,
                scales=PAPER,
                live=(0.85, None),
            ),
            Criterion(name="link use in the hold phase", paper="almost the maximum", low=0.9),
            Criterion(
                name="messages that do not match, with over without control",
                paper="swings of the publication rate remain",
                low=0.99,
                high=1.01,
                kind="illustration",
                note="a flow has the text of its filter, so that what does not match is in none",
            ),
            Criterion(
                name="received without control", paper="nearly 46,000", kind="goal", scales=PAPER, note="reported"
            ),
            Criterion(name="received with control", paper="45,000", kind="goal", scales=PAPER, note="reported"),
            Criterion(
                name="rate at which losses begin (messages/s)",
                paper="above 1000",
                kind="goal",
                scales=PAPER,
                note="reported; the match probability was chosen for it",
            ),
            *delay_criteria(FREE, CONTROLLED),
        ),
    ),
    Experiment(
        name="cacc-variable-bandwidth",
        title="A link that becomes slower and faster",
        source="000 section IV-B, Figure 8 (002 section 5.3.2, Figure 5.10)",
        about="The bottleneck alternates between one and two megabits per second, and more is offered all the time."
        " The flow follows it, both ways, within seconds.",
        plans=bandwidth_plans,
        measure=measure_bandwidth,
        draw=_draw_bandwidth,
        parameters={
            **PARAMETERS,
            "link": "1 and 2 Mbit/s in turn, 40 s each",
            "publisher": "4000 messages/s, of which 30 % match",
            "steady": f"the first half second within {WITHIN:.0%} of the level of the second half of the period",
        },
        criteria=(
            Criterion(
                name="after a drop: time until sending is steady (s)",
                judged="every seed",
                paper="less than two seconds",
                high=2.0,
            ),
            Criterion(
                name="after a drop: time until reception is steady (s)",
                judged="every seed",
                paper="less than two seconds",
                high=2.0,
                kind="illustration",
                note="what is received falls with the link in any case",
            ),
            Criterion(
                name="after a rise: time until reception is steady (s)",
                judged="every seed",
                paper="less than two seconds",
                high=4.0,
            ),
            Criterion(
                name="lost over received, but 3 s after a drop", paper="persistent losses barely noticeable", high=0.03
            ),
            Criterion(name="link use", paper="saturates the new resources", low=0.9),
            Criterion(name="lost over received without control", paper="-", kind="goal", note="reported"),
            *delay_criteria(FREE, CONTROLLED),
        ),
    ),
)

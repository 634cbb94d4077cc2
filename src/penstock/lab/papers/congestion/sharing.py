"""000 sections IV-C and IV-D: who gets how much of a bottleneck that several share (Figures 9 and 10).

Figure 9: three publishers whose subscribers want different parts of them, and a link that is halved twice. Without
control each flow shrinks in proportion to what it wants; with control the largest gives way first, until all have the
same (max-min). Figure 10: a TCP connection joins. Without control it gets what the flow leaves, which is hardly
anything; with control they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.congestion.load import CONTROLLED, FREE, LINK
from penstock.lab.papers.congestion.setting import (
    PAPER,
    PARAMETERS,
    WIRE_BITS,
    curves,
    delay_criteria,
    each_second,
    in_namespaces,
    jain,
    mean_delays,
    measured,
    rate,
    time_until,
)
from penstock.lab.setups.dumbbell import PUBLISHING_STARTS, DumbbellPair, Stretch, dumbbell

# Figure 9. At smoke scale all that is published is wanted, so that there is less to simulate.
MATCHES = (0.40, 0.20, 0.15)
PUBLISHED = 1000.0
PHASE = {"paper": 100.0, "smoke": 10.0}
PHASE_BITS = (2e6, 1e6, 500e3)
SETTLES = {"paper": 10.0, "smoke": 3.0}  # seconds at the beginning of a phase that do not count
SUBSCRIBERS = ("s1", "s2", "s3")

# Figure 10.
TCP_BITS = 1e6
TCP_STARTS = {"paper": 60.0, "smoke": 10.0}
SHARED_FROM = {"paper": 100.0, "smoke": 20.0}
TCP_ENDS = {"paper": 200.0, "smoke": 40.0}
OFFERED = {"paper": (2000.0, 0.6), "smoke": (600.0, 1.0)}
YIELDS_WITHIN = 0.15  # of the link, above its later share


# Three flows.


def fairness_plans(scale: Scale) -> Mapping[str, Plan]:
    """Figure 9."""
    phase = PHASE[scale]
    end = phase * len(PHASE_BITS)
    pairs = [
        DumbbellPair(match, (Stretch(0.0, end, PUBLISHED),))
        if scale == "paper"
        else DumbbellPair(1.0, (Stretch(0.0, end, PUBLISHED * match),))
        for match in MATCHES
    ]
    return {
        name: Plan(
            scenario=dumbbell(
                f"three-flows-{scale}",
                pairs,
                rate_bits_per_s=PHASE_BITS[0],
                duration=end,
                controlled=name == CONTROLLED,
                later_rates=[(phase, PHASE_BITS[1]), (2.0 * phase, PHASE_BITS[2])],
            )
        )
        for name in (FREE, CONTROLLED)
    }


def shares(views: Views, name: str, phase: int) -> list[float]:
    """Messages/s that each subscriber received in a phase, its beginning left out."""
    length = PHASE[views.scale]
    start = max(PUBLISHING_STARTS, phase * length) + SETTLES[views.scale]
    received = measured(views[name]).received
    return [rate(received[who], start, (phase + 1) * length) for who in SUBSCRIBERS]


def measure_fairness(views: Views) -> Mapping[str, float]:
    """Each phase against demand or fair share; the flow that is furthest away counts."""
    demands = np.array([PUBLISHED * match for match in MATCHES])
    found: dict[str, float] = {}
    by_phase = [np.array(shares(views, CONTROLLED, phase)) for phase in range(3)]
    found["phase 1: furthest from its demand"] = float(np.abs(by_phase[0] / demands - 1.0).max())
    for phase in (1, 2):
        fair = PHASE_BITS[phase] / WIRE_BITS / len(MATCHES)
        found[f"phase {phase + 1}: furthest from the fair share"] = float(np.abs(by_phase[phase] / fair - 1.0).max())
        found[f"phase {phase + 1}: Jain index"] = jain(list(by_phase[phase]))
        free = np.array(shares(views, FREE, phase))
        proportional = demands * free.sum() / demands.sum()
        name = f"phase {phase + 1}, without control: furthest from proportional"
        found[name] = float(np.abs(free / proportional - 1.0).max())
        found[f"phase {phase + 1}, without control: Jain index"] = jain(list(free))
    found["phase 2: the largest flow (messages/s)"] = float(by_phase[1][0])
    return found | mean_delays(views)


def _draw_fairness(views: Views) -> Sequence[Figure]:
    length = round(PHASE[views.scale])
    fair = np.repeat([np.nan, *(bits / WIRE_BITS / len(MATCHES) for bits in PHASE_BITS[1:])], length)
    return [
        curves(
            f"Reception of three subscribers, {name} (Figure 9).",
            {
                **{who: each_second(measured(view).received[who]) for who in SUBSCRIBERS},
                "fair share": np.where(np.isnan(fair), 0.0, fair),
            },
            "messages per second",
        )
        for name, view in views.items()
    ]


# With a TCP connection.


def friendliness_plans(scale: Scale) -> Mapping[str, Plan]:
    """Figure 10."""
    published, match = OFFERED[scale]
    return {
        name: Plan(
            scenario=dumbbell(
                f"tcp-friendliness-{scale}",
                [DumbbellPair(match, (Stretch(0.0, TCP_ENDS[scale], published),))],
                rate_bits_per_s=TCP_BITS,
                duration=TCP_ENDS[scale],
                controlled=name == CONTROLLED,
                tcp_start=TCP_STARTS[scale],
            )
        )
        for name in (FREE, CONTROLLED)
    }


def measure_friendliness(views: Views) -> Mapping[str, float]:
    """Shares of the link, once they have settled."""
    start, stop = SHARED_FROM[views.scale], TCP_ENDS[views.scale]
    found: dict[str, float] = {}
    for name, view in views.items():
        content = rate(measured(view).received_together, start, stop) * WIRE_BITS / TCP_BITS
        tcp = float(_tcp_bits(views, name)[int(start) : int(stop)].mean() / TCP_BITS)
        use = float(measured(view).link_bits(*LINK)[int(start) : int(stop)].mean() / TCP_BITS)
        found |= {f"{name}: content": content, f"{name}: TCP": tcp, f"{name}: link use": use}
    begins = TCP_STARTS[views.scale]
    yields_to = (found[f"{CONTROLLED}: content"] + YIELDS_WITHIN) * TCP_BITS / WIRE_BITS
    received = measured(views[CONTROLLED]).received_together
    found["time until content yields (s)"] = time_until(received, begins, 0.0, yields_to, window=1.0, stop=stop)
    found["TCP less content"] = found[f"{CONTROLLED}: TCP"] - found[f"{CONTROLLED}: content"]
    return found | mean_delays(views)


def _tcp_bits(views: Views, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return 8.0 * measured(views[name]).counted("tcp delivered bytes", "tcp")


def _draw_friendliness(views: Views) -> Sequence[Figure]:
    return [
        curves(
            f"A flow and a TCP connection, {name} (Figure 10).",
            {
                "content": each_second(measured(view).received_together) * WIRE_BITS / 1000.0,
                "TCP": _tcp_bits(views, name) / 1000.0,
                "fair share": np.full(measured(view).seconds, TCP_BITS / 2000.0),
            },
            "kbit/s",
        )
        for name, view in views.items()
    ]


EXPERIMENTS = (
    Experiment(
        name="cacc-fairness-three-flows",
        title="Three flows share a link that is halved twice",
        source="000 section IV-C, Figure 9 (002 section 5.3.3, Figure 5.11)",
        about="Three subscribers want 400, 200 and 150 messages/s, and the link takes 893, then 446, then 223. With"
        " control whoever wants most gives way first, until all have the same.",
        plans=fairness_plans,
        measure=measure_fairness,
        draw=_draw_fairness,
        parameters={
            **PARAMETERS,
            "link": "2 Mbit/s, from 100 s on 1, from 200 s on 0.5",
            "publishers": "three with 1000 messages/s each, of which 40, 20 and 15 % match",
            "phases": "100 s; the first ten of each do not count",
        },
        criteria=(
            Criterion(
                name="phase 1: furthest from its demand",
                judged="every seed",
                paper="the exact demands",
                high=0.05,
                scales=PAPER,
            ),
            Criterion(
                name="phase 2: furthest from the fair share",
                judged="every seed",
                paper="140, 150 and 150 of 149 messages/s",
                high=0.15,
                scales=PAPER,
            ),
            Criterion(
                name="phase 3: furthest from the fair share",
                judged="every seed",
                paper="all three shrink evenly",
                high=0.15,
                scales=PAPER,
            ),
            Criterion(name="phase 2: Jain index", paper="fair", low=0.97, scales=PAPER),
            Criterion(name="phase 3: Jain index", paper="fair", low=0.97, scales=PAPER),
            *(
                Criterion(
                    name=f"phase {phase}, without control: furthest from proportional",
                    judged="every seed",
                    paper="proportional",
                    high=0.1,
                    kind="illustration",
                    note="a full queue drops whoever comes",
                )
                for phase in (2, 3)
            ),
            *delay_criteria(FREE, CONTROLLED),
            Criterion(
                name="phase 2: the largest flow (messages/s)",
                paper="140",
                kind="goal",
                scales=PAPER,
                note="reported",
            ),
        ),
    ),
    Experiment(
        name="cacc-tcp-friendliness",
        title="A flow makes room for a TCP connection",
        source="000 section IV-D, Figure 10 (002 section 5.3.4, Figure 5.12)",
        about="A TCP connection begins on a link that a flow has filled. Without control it starves; with control both"
        " have about the same after a few seconds.",
        plans=friendliness_plans,
        live=lambda: in_namespaces(friendliness_plans("smoke")),
        measure=measure_friendliness,
        draw=_draw_friendliness,
        parameters={
            **PARAMETERS,
            "link": "1 Mbit/s",
            "publisher": "2000 messages/s, of which 60 % match",
            "TCP": "NewReno, packets of 280 bytes, each acknowledged by itself (b = 1 in the response function)",
            "yields": f"the first second with at most its later share and {YIELDS_WITHIN:.0%} of the link",
        },
        criteria=(
            Criterion(
                name=f"{FREE}: content",
                paper="more than 900 kbit/s of 1000",
                low=0.85,
                kind="illustration",
                note="a flow that never yields",
            ),
            *delay_criteria(FREE, CONTROLLED),
            Criterion(
                name=f"{CONTROLLED}: content",
                paper="a little less than TCP",
                low=0.35,
                high=0.5,
                scales=PAPER,
                live=(0.25, 0.6),
            ),
            Criterion(
                name=f"{CONTROLLED}: TCP",
                paper="about 5 % of the link more",
                low=0.5,
                high=0.65,
                scales=PAPER,
                live=(0.4, 0.75),
            ),
            Criterion(
                name="time until content yields (s)",
                paper="less than two seconds",
                high=3.0,
                scales=PAPER,
                live=(None, 6.0),
            ),
            Criterion(name=f"{CONTROLLED}: link use", paper="-", low=0.9),
            Criterion(name="TCP less content", paper="0.05 of the link", kind="goal", note="reported"),
        ),
    ),
)

"""What 001 argues against in words, tried beside what it does: rules of the pubend, order in queues, who is recovering.

Additive decrease and additive increase (section 3.1), queries and alerts that wait in line with data (section 3.1:
"their queuing delays are much lower than the maximum delays that can occur in the system"), and an edge that is
recovering whenever it asks for something again (section 4: "too sensitive because a single lost message would force the
PDCC mechanism to go into recovery mode"). The first three are on the set-up of E2, the last on a network without
congestion whose link to one edge loses a message now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import View
from penstock.lab.papers.gryphon.bandwidth import LINK, PHASE, STEPS, step_plans, steps
from penstock.lab.papers.gryphon.outcome import outcome
from penstock.lab.papers.gryphon.setting import (
    PAPER,
    PARAMETERS,
    between,
    counted,
    curves,
    first_second,
    smoothed,
)
from penstock.lab.setups.gryphon import PAPER_CONTROL, RATE, link_messages_per_s, simple_network
from penstock.scenario.spec import LinkSpec, Scenario
from penstock.streams.config import StreamsConfig

AS_PAPER, CHANGED = "as in 001", "changed"
LOSSY = ("IB", "SB1")
LOSS = 0.005
LOSS_SECONDS = {"paper": 90.0, "smoke": 20.0}
FEWER = {"paper": 1, "smoke": 20}
SETTLED = 10.0


# On the set-up of E2.


def _step_plans(name: str, control: StreamsConfig) -> Callable[[Scale], Mapping[str, Plan]]:
    def plans(scale: Scale) -> Mapping[str, Plan]:
        return {AS_PAPER: step_plans(scale)["run"], CHANGED: Plan(scenario=steps(scale, name, control))}

    return plans


def _shares(view: View, phase: float) -> list[float]:
    """The second half of each phase, as a share of what the link carries."""
    published = counted(view).published
    return [
        between(published, (number + 1.5) * phase, (number + 2) * phase) / link_messages_per_s(kilobytes)
        for number, kilobytes in enumerate(STEPS)
    ]


def measure_steps(views: Views) -> Mapping[str, float]:
    """How soon the rate falls and rises, what waits meanwhile, and how full the link is."""
    phase = PHASE[views.scale]
    values: dict[str, float] = {}
    for name, view in views.items():
        counts = counted(view)
        rate, queue = smoothed(counts.published), counts.queue_bytes(*LINK)
        limit = link_messages_per_s(STEPS[0])
        first, second, third = _shares(view, phase)
        values |= {
            f"{name}: seconds until 60 KB/s is enough": first_second(rate <= limit, phase),
            f"{name}: seconds until 300 messages/s": first_second(rate >= 300.0, 2 * phase),
            f"{name}: largest queue (MB)": float(queue.max()) / 1e6,
            f"{name}: seconds with more than 0.5 MB": float((queue > 5e5).sum()),
            f"{name}: all of the phase with 150 KB/s (messages/s)": between(counts.published, 2 * phase, 3 * phase),
            f"{name}: share of 60 KB/s, first": first,
            f"{name}: share of 150 KB/s": second,
            f"{name}: share of 60 KB/s, second": third,
            f"{name}: missed, repeated or disordered": outcome(view).wrong,
        }
    pairs = {
        "largest queue": "largest queue (MB)",
        "seconds until 60 KB/s is enough": "seconds until 60 KB/s is enough",
        "seconds until 300 messages/s": "seconds until 300 messages/s",
        "all of the phase with 150 KB/s": "all of the phase with 150 KB/s (messages/s)",
        "share of 150 KB/s": "share of 150 KB/s",
    }
    ratios = {f"{word}, changed over 001": _ratio(values, what) for word, what in pairs.items()}
    return values | ratios


def _ratio(values: Mapping[str, float], what: str) -> float:
    return values[f"{CHANGED}: {what}"] / max(values[f"{AS_PAPER}: {what}"], 1e-9)


def _draw_steps(views: Views) -> Sequence[Figure]:
    rates = {name: smoothed(counted(view).published) for name, view in views.items()}
    queues = {name: counted(view).queue_bytes(*LINK) / 1e6 for name, view in views.items()}
    return (
        curves("What is published, with the rule of 001 and with the other.", rates, "messages per second"),
        curves("What waits at IB for SB1.", queues, "MB"),
    )


# Who is recovering.


def lossy(scale: Scale, name: str, control: StreamsConfig) -> Scenario:
    """No congestion, but one link loses some messages."""
    scenario = simple_network(
        f"{name}-{scale}", duration=LOSS_SECONDS[scale], control=control, fewer=FEWER[scale], drain=10.0
    )
    return replace(scenario, link=tuple(_losing(link) for link in scenario.link))


def _losing(link: LinkSpec) -> LinkSpec:
    return replace(link, kind="datagram", loss=LOSS, repair=False) if link.between == LOSSY else link


def loss_plans(scale: Scale) -> Mapping[str, Plan]:
    """With the rule of 001, and with the one that it rejects."""
    by_nacks = replace(PAPER_CONTROL, recovering_by_nacks=True)
    return {
        AS_PAPER: Plan(scenario=lossy(scale, "pdcc-lossy-link", PAPER_CONTROL)),
        CHANGED: Plan(scenario=lossy(scale, "pdcc-recovering-by-nacks", by_nacks)),
    }


def measure_loss(views: Views) -> Mapping[str, float]:
    """What is published though nothing is congested."""
    values: dict[str, float] = {}
    for name, view in views.items():
        counts = outcome(view)
        values |= {
            f"{name}: published, share of what is offered": between(counts.published, SETTLED, counts.seconds) / RATE,
            f"{name}: alerts": float(len(counts.alerts["time"])),
            f"{name}: alerts of recovering edges": float(np.isfinite(counts.alerts["recovering"]).sum()),
            f"{name}: missed, repeated or disordered": counts.wrong,
            f"{name}: not delivered at the end": float(counts.all_faults.waiting) * counts.fewer,
        }
    return values


def _draw_loss(views: Views) -> Sequence[Figure]:
    rates = {name: smoothed(counted(view).published) for name, view in views.items()}
    return (curves("What is published while a link loses messages.", rates, "messages per second"),)


ONCE = tuple(
    Criterion(name=f"{name}: missed, repeated or disordered", paper="exactly once, in order", high=0.0)
    for name in (AS_PAPER, CHANGED)
)
COMPARES = "it compares rules of 001 with each other"
BOUNDED = Criterion(name="as in 001: largest queue (MB)", judged="every seed", paper="never above 1", high=1.0)
E2 = {**PARAMETERS, "link": "IB - SB1 free, 60, 150 and 60 KB/s, 120 s each"}
EXPERIMENTS = (
    Experiment(
        name="pdcc-additive-decrease",
        title="A rate that falls by steps only",
        source="001 section 3.1, equations 2 and 3; set-up of E2",
        about="An alert takes 2 messages/s off the rate of a pubend instead of half of it. Until the rate fits the link"
        " everything too much waits before it.",
        plans=_step_plans("pdcc-additive-decrease", replace(PAPER_CONTROL, decrease_step=PAPER_CONTROL.rate_step)),
        measure=measure_steps,
        draw=_draw_steps,
        parameters={**E2, "changed": "each alert lowers the rate by 2 messages/s and no more"},
        product=COMPARES,
        criteria=(
            BOUNDED,
            Criterion(name="largest queue, changed over 001", paper="quickly adapts", low=1.5, scales=PAPER),
            Criterion(
                name="seconds until 60 KB/s is enough, changed over 001", paper="quickly adapts", low=1.5, scales=PAPER
            ),
            *ONCE,
        ),
    ),
    Experiment(
        name="pdcc-additive-increase",
        title="A rate that rises by steps only",
        source="001 section 3.1, equation 1; set-up of E2",
        about="Quiet adds 2 messages/s to the rate of a pubend and never a share of it: what the authors tried first"
        " and found very slow.",
        plans=_step_plans("pdcc-additive-increase", replace(PAPER_CONTROL, increase=0.0)),
        measure=measure_steps,
        draw=_draw_steps,
        parameters={**E2, "changed": "quiet raises the rate by 2 messages/s and no more"},
        product=COMPARES,
        criteria=(
            BOUNDED,
            Criterion(
                name="seconds until 300 messages/s, changed over 001",
                paper="a very slow increment",
                low=1.0,
                scales=PAPER,
            ),
            Criterion(
                name="all of the phase with 150 KB/s, changed over 001",
                paper="a lower throughput",
                high=1.0,
                scales=PAPER,
            ),
            Criterion(
                name="share of 150 KB/s, changed over 001",
                paper="-",
                kind="goal",
                scales=PAPER,
                note="reported: the second half of the phase, after the rise",
            ),
            *ONCE,
        ),
    ),
    Experiment(
        name="pdcc-first-come-first-served",
        title="Alerts that wait in line with data",
        source="001 sections 3.1 and 4; set-up of E2",
        about="Queries and alerts wait behind data instead of going first. A query that waits behind half a megabyte"
        " tells of congestion when the queue is that long already.",
        plans=_step_plans("pdcc-first-come-first-served", replace(PAPER_CONTROL, control_first=False)),
        measure=measure_steps,
        draw=_draw_steps,
        parameters={**E2, "changed": "queries and alerts travel with data, in the order in which they come"},
        product=COMPARES,
        criteria=(
            BOUNDED,
            Criterion(
                name="largest queue, changed over 001",
                paper="low queuing delays are important",
                low=1.0,
                scales=PAPER,
            ),
            *ONCE,
        ),
    ),
    Experiment(
        name="pdcc-recovering-by-nacks",
        title="Recovering whenever something is asked for again",
        source="001 section 4, SHB implementation",
        about=f"The link to SB1 loses {LOSS:.1%} of its packets and nothing is congested. If an edge counts as"
        " recovering because it sends NACKs, single losses slow the publishers down.",
        plans=loss_plans,
        measure=measure_loss,
        draw=_draw_loss,
        parameters={
            **PARAMETERS,
            "link": f"IB - SB1 loses {LOSS:.1%}, all links are fast",
            "changed": "an edge that has sent a NACK since the last query is recovering",
        },
        product=COMPARES,
        criteria=(
            Criterion(name="as in 001: published, share of what is offered", paper="not throttled", low=0.98),
            Criterion(
                name="changed: published, share of what is offered", paper="too sensitive", high=0.9, scales=PAPER
            ),
            *ONCE,
        ),
    ),
)

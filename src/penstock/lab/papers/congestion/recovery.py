"""002 section 5.3.6: congestion control and recovery together (Figures 5.16, 5.17 and 5.18).

Without a transport two of three brokers get less than half of what their subscribers want. With it little is lost, and
part of that comes back. A loss is a delivery that was due and did not come by itself; *residual* are those that never
came, *repaired* those that came again. Publishers are silent or answer, as in the experiments on recovery: 002 does not
say which in this section, and 4.4.1 that nodes repair what they receive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.congestion.load import FREE
from penstock.lab.papers.congestion.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    curves,
    delay_criteria,
    mean_delays,
    measured,
    message_rates,
)
from penstock.lab.papers.recovery.setting import ANSWERING, PUBLISHERS, WAITS
from penstock.lab.setups.congestion import STAR_BITS, recovering_star
from penstock.lab.setups.dumbbell import CONTROL, PUBLISHING_STARTS

SECONDS = {"paper": 120.0, "smoke": 8.0}
RATE = {"paper": 300.0, "smoke": 150.0}
BEGINS = int(PUBLISHING_STARTS)
AFTER = slice(BEGINS, None)
NAMES = tuple(f"p{number}" for number in range(1, 6))


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Figures 5.16 to 5.18."""
    transports = {
        FREE: None,
        **{kind: replace(CONTROL, publisher_answers=kind == ANSWERING, **WAITS) for kind in PUBLISHERS},
    }
    return {
        name: Plan(
            scenario=recovering_star(
                duration=SECONDS[scale], rate=RATE[scale], transport=transport, name=f"star-{scale}"
            )
        )
        for name, transport in transports.items()
    }


def _measure(views: Views) -> Mapping[str, float]:
    free = measured(views[FREE])
    found = {"missed without (deliveries/s)": float(free.missed[AFTER].mean()), **mean_delays(views)}
    for kind in PUBLISHERS:
        controlled = measured(views[kind])
        recovered, residual = float(len(views[kind].recoveries["publisher"])), float(controlled.missed.sum())
        found |= {
            f"{kind}: missed, with over without": float(controlled.missed[AFTER].sum() / free.missed[AFTER].sum()),
            f"{kind}: repaired share of losses": recovered / (recovered + residual) if recovered + residual else NAN,
            f"{kind}: use of the slow links, lower": min(_use(views, kind, broker) for broker in ("b2", "b3")),
            f"{kind}: received behind the fast link, with over without": _received(views, kind, "b4"),
            f"{kind}: received by all, with over without": _received(views, kind, "b"),
            f"{kind}: missed (deliveries/s)": float(controlled.missed[AFTER].mean()),
        }
    return found


def _use(views: Views, name: str, broker: str) -> float:
    return float(measured(views[name]).link_bits("b1", broker)[AFTER].mean() / STAR_BITS)


def _received(views: Views, name: str, broker: str) -> float:
    """What subscribers of this broker received, over what they received without control."""
    both = [measured(views[run]).received for run in (name, FREE)]
    ours, free = (float(sum(bins.sum() for who, bins in run.items() if who.startswith(broker))) for run in both)
    return ours / free


def _draw(views: Views) -> Sequence[Figure]:
    return [message_rates(f"Deliveries and losses, {name} (Figures 5.16 and 5.17).", v) for name, v in views.items()]


def _measure_overhead(views: Views) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for kind in PUBLISHERS:
        view, counts = views[kind], measured(views[kind])
        requests, repairs = (float(view.sent_per_second(what).sum()) for what in ("request_sent", "repair_sent"))
        published = float(np.sum([bins.sum() for bins in counts.published.values()]))
        feedback = [float(counts.counted("feedback", name)[AFTER].mean()) for name in NAMES]
        recovered = float(len(view.recoveries["publisher"]))
        found |= {
            f"{kind}: recoveries per repair": recovered / repairs if repairs else NAN,
            f"{kind}: feedback per publisher (messages/s)": float(np.mean(feedback)),
            f"{kind}: requests and repairs over publications": (requests + repairs) / published,
        }
    return found


def _draw_overhead(views: Views) -> Sequence[Figure]:
    figures = []
    for kind in PUBLISHERS:
        view = views[kind]
        sent = {"requests": view.sent_per_second("request_sent"), "repairs": view.sent_per_second("repair_sent")}
        feedback = {"feedback": measured(view).counted("feedback", NAMES[0])}
        figures.append(curves(f"Requests and repairs, {kind} (Figure 5.18a).", sent, "per second"))
        figures.append(curves(f"Feedback at one publisher, {kind} (Figure 5.18b).", feedback, "per second"))
    return figures


STAR_PARAMETERS = {
    **PARAMETERS,
    "network": "a hub with 5 publishers, three brokers with 5 subscribers each; 1.5, 1.5 and 10 Mbit/s",
    "publishers": "300 messages/s each; a subscriber wants 66 %, and the i-th of each broker wants the same",
    "recovery": "for all subscriptions, with the waits of the experiments on recovery",
}


def _reported(name: str, paper: str) -> Criterion:
    return Criterion(name=name, paper=paper, kind="goal", note="reported")


def _of_losses(kind: str) -> tuple[Criterion, ...]:
    return (
        Criterion(name=f"{kind}: missed, with over without", paper="50 of 5500 per second", high=0.02, scales=PAPER),
        Criterion(name=f"{kind}: repaired share of losses", paper="about 40 %", low=0.25, high=0.6, scales=PAPER),
        Criterion(name=f"{kind}: use of the slow links, lower", paper="-", low=0.85, scales=PAPER),
        Criterion(
            name=f"{kind}: received by all, with over without",
            paper="slightly lower",
            low=0.85,
            scales=PAPER,
            note="with slow links that are full, and everybody at their rate, it would be 0.7",
        ),
        _reported(f"{kind}: received behind the fast link, with over without", "a suboptimal rate"),
        _reported(f"{kind}: missed (deliveries/s)", "50"),
    )


def _of_overhead(kind: str) -> tuple[Criterion, ...]:
    return (
        Criterion(name=f"{kind}: recoveries per repair", paper="about 3", low=1.5, scales=PAPER),
        Criterion(
            name=f"{kind}: feedback per publisher (messages/s)", paper="about 15", low=5.0, high=40.0, scales=PAPER
        ),
        Criterion(name=f"{kind}: requests and repairs over publications", paper="negligible", high=0.05, scales=PAPER),
    )


EXPERIMENTS = (
    Experiment(
        name="cacc-with-recovery",
        title="Control and recovery together",
        source="002 section 5.3.6, Figures 5.16 and 5.17",
        about="Two of three links are too slow. Control keeps nearly all losses away, and recovery brings back part of"
        " the rest; subscribers behind the fast link get less, because they want the same flows.",
        plans=plans,
        measure=_measure,
        draw=_draw,
        parameters=STAR_PARAMETERS,
        criteria=(
            *(one for kind in PUBLISHERS for one in _of_losses(kind)),
            _reported("missed without (deliveries/s)", "5500"),
            *delay_criteria(FREE, *PUBLISHERS),
        ),
    ),
    Experiment(
        name="cacc-with-recovery-overhead",
        title="What control and recovery say",
        source="002 section 5.3.6, Figure 5.18",
        about="Requests, repairs and feedback of the same runs.",
        plans=plans,
        measure=_measure_overhead,
        draw=_draw_overhead,
        parameters=STAR_PARAMETERS,
        criteria=tuple(one for kind in PUBLISHERS for one in _of_overhead(kind)),
    ),
)

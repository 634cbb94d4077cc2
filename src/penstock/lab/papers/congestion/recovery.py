"""002 section 5.3.6: congestion control and recovery together (Figures 5.16, 5.17 and 5.18).

Without a transport two of three brokers get less than half of what their subscribers want. With it little is lost, and
part of that comes back. A loss is a delivery that was due and did not come by itself; *residual* are those that never
came, *repaired* those that came again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.congestion.load import CONTROLLED, FREE
from penstock.lab.papers.congestion.setting import NAN, PAPER, PARAMETERS, curves, measured, message_rates
from penstock.lab.setups.congestion import STAR_BITS, recovering_star
from penstock.lab.setups.dumbbell import CONTROL, PUBLISHING_STARTS

SECONDS = {"paper": 120.0, "smoke": 8.0}
RATE = {"paper": 300.0, "smoke": 150.0}
BEGINS = int(PUBLISHING_STARTS)
PUBLISHERS = tuple(f"p{number}" for number in range(1, 6))
TRANSPORT = replace(  # the waits of the experiments on recovery, and all nodes answer as in 002 section 4.4.1
    CONTROL,
    publisher_answers=True,
    adaptive_suppression=True,
    request_first=0.5,
    request_spread=1.0,
    repair_first=0.0,
    repair_spread=0.25,
)


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Figures 5.16 to 5.18."""
    return {
        name: Plan(
            scenario=recovering_star(
                duration=SECONDS[scale],
                rate=RATE[scale],
                transport=TRANSPORT if name == CONTROLLED else None,
                name=f"star-{scale}",
            )
        )
        for name in (FREE, CONTROLLED)
    }


def _measure(views: Views) -> Mapping[str, float]:
    free, controlled = measured(views[FREE]), measured(views[CONTROLLED])
    after = slice(BEGINS, None)
    recovered = float(len(views[CONTROLLED].recoveries["publisher"]))
    residual = float(controlled.missed.sum())
    fast = {name: _received(views, name, "b4") for name in (FREE, CONTROLLED)}
    return {
        "missed, with over without": float(controlled.missed[after].sum() / free.missed[after].sum()),
        "repaired share of losses": recovered / (recovered + residual) if recovered + residual else NAN,
        "use of the link to b2": float(controlled.link_bits("b1", "b2")[after].mean() / STAR_BITS),
        "use of the link to b3": float(controlled.link_bits("b1", "b3")[after].mean() / STAR_BITS),
        "received behind the fast link, with over without": fast[CONTROLLED] / fast[FREE],
        "missed without (deliveries/s)": float(free.missed[after].mean()),
        "missed with (deliveries/s)": float(controlled.missed[after].mean()),
    }


def _received(views: Views, name: str, broker: str) -> float:
    received = measured(views[name]).received
    return float(sum(bins.sum() for who, bins in received.items() if who.startswith(f"{broker}-")))


def _draw(views: Views) -> Sequence[Figure]:
    return [message_rates(f"Deliveries and losses, {name} (Figures 5.16 and 5.17).", v) for name, v in views.items()]


def _measure_overhead(views: Views) -> Mapping[str, float]:
    view = views[CONTROLLED]
    found = measured(view)
    after = slice(BEGINS, None)
    requests, repairs = view.sent_per_second("request_sent"), view.sent_per_second("repair_sent")
    published = float(np.sum([bins.sum() for bins in found.published.values()]))
    feedback = [float(found.counted("feedback", name)[after].mean()) for name in PUBLISHERS]
    recovered = float(len(view.recoveries["publisher"]))
    return {
        "recoveries per repair": recovered / float(repairs.sum()) if repairs.sum() else NAN,
        "feedback per publisher (messages/s)": float(np.mean(feedback)),
        "requests and repairs over publications": float((requests.sum() + repairs.sum()) / published),
    }


def _draw_overhead(views: Views) -> Sequence[Figure]:
    view = views[CONTROLLED]
    sent = {"requests": view.sent_per_second("request_sent"), "repairs": view.sent_per_second("repair_sent")}
    feedback = {"feedback": measured(view).counted("feedback", PUBLISHERS[0])}
    return (
        curves("Requests and repairs (Figure 5.18a).", sent, "per second"),
        curves("Feedback at one publisher (Figure 5.18b).", feedback, "per second"),
    )


STAR_PARAMETERS = {
    **PARAMETERS,
    "network": "a hub with 5 publishers, three brokers with 5 subscribers each; 1.5, 1.5 and 10 Mbit/s",
    "publishers": "300 messages/s each; a subscriber wants 66 %, and the i-th of each broker wants the same",
    "recovery": "for all subscriptions; caches and publishers answer, with the waits of the experiments on recovery",
}

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
            Criterion(name="missed, with over without", paper="50 of 5500 per second", high=0.02, scales=PAPER),
            Criterion(name="repaired share of losses", paper="about 40 %", low=0.25, high=0.6, scales=PAPER),
            Criterion(name="use of the link to b2", paper="-", low=0.85, scales=PAPER),
            Criterion(name="use of the link to b3", paper="-", low=0.85, scales=PAPER),
            Criterion(
                name="received behind the fast link, with over without",
                paper="slightly lower throughput",
                low=0.001,
                high=0.999,
                note="reduced, but above 0",
            ),
            Criterion(name="missed without (deliveries/s)", paper="5500", kind="goal", note="reported"),
            Criterion(name="missed with (deliveries/s)", paper="50", kind="goal", note="reported"),
        ),
    ),
    Experiment(
        name="cacc-with-recovery-overhead",
        title="What control and recovery say",
        source="002 section 5.3.6, Figure 5.18",
        about="Requests, repairs and feedback of the same run.",
        plans=plans,
        measure=_measure_overhead,
        draw=_draw_overhead,
        parameters=STAR_PARAMETERS,
        criteria=(
            Criterion(name="recoveries per repair", paper="about 3", low=1.5, scales=PAPER),
            Criterion(name="feedback per publisher (messages/s)", paper="about 15", low=5.0, high=40.0, scales=PAPER),
            Criterion(name="requests and repairs over publications", paper="negligible", high=0.05, scales=PAPER),
        ),
    ),
)

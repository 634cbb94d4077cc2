"""001 sections 3.1 and 3.2: each of the two protocols alone, on the set-up of E1.

The paper says that they can be used independently and shows no figure of it. PDCC alone asks for a whole receive window
at once; SDCC alone leaves the rate of publishing as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.link_failure import CALM, DOWN, EDGE, failure, measure_failure
from penstock.lab.papers.gryphon.setting import PAPER, PARAMETERS, between, counted, rates_figure
from penstock.lab.setups.gryphon import PAPER_CONTROL
from penstock.streams.config import StreamsConfig

WITHOUT_SDCC = replace(PAPER_CONTROL, edge_control=False)
WITHOUT_PDCC = replace(PAPER_CONTROL, pubend_control=False)


def _plans(name: str, control: StreamsConfig) -> Callable[[Scale], Mapping[str, Plan]]:
    return lambda scale: {"run": Plan(scenario=failure(scale, 250.0, name, control))}


def measure_alone(views: Views) -> Mapping[str, float]:
    """Rates from the return of the link on; without PDCC there are no queries, and so no lag is noted."""
    counts = counted(views["run"])
    back = CALM[views.scale] + DOWN[views.scale]
    stop = counts.seconds
    faults = [counts.faults(edge) for edge in ("SB1", EDGE)]
    return {
        "published (messages/s)": between(counts.published, back, stop),
        "SB1 (messages/s)": between(counts.received["SB1"], back, stop),
        "SB2 (messages/s)": between(counts.received[EDGE], back, stop),
        "SB2 not delivered at the end": float(faults[1].waiting) * counts.fewer,
        "missed, repeated or disordered": float(sum(sum(one) - one.waiting for one in faults)),
        "largest queue (MB)": counts.largest_queue / 1e6,
    }


def _draw(views: Views) -> Sequence[Figure]:
    return (rates_figure("Rates, as in Figure 7.", counted(views["run"])),)


ONCE = Criterion(name="missed, repeated or disordered", paper="exactly once, in order", high=0.0)
EXPERIMENTS = (
    Experiment(
        name="pdcc-without-sdcc",
        title="Recovery with the pubends' control alone",
        source="001 section 3, on the set-up of E1",
        about="As the recovery after a link failure, but the edge asks for ten seconds of ticks at once.",
        plans=_plans("pdcc-without-sdcc", WITHOUT_SDCC),
        measure=measure_failure,
        draw=_draw,
        parameters={**PARAMETERS, "control": "PDCC, Table 1; the NACK window is the receive window"},
        criteria=(
            ONCE,
            Criterion(name="recovery (s)", paper="-", kind="goal", scales=PAPER, note="reported"),
            Criterion(name="largest queue (MB)", paper="-", kind="goal", scales=PAPER, note="reported"),
            Criterion(name="mean rate meanwhile (messages/s)", paper="-", kind="goal", scales=PAPER, note="reported"),
        ),
    ),
    Experiment(
        name="sdcc-without-pdcc",
        title="Recovery with the edge's control alone",
        source="001 section 3, on the set-up of E1",
        about="As the recovery after a link failure, but the pubends take all that publishers offer.",
        plans=_plans("sdcc-without-pdcc", WITHOUT_PDCC),
        measure=measure_alone,
        draw=_draw,
        parameters={**PARAMETERS, "control": "SDCC, Table 1"},
        criteria=(
            ONCE,
            Criterion(name="SB1 (messages/s)", paper="-", kind="goal", scales=PAPER, note="reported"),
            Criterion(name="SB2 (messages/s)", paper="-", kind="goal", scales=PAPER, note="reported"),
            Criterion(name="SB2 not delivered at the end", paper="-", kind="goal", scales=PAPER, note="reported"),
            Criterion(name="largest queue (MB)", paper="-", kind="goal", scales=PAPER, note="reported"),
        ),
    ),
)

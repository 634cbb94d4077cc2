"""000 section IV-E: many subscribers in a larger network, and what control costs a publisher (Figures 11 and 12)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.content.predicate import Equals, Filter
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import View
from penstock.lab.papers.congestion.load import CONTROLLED, FREE
from penstock.lab.papers.congestion.setting import (
    NAN,
    PAPER,
    PARAMETERS,
    curves,
    each_second,
    link_figure,
    measured,
    message_rates,
)
from penstock.lab.setups.congestion import LARGE_BITS, LargeFilters, large_network
from penstock.lab.setups.dumbbell import CONTROL
from penstock.transport.sender.flow_table import FlowTable, flow_of

LINK = ("b0", "b1")
SECONDS = {"paper": 120.0, "smoke": 6.0}
RATE = {"paper": 2000.0, "smoke": 1000.0}  # of each of the two publishers
SUBSCRIBERS = {"paper": 758, "smoke": 60}
SETTLED = 5
FILTERS: Mapping[LargeFilters, str] = {"zipf": "", "1/r": "1/r: ", "r^-1.7": "r^-1.7: "}  # and what names them


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Figure 11, with the paper's filters."""
    return _plans(scale, "zipf")


def _plans(scale: Scale, filters: LargeFilters) -> Mapping[str, Plan]:
    return {
        name: Plan(
            scenario=large_network(
                duration=SECONDS[scale],
                rate=RATE[scale],
                subscribers=SUBSCRIBERS[scale],
                controlled=name == CONTROLLED,
                name=f"large-{filters.replace('/', ' by ')}-{scale}",
                filters=filters,
            )
        )
        for name in (FREE, CONTROLLED)
    }


def _all_plans(scale: Scale) -> Mapping[str, Plan]:
    return {f"{which}{name}": plan for f, which in FILTERS.items() for name, plan in _plans(scale, f).items()}


def measure_large(views: Views) -> Mapping[str, float]:
    """Every kind of filters that was run; all after the first five seconds, but for the delay."""
    return {
        f"{which}{name}": value
        for which in FILTERS.values()
        if f"{which}{FREE}" in views
        for name, value in _of_filters(views[f"{which}{FREE}"], views[f"{which}{CONTROLLED}"]).items()
    }


def _of_filters(without: View, with_control: View) -> dict[str, float]:
    free, controlled = measured(without), measured(with_control)
    received = [each_second(run.received_together)[SETTLED:].sum() for run in (controlled, free)]
    return {
        "missed, with over without control": float(controlled.missed[SETTLED:].sum() / free.missed[SETTLED:].sum()),
        "received, with over without control": float(received[0] / received[1]),
        "link use": float(controlled.link_bits(*LINK)[SETTLED:].mean() / LARGE_BITS),
        "mean delay from publish(), with over without control": controlled.mean_delay / free.mean_delay,
        "mean delay from publish() without control (ms)": 1000.0 * free.mean_delay,
        "mean delay from publish() with control (ms)": 1000.0 * controlled.mean_delay,
        "mean delay on the way with control (ms)": 1000.0 * controlled.mean_delay_on_the_way,
    }


def _draw_large(views: Views) -> Sequence[Figure]:
    return (
        link_figure("Traffic on the bottleneck (Figure 11, top).", {n: views[n] for n in (FREE, CONTROLLED)}, *LINK),
        message_rates("Without control (Figure 11a, bottom).", views[FREE]),
        message_rates("With control (Figure 11b, bottom).", views[CONTROLLED]),
    )


def _measure_overhead(views: Views) -> Mapping[str, float]:
    found = measured(views[CONTROLLED])
    flows, feedback = found.counted("flows", "p1"), found.counted("feedback", "p1")
    published = each_second(found.published["p1"])
    late = flows[min(20, len(flows) // 2) :]
    from_ten = slice(min(10, len(flows) // 2), None)
    return {
        "entries over subscribers": float(flows[from_ten].mean() / SUBSCRIBERS[views.scale]),
        "feedback over publications": float(feedback[from_ten].sum() / published[from_ten].sum()),
        "variation of the entries": float(late.std() / late.mean()) if late.mean() else NAN,
        "2000 entries (MB)": _table_megabytes(exact=CONTROL.feedback_exact) if views.scale == "paper" else NAN,
        "2000 entries by bits (MB)": _table_megabytes(exact=False) if views.scale == "paper" else NAN,
        "feedback (messages/s)": float(feedback[from_ten].mean()),
    }


def _table_megabytes(entries: int = 2_000, *, exact: bool) -> float:
    """What a table of so many flows takes, with all objects and the subscribers' names: by text or by bits."""
    filters = [Filter((Equals("symbol", number),)) for number in range(entries if exact else entries * 5 // 4)]
    table = FlowTable(entries)
    tracemalloc.start()
    try:
        for number, selected in enumerate(filters):
            table.request(flow_of(selected, CONTROL.encoding, exact=exact), 10.0, f"s{number}", 0.0)
        assert len(table) == entries, f"{len(table)} flows"
        return tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


def _draw_overhead(views: Views) -> Sequence[Figure]:
    found = measured(views[CONTROLLED])
    return (
        curves("Feedback at one publisher (Figure 12a).", {"feedback": found.counted("feedback", "p1")}, "per second"),
        curves("Its flow table (Figure 12b).", {"flows": np.asarray(found.counted("flows", "p1"))}, "entries"),
    )


LARGE_PARAMETERS = {
    **PARAMETERS,
    "network": "8 brokers, seven in a row and one beside the fourth; 10 Mbit/s, 1 Mbit/s behind the publishers' broker",
    "publishers": "two with 2000 messages/s each; ten attributes of 20 values, Zipf 1.0",
    "subscribers": "758 with one filter of 1 to 5 equalities on values drawn by their popularity, Zipf 1.0; beside it"
    " filters such that the r-th wants 0.2 / r, or 0.2 / r^1.7, of all messages",
}

_BESIDE = {
    "missed, with over without control": "nearly zero within 3 s",
    "received, with over without control": "12 % less",
    "link use": "more than 90 %",
    "mean delay from publish(), with over without control": "54 ms against 102 ms",
    "mean delay from publish() with control (ms)": "54",
}


def _reported(name: str, paper: str) -> tuple[Criterion]:
    return (Criterion(name=name, paper=paper, kind="goal", note="reported"),)


EXPERIMENTS = (
    Experiment(
        name="cacc-large-scale",
        title="Many subscribers behind one bottleneck",
        source="000 section IV-E, Figure 11 (002 section 5.3.5, Figure 5.14)",
        about="Two publishers, 758 subscribers, and one link that takes a part of what they want. With control the"
        " surplus stays at the publishers. The paper's filters decide; how steeply match probabilities fall is"
        " reported beside them. Delay is from publish().",
        plans=_all_plans,
        measure=measure_large,
        draw=_draw_large,
        parameters=LARGE_PARAMETERS,
        criteria=(
            Criterion(
                name="missed, with over without control", paper="nearly zero within 3 s", high=0.02, scales=PAPER
            ),
            Criterion(name="received, with over without control", paper="12 % less", low=0.8, scales=PAPER),
            Criterion(name="link use", paper="more than 90 %", low=0.85, scales=PAPER),
            Criterion(
                name="mean delay from publish(), with over without control",
                paper="54 ms against 102 ms",
                high=0.7,
                scales=PAPER,
            ),
            *_reported("mean delay from publish() without control (ms)", "102"),
            *_reported("mean delay from publish() with control (ms)", "54"),
            *_reported("mean delay on the way with control (ms)", "-"),
            *(
                one
                for which in ("1/r: ", "r^-1.7: ")
                for name, paper in _BESIDE.items()
                for one in _reported(f"{which}{name}", paper)
            ),
        ),
    ),
    Experiment(
        name="cacc-publisher-overhead",
        title="What control costs a publisher",
        source="000 section IV-E, Figure 12 (002 section 5.3.5, Figure 5.15)",
        about="Feedback messages and entries of the flow table at one of the two publishers of the same run.",
        plans=plans,
        measure=_measure_overhead,
        draw=_draw_overhead,
        parameters=LARGE_PARAMETERS,
        criteria=(
            Criterion(name="entries over subscribers", paper="small", high=0.05, scales=PAPER),
            Criterion(name="feedback over publications", paper="small", high=0.1, scales=PAPER),
            Criterion(name="variation of the entries", paper="steady", high=0.5, scales=PAPER),
            Criterion(
                name="2000 entries (MB)",
                paper="less than 1 MB",
                high=1.0,
                scales=PAPER,
                note="measured, in the form that is the default: flows by their text",
            ),
            Criterion(
                name="2000 entries by bits (MB)", paper="less than 1 MB", kind="goal", scales=PAPER, note="reported"
            ),
            Criterion(name="feedback (messages/s)", paper="-", kind="goal", note="reported"),
        ),
    ),
)

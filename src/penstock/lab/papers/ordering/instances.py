"""Which ways to order are compared, in the paper's words: P-x-y is P_t = x with a record of y entries, CST-t a static
latch of t milliseconds.

The percentages that the paper reports fit the appendix's form of the quantile and not the right one (erratum O1), so
both are run: names that end in `exact` have the right one, the others the appendix's. Entries have 128 bits as in
chapter 3, and the ring holds 25 delay differences. The instances of one network are traces together, once for all
experiments. Static latches need no replay (`replay.RecordedPair.late_by`).

What several experiments ask of the pairs is here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan

import numpy as np
from numpy.typing import NDArray

from penstock.lab import setups
from penstock.lab.engine.experiment import Plan, Scale
from penstock.lab.engine.trace_ordering import NONE, Instance
from penstock.lab.engine.trace_ordering_runs import OrderedTraces
from penstock.lab.engine.view import View
from penstock.lab.papers.throughput import PARAMETERS, bdrp_plan, broker_text
from penstock.transport.config import papers_config

ENTRY = {"record_bits": 128, "record_hashes": 4}  # 16 bytes for each entry, section 3.5.2; as many hashes as they bear
SAMPLES = 25  # q
STATIC = (0.030, 0.050)  # CST-30 and CST-50


def exact(probability: float, entries: int) -> str:
    """The name of an instance with the right quantile."""
    return f"P-{probability:g}-{entries} exact"


def appendix(probability: float, entries: int) -> str:
    """The name of an instance with the appendix's quantile."""
    return f"P-{probability:g}-{entries}"


def _exact(probability: float, entries: int) -> Instance:
    config = papers_config(record_entries=entries, violation_probability=probability, delay_samples=SAMPLES, **ENTRY)
    return Instance(name=exact(probability, entries), config=config, violations_only=True)


def _appendix(probability: float, entries: int, *, violations_only: bool = False) -> Instance:
    config = papers_config(
        record_entries=entries,
        violation_probability=probability,
        delay_samples=SAMPLES,
        quantile="appendix",
        **ENTRY,
    )
    return Instance(name=appendix(probability, entries), config=config, violations_only=violations_only)


EIGHT = (
    *(_appendix(0.05, entries) for entries in (0, 5, 25)),
    _appendix(0.2, 0, violations_only=True),
    *(_exact(probability, 0) for probability in (0.2, 0.05, 0.01, 0.001)),
    _exact(0.05, 25),
)
FORTY_SIX = (
    *(_appendix(0.05, entries) for entries in (0, 25)),
    _exact(0.05, 0),
)

RARELY_SLOW = (_appendix(0.05, 0, violations_only=True), _exact(0.05, 0))

ORDERED_ROWS = {
    "replay": "every delivery of a best-effort run through the transport's own ordering, all instances on the same"
    " arrivals; records do not occupy the links (experiments section 0.1)",
    "records": f"{ENTRY['record_bits'] // 8} bytes for each entry; the ring holds {SAMPLES} delay differences",
}
EIGHT_PARAMETERS = {**PARAMETERS, **ORDERED_ROWS}
FORTY_SIX_PARAMETERS = {
    **PARAMETERS,
    "network": "46 brokers in a tree of degree 3 and diameter 15, links 10 Mbit/s, 50 ms ± 5 ms",
    "clients": "460, of which 48 publish slowly (1.5 to 25 messages/s) and two fast (1200/s, from 90 s and 190 s);"
    " five clients of a broker share a filter; the four heavy subscribers are on one branch, five to seven links from"
    " the fast publishers",
    "broker": broker_text(setups.SERVICE_MEAN_FORTY_SIX),
    **ORDERED_ROWS,
}


def eight_plan(scale: Scale) -> Mapping[str, Plan]:
    """The run that all experiments with eight brokers share."""
    return bdrp_plan(scale)


def forty_six_plan(scale: Scale) -> Mapping[str, Plan]:
    """The run that all experiments with forty-six brokers share."""
    return {"best effort": Plan(scenario=setups.forty_six_brokers(scale))}


def rarely_slow_plan(scale: Scale) -> Mapping[str, Plan]:
    """The same, and brokers whose jobs are rarely slow."""
    return {**forty_six_plan(scale), "rarely slow": Plan(scenario=setups.forty_six_brokers(scale, rarely_slow=True))}


def match(traces: OrderedTraces) -> NDArray[np.float64]:
    """The share of its publisher's messages that each pair's client received."""
    shares: NDArray[np.float64] = traces.column(NONE, "messages") / traces.column(NONE, "published")
    return shares


def of_slow_publishers(view: View, traces: OrderedTraces) -> NDArray[np.bool_]:
    """Which pairs have a publisher of a low rate."""
    fast = [
        client.name
        for client in view.scenario.client
        if any(flow.rate_messages_per_s == setups.FAST_RATE for flow in client.publish)
    ]
    return ~np.isin(traces.of(NONE)["publisher"].to_pylist(), fast)


def ratio(value: float, base: float) -> float:
    """One over the other; infinite, or not a number, where there is nothing to compare with."""
    if base:
        return float(value / base)
    return inf if value else nan

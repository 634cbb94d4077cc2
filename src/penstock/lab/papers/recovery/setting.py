"""The runs that the experiments on recovery share, and with which settings.

Networks and workloads are those of `lab/setups/recovery.py`. What 002 leaves open and we chose:

Receivers. The fewer share a loss, the fewer notice it. `FEW_12` and `FEW_46` say how many subscribers want how many of
200 classes; they were chosen so that about as many losses go unnoticed as in the paper (erratum R7 lists what it says
about receivers, which does not fit together), within what it does say: four fifths of the match probabilities below
0.08, none above 0.1, half of the messages with at most two receivers.

Waits. SRM's constants (C1 = C2 = 2, D1 = D2 = 1) let a client wait two to four times the distance to the publisher
before it asks; then requests and repairs cannot be as quick as the paper's. `WAITS` is lower. With 46 brokers so short
waits let too many answer at once, so SRM's tuning raises them; with 12 it would only make them slower. The run with
SRM's constants and no tuning is reported beside it.

Publishers answer requests too, as the experiments page proposes; the run where they are silent is reported beside it.
At smoke scale there are only 12 brokers, 15 seconds, and two sizes of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.lab.engine.experiment import Plan, Scale
from penstock.lab.setups.recovery import ClassesWanted, Size, recovery_network
from penstock.transport.config import papers_config

FEW_12: ClassesWanted = {18: 6, 15: 1, 1: 5, 2: 12, 3: 5, 4: 5, 5: 5, 6: 5, 7: 5, 8: 5}
FEW_46: ClassesWanted = {15: 22, 3: 50, 2: 68, 1: 80}
RARE_12: ClassesWanted = {
    2: 40,
    9: 14,
}  # forty subscribers with match probability 0.01, for the experiment on heartbeats
WAITS: Mapping[Size, Mapping[str, Any]] = {
    12: {"request_first": 0.5, "request_spread": 1.0, "repair_first": 0.0, "repair_spread": 0.1},
    46: {
        "request_first": 0.5,
        "request_spread": 1.0,
        "repair_first": 0.0,
        "repair_spread": 0.25,
        "adaptive_suppression": True,
    },
}
ECHO_INTERVAL = 30.0  # the distances here hardly change
RECORD = 10  # entries, where the size is not what is varied
SIZES = (1, 2, 5, 10)
LOW_LOSS = 0.001
NETWORKS: tuple[Size, ...] = (12, 46)

PARAMETERS = {
    "networks": "12 brokers (diameter 5, 6 publishers, 54 subscribers) and 46 (diameter 11, 10 and 220); links 25 to"
    " 75 ms, each ± 5 ms, 10 Mbit/s, each losing 1 % of all packets",
    "publishers": "20 messages/s with spikes to 500 (12 brokers) or 250 of 0.5 to 3 s, every 10 s on average",
    "receivers": f"{sum(n * k for n, k in FEW_12.items()) / 200:.1f} and"
    f" {sum(n * k for n, k in FEW_46.items()) / 200:.1f} per message on average",
    "record": "10 entries of 256 bits unless said otherwise",
    "waits": "C1 0.5, C2 1, D1 0, D2 0.1 times the distance; with 46 brokers D2 0.25 at first, and all tuned as in"
    " SRM; 3 requests at most",
    "answers": "from caches of 5 to 300 messages per publisher, and from publishers",
    "subscriptions": "with recovery, without order",
}


def sizes(scale: Scale) -> tuple[Size, ...]:
    """The networks that are looked at."""
    return NETWORKS if scale == "paper" else (12,)


def without(brokers: Size, scale: Scale, *, loss: float = 0.01, wanted: ClassesWanted | None = None) -> Plan:
    """The network without a transport."""
    return Plan(scenario=recovery_network(brokers, scale=scale, loss=loss, wanted=wanted or _wanted(brokers)))


def recovering(
    brokers: Size,
    scale: Scale,
    entries: int = RECORD,
    *,
    loss: float = 0.01,
    wanted: ClassesWanted | None = None,
    **more: Any,
) -> Plan:
    """The same with recovery; `more` are settings of the transport."""
    settings = {"record_entries": entries, "echo_interval": ECHO_INTERVAL, **WAITS[brokers], **more}
    return Plan(
        scenario=recovery_network(
            brokers, scale=scale, loss=loss, wanted=wanted or _wanted(brokers), transport=papers_config(**settings)
        )
    )


def both(scale: Scale) -> Mapping[str, Plan]:
    """Both networks, without and with recovery: what most experiments look at."""
    plans = {f"{brokers}, none": without(brokers, scale) for brokers in sizes(scale)}
    return {**plans, **with_recovery(scale)}


def with_recovery(scale: Scale) -> Mapping[str, Plan]:
    """Both networks with recovery."""
    return {f"{brokers}, record": recovering(brokers, scale) for brokers in sizes(scale)}


def silent(scale: Scale) -> Mapping[str, Plan]:
    """12 brokers whose publishers answer no requests: only caches do."""
    return {"12, publishers silent": recovering(12, scale, publisher_answers=False)}


def _wanted(brokers: Size) -> ClassesWanted:
    return FEW_12 if brokers == 12 else FEW_46

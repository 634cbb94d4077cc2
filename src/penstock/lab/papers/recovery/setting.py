"""The runs that the experiments on recovery share, and with which settings.

Networks and workloads are those of `lab/setups/recovery.py`: 4.2 receivers for each message with 12 brokers and 5 with
46, as near to the "on average 5" of 002 section 4.5 as the rest of what it says allows. What it leaves open:

Who answers. "They all volunteer to provide repair for messages that they receive" (4.4.1): a publisher receives none of
its own, so publishers are *silent* in the paper's words. The experiments page proposes that they answer too. Both are
run and judged, with both networks.

Waits. 002 names SRM and gives none of its constants. SRM's own (C1 = C2 = 2, D1 = D2 = 1) let a client wait two to four
times the distance to the publisher before it asks; then requests and repairs cannot be as quick as the paper's. `WAITS`
is lower, and the same for all networks. SRM's tuning would send fewer repairs twice and take far longer (docs/papers.md
has both); the run with SRM's constants is reported beside it.

At smoke scale there are only 12 brokers, 15 seconds, and two sizes of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.lab.engine.experiment import Plan, Scale
from penstock.lab.setups.recovery import CLASSES, ClassesWanted, Size, recovery_network
from penstock.lab.setups.recovery import NETWORKS as SETUPS
from penstock.transport.config import papers_config

RARE_12: ClassesWanted = {  # forty subscribers with match probability 0.01, for the experiment on heartbeats
    2: 40,
    9: 14,
}
WAITS: Mapping[str, Any] = {
    "request_first": 0.5,
    "request_spread": 1.0,
    "repair_first": 0.0,
    "repair_spread": 0.25,
}
ECHO_INTERVAL = 30.0  # the distances here hardly change
RECORD = 10  # entries, where the size is not what is varied
SIZES = (1, 2, 5, 10)
LOW_LOSS = 0.001
NETWORKS: tuple[Size, ...] = (12, 46)
SILENT, ANSWERING = "publishers silent", "publishers answer"
PUBLISHERS = (SILENT, ANSWERING)


def _receivers(brokers: Size) -> float:
    return sum(classes * wanting for classes, wanting in SETUPS[brokers].wanted.items()) / CLASSES


PARAMETERS = {
    "networks": "12 brokers (diameter 5, 6 publishers, 54 subscribers) and 46 (diameter 11, 10 and 220); links 25 to"
    " 75 ms, each ± 5 ms, 10 Mbit/s, each losing 1 % of all packets",
    "publishers": "20 messages/s with spikes to 500 (12 brokers) or 250 of 0.5 to 3 s, every 10 s on average",
    "receivers": f"{_receivers(12):.1f} and {_receivers(46):.1f} per message on average",
    "record": "10 entries of 256 bits unless said otherwise",
    "waits": f"C1 {WAITS['request_first']:g}, C2 {WAITS['request_spread']:g}, D1 {WAITS['repair_first']:g}, D2"
    f" {WAITS['repair_spread']:g} times the distance, the same everywhere and not tuned; 3 requests at most",
    "answers": "from caches of 5 to 300 messages per publisher; publishers are silent, or answer from what they keep",
    "subscriptions": "with recovery, without order",
}


def sizes(scale: Scale) -> tuple[Size, ...]:
    """The networks that are looked at."""
    return NETWORKS if scale == "paper" else (12,)


def networks(scale: Scale) -> list[tuple[Size, str]]:
    """The networks, each with both kinds of publishers."""
    return [(brokers, publishers) for brokers in sizes(scale) for publishers in PUBLISHERS]


def named(brokers: Size, publishers: str) -> str:
    """How a criterion names one of them."""
    return f"{brokers} brokers, {publishers}"


def without(brokers: Size, scale: Scale, *, loss: float = 0.01) -> Plan:
    """The network without a transport."""
    return Plan(scenario=recovery_network(brokers, scale=scale, loss=loss))


def recovering(
    brokers: Size,
    scale: Scale,
    publishers: str = ANSWERING,
    *,
    entries: int = RECORD,
    loss: float = 0.01,
    wanted: ClassesWanted | None = None,
    **more: Any,
) -> Plan:
    """The same with recovery; `more` are settings of the transport."""
    settings = {"record_entries": entries, "echo_interval": ECHO_INTERVAL, **WAITS, **more}
    transport = papers_config(publisher_answers=publishers == ANSWERING, **settings)
    return Plan(scenario=recovery_network(brokers, scale=scale, loss=loss, wanted=wanted, transport=transport))


def bare(scale: Scale) -> Mapping[str, Plan]:
    """Both networks without recovery."""
    return {f"{brokers}, none": without(brokers, scale) for brokers in sizes(scale)}


def with_recovery(scale: Scale) -> Mapping[str, Plan]:
    """Both networks with recovery, each with both kinds of publishers."""
    return {f"{b}, {publishers}": recovering(b, scale, publishers) for b, publishers in networks(scale)}


def both(scale: Scale) -> Mapping[str, Plan]:
    """Without and with recovery: what most experiments look at."""
    return {**bare(scale), **with_recovery(scale)}

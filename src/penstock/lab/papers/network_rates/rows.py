"""What is measured in each row: numbers of two runs of one network, with the control of rates and without it.

*Received* is over the same run without control, of what came before publishing ended: the queue that is full without
control would count as a gain. *Lost* is the share, in per cent, of what was not withheld. The use of a link is what it
carried over its rate, but for SETTLES seconds at the beginning. In the row `flaps` the loss of a second is that of what
was published in it. Beside TCP, content *yields* when it has no more than YIELDS_WITHIN of the link above its later
share, in two seconds one after the other. What control costs is what travels in the lanes of control and between
services, less the same in the run without it, over the bytes of data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.lab.papers.congestion.setting import jain
from penstock.lab.papers.network_rates.outcome import NAN, RatesRun
from penstock.lab.setups.network_rates.drawing import STARTS
from penstock.lab.setups.network_rates.rows import FLAP_RATES, SERIES_RATES

Numbers = dict[str, float]
SETTLES = 2.0
YIELDS_WITHIN = 0.15
CONTROL = ("control bytes", "service bytes")
MBIT = 1e6


def _received(free: RatesRun, controlled: RatesRun, begin: str = "", by: float | None = None) -> float:
    by = controlled.scenario.duration if by is None else by
    with_it, without = (run.due.received(run.due.of_client(begin), by) for run in (controlled, free))
    return with_it / without if without else NAN


def _both(free: RatesRun, controlled: RatesRun) -> Numbers:
    return {"lost (%)": controlled.due.lost_share(), "received": _received(free, controlled)}


def ten_by_ten(free: RatesRun, controlled: RatesRun) -> Numbers:
    return {**_both(free, controlled), "Jain index of flows": jain([float(n) for n in controlled.due.by_client()])}


def overlapping(free: RatesRun, controlled: RatesRun) -> Numbers:
    return {
        "lost (%)": controlled.due.lost_share(),
        "received behind the bottleneck": _received(free, controlled, "r"),
        "received before it": _received(free, controlled, "before"),
    }


def large(free: RatesRun, controlled: RatesRun) -> Numbers:
    return {
        **overlapping(free, controlled),
        "median delay from publish()": controlled.median_delay / free.median_delay,
    }


def series(free: RatesRun, controlled: RatesRun) -> Numbers:
    start = STARTS + SETTLES
    seconds = int(controlled.scenario.duration) - start
    found = {"lost (%)": controlled.due.lost_share()}
    for place, bits in enumerate(SERIES_RATES):
        carried = controlled.counted(("link bytes",), f"b{place}", f"b{place + 1}", start)
        found[f"use of {bits / MBIT:g} Mbit/s"] = 8.0 * carried / bits / seconds
    return found


def fast_and_slow(free: RatesRun, controlled: RatesRun) -> Numbers:
    return {
        "received by the fast one": _received(free, controlled, "fast"),
        "received by the slow one": _received(free, controlled, "slow"),
        "lost (%)": controlled.due.lost_share(),
    }


def round_trips(free: RatesRun, controlled: RatesRun) -> Numbers:
    due = controlled.due
    shares = [due.received(due.of_publisher(home)) for home in ("short", "long")]
    return {**_both(free, controlled), "larger share over smaller": max(shares) / min(shares) if min(shares) else NAN}


def flaps(free: RatesRun, controlled: RatesRun) -> Numbers:
    due = controlled.due
    drops = [fault.at for fault in controlled.scenario.fault if fault.rate_bits_per_s == min(FLAP_RATES)]
    after = [due.lost_share(due.published(at, at + 1.0)) for at in drops]
    return {
        **_both(free, controlled),
        "lost in the second after a drop, worst (%)": max(after, default=NAN),
        "lost in the second after a drop, mean (%)": float(np.mean(after)) if after else NAN,
    }


def sparse_and_greedy(free: RatesRun, controlled: RatesRun) -> Numbers:
    due = controlled.due
    sparse = due.of_client("of-sparse")
    return {**_both(free, controlled), "of the sparse, came": due.received(sparse) / max(1, int(sparse.sum()))}


def beside_tcp(free: RatesRun, controlled: RatesRun) -> Numbers:
    """Shares in the last half of the time in which both are there."""
    scenario, (tcp,) = controlled.scenario, controlled.scenario.tcp
    bits, size = scenario.link[-1].rate_bits_per_s or NAN, 8.0 * tcp.segment_bytes
    settled, stop = (tcp.start + scenario.duration) / 2.0, scenario.duration
    times = controlled.due.delivered_at[~np.isnan(controlled.due.delivered_at)]
    share = float(((times >= settled) & (times < stop)).sum()) * size / bits / (stop - settled)
    tenths = np.histogram(times, bins=np.arange(tcp.start, stop, 0.1))[0] * size / bits
    seconds = np.convolve(tenths, np.ones(10), "valid")  # from each tenth on, one second
    good = np.flatnonzero(np.maximum(seconds[:-10], seconds[10:]) <= share + YIELDS_WITHIN)
    other = 8.0 * controlled.counted(("tcp delivered bytes",), "tcp", start=settled) / bits / (stop - settled)
    return {
        "share of content": share,
        "share of TCP": other,
        "yields within (s)": 1.0 + float(good[0]) / 10.0 if len(good) else NAN,
        "lost (%)": controlled.due.lost_share(),
    }


def cheating(free: RatesRun, controlled: RatesRun) -> Numbers:
    """Shares over the fair one: all want more than that."""
    due = controlled.due
    received = {name: due.received(due.publisher == name) for name in np.unique(due.publisher).tolist()}
    fair = sum(received.values()) / len(received)
    honest = [count for name, count in received.items() if not name.startswith("cheat")]
    return {
        "share of the cheat": (sum(received.values()) - sum(honest)) / fair,
        "share of the honest": float(np.mean(honest)) / fair,
        "lost of the honest (%)": due.lost_share(~due.of_publisher("cheat")),
    }


def control_cost(free: RatesRun, controlled: RatesRun) -> Numbers:
    extra = controlled.counted(CONTROL) - free.counted(CONTROL)
    return {"control (% of data)": 100.0 * extra / controlled.counted(("data bytes",)), **_both(free, controlled)}


def town(free: RatesRun, controlled: RatesRun) -> Numbers:
    due = controlled.due
    (ends,) = (client.publish[0].stop for client in controlled.scenario.client if client.name == "annex")
    return {
        "received at the depot": _received(free, controlled, "depot", ends),
        "lost at the depot (%)": due.lost_share(due.of_client("depot")),
        "received at the warehouse": _received(free, controlled, "warehouse", ends),
    }


MEASURES: Mapping[str, Callable[[RatesRun, RatesRun], Numbers]] = {
    "ten by ten": ten_by_ten,
    "overlapping": overlapping,
    "nested": _both,
    "large": large,
    "series": series,
    "fast and slow": fast_and_slow,
    "round trips": round_trips,
    "flaps": flaps,
    "first seconds": _both,
    "fifty at once": _both,
    "sparse and greedy": sparse_and_greedy,
    "on and off": _both,
    "beside TCP": beside_tcp,
    "cheating": cheating,
    "busy": control_cost,
    "idle": control_cost,
    "town": town,
}

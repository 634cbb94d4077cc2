"""What all experiments on priced sending look at in a run, and the words they share (003 section 6).

The *rate* of a group is what its senders bought, in Mbit/s of bytes on the wire, headers of TCP included: what was
bought arrives, for links lose nothing. The *buffer* of a link is what waits for it at its broker, in messages; brokers
look at it ten milliseconds apart and note the mean and the most of each update interval. What TCP itself holds (send
buffer and wire) is not in it. Start-up, the first STARTED seconds, is left out where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from weakref import WeakKeyDictionary

import numpy as np

from penstock.lab.engine.experiment import Figure, Scale
from penstock.lab.engine.view import Columns, Floats, View
from penstock.lab.pages.style import lines
from penstock.lab.setups.spread import MBIT, TCP_WINDOW, WIRE_BYTES, WIRE_PACKETS
from penstock.sim.tcp.config import HEADER_BYTES

PAPER: tuple[Scale, ...] = ("paper",)
NAN = float("nan")
STARTED = 20.0  # seconds

PARAMETERS = {
    "messages": f"{WIRE_BYTES} bytes on the wire, 40 of them headers of TCP and IP; 20 senders for each group, each"
    " awaits publish()",
    "links": f"TCP connections, 10 ms; {WIRE_PACKETS} packets may wait for each wire, {TCP_WINDOW} of a connection may"
    " be under way",
    "prices": "salary 10, savings 20 (cut after the salary), fee 1, soft limit 100, updates every 50 ms",
    "open in the paper": "threshold 15, first period 5 s with nothing to begin with, periods from 5 ms to 1 s",
}

_counted: WeakKeyDictionary[View, PricedCounts] = WeakKeyDictionary()


def counted(view: View) -> PricedCounts:
    """The counts of this run, made once."""
    if view not in _counted:
        _counted[view] = PricedCounts(view)
    return _counted[view]


class PricedCounts:
    """Counts of one run."""

    def __init__(self, view: View) -> None:
        self._tables = view.tables
        self.seconds = int(view.scenario.duration)
        self.brokers = [broker.name for broker in view.scenario.broker]
        self.senders = [client.name for client in view.scenario.client if client.publish]
        self.links = [link.between for link in view.scenario.link]

    # What was bought.

    @cached_property
    def bought(self) -> Columns:
        """Every purchase, in the order of time."""
        table = columns(self._tables.message_bought.select("time", "publisher", "price", "period", "held"))
        order = np.argsort(table["time"], kind="stable")
        return {name: values[order] for name, values in table.items()}

    @cached_property
    def groups(self) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        """The group of the sender of each purchase."""
        return np.array([name.rpartition("-")[0] for name in self.bought["publisher"]])

    def rate(self, group: str) -> Floats:
        """What a group's senders bought, in each second, in Mbit/s."""
        times = self.bought["time"][self.groups == group]
        return self._per_second(times, None) * WIRE_BYTES * 8 / MBIT

    def mean_rate(self, group: str, start: float = STARTED, stop: float = inf) -> float:
        """The mean over a part of the run."""
        return between(self.rate(group), start, min(stop, self.seconds))

    def sender_rates(self, group: str, start: float = STARTED, stop: float = inf) -> Floats:
        """What each sender of a group got, in Mbit/s."""
        stop = min(stop, float(self.seconds))
        times, names = self.bought["time"], self.bought["publisher"]
        chosen = names[(self.groups == group) & (times >= start) & (times < stop)]
        found = dict(zip(*np.unique(chosen, return_counts=True), strict=True)) if len(chosen) else {}
        those = [name for name in self.senders if name.rpartition("-")[0] == group]
        return np.array([found.get(name, 0) for name in those]) * WIRE_BYTES * 8 / MBIT / (stop - start)

    # Buffers.

    @cached_property
    def _priced(self) -> Columns:
        table = columns(self._tables.link_priced.select("time", "node", "neighbour", "mean", "most", "price"))
        order = np.argsort(table["time"], kind="stable")
        return {name: values[order] for name, values in table.items()}

    def buffer(self, link: tuple[str, str]) -> Columns:
        """What waited at the first for the second: time, mean, most and price of each interval."""
        table = self._priced
        mine = (table["node"] == link[0]) & (table["neighbour"] == self.brokers.index(link[1]))
        return {name: table[name][mine] for name in ("time", "mean", "most", "price")}

    def largest(self, link: tuple[str, str], start: float = STARTED, stop: float = inf) -> float:
        """The most that waited."""
        found = self.buffer(link)
        part = found["most"][(found["time"] >= start) & (found["time"] < min(stop, self.seconds))]
        return float(part.max()) if len(part) else NAN

    def means(self, link: tuple[str, str], start: float = STARTED, stop: float = inf) -> Floats:
        """The mean of each interval."""
        found = self.buffer(link)
        return found["mean"][(found["time"] >= start) & (found["time"] < min(stop, self.seconds))]

    def peaks(self, link: tuple[str, str]) -> Floats:
        """The most in each second."""
        found = self.buffer(link)
        peaks = np.zeros(self.seconds)
        within = found["time"] < self.seconds
        np.maximum.at(peaks, found["time"][within].astype(int), found["most"][within])
        return peaks

    # Beside them.

    def tcp(self, name: str) -> Floats:
        """What a TCP beside the brokers delivered, in each second, in Mbit/s."""
        return self._counter("tcp delivered bytes", node=name) * 8 / MBIT

    def on_links(self, counter: str) -> float:
        """A counter over all links between brokers."""
        table = self._tables.counted
        rows = columns(table.where(table.name == counter).select("node", "peer", "value"))
        ours = np.isin(rows["node"], self.brokers) & np.isin(rows["peer"], self.brokers)
        return float(rows["value"][ours].sum())

    def control_share(self) -> float:
        """Percent of what brokers said to each other, both without the headers of TCP, which every packet has."""
        said = self.on_links("link bytes") - HEADER_BYTES * self.on_links("link packets")
        return 100.0 * self.on_links("control bytes") / max(said, 1.0)

    def _counter(self, name: str, *, node: str) -> Floats:
        table = self._tables.counted
        rows = columns(table.where((table.name == name) & (table.node == node)).select("time", "value"))
        # counted at the end of each second
        return self._per_second(np.maximum(rows["time"] - 0.5, 0.0), rows["value"])

    def _per_second(self, times: Floats, weights: Floats | None) -> Floats:
        found = np.bincount(times.astype(int), weights=weights, minlength=self.seconds)[: self.seconds]
        return found.astype(np.float64)


def columns(frame: object) -> Columns:
    """A small table as arrays."""
    table = frame.toArrow()  # type: ignore[attr-defined]
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def between(rates: Floats, start: float, stop: float) -> float:
    """The mean from start to stop."""
    part = rates[int(start) : int(stop)]
    return float(part.mean()) if len(part) else NAN


def smoothed(rates: Floats, width: int = 5) -> Floats:
    """The mean of so many seconds around each; fewer at both ends."""
    weights = np.ones(width)
    return np.convolve(rates, weights, mode="same") / np.convolve(np.ones(len(rates)), weights, mode="same")


def jain(rates: Floats) -> float:
    """Jain's index of fairness: 1 if all are equal."""
    squares = float((rates**2).sum())
    return float(rates.sum()) ** 2 / (len(rates) * squares) if squares else NAN


def deviation(rates: Floats) -> float:
    """How far the one furthest from the mean is from it, in percent."""
    mean = float(rates.mean()) if len(rates) else 0.0
    return float(np.abs(rates - mean).max()) / mean * 100.0 if mean else NAN


def link_name(link: tuple[str, str]) -> str:
    """As the figures call it."""
    return f"{link[0]}-{link[1]}"


# Figures.


def curves(caption: str, named: Mapping[str, Floats], y_title: str, *, compared: str = "") -> Figure:
    """Curves over the seconds of the run."""
    rows = [
        {"second": second, "value": float(value), "series": name}
        for name, values in named.items()
        for second, value in enumerate(values)
    ]
    spec = lines(rows, x="second", y="value", series=list(named), x_title="time (s)", y_title=y_title)
    return Figure(caption=caption, spec=spec, compared=compared)


def buffers_figure(caption: str, counts: PricedCounts, links: Sequence[tuple[str, str]]) -> Figure:
    """The running maximum of each buffer, from the end of start-up on (003 section 6)."""
    named = {}
    for link in links:
        peaks = counts.peaks(link)
        peaks[: int(STARTED)] = 0.0
        named[link_name(link)] = np.maximum.accumulate(peaks)
    return curves(caption, named, "largest buffer so far (messages)")


def rates_figure(caption: str, counts: PricedCounts, groups: Sequence[str], tcp: Sequence[str] = ()) -> Figure:
    """What groups bought, and TCPs beside them delivered."""
    named = {group: smoothed(counts.rate(group)) for group in groups}
    named |= {name: smoothed(counts.tcp(name)) for name in tcp}
    return curves(caption, named, "Mbit/s")

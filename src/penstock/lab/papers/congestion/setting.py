"""What all experiments on congestion control look at in a run, and the words they share.

A *wanted* message is one that a subscriber is waiting for; all others stay where they were published. *Received* are
deliveries. *Missed* are deliveries that were due and did not come, by the second of publication; a message that its
publisher withheld never left, has no Published record and is missed by nobody. With fair rates of links the publisher's
broker withholds: there missed is what was dropped somewhere. The use of a link is what it was given to carry over its
rate, so that a second in which its queue grew may show a little more than 1.

Delay counts from publish(): what a message waits at its publisher is part of it, with control and without.

Everything is counted in Spark and comes as one array per curve, in bins of a tenth of a second or in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from penstock.lab.engine.experiment import Criterion, Figure, Plan, Scale, Simulator
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages.style import lines
from penstock.lab.setups.dumbbell import CONTROL, DELAY, QUEUE_PACKETS, WIRE_BYTES
from penstock.lab.setups.product import rates_enabled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAPER: tuple[Scale, ...] = ("paper",)
NAN = float("nan")
BINS_PER_SECOND = 10
WIRE_BITS = 8.0 * WIRE_BYTES

PARAMETERS = {
    "network": f"two brokers, one link between them with {1000 * DELAY:g} ms and a drop-tail queue of"
    f" {QUEUE_PACKETS} packets",
    "messages": f"{WIRE_BYTES} bytes on the wire with and without control, headers included; Poisson arrivals",
    "control": f"record of {CONTROL.record_entries} entries, alpha {CONTROL.increase_max:g},"
    f" {CONTROL.loss_intervals} loss intervals, {CONTROL.flow_queue} messages of a flow may wait, the rest is withheld",
}


def in_namespaces(plans: Mapping[str, Plan], *, brokers_traced: bool = False) -> Mapping[str, Plan]:
    """The same runs with a real bottleneck between brokers in network namespaces; raises NotPossibleHere."""
    from penstock.live.emulation.namespaces import possible

    possible()
    simulator: Simulator = "traced namespaces" if brokers_traced else "namespaces"
    return {name: replace(plan, simulator=simulator) for name, plan in plans.items()}


_measured: WeakKeyDictionary[View, RunCounts] = WeakKeyDictionary()


def measured(view: View) -> RunCounts:
    """The counts of this run, made once."""
    if view not in _measured:
        _measured[view] = RunCounts(view)
    return _measured[view]


class RunCounts:
    """Counts of one run."""

    def __init__(self, view: View) -> None:
        self._tables = view.tables
        self._missed_of: Callable[[], DataFrame] = lambda: _missed(view)
        self._delays_of: Callable[[], DataFrame] = lambda: view.delays
        self.seconds = int(view.scenario.duration)

    @cached_property
    def received(self) -> dict[str, Floats]:
        """Deliveries of each client, in bins."""
        return self._bins(self._tables.delivered, "node")

    @property
    def received_together(self) -> Floats:
        """Deliveries of all clients, in bins."""
        together: Floats = np.sum([*self.received.values(), np.zeros(self.seconds * BINS_PER_SECOND)], axis=0)
        return together

    @cached_property
    def published(self) -> dict[str, Floats]:
        """Messages that left, by publisher, in bins."""
        return self._bins(self._tables.published, "publisher")

    @cached_property
    def _by_kind(self) -> dict[str, Floats]:
        table = self._tables.published
        return self._bins(table.withColumn("kind", table.attributes.contains('"wanted":true').cast("string")), "kind")

    @property
    def wanted(self) -> Floats:
        """Messages with `wanted` that left, in bins: those of the dumbbell's flows."""
        return self._by_kind.get("true", np.zeros(self.seconds * BINS_PER_SECOND))

    @property
    def unwanted(self) -> float:
        """How many others left."""
        return float(sum(bins.sum() for kind, bins in self._by_kind.items() if kind != "true"))

    @cached_property
    def missed(self) -> Floats:
        """Missed deliveries in each second of publication."""
        return self._seconds(self._missed_of().selectExpr("cast(published_at as int) as second"))

    @cached_property
    def withheld(self) -> Floats:
        """Messages that did not leave, in each second."""
        return self._seconds(self._tables.message_withheld.selectExpr("cast(time as int) as second"))

    @property
    def mean_delay(self) -> float:
        """Of all deliveries, since the application published them."""
        return self._mean_delays["avg(delay_from_publish)"]

    @property
    def mean_delay_on_the_way(self) -> float:
        """Of all deliveries, since they left their publisher: what the network sees."""
        return self._mean_delays["avg(delay)"]

    @cached_property
    def _mean_delays(self) -> dict[str, float]:
        row = self._delays_of().agg({"delay": "avg", "delay_from_publish": "avg"}).first()
        assert row is not None, "an aggregation has one row"
        return {name: NAN if mean is None else float(mean) for name, mean in row.asDict().items()}

    @cached_property
    def _counts(self) -> dict[tuple[str, str, str], Floats]:
        # A count is written at the end of its second: what is counted at 1.0 happened in second 0.
        counted = self._tables.counted.where(
            "name in ('link bytes', 'flows', 'feedback', 'feedback sent', 'tcp delivered bytes')"
        )
        rows = counted.selectExpr("name", "node", "peer", "cast(ceil(time) as int) - 1 as second", "value").toArrow()
        found: dict[tuple[str, str, str], Floats] = {}
        for row in rows.to_pylist():
            if 0 <= row["second"] < self.seconds:
                key = (row["name"], row["node"], row["peer"])
                found.setdefault(key, np.zeros(self.seconds))[row["second"]] += row["value"]
        return found

    def counted(self, name: str, node: str, peer: str = "") -> Floats:
        """A counter of a node, in each second."""
        return self._counts.get((name, node, peer), np.zeros(self.seconds))

    def link_bits(self, node: str, peer: str) -> Floats:
        """What a link was given to carry from `node` to `peer`, in bits in each second."""
        return 8.0 * self.counted("link bytes", node, peer)

    def limiting(self) -> dict[str, set[str]]:
        """Whose word each publisher followed at any time."""
        rows = self._tables.flow_limited.select("node", "limiting_receiver").distinct().toArrow().to_pylist()
        found: dict[str, set[str]] = {}
        for row in rows:
            found.setdefault(row["node"], set()).add(row["limiting_receiver"])
        return found

    def _bins(self, table: DataFrame, by: str) -> dict[str, Floats]:
        place = f"cast(floor(time * {BINS_PER_SECOND}) as int) as place"
        rows = table.selectExpr(f"{by} as series", place).groupBy("series", "place").count().toArrow()
        size = self.seconds * BINS_PER_SECOND
        found: dict[str, Floats] = {name: np.zeros(size) for name in sorted(set(rows["series"].to_pylist()))}
        for row in rows.to_pylist():
            if row["place"] < size:
                found[row["series"]][row["place"]] = row["count"]
        return found

    def _seconds(self, table: DataFrame) -> Floats:
        rows = table.groupBy("second").count().toArrow()
        found = np.zeros(self.seconds)
        for second, count in zip(rows["second"].to_pylist(), rows["count"].to_pylist(), strict=True):
            if second < self.seconds:
                found[second] = count
        return found


def _missed(view: View) -> DataFrame:
    """Deliveries that were due and did not come; where brokers may withhold messages, those of them that ended."""
    if not rates_enabled(view.scenario):
        return view.missed
    message = ["publisher", "incarnation", "count"]
    return view.missed.join(view.tables.dropped.select(*message).distinct(), message, "left_semi")


def mean_delays(views: Mapping[str, View]) -> dict[str, float]:
    """Of each run, from publish(), in milliseconds."""
    return {
        f"{name}: mean delay from publish() (ms)": 1000.0 * measured(view).mean_delay for name, view in views.items()
    }


def delay_criteria(*runs: str) -> tuple[Criterion, ...]:
    """The same as numbers that are reported."""
    return tuple(
        Criterion(name=f"{run}: mean delay from publish() (ms)", paper="-", kind="goal", note="reported")
        for run in runs
    )


# Arithmetic on bins.


def rate(bins: Floats, start: float, stop: float) -> float:
    """Per second, from start to stop."""
    part = bins[round(start * BINS_PER_SECOND) : round(stop * BINS_PER_SECOND)]
    return float(part.sum() / (stop - start))


def each_second(bins: Floats) -> Floats:
    """The sum of each second."""
    sums: Floats = bins.reshape(-1, BINS_PER_SECOND).sum(axis=1)
    return sums


def time_until(bins: Floats, start: float, low: float, high: float, *, window: float = 0.5, stop: float) -> float:
    """Seconds from `start` to the end of the first window whose rate lies between the two, as does that of the next.

    NaN if there is none.
    """
    width = round(window * BINS_PER_SECOND)
    for place in range(round(start * BINS_PER_SECOND), round(stop * BINS_PER_SECOND) - 2 * width + 1):
        rates = [float(bins[at : at + width].sum()) / window for at in (place, place + width)]
        if all(low <= rate <= high for rate in rates):
            return (place + width) / BINS_PER_SECOND - start
    return NAN


def longest(times: list[float]) -> float:
    """The longest of all; NaN if one of them is: what never happens takes longest."""
    return float(np.max(times))


def jain(shares: list[float]) -> float:
    """Jain's index; 1 if all get the same."""
    values = np.asarray(shares)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares else 1.0


# Figures.


def curves(caption: str, named: dict[str, Floats], y_title: str) -> Figure:
    """Curves over the seconds of the run."""
    rows = [
        {"second": second, "rate": float(value), "series": name}
        for name, values in named.items()
        for second, value in enumerate(values)
    ]
    spec = lines(rows, x="second", y="rate", series=list(named), x_title="time (s)", y_title=y_title)
    return Figure(caption=caption, spec=spec, compared=y_title)


def message_rates(caption: str, view: View) -> Figure:
    """What was published, delivered and missed (the lower charts of 000's figures)."""
    found = measured(view)
    published = np.sum(list(found.published.values()), axis=0)
    return curves(
        caption,
        {
            "published": each_second(published),
            "delivered": each_second(found.received_together),
            "missed": found.missed,
        },
        "messages per second",
    )


def link_figure(caption: str, views: dict[str, View], node: str, peer: str) -> Figure:
    """The traffic on a link, without and with control (their upper charts)."""
    named = {name: measured(view).link_bits(node, peer) / 1000.0 for name, view in views.items()}
    return curves(caption, named, "kbit/s on the bottleneck")

"""One run, as an experiment looks at it: the pipeline's metrics over its traces, computed once and kept.

Everything heavy happens in Spark; what comes out of here is small enough to look at (a number per second, the delays
of one pair), as numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.lab.engine.trace_ordering import Instance
from penstock.lab.engine.trace_ordering_runs import OrderedTraces, order_run
from penstock.pipeline import metrics
from penstock.pipeline.read import Tables, read_runs
from penstock.pipeline.truth import truth_of
from penstock.scenario.spec import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]  # a table that is small enough to look at; what is missing is NaN


class View:
    """The metrics of one run."""

    def __init__(self, spark: SparkSession, folder: Path, scenario: Scenario) -> None:
        self.folder = folder
        self.scenario = scenario
        self.tables: Tables = read_runs(spark, [folder])
        self._kept: list[DataFrame] = []
        self._ordered_traces: dict[tuple[Instance, ...], OrderedTraces] = {}

    def close(self) -> None:
        """Let Spark forget what it keeps for this run."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    @cached_property
    def delays(self) -> DataFrame:
        """One row per delivery, with its delay."""
        return self._keep(metrics.delays(self.tables.delivered, self.tables.published))

    def pair_delays(self, publisher: str, client: str) -> tuple[Floats, Floats]:
        """When each message of the pair was published, and its delay, in the order of publication."""
        pair = self.delays.where((self.delays.publisher == publisher) & (self.delays.client == client))
        table = pair.select("published_at", "delay", "count").toArrow().sort_by("count")
        return table["published_at"].to_numpy(), table["delay"].to_numpy()

    def heaviest_pair(self) -> tuple[str, str]:
        """The publisher and client with the most deliveries between them; the first by name where several have."""
        counted = self.delays.groupBy("publisher", "client").count()
        row = counted.orderBy(counted["count"].desc(), "publisher", "client").first()
        assert row is not None, "nothing was delivered in this run"
        return row["publisher"], row["client"]

    def published_per_second(self) -> Floats:
        """Publications in each second of the run."""
        return self._seconds(metrics.published_per_second(self.tables.published, by=()), "published")

    @cached_property
    def published_by_publisher(self) -> dict[str, Floats]:
        """The same for each publisher."""
        rows = metrics.published_per_second(self.tables.published).toArrow().to_pylist()
        found = {row["publisher"]: np.zeros(int(self.scenario.duration)) for row in rows}
        for row in rows:
            if row["second"] < int(self.scenario.duration):
                found[row["publisher"]][row["second"]] = row["published"]
        return dict(sorted(found.items()))

    def delivered_per_second(self) -> Floats:
        """Deliveries in each second of the run."""
        return self._seconds(metrics.delivered_per_second(self.tables.delivered, by=()), "delivered")

    def counted_per_second(self, name: str) -> Floats:
        """The sum over all nodes of a counter, in each second."""
        counted = self.tables.counted.where(self.tables.counted.name == name)
        rows = counted.selectExpr("cast(time as int) as second", "value").groupBy("second").sum("value").toArrow()
        return self._filled(rows["second"].to_numpy(), rows["sum(value)"].to_numpy())

    @cached_property
    def truth(self) -> DataFrame:
        """Who should have got what."""
        return self._keep(truth_of(self.tables))

    @cached_property
    def missed(self) -> DataFrame:
        """Deliveries that were due and never came."""
        return self._keep(metrics.false_negatives(self.truth, self.tables.delivered))

    @cached_property
    def missed_per_second(self) -> Floats:
        """How many of them, by the second of publication."""
        return self._seconds(metrics.missed_per_second(self.missed, by=()), "missed")

    @cached_property
    def violations_per_second(self) -> Floats:
        """Receptions of a message after a later one of the same publisher, in each second."""
        return self._seconds(metrics.fifo_violations_per_second(self.tables.delivered), "violations")

    # Recovery.

    @cached_property
    def recoveries(self) -> Columns:
        """Every message that came back as a repair."""
        return _columns(metrics.recoveries(self.tables.recovered, self.tables.published))

    @cached_property
    def losses(self) -> Columns:
        """Every message that a client lost, whether it came back, and when that client noticed (NaN: never)."""
        back = metrics.recoveries(self.tables.recovered, self.tables.published)
        return _columns(metrics.lost_messages(self.missed, back, self.tables.loss_detected))

    @cached_property
    def rounds(self) -> Columns:
        """Every message that was asked for or sent again: how often, and how often in vain."""
        return _columns(metrics.rounds(self.tables.request_sent, self.tables.repair_sent))

    @cached_property
    def answers(self) -> Columns:
        """Every request, and how many of those who received it had the message."""
        return _columns(metrics.answers(self.tables.request_sent, self.tables.request_received))

    @cached_property
    def cache_sizes(self) -> Columns:
        """What each client wanted to keep of each publisher, in each second in which it was more than the least."""
        return _columns(metrics.cache_sizes(self.tables.counted))

    @cached_property
    def original_delays(self) -> Floats:
        """The delays of all messages that came by themselves, in order."""
        message = ["publisher", "incarnation", "count", "client"]
        back = self.tables.recovered.withColumnRenamed("node", "client").select(*message)
        values: Floats = self.delays.join(back, message, "left_anti").select("delay").toArrow()["delay"].to_numpy()
        return np.sort(values)

    @cached_property
    def receivers(self) -> NDArray[np.int64]:
        """For each message that anybody wants, how many do."""
        wanted = self.truth.groupBy("publisher", "incarnation", "count").agg({"client": "count"})
        counts: NDArray[np.int64] = wanted.toArrow()["count(client)"].to_numpy()
        return counts

    @cached_property
    def match_probabilities(self) -> Floats:
        """For each publisher and each client that subscribes: which share of the one's messages the other wants."""
        wanted = self.truth.groupBy("publisher", "client").count().toArrow()
        sent = self.tables.published.groupBy("publisher").count().toArrow()
        published = dict(zip(sent["publisher"].to_pylist(), sent["count"].to_pylist(), strict=True))
        of_pair = zip(wanted["publisher"].to_pylist(), wanted["count"].to_pylist(), strict=True)
        shares = [count / published[publisher] for publisher, count in of_pair]
        pairs = len(published) * sum(bool(client.subscribe) for client in self.scenario.client)
        return np.sort(np.array(shares + [0.0] * (pairs - len(shares))))

    def sent_per_second(self, what: Literal["request_sent", "repair_sent"]) -> Floats:
        """Requests or repairs in each second."""
        rows = getattr(self.tables, what).selectExpr("cast(time as int) as second").groupBy("second").count().toArrow()
        return self._filled(rows["second"].to_numpy(), rows["count"].to_numpy())

    @cached_property
    def link_bytes(self) -> float:
        """What the links between brokers carried, all together."""
        use = metrics.link_use(self.tables.counted).groupBy("node", "peer").agg({"bytes": "sum"}).toArrow()
        brokers = {broker.name for broker in self.scenario.broker}
        rows = zip(use["node"].to_pylist(), use["peer"].to_pylist(), use["sum(bytes)"].to_pylist(), strict=True)
        return float(sum(size for node, peer, size in rows if node in brokers and peer in brokers))

    def ordered_traces(self, instances: Sequence[Instance]) -> OrderedTraces:
        """How every pair of publisher and client fares under these instances of ordering."""
        key = tuple(instances)
        if key not in self._ordered_traces:
            self._ordered_traces[key] = OrderedTraces(order_run(self.tables, key).toArrow())
        return self._ordered_traces[key]

    def _seconds(self, frame: DataFrame, column: str) -> Floats:
        rows = frame.select("second", column).toArrow()
        return self._filled(rows["second"].to_numpy(), rows[column].to_numpy())

    def _filled(self, seconds: NDArray[np.int64], counts: NDArray[np.int64]) -> Floats:
        """As an array with a place for every second, those after the end of publishing left out."""
        filled = np.zeros(int(self.scenario.duration))
        within = seconds < len(filled)
        np.add.at(filled, seconds[within].astype(int), counts[within])
        return filled

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return self._kept[-1]


def _columns(frame: DataFrame) -> Columns:
    table = frame.toArrow()
    return {name: table[name].to_numpy() for name in table.column_names}

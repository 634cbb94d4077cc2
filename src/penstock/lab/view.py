"""One run, as an experiment looks at it: the pipeline's metrics over its traces, computed once and kept.

Everything heavy happens in Spark; what comes out of here is small enough to look at (a number per second, the delays
of one pair), as numpy arrays.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.pipeline import metrics
from penstock.pipeline.read import Tables, read_runs
from penstock.pipeline.truth import truth_of
from penstock.scenario.network import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Floats = NDArray[np.float64]


class View:
    """The metrics of one run."""

    def __init__(self, spark: SparkSession, folder: Path, scenario: Scenario) -> None:
        self.folder = folder
        self.scenario = scenario
        self.tables: Tables = read_runs(spark, [folder])
        self._kept: list[DataFrame] = []

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

    def delivered_per_second(self) -> Floats:
        """Deliveries in each second of the run."""
        return self._seconds(metrics.delivered_per_second(self.tables.delivered, by=()), "delivered")

    def counted_per_second(self, name: str) -> Floats:
        """The sum over all nodes of a counter, in each second."""
        counted = self.tables.counted.where(self.tables.counted.name == name)
        rows = counted.selectExpr("cast(time as int) as second", "value").groupBy("second").sum("value").toArrow()
        return self._filled(rows["second"].to_numpy(), rows["sum(value)"].to_numpy())

    @cached_property
    def missed_per_second(self) -> Floats:
        """Deliveries that were due, by the second of publication, and never came."""
        due = truth_of(self.tables, grace=self.scenario.settle)
        missed = metrics.false_negatives(due, self.tables.delivered)
        return self._seconds(metrics.missed_per_second(missed, by=()), "missed")

    @cached_property
    def violations_per_second(self) -> Floats:
        """Receptions of a message after a later one of the same publisher, in each second."""
        return self._seconds(metrics.fifo_violations_per_second(self.tables.delivered), "violations")

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

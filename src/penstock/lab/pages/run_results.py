"""The tables of one run as `run_numbers` looks them up: each read once, with times from the beginning of traffic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from penstock.lab.pages.run_planned import traffic_begins
from penstock.pipeline.results import read_result
from penstock.scenario.spec import Scenario

Row = dict[str, Any]


class Delays(NamedTuple):
    """Of the deliveries of a client, or of a pair, in seconds; None where nothing was delivered."""

    mean: float | None
    median: float | None
    p99: float | None


class RunTables:
    """The results of one run, each read once."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        """`start` is the second of the run with which traffic begins; processes begin before it."""
        self._folder = folder
        self._read: dict[str, list[Row]] = {}
        self.start = traffic_begins(scenario, (row["second"] for row in self.rows("rates") if row["published"]))
        self.seconds = 1 + max((row["second"] for row in self.rows("rates")), default=0) - self.start

    def rows(self, name: str, **wanted: str) -> list[Row]:
        """The rows of a result with these values."""
        if name not in self._read:
            self._read[name] = read_result(self._folder, name)
        return [row for row in self._read[name] if all(row[key] == value for key, value in wanted.items())]

    def total(self, name: str, column: str, **wanted: str) -> int:
        """The sum of a column."""
        return sum(row[column] for row in self.rows(name, **wanted))

    def curve(self, name: str, column: str, **wanted: str) -> tuple[int, ...]:
        """A value for each second of the run, 0 where there is no row."""
        found = Counter[int]()
        for row in self.rows(name, **wanted):
            found[row["second"] - self.start] += row[column]
        return tuple(found[second] for second in range(self.seconds))

    def publishing_ends(self, publisher: str) -> float:
        """The end of the last second in which it published, or would have."""
        rows = self.rows("published_per_second", publisher=publisher)
        rows += self.rows("withheld_per_second", publisher=publisher)
        return 1.0 + max((row["second"] - self.start for row in rows), default=-1)

    def delays(self, name: str, since: str, **wanted: str) -> Delays:
        """Mean, median and 99th percentile, from publish() or from where messages left."""
        rows = self.rows(name, since=since, **wanted)
        return Delays(rows[0]["mean"], rows[0]["p50"], rows[0]["p99"]) if rows else Delays(None, None, None)

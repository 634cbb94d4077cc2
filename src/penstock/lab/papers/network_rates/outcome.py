"""What became of every message that was due in one run, and what its links carried: the truth, whatever a broker says.

Due is what was published while a subscription was in force. A message is *received* if it came and the queue of its
reader took it; *lost* if a copy ended on the way and it was not received; else it was *withheld*. The share that is
lost is of what was not withheld. `pipeline/metrics/fates.py` finds all this in the traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from penstock.lab.engine.view import Floats, View
from penstock.lab.engine.ways import Hop, first_hops
from penstock.pipeline import metrics
from penstock.scenario.spec import Scenario

Chosen = NDArray[np.bool_]
NAN = float("nan")


@dataclass(frozen=True)
class Due:
    """One place for each message and subscription. Times are NaN for what did not happen."""

    publisher: NDArray[np.str_]
    client: NDArray[np.str_]
    published_at: Floats
    ended_at: Floats
    delivered_at: Floats

    @cached_property
    def all(self) -> Chosen:
        """Everything."""
        return np.ones(len(self.client), dtype=bool)

    def of_client(self, begin: str) -> Chosen:
        """What was due to clients whose names begin like this."""
        return np.strings.startswith(self.client, begin)

    def of_publisher(self, begin: str) -> Chosen:
        """What was published by those whose names begin like this."""
        return np.strings.startswith(self.publisher, begin)

    def published(self, start: float, stop: float) -> Chosen:
        """What was published in this time."""
        return (self.published_at >= start) & (self.published_at < stop)

    def received(self, chosen: Chosen | None = None, by: float = inf) -> int:
        """How many of these came, by this time."""
        return int(((self.delivered_at <= by) & (self.all if chosen is None else chosen)).sum())

    def lost(self, chosen: Chosen | None = None) -> int:
        """How many of these did not come because a copy ended on the way."""
        ended = ~np.isnan(self.ended_at) & np.isnan(self.delivered_at)
        return int((ended & (self.all if chosen is None else chosen)).sum())

    def withheld(self) -> int:
        """How many did not leave for their client."""
        return len(self.client) - self.received() - self.lost()

    def lost_share(self, chosen: Chosen | None = None) -> float:
        """Of what left for its client, in per cent; nothing if nothing left."""
        lost, received = self.lost(chosen), self.received(chosen)
        return 100.0 * lost / max(1, lost + received)

    def by_client(self) -> list[int]:
        """What each client received."""
        return [self.received(self.client == name) for name in np.unique(self.client)]


class RatesRun:
    """One run."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.scenario = view.scenario

    @cached_property
    def due(self) -> Due:
        """What became of the messages."""
        tables = self._view.tables
        named = (tables.loss_detected, tables.loss_suspected)
        records = (tables.published, tables.delivered, tables.dropped, *named, tables.lost_on_link)
        found = metrics.fates(self._view.truth, *records, ways(self.scenario)).toArrow()
        times = (found[name].to_numpy().astype(float) for name in ("published_at", "ended_at", "delivered_at"))
        names = (np.array(found[name].to_pylist(), dtype=str) for name in ("publisher", "client"))
        return Due(*names, *times)

    @cached_property
    def median_delay(self) -> float:
        """Of all deliveries, from publish()."""
        delays = self._view.delays.select("delay_from_publish").toArrow()["delay_from_publish"].to_numpy()
        return float(np.median(delays)) if len(delays) else NAN

    @cached_property
    def _counts(self) -> dict[tuple[str, str, str], list[tuple[float, float]]]:
        rows = self._view.tables.counted.select("name", "node", "peer", "time", "value").toArrow().to_pylist()
        found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        for row in rows:
            found.setdefault((row["name"], row["node"], row["peer"]), []).append((row["time"], row["value"]))
        return found

    def counted(self, names: Sequence[str], node: str = "", peer: str = "", start: float = 0.0) -> float:
        """The sum of these counters of a node and its peer, or of all, from `start` to the end of publishing."""
        stop = self.scenario.duration
        return sum(
            value
            for (name, at, to), counts in self._counts.items()
            if name in names and node in ("", at) and peer in ("", to)
            for time, value in counts
            if start < time <= stop
        )

    def told(self) -> float:
        """How many messages brokers say they have withheld, each for one destination."""
        total = self._view.tables.thinned.agg({"messages": "sum"}).first()
        return float(total[0] or 0.0) if total is not None else 0.0


def ways(scenario: Scenario) -> list[Hop]:
    """In a tree the way to each client; elsewhere any, which is enough where nobody else wants what a client wants."""
    if len(scenario.link) == len(scenario.broker) - 1:
        return first_hops(scenario)
    pairs = [link.between for link in scenario.link]
    both = [*pairs, *((b, a) for a, b in pairs)]
    return [(a, b, client.name) for client in scenario.client if client.subscribe for a, b in both]

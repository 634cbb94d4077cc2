"""What came of a run of streams, in whatever network: seen by those who publish, by those who read, and in the brokers.

What a reader should have got is decided by its predicate and the attributes of what the pubends have on disk, not by
any broker. A delivery is *missed* if it was due and a later one of its pubend came, *waiting* if it was due and nothing
later came by the end. The *delay* of a delivery is counted from the application's publish() on.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from penstock.content.language.parser import parse_predicate
from penstock.lab.engine.view import Columns, Floats, View
from penstock.lab.papers.gryphon.setting import NAN, RECOVERED_LAG, SECOND, Faults, StreamCounts
from penstock.scenario.spec import Scenario

_outcomes: WeakKeyDictionary[View, Outcome] = WeakKeyDictionary()


def outcome(view: View) -> Outcome:
    """What came of this run, looked at once."""
    if view not in _outcomes:
        _outcomes[view] = Outcome(view)
    return _outcomes[view]


class Outcome(StreamCounts):
    """The counts of a run, and whether all went well."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._scenario: Scenario = view.scenario

    @cached_property
    def all_faults(self) -> Faults:
        """Of all readers together."""
        wanted = self._wanted()
        came: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        table = self._delivered
        order = np.lexsort((table["tick"], table["time"]))
        rows = zip(*(table[name][order] for name in ("node", "pubend", "tick")), strict=True)
        for node, pubend, tick in rows:
            came[node].append((pubend, int(tick), node))
        missed = waiting = repeated = disordered = 0
        for client, due in wanted.items():
            got = came[client]
            last: dict[str, int] = {}
            for pubend, tick, _ in got:
                disordered += tick <= last.get(pubend, 0)
                last[pubend] = max(tick, last.get(pubend, 0))
            have = {(pubend, tick) for pubend, tick, _ in got}
            repeated += len(got) - len(have)
            absent = [one for one in due if one not in have]
            missed += sum(tick < last.get(pubend, 0) for pubend, tick in absent)
            waiting += sum(tick >= last.get(pubend, 0) for pubend, tick in absent)
        return Faults(missed, waiting, repeated, disordered)

    @property
    def wrong(self) -> float:
        """Deliveries that were missed, repeated or out of order."""
        return float(sum(self.all_faults) - self.all_faults.waiting)

    def _wanted(self) -> dict[str, list[tuple[str, int]]]:
        """What is due to each reader."""
        asked = _plain(self._tables.stream_requested.select("publisher", "count", "attributes"))
        attributes = {
            (publisher, count): msgspec.json.decode(text)
            for publisher, count, text in zip(asked["publisher"], asked["count"], asked["attributes"], strict=True)
        }
        stored = self._committed
        rows = zip(*(stored[name] for name in ("pubend", "tick", "publisher", "count")), strict=True)
        messages = [((pubend, int(tick)), attributes[publisher, count]) for pubend, tick, publisher, count in rows]
        found = {}
        for client in self._scenario.client:
            for subscription in client.subscribe:
                matches = parse_predicate(subscription.where).matches
                found[client.name] = [at for at, described in messages if matches(described)]
        return found

    @cached_property
    def delays(self) -> Floats:
        """Of all deliveries, in order of size."""
        asked = _plain(self._tables.stream_requested.select("time", "publisher", "count"))
        rows = zip(asked["publisher"], asked["count"], asked["time"], strict=True)
        published = {(publisher, count): time for publisher, count, time in rows}
        came = self._delivered
        at = np.array([published[one] for one in zip(came["publisher"], came["count"], strict=True)])
        return np.sort(came["time"] - at)

    @cached_property
    def waits(self) -> Floats:
        """How long publish() took, of all that were stored, in order of size."""
        return np.sort(_plain(self._tables.stream_confirmed.select("waited"))["waited"])

    @cached_property
    def _for_a_worker(self) -> dict[str, Floats]:
        table = self._tables.counted
        rows = _plain(table.where((table.name == "queue packets") & (table.peer == "")).select("time", "node", "value"))
        found: dict[str, Floats] = defaultdict(lambda: np.zeros(self.seconds))
        for time, node, value in zip(rows["time"], rows["node"], rows["value"], strict=True):
            if int(time) < self.seconds:
                found[node][int(time)] = value
        return found

    def ingress_packets(self, broker: str) -> Floats:
        """How many packets wait for the processor of a broker, in each second."""
        return self._for_a_worker[broker]

    def drops(self, place: str) -> int:
        """Packets that ended there for want of room."""
        table = self._tables.dropped
        return int(table.where((table.place == place) & (table.cause == "queue full")).count())

    def link_bytes(self, node: str, peer: str) -> Floats:
        """What a link has carried in this direction, in each second."""
        table = self._tables.counted
        chosen = table.where((table.name == "link bytes") & (table.node == node) & (table.peer == peer))
        rows = _plain(chosen.select("time", "value"))
        found = np.zeros(self.seconds)
        within = rows["time"].astype(int) < self.seconds
        np.add.at(found, rows["time"][within].astype(int), rows["value"][within])
        return found

    @cached_property
    def _lags(self) -> Columns:
        table = self._horizons
        return {**table, "lag": (table["newest"] - table["horizon"]) / SECOND}

    def largest_lag(self, start: float, stop: float, *, edges: tuple[str, ...] = ()) -> float:
        """How far any doubt horizon of these edges, or of all, was behind its pubend, in seconds."""
        table = self._lags
        chosen = (table["time"] >= start) & (table["time"] < stop)
        if edges:
            chosen &= np.isin(table["node"], edges)
        return float(table["lag"][chosen].max()) if chosen.any() else NAN

    def near_again(self, since: float) -> float:
        """When all doubt horizons were near their pubends, and stayed so; NaN: not by the end."""
        table = self._lags
        late = table["time"][(table["lag"] > RECOVERED_LAG) & (table["time"] >= since)]
        if not len(late):
            return since
        return NAN if late.max() >= table["time"].max() - 1.0 else float(late.max()) + 1.0


def _plain(frame: object) -> Columns:
    table = frame.toArrow()  # type: ignore[attr-defined]
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def percentile(values: Floats, share: float) -> float:
    """Of values in order; NaN of none."""
    return float(values[min(int(share * len(values)), len(values) - 1)]) if len(values) else NAN

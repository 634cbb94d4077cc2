"""What all experiments on streams under congestion look at in a run, and the words they share (001 section 5).

*Published* is what pubends have on disk, *received* what the readers of an edge got, both in messages per second. The
*queue* is what waits at a broker for a link, in bytes of data, looked at once a second. The *lag* of an edge is how far
its doubt horizon is behind the pubend, its *pace* how fast that moves, in seconds of ticks per second: both are noted
at each query, so there are none while a link is down. An edge has *recovered* when its lag is at most RECOVERED_LAG for
all pubends and stays so.

A delivery is *missed* if it was due, and a later one of its pubend came; *repeated* if it came before; *disordered*
if a later one of the pubend came before it. With `fewer` messages (see the set-up) rates are given as if there
were as many as in the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.lab.engine.experiment import Figure, Scale
from penstock.lab.engine.view import Columns, Floats, View
from penstock.lab.pages.style import lines
from penstock.lab.setups.gryphon import PAPER_CONTROL, PUBENDS, RATE, READERS, STREAM, WIRE_BYTES, parts_of
from penstock.streams.packets import pubend_name

PAPER: tuple[Scale, ...] = ("paper",)
NAN = float("nan")
SECOND = 1_000_000  # ticks
RECOVERED_LAG = 2.0  # seconds
PUBEND_NAMES = tuple(pubend_name(STREAM, number) for number in range(PUBENDS))

PARAMETERS = {
    "messages": f"{PUBENDS} pubends with {RATE / PUBENDS:g} messages/s each, {WIRE_BYTES} bytes on the wire",
    "readers": f"{READERS} durable readers at each edge, which together get what the paper's 250 get (100 in the"
    " complex network); between brokers nothing differs",
    "queues": "5 MB for each link; control overtakes data",
    "windows": f"receive window {PAPER_CONTROL.receive_window:g} s, ten seconds of messages cached at each broker",
    "control": "Table 1 of the paper; a floor of 1 message/s for each pubend",
}


class Faults(NamedTuple):
    """What went wrong at an edge."""

    missed: int
    waiting: int  # due, and not come by the end of the run
    repeated: int
    disordered: int


_counted: WeakKeyDictionary[View, StreamCounts] = WeakKeyDictionary()


def counted(view: View) -> StreamCounts:
    """The counts of this run, made once."""
    if view not in _counted:
        _counted[view] = StreamCounts(view)
    return _counted[view]


class StreamCounts:
    """Counts of one run."""

    def __init__(self, view: View) -> None:
        self._tables = view.tables
        self.seconds = int(view.scenario.duration)
        published = sum(flow.rate_messages_per_s for client in view.scenario.client for flow in client.publish)
        self.fewer = RATE / published

    @cached_property
    def _committed(self) -> Columns:
        return _columns(self._tables.pubend_committed.select("time", "pubend", "tick", "publisher", "count"))

    @cached_property
    def _delivered(self) -> Columns:
        table = self._tables.stream_delivered
        return _columns(table.select("time", "node", "pubend", "tick", "publisher", "count"))

    @cached_property
    def _parts(self) -> dict[tuple[str, int], int]:
        table = _columns(self._tables.stream_requested.select("publisher", "count", "attributes"))
        rows = zip(table["publisher"], table["count"], table["attributes"], strict=True)
        return {(publisher, count): msgspec.json.decode(text)["part"] for publisher, count, text in rows}

    @cached_property
    def published(self) -> Floats:
        """All pubends together, in each second."""
        return self._per_second(self._committed["time"])

    @cached_property
    def published_by(self) -> dict[str, Floats]:
        """Each pubend."""
        times, names = self._committed["time"], self._committed["pubend"]
        return {name: self._per_second(times[names == name]) for name in PUBEND_NAMES}

    @cached_property
    def received(self) -> dict[str, Floats]:
        """The readers of each edge, in each second."""
        edges = np.array([node.partition("-")[0] for node in self._delivered["node"]])
        return {str(edge): self._per_second(self._delivered["time"][edges == edge]) for edge in np.unique(edges)}

    def queue_bytes(self, node: str, peer: str) -> Floats:
        """What waits at a broker for a link, in each second."""
        return self._queues.get((node, peer), np.zeros(self.seconds))

    @property
    def largest_queue(self) -> float:
        """The most that waited for any link between brokers."""
        return max((float(sizes.max()) for sizes in self._queues.values()), default=0.0)

    @cached_property
    def _queues(self) -> dict[tuple[str, str], Floats]:
        table = self._tables.counted
        rows = _columns(table.where(table.name == "queue bytes").select("time", "node", "peer", "value"))
        found: dict[tuple[str, str], Floats] = defaultdict(lambda: np.zeros(self.seconds))
        for time, node, peer, value in zip(rows["time"], rows["node"], rows["peer"], rows["value"], strict=True):
            if "-" not in peer and "-" not in node and not peer.startswith("p") and int(time) < self.seconds:
                found[node, peer][int(time)] = value
        return dict(found)

    @cached_property
    def _horizons(self) -> Columns:
        names = ("time", "node", "pubend", "horizon", "newest", "pace", "recovering", "nack_window")
        return _columns(self._tables.horizon_measured.select(*names).orderBy("time"))

    def horizon(self, edge: str, pubend: str) -> Columns:
        """What an edge noted of a pubend at each query: time, lag, pace, recovering, and the NACK window, in order."""
        table = self._horizons
        mine = (table["node"] == edge) & (table["pubend"] == pubend)
        found = {name: table[name][mine] for name in ("time", "horizon", "pace", "recovering", "nack_window")}
        return {**found, "lag": (table["newest"][mine] - table["horizon"][mine]) / SECOND}

    @cached_property
    def alerts(self) -> Columns:
        """What came to the pubends; NaN where an alert says nothing of a class."""
        table = _columns(self._tables.alert_received.orderBy("time"))
        for name in ("keeping_up", "recovering"):
            table[name] = np.where(table[name] < 0.0, NAN, table[name])
        return table

    def recovered_at(self, edge: str, since: float) -> float:
        """When an edge had recovered; NaN if it had not by the end."""
        last = since
        for pubend in PUBEND_NAMES:
            found = self.horizon(edge, pubend)
            late = found["time"][(found["lag"] > RECOVERED_LAG) & (found["time"] >= since)]
            if not len(found["time"]) or (len(late) and late[-1] == found["time"][-1]):
                return NAN
            last = max(last, float(late[-1]) + PAPER_CONTROL.query_interval if len(late) else since)
        return last

    def faults(self, edge: str) -> Faults:
        """Whether the readers of an edge got everything once and in order."""
        table = self._delivered
        mine = np.array([node.partition("-")[0] == edge for node in table["node"]])
        came: dict[str, list[tuple[str, int]]] = {}
        disordered = 0
        readers, pubends, ticks = table["node"][mine], table["pubend"][mine], table["tick"][mine]
        messages = list(zip(table["publisher"][mine], table["count"][mine], strict=True))
        order = np.lexsort((ticks, table["time"][mine]))
        highest: dict[tuple[str, str], int] = {}
        last: dict[str, int] = {}
        for place in order:
            pubend, tick = pubends[place], int(ticks[place])
            disordered += tick <= highest.get((readers[place], pubend), 0)
            highest[readers[place], pubend] = max(tick, highest.get((readers[place], pubend), 0))
            last[pubend] = max(tick, last.get(pubend, 0))
            came.setdefault(pubend, []).append(messages[place])
        wanted = parts_of(edge, self.complex)
        missed = waiting = 0
        got = {pubend: set(those) for pubend, those in came.items()}
        committed = self._committed
        rows = zip(committed["pubend"], committed["tick"], committed["publisher"], committed["count"], strict=True)
        for pubend, tick, publisher, count in rows:
            message = (publisher, count)
            if message not in got.get(pubend, ()) and self._parts.get(message) in wanted:
                missed += tick < last.get(pubend, 0)
                waiting += tick >= last.get(pubend, 0)
        repeated = sum(len(those) for those in came.values()) - sum(len(those) for those in got.values())
        return Faults(missed, waiting, repeated, disordered)

    @property
    def complex(self) -> bool:
        """Whether it is the network with five edges."""
        return "SB5" in self.received

    def _per_second(self, times: Floats) -> Floats:
        counts = np.bincount(times.astype(int), minlength=self.seconds)[: self.seconds]
        return counts.astype(np.float64) * self.fewer


def _columns(frame: object) -> Columns:
    table = frame.toArrow()  # type: ignore[attr-defined]
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def between(rates: Floats, start: float, stop: float) -> float:
    """The mean from start to stop."""
    part = rates[int(start) : int(stop)]
    return float(part.mean()) if len(part) else NAN


def smoothed(rates: Floats, width: int = 5) -> Floats:
    """The mean of so many seconds around each."""
    return np.convolve(rates, np.ones(width) / width, mode="same")


def first_second(holds: NDArray[np.bool_], start: float) -> float:
    """Seconds from `start` to the first second that is true; NaN if there is none."""
    found = np.flatnonzero(holds[int(start) :])
    return float(found[0]) if len(found) else NAN


# Figures.


def curves(caption: str, named: Mapping[str, Floats], y_title: str) -> Figure:
    """Curves over the seconds of the run."""
    rows = [
        {"second": second, "value": float(value), "series": name}
        for name, values in named.items()
        for second, value in enumerate(values)
    ]
    spec = lines(rows, x="second", y="value", series=list(named), x_title="time (s)", y_title=y_title)
    return Figure(caption=caption, spec=spec)


def rates_figure(caption: str, counts: StreamCounts) -> Figure:
    """What was published, and received at each edge."""
    named = {"PB": smoothed(counts.published)}
    named |= {edge: smoothed(rates) for edge, rates in sorted(counts.received.items())}
    return curves(caption, named, "messages per second")


def noted_figure(caption: str, series: Mapping[str, tuple[Floats, Floats]], y_title: str) -> Figure:
    """Values at moments of their own."""
    rows = [
        {"second": float(time), "value": float(value), "series": name}
        for name, (times, values) in series.items()
        for time, value in zip(times, values, strict=True)
        if value == value
    ]
    spec = lines(rows, x="second", y="value", series=list(series), x_title="time (s)", y_title=y_title)
    return Figure(caption=caption, spec=spec)

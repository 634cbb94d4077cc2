"""What became of the messages of streams: stored, due under each durable name, delivered, missed, repeated, disordered.

A message is *stored* when its publisher was told so, at a tick of a pubend. It is *due* under a durable name if it
matches, and its tick is later than the one after which the name's first subscription was in force, whoever reads under
it and whenever. What was due and reached no reader of the name is *missed* if a later one of the pubend did, and else
*waiting*: readers were not so far yet. A reader that did not acknowledge before it crashed leaves messages to the next,
so under one name a message may be delivered more than once (*repeated*); to one reader it may not, nor after a later
one of the same pubend (*disordered*). Delays are from publish() to the first delivery under the name.

If a tick was confirmed for several publications, they are repeats of one message under one publication_id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.content.language.parser import parse_predicate
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import MESSAGE
from penstock.pipeline.parcels import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipeline.read import RunFolder

STREAM_PLACES = (
    "run string, publisher string, incarnation bigint, count bigint, pubend string, tick bigint, requested_at double,"
    " attributes string"
)
STREAMS = (
    "run string, pubend string, durable string, stored bigint, due bigint, delivered bigint, missed bigint,"
    " waiting bigint, repeated bigint, disordered bigint, delay_median double, delay_max double"
)

Row = dict[str, Any]
Stretches = tuple[tuple[float, float], ...]


def _places(tables: ArrowTables) -> pa.Table:
    """Where each message stands that its publisher knows to be stored."""
    asked: dict[tuple[Any, ...], tuple[float, str]] = {}
    for row in tables["stream_requested"].to_pylist():
        key, found = _message(row), (row["time"], row["attributes"])
        asked[key] = min(found, asked.get(key, found))
    rows = []
    for row in tables["stream_confirmed"].to_pylist():
        if _message(row) in asked:
            requested_at, attributes = asked[_message(row)]
            names = {name: row[name] for name in ("run", *MESSAGE, "pubend", "tick")}
            rows.append({**names, "requested_at": requested_at, "attributes": attributes})
    return _table(rows, STREAM_PLACES)


def _message(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("run", *MESSAGE))


PLACES_METRIC = Metric(
    "stream_places",
    STREAM_PLACES,
    {
        "stream_requested": (*MESSAGE, "attributes", "time"),
        "stream_confirmed": (*MESSAGE, "pubend", "tick"),
    },
    _places,
    together=dict.fromkeys(("stream_requested", "stream_confirmed"), MESSAGE),
)


def streams_metric(runs: Sequence[RunFolder]) -> Metric:
    """The table of durable names; what was published in a run's `unjudged` stretches is not due."""
    unjudged = {run.run: run.unjudged for run in runs}

    def work(tables: ArrowTables) -> pa.Table:
        parts: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for name, table in tables.items():
            for row in table.to_pylist():
                parts[row["run"], row["pubend"]][name].append(row)
        rows = [row for (run, _), part in parts.items() for row in _of_pubend(part, unjudged.get(run, ()))]
        return _table(rows, STREAMS)

    reads = {
        "stream_places": (*MESSAGE, "pubend", "tick", "requested_at", "attributes"),
        "stream_delivered": ("node", "subscription", "pubend", "tick", "time"),
        "durable_began": ("node", "subscription", "durable", "pubend", "tick", "where"),
    }
    return Metric("streams", STREAMS, reads, work, together=dict.fromkeys(reads, ("pubend",)))


def _of_pubend(part: dict[str, list[Row]], unjudged: Stretches) -> Iterable[Row]:
    """The rows of all durable names of one pubend."""
    stored: dict[int, Row] = {}
    for row in sorted(part["stream_places"], key=lambda row: (row["requested_at"], *_message(row))):
        stored.setdefault(row["tick"], row)
    names: dict[str, list[Row]] = defaultdict(list)
    name_of: dict[tuple[str, int], str] = {}
    for row in part["durable_began"]:
        reader = (row["node"], row["subscription"])
        names[row["durable"]].append(row)
        name_of[reader] = min(row["durable"], name_of.get(reader, row["durable"]))
    delivered: dict[str, list[Row]] = defaultdict(list)
    for row in part["stream_delivered"]:
        if (name := name_of.get((row["node"], row["subscription"]))) is not None:
            delivered[name].append(row)
    for name, began in names.items():
        yield _of_name(name, began, stored, delivered[name], unjudged)


def _of_name(name: str, began: list[Row], stored: dict[int, Row], delivered: list[Row], unjudged: Stretches) -> Row:
    after, wanted = min(row["tick"] for row in began), parse_predicate(min(row["where"] for row in began))
    due = {
        tick
        for tick, row in stored.items()
        if tick > after
        and wanted.matches(msgspec.json.decode(row["attributes"]))
        and not any(begin <= row["requested_at"] <= end for begin, end in unjudged)
    }
    first: dict[int, float] = {}
    for row in delivered:
        first[row["tick"]] = min(row["time"], first.get(row["tick"], row["time"]))
    left, last = due - first.keys(), max(first, default=0)
    delays = sorted(at - stored[tick]["requested_at"] for tick, at in first.items() if tick in stored)
    return {
        "run": began[0]["run"],
        "pubend": began[0]["pubend"],
        "durable": name,
        "stored": len(stored),
        "due": len(due),
        "delivered": len(first),
        "missed": sum(tick < last for tick in left),
        "waiting": sum(tick > last for tick in left),
        "repeated": len(delivered) - len(first),
        "disordered": _disordered(delivered),
        "delay_median": delays[(len(delays) - 1) // 2] if delays else None,
        "delay_max": delays[-1] if delays else None,
    }


def _disordered(delivered: list[Row]) -> int:
    """Deliveries to one reader after another, at an earlier moment, of the same tick or a later one."""
    readers: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for row in delivered:
        readers[row["node"], row["subscription"]].append((row["time"], row["tick"]))
    count = 0
    for rows in readers.values():
        rows.sort()
        times, highest = [at for at, _ in rows], [0]
        for _, tick in rows:
            highest.append(max(highest[-1], tick))
        for at, tick in rows:
            count += highest[bisect_left(times, at)] >= tick
    return count


def _table(rows: list[Row], ddl: str) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, arrow_schema(ddl))

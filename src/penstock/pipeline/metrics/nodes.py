"""What became of the nodes: their lives, their neighbours, and everything that they counted.

The counts of links and queues have tables of their own, by the second (`per_second`); here is every count, over the
whole run: of caches and flows, of feedback, of datagrams that a link lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import grouped
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import count_rows, key_table
from penstock.pipeline.parcels import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LIVES = "run string, node string, role string, incarnation bigint, started double, stopped double, cause string"
NEIGHBOURS = "run string, node string, neighbour bigint, came_up bigint, went_down bigint"
COUNTS = "run string, node string, name string, peer string, records bigint, total bigint, largest bigint"


def lives(node_started: DataFrame, node_stopped: DataFrame) -> DataFrame:
    """Every life of every node, and how it ended; null where the trace does not say.

    A life ends with the next record of its node that says so. Where an end and a start fall on one moment, the end is
    that of the life before.
    """
    return table_of(LIVES_METRIC, {"node_started": node_started, "node_stopped": node_stopped})


def neighbours(neighbour_changed: DataFrame) -> DataFrame:
    """How often each broker began and ceased to count another, whose number is given, as its neighbour."""
    return table_of(NEIGHBOURS_METRIC, {"neighbour_changed": neighbour_changed})


def counts(counted: DataFrame) -> DataFrame:
    """Everything that nodes counted: how many records there are of it, their sum, and the largest of them."""
    return table_of(COUNTS_METRIC, {"counted": counted})


# The metrics behind them.


def _lives(tables: ArrowTables) -> pa.Table:
    import pyarrow as pa

    events: list[tuple[Any, ...]] = []  # in the order of their node and time, ends before starts
    for row in tables["node_started"].to_pylist():
        events.append((row["run"], row["node"], row["time"], 1, row["incarnation"], row["role"]))
    for row in tables["node_stopped"].to_pylist():
        events.append((row["run"], row["node"], row["time"], 0, 0, row["cause"]))
    events.sort()
    rows = []
    for this, following in zip(events, [*events[1:], ("", "", 0.0, 1)], strict=True):
        run, node, started, start, incarnation, role = this
        if start:
            ended = following[:2] == (run, node) and not following[3]
            stopped, cause = (following[2], following[5]) if ended else (None, None)
            rows.append(dict(zip(_LIFE, (run, node, role, incarnation, started, stopped, cause), strict=True)))
    return pa.Table.from_pylist(rows, arrow_schema(LIVES))


def _neighbours(tables: ArrowTables) -> pa.Table:
    import numpy as np

    table = tables["neighbour_changed"]
    up = table["up"].to_numpy(zero_copy_only=False).astype(np.int64)
    found = count_rows(table, ["run", "node", "neighbour"], "all", {"came_up": up, "went_down": 1 - up})
    return found.drop_columns("all")


def _counts(tables: ArrowTables) -> pa.Table:
    import numpy as np

    table, keys = tables["counted"], ["run", "node", "name", "peer"]
    named, rows = grouped(table, keys, ["value"])
    values, starts = rows["value"], rows.starts
    total, largest = np.add.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return key_table(named, np.arange(len(named)), records=rows.ends - starts, total=total, largest=largest)


_LIFE = ("run", "node", "role", "incarnation", "started", "stopped", "cause")
LIVES_METRIC = Metric(
    "lives",
    LIVES,
    {"node_started": ("node", "time", "role", "incarnation"), "node_stopped": ("node", "time", "cause")},
    _lives,
    together={"node_started": ("node",), "node_stopped": ("node",)},
)
NEIGHBOURS_METRIC = Metric(
    "neighbours",
    NEIGHBOURS,
    {"neighbour_changed": ("node", "neighbour", "up")},
    _neighbours,
    totals={"came_up": "sum", "went_down": "sum"},
)
COUNTS_METRIC = Metric(
    "counts",
    COUNTS,
    {"counted": ("node", "name", "peer", "value")},
    _counts,
    totals={"records": "sum", "total": "sum", "largest": "max"},
)

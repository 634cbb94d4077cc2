"""FIFO violations (002 section 3.1.1), and how long messages were held to avoid them.

For every pair of messages m1 and m2 sent by s and received by r, a violation occurs whenever s sends m1 before m2 but
r receives m2 before m1. Counted is what the paper plots: messages that came too late, that is, messages that a client
received after it had received a later one of the same publisher; a message that three others overtook counts once.

The order of sending is that of incarnation and count, the order of reception that of time and, at one moment, of
sending: what arrives at the same time arrives in order. A message that is delivered for two subscriptions of a client,
or twice, is still one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import Rows, grouped, ordinal, tally
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import as_client, key_table, steady_sums

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

VIOLATIONS = "run string, publisher string, client string, received bigint, violations bigint"
VIOLATIONS_PER_SECOND = "run string, second bigint, violations bigint"
LATE_PER_SECOND = "run string, publisher string, client string, second bigint, late bigint"
ORDER = (
    "run string, publisher string, client string, delivered bigint, late bigint, latched bigint, assigned double,"
    " held double"
)


def ordering(ordered: DataFrame) -> DataFrame:
    """What each client's transport did for the order of a publisher's messages: how many it handed over, how many of
    them late, how many had to wait; the seconds of waiting that were assigned to them, and those that they waited.
    """
    return table_of(ORDER_METRIC, {"ordered": ordered})


def fifo_violations(delivered: DataFrame) -> DataFrame:
    """How many messages each client received from each publisher, and how many of them too late."""
    return table_of(VIOLATIONS_METRIC, {"delivered": delivered})


def fifo_violations_per_second(delivered: DataFrame) -> DataFrame:
    """How many messages came too late in each second of a run, over all publishers and clients; no row where none."""
    return table_of(VIOLATIONS_PER_SECOND_METRIC, {"delivered": delivered}, [LATE_PER_SECOND_METRIC])


def late_per_second(delivered: DataFrame) -> DataFrame:
    """How many messages of each publisher came to each client too late in each second of a run; no row where none."""
    return table_of(LATE_PER_SECOND_METRIC, {"delivered": delivered})


# The metrics behind them.

_COUNTS, _SECONDS = ("delivered", "late", "latched"), ("assigned", "held")


def _ordering(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, rows = grouped(tables["ordered"], ["run", "publisher", "node"], [*_COUNTS, *_SECONDS])
    counts = {name: np.add.reduceat(rows[name], rows.starts) for name in _COUNTS}
    return as_client(key_table(keys, np.arange(len(keys)), **counts, **steady_sums(rows, _SECONDS)))


def _violations(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, rows = grouped(tables["delivered"], ["run", "publisher", "node"], ["time", "incarnation", "count"])
    rows, order = in_order_of_reception(rows)
    new = _new(order)
    received = np.bincount(rows.number[new], minlength=len(keys))
    violations = np.bincount(rows.number[_late(order, new)], minlength=len(keys))
    return as_client(key_table(keys, np.arange(len(keys)), received=received, violations=violations))


def _late_per_second(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, rows = grouped(tables["delivered"], ["run", "publisher", "node"], ["time", "incarnation", "count"])
    rows, order = in_order_of_reception(rows)
    late = rows.take(late_messages(order))
    pair, second, counted = tally(late.number, np.floor(late["time"]).astype(np.int64))
    return as_client(key_table(keys, pair, second=second, late=counted))


def _violations_per_second(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, rows = grouped(tables["late_per_second"], ["run", "second"], ["late"])
    violations = np.add.reduceat(rows["late"], rows.starts)
    return key_table(keys, np.arange(len(keys)), violations=violations)


_RECEPTION = {"delivered": ("publisher", "node", "time", "incarnation", "count")}
_BY_PAIR = {"delivered": ("publisher", "node")}
ORDER_METRIC = Metric(
    "order",
    ORDER,
    {"ordered": ("publisher", "node", *_COUNTS, *_SECONDS)},
    _ordering,
    together={"ordered": ("publisher", "node")},
)
VIOLATIONS_METRIC = Metric("fifo_violations", VIOLATIONS, _RECEPTION, _violations, together=_BY_PAIR)
LATE_PER_SECOND_METRIC = Metric("late_per_second", LATE_PER_SECOND, _RECEPTION, _late_per_second, together=_BY_PAIR)
VIOLATIONS_PER_SECOND_METRIC = Metric(
    "fifo_violations_per_second",
    VIOLATIONS_PER_SECOND,
    {"late_per_second": ("second", "late")},
    _violations_per_second,
    totals={"violations": "sum"},
)


def in_order_of_reception(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """The rows by group, time and order of sending, and the order of sending as one growing number for each group."""
    import numpy as np

    order = ordinal(rows.number, rows["incarnation"], rows["count"])
    time = rows["time"]
    chosen = np.arange(len(order))
    ends = np.flatnonzero(np.diff(rows.number, append=-1)) + 1
    unsorted = np.flatnonzero(_backwards(rows.number, time, order))
    # Files of a trace are in order, but tasks take them as they come. A group is then a few runs that are sorted each,
    # which a stable sort merges; sorting everything at once would take longer than all the rest.
    for group in np.unique(np.searchsorted(ends, unsorted, side="right")):
        part = slice(ends[group - 1] if group else 0, ends[group])
        chosen[part] = part.start + np.argsort(time[part], kind="stable")
    rows, order = rows.take(chosen), order[chosen]
    if not bool(np.any(_backwards(rows.number, rows["time"], order))):
        return rows, order
    chosen = np.lexsort((order, rows["time"], rows.number))  # several at one moment, and not in order
    return rows.take(chosen), order[chosen]


def _backwards(group: NDArray[np.int64], time: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a row should not stand before the next one."""
    tie = (time[1:] == time[:-1]) & (order[1:] < order[:-1])
    wrong: NDArray[np.bool_] = (group[1:] == group[:-1]) & ((time[1:] < time[:-1]) | tie)
    return wrong


def late_messages(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a message comes for the first time after one that was sent later; what comes again is not late, but twice.

    The numbers of a group are all above those of the group before, so one running maximum serves all groups.
    """
    return _late(order, _new(order))


def _late(order: NDArray[np.int64], new: NDArray[np.bool_]) -> NDArray[np.int64]:
    import numpy as np

    first = np.flatnonzero(new)
    seen = order[first]
    return first[seen < np.maximum.accumulate(seen)] if len(seen) else first


def _new(order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are the first of their message."""
    import numpy as np

    ordered = np.sort(order)
    if not bool(np.any(ordered[1:] == ordered[:-1])):
        return np.ones(len(order), dtype=bool)
    new = np.zeros(len(order), dtype=bool)  # finding out which ones come again takes ten times as long
    new[np.unique(order, return_index=True)[1]] = True
    return new

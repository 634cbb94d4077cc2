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

from penstock.pipeline.metrics.shared import (
    DELIVERY_KEYS,
    PUBLICATION_LAYOUT,
    ordinal,
    pack_deliveries,
    steady_sum,
    tally,
)
from penstock.pipeline.packs import Rows, number_rows, over_packs, unpack

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

VIOLATIONS = "run string, publisher string, client string, received bigint, violations bigint"
VIOLATIONS_PER_SECOND = "run string, second bigint, violations bigint"
ORDER = (
    "run string, publisher string, client string, delivered bigint, late bigint, latched bigint, assigned double,"
    " held double"
)


def ordering(ordered: DataFrame) -> DataFrame:
    """What each client's transport did for the order of a publisher's messages: how many it handed over, how many of
    them late, how many had to wait; the seconds of waiting that were assigned to them, and those that they waited.
    """
    from pyspark.sql import functions as F

    counts = [F.sum(name).alias(name) for name in ("delivered", "late", "latched")]
    seconds = [steady_sum(name).alias(name) for name in ("assigned", "held")]
    return ordered.groupBy("run", "publisher", F.col("node").alias("client")).agg(*counts, *seconds)


def fifo_violations(delivered: DataFrame) -> DataFrame:
    """How many messages each client received from each publisher, and how many of them too late."""

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        numbers, first = number_rows(packs, DELIVERY_KEYS)
        rows, order = in_order_of_reception(unpack(packs, numbers, PUBLICATION_LAYOUT))
        late = late_messages(order)
        received = np.bincount(rows.number[_new(order)], minlength=len(first))
        violations = np.bincount(rows.number[late], minlength=len(first))
        keys = [packs.column(name).take(pa.array(first)) for name in DELIVERY_KEYS]
        return pa.table([*keys, received, violations], names=["run", "publisher", "client", "received", "violations"])

    return over_packs(pack_deliveries(delivered), DELIVERY_KEYS, work, VIOLATIONS)


def fifo_violations_per_second(delivered: DataFrame) -> DataFrame:
    """How many messages came too late in each second of a run, over all publishers and clients; no row where none."""
    from pyspark.sql import functions as F

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        numbers, _ = number_rows(packs, DELIVERY_KEYS)
        rows, order = in_order_of_reception(unpack(packs, numbers, PUBLICATION_LAYOUT))
        late = rows.take(late_messages(order))
        runs, first = number_rows(packs, ("run",))
        run_of_number = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
        run_of_number[numbers] = runs
        run, second, violations = tally(run_of_number[late.number], np.floor(late["time"]).astype(np.int64))
        names = packs.column("run").take(pa.array(first)).take(pa.array(run))
        return pa.table([names, second, violations], names=["run", "second", "violations"])

    parts = over_packs(pack_deliveries(delivered), DELIVERY_KEYS, work, VIOLATIONS_PER_SECOND)
    return parts.groupBy("run", "second").agg(F.sum("violations").alias("violations"))


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
    import numpy as np

    first = np.sort(_new(order))
    seen = order[first]
    return first[seen < np.maximum.accumulate(seen)] if len(seen) else first


def _new(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each message stands for the first time."""
    import numpy as np

    return np.unique(order, return_index=True)[1]

"""What should have come and did not, what came and should not have, what came twice, and what was dropped on the way.

The *truth* says who should have received what: one row for each message and subscription that match. A row that is
`due` must be delivered; one that is not (the message was published while the subscription was spreading through the
network) may be. So a false negative is a due row without a delivery, and a false positive is a delivery without any
row.

Both sides may have ten millions of rows, so they meet as packs (see `packs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.metrics.shared import DELIVERY_KEYS, DELIVERY_LAYOUT, ordinal, pack_deliveries
from penstock.pipeline.packs import ROWS, Rows, number_rows, over_packs, pack, unpack

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

TRUTH = (
    "run string, publisher string, incarnation bigint, count bigint, client string, subscription bigint,"
    " published_at double, due boolean"
)
_MESSAGE = "run string, publisher string, incarnation bigint, count bigint, client string, subscription bigint"
FALSE_NEGATIVES = f"{_MESSAGE}, published_at double"
FALSE_POSITIVES = f"{_MESSAGE}, delivered_at double"
MISSED = "run string, publisher string, client string, due bigint, missed bigint"
DUPLICATES = "run string, publisher string, client string, duplicates bigint"
DROPS = (
    "run string, node string, peer string, place string, cause string, kind string, packets bigint, destinations bigint"
)
_LAYOUT = DELIVERY_LAYOUT | {"due": "<i8"}


def false_negatives(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    """The messages that should have been delivered and were not, one row for each subscription that missed one."""

    def work(packs: pa.Table) -> pa.Table:
        both = _Both(packs)
        return both.table(both.wanted.take(both.missed()), "published_at")

    return over_packs(_side_by_side(truth, delivered), DELIVERY_KEYS, work, FALSE_NEGATIVES)


def false_positives(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    """The deliveries that nobody had asked for."""

    def work(packs: pa.Table) -> pa.Table:
        both = _Both(packs)
        return both.table(both.got.take(both.unwanted()), "delivered_at")

    return over_packs(_side_by_side(truth, delivered), DELIVERY_KEYS, work, FALSE_POSITIVES)


def missed(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    """How many messages were due from each publisher to each client, and how many of them were missed."""

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        both = _Both(packs)
        due = np.bincount(both.wanted.number[both.wanted["due"] == 1], minlength=len(both.keys))
        lost = np.bincount(both.wanted.number[both.missed()], minlength=len(both.keys))
        table = both.keys.append_column("due", pa.array(due)).append_column("missed", pa.array(lost))
        return table.filter(pa.array(due > 0))

    return over_packs(_side_by_side(truth, delivered), DELIVERY_KEYS, work, MISSED)


def duplicates(delivered: DataFrame) -> DataFrame:
    """How many deliveries repeated an earlier one of the same message for the same subscription; no row where none."""

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        numbers, first = number_rows(packs, DELIVERY_KEYS)
        rows = unpack(packs, numbers, DELIVERY_LAYOUT)
        _, once = np.unique(_deliveries(rows), return_index=True)
        repeated = np.bincount(numbers, weights=packs.column(ROWS).to_numpy(), minlength=len(first)).astype(np.int64)
        repeated -= np.bincount(rows.number[once], minlength=len(first))
        table = _named_keys(packs, first).append_column("duplicates", pa.array(repeated))
        return table.filter(pa.array(repeated > 0))

    return over_packs(pack_deliveries(delivered), DELIVERY_KEYS, work, DUPLICATES)


def drops(dropped: DataFrame) -> DataFrame:
    """Packets that ended on the way, and how many destinations they were still meant for, by place and cause."""
    from pyspark.sql import functions as F

    return dropped.groupBy("run", "node", "peer", "place", "cause", "kind").agg(
        F.count("*").alias("packets"), F.sum("destinations").alias("destinations")
    )


# Truth and deliveries side by side.


def _side_by_side(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    wanted = truth.withColumnsRenamed({"client": "node", "published_at": "time"})
    wanted = wanted.withColumn("due", F.col("due").cast("bigint"))
    columns = [*DELIVERY_KEYS, ROWS, *_LAYOUT, "truth"]
    left = pack(wanted, DELIVERY_KEYS, tuple(_LAYOUT)).withColumn("truth", F.lit(True)).select(*columns)
    right = pack_deliveries(delivered).withColumns({"due": F.col("count"), "truth": F.lit(False)}).select(*columns)
    return left.unionByName(right)


class _Both:
    """The truth and the deliveries of a task, under common numbers for run, publisher and client."""

    def __init__(self, packs: pa.Table) -> None:
        import numpy as np
        import pyarrow as pa

        truth = packs.column("truth").to_numpy()
        numbers, first = number_rows(packs, DELIVERY_KEYS)
        self.keys = _named_keys(packs, first)
        self.wanted = unpack(packs.filter(pa.array(truth)), numbers[truth], _LAYOUT)
        self.got = unpack(packs.filter(pa.array(~truth)), numbers[~truth], DELIVERY_LAYOUT)
        columns = ("subscription", "incarnation", "count")
        joined = [np.concatenate([self.wanted.number, self.got.number])]
        joined += [np.concatenate([self.wanted[name], self.got[name]]) for name in columns]
        identity = ordinal(*joined)
        self._wanted, self._got = identity[: len(self.wanted)], identity[len(self.wanted) :]

    def missed(self) -> NDArray[np.bool_]:
        import numpy as np

        due: NDArray[np.bool_] = self.wanted["due"] == 1
        return due & ~np.isin(self._wanted, self._got)

    def unwanted(self) -> NDArray[np.bool_]:
        import numpy as np

        return ~np.isin(self._got, self._wanted)

    def table(self, rows: Rows, time: str) -> pa.Table:
        """These rows with their keys, as a table of messages."""
        import pyarrow as pa

        table = self.keys.take(pa.array(rows.number))
        for name in ("subscription", "incarnation", "count"):
            table = table.append_column(name, pa.array(rows[name]))
        order = ["run", "publisher", "incarnation", "count", "client", "subscription", time]
        return table.append_column(time, pa.array(rows["time"])).select(order)


def _deliveries(rows: Rows) -> NDArray[np.int64]:
    """One number for each subscription and message."""
    return ordinal(rows.number, rows["subscription"], rows["incarnation"], rows["count"])


def _named_keys(packs: pa.Table, first: NDArray[np.int64]) -> pa.Table:
    import pyarrow as pa

    return packs.select(list(DELIVERY_KEYS)).take(pa.array(first)).rename_columns(["run", "publisher", "client"])

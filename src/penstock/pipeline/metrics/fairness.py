"""Jain's index of fairness.

With shares x_1 .. x_n:

               (x_1 + ... + x_n)^2
    J  =  -------------------------------
            n (x_1^2 + ... + x_n^2)

1 if all get the same, 1/n if one gets everything. Where nobody gets anything, all get the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import grouped
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import key_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

JAIN_INDEX = "run string, shares bigint, jain double"


def jain_index(table: DataFrame, share: str, per: Sequence[str] = ()) -> DataFrame:
    """How evenly the column `share` is spread over the rows of each run, or of each group `per` run, and over how many
    rows."""
    return table_of(jain("jain_index", "shares", share, per), {"shares": table})


def jain(name: str, table: str, share: str, per: Sequence[str] = ()) -> Metric:
    """The index over the rows of a table."""

    def work(tables: ArrowTables) -> pa.Table:
        import numpy as np

        keys, rows = grouped(tables[table], ["run", *per], [share])
        shares = rows[share].astype(np.float64)
        many = np.bincount(rows.number)
        total = np.bincount(rows.number, weights=shares)
        squares = np.bincount(rows.number, weights=shares * shares)
        even = squares == 0.0
        index = np.where(even, 1.0, total * total / np.where(even, 1.0, many * squares))
        return key_table(keys, np.arange(len(keys)), shares=many, jain=index)

    ddl = ", ".join([*(f"{key} string" for key in ("run", *per)), "shares bigint", "jain double"])
    return Metric(name, ddl, {table: (*per, share)}, work, together={table: tuple(per)})


FAIRNESS_METRIC = jain("fairness", "fifo_violations", "received")

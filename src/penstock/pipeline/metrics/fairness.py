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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JAIN_INDEX = "run string, shares bigint, jain double"


def jain_index(table: DataFrame, share: str, per: Sequence[str] = ("run",)) -> DataFrame:
    """How evenly the column `share` is spread over the rows of each group, and over how many rows."""
    from pyspark.sql import functions as F

    x = F.col(share).cast("double")
    squares = F.sum(x * x)
    return table.groupBy(*per).agg(
        F.count("*").alias("shares"),
        F.when(squares == 0.0, 1.0).otherwise(F.sum(x) * F.sum(x) / (F.count("*") * squares)).alias("jain"),
    )

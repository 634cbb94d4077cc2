"""Per second: what was published, withheld, delivered and missed, what each link carried, and what stood in its queue.

These are plain aggregations, which Spark does well by itself. A second without anything has no row: whoever draws a
curve fills in the zeros, because only he knows where the curve begins and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RATES = "run string, second bigint, published bigint, delivered bigint, missed bigint"
LINK_USE = "run string, node string, peer string, second bigint, packets bigint, bytes bigint"
QUEUE_LENGTHS = "run string, node string, peer string, time double, packets bigint"


def published_per_second(published: DataFrame, by: Sequence[str] = ("publisher",)) -> DataFrame:
    """Publications in each second of each run, in groups `by` publisher (or by nothing)."""
    return _count(published, "time", by, "published")


def delivered_per_second(delivered: DataFrame, by: Sequence[str] = ("client",)) -> DataFrame:
    """Deliveries in each second of each run, in groups `by` client, publisher or both (or by nothing)."""
    return _count(delivered.withColumnRenamed("node", "client"), "time", by, "delivered")


def missed_per_second(false_negatives: DataFrame, by: Sequence[str] = ("client",)) -> DataFrame:
    """Messages that were missed, in the second in which they were published."""
    return _count(false_negatives, "published_at", by, "missed")


def withheld_per_second(message_withheld: DataFrame, by: Sequence[str] = ("publisher",)) -> DataFrame:
    """Messages that were withheld, in the second in which they should have left."""
    return _count(message_withheld, "time", by, "withheld")


def per_second_ddl(by: Sequence[str], what: str) -> str:
    """The schema of the four functions above."""
    return ", ".join([*(f"{name} string" for name in ("run", *by)), "second bigint", f"{what} bigint"])


def rates(published: DataFrame, delivered: DataFrame, false_negatives: DataFrame) -> DataFrame:
    """The three rates of a whole run beside each other (002, figure 3.1)."""
    table = published_per_second(published, ())
    for other in (delivered_per_second(delivered, ()), missed_per_second(false_negatives, ())):
        table = table.join(other, ["run", "second"], "full")
    return table.fillna(0, ["published", "delivered", "missed"])


def link_use(counted: DataFrame) -> DataFrame:
    """What each direction of each link carried, from `node` to `peer`, in each second."""
    from pyspark.sql import functions as F

    def total(name: str, alias: str) -> Column:
        return F.sum(F.when(F.col("name") == name, F.col("value")).otherwise(0)).alias(alias)

    counts = counted.where(F.col("name").isin("link packets", "link bytes"))
    # A count is written at the end of its interval: what is counted at 1.0 happened in second 0.
    second = (F.ceil("time") - 1).cast("bigint").alias("second")
    return counts.groupBy("run", "node", "peer", second).agg(
        total("link packets", "packets"), total("link bytes", "bytes")
    )


def queue_lengths(counted: DataFrame) -> DataFrame:
    """How many packets waited at `node` for the link to `peer` whenever somebody looked."""
    from pyspark.sql import functions as F

    samples = counted.where(F.col("name") == "queue packets")
    return samples.select("run", "node", "peer", "time", F.col("value").alias("packets"))


def _count(table: DataFrame, time: str, by: Sequence[str], what: str) -> DataFrame:
    from pyspark.sql import functions as F

    second = F.floor(time).cast("bigint").alias("second")
    return table.groupBy("run", *by, second).agg(F.count("*").alias(what))

"""What became of the nodes: their lives, their neighbours, and everything that they counted.

The counts of links and queues have tables of their own, by the second (`per_second`); here is every count, over the
whole run: of caches and flows, of feedback, of datagrams that a link lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIVES = "run string, node string, role string, incarnation bigint, started double, stopped double, cause string"
NEIGHBOURS = "run string, node string, neighbour bigint, came_up bigint, went_down bigint"
COUNTS = "run string, node string, name string, peer string, records bigint, total bigint, largest bigint"


def lives(node_started: DataFrame, node_stopped: DataFrame) -> DataFrame:
    """Every life of every node, and how it ended; null where the trace does not say.

    A life ends with the next record of its node that says so. Where an end and a start fall on one moment, the end is
    that of the life before.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    came = node_started.withColumns({"start": F.lit(1), "cause": F.lit(None).cast("string")})
    went = node_stopped.withColumns({"start": F.lit(0), "role": F.lit(""), "incarnation": F.lit(0).cast("bigint")})
    order = Window.partitionBy("run", "node").orderBy("time", "start", "incarnation", "cause")
    ended = F.lead("start").over(order) == 0
    following = {
        name: F.when(ended, F.lead(column).over(order)) for name, column in (("stopped", "time"), ("why", "cause"))
    }
    found = came.unionByName(went).withColumns(following).where("start = 1")
    return found.select(
        "run", "node", "role", "incarnation", F.col("time").alias("started"), "stopped", F.col("why").alias("cause")
    )


def neighbours(neighbour_changed: DataFrame) -> DataFrame:
    """How often each broker began and ceased to count another, whose number is given, as its neighbour."""
    from pyspark.sql import functions as F

    return neighbour_changed.groupBy("run", "node", "neighbour").agg(
        F.count_if("up").alias("came_up"), F.count_if(~F.col("up")).alias("went_down")
    )


def counts(counted: DataFrame) -> DataFrame:
    """Everything that nodes counted: how many records there are of it, their sum, and the largest of them."""
    from pyspark.sql import functions as F

    return counted.groupBy("run", "node", "name", "peer").agg(
        F.count("*").alias("records"), F.sum("value").alias("total"), F.max("value").alias("largest")
    )

"""What congestion control did: which messages publishers withheld, for whose sake, and which quotas flows had.

A publisher names the flow that it limits, and the limiting receiver: the subscriber whose feedback it follows. A
message that finds its flow's queue full does not leave; it is *withheld*, which is neither a loss nor a drop. It has no
record of a publication, so it is in no delay and in no truth: here alone it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WITHHELD = "run string, publisher string, limiting_receiver string, withheld bigint"
FLOW_LIMITS = (
    "run string, publisher string, flow string, limiting_receiver string, time double, quota double"  # 0: free again
)


def withheld(message_withheld: DataFrame) -> DataFrame:
    """How many messages each publisher withheld, and for the sake of whom."""
    from pyspark.sql import functions as F

    return message_withheld.groupBy("run", "publisher", "limiting_receiver").agg(F.count("*").alias("withheld"))


def flow_limits(flow_limited: DataFrame) -> DataFrame:
    """Each change of a flow's quota, in messages/s, as its publisher recorded it; 0: the flow is free again."""
    from pyspark.sql import functions as F

    return flow_limited.select("run", F.col("node").alias("publisher"), "flow", "limiting_receiver", "time", "quota")

"""What became of every message that was due to a subscription: the truth, whatever a transport says of itself.

In a tree there is one way from a publisher to a subscriber, so a record that says where a packet ended also says whom
it was meant for: everybody behind that link. `ways` names them: a row for each broker, its neighbour and each client
that lies behind this neighbour. Where the queue of a slow reader may drop, it is the last link of all, from the client
to nobody: what was dropped there has reached the client and not its application. The transport numbers the messages of
a publisher's life in the order in which they leave, and names by these numbers what it takes for lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FATES = (
    "publisher string, incarnation bigint, count bigint, client string, subscription bigint, published_at double,"
    " ended_at double, delivered_at double, declared_at double, suspected_at double, last boolean"
)
WAYS = "node string, peer string, client string"
READER = "reader"
ON_THE_WAY = ("pipe", "egress", READER)  # where a packet that a broker sends may end
KINDS = ("Publication", "Delivery")
_MESSAGE = ("publisher", "incarnation", "count", "client")


def fates(
    truth: DataFrame,
    published: DataFrame,
    delivered: DataFrame,
    dropped: DataFrame,
    loss_detected: DataFrame,
    loss_suspected: DataFrame,
    lost_on_link: DataFrame,
    ways: list[tuple[str, str, str]],
) -> DataFrame:
    """FATES, of one run: a row for each message and subscription that it was due to.

    When the first copy that was meant for the client was lost on the way, also if its link repaired that, when the
    message was delivered, when the client's transport declared it lost and when it first asked for it in doubt, each
    null if never; and whether it is the last of its publisher's life.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    message = list(_MESSAGE)
    life = Window.partitionBy("publisher", "incarnation")
    numbers = published.select(
        *_MESSAGE[:3],
        F.row_number().over(life.orderBy("time", "count")).alias("sequence"),
        (F.row_number().over(life.orderBy(F.desc("time"), F.desc("count"))) == 1).alias("last"),
    )
    due = truth.where("due").select(*_MESSAGE, "subscription", "published_at")
    read = _of_client(delivered).join(_of_client(dropped.where(F.col("place") == READER)), message, "left_anti")
    came = read.groupBy(*_MESSAGE, "subscription").agg(F.min("time").alias("delivered_at"))
    return (
        due.join(came, [*message, "subscription"], "left")
        .join(_ended(dropped, lost_on_link, ways), message, "left")
        .join(_named(loss_detected, numbers, "declared_at"), message, "left")
        .join(_named(loss_suspected, numbers, "suspected_at"), message, "left")
        .join(numbers, message[:3])
        .select(*(column.split()[0] for column in FATES.split(",")))
    )


def twin_delays(delivered: DataFrame) -> DataFrame:
    """extra double: how much later a message reached subscription 1 of a client than its subscription 0."""
    from pyspark.sql import functions as F

    times = delivered.groupBy("node", *_MESSAGE[:3]).pivot("subscription", [0, 1]).agg(F.min("time"))
    return times.select((F.col("1") - F.col("0")).alias("extra")).dropna()


def _ended(dropped: DataFrame, lost_on_link: DataFrame, ways: list[tuple[str, str, str]]) -> DataFrame:
    from pyspark.sql import functions as F

    behind = F.broadcast(dropped.sparkSession.createDataFrame(ways, WAYS))
    place = ("node", "peer", *_MESSAGE[:3])
    lost = dropped.where(F.col("kind").isin(*KINDS) & F.col("place").isin(*ON_THE_WAY)).select(*place, "time")
    ended = lost.unionByName(lost_on_link.select(*place, "time"))
    return ended.join(behind, ["node", "peer"]).groupBy(*_MESSAGE).agg(F.min("time").alias("ended_at"))


def _named(records: DataFrame, numbers: DataFrame, when: str) -> DataFrame:
    """When a client's transport first named a message, by its number."""
    from pyspark.sql import functions as F

    named = _of_client(records).join(numbers, ["publisher", "incarnation", "sequence"])
    return named.groupBy(*_MESSAGE).agg(F.min("time").alias(when))


def _of_client(frame: DataFrame) -> DataFrame:
    return frame.withColumnRenamed("node", "client")

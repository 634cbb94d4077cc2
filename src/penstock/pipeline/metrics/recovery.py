"""How lost messages were noticed, asked for, sent again and got back (002 section 4.4).

A *loss* is a message that was due and did not come by itself: it is missed for ever, or came as a repair. Records of
the transport name a message by its sequence number, all others by its count. Both are the same as long as a publisher
sends all that it counts, which it does wherever these records are made.

Duplicates. Whoever asks for a message that another client has asked for already, with no repair sent since, has asked
in vain; but asking again because nothing came is no duplicate. So a request is a duplicate if it is its client's first
for this message and another client's request came before it in the same *round*; a round of requests ends with a
repair. For repairs it is the other way round: a round of repairs ends with a request, and whoever is not the first to
answer in a round is a duplicate.

A request is *answered* by those who received it before its sender asked again; a hit is one of them that has the
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import number_rows
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import as_client, key_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_MESSAGE = "run string, publisher string, incarnation bigint, sequence bigint"
RECOVERIES = (
    f"{_MESSAGE}, client string, published_at double, recovered_at double, delay double, detected double,"
    " requested double, attempts bigint"
)
RECOVERY = (
    "run string, publisher string, client string, detected bigint, requests bigint, recovered bigint, gave_up bigint,"
    " repair_mean double"
)
REPAIRS = "run string, publisher string, client string, requests bigint, hits bigint, repairs bigint"
LOST_MESSAGES = (
    "run string, publisher string, incarnation bigint, count bigint, client string, published_at double,"
    " recovered boolean, detected_at double"
)
ROUNDS = (
    f"{_MESSAGE}, requests bigint, repairs bigint, duplicate_requests bigint, duplicate_repairs bigint,"
    " first_request_at double, first_repair_at double"
)
ANSWERS = (
    f"{_MESSAGE}, requester string, attempt bigint, requested_at double, received bigint, hits bigint,"
    " cache_hits bigint"
)
CACHE_SIZES = "run string, client string, publisher string, second bigint, entries bigint"
_KEY = ("run", "publisher", "incarnation", "sequence")
_PAIR = ("run", "publisher", "client")


def recoveries(recovered: DataFrame, published: DataFrame) -> DataFrame:
    """Every message that came back as a repair: how long after its publication, its detection and the first request."""
    from pyspark.sql import functions as F

    message = ["run", "publisher", "incarnation", "count"]
    sent = published.select(*message, F.col("time").alias("published_at"))
    back = recovered.withColumnsRenamed({"node": "client", "time": "recovered_at"})
    joined = back.join(sent, message).withColumn("delay", F.col("recovered_at") - F.col("published_at"))
    return joined.select(*_columns(RECOVERIES))


def recovery_totals(
    loss_detected: DataFrame, request_sent: DataFrame, recovered: DataFrame, gave_up: DataFrame
) -> DataFrame:
    """For each client and publisher: losses detected, requests, messages recovered and given up, and the mean repair.

    `repair_mean` is how long a repair took from the detection of the loss. A repair may come before that (a proactive
    one, or one that somebody else requested); it has no such time, and is left out of the mean.
    """
    kinds = (loss_detected, request_sent, recovered, gave_up)
    return table_of(RECOVERY_METRIC, dict(zip(_RECOVERY, kinds, strict=True)))


def repair_totals(request_received: DataFrame, repair_sent: DataFrame) -> DataFrame:
    """For each client that may answer, and each publisher: requests received, those it could answer, repairs sent."""
    return table_of(REPAIRS_METRIC, {"request_received": request_received, "repair_sent": repair_sent})


def lost_messages(false_negatives: DataFrame, recoveries: DataFrame, loss_detected: DataFrame) -> DataFrame:
    """Every message that a client lost, whether it came back, and when its transport noticed; null if it never did."""
    from pyspark.sql import functions as F

    message = ["run", "publisher", "incarnation", "count", "client", "published_at"]
    gone = false_negatives.select(*message).distinct().withColumn("recovered", F.lit(False))
    back = recoveries.withColumn("count", F.col("sequence")).select(*message).withColumn("recovered", F.lit(True))
    noticed = loss_detected.groupBy(
        "run", "publisher", "incarnation", F.col("sequence").alias("count"), F.col("node").alias("client")
    ).agg(F.min("time").alias("detected_at"))
    return gone.unionByName(back).join(noticed, message[:-1], "left").select(*_columns(LOST_MESSAGES))


def rounds(request_sent: DataFrame, repair_sent: DataFrame) -> DataFrame:
    """For every message that anybody asked for or sent again: how often that happened, and how often in vain."""
    from pyspark.sql import functions as F

    asked = request_sent.select(*_KEY, "time", "node", "attempt", F.lit(0).alias("repair"))
    answered = repair_sent.select(*_KEY, "time", "node", F.lit(0).alias("attempt"), F.lit(1).alias("repair"))
    events = _with_rounds(asked.unionByName(answered))
    request, repair = F.col("repair") == 0, F.col("repair") == 1
    return (
        events.groupBy(*_KEY)
        .agg(
            F.count_if(request).alias("requests"),
            F.count_if(repair).alias("repairs"),
            F.count_if(request & (F.col("attempt") == 1) & F.col("spoken")).alias("duplicate_requests"),
            F.count_if(repair & F.col("spoken")).alias("duplicate_repairs"),
            F.min(F.when(request, F.col("time"))).alias("first_request_at"),
            F.min(F.when(repair, F.col("time"))).alias("first_repair_at"),
        )
        .select(*_columns(ROUNDS))
    )


def answers(request_sent: DataFrame, request_received: DataFrame) -> DataFrame:
    """For every request: how many received it, how many of them had the message, and how many had it in their cache.

    The publisher itself keeps what it sends in a ring of its own; it counts among the hits, not among those of caches.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    own = [*_KEY, "requester"]
    asked = request_sent.select(*_KEY, F.col("node").alias("requester"), "attempt", F.col("time").alias("requested_at"))
    again = F.lead("requested_at").over(Window.partitionBy(*own).orderBy("requested_at"))
    asked = asked.withColumn("again_at", F.coalesce(again, F.lit(float("inf"))))
    received = request_received.select(*own, F.col("time").alias("received_at"), "hit", F.col("node").alias("receiver"))
    within = (F.col("received_at") >= F.col("requested_at")) & (F.col("received_at") < F.col("again_at"))
    took = asked.join(received, own).where(within).groupBy(*own, "attempt").agg(*_hits())
    found = asked.join(took, [*own, "attempt"], "left").fillna(0, ["received", "hits", "cache_hits"])
    return found.select(*_columns(ANSWERS))


def cache_sizes(counted: DataFrame) -> DataFrame:
    """How many messages of each publisher each client wanted to keep at the end of each second.

    There is no row where the cache had its smallest size for longer than a second.
    """
    from pyspark.sql import functions as F

    sizes = counted.where(F.col("name") == "cache entries")
    second = F.floor("time").cast("bigint").alias("second")
    return sizes.groupBy("run", F.col("node").alias("client"), F.col("peer").alias("publisher"), second).agg(
        F.max_by("value", "time").alias("entries")
    )


def _with_rounds(events: DataFrame) -> DataFrame:
    """`spoken` says of each request or repair whether another client has sent the same in this round."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = ("time", "repair", "node")
    before = Window.partitionBy(*_KEY).orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    opposite = F.coalesce(F.sum(F.col("repair")).over(before), F.lit(0))
    same = F.coalesce(F.sum(1 - F.col("repair")).over(before), F.lit(0))
    numbered = events.withColumn("round", F.when(F.col("repair") == 0, opposite).otherwise(same))
    spoken = Window.partitionBy(*_KEY, "repair", "round").orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    # Another one was before us if the least or the greatest name before us is not ours.
    other = (F.min("node").over(spoken) != F.col("node")) | (F.max("node").over(spoken) != F.col("node"))
    return numbered.withColumn("spoken", F.coalesce(other, F.lit(False)))


# The metrics behind the totals.

_RECOVERY = {"loss_detected": "detected", "request_sent": "requests", "recovered": "recovered", "gave_up": "gave_up"}


def _recovery(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, numbers = _pairs(tables)
    counts = {_RECOVERY[kind]: np.bincount(numbers[kind], minlength=len(keys)) for kind in _RECOVERY}
    took = tables["recovered"]["detected"].to_numpy()
    known = took > 0.0
    order = np.argsort(took[known], kind="stable")  # the least first: the same to the last bit, however they come
    groups = numbers["recovered"][known][order]
    many = np.bincount(groups, minlength=len(keys))
    with np.errstate(invalid="ignore"):
        mean = np.bincount(groups, weights=took[known][order], minlength=len(keys)) / many
    return key_table(keys, np.arange(len(keys)), **counts, repair_mean=_null_where(many == 0, mean))


def _repairs(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, numbers = _pairs(tables)
    requests, repairs = (
        np.bincount(numbers[kind], minlength=len(keys)) for kind in ("request_received", "repair_sent")
    )
    hit = tables["request_received"]["hit"].to_numpy(zero_copy_only=False)
    hits = np.bincount(numbers["request_received"][hit], minlength=len(keys))
    return key_table(keys, np.arange(len(keys)), requests=requests, hits=hits, repairs=repairs)


def _pairs(tables: ArrowTables) -> tuple[pa.Table, dict[str, NDArray[np.int64]]]:
    """The pairs of publisher and client in these tables, and the number of each row's pair."""
    import numpy as np
    import pyarrow as pa

    pairs = as_client(
        pa.concat_tables([table.select(["run", "publisher", "node"]) for table in tables.values()]).unify_dictionaries()
    )
    numbers, first = number_rows(pairs, _PAIR)
    parts = np.split(numbers, np.cumsum([len(table) for table in tables.values()])[:-1])
    return pairs.take(pa.array(first)), dict(zip(tables, parts, strict=True))


def _null_where(unknown: NDArray[np.bool_], values: NDArray[np.float64]) -> pa.ChunkedArray:
    import pyarrow as pa

    return pa.chunked_array([pa.array(values, mask=unknown)])


RECOVERY_METRIC = Metric(
    "recovery",
    RECOVERY,
    {kind: ("publisher", "node", *(["detected"] if kind == "recovered" else [])) for kind in _RECOVERY},
    _recovery,
    together=dict.fromkeys(_RECOVERY, ("publisher", "node")),
)
REPAIRS_METRIC = Metric(
    "repairs",
    REPAIRS,
    {"request_received": ("publisher", "node", "hit"), "repair_sent": ("publisher", "node")},
    _repairs,
    together=dict.fromkeys(("request_received", "repair_sent"), ("publisher", "node")),
)


def _hits() -> list[Column]:
    from pyspark.sql import functions as F

    cached = F.col("hit") & (F.col("receiver") != F.col("publisher"))
    return [
        F.count("*").alias("received"),
        F.count_if(F.col("hit")).alias("hits"),
        F.count_if(cached).alias("cache_hits"),
    ]


def _columns(ddl: str) -> list[str]:
    return [column.split()[0] for column in ddl.split(",")]

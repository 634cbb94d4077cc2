"""What congestion control did: which messages publishers withheld, for whose sake, and which quotas flows had.

A publisher names the flow that it limits, and the limiting receiver: the subscriber whose feedback it follows. A
message that finds its flow's queue full does not leave; it is *withheld*, which is neither a loss nor a drop. It has no
record of a publication, so it is in no delay and in no truth: here alone it counts.

Fair rates withhold too, and not at the publisher: its home broker leaves out brokers behind a full link
(`thinned_by_link`), and a broker the messages that a slow reader of its own cannot take (`readers_thinned`). These
messages were published, and those who did not get them count as having missed them. Records sum up a second, so the
first and the last time are right to a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import count_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

WITHHELD = "run string, publisher string, limiting_receiver string, withheld bigint"
FLOW_LIMITS = (
    "run string, publisher string, flow string, limiting_receiver string, time double, quota double"  # 0: free again
)


THINNED = (
    "run string, publisher string, origin bigint, neighbour bigint, destination bigint, messages bigint,"
    " size_bytes bigint, first double, last double"
)
READERS_THINNED = "run string, broker string, client string, messages bigint, first double, last double"


def withheld(message_withheld: DataFrame) -> DataFrame:
    """How many messages each publisher withheld, and for the sake of whom."""
    return table_of(WITHHELD_METRIC, {"message_withheld": message_withheld})


def flow_limits(flow_limited: DataFrame) -> DataFrame:
    """Each change of a flow's quota, in messages/s, as its publisher recorded it; 0: the flow is free again."""
    return table_of(FLOW_LIMITS_METRIC, {"flow_limited": flow_limited})


def thinned(records: DataFrame) -> DataFrame:
    """Whose messages home brokers withheld, for which link, from which broker; how many, and from when to when."""
    return table_of(THINNED_METRIC, {"thinned": records})


def readers_thinned(reader_thinned: DataFrame) -> DataFrame:
    """What brokers withheld from clients of their own that read slowly."""
    return table_of(READERS_THINNED_METRIC, {"reader_thinned": reader_thinned})


# The metrics behind them.


def _withheld(tables: ArrowTables) -> pa.Table:
    return count_rows(tables["message_withheld"], ["run", "publisher", "limiting_receiver"], "withheld")


def _flow_limits(tables: ArrowTables) -> pa.Table:
    table = tables["flow_limited"]
    return table.rename_columns(["publisher" if name == "node" else name for name in table.column_names])


WITHHELD_METRIC = Metric(
    "withheld",
    WITHHELD,
    {"message_withheld": ("publisher", "limiting_receiver")},
    _withheld,
    totals={"withheld": "sum"},
)
FLOW_LIMITS_METRIC = Metric(
    "flow_limits", FLOW_LIMITS, {"flow_limited": ("node", "flow", "limiting_receiver", "time", "quota")}, _flow_limits
)


def _summed(table: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> pa.Table:
    """The sums of these columns for each key, and the first and the last time."""
    parts = [*((name, "sum") for name in sums), ("time", "min"), ("time", "max")]
    found = table.group_by(list(keys), use_threads=False).aggregate(parts)
    return found.select([*keys, *("_".join(part) for part in parts)]).rename_columns([*keys, *sums, "first", "last"])


def _thinned(tables: ArrowTables) -> pa.Table:
    keys = ("run", "publisher", "origin", "neighbour", "destination")
    return _summed(tables["thinned"], keys, ("messages", "size_bytes"))


def _readers_thinned(tables: ArrowTables) -> pa.Table:
    found = _summed(tables["reader_thinned"], ("run", "node", "client"), ("messages",))
    return found.rename_columns(["broker" if name == "node" else name for name in found.column_names])


_LINK = ("publisher", "origin", "neighbour", "destination")
_SPAN = {"first": "min", "last": "max"}
THINNED_METRIC = Metric(
    "thinned_by_link",
    THINNED,
    {"thinned": (*_LINK, "messages", "size_bytes", "time")},
    _thinned,
    totals={"messages": "sum", "size_bytes": "sum", **_SPAN},
)
READERS_THINNED_METRIC = Metric(
    "readers_thinned",
    READERS_THINNED,
    {"reader_thinned": ("node", "client", "messages", "time")},
    _readers_thinned,
    totals={"messages": "sum", **_SPAN},
)

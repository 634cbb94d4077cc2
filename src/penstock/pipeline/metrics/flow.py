"""What congestion control did: which messages publishers withheld, for whose sake, and which quotas flows had.

A publisher names the flow that it limits, and the limiting receiver: the subscriber whose feedback it follows. A
message that finds its flow's queue full does not leave; it is *withheld*, which is neither a loss nor a drop. It has no
record of a publication, so it is in no delay and in no truth: here alone it counts.
"""

from __future__ import annotations

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


def withheld(message_withheld: DataFrame) -> DataFrame:
    """How many messages each publisher withheld, and for the sake of whom."""
    return table_of(WITHHELD_METRIC, {"message_withheld": message_withheld})


def flow_limits(flow_limited: DataFrame) -> DataFrame:
    """Each change of a flow's quota, in messages/s, as its publisher recorded it; 0: the flow is free again."""
    return table_of(FLOW_LIMITS_METRIC, {"flow_limited": flow_limited})


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

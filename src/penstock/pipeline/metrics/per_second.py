"""Per second: what was published, withheld, delivered and missed, what each link carried, and what stood in its queue.

Every part of a table is counted where it is read, and the counts are added up. A second without anything has no row:
whoever draws a curve fills in the zeros, because only he knows where the curve begins and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import as_client, count_seconds

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RATES = "run string, second bigint, published bigint, delivered bigint, missed bigint"
LINK_USE = "run string, node string, peer string, second bigint, packets bigint, bytes bigint"
QUEUE_LENGTHS = "run string, node string, peer string, time double, packets bigint"


def published_per_second(published: DataFrame, by: Sequence[str] = ("publisher",)) -> DataFrame:
    """Publications in each second of each run, in groups `by` publisher (or by nothing)."""
    return table_of(counted_per_second("published", by), {"published": published})


def delivered_per_second(delivered: DataFrame, by: Sequence[str] = ("client",)) -> DataFrame:
    """Deliveries in each second of each run, in groups `by` client, publisher or both (or by nothing)."""
    return table_of(counted_per_second("delivered", by), {"delivered": delivered})


def missed_per_second(false_negatives: DataFrame, by: Sequence[str] = ("client",)) -> DataFrame:
    """Messages that were missed, in the second in which they were published."""
    return table_of(counted_per_second("missed", by), {"false_negatives": false_negatives})


def withheld_per_second(message_withheld: DataFrame, by: Sequence[str] = ("publisher",)) -> DataFrame:
    """Messages that were withheld, in the second in which they should have left."""
    return table_of(counted_per_second("withheld", by), {"message_withheld": message_withheld})


def rates(published: DataFrame, delivered: DataFrame, false_negatives: DataFrame) -> DataFrame:
    """The three rates of a whole run beside each other (002, figure 3.1)."""
    return table_of(RATES_METRIC, {"published": published, "delivered": delivered, "false_negatives": false_negatives})


def link_use(counted: DataFrame) -> DataFrame:
    """What each direction of each link carried, from `node` to `peer`, in each second."""
    return table_of(LINK_USE_METRIC, {"counted": counted})


def queue_lengths(counted: DataFrame) -> DataFrame:
    """How many packets waited at `node` for the link to `peer` whenever somebody looked."""
    return table_of(QUEUE_LENGTHS_METRIC, {"counted": counted})


# The metrics behind them.

_TIMES = {
    "published": ("published", "time"),
    "delivered": ("delivered", "time"),
    "missed": ("false_negatives", "published_at"),
    "withheld": ("message_withheld", "time"),
}


def counted_per_second(what: str, by: Sequence[str]) -> Metric:
    """What was published, delivered, missed or withheld in each second."""
    table, time = _TIMES[what]
    columns = ["node" if (table, name) == ("delivered", "client") else name for name in by]

    def work(tables: ArrowTables) -> pa.Table:
        return as_client(count_seconds(tables[table], ["run", *columns], time, what))

    ddl = per_second_ddl(by, what)
    return Metric(f"{what}_per_second", ddl, {table: (*columns, time)}, work, totals={what: "sum"})


def per_second_ddl(by: Sequence[str], what: str) -> str:
    """The schema of what is counted per second."""
    return ", ".join([*(f"{name} string" for name in ("run", *by)), "second bigint", f"{what} bigint"])


def _rates(tables: ArrowTables) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    ((given, table),) = tables.items()
    what = next(name for name, (source, _) in _TIMES.items() if source == given)
    found = count_seconds(table, ["run"], _TIMES[what][1], what)
    for name in _RATES:
        if name != what:
            found = found.append_column(name, pa.array(np.zeros(found.num_rows, dtype=np.int64)))
    return found


def _link_use(tables: ArrowTables) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = tables["counted"]
    table = table.filter(pc.is_in(table["name"].cast(pa.string()), pa.array(["link packets", "link bytes"])))
    # A count is written at the end of its interval: what is counted at 1.0 happened in second 0.
    second = pc.cast(pc.subtract(pc.ceil(table["time"]), 1.0), pa.int64())
    packets = pc.equal(table["name"].cast(pa.string()), "link packets")
    columns = {name: table[name] for name in ("run", "node", "peer")}
    columns |= {"second": second, "packets": pc.if_else(packets, table["value"], 0)}
    return pa.table(columns | {"bytes": pc.if_else(packets, 0, table["value"])})


def _queue_lengths(tables: ArrowTables) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = tables["counted"]
    samples = table.filter(pc.equal(table["name"].cast(pa.string()), "queue packets"))
    return samples.select(["run", "node", "peer", "time"]).append_column("packets", samples["value"])


_RATES = ("published", "delivered", "missed")
RATES_METRIC = Metric(
    "rates",
    RATES,
    {table: (time,) for table, time in (_TIMES[what] for what in _RATES)},
    _rates,
    totals=dict.fromkeys(_RATES, "sum"),
)
LINK_USE_METRIC = Metric(
    "link_use",
    LINK_USE,
    {"counted": ("node", "peer", "time", "name", "value")},
    _link_use,
    totals={"packets": "sum", "bytes": "sum"},
)
QUEUE_LENGTHS_METRIC = Metric(
    "queue_lengths",
    QUEUE_LENGTHS,
    {"counted": ("node", "peer", "time", "name", "value")},
    _queue_lengths,
)

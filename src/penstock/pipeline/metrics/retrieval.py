"""What late readers got: the items that were retrieved, over how many lifetimes, and whether one came twice.

An item may be a day old when it comes, so it is no `delivered`, and says nothing about delays or losses.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import count_rows
from penstock.pipeline.parcels import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RETRIEVED = "run string, client string, lifetimes bigint, items bigint, repeated bigint"
_CLIENT = ("run", "node")
_LIFETIME = (*_CLIENT, "subscription", "lifetime")
_ITEM = (*_CLIENT, "subscription", "publisher", "incarnation", "count")


def retrieved(lifetime_began: DataFrame, item_retrieved: DataFrame) -> DataFrame:
    """For each client that asked: in how many lifetimes, what came, and how much of that had come before."""
    return table_of(RETRIEVED_METRIC, {"lifetime_began": lifetime_began, "item_retrieved": item_retrieved})


def _retrieved(tables: ArrowTables) -> pa.Table:
    import pyarrow as pa

    # A lifetime is told of again after a new connection; one whose beginning is lost may have brought something.
    lifetimes = {
        tuple(row[name] for name in _LIFETIME)
        for table in tables.values()
        for row in count_rows(table, _LIFETIME, "times").to_pylist()
    }
    asked = Counter(one[:2] for one in lifetimes)
    items = tables["item_retrieved"]
    came = _by_client(items)
    different = _by_client(count_rows(items, _ITEM, "times"))
    rows = [
        {
            "run": run,
            "client": node,
            "lifetimes": asked[run, node],
            "items": came.get((run, node), 0),
            "repeated": came.get((run, node), 0) - different.get((run, node), 0),
        }
        for run, node in sorted(asked)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(RETRIEVED))


def _by_client(table: pa.Table) -> dict[tuple[str, str], int]:
    return {(row["run"], row["node"]): row["rows"] for row in count_rows(table, _CLIENT, "rows").to_pylist()}


RETRIEVED_METRIC = Metric(
    "retrieved",
    RETRIEVED,
    {"lifetime_began": ("node", *_LIFETIME[2:]), "item_retrieved": ("node", "lifetime", *_ITEM[2:])},
    _retrieved,
    together={"lifetime_began": ("node",), "item_retrieved": ("node",)},
)

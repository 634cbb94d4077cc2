"""What several metrics share: the usual columns of deliveries and publications, and small tables of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipeline.groups import Rows, number_rows, tally

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

MESSAGE = ("publisher", "incarnation", "count")  # what names a message of a run
PAIR = ("publisher", "client")


def key_table(keys: pa.Table, numbers: NDArray[Any], **columns: Any) -> pa.Table:
    """The keys of these groups, and further columns beside them; a delivery's `node` is called client."""
    import pyarrow as pa

    found = keys.take(pa.array(numbers))
    for name, values in columns.items():
        found = found.append_column(name, values if isinstance(values, pa.ChunkedArray) else pa.array(values))
    return found


def as_client(table: pa.Table) -> pa.Table:
    """The node that a message was delivered to is called client in all results."""
    return table.rename_columns(["client" if name == "node" else name for name in table.column_names])


def count_rows(table: pa.Table, keys: Sequence[str], count: str, sums: Mapping[str, Any] | None = None) -> pa.Table:
    """How many rows each key has, and for each name in `sums` the sum of its whole numbers."""
    import numpy as np

    numbers, first = number_rows(table, keys)
    columns = {count: np.bincount(numbers, minlength=len(first))}
    for name, values in (sums or {}).items():
        columns[name] = np.zeros(len(first), dtype=np.int64)
        np.add.at(columns[name], numbers, values)
    return key_table(table.select(list(keys)), first, **columns)


def count_seconds(table: pa.Table, keys: Sequence[str], time: str, count: str) -> pa.Table:
    """How many rows each key has in each second."""
    import numpy as np
    import pyarrow as pa

    numbers, first = number_rows(table, keys)
    group, second, counts = tally(numbers, np.floor(table[time].to_numpy()).astype(np.int64))
    named = table.select(list(keys)).take(pa.array(first))
    return key_table(named, group, second=second, **{count: counts})


def steady_sums(rows: Rows, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The sums of seconds in each group, the least first: the same to the last bit, in whatever order rows come."""
    import numpy as np

    found = {}
    for name in names:
        found[name] = np.zeros(len(rows.starts))
        for group, (begin, end) in enumerate(zip(rows.starts, rows.ends, strict=True)):
            found[name][group] = np.cumsum(np.sort(rows[name][begin:end]))[-1]
    return found

"""What several metrics share: the packs of deliveries and publications, and one number for "sent before".

Packing the deliveries is most of the work of the metrics that use it. Each of them packs what it is given, unless it
is given packs: whoever wants several of them calls `pack_deliveries` once, keeps the result, and passes it to all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipeline.packs import BINARY, is_packed, pack

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

DELIVERY_KEYS = ("run", "publisher", "node")
DELIVERY_LAYOUT = {
    "time": BINARY["double"],
    "subscription": BINARY["bigint"],
    "incarnation": BINARY["bigint"],
    "count": BINARY["bigint"],
}
PUBLICATION_LAYOUT = {name: DELIVERY_LAYOUT[name] for name in ("time", "incarnation", "count")}


def pack_deliveries(delivered: DataFrame) -> DataFrame:
    """Deliveries packed by run, publisher and client; what is packed already stays as it is."""
    return delivered if is_packed(delivered) else pack(delivered, DELIVERY_KEYS, tuple(DELIVERY_LAYOUT))


def pack_publications(published: DataFrame) -> DataFrame:
    """Publications packed by run and publisher."""
    return published if is_packed(published) else pack(published, DELIVERY_KEYS[:2], tuple(PUBLICATION_LAYOUT))


def steady_sum(column: str) -> Column:
    """The sum of a column of doubles, the least first: the same to the last bit however Spark has spread the rows.

    It holds a group's values in one place, so it is for columns with a row per second or so, not per message.
    """
    from pyspark.sql import functions as F

    return F.aggregate(F.sort_array(F.collect_list(column)), F.lit(0.0), lambda total, value: total + value)


def ordinal(*columns: NDArray[Any]) -> NDArray[Any]:
    """One integer for each row, that orders rows as the columns do, the first column first.

    With (group, incarnation, count) it numbers the messages of each publisher in the order in which they were sent, and
    keeps the groups apart. The digits of a mixed radix do that in one pass; where they do not fit 63 bits, ranks do.
    """
    import numpy as np

    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if np.prod([float(span) for span in spans]) < 2.0**62:
        number = np.zeros(len(columns[0]), dtype=np.int64)
        for column, low, span in zip(columns, lows, spans, strict=True):
            number = number * span + (column - low)
        return number
    order = np.lexsort(columns[::-1])
    steps = np.zeros(len(order), dtype=bool)
    for column in columns:
        ordered = column[order]
        steps[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(steps)
    return number


def tally(group: NDArray[Any], cell: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """How often each pair occurs: the groups, the cells, and the counts."""
    import numpy as np

    _, first, counts = np.unique(ordinal(group, cell), return_index=True, return_counts=True)
    return group[first], cell[first], counts

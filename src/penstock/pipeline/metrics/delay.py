"""How long messages took, from the publisher's hands to the subscriber's.

Every delivery is joined with the publication of its message; a delivery without one is left out here and named by
`checks`. Times are those of the trace: true time in the simulator, each node's own clock live, so live delays are only
as good as the clocks.

A percentile is the smallest delay with at least that share of all delays at or below it (the nearest rank), so it is a
delay that occurred. It is exact: with the delays of a group in one array, sorting them costs less than a sketch would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipeline.metrics.shared import (
    DELIVERY_KEYS,
    PUBLICATION_LAYOUT,
    ordinal,
    pack_deliveries,
    pack_publications,
    tally,
)
from penstock.pipeline.packs import BINARY, ROWS, Rows, number_rows, over_packs, unpack

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

DELAYS = (
    "run string, publisher string, client string, subscription bigint, incarnation bigint, count bigint,"
    " published_at double, delivered_at double, delay double"
)
PAIR = ("publisher", "client")
SHARES = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999}  # in thousandths
_DELAY_LAYOUT = {"delay": BINARY["double"]}


def delays(delivered: DataFrame, published: DataFrame) -> DataFrame:
    """Every delivery with its publication and its delay."""
    from pyspark.sql import functions as F

    message = ["run", "publisher", "incarnation", "count"]
    sent = published.select(*message, F.col("time").alias("published_at"))
    got = delivered.select(*message, F.col("node").alias("client"), "subscription", F.col("time").alias("delivered_at"))
    joined = got.join(sent, message).withColumn("delay", F.col("delivered_at") - F.col("published_at"))
    return joined.select(*[column.split()[0] for column in DELAYS.split(",")])


def delay_percentiles(delivered: DataFrame, published: DataFrame, by: Sequence[str] = PAIR) -> DataFrame:
    """Number, mean, extremes and percentiles of the delays of each run, in groups `by` publisher, client or both."""
    by = _groups(by)
    return _over_delays(delivered, published, by, _percentiles, percentiles_ddl(by))


def percentiles_ddl(by: Sequence[str] = PAIR) -> str:
    """The schema of `delay_percentiles`."""
    numbers = ["mean", "minimum", *SHARES, "maximum"]
    return ", ".join([*_string_columns(by), "deliveries bigint", *(f"{name} double" for name in numbers)])


def delay_histogram(delivered: DataFrame, published: DataFrame, width: float, by: Sequence[str] = ()) -> DataFrame:
    """How many delays of each run lie in each bin of this width (seconds), from `low` up to `low + width`."""
    from pyspark.sql import functions as F

    by = _groups(by)

    def work(keys: list[Any], names: list[str], rows: Rows) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        group, cell, deliveries = tally(rows.number, np.floor(rows["delay"] / width).astype(np.int64))
        chosen = [key.take(pa.array(group)) for key in keys]
        return pa.table([*chosen, cell, deliveries], names=[*names, "bin", "deliveries"])

    parts = _over_delays(
        delivered, published, by, work, ", ".join([*_string_columns(by), "bin bigint", "deliveries bigint"])
    )
    summed = parts.groupBy("run", *by, "bin").agg(F.sum("deliveries").alias("deliveries"))
    return summed.select("run", *by, (F.col("bin") * F.lit(width)).alias("low"), "deliveries")


def histogram_ddl(by: Sequence[str] = ()) -> str:
    """The schema of `delay_histogram`."""
    return ", ".join([*_string_columns(by), "low double", "deliveries bigint"])


# From packs of deliveries and publications to groups of delays.

_Work = Callable[[list[Any], list[str], Rows], "pa.Table"]


def _over_delays(delivered: DataFrame, published: DataFrame, by: Sequence[str], work: _Work, ddl: str) -> DataFrame:
    """Let `work` see the delays of each task in groups of run and `by`, with the keys of the groups."""
    packs = side_by_side(delivered, published)
    together = ("run", "publisher")
    if "publisher" in by:  # then no group reaches beyond a task, and the work can be done in this one
        return over_packs(packs, together, lambda table: _grouped(*_delays_of(table), by, work), ddl)
    packed = over_packs(
        packs, together, _delay_packs, "run string, publisher string, client string, rows bigint, delay binary"
    )
    return over_packs(packed, ("run", *by), lambda table: _regrouped(table, by, work), ddl)


def side_by_side(delivered: DataFrame, published: DataFrame) -> DataFrame:
    """Packs of deliveries and of publications in one table; `sent` tells them apart."""
    from pyspark.sql import functions as F

    columns = ["run", "publisher", "node", ROWS, *PUBLICATION_LAYOUT]
    got = pack_deliveries(delivered).select(*columns, F.lit(False).alias("sent"))
    sent = pack_publications(published).withColumn("node", F.lit("")).select(*columns, F.lit(True).alias("sent"))
    return got.unionByName(sent)


def _delays_of(packs: pa.Table) -> tuple[pa.Table, Rows]:
    """The delays in these packs, in groups of run, publisher and client; and the keys of the groups."""
    import numpy as np

    keys, deliveries, published_at = with_publications(packs)
    found = ~np.isnan(published_at)
    return keys, Rows(deliveries.number[found], {"delay": (deliveries["time"] - published_at)[found]})


def with_publications(packs: pa.Table) -> tuple[pa.Table, Rows, NDArray[np.float64]]:
    """The groups of deliveries in these packs (see `side_by_side`), the deliveries, and when each was published.

    A delivery without a publication has NaN there.
    """
    import numpy as np
    import pyarrow as pa

    sent = packs.column("sent").to_numpy()
    publishers, _ = number_rows(packs, ("run", "publisher"))
    publications = unpack(packs.filter(pa.array(sent)), publishers[sent], PUBLICATION_LAYOUT)
    got = packs.filter(pa.array(~sent))
    pairs, first = number_rows(got, DELIVERY_KEYS)
    deliveries = unpack(got, pairs, PUBLICATION_LAYOUT)
    publisher_of_pair = np.zeros(len(first), dtype=np.int64)
    publisher_of_pair[pairs] = publishers[~sent]
    at, found = _places(publications, deliveries, publisher_of_pair[deliveries.number])
    published_at = np.full(len(deliveries), np.nan)
    published_at[found] = publications["time"][at]
    keys = got.select(list(DELIVERY_KEYS)).take(pa.array(first)).rename_columns(["run", "publisher", "client"])
    return keys, deliveries, published_at


def _places(
    publications: Rows, deliveries: Rows, publishers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the publication of each delivery stands, and for which deliveries there is one."""
    import numpy as np

    many = len(publications)
    identity = ordinal(
        np.concatenate([publications.number, publishers]),
        np.concatenate([publications["incarnation"], deliveries["incarnation"]]),
        np.concatenate([publications["count"], deliveries["count"]]),
    )
    sent, got = identity[:many], identity[many:]
    if not many:
        return np.zeros(0, dtype=np.int64), np.zeros(len(got), dtype=bool)
    order = np.argsort(sent, kind="stable")
    place = np.minimum(np.searchsorted(sent, got, sorter=order), many - 1)
    found = sent[order[place]] == got
    return order[place[found]], found


def _delay_packs(packs: pa.Table) -> pa.Table:
    """The delays of a task as packs, to be grouped in another way."""
    import numpy as np
    import pyarrow as pa

    keys, rows = _delays_of(packs)
    counts = np.bincount(rows.number, minlength=len(keys))
    offsets = pa.py_buffer((np.concatenate(([0], np.cumsum(counts))) * 8).astype("<i8"))
    cells = pa.Array.from_buffers(pa.large_binary(), len(keys), [None, offsets, pa.py_buffer(rows["delay"])])
    table = keys.append_column(ROWS, pa.array(counts, pa.int64())).append_column("delay", cells.cast(pa.binary()))
    return table.filter(pa.array(counts > 0))


def _regrouped(packs: pa.Table, by: Sequence[str], work: _Work) -> pa.Table:
    numbers, first = number_rows(packs, ("run", *by))
    return work(*_keys(packs, first, by), unpack(packs, numbers, _DELAY_LAYOUT))


def _grouped(keys: pa.Table, rows: Rows, by: Sequence[str], work: _Work) -> pa.Table:
    """Delays in groups of run, publisher and client -> delays in groups of run and `by`."""
    numbers, first = number_rows(keys, ("run", *by))
    return work(*_keys(keys, first, by), rows.renumbered(numbers))


def _keys(table: pa.Table, first: NDArray[np.int64], by: Sequence[str]) -> tuple[list[Any], list[str]]:
    import pyarrow as pa

    return [table.column(name).take(pa.array(first)) for name in ("run", *by)], ["run", *by]


def _percentiles(keys: list[Any], names: list[str], rows: Rows) -> pa.Table:
    """A row of numbers for each group; the rows of a group stand next to each other."""
    import numpy as np
    import pyarrow as pa

    numbers, starts, counts = np.unique(rows.number, return_index=True, return_counts=True)
    values = np.array(rows["delay"])
    sums = np.add.reduceat(values, starts) if len(starts) else values
    for start, end in zip(starts, starts + counts, strict=True):
        values[start:end].sort()
    table = {name: key.take(pa.array(numbers)) for name, key in zip(names, keys, strict=True)}
    table |= {"deliveries": counts, "mean": sums / counts, "minimum": values[starts]}
    table |= {name: values[starts + -(-counts * share // 1000) - 1] for name, share in SHARES.items()}
    return pa.table(table | {"maximum": values[starts + counts - 1]})


def _groups(by: Sequence[str]) -> tuple[str, ...]:
    assert set(by) <= set(PAIR), f"delays are grouped by {' and '.join(PAIR)}, not by {by}"
    return tuple(by)


def _string_columns(by: Sequence[str]) -> list[str]:
    return [f"{name} string" for name in ("run", *by)]

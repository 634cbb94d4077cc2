"""How long messages took, to the subscriber's hands: from where they left the publisher, and from `publish()`.

A message may wait before it leaves: for room, or for tokens of its flow. Results say in the column `since` from when on
the delay counts: *sent* from where the message left, *publish* from the application's call. The difference is what
`waited` says in the record of the publication.

Every delivery is joined with the publication of its message; a delivery without one is left out here and named by
`checks`. Where an identity was used twice, which `checks` names as well, the earliest publication counts. Times are
those of the trace: true time in the simulator, each node's own clock live, so live delays are only as good as the
clocks.

A percentile is the smallest delay with at least that share of all delays at or below it (the nearest rank), so it is a
delay that occurred. It is exact: with the delays of a group in one array, sorting them costs less than a sketch would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import Rows, array, grouped, number_rows, ordinal, tally
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import PAIR, as_client, key_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

DELAYS = (
    "run string, publisher string, client string, subscription bigint, incarnation bigint, count bigint,"
    " published_at double, delivered_at double, delay double, waited double, delay_from_publish double"
)
SHARES = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999}  # in thousandths
SINCE = {"publish": "delay_from_publish", "sent": "delay"}  # from when on -> which delay


def delays(delivered: DataFrame, published: DataFrame) -> DataFrame:
    """Every delivery with its publication and its delay."""
    metric = Metric("delays", DELAYS, {"matched": _columns(DELAYS)}, _known, together=_BY_PUBLISHER)
    return table_of(metric, {"delivered": delivered, "published": published}, [matched(("subscription",))])


def delay_percentiles(delivered: DataFrame, published: DataFrame, by: Sequence[str] = PAIR) -> DataFrame:
    """Number, mean, extremes and percentiles of the delays of each run, in groups `by` publisher, client or both."""
    metric = percentiles("delay_percentiles", by)
    return table_of(metric, {"delivered": delivered, "published": published}, HELPERS)


def percentiles_ddl(by: Sequence[str] = PAIR) -> str:
    """The schema of `delay_percentiles`."""
    numbers = ["mean", "minimum", *SHARES, "maximum"]
    return ", ".join([*_string_columns(by), "deliveries bigint", *(f"{name} double" for name in numbers)])


def delay_histogram(delivered: DataFrame, published: DataFrame, width: float, by: Sequence[str] = ()) -> DataFrame:
    """How many delays of each run lie in each bin of this width (seconds), from `low` up to `low + width`."""
    metric = histogram("delay_histogram", width, by)
    return table_of(metric, {"delivered": delivered, "published": published}, HELPERS)


def histogram_ddl(by: Sequence[str] = ()) -> str:
    """The schema of `delay_histogram`."""
    return ", ".join([*_string_columns(by), "low double", "deliveries bigint"])


# Deliveries beside their publications.


def matched(more: Sequence[str] = ()) -> Metric:
    """Every delivery with the time of its publication, NaN if there is none; and `more` columns of the delivery."""

    def work(tables: ArrowTables) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        got, sent = tables["delivered"], tables["published"]
        at, found = _places(got, sent)
        published_at, waited = np.full(len(got), np.nan), np.zeros(len(got))
        published_at[found] = array(sent, "time")[at]
        waited[found] = array(sent, "waited")[at]
        time = array(got, "time")
        delay = time - published_at
        from_publish = time - (published_at - waited) if waited.any() else delay
        values = {"published_at": published_at, "delivered_at": time, "delay": delay, "waited": waited}
        table = as_client(got.select(["run", "publisher", "node", *more, "incarnation", "count"]))
        for name, numbers in (values | {"delay_from_publish": from_publish}).items():
            table = table.append_column(name, pa.array(numbers))
        return table

    columns = ("publisher", "incarnation", "count", "time")
    ddl = ", ".join(column for column in DELAYS.split(", ") if "subscription" not in column or more)
    reads = {"delivered": (*columns, "node", *more), "published": (*columns, "waited")}
    return Metric("matched", ddl, reads, work, together={"delivered": ("publisher",), "published": ("publisher",)})


def _places(got: pa.Table, sent: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the publication of each delivery stands, the earliest of its identity, and which deliveries have one."""
    import numpy as np
    import pyarrow as pa

    many, names = len(sent), ["run", "publisher"]
    if not many or not len(got):
        return np.zeros(0, dtype=np.int64), np.zeros(len(got), dtype=bool)
    publishers, _ = number_rows(pa.concat_tables([sent.select(names), got.select(names)]).unify_dictionaries(), names)
    columns = [np.concatenate([array(sent, name), array(got, name)]) for name in ("incarnation", "count")]
    identity = ordinal(publishers, *columns)
    ours, theirs = identity[:many], identity[many:]
    top = int(identity.max()) + 1
    if top <= 4 * len(identity) + 1024:  # a table of places is faster than searching, while it is small
        places = np.full(top, -1, dtype=np.int64)
        places[ours] = np.arange(many)
        if not bool((places[ours] == np.arange(many)).all()):  # an identity was used twice
            latest_first = np.lexsort((array(sent, "waited"), array(sent, "time")))[::-1]
            places[ours[latest_first]] = latest_first  # the last assignment stays
        place = places[theirs]
        found = place >= 0
        return (place if bool(found.all()) else place[found]), found
    order = np.lexsort((array(sent, "waited"), array(sent, "time"), ours))
    place = np.minimum(np.searchsorted(ours, theirs, sorter=order), many - 1)
    found = ours[order[place]] == theirs
    return order[place[found]], found


def _known(tables: ArrowTables) -> pa.Table:
    """The deliveries that have a publication."""
    import numpy as np
    import pyarrow as pa

    (table,) = tables.values()
    unknown = np.isnan(array(table, "published_at"))
    return table.filter(pa.array(~unknown)) if bool(unknown.any()) else table


def _columns(ddl: str) -> tuple[str, ...]:
    return tuple(column.split()[0] for column in ddl.split(", "))[1:]


_BY_PUBLISHER = {"matched": ("publisher",)}
MATCHED = matched()
DELAYS_METRIC = Metric("delays", MATCHED.ddl, {"matched": _columns(MATCHED.ddl)}, _known, together=_BY_PUBLISHER)
HELPERS = (MATCHED, DELAYS_METRIC)


# What is said of the delays of a group.


def percentiles(name: str, by: Sequence[str] = PAIR) -> Metric:
    """A row of numbers for each group, and for each `since`."""

    def work(tables: ArrowTables) -> pa.Table:
        import pyarrow as pa

        keys, rows = grouped(tables["delays"], ["run", *by], list(SINCE.values()))
        found = {"sent": _percentiles(rows, "delay")}
        other = _that_waited(rows)
        found["publish"] = {name: values.copy() for name, values in found["sent"].items()}
        for column, values in _percentiles(other, "delay_from_publish").items():
            found["publish"][column][_groups_of(other)] = values
        return pa.concat_tables(
            key_table(keys, _groups_of(rows), since=[since] * len(keys), **found[since]) for since in SINCE
        )

    _check(by)
    reads = {"delays": (*by, *SINCE.values())}
    return Metric(name, percentiles_ddl(by), reads, work, together={"delays": tuple(by)})


def histogram(name: str, width: float, by: Sequence[str] = ()) -> Metric:
    """The number of delays in each bin, for each `since`."""

    def work(tables: ArrowTables) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        keys, rows = grouped(tables["delays"], ["run", *by], list(SINCE.values()))
        same = not len(_that_waited(rows))
        parts: dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = {}
        for since, column in SINCE.items():
            if since == "sent" and same:
                parts[since] = parts["publish"]
            else:
                parts[since] = tally(rows.number, np.floor(rows[column] / width).astype(np.int64))
        return pa.concat_tables(
            key_table(keys, group, since=[since] * len(group), low=cell * width, deliveries=counts)
            for since, (group, cell, counts) in parts.items()
        )

    _check(by)
    reads = {"delays": (*by, *SINCE.values())}
    return Metric(name, histogram_ddl(by), reads, work, totals={"deliveries": "sum"})


def _percentiles(rows: Rows, column: str) -> dict[str, NDArray[np.float64]]:
    import numpy as np

    starts, ends = rows.starts, rows.ends
    values, counts = np.array(rows[column]), ends - starts
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        values[start:end].sort()
    # Sums of sorted values: the same to the last bit, in whatever order the deliveries came.
    sums = np.add.reduceat(values, starts) if len(starts) else values
    found = {"deliveries": counts, "mean": sums / counts, "minimum": values[starts]}
    found |= {name: values[starts + -(-counts * share // 1000) - 1] for name, share in SHARES.items()}
    return found | {"maximum": values[ends - 1]}


def _that_waited(rows: Rows) -> Rows:
    """The groups in which a message waited: in all others both delays are the same."""
    import numpy as np

    waited = rows["delay"] != rows["delay_from_publish"]
    if not bool(waited.any()):
        return rows.take(np.zeros(0, dtype=np.int64))
    return rows.take(np.isin(rows.number, rows.number[waited]))


def _groups_of(rows: Rows) -> NDArray[np.int64]:
    return rows.number[rows.starts]


def _check(by: Sequence[str]) -> None:
    assert set(by) <= set(PAIR), f"delays are grouped by {' and '.join(PAIR)}, not by {by}"


def _string_columns(by: Sequence[str]) -> list[str]:
    return [f"{name} string" for name in ("run", *by, "since")]

"""Does the trace make sense? Each check finds the rows that do not, and says of every run how many, with an example.

    level fail    something that cannot have happened: the trace, or the network, is wrong, and so is every number
    level warn    something that a reader of the numbers should know

Some checks cannot be made where records are lost; `extent` says which, and they are left out.

A check that finds nothing gives no row. The example is the first in the order of its text, so that running again gives
the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.extent import (
    CUT_OFF,
    DAMAGED_MARK,
    INCOMPLETE,
    LEFT_OUT,
    MISSING,
    TOO_MANY,
    UNWANTED,
    CheckFinding,
)
from penstock.pipeline.groups import array, grouped, ordinal
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.delay import MATCHED
from penstock.pipeline.metrics.losses import DUPLICATES_METRIC
from penstock.pipeline.metrics.shared import key_table
from penstock.pipeline.metrics.streams import PLACES_METRIC, streams_metric
from penstock.pipeline.parcels import arrow_schema, plain_column
from penstock.pipeline.schema import parse_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.pipeline.read import RunFolder, Tables

CHECKS = "run string, check string, level string, count bigint, example string"
_FOUND = "run string, check string, count bigint, example string"

LEVELS = {
    "a delivery without a publication": "fail",
    "delivered before it was published": "fail",
    "a delivery for a subscription never made": "fail",
    "delivered before the subscription was made": "fail",
    "an identity used twice": "fail",
    "published under another's name": "fail",
    "delivered twice": "fail",
    "stored in a stream and passed over": "fail",
    "delivered by a stream out of order": "fail",
    UNWANTED: "fail",
    MISSING: "fail",
    TOO_MANY: "fail",
    "time runs backwards": "warn",
    "dropped without a cause": "warn",
    "a limit was reached": "warn",
    "bad input was refused": "warn",
    INCOMPLETE: "warn",
    LEFT_OUT: "warn",
    CUT_OFF: "warn",
    DAMAGED_MARK: "warn",
}


def checks(tables: Tables, false_positives: DataFrame) -> DataFrame:
    """All checks over all runs: a row for each check of a run that found something."""
    frames = {kind: getattr(tables, kind) for kind in _KINDS} | {"false_positives": false_positives}
    found = table_of(checks_metric(tables.runs), frames, HELPERS)
    spark = false_positives.sparkSession
    return found.unionAll(spark.createDataFrame(findings_table(tables.findings).to_pylist(), parse_ddl(CHECKS)))


def checks_metric(runs: Sequence[RunFolder]) -> Metric:
    """All that was found, except for what cannot be judged of a run."""
    unjudged = {run.run: run.unjudged_checks for run in runs if run.unjudged_checks}

    def work(tables: ArrowTables) -> pa.Table:
        import pyarrow as pa

        (table,) = tables.values()
        rows = [row for row in table.to_pylist() if row["check"] not in unjudged.get(row["run"], ())]
        return pa.Table.from_pylist([row | {"level": LEVELS[row["check"]]} for row in rows], arrow_schema(CHECKS))

    reads = {metric.name: ("check", "count", "example") for metric in _FINDINGS}
    return Metric("checks", CHECKS, reads, work, totals={"count": "sum", "example": "min"})


def findings_table(findings: Sequence[CheckFinding]) -> pa.Table:
    """What was found as the runs were read: which are incomplete, and which records are not there."""
    import pyarrow as pa

    rows: dict[tuple[str, str], CheckFinding] = {}
    for one in findings:
        other = rows.get((one.run, one.check), one._replace(times=0))
        example = min(one.example, other.example)
        rows[one.run, one.check] = one._replace(times=one.times + other.times, example=example)
    columns = [(one.run, one.check, LEVELS[one.check], one.times, one.example) for one in rows.values()]
    names = arrow_schema(CHECKS).names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in columns], arrow_schema(CHECKS))


# Each of them.


def _unmatched(tables: ArrowTables) -> pa.Table:
    """Deliveries beside their publications: each needs one, and not a later one."""
    import numpy as np

    table = tables["matched"]
    lost, early = np.isnan(array(table, "published_at")), array(table, "delay") < 0.0
    return _joined(
        _found("a delivery without a publication", table, lost, _message_to_client),
        _found("delivered before it was published", table, early, _message_to_client),
    )


def _used(tables: ArrowTables) -> pa.Table:
    """For each subscription that something was delivered for: when it was first, and how often."""
    import numpy as np

    keys, rows = grouped(tables["delivered"], ["run", "node", "subscription"], ["time"])
    first, many = np.minimum.reduceat(rows["time"], rows.starts), rows.ends - rows.starts
    return key_table(keys, np.arange(len(keys)), first=first, deliveries=many)


def _subscriptions(tables: ArrowTables) -> pa.Table:
    """Deliveries beside their subscriptions: each needs one that was made before."""
    import pyarrow.compute as pc

    key = ["run", "node", "subscription"]
    used = _plain(tables["used"]).group_by(key).aggregate([("first", "min"), ("deliveries", "sum")])
    made = _plain(tables["subscribed"]).group_by(key).aggregate([("time", "min")])
    both = used.join(made, key, join_type="left outer")
    never = pc.is_null(both["time_min"])
    early = pc.fill_null(pc.less(both["first_min"], both["time_min"]), False)
    lost = both.filter(never)
    return _joined(
        _found("a delivery for a subscription never made", lost, None, _subscription, lost["deliveries_sum"]),
        _found("delivered before the subscription was made", both, early, _subscription),
    )


def _identities(tables: ArrowTables) -> pa.Table:
    """Every publication has an identity of its own, and a publisher's time does not run backwards."""
    import numpy as np

    keys, rows = grouped(tables["published"], ["run", "publisher"], ["incarnation", "count", "time"])
    order = ordinal(rows.number, rows["incarnation"], rows["count"])
    chosen = np.lexsort((rows["time"], order))
    rows, order = rows.take(chosen), order[chosen]
    table = key_table(keys, rows.number, **rows.values)
    again = np.concatenate(([False], order[1:] == order[:-1]))
    same = rows.number[1:] == rows.number[:-1]
    back = np.concatenate(([False], same & (rows["time"][1:] < rows["time"][:-1])))
    return _joined(
        _found("an identity used twice", table, again, _message), _found("time runs backwards", table, back, _message)
    )


def _impostors(tables: ArrowTables) -> pa.Table:
    import pyarrow.compute as pc

    table = _plain(tables["published"].select(["run", "node", "publisher"]))
    wrong = pc.not_equal(table["node"], table["publisher"])
    return _found("published under another's name", table, wrong, lambda t: _text(t["node"], " as ", t["publisher"]))


def _twice(tables: ArrowTables) -> pa.Table:
    table = tables["duplicates"]
    return _found(
        "delivered twice",
        table,
        None,
        lambda t: _text("from ", t["publisher"], " to ", t["client"]),
        table["duplicates"],
    )


def _streams(tables: ArrowTables) -> pa.Table:
    """What a durable name did not get, or got in the wrong order."""
    import pyarrow.compute as pc

    found = []
    for check, count in (
        ("stored in a stream and passed over", "missed"),
        ("delivered by a stream out of order", "disordered"),
    ):
        table = tables["streams"].filter(pc.greater(tables["streams"][count], 0))
        found.append(_found(check, table, None, lambda t: _text(t["durable"], " of ", t["pubend"]), table[count]))
    return _joined(*found)


def _unwanted(tables: ArrowTables) -> pa.Table:
    return _found(UNWANTED, tables["false_positives"], None, _message_to_client)


def _unexplained(tables: ArrowTables) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = tables["dropped"]
    wrong = pc.equal(pc.utf8_trim_whitespace(table["cause"].cast(pa.string())), "")
    return _found("dropped without a cause", table, wrong, lambda t: _text(t["node"], ", ", t["place"]))


def _limits(tables: ArrowTables) -> pa.Table:
    texts = lambda t: _text(t["node"], ", ", t["table"], ": ", t["limit"])  # noqa: E731
    return _found("a limit was reached", tables["limit_reached"], None, texts)


def _refusals(tables: ArrowTables) -> pa.Table:
    texts = lambda t: _text(t["node"], ", from ", t["sender"], ": ", t["problem"])  # noqa: E731
    return _found("bad input was refused", tables["input_refused"], None, texts)


_USED = Metric(
    "used",
    "run string, node string, subscription bigint, first double, deliveries bigint",
    {"delivered": ("node", "subscription", "time")},
    _used,
)
_MESSAGE = ("publisher", "incarnation", "count")
_FINDINGS = tuple(
    Metric(f"check {name}", _FOUND, reads, work, together=together)
    for name, reads, work, together in (
        ("unmatched", {"matched": (*_MESSAGE, "client", "published_at", "delay")}, _unmatched, {}),
        (
            "subscriptions",
            {"used": ("node", "subscription", "first", "deliveries"), "subscribed": ("node", "subscription", "time")},
            _subscriptions,
            {"used": ("node",), "subscribed": ("node",)},
        ),
        ("identities", {"published": (*_MESSAGE, "time")}, _identities, {"published": ("publisher",)}),
        ("impostors", {"published": ("node", "publisher")}, _impostors, {}),
        ("twice", {"duplicates": ("publisher", "client", "duplicates")}, _twice, {}),
        ("streams", {"streams": ("pubend", "durable", "missed", "disordered")}, _streams, {}),
        ("unwanted", {"false_positives": (*_MESSAGE, "client")}, _unwanted, {}),
        ("unexplained", {"dropped": ("node", "place", "cause")}, _unexplained, {}),
        ("limits", {"limit_reached": ("node", "table", "limit")}, _limits, {}),
        ("refusals", {"input_refused": ("node", "sender", "problem")}, _refusals, {}),
    )
)
_KINDS = (
    *("delivered", "published", "subscribed", "dropped", "limit_reached", "input_refused"),
    *("stream_requested", "stream_confirmed", "stream_delivered", "durable_began"),
)
FINDINGS = (_USED, *_FINDINGS)
HELPERS = (MATCHED, DUPLICATES_METRIC, PLACES_METRIC, streams_metric(()), *FINDINGS)


# Rows that should not be, as findings.


def _found(
    check: str,
    table: pa.Table,
    wrong: object,
    example: Callable[[pa.Table], pa.Array],
    count: pa.ChunkedArray | None = None,
) -> pa.Table:
    """How many rows of each run are wrong (or their `count`), and the first of their texts."""
    import pyarrow as pa

    if wrong is not None:
        table = table.filter(wrong if isinstance(wrong, pa.ChunkedArray) else pa.array(wrong))
    many = pa.array([1] * table.num_rows, pa.int64()) if count is None else count
    rows = pa.table({"run": table["run"].cast(pa.string()), "many": many, "text": example(table)})
    summed = rows.group_by("run").aggregate([("many", "sum"), ("text", "min")])
    checks = pa.array([check] * summed.num_rows, pa.string())
    return pa.table({"run": summed["run"], "check": checks, "count": summed["many_sum"], "example": summed["text_min"]})


def _joined(*parts: pa.Table) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(parts)


def _message(table: pa.Table) -> pa.Array:
    return _text(table["publisher"], " ", table["incarnation"], " ", table["count"])


def _message_to_client(table: pa.Table) -> pa.Array:
    return _text(_message(table), " to ", table["client"])


def _subscription(table: pa.Table) -> pa.Array:
    return _text(table["node"], ", subscription ", table["subscription"])


def _text(*parts: object) -> pa.Array:
    """Columns and words, one after the other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [part if isinstance(part, str) else part.cast(pa.string()) for part in parts]  # type: ignore[attr-defined]
    return pc.binary_join_element_wise(*texts, "")


def _plain(table: pa.Table) -> pa.Table:
    """With texts as texts: Arrow joins and groups no numbers into lists."""
    import pyarrow as pa

    return pa.table({name: plain_column(table[name]) for name in table.column_names})

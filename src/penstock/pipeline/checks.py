"""Does the trace make sense? Each check finds the rows that do not, and says of every run how many, with an example.

    level fail    something that cannot have happened: the trace, or the network, is wrong, and so is every number
    level warn    something that a reader of the numbers should know

Some checks cannot be made where records are lost; `extent` says which, and they are left out.

A check that finds nothing gives no row. The example is the first in the order of its text, so that running again gives
the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.pipeline.extent import CUT_OFF, INCOMPLETE, LEFT_OUT, MISSING, TOO_MANY, UNWANTED
from penstock.pipeline.metrics.delay import side_by_side, with_publications
from penstock.pipeline.metrics.losses import duplicates
from penstock.pipeline.metrics.shared import (
    DELIVERY_KEYS,
    DELIVERY_LAYOUT,
    PUBLICATION_LAYOUT,
    ordinal,
    pack_deliveries,
    pack_publications,
)
from penstock.pipeline.packs import number_rows, over_packs, unpack
from penstock.pipeline.schema import parse_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from penstock.pipeline.read import Tables

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
}


@dataclass(frozen=True)
class Evidence:
    """What the checks look at: tables, packs of deliveries and publications, and the metric `false_positives`."""

    tables: Tables
    delivered: DataFrame
    published: DataFrame
    false_positives: DataFrame


def checks(evidence: Evidence) -> DataFrame:
    """All checks over all runs: a row for each check of a run that found something."""
    from pyspark.sql import functions as F

    found = reduce(lambda a, b: a.unionByName(b), [check(evidence) for check in _CHECKS])
    for run in evidence.tables.runs:
        if run.unjudged_checks:
            found = found.where((F.col("run") != run.run) | ~F.col("check").isin(*sorted(run.unjudged_checks)))
    summed = found.groupBy("run", "check").agg(F.sum("count").alias("count"), F.min("example").alias("example"))
    levels = F.create_map(*[F.lit(word) for pair in LEVELS.items() for word in pair])
    return summed.select("run", "check", levels[F.col("check")].alias("level"), "count", "example")


def _matched(evidence: Evidence) -> DataFrame:
    """Deliveries beside their publications: each needs one, and not a later one."""

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np

        keys, rows, published_at = with_publications(packs)
        lost, early = np.isnan(published_at), rows["time"] < published_at
        return _findings(
            keys,
            [
                ("a delivery without a publication", rows.number[lost], _messages(rows, lost)),
                ("delivered before it was published", rows.number[early], _messages(rows, early)),
            ],
        )

    packs = side_by_side(evidence.delivered, evidence.published)
    return over_packs(packs, ("run", "publisher"), work, _FOUND)


def _subscriptions(evidence: Evidence) -> DataFrame:
    """Deliveries beside their subscriptions: each needs one that was made before."""
    from pyspark.sql import functions as F

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        numbers, first = number_rows(packs, DELIVERY_KEYS)
        rows = unpack(packs, numbers, DELIVERY_LAYOUT)
        subscription = ordinal(rows.number, rows["subscription"])
        _, place, many = np.unique(subscription, return_index=True, return_counts=True)
        earliest = np.full(len(place), np.inf)
        np.minimum.at(earliest, np.searchsorted(subscription[place], subscription), rows["time"])
        keys = packs.select(["run", "node"]).take(pa.array(first)).take(pa.array(rows.number[place]))
        values = [pa.array(rows["subscription"][place]), pa.array(earliest), pa.array(many)]
        return pa.table([*keys.columns, *values], names=["run", "node", "subscription", "first", "deliveries"])

    ddl = "run string, node string, subscription bigint, first double, deliveries bigint"
    used = over_packs(pack_deliveries(evidence.delivered), DELIVERY_KEYS, work, ddl)
    made = evidence.tables.subscribed.groupBy("run", "node", "subscription").agg(F.min("time").alias("made"))
    joined = used.join(made, ["run", "node", "subscription"], "left")
    never = F.col("made").isNull()
    wrong = joined.where(never | (F.col("first") < F.col("made")))
    name = F.when(never, "a delivery for a subscription never made").otherwise(
        "delivered before the subscription was made"
    )
    count = F.when(never, F.col("deliveries")).otherwise(1)
    example = F.concat("node", F.lit(", subscription "), F.col("subscription").cast("string"))
    return _rows(wrong, name, example, count)


def _identities(evidence: Evidence) -> DataFrame:
    """Every publication has an identity of its own, and a publisher's time does not run backwards."""

    def work(packs: pa.Table) -> pa.Table:
        import numpy as np

        numbers, first = number_rows(packs, ("run", "publisher"))
        rows = unpack(packs, numbers, PUBLICATION_LAYOUT)
        order = ordinal(rows.number, rows["incarnation"], rows["count"])
        chosen = np.lexsort((rows["time"], order))
        rows, order = rows.take(chosen), order[chosen]
        again = np.concatenate(([False], order[1:] == order[:-1]))
        same = rows.number[1:] == rows.number[:-1]
        back = np.concatenate(([False], same & (rows["time"][1:] < rows["time"][:-1])))
        return _findings(
            _with_client(packs, first),
            [
                ("an identity used twice", rows.number[again], _messages(rows, again)),
                ("time runs backwards", rows.number[back], _messages(rows, back)),
            ],
        )

    return over_packs(pack_publications(evidence.published), ("run", "publisher"), work, _FOUND)


def _impostors(evidence: Evidence) -> DataFrame:
    from pyspark.sql import functions as F

    rows = evidence.tables.published.where(F.col("node") != F.col("publisher"))
    example = F.concat("node", F.lit(" as "), "publisher")
    return _rows(rows, F.lit("published under another's name"), example)


def _twice(evidence: Evidence) -> DataFrame:
    from pyspark.sql import functions as F

    example = F.concat(F.lit("from "), "publisher", F.lit(" to "), "client")
    return _rows(duplicates(evidence.delivered), F.lit("delivered twice"), example, F.col("duplicates"))


def _unwanted(evidence: Evidence) -> DataFrame:
    from pyspark.sql import functions as F

    example = F.concat_ws(
        " ", "publisher", F.col("incarnation").cast("string"), F.col("count").cast("string"), F.lit("to"), "client"
    )
    return _rows(evidence.false_positives, F.lit(UNWANTED), example)


def _unexplained(evidence: Evidence) -> DataFrame:
    from pyspark.sql import functions as F

    rows = evidence.tables.dropped.where(F.trim("cause") == "")
    return _rows(rows, F.lit("dropped without a cause"), F.concat("node", F.lit(", "), "place"))


def _limits(evidence: Evidence) -> DataFrame:
    from pyspark.sql import functions as F

    example = F.concat("node", F.lit(", "), "table", F.lit(": "), F.col("limit").cast("string"))
    return _rows(evidence.tables.limit_reached, F.lit("a limit was reached"), example)


def _refusals(evidence: Evidence) -> DataFrame:
    from pyspark.sql import functions as F

    example = F.concat("node", F.lit(", from "), "sender", F.lit(": "), "problem")
    return _rows(evidence.tables.input_refused, F.lit("bad input was refused"), example)


def _losses(evidence: Evidence) -> DataFrame:
    """What was found as the runs were read: which are incomplete, and which records are not there."""
    return evidence.tables.published.sparkSession.createDataFrame(list(evidence.tables.findings), parse_ddl(_FOUND))


_CHECKS: tuple[Callable[[Evidence], DataFrame], ...] = (
    _matched,
    _subscriptions,
    _identities,
    _impostors,
    _twice,
    _unwanted,
    _unexplained,
    _limits,
    _refusals,
    _losses,
)


def _rows(rows: DataFrame, check: Column, example: Column, count: Column | None = None) -> DataFrame:
    """Rows that should not be, as findings."""
    from pyspark.sql import functions as F

    many = F.lit(1) if count is None else count
    return rows.select("run", check.alias("check"), many.cast("bigint").alias("count"), example.alias("example"))


def _findings(keys: pa.Table, found: list[tuple[str, Any, list[str]]]) -> pa.Table:
    """For each check the group of each wrong row and what it says -> one finding for each check and group."""
    import pyarrow as pa

    runs, publishers, clients = (keys.column(name).to_pylist() for name in ("run", "publisher", "client"))
    counts: dict[tuple[str, str], tuple[int, str]] = {}
    for check, groups, texts in found:
        for group, text in zip(groups.tolist(), texts, strict=True):
            example = f"{publishers[group]} {text}" + (f" to {clients[group]}" if clients[group] else "")
            many, least = counts.get((runs[group], check), (0, example))
            counts[runs[group], check] = (many + 1, min(least, example))
    rows = [(run, check, many, example) for (run, check), (many, example) in counts.items()]
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    types = [pa.string(), pa.string(), pa.int64(), pa.string()]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["run", "check", "count", "example"])


def _messages(rows: Any, chosen: Any) -> list[str]:
    """The rest of the identities of some rows, as text."""
    return [
        f"{i} {c}" for i, c in zip(rows["incarnation"][chosen].tolist(), rows["count"][chosen].tolist(), strict=True)
    ]


def _with_client(packs: pa.Table, first: Any) -> pa.Table:
    import pyarrow as pa

    keys = packs.select(["run", "publisher"]).take(pa.array(first))
    return keys.append_column("client", pa.array([""] * len(keys)))

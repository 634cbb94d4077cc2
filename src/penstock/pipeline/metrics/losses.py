"""What should have come and did not, what came and should not have, what came twice, and what was dropped on the way.

The *truth* says who should have received what: one row for each message and subscription that match. A row that is
`due` must be delivered; one that is not (the message was published while the subscription was spreading through the
network) may be. So a false negative is a due row without a delivery, and a false positive is a delivery without any
row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.execution import table_of
from penstock.pipeline.groups import array, grouped, number_rows, ordinal
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.metrics.shared import MESSAGE, as_client, count_rows, key_table
from penstock.pipeline.truth import TRUTH_SCHEMA

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

TRUTH = TRUTH_SCHEMA
_MESSAGE = "run string, publisher string, incarnation bigint, count bigint, client string, subscription bigint"
FALSE_NEGATIVES = f"{_MESSAGE}, published_at double"
FALSE_POSITIVES = f"{_MESSAGE}, delivered_at double"
MISSED = "run string, publisher string, client string, due bigint, missed bigint"
DUPLICATES = "run string, publisher string, client string, duplicates bigint"
DROPS = (
    "run string, node string, peer string, place string, cause string, kind string, publisher string, packets bigint,"
    " destinations bigint"
)


def false_negatives(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    """The messages that should have been delivered and were not, one row for each subscription that missed one."""
    return table_of(FALSE_NEGATIVES_METRIC, {"truth": truth, "delivered": delivered})


def false_positives(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    """The deliveries that nobody had asked for."""
    return table_of(FALSE_POSITIVES_METRIC, {"truth": truth, "delivered": delivered})


def missed(truth: DataFrame, delivered: DataFrame) -> DataFrame:
    """How many messages were due from each publisher to each client, and how many of them were missed."""
    return table_of(MISSED_METRIC, {"truth": truth, "delivered": delivered}, [FALSE_NEGATIVES_METRIC])


def duplicates(delivered: DataFrame) -> DataFrame:
    """How many deliveries repeated an earlier one of the same message for the same subscription; no row where none."""
    return table_of(DUPLICATES_METRIC, {"delivered": delivered})


def drops(dropped: DataFrame) -> DataFrame:
    """Packets that ended on the way, by place, cause and publisher, and how many destinations they were meant for."""
    return table_of(DROPS_METRIC, {"dropped": dropped})


# The metrics behind them.


def _false_negatives(tables: ArrowTables) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    wanted, (ours, came) = tables["truth"], _identities(tables)
    gone = wanted["due"].to_numpy(zero_copy_only=False) & ~np.isin(ours, came)
    return wanted.filter(pa.array(gone)).drop_columns("due")


def _false_positives(tables: ArrowTables) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    wanted, came = _identities(tables)
    found = as_client(tables["delivered"].filter(pa.array(~np.isin(came, wanted))))
    return found.rename_columns(["delivered_at" if name == "time" else name for name in found.column_names])


def _identities(tables: ArrowTables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One number for each client, subscription and message: of the truth, and of the deliveries."""
    import numpy as np
    import pyarrow as pa

    wanted, came = tables["truth"], as_client(tables["delivered"])
    names = ["run", "publisher", "client"]
    keys = pa.concat_tables([wanted.select(names), came.select(names)]).unify_dictionaries()
    numbers, _ = number_rows(keys, names)
    columns = [np.concatenate([array(wanted, name), array(came, name)]) for name in ("subscription", *MESSAGE[1:])]
    identity = ordinal(numbers, *columns)
    return identity[: len(wanted)], identity[len(wanted) :]


def _missed(tables: ArrowTables) -> pa.Table:
    """Parts of the truth say what was due, false negatives what was missed."""
    import numpy as np
    import pyarrow as pa

    ((name, table),) = tables.items()
    ours, other = ("due", "missed") if name == "truth" else ("missed", "due")
    if name == "truth":
        table = table.filter(table["due"])
    found = count_rows(table, ["run", "publisher", "client"], ours)
    return found.append_column(other, pa.array(np.zeros(len(found), dtype=np.int64)))


def _duplicates(tables: ArrowTables) -> pa.Table:
    import numpy as np

    keys, rows = grouped(tables["delivered"], ["run", "publisher", "node"], ["subscription", "incarnation", "count"])
    identity = ordinal(rows.number, rows["subscription"], rows["incarnation"], rows["count"])
    identity.sort()
    again = np.flatnonzero(identity[1:] == identity[:-1])
    # Sorted by identity the rows are still sorted by group, so each place has the group that it had.
    repeated = np.bincount(rows.number[again], minlength=len(keys))
    found = np.flatnonzero(repeated)
    return as_client(key_table(keys, found, duplicates=repeated[found]))


def _drops(tables: ArrowTables) -> pa.Table:
    table = tables["dropped"]
    keys = ["run", "node", "peer", "place", "cause", "kind", "publisher"]
    return count_rows(table, keys, "packets", {"destinations": array(table, "destinations")})


_DELIVERY = ("publisher", "node", "subscription", "incarnation", "count")
_TRUTH = ("publisher", "incarnation", "count", "client", "subscription", "published_at", "due")
_BY_PAIR = {"truth": ("publisher", "client"), "delivered": ("publisher", "node")}

FALSE_NEGATIVES_METRIC = Metric(
    "false_negatives",
    FALSE_NEGATIVES,
    {"truth": _TRUTH, "delivered": _DELIVERY},
    _false_negatives,
    together=_BY_PAIR,
)
FALSE_POSITIVES_METRIC = Metric(
    "false_positives",
    FALSE_POSITIVES,
    {"truth": _TRUTH[:-2], "delivered": (*_DELIVERY, "time")},
    _false_positives,
    together=_BY_PAIR,
)
MISSED_METRIC = Metric(
    "missed",
    MISSED,
    {"truth": ("publisher", "client", "due"), "false_negatives": ("publisher", "client")},
    _missed,
    totals={"due": "sum", "missed": "sum"},
)
DUPLICATES_METRIC = Metric(
    "duplicates",
    DUPLICATES,
    {"delivered": _DELIVERY},
    _duplicates,
    together={"delivered": ("publisher", "node")},
)
DROPS_METRIC = Metric(
    "drops",
    DROPS,
    {"dropped": ("node", "peer", "place", "cause", "kind", "publisher", "destinations")},
    _drops,
    totals={"packets": "sum", "destinations": "sum"},
)

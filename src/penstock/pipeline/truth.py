"""Who should have received what: every publication against every subscription that was active when it was published.

The judge is `content`'s own index over predicates, the same that brokers use, so the truth cannot mean anything else
by a WHERE text than the network does. Publications pass as Arrow batches through Python workers. The subscriptions,
of which there are few, are collected and broadcast, and each worker files every distinct text once, for all runs.

A subscription (run, client, number) is active from its Subscribed record to its Unsubscribed record, and may be so
several times; a second Subscribed without an Unsubscribed between them replaces the first. News of it takes time to
spread, so a publication close to either end may or may not be delivered. With `grace`, the time that this takes at
most:

       begin - grace        begin        begin + grace              end - grace        end
             |  may be delivered               |  due: must be delivered   |  may be     |

What was under way when a subscription began may arrive after it, which is why the first stretch begins before
`begin`. A publication that stands nowhere in this picture has no row: to deliver it was wrong. Publishers' own
subscriptions count like any others.

Every run has a grace of its own. Where a trace is cut off, or a part of it is lost, nobody can know whether what was
published shortly before, or meanwhile, has arrived: a run's `unjudged` stretches name these times, and nothing that
was published in them is due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.content.language.parser import parse_predicate
from penstock.content.matching.exact_index import PredicateIndex
from penstock.errors import InvalidPredicate, PipelineError
from penstock.kernel.trace import Published, Subscribed, Unsubscribed
from penstock.pipeline.execution import read_kind
from penstock.pipeline.metric import ArrowTables, Metric
from penstock.pipeline.parcels import arrow_schema, plain_column
from penstock.pipeline.schema import checked, table_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.read import Tables

TRUTH_SCHEMA = (
    "run string, publisher string, incarnation bigint, count bigint, client string, subscription bigint,"
    " published_at double, due boolean"
)
Stretches = tuple[tuple[float, float], ...]  # of time, each with its begin and its end
_IDENTITY = ("run", "publisher", "incarnation", "count")
_UNSUBSCRIBED = ("run", "node", "subscription", "time")
_SUBSCRIBED = (*_UNSUBSCRIBED, "where")
MESSAGES_PER_MATCH = 1024  # bounds what a worker holds: this times the matches of one message


class Span(NamedTuple):
    """A time in which a subscription was active; it may have been delivered to from `reach` on."""

    reach: float
    begin: float
    end: float
    where: str


@dataclass(frozen=True, kw_only=True)
class Standings:
    """The spans of one run, sorted by the number of their text: those of text t stand at offsets[t] to offsets[t+1]."""

    offsets: NDArray[np.int64]
    client: list[str]
    subscription: NDArray[np.int64]
    reach: NDArray[np.float64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    grace: float
    unjudged: Stretches


@dataclass(frozen=True, kw_only=True)
class SubscriptionSpans:
    """All subscriptions of all runs, as the workers get them."""

    texts: tuple[str, ...]
    runs: dict[str, Standings]


def truth_of(tables: Tables) -> DataFrame:
    """The truth about all runs that have been read, each with its own grace."""
    grace = {run.run: run.grace for run in tables.runs}
    unjudged = {run.run: run.unjudged for run in tables.runs}
    return truth(tables.published, tables.subscribed, tables.unsubscribed, grace=grace, unjudged=unjudged)


def truth(
    published: DataFrame,
    subscribed: DataFrame,
    unsubscribed: DataFrame,
    *,
    grace: float | Mapping[str, float],
    unjudged: Mapping[str, Stretches] | None = None,
) -> DataFrame:
    """TRUTH_SCHEMA: a row for each publication and subscription that it may be delivered to; `due` if it must be.

    `grace` is one for all runs, or one for each.
    """
    published = checked(published, table_ddl(Published), "published")
    subscribed = checked(subscribed, table_ddl(Subscribed), "subscribed")
    unsubscribed = checked(unsubscribed, table_ddl(Unsubscribed), "unsubscribed")
    tables = subscribed.select(*_SUBSCRIBED).toArrow(), unsubscribed.select(*_UNSUBSCRIBED).toArrow()
    spans = collect_subscriptions(*tables, grace=grace, unjudged=unjudged or {})
    sent = published.sparkSession.sparkContext.broadcast(spans)
    # Hash partitioning spreads a run that stands in one file; adaptive execution keeps a small one in one piece.
    spread = published.select(*_IDENTITY, "time", "attributes").repartition(*_IDENTITY)
    return spread.mapInArrow(partial(_judge, sent), TRUTH_SCHEMA)


def truth_metric(spark: SparkSession, tables: Tables) -> Metric:
    """The same truth as `truth_of`, made where publications are read."""
    grace = {run.run: run.grace for run in tables.runs}
    unjudged = {run.run: run.unjudged for run in tables.runs}
    changes = read_kind(tables, "subscribed", _SUBSCRIBED[1:]), read_kind(tables, "unsubscribed", _UNSUBSCRIBED[1:])
    sent = spark.sparkContext.broadcast(collect_subscriptions(*changes, grace=grace, unjudged=unjudged))

    def work(tables: ArrowTables) -> pa.Table:
        import pyarrow as pa

        table = tables["published"]
        columns = {name: plain_column(table[name]) for name in table.column_names}
        return pa.Table.from_batches(_judge(sent, pa.table(columns).to_batches()), arrow_schema(TRUTH_SCHEMA))

    return Metric("truth", TRUTH_SCHEMA, {"published": (*_IDENTITY[1:], "time", "attributes")}, work)


def collect_subscriptions(
    subscribed: pa.Table,
    unsubscribed: pa.Table,
    *,
    grace: float | Mapping[str, float],
    unjudged: Mapping[str, Stretches],
) -> SubscriptionSpans:
    """What everybody wanted and when, brought to the driver."""
    changes: dict[tuple[str, str, int], list[tuple[float, str | None]]] = defaultdict(list)
    for run, node, number, time, where in _rows(subscribed, _SUBSCRIBED):
        changes[run, node, number].append((time, where))
    for run, node, number, time in _rows(unsubscribed, _UNSUBSCRIBED):
        changes[run, node, number].append((time, None))
    own = {run: grace[run] if isinstance(grace, Mapping) else float(grace) for run, _, _ in changes}
    spans = [
        (run, node, number, span)
        for (run, node, number), one in sorted(changes.items())
        for span in active_spans(one, grace=own[run])
    ]
    texts = tuple(sorted({span.where for *_, span in spans}))
    by_run: dict[str, list[tuple[str, int, Span]]] = defaultdict(list)
    for run, node, number, span in spans:
        by_run[run].append((node, number, span))
    numbers = {text: index for index, text in enumerate(texts)}
    runs = {run: _standings(some, numbers, own[run], unjudged.get(run, ())) for run, some in by_run.items()}
    return SubscriptionSpans(texts=texts, runs=runs)


def active_spans(changes: Iterable[tuple[float, str | None]], *, grace: float) -> list[Span]:
    """The spans of one subscription from its changes: (time, text) begins one, (time, None) ends it.

    Where a beginning and an end fall on one moment, the order that makes sense counts: what is active ends first.
    """
    at: dict[float, list[str | None]] = defaultdict(list)
    for time, where in changes:
        at[time].append(where)
    spans: list[Span] = []
    active: tuple[float, str] | None = None
    for time in sorted(at):
        ends = at[time].count(None)
        for where in [*([None] if active else []), *(text for text in at[time] if text is not None), None]:
            if where is None:
                if ends == 0 or active is None:
                    continue
                ends -= 1
            if active is not None and active[0] < time:  # one that ends as it begins never was
                spans.append(_span(spans, active, time, grace))
            active = None if where is None else (time, where)
    if active is not None:
        spans.append(_span(spans, active, inf, grace))
    return spans


def _span(before: list[Span], active: tuple[float, str], end: float, grace: float) -> Span:
    begin, where = active
    earliest = before[-1].end if before else -inf  # spans of one subscription do not overlap: no delivery counts twice
    return Span(max(begin - grace, earliest), begin, end, where)


def _rows(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _standings(
    spans: list[tuple[str, int, Span]], numbers: dict[str, int], grace: float, unjudged: Stretches
) -> Standings:
    spans = sorted(spans, key=lambda one: numbers[one[2].where])
    counts = np.bincount([numbers[span.where] for *_, span in spans], minlength=len(numbers))
    return Standings(
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        client=[client for client, _, _ in spans],
        subscription=np.array([number for _, number, _ in spans], dtype=np.int64),
        reach=np.array([span.reach for *_, span in spans]),
        begin=np.array([span.begin for *_, span in spans]),
        end=np.array([span.end for *_, span in spans]),
        grace=grace,
        unjudged=unjudged,
    )


# In the workers ---------------------------------------------------------------------------------------------------


def _judge(sent: Broadcast[SubscriptionSpans], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    spans = sent.value
    for batch in batches:
        table = pa.table(batch)
        for run in table["run"].unique().to_pylist():
            if run in spans.runs:
                of_run = table.filter(pc.equal(table["run"], run))
                for begin in range(0, of_run.num_rows, MESSAGES_PER_MATCH):
                    part = of_run.slice(begin, MESSAGES_PER_MATCH)
                    yield from _judge_part(part, _index_of(spans.texts), spans.runs[run])


def _judge_part(part: pa.Table, index: PredicateIndex, standings: Standings) -> list[pa.RecordBatch]:
    """Every pair of a publication and a true text becomes a row for each span of that text that it falls into."""
    import pyarrow as pa

    matched = index.match([_attributes(text) for text in part["attributes"].to_pylist()])
    texts = np.fromiter((key for keys in matched for key in keys), dtype=np.int64)
    rows = np.repeat(np.arange(len(matched)), [len(keys) for keys in matched])
    counts = standings.offsets[texts + 1] - standings.offsets[texts]
    rows, firsts = np.repeat(rows, counts), np.repeat(standings.offsets[texts], counts)
    spans = firsts + np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
    times = part["time"].to_numpy()[rows]
    reached = (standings.reach[spans] <= times) & (times < standings.end[spans])
    rows, spans, times = rows[reached], spans[reached], times[reached]
    due = (standings.begin[spans] + standings.grace <= times) & (times <= standings.end[spans] - standings.grace)
    for begin, end in standings.unjudged:
        due &= (times < begin) | (times >= end)
    publications = part.take(pa.array(rows))
    found = {name: publications[name] for name in ("run", "publisher", "incarnation", "count")}
    found["client"] = pa.array(standings.client, type=pa.string()).take(pa.array(spans))
    found["subscription"] = pa.array(standings.subscription[spans])
    found["published_at"] = pa.array(times)
    found["due"] = pa.array(due)
    return list(pa.table(found).to_batches())


@lru_cache(maxsize=1)
def _index_of(texts: tuple[str, ...]) -> PredicateIndex:
    """Built once in each worker process, which Spark uses again for its next task."""
    index = PredicateIndex()
    for number, text in enumerate(texts):
        try:
            index.add(number, parse_predicate(text))
        except InvalidPredicate as error:
            problem = str(error).splitlines()[0]
            raise PipelineError(
                f"a subscription in the trace cannot be read, WHERE {text[:100]!r}: {problem}"
            ) from error
    return index


def _attributes(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise PipelineError(f"a publication in the trace has attributes {text[:100]!r}: {error}") from error

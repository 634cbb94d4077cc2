"""Every table of the pipeline once more, in plain SQL over the part files of a trace, to hold the pipeline against.

DuckDB reads the files by itself and judges WHERE texts by itself (those of `random_traces.PREDICATES`, which are SQL as
they stand). Nothing here is fast or clever: a query says what a table means, as docs/data.md does.

Names of columns that SQL has a use for (`count`, `where`, `order`) are quoted. Publications are taken once each: one
that stands in a trace twice with the same time is a mistake that `checks` names, and no reason to count a delay twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from penstock.kernel.trace_files import columns, kind_name
from penstock.services import record_kinds

Rows = list[tuple[Any, ...]]

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
SHARES = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999}
BIN = 0.001

_PREPARED = """
CREATE TABLE sent AS SELECT run, publisher, incarnation, "count", time, waited FROM published
QUALIFY row_number() OVER (PARTITION BY run, publisher, incarnation, "count" ORDER BY time, waited) = 1;
CREATE TABLE got AS SELECT *, node AS client FROM delivered;
CREATE TABLE asked AS
SELECT run, publisher, incarnation, "count", time AS requested_at, attributes FROM stream_requested
QUALIFY row_number() OVER (PARTITION BY run, publisher, incarnation, "count" ORDER BY time, attributes) = 1;
CREATE TABLE made AS SELECT run, node AS client, subscription, min(time) AS made FROM subscribed GROUP BY ALL;

-- The moments at which something happens to a subscription, and whether it is active after each.
CREATE TABLE moments AS
SELECT run, node, subscription, time, count(text) AS begins, count(*) - count(text) AS ends, max(text) AS text,
       row_number() OVER (PARTITION BY run, node, subscription ORDER BY time) AS n
FROM (SELECT run, node, subscription, time, "where" AS text FROM subscribed
      UNION ALL SELECT run, node, subscription, time, NULL FROM unsubscribed)
GROUP BY run, node, subscription, time;

CREATE TABLE states AS
WITH RECURSIVE state AS (
    SELECT *, begins = 1 AND ends = 0 AS active FROM moments WHERE n = 1
    UNION ALL
    SELECT m.*, CASE WHEN m.begins = 1 THEN m.ends <= CAST(s.active AS INT) ELSE s.active AND m.ends = 0 END
    FROM state s JOIN moments m
      ON m.run = s.run AND m.node = s.node AND m.subscription = s.subscription AND m.n = s.n + 1
) SELECT * FROM state;

CREATE TABLE spans AS
WITH active AS (
    SELECT * FROM (
        SELECT *, lead(time, 1, 'infinity'::DOUBLE) OVER (PARTITION BY run, node, subscription ORDER BY time) AS until
        FROM states)
    WHERE active)
SELECT run, node AS client, subscription, text, time AS since, until, grace,
       greatest(time - grace, lag(until, 1, '-infinity'::DOUBLE)
                              OVER (PARTITION BY run, node, subscription ORDER BY time)) AS reach
FROM active JOIN runs USING (run);
"""

_PREPARED_AFTER_MATCHING = """
CREATE TABLE truth AS
SELECT m.run, publisher, incarnation, "count", client, subscription, time AS published_at,
       since + grace <= time AND time <= until - grace AS due
FROM matched m JOIN spans s ON m.run = s.run AND m.text = s.text AND reach <= time AND time < until;

CREATE TABLE missing AS
SELECT run, publisher, incarnation, "count", client, subscription, published_at
FROM truth t
WHERE due AND NOT EXISTS (
    SELECT 1 FROM got g WHERE g.run = t.run AND g.publisher = t.publisher AND g.incarnation = t.incarnation
    AND g."count" = t."count" AND g.client = t.client AND g.subscription = t.subscription);

CREATE TABLE unwanted AS
SELECT run, publisher, incarnation, "count", client, subscription, time AS delivered_at
FROM got g
WHERE NOT EXISTS (
    SELECT 1 FROM truth t WHERE g.run = t.run AND g.publisher = t.publisher AND g.incarnation = t.incarnation
    AND g."count" = t."count" AND g.client = t.client AND g.subscription = t.subscription);

CREATE TABLE twice AS
SELECT run, publisher, client, count(*) - count(DISTINCT (subscription, incarnation, "count")) AS duplicates
FROM got GROUP BY ALL HAVING duplicates > 0;

-- When each client had each message for the first time, and whether it had a later one before.
CREATE TABLE firsts AS
SELECT run, publisher, client, incarnation, "count", min(time) AS time FROM got GROUP BY ALL;

CREATE TABLE late AS
SELECT * FROM firsts m
WHERE EXISTS (
    SELECT 1 FROM firsts o WHERE o.run = m.run AND o.publisher = m.publisher AND o.client = m.client
    AND o.time < m.time AND (o.incarnation, o."count") > (m.incarnation, m."count"));

CREATE TABLE delays AS
SELECT g.run, g.publisher, client, g.incarnation, g."count", s.time AS published_at, since,
       CASE since WHEN 'sent' THEN g.time - s.time ELSE g.time - (s.time - s.waited) END AS delay
FROM got g JOIN sent s USING (run, publisher, incarnation, "count"), (VALUES ('publish'), ('sent')) AS begins(since);

-- The delays of the pairs, one for each message, in the order of publication.
CREATE TABLE series AS
SELECT *, delay - lag(delay) OVER pair AS step
FROM (SELECT run, publisher, client, published_at, incarnation, "count", min(delay) AS delay
      FROM delays WHERE since = 'sent' GROUP BY ALL)
WINDOW pair AS (PARTITION BY run, publisher, client ORDER BY published_at, incarnation, "count");

-- What is stored where, the durable names, what they are owed, and what their readers got.
CREATE TABLE places AS
SELECT run, pubend, tick, requested_at, attributes, publisher, incarnation, "count"
FROM stream_confirmed JOIN asked USING (run, publisher, incarnation, "count")
QUALIFY row_number() OVER (PARTITION BY run, pubend, tick ORDER BY requested_at, publisher, incarnation, "count") = 1;

CREATE TABLE durables AS
SELECT run, pubend, durable, min(tick) AS after, min("where") AS text FROM durable_began GROUP BY ALL;

CREATE TABLE owed AS
SELECT d.run, d.pubend, d.durable, p.tick
FROM durables d JOIN places p ON p.run = d.run AND p.pubend = d.pubend AND p.tick > d.after
JOIN wanted w ON w.run = p.run AND w.publisher = p.publisher AND w.incarnation = p.incarnation
     AND w."count" = p."count" AND w.text = d.text;

CREATE TABLE reads AS
SELECT g.run, g.pubend, durable, g.tick, g.time, EXISTS (
    SELECT 1 FROM stream_delivered o WHERE o.run = g.run AND o.pubend = g.pubend AND o.node = g.node
    AND o.subscription = g.subscription AND o.time < g.time AND o.tick >= g.tick) AS disordered
FROM stream_delivered g JOIN
     (SELECT run, pubend, node, subscription, min(durable) AS durable FROM durable_began GROUP BY ALL)
     USING (run, pubend, node, subscription);
"""


def _per_second(table: str, by: str, what: str, time: str = "time") -> str:
    return f"SELECT run, {by}, floor({time})::BIGINT AS second, count(*) AS {what} FROM {table} GROUP BY ALL"


def _percentiles(by: str) -> str:
    ranks = ", ".join(
        f"list(delay ORDER BY delay)[(count(*) * {share} + 999) // 1000] AS {name}" for name, share in SHARES.items()
    )
    return (
        f"SELECT run, {by} since, count(*) AS deliveries, favg(delay) AS mean, min(delay) AS minimum, {ranks},"
        " max(delay) AS maximum FROM delays GROUP BY ALL"
    )


def _rows(check: str, example: str, table: str, where: str = "TRUE", count: str = "1") -> str:
    return f"SELECT run, '{check}' AS \"check\", {count} AS found, {example} AS example FROM {table} WHERE {where}"


_STREAMS = """
    SELECT run, pubend, durable, coalesce(stored, 0) AS stored, coalesce(due, 0) AS due,
           coalesce(delivered, 0) AS delivered, coalesce(missed, 0) AS missed, coalesce(waiting, 0) AS waiting,
           coalesce(deliveries - delivered, 0) AS repeated, coalesce(disordered, 0) AS disordered, median, longest
    FROM durables
    LEFT JOIN (SELECT run, pubend, count(*) AS stored FROM places GROUP BY ALL) USING (run, pubend)
    LEFT JOIN (SELECT run, pubend, durable, count(DISTINCT tick) AS delivered, count(*) AS deliveries,
                      count(*) FILTER (disordered) AS disordered, max(tick) AS newest
               FROM reads GROUP BY ALL) USING (run, pubend, durable)
    LEFT JOIN (SELECT run, pubend, durable, count(*) AS due,
                      count(*) FILTER (NOT got AND tick < coalesce(newest, 0)) AS missed,
                      count(*) FILTER (NOT got AND tick > coalesce(newest, 0)) AS waiting
               FROM (SELECT *, EXISTS (SELECT 1 FROM reads r WHERE r.run = o.run AND r.pubend = o.pubend
                                       AND r.durable = o.durable AND r.tick = o.tick) AS got
                     FROM owed o)
               LEFT JOIN (SELECT run, pubend, durable, max(tick) AS newest FROM reads GROUP BY ALL)
                    USING (run, pubend, durable)
               GROUP BY ALL) USING (run, pubend, durable)
    LEFT JOIN (SELECT run, pubend, durable, list(delay ORDER BY delay)[(count(*) + 1) // 2] AS median,
                      max(delay) AS longest
               FROM (SELECT run, pubend, durable, tick, min(time) - any_value(requested_at) AS delay
                     FROM reads JOIN places USING (run, pubend, tick) GROUP BY ALL)
               GROUP BY ALL) USING (run, pubend, durable)"""

_MESSAGE = """concat(publisher, ' ', incarnation, ' ', "count")"""
_FINDINGS = [
    _rows(
        "a delivery without a publication",
        f"concat({_MESSAGE}, ' to ', client)",
        "got g",
        "NOT EXISTS (SELECT 1 FROM sent s WHERE s.run = g.run AND s.publisher = g.publisher"
        ' AND s.incarnation = g.incarnation AND s."count" = g."count")',
    ),
    _rows(
        "delivered before it was published",
        f"concat({_MESSAGE}, ' to ', client)",
        "delays",
        "since = 'sent' AND delay < 0",
    ),
    _rows(
        "a delivery for a subscription never made",
        "concat(client, ', subscription ', subscription)",
        "got LEFT JOIN made USING (run, client, subscription)",
        "made IS NULL",
    ),
    _rows(
        "delivered before the subscription was made",
        "concat(client, ', subscription ', subscription)",
        "(SELECT run, client, subscription, min(time) AS time FROM got GROUP BY ALL)"
        " JOIN made USING (run, client, subscription)",
        "time < made",
    ),
    _rows(
        "an identity used twice",
        _MESSAGE,
        '(SELECT run, publisher, incarnation, "count", count(*) AS uses FROM published GROUP BY ALL)',
        "uses > 1",
        "uses - 1",
    ),
    _rows(
        "time runs backwards",
        _MESSAGE,
        '(SELECT *, lag(time) OVER (PARTITION BY run, publisher ORDER BY incarnation, "count", time) AS before'
        " FROM published)",
        "time < before",
    ),
    _rows("published under another''s name", "concat(node, ' as ', publisher)", "published", "node <> publisher"),
    _rows("delivered twice", "concat('from ', publisher, ' to ', client)", "twice", count="duplicates"),
    _rows(
        "stored in a stream and passed over",
        "concat(durable, ' of ', pubend)",
        f"({_STREAMS})",
        "missed > 0",
        "missed",
    ),
    _rows(
        "delivered by a stream out of order",
        "concat(durable, ' of ', pubend)",
        f"({_STREAMS})",
        "disordered > 0",
        "disordered",
    ),
    _rows("a delivery that nobody had asked for", f"concat({_MESSAGE}, ' to ', client)", "unwanted"),
    _rows("dropped without a cause", "concat(node, ', ', place)", "dropped", "trim(cause) = ''"),
    _rows("a limit was reached", "concat(node, ', ', \"table\", ': ', \"limit\")", "limit_reached"),
    _rows("bad input was refused", "concat(node, ', from ', sender, ': ', problem)", "input_refused"),
]
_WARNINGS = "'time runs backwards', 'dropped without a cause', 'a limit was reached', 'bad input was refused'"

_EVENTS = " UNION ALL ".join(
    f"SELECT run, publisher, node AS client, '{name}' AS event, {took} AS took FROM {kind}"
    for name, kind, took in (
        ("detected", "loss_detected", "NULL"),
        ("requests", "request_sent", "NULL"),
        ("recovered", "recovered", "CASE WHEN detected > 0 THEN detected END"),
        ("gave_up", "gave_up", "NULL"),
    )
)

QUERIES = {
    "missed": """
        SELECT run, publisher, client, count(*) AS due, coalesce(any_value(missed), 0) AS missed
        FROM truth LEFT JOIN (SELECT run, publisher, client, count(*) AS missed FROM missing GROUP BY ALL)
             USING (run, publisher, client)
        WHERE due GROUP BY run, publisher, client""",
    "false_negatives": "SELECT * FROM missing",
    "false_positives": "SELECT * FROM unwanted",
    "duplicates": "SELECT * FROM twice",
    "fifo_violations": """
        SELECT run, publisher, client, count(*) AS received, coalesce(any_value(violations), 0) AS violations
        FROM firsts LEFT JOIN (SELECT run, publisher, client, count(*) AS violations FROM late GROUP BY ALL)
             USING (run, publisher, client)
        GROUP BY run, publisher, client""",
    "fifo_violations_per_second": """
        SELECT run, floor(time)::BIGINT AS second, count(*) AS violations FROM late GROUP BY ALL""",
    "late_per_second": """
        SELECT run, publisher, client, floor(time)::BIGINT AS second, count(*) AS late FROM late GROUP BY ALL""",
    "delay_percentiles": _percentiles("publisher, client,"),
    "delay_percentiles_per_client": _percentiles("client,"),
    "delay_percentiles_per_run": _percentiles(""),
    "delay_histogram": f"""
        SELECT run, since, floor(delay / {BIN}) * {BIN} AS low, count(*) AS deliveries FROM delays GROUP BY ALL""",
    "rates": """
        SELECT run, second, count(*) FILTER (what = 'p'), count(*) FILTER (what = 'd'), count(*) FILTER (what = 'm')
        FROM (SELECT run, floor(time)::BIGINT AS second, 'p' AS what FROM published
              UNION ALL SELECT run, floor(time)::BIGINT, 'd' FROM delivered
              UNION ALL SELECT run, floor(published_at)::BIGINT, 'm' FROM missing)
        GROUP BY run, second""",
    "published_per_second": _per_second("published", "publisher", "published"),
    "delivered_per_second": _per_second("got", "client", "delivered"),
    "missed_per_second": _per_second("missing", "client", "missed", "published_at"),
    "withheld": """
        SELECT run, publisher, limiting_receiver, count(*) AS withheld FROM message_withheld GROUP BY ALL""",
    "withheld_per_second": _per_second("message_withheld", "publisher", "withheld"),
    "flow_limits": "SELECT run, node, flow, limiting_receiver, time, quota FROM flow_limited",
    "thinned_by_link": """
        SELECT run, publisher, origin, neighbour, destination, sum(messages)::BIGINT, sum(size_bytes)::BIGINT,
               min(time), max(time)
        FROM thinned GROUP BY run, publisher, origin, neighbour, destination""",
    "readers_thinned": """
        SELECT run, node, client, sum(messages)::BIGINT, min(time), max(time)
        FROM reader_thinned GROUP BY run, node, client""",
    "order": """
        SELECT run, publisher, node, sum(delivered)::BIGINT, sum(late)::BIGINT, sum(latched)::BIGINT, fsum(assigned),
               fsum(held)
        FROM ordered GROUP BY run, publisher, node""",
    "recovery": f"""
        SELECT run, publisher, client, count(*) FILTER (event = 'detected'), count(*) FILTER (event = 'requests'),
               count(*) FILTER (event = 'recovered'), count(*) FILTER (event = 'gave_up'), favg(took)
        FROM ({_EVENTS}) GROUP BY run, publisher, client""",
    "repairs": """
        SELECT run, publisher, client, count(hit), count(*) FILTER (hit), count(*) - count(hit)
        FROM (SELECT run, publisher, node AS client, hit FROM request_received
              UNION ALL SELECT run, publisher, node, NULL FROM repair_sent)
        GROUP BY run, publisher, client""",
    "retrieved": """
        SELECT run, node, count(DISTINCT (subscription, lifetime)),
               count(publisher), count(publisher) - count(DISTINCT (subscription, publisher, incarnation, "count"))
                                                    FILTER (publisher IS NOT NULL)
        FROM (SELECT run, node, subscription, lifetime, publisher, incarnation, "count" FROM item_retrieved
              UNION ALL SELECT run, node, subscription, lifetime, NULL, NULL, NULL FROM lifetime_began)
        GROUP BY run, node""",
    "lives": """
        SELECT run, node, role, incarnation, time, CASE WHEN ended THEN next END, CASE WHEN ended THEN why END
        FROM (SELECT *, lead(kind) OVER life = 'stop' AS ended, lead(time) OVER life AS next,
                     lead(cause) OVER life AS why
              FROM (SELECT run, node, role, incarnation, time, 'start' AS kind, NULL AS cause FROM node_started
                    UNION ALL SELECT run, node, NULL, NULL, time, 'stop', cause FROM node_stopped)
              WINDOW life AS (PARTITION BY run, node ORDER BY time, kind DESC))
        WHERE kind = 'start'""",
    "neighbours": """
        SELECT run, node, neighbour, count(*) FILTER (up), count(*) FILTER (NOT up) FROM neighbour_changed
        GROUP BY run, node, neighbour""",
    "counts": """
        SELECT run, node, name, peer, count(*), sum(value)::BIGINT, max(value) FROM counted
        GROUP BY run, node, name, peer""",
    "drops": """
        SELECT run, node, peer, place, cause, kind, publisher, count(*), sum(destinations)::BIGINT FROM dropped
        GROUP BY run, node, peer, place, cause, kind, publisher""",
    "link_use": """
        SELECT run, node, peer, ceil(time)::BIGINT - 1, coalesce(sum(value) FILTER (name = 'link packets'), 0)::BIGINT,
               coalesce(sum(value) FILTER (name = 'link bytes'), 0)::BIGINT
        FROM counted WHERE name IN ('link packets', 'link bytes') GROUP BY ALL""",
    "queue_lengths": "SELECT run, node, peer, time, value FROM counted WHERE name = 'queue packets'",
    "fairness": """
        SELECT run, count(*), sum(received)::DOUBLE ^ 2 / (count(*) * sum(received::DOUBLE ^ 2))
        FROM (SELECT run, publisher, client, count(*) AS received FROM firsts GROUP BY ALL) GROUP BY run""",
    "difference_scales": """
        SELECT run, publisher, client, count(step), favg(abs(step)) * 2 / 3 FROM series
        GROUP BY run, publisher, client HAVING count(step) > 0""",
    "streams": _STREAMS,
    "checks": f"""
        SELECT run, "check", CASE WHEN "check" IN ({_WARNINGS}) THEN 'warn' ELSE 'fail' END, sum(found)::BIGINT,
               min(example)
        FROM ({" UNION ALL ".join(_FINDINGS)}) GROUP BY run, "check" """,
}

# What of a pair's models has a closed form: everything but the fits by iteration.
PAIR_MODELS = """
    SELECT run, publisher, client, count(*) AS samples, min(delay) AS constant, favg(delay) AS mean,
           favg(abs(step)) * 2 / 3 AS difference_scale,
           favg((delay - middle) ^ 3) / favg((delay - middle) ^ 2) ^ 1.5 AS skewness,
           CASE WHEN min(delay) > 0 THEN 1 / favg(ln(CASE WHEN least > 0 THEN delay / least END)) END AS pareto_exponent
    FROM (SELECT *, favg(delay) OVER pair AS middle, min(delay) OVER pair AS least FROM series
          WINDOW pair AS (PARTITION BY run, publisher, client))
    GROUP BY run, publisher, client HAVING count(*) >= 1000 AND min(delay) < max(delay)"""


class Oracle:
    """The traces of some runs in a database."""

    def __init__(self, runs: Mapping[str, tuple[Path, float]], texts: Iterable[str]) -> None:
        """`runs` names the folder and the grace of each; `texts` are all WHERE texts in them."""
        self._base = duckdb.connect(config={"threads": 2})
        self._base.execute("CREATE TABLE runs (run VARCHAR, grace DOUBLE)")
        self._base.executemany("INSERT INTO runs VALUES (?, ?)", [(run, grace) for run, (_, grace) in runs.items()])
        for kind in record_kinds():
            name = kind_name(kind)
            fields = ", ".join(f'"{column}" {_TYPES[type_]}' for column, type_ in columns(kind).items())
            self._base.execute(f"CREATE TABLE {name} (run VARCHAR, {fields})")
            for run, (folder, _) in runs.items():
                files = [str(path) for path in sorted(folder.glob(f"trace/{name}/*.parquet"))]
                if files:
                    self._base.execute(f"INSERT INTO {name} SELECT ?, * FROM read_parquet(?)", [run, files])
        self._base.execute(_PREPARED)
        self._match(texts)
        self._base.execute(_PREPARED_AFTER_MATCHING)

    def rows(self, query: str) -> Rows:
        """What the query finds."""
        return self._base.execute(query).fetchall()

    def close(self) -> None:
        self._base.close()

    def _match(self, texts: Iterable[str]) -> None:
        for table, source, time in (("matched", "published", "time"), ("wanted", "asked", "requested_at")):
            self._base.execute(
                f"CREATE OR REPLACE TABLE messages AS SELECT *, {time} AS moment,"
                " (attributes ->> '$.k')::BIGINT AS k, (attributes ->> '$.f')::DOUBLE AS f,"
                f" attributes ->> '$.s' AS s, (attributes ->> '$.b')::BOOLEAN AS b FROM {source}"
            )
            self._base.execute(
                f"CREATE TABLE {table} (text VARCHAR, run VARCHAR, publisher VARCHAR, incarnation BIGINT,"
                ' "count" BIGINT, time DOUBLE)'
            )
            for text in texts:
                self._base.execute(
                    f'INSERT INTO {table} SELECT ?, run, publisher, incarnation, "count", moment FROM messages'
                    f" WHERE {text}",
                    [text],
                )

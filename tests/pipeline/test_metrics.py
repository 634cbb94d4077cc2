"""Literal rows in, literal rows out, one metric after the other; then all of them beside the simulator's tallies."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.cli.sim import percentile
from penstock.kernel.trace import Counted, Delivered, Dropped, Published, Record
from penstock.pipeline import metrics
from penstock.pipeline.metrics import delay, fairness, losses, order, per_second
from penstock.pipeline.read import read_runs
from penstock.pipeline.schema import checked, table_ddl
from penstock.sim.run import RunResult

Rows = list[tuple[Any, ...]]


def table(spark: SparkSession, kind: type[Record], rows: Rows) -> DataFrame:
    return spark.createDataFrame(rows, table_ddl(kind)).repartition(3)


def delivered(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows of run, time, client, publisher, count; subscription 0 and incarnation 1 unless they follow."""
    full = [(r[0], r[1], r[2], r[5] if len(r) > 5 else 0, r[3], r[6] if len(r) > 6 else 1, r[4]) for r in rows]
    return table(spark, Delivered, full)


def published(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows of run, time, publisher, count; incarnation 1 unless it follows."""
    full = [(r[0], r[1], r[2], r[2], r[4] if len(r) > 4 else 1, r[3], "{}", 0, 0.0) for r in rows]
    return table(spark, Published, full)


def found(result: DataFrame, ddl: str) -> Rows:
    """The rows in order, once the schema has been checked."""
    return sorted(tuple(row) for row in checked(result, ddl, "result").collect())


# Order.


def test_fifo_violations_count_messages_that_were_overtaken(spark: SparkSession) -> None:
    rows = [
        ("a", 1.0, "s", "p", 1),
        ("a", 2.0, "s", "p", 4),  # overtakes 2 and 3
        ("a", 3.0, "s", "p", 2),
        ("a", 4.0, "s", "p", 3),
        ("a", 5.0, "s", "p", 5),
        ("a", 3.5, "s", "q", 9),  # another publisher
        ("a", 3.6, "t", "p", 1),  # another client
        ("b", 9.0, "s", "p", 1),  # another run
    ]
    result = metrics.fifo_violations(delivered(spark, rows))
    assert found(result, order.VIOLATIONS) == [
        ("a", "p", "s", 5, 2),
        ("a", "p", "t", 1, 0),
        ("a", "q", "s", 1, 0),
        ("b", "p", "s", 1, 0),
    ]


@pytest.mark.parametrize(
    ("rows", "received", "violations"),
    [
        ([(1.0, 2, 0, 1), (1.0, 1, 0, 1)], 2, 0),
        ([(1.0, 1, 0, 2), (2.0, 9, 0, 1)], 2, 1),
        ([(1.0, 9, 0, 1), (2.0, 1, 0, 2)], 2, 0),
        ([(1.0, 2, 0, 1), (2.0, 1, 0, 1), (2.0, 1, 1, 1)], 2, 1),
        ([(1.0, 1, 0, 1), (2.0, 1, 0, 1), (3.0, 2, 0, 1)], 2, 0),
        ([(1.0, 1, 0, 1), (2.0, 2, 0, 1), (3.0, 1, 0, 1)], 2, 0),
    ],
    ids=[
        "at one moment all is in order",
        "an old life after a new one",
        "a new life after an old one",
        "for two subscriptions counts once",
        "twice in a row is no violation",
        "again after a later one is a duplicate and no violation",
    ],
)
def test_fifo_violations_at_the_edges(rows: Rows, received: int, violations: int, spark: SparkSession) -> None:
    """Rows of time, count, subscription, incarnation."""
    full = [("a", time, "s", "p", count, subscription, life) for time, count, subscription, life in rows]
    result = metrics.fifo_violations(delivered(spark, full))
    assert found(result, order.VIOLATIONS) == [("a", "p", "s", received, violations)]


def test_fifo_violations_per_second(spark: SparkSession) -> None:
    rows = [
        ("a", 0.5, "s", "p", 3),
        ("a", 0.9, "s", "p", 1),
        ("a", 1.0, "s", "p", 2),
        ("a", 1.0, "t", "q", 2),
        ("a", 1.5, "t", "q", 1),
        ("a", 2.5, "t", "q", 3),
    ]
    result = metrics.fifo_violations_per_second(delivered(spark, rows))
    assert found(result, order.VIOLATIONS_PER_SECOND) == [("a", 0, 1), ("a", 1, 2)]
    pairs = [("a", "p", "s", 0, 1), ("a", "p", "s", 1, 1), ("a", "q", "t", 1, 1)]
    assert found(metrics.late_per_second(delivered(spark, rows)), order.LATE_PER_SECOND) == pairs


# Delay.

SENT: Rows = [("a", 1.0, "p", 1), ("a", 2.0, "p", 2), ("a", 2.0, "p", 1, 2), ("a", 2.5, "q", 1), ("b", 0.0, "p", 1)]
GOT: Rows = [
    ("a", 1.25, "s", "p", 1),
    ("a", 2.5, "s", "p", 2),
    ("a", 3.0, "s", "p", 1, 0, 2),
    ("a", 3.0, "t", "q", 1),
    ("b", 2.0, "s", "p", 1),
    ("a", 9.0, "s", "p", 77),  # never published
]


def test_delays(spark: SparkSession) -> None:
    assert found(metrics.delays(delivered(spark, GOT), published(spark, SENT)), delay.DELAYS) == [
        ("a", "p", "s", 0, 1, 1, 1.0, 1.25, 0.25, 0.0, 0.25),
        ("a", "p", "s", 0, 1, 2, 2.0, 2.5, 0.5, 0.0, 0.5),
        ("a", "p", "s", 0, 2, 1, 2.0, 3.0, 1.0, 0.0, 1.0),
        ("a", "q", "t", 0, 1, 1, 2.5, 3.0, 0.5, 0.0, 0.5),
        ("b", "p", "s", 0, 1, 1, 0.0, 2.0, 2.0, 0.0, 2.0),
    ]


@pytest.mark.parametrize("far", [0, 10**9], ids=["near counts", "far counts"])
def test_the_earliest_publication_of_an_identity_counts(far: int) -> None:
    """Whatever the order of the rows: files are read in the order of their names, tables as Spark likes."""
    sent = [(1.0, 1, 0.5), (1.0, 1, 0.25), (3.0, 1, 0.0), (2.0, 1, 0.0), (4.0, 1 + far, 0.0)]
    who = {"run": ["a"], "publisher": ["p"], "incarnation": [1]}
    got = pa.table({**who, "node": ["s"], "count": [1], "time": [5.0]})
    for rows in permutations(sent):
        times, counts, waited = map(list, zip(*rows, strict=True))
        many = {name: value * len(sent) for name, value in who.items()}
        tables = {"delivered": got, "published": pa.table({**many, "time": times, "count": counts, "waited": waited})}
        (row,) = delay.MATCHED.work(tables).to_pylist()
        assert (row["published_at"], row["delay"], row["delay_from_publish"]) == (1.0, 4.0, 4.25)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            ("publisher", "client"),
            [
                ("a", "p", "s", 3, 1.75 / 3, 0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0),
                ("a", "q", "t", 1, *[0.5] * 8),
                ("b", "p", "s", 1, *[2.0] * 8),
            ],
        ),
        (("client",), [("a", "s", 3), ("a", "t", 1), ("b", "s", 1)]),
        (("publisher",), [("a", "p", 3), ("a", "q", 1), ("b", "p", 1)]),
        ((), [("a", 4, 2.25 / 4, 0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0), ("b", 1, *[2.0] * 8)]),
    ],
    ids=["pairs", "clients", "publishers", "runs"],
)
def test_delay_percentiles(by: tuple[str, ...], expected: Rows, spark: SparkSession) -> None:
    result = metrics.delay_percentiles(delivered(spark, GOT), published(spark, SENT), by)
    rows = found(result, delay.percentiles_ddl(by))
    keys = 1 + len(by)
    for since in ("publish", "sent"):  # nothing waited, so both are the same
        own = [row[:keys] + row[keys + 1 :] for row in rows if row[keys] == since]
        assert [row[: len(want)] for row, want in zip(own, expected, strict=True)] == expected


def test_delays_since_publish_count_what_a_message_waited(spark: SparkSession) -> None:
    sent = published(spark, SENT).withColumn("waited", F.when(F.col("count") == 2, 0.75).otherwise(0.0))
    got = delivered(spark, GOT)
    rows = metrics.delay_percentiles(got, sent).select("run", "client", "since", "mean", "maximum").collect()
    means = sorted(tuple(row) for row in rows)
    assert means == [
        ("a", "s", "publish", 2.5 / 3, 1.25),
        ("a", "s", "sent", 1.75 / 3, 1.0),
        ("a", "t", "publish", 0.5, 0.5),
        ("a", "t", "sent", 0.5, 0.5),
        ("b", "s", "publish", 2.0, 2.0),
        ("b", "s", "sent", 2.0, 2.0),
    ]
    assert found(metrics.delay_histogram(got, sent, 1.0), delay.histogram_ddl()) == [
        ("a", "publish", 0.0, 2),
        ("a", "publish", 1.0, 2),
        ("a", "sent", 0.0, 3),
        ("a", "sent", 1.0, 1),
        ("b", "publish", 2.0, 1),
        ("b", "sent", 2.0, 1),
    ]


def test_delay_histogram(spark: SparkSession) -> None:
    got, sent = delivered(spark, GOT), published(spark, SENT)
    counted = [("a", 0.0, 1), ("a", 0.5, 2), ("a", 1.0, 1), ("b", 2.0, 1)]
    assert found(metrics.delay_histogram(got, sent, 0.5), delay.histogram_ddl()) == sorted(
        (run, since, low, many) for run, low, many in counted for since in ("publish", "sent")
    )
    pairs = found(metrics.delay_histogram(got, sent, 10.0, ("publisher", "client")), delay.histogram_ddl(delay.PAIR))
    assert pairs[::2] == [
        ("a", "p", "s", "publish", 0.0, 3),
        ("a", "q", "t", "publish", 0.0, 1),
        ("b", "p", "s", "publish", 0.0, 1),
    ]


def test_without_deliveries_or_publications_there_are_no_delays(spark: SparkSession) -> None:
    for got, sent in ((GOT, []), ([], SENT)):
        tables = delivered(spark, got), published(spark, sent)
        assert metrics.delay_percentiles(*tables).collect() == []
        assert metrics.delay_histogram(*tables, 0.1).collect() == []
    assert metrics.fifo_violations(delivered(spark, [])).collect() == []
    assert metrics.fifo_violations_per_second(delivered(spark, GOT[:2])).collect() == []
    assert metrics.late_per_second(delivered(spark, GOT[:2])).collect() == []


# Losses.

TRUTH: Rows = [
    ("a", "p", 1, 1, "s", 0, 0.5, True),
    ("a", "p", 1, 2, "s", 0, 1.5, True),
    ("a", "p", 1, 2, "s", 1, 1.5, True),
    ("a", "p", 1, 3, "s", 0, 2.5, False),  # inside the grace period
    ("a", "p", 1, 4, "s", 0, 2.6, False),
    ("a", "q", 1, 1, "t", 0, 0.5, True),
]
CAME: Rows = [
    ("a", 1.0, "s", "p", 1),
    ("a", 2.0, "s", "p", 2, 1),
    ("a", 3.0, "s", "p", 4),
    ("a", 4.0, "s", "p", 9),  # nobody asked for it
    ("b", 1.0, "t", "q", 1),  # nor for this one, in another run
]


def test_false_negatives_and_false_positives(spark: SparkSession) -> None:
    truth, came = spark.createDataFrame(TRUTH, losses.TRUTH), delivered(spark, CAME)
    assert found(metrics.false_negatives(truth, came), losses.FALSE_NEGATIVES) == [
        ("a", "p", 1, 2, "s", 0, 1.5),
        ("a", "q", 1, 1, "t", 0, 0.5),
    ]
    assert found(metrics.false_positives(truth, came), losses.FALSE_POSITIVES) == [
        ("a", "p", 1, 9, "s", 0, 4.0),
        ("b", "q", 1, 1, "t", 0, 1.0),
    ]
    assert found(metrics.missed(truth, came), losses.MISSED) == [("a", "p", "s", 3, 1), ("a", "q", "t", 1, 1)]
    nothing = spark.createDataFrame([], losses.TRUTH)
    assert metrics.false_negatives(nothing, came).collect() == []
    assert metrics.false_positives(nothing, came).count() == 5
    assert metrics.false_negatives(truth, delivered(spark, [])).count() == 4


def test_duplicates(spark: SparkSession) -> None:
    rows = [
        ("a", 1.0, "s", "p", 1),
        ("a", 1.0, "s", "p", 1),
        ("a", 5.0, "s", "p", 1),
        ("a", 1.0, "s", "p", 1, 1),  # another subscription
        ("a", 1.0, "s", "p", 1, 0, 2),  # another life of the publisher
        ("a", 1.0, "t", "p", 1),
    ]
    assert found(metrics.duplicates(delivered(spark, rows)), losses.DUPLICATES) == [("a", "p", "s", 2)]


def test_drops_by_place_and_cause(spark: SparkSession) -> None:
    rows = [
        ("a", 1.0, "n", "egress", "queue full", "m", 4, "Publication", "p", 1, 1, 3),
        ("a", 2.0, "n", "egress", "queue full", "m", 4, "Publication", "p", 1, 2, 2),
        ("a", 2.0, "n", "egress", "queue full", "m", 4, "Publication", "~p", 1, 1, 1),
        ("a", 3.0, "n", "pipe", "loss", "m", 0, "Hello", "", 0, 0, 1),
    ]
    assert found(metrics.drops(table(spark, Dropped, rows)), losses.DROPS) == [
        ("a", "n", "m", "egress", "queue full", "Publication", "p", 2, 5),
        ("a", "n", "m", "egress", "queue full", "Publication", "~p", 1, 1),
        ("a", "n", "m", "pipe", "loss", "Hello", "", 1, 1),
    ]


# Rates.


def test_rates_per_second(spark: SparkSession) -> None:
    sent = published(spark, [("a", 0.0, "p", 1), ("a", 0.999, "p", 2), ("a", 1.0, "p", 3), ("a", 1.0, "q", 1)])
    got = delivered(spark, [("a", 1.0, "s", "p", 1), ("a", 1.5, "t", "p", 1), ("a", 1.9, "s", "q", 1)])
    lost = spark.createDataFrame(
        [("a", "p", 1, 2, "s", 0, 0.999), ("a", "p", 1, 9, "s", 0, 7.0)], losses.FALSE_NEGATIVES
    )
    ddl = per_second.per_second_ddl
    assert found(metrics.published_per_second(sent), ddl(("publisher",), "published")) == [
        ("a", "p", 0, 2),
        ("a", "p", 1, 1),
        ("a", "q", 1, 1),
    ]
    assert found(metrics.delivered_per_second(got), ddl(("client",), "delivered")) == [
        ("a", "s", 1, 2),
        ("a", "t", 1, 1),
    ]
    assert found(metrics.delivered_per_second(got, delay.PAIR), ddl(delay.PAIR, "delivered")) == [
        ("a", "p", "s", 1, 1),
        ("a", "p", "t", 1, 1),
        ("a", "q", "s", 1, 1),
    ]
    assert found(metrics.missed_per_second(lost), ddl(("client",), "missed")) == [("a", "s", 0, 1), ("a", "s", 7, 1)]
    assert found(metrics.rates(sent, got, lost), per_second.RATES) == [
        ("a", 0, 2, 0, 1),
        ("a", 1, 2, 3, 0),
        ("a", 7, 0, 0, 1),
    ]


def test_links_and_queues(spark: SparkSession) -> None:
    rows = [
        ("a", 1.0, "n", "link packets", "m", 10),
        ("a", 1.0, "n", "link bytes", "m", 1000),
        ("a", 2.0, "n", "link packets", "m", 5),
        ("a", 2.0, "n", "link bytes", "m", 400),
        ("a", 2.0, "m", "link packets", "n", 1),
        ("a", 2.0, "n", "queue packets", "m", 7),
        ("a", 2.0, "n", "something else", "m", 8),
    ]
    counted = table(spark, Counted, rows)
    assert found(metrics.link_use(counted), per_second.LINK_USE) == [
        ("a", "m", "n", 1, 1, 0),
        ("a", "n", "m", 0, 10, 1000),
        ("a", "n", "m", 1, 5, 400),
    ]
    assert found(metrics.queue_lengths(counted), per_second.QUEUE_LENGTHS) == [("a", "n", "m", 2.0, 7)]


def test_jain_s_index(spark: SparkSession) -> None:
    shares = [
        ("all alike", 5),
        ("all alike", 5),
        ("one", 9),
        ("one", 0),
        ("one", 0),
        ("one", 0),
        ("none", 0),
        ("none", 0),
    ]
    result = metrics.jain_index(spark.createDataFrame(shares, "run string, received bigint"), "received")
    assert found(result, fairness.JAIN_INDEX) == [("all alike", 2, 1.0), ("none", 2, 1.0), ("one", 4, 0.25)]


# All together.


def test_many_random_deliveries_against_plain_python(spark: SparkSession) -> None:
    draw = random.Random(5)
    rows = [
        (
            f"r{draw.randrange(2)}",
            draw.randrange(200) / 8,
            f"s{draw.randrange(3)}",
            f"p{draw.randrange(3)}",
            draw.randrange(60),
        )
        for _ in range(2000)
    ]
    seen: defaultdict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    for run, time, client, publisher, count in rows:
        seen[run, publisher, client].append((time, count))
    expected = []
    for pair, receptions in sorted(seen.items()):
        receptions.sort()
        messages = list(dict.fromkeys(m for _, m in receptions))  # each where it comes for the first time
        late = [m for place, m in enumerate(messages) if any(other > m for other in messages[:place])]
        expected.append((*pair, len(messages), len(late)))
    assert found(metrics.fifo_violations(delivered(spark, rows)), order.VIOLATIONS) == expected


def test_the_numbers_of_the_town_are_those_of_the_simulator(spark: SparkSession, town: tuple[Path, RunResult]) -> None:
    folder, result = town
    tables = read_runs(spark, [folder])
    for client, tally in result.clients.items():
        sent = [table.where(f"publisher = '{client}'").count() for table in (tables.published, tables.stream_requested)]
        assert sum(sent) == tally.published - tally.refused
    streamed = Counter(
        row["node"] for table in (tables.stream_delivered, tables.item_retrieved) for row in table.collect()
    )
    came = Counter(row["node"] for row in tables.delivered.collect())
    assert came + streamed == Counter({name: tally.delivered for name, tally in result.clients.items()})
    # The tallies of those who read a stream, or retrieve items, hold these too.
    rows = metrics.delay_percentiles(
        tables.delivered.where(~tables.delivered.node.isin([*streamed])), tables.published, ("client",)
    ).collect()
    tallies = {name: tally for name, tally in result.clients.items() if tally.delivered and name not in streamed}
    assert {row["client"]: row["deliveries"] for row in rows} == {n: t.delivered for n, t in tallies.items()}
    for row in (row for row in rows if row["since"] == "publish"):
        delays = tallies[row["client"]].delays
        assert (row["p50"], row["p99"]) == (percentile(delays, 0.5), percentile(delays, 0.99))
        assert (row["minimum"], row["maximum"]) == (min(delays), max(delays))
    per_client = {
        (row["client"], row["second"]): row["delivered"]
        for row in metrics.delivered_per_second(tables.delivered).collect()
        if row["client"] not in streamed
    }
    assert per_client == {(name, second): n for name, t in tallies.items() for second, n in t.per_second.items()}
    drops: Counter[tuple[str, str, str, str]] = Counter()
    for row in metrics.drops(tables.dropped).collect():
        drops[row["node"], row["peer"], row["place"], row["cause"]] += row["packets"]
    assert dict(drops) == result.drops
    use: Counter[tuple[str, str]] = Counter()
    for row in metrics.link_use(tables.counted).collect():
        use[row["node"], row["peer"]] += row["bytes"]
    assert use == Counter({link: carried for link, carried in result.links.items() if carried})

"""How fast is the pipeline, and beside what? Run: `python bench/pipeline.py [--quick] [--json FILE]`.

The data: a trace as the simulator writes it (Parquet, 50,000 rows a file, in order of time), with 10 million
deliveries of 20 publishers' messages to 100 clients. A delay is 100 ms and three exponential service times, at a rate
at which a few percent of the messages are overtaken.

The questions, each from the files to a small answer in Python:

    order    how many messages each client received from each publisher, and how many of them too late
    delays   the median and the 99th percentile of the delay of each publisher-client pair (nearest rank)
    rates    how many messages each client received in each second

The contenders: `spark` is Penstock's own pipeline (`penstock.pipeline.steps`), DuckDB and polars are asked in their
own languages. Each lives in a process of its own with two threads, and they take turns at each question, so a noisy
neighbour hits all of them; the median counts. Every answer is compared with DuckDB's; a difference ends the run.
Start-up is measured apart, and so is the first time a question is asked (Spark compiles then).

Memory is the largest sum of resident pages of a contender's process and all its children (the Java machine and Python
workers of Spark; pages that forked workers share count for each), looked at every 20 ms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from penstock.kernel.trace import Delivered, Published
from penstock.kernel.trace_files import ROWS_MAX, arrow_schema, kind_name

PUBLISHERS, CLIENTS, CLIENTS_PER_MESSAGE = 20, 100, 10
RATE_MESSAGES_PER_S = 200.0  # of each publisher; with the delays below, some percent of the messages are overtaken
LINK_DELAY, SERVICE_MEAN, BROKERS = 0.1, 0.001, 3
THREADS = 2
QUESTIONS = ("order", "delays", "rates")

Answer = dict[str, np.ndarray]  # columns, with the rows in the order of the keys
Ask = Callable[[str], Answer]


# The data ---------------------------------------------------------------------------------------------------------


def write_trace(folder: Path, deliveries: int) -> None:
    """A run folder with as many deliveries, drawn with numpy."""
    rng = np.random.default_rng(1)
    messages = deliveries // (PUBLISHERS * CLIENTS_PER_MESSAGE)
    sent = np.cumsum(rng.exponential(1.0 / RATE_MESSAGES_PER_S, (PUBLISHERS, messages)), axis=1).ravel()
    publisher = np.repeat(np.arange(PUBLISHERS), messages)
    count = np.tile(np.arange(1, messages + 1), PUBLISHERS)
    place = np.argsort(sent, kind="stable")
    names = [f"publisher-{number:02}" for number in range(PUBLISHERS)]
    write_parts(
        folder,
        Published,
        {
            "time": sent[place],
            "node": named(names, publisher[place]),
            "publisher": named(names, publisher[place]),
            "incarnation": np.ones(len(place), dtype=np.int64),
            "count": count[place],
            "attributes": pa.array(["{}"] * len(place)),
            "body_bytes": np.full(len(place), 300),
            "waited": np.zeros(len(place)),
        },
    )
    message = np.repeat(np.arange(len(sent)), CLIENTS_PER_MESSAGE)
    start = rng.integers(0, CLIENTS, len(sent))
    client = (np.repeat(start, CLIENTS_PER_MESSAGE) + np.tile(np.arange(CLIENTS_PER_MESSAGE), len(sent))) % CLIENTS
    arrived = sent[message] + LINK_DELAY + rng.gamma(BROKERS, SERVICE_MEAN, len(message))
    place = np.argsort(arrived, kind="stable")
    write_parts(
        folder,
        Delivered,
        {
            "time": arrived[place],
            "node": named([f"client-{number:03}" for number in range(CLIENTS)], client[place]),
            "subscription": np.zeros(len(place), dtype=np.int64),
            "publisher": named(names, publisher[message[place]]),
            "incarnation": np.ones(len(place), dtype=np.int64),
            "count": count[message[place]],
        },
    )
    head = {"name": "bench", "seed": 1, "complete": True, "scenario": {}}
    (folder / "run.json").write_text(json.dumps(head))


def named(names: Sequence[str], numbers: np.ndarray) -> pa.Array:
    return pa.array(names).take(pa.array(numbers))


def write_parts(folder: Path, kind: Any, columns: dict[str, Any]) -> None:
    table = pa.table({name: pa.array(values) for name, values in columns.items()}).cast(arrow_schema(kind))
    target = folder / "trace" / kind_name(kind)
    target.mkdir(parents=True)
    for number, begin in enumerate(range(0, table.num_rows, ROWS_MAX)):
        part = table.slice(begin, ROWS_MAX)
        parquet.write_table(part, target / f"part-{number:05}.parquet", compression="zstd", write_page_checksum=True)


# Contenders -------------------------------------------------------------------------------------------------------


def sorted_answer(table: pa.Table, keys: Sequence[str]) -> Answer:
    ordered = table.sort_by([(name, "ascending") for name in keys])
    return {name: ordered[name].to_numpy() for name in sorted(ordered.column_names)}


def duckdb_asks(folder: Path) -> dict[str, Callable[[], Answer]]:
    import duckdb

    base = duckdb.connect(config={"threads": THREADS})
    delivered = f"read_parquet('{folder}/trace/delivered/*.parquet')"
    published = f"read_parquet('{folder}/trace/published/*.parquet')"

    def ask(query: str, *keys: str) -> Answer:
        return sorted_answer(base.sql(query).to_arrow_table(), keys)

    return {
        "order": lambda: ask(
            f"""SELECT publisher, node AS client, count(*) AS received,
                       coalesce(sum((number < latest)::INT), 0)::BIGINT AS violations
                FROM (SELECT publisher, node, "count" AS number, max("count") OVER (
                          PARTITION BY publisher, node ORDER BY time, "count"
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest FROM {delivered})
                GROUP BY ALL""",
            "publisher",
            "client",
        ),
        "delays": lambda: ask(
            f"""SELECT d.publisher, d.node AS client, quantile_disc(d.time - p.time, 0.5) AS p50,
                       quantile_disc(d.time - p.time, 0.99) AS p99
                FROM {delivered} d JOIN {published} p USING (publisher, incarnation, "count")
                GROUP BY ALL""",
            "publisher",
            "client",
        ),
        "rates": lambda: ask(
            f"""SELECT node AS client, floor(time)::BIGINT AS second, count(*) AS delivered FROM {delivered}
                GROUP BY ALL""",
            "client",
            "second",
        ),
    }


def polars_asks(folder: Path) -> dict[str, Callable[[], Answer]]:
    import polars as pl

    delivered = pl.scan_parquet(f"{folder}/trace/delivered/*.parquet")
    published = pl.scan_parquet(f"{folder}/trace/published/*.parquet")

    def ask(frame: pl.LazyFrame, *keys: str) -> Answer:
        return sorted_answer(frame.collect(engine="streaming").to_arrow(), keys)

    pair = ("publisher", "client")
    renamed = delivered.rename({"node": "client"})
    latest = pl.col("count").cum_max().shift().over(pair)
    late = (pl.col("count") < latest).fill_null(False)
    joined = renamed.join(
        published.select("publisher", "incarnation", "count", sent="time"), on=["publisher", "incarnation", "count"]
    )
    delay = pl.col("time") - pl.col("sent")
    return {
        "order": lambda: ask(
            renamed.select(*pair, "time", "count")
            .sort("time", "count")
            .with_columns(late=late)
            .group_by(pair)
            .agg(received=pl.len().cast(pl.Int64), violations=pl.col("late").sum().cast(pl.Int64)),
            *pair,
        ),
        "delays": lambda: ask(
            joined.group_by(pair).agg(
                p50=delay.quantile(0.5, interpolation="equiprobable"),
                p99=delay.quantile(0.99, interpolation="equiprobable"),
            ),
            *pair,
        ),
        "rates": lambda: ask(
            renamed.group_by("client", second=pl.col("time").floor().cast(pl.Int64)).agg(
                delivered=pl.len().cast(pl.Int64)
            ),
            "client",
            "second",
        ),
    }


def spark_asks(folder: Path) -> dict[str, Callable[[], Answer]]:
    from penstock.pipeline.read import read_runs
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.steps import results_of

    spark = spark_session(f"local[{THREADS}]")
    tables = read_runs(spark, [folder])

    def ask(result: str, columns: Sequence[str], *keys: str) -> Answer:
        table = results_of(spark, tables, [result])[result]
        if "since" in table.column_names:
            table = table.filter(pc.equal(table["since"], "sent"))
        return sorted_answer(table.select(columns), keys)

    pair = ("publisher", "client")
    return {
        "order": lambda: ask("fifo_violations", [*pair, "received", "violations"], *pair),
        "delays": lambda: ask("delay_percentiles", [*pair, "p50", "p99"], *pair),
        "rates": lambda: ask("delivered_per_second", ["client", "second", "delivered"], "client", "second"),
    }


CONTENDERS: dict[str, Callable[[Path], dict[str, Callable[[], Answer]]]] = {
    "duckdb": duckdb_asks,
    "polars": polars_asks,
    "spark": spark_asks,
}


# Measuring --------------------------------------------------------------------------------------------------------


def serve(contender: str, pipe: Connection) -> None:
    """A contender's process: opens a folder, answers questions about it, until it is told to end."""
    asks: dict[str, Callable[[], Answer]] = {}
    while (order := pipe.recv()) is not None:
        verb, argument = order
        started = time.perf_counter()
        if verb == "open":
            asks, found = CONTENDERS[contender](argument), None
        else:
            found = asks[argument]()
        pipe.send((time.perf_counter() - started, found))


class Contender:
    """A contender in its own process, and the memory that it takes."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(name, theirs), daemon=False)
        self._process.start()
        self.name = name

    def do(self, verb: str, argument: object) -> tuple[float, int, Any]:
        """Seconds, peak bytes, and the answer."""
        with peak_of(self._process.pid or 0) as peak:
            self._pipe.send((verb, argument))
            while not self._pipe.poll(0.5):
                if not self._process.is_alive():
                    sys.exit(f"{self.name} died at {verb} {argument}")
            seconds, found = self._pipe.recv()
        return seconds, max(peak), found

    def end(self) -> None:
        self._pipe.send(None)
        self._process.join()


@contextmanager
def peak_of(process: int) -> Iterator[list[int]]:
    """Look at the memory of a process and its children until the block ends; the list holds what was seen."""
    seen, done = [resident_bytes(process)], threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            seen[0] = max(seen[0], resident_bytes(process))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def resident_bytes(process: int) -> int:
    """Of a process and all its descendants; 0 for what has just ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident_bytes, children))


def compare(name: str, question: str, found: Answer, expected: Answer) -> None:
    same = found.keys() == expected.keys() and all(
        len(found[column]) == len(values)
        and (
            np.allclose(found[column], values, rtol=1e-12, atol=1e-12)
            if values.dtype.kind == "f"
            else np.array_equal(found[column], values)
        )
        for column, values in expected.items()
    )
    if not same:
        sys.exit(f"{name} and duckdb differ in the question of {question}")


def measure(contenders: list[Contender], folder: Path, deliveries: int, repetitions: int) -> list[dict[str, Any]]:
    """Open the trace in all contenders, then let them take turns at each question."""
    opened = {contender.name: contender.do("open", folder)[0] for contender in contenders}
    results = []
    for question in QUESTIONS:
        seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        peaks: dict[str, int] = {contender.name: 0 for contender in contenders}
        expected: Answer | None = None
        for _ in range(repetitions + 1):  # the first time is kept apart
            for contender in contenders:
                took, peak, found = contender.do("ask", question)
                seconds[contender.name].append(took)
                peaks[contender.name] = max(peaks[contender.name], peak)
                expected = found if expected is None else expected
                compare(contender.name, question, found, expected)
        assert expected is not None
        for contender in contenders:
            first, *others = seconds[contender.name]
            results.append(
                {
                    "deliveries": deliveries,
                    "question": question,
                    "contender": contender.name,
                    "rows_of_answer": len(next(iter(expected.values()))),
                    "first_s": first,
                    "median_s": statistics.median(others),
                    "rows_per_s": deliveries / statistics.median(others),
                    "peak_bytes": peaks[contender.name],
                    "open_s": opened[contender.name],
                }
            )
        if question == "order":
            late = int(expected["violations"].sum())
            print(
                f"{late:,} of {deliveries:,} deliveries came too late ({100 * late / deliveries:.1f} %)",
                file=sys.stderr,
            )
    return results


# Reporting --------------------------------------------------------------------------------------------------------


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n### {title}\n\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def report(results: list[dict[str, Any]], sizes: Sequence[int]) -> None:
    by = {(one["deliveries"], one["question"], one["contender"]): one for one in results}
    for size in sizes:
        rows = []
        for question in QUESTIONS:
            for name in CONTENDERS:
                one, duckdb = by[size, question, name], by[size, question, "duckdb"]
                times = f"{one['median_s'] / duckdb['median_s']:.1f}"
                seconds = (f"{one['median_s']:.2f}", f"{one['first_s']:.2f}", f"{one['rows_per_s'] / 1e6:.2f}")
                rows.append([question, name, *seconds, times, f"{one['peak_bytes'] / 1e9:.2f}"])
        totals = {name: sum(by[size, question, name]["median_s"] for question in QUESTIONS) for name in CONTENDERS}
        rows += [
            [
                "all three",
                name,
                f"{total:.2f}",
                "",
                f"{3 * size / total / 1e6:.2f}",
                f"{total / totals['duckdb']:.1f}",
                "",
            ]
            for name, total in totals.items()
        ]
        header = ["question", "contender", "s", "first time, s", "million rows/s", "times DuckDB", "peak GB"]
        print_table(f"{size:,} deliveries, all answers equal", header, rows)
    if len(sizes) > 1:
        small, large = sizes[0], sizes[-1]
        header = ["question", *CONTENDERS]
        rows = [
            [question]
            + [f"{by[large, question, n]['median_s'] / by[small, question, n]['median_s']:.1f}" for n in CONTENDERS]
            for question in QUESTIONS
        ]
        print_table(f"Growth of the time from {small:,} to {large:,} deliveries", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200,000 and 1 million deliveries, one repetition")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    options = parser.parse_args()
    sizes = [200_000, 1_000_000] if options.quick else [1_000_000, 10_000_000]
    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    contenders = [Contender(name) for name in CONTENDERS]
    results: list[dict[str, Any]] = []
    try:
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                write_trace(Path(folder), size)
                results += measure(contenders, Path(folder), size, 1 if options.quick else 3)
    finally:
        for contender in contenders:
            contender.end()
    opened = {one["contender"]: f"{one['open_s']:.1f} s" for one in results if one["deliveries"] == sizes[0]}
    print(f"start-up (import, and for Spark the Java machine): {opened}")
    report(results, sizes)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

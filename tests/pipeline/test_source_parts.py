"""The data source without Spark's processes: options, columns, filters, and readers asked as Spark asks them."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import penstock
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, make_message
from penstock.errors import InvalidOption, PenstockError
from penstock.pipeline.source import connection, worker
from penstock.pipeline.source.columns import HEADERS, Columns, check_schema, default_schema
from penstock.pipeline.source.data_source import PenstockSource
from penstock.pipeline.source.offsets import DataLoss
from penstock.pipeline.source.options import BEST_EFFORT, SINK, SOURCE, sink_options, source_options
from penstock.pipeline.source.pushdown import joined, where_of
from penstock.pipeline.source.reading import FollowingReader, PushingReader, TickRange
from penstock.pipeline.source.writing import FollowingWriter, Task, check_written_schema, has_written, written
from penstock.streams.log_codec import VERSION, LogEntry, decode, encode, packed_ticks
from penstock.testing import BlockingEmbeddedNetwork, embedded_network_blocking

NEEDED = {"servers": "penstock://127.0.0.1:7420", "stream": "orders"}
KINDS: dict[str, DataType] = {
    "bigint": LongType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "double": DoubleType(),
    "float": FloatType(),
    "headers": HEADERS,
    "int": IntegerType(),
    "string": StringType(),
    "tinyint": ByteType(),
}


def parse_ddl(ddl: str) -> StructType:
    """Columns from words, as Spark would read them; it asks Java for that."""
    fields = []
    for words in ddl.split(", "):
        name, _, kind = words.removesuffix(" NOT NULL").rpartition(" ")
        fields.append(StructField(name, KINDS[kind], not words.endswith("NOT NULL")))
    return StructType(fields)


SYMBOLS = parse_ddl("symbol string, price double, n bigint, offset bigint, partition int")


# Options.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strem": "x"}, "strem: there is no such option; did you mean 'stream'?"),
        ({"maxoffsetspertriger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"xyz": "5"}, ", ".join(SOURCE)),
        ({"where": "price == 1"}, "where: == is no comparison; use =, at character 7 of: price == 1"),
        ({"failOnDataLoss": "maybe"}, "say true or false"),
        ({"maxOffsetsPerTrigger": "-5"}, "say a whole number above 0"),
        ({"minPartitions": "0"}, "say a whole number above 0"),
        ({"maxTriggerDelay": "soon"}, "such as 30s or 15m"),
        ({"startingOffsets": "begin"}, "say earliest, latest, or a tick for each pubend"),
        ({"startingOffsets": '{"orders": {"0": "x"}}'}, "say earliest, latest"),
        ({"startingOffsets": '{"trades": {"0": 5}}'}, "is about trades; the stream is 'orders'"),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": "5"}, "exclude each other"),
        ({"startingOffsetsByTimestamp": "noon"}, "say a time, such as 2026-03-01T12:00:00Z"),
        ({"onTypeMismatch": "drop"}, "say null or error"),
        ({"stream": ""}, 'stream: is missing; say .option("stream", "orders")'),
    ],
)
def test_a_wrong_option_is_said_in_one_line(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption) as told:
        source_options(NEEDED | given)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_tracebacks_are_hidden_for_errors_of_ours_in_processes_of_sparks(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = "SPARK_HIDE_TRACEBACK"
    monkeypatch.setenv(hidden, "")  # whatever is set below is taken back
    with pytest.raises(InvalidOption):
        PenstockSource({}).schema()
    assert not os.environ[hidden], "here a traceback is of use"
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(AttributeError):
        PenstockSource(NEEDED).reader(None)  # type: ignore[arg-type]  # a fault, and no error of ours
    assert not os.environ[hidden]
    with pytest.raises(InvalidOption):
        PenstockSource({}).schema()
    assert os.environ[hidden] == "1"


def test_options_are_read_in_any_case_and_have_kafkas_names() -> None:
    given = {"STARTINGOFFSETS": '{"orders": {"0": 7, "1": -2}}', "maxTriggerDelay": "2m", "maxoffsetspertrigger": "9"}
    options = source_options(NEEDED | given)
    assert options.starting is not None
    assert options.starting.ticks == {0: 7, 1: -2}
    assert (options.trigger_delay, options.offsets_max, options.fail_on_data_loss) == (120.0, 9, True)
    by_time = source_options(NEEDED | {"startingOffsetsByTimestamp": "2026-03-01T12:00:00Z"}).starting
    assert by_time is not None
    assert by_time.ticks == {-1: 1_772_366_400_000_000}
    by_time = source_options(NEEDED | {"startingOffsetsByTimestamp": '{"0": 1700000000000}'}).starting
    assert by_time is not None
    assert by_time.ticks == {0: 1_700_000_000_000_000}


def test_the_page_names_every_option_and_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text().partition("\n## Streams as tables\n")[2]
    for name in {*SOURCE, *SINK, *BEST_EFFORT} - {"subscribe"}:
        assert f"`{name}`" in page
    columns = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", page.partition("| option")[0], flags=re.MULTILINE))
    assert columns == {field.name: field.dataType.simpleString() for field in default_schema(True)}


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("price date", "column 'price': is date; attributes are boolean"),
        ("offset string", "column 'offset': is string; it is bigint of each message"),
        ("price double NOT NULL", "any message may be without it"),
        ("headers headers", "includeHeaders"),
    ],
)
def test_a_column_that_no_message_has_is_refused(ddl: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        check_schema(parse_ddl(ddl), False)


# Columns.


def a_slice(*messages: dict[str, Any], key: str = "") -> tuple[bytes, bytes]:
    """As the log has it, at ticks 1, 2, ..."""
    entries = [
        encode(LogEntry(VERSION, f"id{n}", make_message(Identity("p", 1, n), attributes, b"body%d" % n), key))
        for n, attributes in enumerate(messages, start=1)
    ]
    return packed_ticks(range(1, len(messages) + 1)), b"".join(entries)


def rows_of(ddl: str | StructType, *messages: dict[str, Any], misfit_is_error: bool = False) -> list[dict[str, Any]]:
    schema = parse_ddl(ddl) if isinstance(ddl, str) else ddl
    found = Columns(schema, "orders", misfit_is_error=misfit_is_error).batch(3, *a_slice(*messages))
    return list(found.to_pylist())


def test_without_a_schema_all_that_there_is_of_a_message_is_there() -> None:
    [row] = rows_of(default_schema(True), {"symbol": "IBM", "price": 1.5, "hot": True, "n": 7})
    assert (row["key"], row["value"], row["stream"], row["partition"], row["offset"]) == (
        None,
        b"body1",
        "orders",
        3,
        1,
    )
    assert row["timestamp"].timestamp() == 1e-6
    assert dict(row["attributes"]) == {"symbol": "IBM", "price": "1.5", "hot": "true", "n": "7"}
    headers = {header["key"]: header["value"] for header in row["headers"]}
    assert headers == {"publisher": b"p", "incarnation": b"1", "count": b"1", "publication_id": b"id1"}


def test_entries_of_logs_that_kept_no_key_are_read() -> None:
    message = make_message(Identity("p", 1, 1), {"n": 5})
    entry = encode((VERSION, "id", message))
    assert decode(entry, LogEntry) == LogEntry(VERSION, "id", message, "")
    columns = Columns(parse_ddl("n bigint, key string"), "orders", misfit_is_error=False)
    assert columns.batch(0, packed_ticks([1]), entry).to_pylist() == [{"n": 5, "key": None}]


def test_a_key_that_is_the_id_of_its_message_is_none() -> None:
    columns = Columns(parse_ddl("key string"), "orders", misfit_is_error=False)
    for key, shown in (("IBM", "IBM"), ("", None), ("id1", None)):
        assert columns.batch(0, *a_slice({}, key=key)).to_pylist() == [{"key": shown}]


def test_attributes_are_typed_and_what_does_not_fit_is_null() -> None:
    wide = 2**60 + 1
    given = [{"a": 1}, {"a": 2.5}, {"a": "3"}, {"a": True}, {"b": 1}, {"a": wide}]
    kinds = {
        "double": [1.0, 2.5, None, None, None, float(wide)],
        "float": [1.0, 2.5, None, None, None, float(2**60)],
        "bigint": [1, None, None, None, None, wide],
        "int": [1, None, None, None, None, None],
        "tinyint": [1, None, None, None, None, None],
        "string": [None, None, "3", None, None, None],
        "boolean": [None, None, None, True, None, None],
    }
    for kind, expected in kinds.items():
        assert [row["a"] for row in rows_of(f"a {kind}", *given)] == expected, kind
    assert rows_of("a b string", {"a b": "x"}) == [{"a b": "x"}]
    both = StructType([default_schema(False)["attributes"], StructField("a", LongType()), StructField("b", LongType())])
    assert rows_of(both, {"a": 5}) == [{"attributes": [("a", "5")], "a": 5, "b": None}]
    assert [row["a"] for row in rows_of("a bigint", {"a": 5}, {}, misfit_is_error=True)] == [5, None]
    with pytest.raises(PenstockError, match="orders/3 at tick 2: attribute 'a' is 'x', no bigint"):
        rows_of("a bigint", {"a": 5}, {"a": "x"}, misfit_is_error=True)


# Filters.


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (EqualTo(("symbol",), "it's"), "\"symbol\" = 'it''s'"),
        (Not(EqualTo(("symbol",), "IBM")), "NOT (\"symbol\" = 'IBM')"),
        (LessThan(("price",), 120.0), '"price" < 120.0'),
        (GreaterThan(("n",), 5), '"n" > 5'),
        (In(("n",), (1, 2)), '"n" IN (1, 2)'),
        (IsNotNull(("n",)), '"n" IS NOT NULL'),
        (StringStartsWith(("symbol",), "50%_!"), "\"symbol\" LIKE '50!%!_!!%' ESCAPE '!'"),
        (StringContains(("symbol",), "x"), "\"symbol\" LIKE '%x%' ESCAPE '!'"),
        (IsNull(("n",)), ""),  # NULL is also what does not fit
        (Not(IsNotNull(("n",))), ""),
        (In(("n",), (1, None)), ""),
        (EqualTo(("price",), 2.0**53), ""),  # a double has no room for all integers there
        (EqualTo(("price",), float("nan")), ""),
        (EqualTo(("offset",), 5), ""),  # ours, and no attribute
        (EqualTo(("symbol", "x"), 5), ""),
    ],
)
def test_filters_of_spark_become_text_where_brokers_see_the_same(asked: Filter, text: str) -> None:
    found = where_of(asked, SYMBOLS)
    assert found == text
    if found:
        parse_predicate(found)


def test_what_the_language_does_not_take_stays_with_spark() -> None:
    assert joined("TRUE", ['"n" = 1']) == '"n" = 1'
    assert joined("a OR b", ['"n" = 1', '"n" = 1e999', '"m" = 2']) == '((a OR b) AND "n" = 1) AND "m" = 2'
    reader = PushingReader(source_options(NEEDED), SYMBOLS)
    asked: list[Filter] = [EqualTo(("n",), 1), IsNull(("n",))]
    assert list(reader.pushFilters(asked)) == asked, "Spark looks once more"
    assert reader._where == '"n" = 1'
    strict = PushingReader(source_options(NEEDED | {"onTypeMismatch": "error"}), SYMBOLS)
    strict.pushFilters(asked)
    assert strict._where == "TRUE", "a value that does not fit would not be seen"


# Readers, on real brokers.


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingEmbeddedNetwork]:
    with embedded_network_blocking(("a", "b")) as network:
        yield network


class Orders:
    """A stream of its own for each test, in a network that they share."""

    def __init__(self, brokers: BlockingEmbeddedNetwork, network: penstock.BlockingNetwork, name: str, at: str) -> None:
        self.name = name
        self._servers = brokers.urls["b"]
        network.add_stream(name, at=list(at))
        self.stream = network.stream(name)

    def publish(self, *numbers: int) -> None:
        self.stream.publish_many([({"n": n}, b"", f"key{n}", "") for n in numbers])

    def options(self, **given: Any) -> dict[str, str]:
        return {"servers": self._servers, "stream": self.name, **{name: str(value) for name, value in given.items()}}

    def following(self, **given: Any) -> FollowingReader:
        """A reader as it comes out of another process."""
        schema = parse_ddl("n bigint, partition int, offset bigint")
        found = PenstockSource(self.options(**given)).streamReader(schema)
        assert isinstance(found, DataSourceStreamReader)
        return pickle.loads(pickle.dumps(found))

    def table(self, **given: Any) -> list[int]:
        """All numbers of a batch read."""
        reader = PenstockSource(self.options(**given)).reader(parse_ddl("n bigint"))
        return sorted(number for part in reader.partitions() for number in numbers(reader.read(part)))


@pytest.fixture
def orders(brokers: BlockingEmbeddedNetwork, request: pytest.FixtureRequest) -> Iterator[Orders]:
    with penstock.connect_blocking(brokers.url) as network:
        yield Orders(brokers, network, f"s{crc32(request.node.name.encode())}", getattr(request, "param", "ab"))


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("n").to_pylist()]


def followed(reader: FollowingReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """One batch, as Spark runs it: offsets come from a checkpoint, partitions go to other processes."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    other = pickle.loads(pickle.dumps(reader))
    return sorted(number for part in parts for number in numbers(other.read(part)))


def test_a_batch_reads_what_is_there_and_any_part_of_it(orders: Orders) -> None:
    assert orders.table() == []
    orders.publish(*range(100))
    assert orders.table() == list(range(100))
    assert orders.table(where="n < 10") == list(range(10))
    assert orders.table(startingOffsetsByTimestamp="2020-01-01T00:00:00") == list(range(100))
    assert orders.table(startingOffsetsByTimestamp="2199-01-01T00:00:00Z") == []
    reader = PenstockSource(orders.options(minPartitions=7)).reader(parse_ddl("n bigint"))
    parts = [part for part in reader.partitions() if isinstance(part, TickRange)]
    assert len(parts) >= 7
    sizes = [len(numbers(reader.read(part))) for part in parts]
    assert (sum(sizes), max(sizes) - min(sizes) < 5) == (100, True)
    middle = {part.number: part.last + 1 for part in parts[:1] + parts[-2:-1]}
    there = json.dumps({orders.name: middle})
    below, above = orders.table(endingOffsets=there), orders.table(startingOffsets=there)
    assert sorted(below + above) == list(range(100))
    assert below
    assert above


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "has nothing to read"),
        ({"endingOffsets": "earliest"}, "has nothing to read"),
        ({"maxOffsetsPerTrigger": "5"}, "is for queries that go on"),
        ({"maxBytesPerTrigger": "5"}, "maxBytesPerTrigger: is for queries that go on"),
        ({"maxTriggerDelay": "5s"}, "is for queries that go on"),
        ({"startingOffsets": '{"0": 5}'}, "is about pubends 0; 's"),
        ({"startingOffsets": '{"0": 9999999999999999, "1": -2}'}, "beyond the end: 1 is the first behind"),
        ({"stream": "odrers"}, "there is no stream 'odrers'"),
        ({"servers": "penstock://127.0.0.1:1"}, "no broker answers at 127.0.0.1:1"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_before_any_task(
    orders: Orders, given: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.3)
    with pytest.raises(PenstockError) as told:
        orders.table(**given)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("orders", ["abababab"], indirect=True)
def test_every_batch_of_a_query_can_be_had_again_and_each_message_is_in_one(orders: Orders) -> None:
    orders.publish(*range(200))
    reader = orders.following(startingOffsets="earliest", maxOffsetsPerTrigger=30)
    start, limit, got = reader.initialOffset(), reader.getDefaultReadLimit(), []
    assert limit == ReadMaxRows(30)
    while (end := reader.latestOffset(start, limit)) != start:
        batch = followed(orders.following(), start, end)
        assert len(batch) <= 30
        assert followed(reader, start, end) == batch, "again, from the checkpoint"
        got += batch
        start = end
    assert sorted(got) == list(range(200))
    assert reader.latestOffset(start, limit) == start, "silence is no batch"
    assert reader.reportLatestOffset()["pubends"] == start["pubends"]
    orders.publish(*range(200, 260))
    assert followed(reader, start, reader.latestOffset(start, ReadAllAvailable())) == list(range(200, 260))
    reader.stop()


def test_a_first_batch_that_is_tried_again_begins_where_it_began(orders: Orders) -> None:
    """Spark keeps no initial offset: a query that is killed in its first batch is asked for another one."""
    first = orders.following()
    start = first.initialOffset()
    orders.publish(*range(20))
    end = first.latestOffset(start, ReadAllAvailable())
    first.stop()
    orders.publish(*range(20, 30))
    restarted = orders.following()
    later = restarted.initialOffset()
    assert later != start
    assert followed(restarted, later, end) == list(range(20))
    assert followed(restarted, end, restarted.latestOffset(end, ReadAllAvailable())) == list(range(20, 30))
    restarted.stop()


def test_a_batch_that_is_tried_again_is_cut_as_it_was(orders: Orders) -> None:
    """Whatever `minPartitions` says by then: rows that are written have ids that name their partition."""
    orders.publish(*range(60))
    first = orders.following(startingOffsets="earliest", minPartitions=6)
    start = first.initialOffset()
    end = json.loads(json.dumps(first.latestOffset(start, ReadAllAvailable())))
    cut = first.partitions(start, end)
    assert len(cut) >= 6
    orders.publish(*range(60, 90))
    second = orders.following(startingOffsets="earliest", minPartitions=2)
    assert second.partitions(start, end) == cut
    assert len(second.partitions(end, second.latestOffset(end, ReadAllAvailable()))) == 2, "from the next batch on"
    for reader in (first, second):
        reader.stop()


def test_a_query_that_takes_what_is_there_ends_there(orders: Orders) -> None:
    orders.publish(*range(50))
    reader = orders.following(startingOffsets="earliest", maxBytesPerTrigger=1_000)
    reader.prepareForTriggerAvailableNow()
    orders.publish(*range(50, 99))
    start, got, batches = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        got += followed(reader, start, end)
        start, batches = end, batches + 1
    assert sorted(got) == list(range(50))
    assert batches > 2
    reader.stop()


def test_a_query_waits_for_as_many_as_it_wants_but_not_longer_than_it_said(orders: Orders) -> None:
    reader = orders.following(minOffsetsPerTrigger=10, maxTriggerDelay="30s")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    orders.publish(*range(9))
    assert reader.latestOffset(start, limit) == start
    reader._batch_at -= 30.0
    end = reader.latestOffset(start, limit)
    assert followed(reader, start, end) == list(range(9))
    orders.publish(*range(9, 19))
    assert followed(reader, end, reader.latestOffset(end, limit)) == list(range(9, 19))
    reader.stop()


def test_what_was_trimmed_is_a_loss_and_silence_is_none(orders: Orders) -> None:
    reader, careless = orders.following(), orders.following(failOnDataLoss="false")
    start = reader.initialOffset()
    orders.publish(*range(20))
    read = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, read)
    orders.stream.trim(upto=max(read["pubends"][number]["next"] - 1 for number in "01"), force=True)
    assert reader.latestOffset(read, ReadAllAvailable()) == read, "all that was trimmed had been read"
    for late in (
        lambda: reader.latestOffset(start, ReadAllAvailable()),
        lambda: reader.partitions(start, read),
        lambda: [numbers(reader.read(part)) for part in planned],
    ):
        with pytest.raises(DataLoss, match=r"keeps nothing up to tick \d+.*failOnDataLoss"):
            late()
    orders.publish(*range(20, 30))
    end = careless.latestOffset(start, ReadAllAvailable())
    assert followed(careless, start, end) == list(range(20, 30))
    assert [numbers(careless.read(part)) for part in planned] == [[], []]
    reader.stop()
    careless.stop()


def test_offsets_beyond_the_end_are_a_loss_unless_a_time_placed_them_there(orders: Orders) -> None:
    """As of a stream that was restored from an older copy: what comes next must not be skipped without a word."""
    orders.publish(*range(10))
    reader, careless = orders.following(startingOffsets="earliest"), orders.following(failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    ahead = {number: place | {"next": place["next"] + 3_600_000_000} for number, place in end["pubends"].items()}
    beyond = {**end, "pubends": ahead}
    for asked in (
        lambda: reader.latestOffset(beyond, ReadAllAvailable()),
        lambda: reader.partitions(beyond, beyond),
        lambda: reader.partitions(start, beyond),
    ):
        with pytest.raises(
            DataLoss, match=r"ends at tick \d+, and the query knows of ticks up to.*failOnDataLoss"
        ) as told:
            asked()
        assert "\n" not in str(told.value)
    assert followed(careless, start, beyond) == list(range(10))
    orders.publish(10, 11, 12, 13)
    found = careless.latestOffset(beyond, ReadAllAvailable())
    assert followed(careless, beyond, found) == [], "nobody knows which of these it had read; it goes on from the end"
    orders.publish(*range(14, 30))
    assert followed(careless, found, careless.latestOffset(found, ReadAllAvailable())) == list(range(14, 30))
    for closed in (reader, careless):
        closed.stop()
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(InvalidOption, match=f"{name}: is tick {10**16 - 1} of pubend 0, beyond the end"):
            orders.table(**{name: json.dumps({orders.name: {"0": 10**16 - 1, "1": -1}})})


def test_a_start_in_the_future_waits_for_its_time(orders: Orders) -> None:
    orders.publish(*range(10))
    places = json.dumps({"0": 4_000_000_000_000, "1": 0})  # milliseconds
    reader = orders.following(startingOffsetsByTimestamp=places)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert 0 < len(followed(reader, start, end)) < 10
    assert end["pubends"]["0"] == start["pubends"]["0"]
    orders.publish(*range(10, 20))
    assert 0 < len(followed(reader, end, reader.latestOffset(end, ReadAllAvailable()))) < 10
    reader.stop()


def test_a_durable_query_holds_what_it_has_not_done_with(orders: Orders) -> None:
    orders.publish(*range(20))
    reader = orders.following(startingOffsets="earliest", durable="spark", where="n >= 5", maxOffsetsPerTrigger=8)

    def lag() -> int:
        names = [found["names"][0] for found in orders.stream.info(durable="spark")["pubends"]]
        return sum(name["lag"] for name in names)

    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    read = followed(reader, start, end)
    assert lag() == 15, "a batch that is not committed may be wanted again"
    reader.commit(end)
    assert lag() == 15 - len(read)
    with pytest.raises(penstock.StreamRefused, match="still needed by 'spark'"):
        orders.stream.trim(upto=max(extent["last"] for extent in orders.stream.survey()["pubends"]))
    reader.stop()
    with pytest.raises(InvalidOption, match="is for queries that go on"):
        orders.table(durable="spark")


@pytest.mark.parametrize(
    ("ddl", "given", "words"),
    [
        ("n bigint", {"servers": "penstock://127.0.0.1:1", "giveUpAfter": "0.3s"}, "no broker answers at 127.0.0.1:1"),
        ("n bigint", {"stream": "ordres"}, "there is no stream 'ordres'"),
        ("n bigint", {"where": "n < "}, "where: the text ends too early"),
        ("n bigint", {"startingOffsets": '{"0": 9900000000000000, "1": -1}'}, "of pubend 0, beyond the end"),
        ("n date", {}, "column 'n': is date; attributes are boolean"),
    ],
)
def test_a_query_that_cannot_begin_says_so_when_it_is_asked_where(
    orders: Orders, ddl: str, given: dict[str, str], words: str
) -> None:
    """In one line; what Spark makes of that is tested with Spark (`test_source_errors`)."""
    reader = PenstockSource({**orders.options(), **given}).streamReader(parse_ddl(ddl))
    with pytest.raises(PenstockError, match=words) as told:
        reader.initialOffset()
    assert "\n" not in str(told.value)
    reader.stop()


def test_a_checkpoint_of_something_else_is_refused(orders: Orders) -> None:
    orders.publish(1)
    reader, careless = orders.following(), orders.following(failOnDataLoss="false", startingOffsets="earliest")
    start = reader.initialOffset()
    for wrong, words in (
        ({**start, "stream": "trades"}, "the checkpoint is of the stream 'trades'"),
        ({"index": 5}, "the checkpoint is of another source"),
        ({"stream": orders.name, "pubends": {"0": start["pubends"]["0"]}}, "is of 1 pubends"),
        ({"stream": orders.name, "pubends": {"0": 5}}, "cannot be read"),
        ({"stream": orders.name}, "cannot be read"),
    ):
        with pytest.raises(PenstockError, match=words):
            reader.latestOffset(wrong, ReadAllAvailable())
    anew = {**start, "pubends": {**start["pubends"], "0": {"epoch": 7, "next": 5}}}
    with pytest.raises(DataLoss, match="was removed and made anew"):
        reader.latestOffset(anew, ReadAllAvailable())
    again = careless.latestOffset(anew, ReadAllAvailable())
    assert again["pubends"] == reader.reportLatestOffset()["pubends"]
    for closed in (reader, careless):
        closed.stop()
    refused = PenstockSource(orders.options(endingOffsets="earliest")).streamReader(SYMBOLS)
    with pytest.raises(InvalidOption, match="is for batches"):
        refused.initialOffset()


def test_a_best_effort_subscription_is_a_source_for_what_comes(orders: Orders) -> None:
    given = {"servers": orders.options()["servers"], "subscribe": "news > 0"}
    source = PenstockSource(given)
    with pytest.raises(PySparkNotImplementedError):
        source.streamReader(SYMBOLS)
    reader = source.simpleStreamReader(parse_ddl("news bigint, offset bigint, stream string"))
    start = reader.initialOffset()
    assert reader.read(start)[1] == start
    with penstock.connect_blocking(given["servers"]) as network:
        for number in (1, 0, 2):
            network.publish({"news": number})
        rows: list[dict[str, Any]] = []
        end = start
        while len(rows) < 2:
            batches, end = reader.read(end)
            rows += [row for batch in batches for row in batch.to_pylist()]
    assert [(row["news"], row["stream"]) for row in rows] == [(1, None), (2, None)]
    assert rows[0]["offset"] < rows[1]["offset"]
    assert end == {"messages": 2}
    assert list(reader.readBetweenOffsets(start, end)) == [], "at most once"
    assert reader._network is not None
    reader._network.close()
    for wrong, words in (({"stream": "orders"}, "with a stream, say where"), ({"where": "x"}, "no such option")):
        with pytest.raises(InvalidOption, match=words):
            PenstockSource(given | wrong).schema()
    with pytest.raises(InvalidOption, match="is for queries that go on"):
        source.reader(SYMBOLS)


# Writers.


def a_batch(*numbers: int, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers), **columns})


def test_a_batch_that_is_written_again_is_stored_once_in_whatever_order(orders: Orders) -> None:
    options = sink_options(orders.options())
    written(options, Task("query", 1, 0), iter([a_batch(1, 2, 2), a_batch(3)]))
    assert written(options, Task("query", 1, 0), iter([a_batch(3, 2), a_batch(2, 1, 4)])).rows == 5
    assert orders.table() == [1, 2, 2, 3, 4]
    for query, batch, partition in (("other", 1, 0), ("query", 1, 1), ("query", 2, 0)):
        written(options, Task(query, batch, partition), iter([a_batch(1)]))
    assert orders.table() == [1, 1, 1, 1, 2, 2, 3, 4], "another query, batch and partition"
    by_column = sink_options(orders.options(idColumn="n"))
    for batch in (3, 4):
        written(by_column, Task("query", batch, 0), iter([a_batch(7, 8)]))
    assert orders.table(where="n > 4") == [7, 8]
    with pytest.raises(PenstockError, match="without a value in 'n'"):
        written(by_column, Task("query", 5, 0), iter([pa.RecordBatch.from_pydict({"n": [None]})]))


def test_rows_become_messages_and_messages_the_same_rows(orders: Orders) -> None:
    columns: dict[str, list[Any]] = {"key": ["IBM", None], "value": ["text", b"bytes"], "price": [1.5, None]}
    maps = pa.array([[("kind", "new")], None], pa.map_(pa.string(), pa.string()))
    for row in range(2):
        one = {name: pa.array([values[row]]) for name, values in columns.items()}
        batch = pa.RecordBatch.from_pydict({**one, "attributes": maps.slice(row, 1)})
        written(sink_options(orders.options()), Task("query", 0, row), iter([batch]))
    reader = PenstockSource(orders.options()).reader(default_schema(False))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    found = {(row["key"], row["value"], tuple(sorted(row["attributes"]))) for row in rows}
    assert found == {("IBM", b"text", (("kind", "new"), ("price", "1.5"))), (None, b"bytes", ())}


def test_a_stream_that_nobody_knows_is_said_before_a_query_writes_to_it(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.0)
    assert isinstance(PenstockSource(orders.options()).streamWriter(parse_ddl("n bigint"), False), FollowingWriter)
    with pytest.raises(PenstockError, match="there is no stream 'odrers'") as told:
        PenstockSource(orders.options(stream="odrers")).streamWriter(parse_ddl("n bigint"), False)
    assert "\n" not in str(told.value)


def test_a_network_that_never_answered_is_not_waited_for(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else this test would take an hour. A query that has written there before waits for it."""
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.1)
    (tmp_path / "offsets").mkdir()
    nowhere = {"servers": "penstock://127.0.0.1:1", "stream": "orders", "giveUpAfter": "1h"}
    for refused in (
        lambda: PenstockSource(nowhere | {"checkpointLocation": str(tmp_path)}).streamWriter(SYMBOLS, False),
        lambda: PenstockSource(nowhere).writer(SYMBOLS, False),
        lambda: (
            PenstockSource({"servers": nowhere["servers"], "subscribe": "n > 0"})
            .simpleStreamReader(parse_ddl("n bigint"))
            .initialOffset()
        ),
    ):
        with pytest.raises(PenstockError, match=r"no broker answers at 127\.0\.0\.1:1") as told:
            refused()
        assert "\n" not in str(told.value)
    assert not has_written(f"file:{tmp_path}")
    (tmp_path / "commits").mkdir()
    assert not has_written(str(tmp_path))
    (tmp_path / "commits" / "0").touch()
    assert has_written(f"file:{tmp_path}")
    assert has_written("hdfs://name/checkpoint"), "it cannot be seen from here"
    short = {"giveUpAfter": "0.1s", "checkpointLocation": str(tmp_path)}
    monkeypatch.setattr(connection, "FIRST_CONTACT", 3_600.0)
    with pytest.raises(PenstockError, match="no broker answers"):
        PenstockSource(nowhere | short).streamWriter(SYMBOLS, False)


def test_who_slows_a_batch_down_is_in_the_log_of_the_driver(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slowed = penstock.StreamSlowdown("orders/0", 10.0, 20.0, "edge", False, 0.1, "broker 'edge' cannot keep up")
    report = penstock.PublisherReport(stream="orders", unanswered=1, waiting_since=None, slowed=(slowed,))
    monkeypatch.setattr(penstock.BlockingStream, "report", lambda self: report)
    done = written(sink_options(orders.options()), Task("query", 1, 0), iter([a_batch(1)]))
    assert (done.rows, 0.0 < done.slowed_seconds <= done.seconds) == (1, True)
    FollowingWriter(sink_options(orders.options())).commit([done, None], 7)
    assert "batch 7 took" in caplog.text
    assert "orders/0: broker 'edge' cannot keep up" in caplog.text


@pytest.mark.parametrize(
    ("ddl", "given", "words"),
    [
        ("price date", {}, "column 'price': is date; attributes are"),
        ("key int", {}, "column 'key': is int; it must be string"),
        ("n int", {"idColumn": "m"}, "idColumn: is 'm'; there is no such column"),
        ("n int", {"where": "n = 1"}, "where: there is no such option"),
    ],
)
def test_what_cannot_be_written_is_said_before_any_task(ddl: str, given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        check_written_schema(parse_ddl(ddl), sink_options(NEEDED | given))
    with pytest.raises(InvalidOption, match="append"):
        PenstockSource(NEEDED).writer(parse_ddl("n int"), overwrite=True)


def test_what_a_worker_has_imported_is_set_apart_once_and_only_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers collect all garbage after each task."""
    monkeypatch.setattr(worker, "_settled", False)
    worker.settle_worker()
    assert gc.get_freeze_count() == 0, "this is no worker of Spark's"
    monkeypatch.setattr(TaskContext, "get", object)
    try:
        worker.settle_worker()
        assert gc.get_freeze_count() > 10_000
        gc.unfreeze()
        worker.settle_worker()
        assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()

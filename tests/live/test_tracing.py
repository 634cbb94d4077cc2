"""Records of a running network in its stream `_trace`: what is said, what is left out, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

import penstock
from live_help import run, until
from penstock.content.message import Identity, make_message
from penstock.errors import PenstockError
from penstock.kernel.trace import (
    TRACE_STREAM,
    Counted,
    Delivered,
    Dropped,
    InputRefused,
    NodeStarted,
    NodeStopped,
    Published,
    Record,
    Subscribed,
    Unsubscribed,
    published_record,
    published_records,
)
from penstock.kernel.trace_batch import (
    BYTES_MAX,
    TraceBatch,
    about_tracing,
    chosen,
    decode_batch,
    encode_batch,
    of_message,
    packed,
)
from penstock.live import trace_feed
from penstock.live.host import LiveHost
from penstock.live.standing_facts import StandingFacts
from penstock.live.trace_feed import NetworkTrace, TraceFeed, TraceSender
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.records import NeighbourChanged
from penstock.pipeline.watch.writers import Writers
from penstock.services import record_kinds
from penstock.streams.config import StreamsConfig
from penstock.streams.log_codec import decode_slice
from penstock.streams.records import DurableBegan, DurableStopped, PubendCommitted
from penstock.testing import embedded_network
from penstock.tracing.records import TracingSwitched


def to_its_end(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine; a hanging one fails."""

    @wraps(test)
    def ran(*given: Any, **named: Any) -> None:
        run(test(*given, **named))

    return ran


def published(count: int, attributes: str = "{}") -> Published:
    return Published("exchange", 1, count, attributes, 0)


# Batches.


def test_a_batch_travels_in_columns() -> None:
    lines: list[tuple[float, Record]] = [(1.5, published(1)), (2.5, published(2)), (2.0, NodeStopped("leave"))]
    batch = TraceBatch(writer="n-1", node="n", role="client", number=3, upto=9.0, kinds=packed(lines))
    assert decode_batch(encode_batch(batch)) == batch
    assert batch.kinds["node_stopped"] == [[2.0], ["leave"]]
    assert batch.kinds["published"][:4] == [[1.5, 2.5], ["exchange"] * 2, [1, 1], [1, 2]]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "cut off"),
        (b"nonsense", "no batch"),
        (zlib.compress(b"nonsense"), "no batch"),
        (zlib.compress(bytes(BYTES_MAX + 1)), "more than"),
        (encode_batch(TraceBatch(version=2, writer="n", node="n", role="client", number=1)), "version 2"),
    ],
    ids=["empty", "no zlib", "no msgpack", "bomb", "version"],
)
def test_what_is_no_batch_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_batch(body)


def test_what_is_about_the_trace_is_known_by_its_names() -> None:
    assert about_tracing(PubendCommitted("_trace/0", 1, 1, "north", 1, 1))
    assert about_tracing(Counted("link packets", "_trace-north-17", 5))
    assert about_tracing(InputRefused("_trace-x", "bad"))
    assert not about_tracing(PubendCommitted("_traces/0", 1, 1, "north", 1, 1))
    assert not about_tracing(published(1, '{"stream": "_trace"}'))
    assert not about_tracing(NodeStarted("broker", 1))


def test_of_messages_the_same_are_chosen_whatever_the_record() -> None:
    kinds = [kind.__name__ for kind in record_kinds() if of_message(kind)]
    assert {"Published", "Delivered", "Dropped", "PubendCommitted", "StreamDelivered"} <= set(kinds)
    assert not {"Subscribed", "NodeStarted", "Counted", "FlowLimited"} & set(kinds)
    some = [count for count in range(1, 2_001) if chosen(published(count), 10)]
    assert some == [count for count in range(1, 2_001) if chosen(Delivered(4, "exchange", 1, count), 10)]
    assert 130 < len(some) < 270
    assert chosen(Dropped("egress", "full", "b", 1, "Hello", "", 0, 0, 1), 10), "a packet without a message"


# What waits.


def test_what_finds_no_room_is_counted_and_others_have_room_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_feed, "RECORDS_MAX", 3)
    monkeypatch.setattr(trace_feed, "OTHERS_MAX", 1)
    trace = NetworkTrace(one_in=1)
    for count in range(1, 6):
        trace.write(float(count), "n", published(count))
    trace.write(6.0, "n", Subscribed(1, "x = 1"))
    trace.write(7.0, "n", Subscribed(2, "x = 2"))
    assert (len(trace), trace.left_out) == (4, 3)
    lines, left = trace.take()
    assert [type(record) for _, record in lines] == [Published] * 3 + [Subscribed]
    assert left == (3, 4.0, 7.0)
    assert trace.take() == ([], (0, 0.0, 0.0)), "it is told once"


def test_long_attributes_fill_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_feed, "TEXT_MAX", 1_000)
    trace = NetworkTrace(one_in=1)
    for count in (1, 2, 3):
        trace.write(1.0, "n", published(count, "x" * 600))
    assert (len(trace), trace.left_out) == (2, 1)
    trace.take()
    trace.write(1.0, "n", published(4))
    assert len(trace) == 1


def test_of_a_sample_all_are_counted() -> None:
    trace = NetworkTrace(one_in=10)
    for count in range(1, 1_001):
        trace.write(1.0, "n", published(count))
    recorded = len(trace)
    assert 50 < recorded < 150
    passed_over: Counter[type[Record]] = Counter({Published: 500})  # of which no record was made
    trace.count(2.0, "n", passed_over)
    trace.count(3.0, "n", passed_over)
    lines, _ = trace.take()
    assert lines[recorded:] == [(2.0, Counted("published in all", "", 1_500))]


@to_its_end
async def test_records_that_no_sample_has_are_counted_and_not_made() -> None:
    host = LiveHost("n", "client", 1)
    trace = NetworkTrace(one_in=10)
    host.trace_also(trace, 10)
    messages = [make_message(Identity("exchange", 1, count), {}) for count in range(1, 1_001)]
    made = [record for message in messages for record in published_records(host.traced, message)]
    assert made == [record for record in map(published_record, messages) if chosen(record, 10)]
    assert host.traced.passed_over == {Published: 1_000 - len(made)}
    for record in made:
        host.note(record)
    trace.count(2.0, "n", host.traced.passed_over)
    lines, _ = trace.take()
    assert lines[-1] == (2.0, Counted("published in all", "", 1_000))
    assert not host.traced.passed_over
    host.trace_also(None)
    assert published_records(host.traced, messages[0]) == ()
    # A run's own trace has all of them, whatever is sent.
    own = LiveHost("n", "client", 1, trace=NetworkTrace(one_in=1))
    own.trace_also(trace, 10)
    assert own.traced.one_in == 1


def test_what_holds_is_remembered_until_it_ends() -> None:
    facts = StandingFacts()
    began = DurableBegan(2, "orders", "billing", "orders/0", 1, 5, "TRUE")
    seen: list[Record] = [
        *(NodeStarted("client", 1), Subscribed(1, "x"), Subscribed(2, "y"), began, NeighbourChanged(1, True, "")),
        *(Unsubscribed(1), NeighbourChanged(2, True, ""), NeighbourChanged(1, False, "silent")),
    ]
    for at, record in enumerate(seen):
        facts.saw(float(at), record)
    assert [at for at, _ in facts.all()] == [0.0, 2.0, 3.0, 6.0]
    facts.saw(9.0, DurableStopped(2, "orders", "billing", "gone"))
    assert [type(record) for _, record in facts.all()] == [NodeStarted, NeighbourChanged]


# Sending.


class Stream:
    """A stream that can fail, and stand still."""

    def __init__(self) -> None:
        self.batches: list[TraceBatch] = []
        self.fails = 0
        self.open = asyncio.Event()
        self.open.set()

    async def publish(self, attributes: Any, body: bytes = b"", *, key: str = "", publication_id: Any = None) -> None:
        await self.open.wait()
        if self.fails:
            self.fails -= 1
            raise PenstockError("not now")
        self.batches.append(decode_batch(body))

    def stream(self, name: str) -> Stream:
        assert name == TRACE_STREAM
        return self

    @asynccontextmanager
    async def connect(self, name: str) -> AsyncIterator[Stream]:
        assert name.startswith("_trace-n-")
        yield self

    def kinds(self) -> list[str]:
        return [kind for batch in self.batches for kind in batch.kinds]


@to_its_end
async def test_a_sender_says_what_holds_sends_all_once_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_feed, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(trace_feed, "BATCH_RECORDS", 2)
    monkeypatch.setattr(trace_feed, "PAUSE", 0.0)
    host, stream = LiveHost("n", "client", 1), Stream()
    host.note(NodeStarted("client", 1))
    host.standing.saw(1.0, Subscribed(4, "x"))
    stream.fails = 2
    sender = TraceSender(host, stream.connect, 1)
    host.trace_also(sender.trace)
    assert host.traced
    for count in (1, 2, 3):
        host.note(published(count))
    host.note(PubendCommitted("_trace/0", 1, 1, "n", 1, 1))
    host.trace_also(None)
    host.note(published(4))
    sender.end("leave")
    await sender.task
    assert not host.traced
    said = ["subscribed", "node_started", "published", "published", "unsubscribed", "node_stopped"]
    assert stream.kinds() == said
    assert [batch.number for batch in stream.batches] == list(range(1, len(stream.batches) + 1))
    assert [batch.closed for batch in stream.batches] == [False] * (len(stream.batches) - 1) + [True]
    assert [batch.upto > 0.0 for batch in stream.batches][-1]


@to_its_end
async def test_a_record_that_fits_no_message_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_feed, "BATCH_BYTES", 1_000)
    monkeypatch.setattr(trace_feed, "PAUSE", 0.0)
    host, stream = LiveHost("n", "client", 1), Stream()
    sender = TraceSender(host, stream.connect, 1)
    for count, long in ((1, 10), (2, 5_000), (3, 700), (4, 700)):
        sender.trace.write(float(count), "n", published(count, "x" * long))
    sender.end("")
    await sender.task
    assert [count for batch in stream.batches if batch.kinds for count in batch.kinds["published"][3]] == [1, 3, 4]
    assert sender.trace.left_out == 1


@to_its_end
async def test_a_stream_that_stands_still_stops_nothing_but_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flood finds no room, which is counted; nobody waits; the end comes within its time."""
    monkeypatch.setattr(trace_feed, "RECORDS_MAX", 100)
    monkeypatch.setattr(trace_feed, "CLOSE_WITHIN", 0.0)
    host, stream = LiveHost("n", "broker", 1), Stream()
    stream.open.clear()
    feed = TraceFeed(host, stream.connect)
    host.on_record = feed.recorded
    host.note(TracingSwitched(True, 1))
    for count in range(1_000):
        host.note(published(count))
    assert feed.left_out == 900
    await feed.stop("leave")
    assert stream.batches == []
    assert host.trace is None


@to_its_end
async def test_a_feed_follows_orders_and_its_own_connections_are_not_traced() -> None:
    host, stream = LiveHost("n", "client", 1), Stream()
    feed = TraceFeed(host, stream.connect)
    feed.recorded(TracingSwitched(True, 1))
    feed.recorded(TracingSwitched(True, 5))
    host.note(Subscribed(1, "x"))
    feed.recorded(TracingSwitched(False, 5))
    feed.recorded(TracingSwitched(True, 1))  # a writer of its own
    await feed.stop("leave")
    assert len({batch.writer for batch in stream.batches if batch.closed}) == 2
    assert stream.batches[0].one_in in (1, 5)
    own = TraceFeed(LiveHost("_trace-n-1", "client", 1), stream.connect)
    own.recorded(TracingSwitched(True, 1))
    assert own.left_out == 0
    await own.stop("leave")


# On a network.


@to_its_end
async def test_all_nodes_follow_one_command_and_nothing_says_a_word_about_the_trace() -> None:
    async with (
        embedded_network(("a", "b")) as brokers,
        penstock.connect(brokers.urls["a"], name="reader") as reader,
        penstock.connect(brokers.urls["b"], name="operator") as operator,
    ):
        assert not (await operator.trace())["on"]
        async with reader.subscribe("x > 0") as messages:
            state = await operator.trace(60, at=["a"])
            assert (state["on"], state["one_in"]) == (True, 1)
            async with penstock.connect(brokers.urls["b"], name="writer") as writer:
                assert _tracing(writer), "its broker has said so before connect() returned"
                await until(lambda: _tracing(reader), what="clients hear of it")
                await writer.publish({"x": 1})
                assert (await anext(messages)).attributes == {"x": 1}
        with pytest.raises(PenstockError, match="up to"):
            await operator.trace(-1)
        assert not (await operator.trace(0))["on"]
        await until(lambda: not _tracing(operator), what="it ends")
        found: dict[str, dict[str, int]] = {}
        closed: set[str] = set()
        async with operator.stream(TRACE_STREAM).subscribe(durable="test", start="earliest") as batches:
            async for message in batches:
                batch = decode_batch(message.body)
                assert "_trace" not in str(batch.kinds)
                own = found.setdefault(batch.node, {})
                for kind, columns in batch.kinds.items():
                    own[kind] = own.get(kind, 0) + len(columns[0])
                closed |= {batch.node} if batch.closed else set()
                if closed == {"a", "b", "reader", "writer", "operator"}:
                    break
        assert found["reader"].items() >= {"node_started": 1, "subscribed": 1, "delivered": 1}.items()
        assert found["writer"].items() >= {"node_started": 1, "published": 1, "node_stopped": 1}.items()
        assert found["a"]["node_started"] == found["b"]["node_started"] == 1
        assert found["a"]["neighbour_changed"] == 1


FEW_BYTES = 20_000


@pytest.fixture
def small_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small batches, as fast as they can be stored."""
    monkeypatch.setattr(trace_feed, "EVERY", 0.01)
    monkeypatch.setattr(trace_feed, "PAUSE", 0.0)
    monkeypatch.setattr(trace_feed, "BATCH_RECORDS", 20)


@pytest.mark.usefixtures("small_and_often")
@to_its_end
async def test_a_trace_that_is_full_forgets_its_oldest_and_whoever_reads_late_knows_what_is_missing() -> None:
    """Nobody watches, or somebody who reads nothing; messages pass as ever, all the same."""
    node = NodeConfig(services={"streams": StreamsConfig(trace_bytes=FEW_BYTES)})
    async with (
        embedded_network(("a", "b"), node=node) as brokers,
        penstock.connect(brokers.urls["a"], name="reader") as reader,
        penstock.connect(brokers.urls["b"], name="operator") as operator,
    ):
        await operator.trace(60, at=["a"])
        await until(lambda: _tracing(reader, operator), what="clients hear of it")
        trace = operator.stream(TRACE_STREAM)
        turn, writers = 0, Writers()
        async with (
            reader.subscribe("n > 0") as messages,
            trace.subscribe(durable="sleeper", start="earliest"),  # which it holds up nothing for
        ):
            while not (await trace.survey())["pubends"][0]["gone"]:
                numbers = range(turn * 100 + 1, turn * 100 + 101)
                for number in numbers:
                    await operator.publish({"n": number, "text": f"{number}" * 20})
                assert [(await anext(messages)).attributes["n"] for _ in numbers] == list(numbers)
                turn += 1
        for _ in range(100):  # it goes on, and stays as small
            await operator.publish({"n": -1})
        (kept,) = (await trace.survey())["pubends"]
        assert kept["bytes"] < 2 * FEW_BYTES
        asked = {"epoch": kept["epoch"], "first": kept["gone"] + 1, "last": kept["last"]}
        async for found in trace.slices(kept["pubend"], **asked):  # as a watch reads
            for _, entry in decode_slice(found.ticks, found.entries):
                writers.take(decode_batch(entry.message.body), 0.0)
        assert writers.lost_batches > 0
        assert writers.lost, "a stretch of time that is not judged"
        assert writers.left_out == 0, "at the nodes there was room"


@pytest.mark.usefixtures("small_and_often")
@to_its_end
async def test_when_nobody_stores_the_trace_messages_pass_and_what_is_left_out_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker of `_trace` is down while messages flow past it; when it is back, records go on with a count."""
    monkeypatch.setattr(trace_feed, "RECORDS_MAX", 50)
    monkeypatch.setattr(trace_feed, "RETRY_AFTER", 0.01)
    async with (
        embedded_network(("c", "a", "b")) as brokers,
        penstock.connect(brokers.urls["a"], name="reader") as reader,
        penstock.connect(brokers.urls["b"], name="operator") as operator,
    ):
        await operator.trace(60, at=["c"])
        await until(lambda: _tracing(reader, operator), what="clients hear of it")
        await brokers.crash("c")
        async with reader.subscribe("n > 0") as messages:
            for number in range(1, 301):
                await operator.publish({"n": number})
            assert [(await anext(messages)).attributes["n"] for _ in range(300)] == list(range(1, 301))
        await brokers.start("c")
        told = dict[str, int]()
        async with operator.stream(TRACE_STREAM).subscribe(durable="test", start="earliest") as batches:
            async for message in batches:
                batch = decode_batch(message.body)
                told[batch.node] = told.get(batch.node, 0) + batch.left_out
                if told.get("operator") and told.get("reader"):
                    break
        assert told["operator"] <= 300


def _tracing(*networks: penstock.Network) -> bool:
    return all(network._link is not None and network._link.host.trace is not None for network in networks)

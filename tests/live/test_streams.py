"""Streams as an application meets them, on real brokers: publish, read, acknowledge, crash, come back."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from live_help import run
from penstock.errors import InvalidOption, StreamError
from penstock.overlay.assembly import NodeConfig
from penstock.streams.config import StreamsClientConfig, StreamsConfig
from penstock.testing import EmbeddedNetwork, embedded_network, embedded_network_blocking, until


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def arguments(function: Any) -> dict[str, object]:
    return {name: (given.kind, given.default) for name, given in inspect.signature(function).parameters.items()}


WITHIN = 20.0  # seconds; no healthy machine comes near
GIVEN_UP = (penstock.OutcomeUnknown, penstock.StreamRefused)


@asynccontextmanager
async def a_stream(
    *names: str, at: str | tuple[str, ...] = "", **settings: Any
) -> AsyncIterator[tuple[EmbeddedNetwork, penstock.Network]]:
    """Brokers in a line, the stream `orders` at the first or where it is said, and a client of the last."""
    chosen = names or ("broker",)
    async with (
        asyncio.timeout(2 * WITHIN),
        embedded_network(chosen, **settings) as brokers,
        penstock.connect(brokers.urls[chosen[-1]]) as network,
    ):
        await network.add_stream("orders", at=at or chosen[0])
        yield brokers, network


async def taken(messages: penstock.StreamSubscription, count: int) -> list[Any]:
    """The attribute n of the next so many messages."""
    found: list[Any] = []
    while len(found) < count:
        batch = await messages.take(count - len(found))
        assert batch, "it was closed"
        found += [message.attributes["n"] for message in batch]
    return found


async def published(network: penstock.Network, *numbers: int, **options: Any) -> list[penstock.Receipt]:
    orders = network.stream("orders")
    return list(await asyncio.gather(*(orders.publish({"n": n}, **options) for n in numbers)))


# Publishing.


def test_a_receipt_names_the_place_on_disk_and_readers_get_the_same() -> None:
    async def publishing() -> None:
        async with a_stream("a", "b", "c") as (_, network):
            orders = network.stream("orders")
            async with orders.subscribe("n > 1", durable="billing", start="earliest") as messages:
                assert (messages.stream, messages.durable, messages.where) == ("orders", "billing", "n > 1")
                await orders.publish({"n": 1})
                receipt = await orders.publish({"n": 2}, b"body", key="IBM", publication_id="the-second")
                message = await anext(messages)
                assert (message.attributes, message.body) == ({"n": 2}, b"body")
                assert (message.stream, message.pubend, message.tick) == ("orders", receipt.pubend, receipt.tick)
                assert (receipt.stream, receipt.publication_id) == ("orders", "the-second")
                assert message.identity.publisher == network.name

    run(publishing())


def test_the_same_id_is_stored_once_and_another_message_under_it_is_refused() -> None:
    async def repeating() -> None:
        async with a_stream() as (_, network):
            orders = network.stream("orders")
            first = await orders.publish({"n": 1}, publication_id="one")
            assert await orders.publish({"n": 1}, publication_id="one") == first
            with pytest.raises(penstock.StreamRefused, match="one"):
                await orders.publish({"n": 2}, publication_id="one")
            async with orders.subscribe(durable="all", start="earliest") as messages:
                await orders.publish({"n": 3})
                assert await taken(messages, 2) == [1, 3]

    run(repeating())


def test_a_key_chooses_the_pubend_and_order_holds_within_it() -> None:
    async def keyed() -> None:
        async with a_stream("a", "b", at=("a", "b", "a")) as (_, network):
            orders = network.stream("orders")
            for n in range(60):
                await orders.publish({"n": n, "key": n % 7}, key=f"key{n % 7}")
            async with orders.subscribe(durable="all", start="earliest") as messages:
                found = [message for _ in range(60) async for message in _once(messages)]
            assert len({message.pubend for message in found}) > 1
            for key in range(7):
                own = [message for message in found if message.attributes["key"] == key]
                assert len({message.pubend for message in own}) == 1
                assert [message.attributes["n"] for message in own] == list(range(key, 60, 7))
                assert sorted(message.tick for message in own) == [message.tick for message in own]

    async def _once(messages: penstock.StreamSubscription) -> AsyncIterator[penstock.StreamMessage]:
        yield await anext(messages)

    run(keyed())


def test_many_are_published_together_and_a_repeat_is_stored_once() -> None:
    async def publishing() -> None:
        async with a_stream("a", "b", at=("a", "b")) as (_, network):
            orders = network.stream("orders")
            many = [({"n": n}, b"", f"key{n}", f"id{n}") for n in range(5_000)]
            receipts = await orders.publish_many(many[:3_000])
            again = await orders.publish_many(iter(many))
            assert again[:3_000] == receipts
            assert len({(receipt.pubend, receipt.tick) for receipt in again}) == 5_000
            extents = (await orders.survey())["pubends"]
            assert sum(found["entries"] for found in extents) == 5_000
            with pytest.raises(penstock.InvalidMessage):
                await orders.publish_many([({"n": 1}, b"", "", ""), ({"n": object()}, b"", "", "")])
            with pytest.raises(penstock.StreamRefused, match="id1"):
                await orders.publish_many([({"n": -1}, b"", "key1", "id1"), ({"n": 2}, b"", "key2", "id2")])
            with pytest.raises(penstock.UnknownStream):
                await network.stream("odrers").publish_many(many)

    run(publishing())


def test_a_name_that_nobody_reads_under_can_hold_what_is_after_a_position() -> None:
    async def holding() -> None:
        async with a_stream("a", "b", at=("a", "b")) as (_, network):
            orders = network.stream("orders")
            receipts = [await orders.publish({"n": n}, key=f"key{n}") for n in range(20)]
            survey = {found["pubend"]: found["epoch"] for found in (await orders.survey())["pubends"]}
            for at in (3, 9, 6):  # on, and back again
                ticks = dict.fromkeys(survey, 0) | {receipt.pubend: receipt.tick for receipt in receipts[: at + 1]}
                await orders.hold("spark", [(pubend, survey[pubend], tick) for pubend, tick in ticks.items()])
                names = [found["names"][0] for found in (await orders.info(durable="spark"))["pubends"]]
                assert sum(name["lag"] for name in names) == 19 - at
            last = max(receipt.tick for receipt in receipts)
            with pytest.raises(penstock.StreamRefused, match="still needed by 'spark'"):
                await orders.trim(upto=last)

    run(holding())


def test_any_range_of_the_log_can_be_read_from_any_broker_as_often_as_one_likes() -> None:
    async def reading() -> None:
        async with a_stream("a", "b", "c", at=("a", "c")) as (brokers, network):
            orders = network.stream("orders")
            for n in range(20):
                await orders.publish({"n": n}, key=f"key{n}")
            survey = {found["pubend"]: found for found in (await orders.survey())["pubends"]}
            assert sum(found["entries"] for found in survey.values()) == 20
            for _ in range(2):
                count = 0
                for pubend, found in survey.items():
                    part = {"epoch": found["epoch"], "first": 0, "last": found["last"]}
                    async for read in orders.slices(pubend, where="n >= 5", **part):
                        assert (read.upto, read.gone) == (found["last"], 0)
                        count += sum(message.attributes["n"] >= 5 for message in read.messages())
                assert count == 15
                await brokers.crash("b")  # on the way to the first pubend
                await brokers.start("b")
            with pytest.raises(penstock.StreamRefused, match="made anew"):
                await anext(orders.slices("orders/0", epoch=1, first=0, last=1))
            with pytest.raises(penstock.UnknownStream):
                await network.stream("odrers").survey()

    run(reading())


def test_publishing_waits_for_a_broker_that_comes_back() -> None:
    async def waiting() -> None:
        async with a_stream("a", "b") as (brokers, network):
            await brokers.crash("a")
            stored = asyncio.create_task(published(network, *range(20)))
            await until(lambda: network.connected)
            assert not stored.done()
            await brokers.start("a")
            receipts = await stored
            assert len({receipt.tick for receipt in receipts}) == 20
            await brokers.crash("b")  # our own broker: we dial until it is there again
            stored = asyncio.create_task(published(network, 20))
            await until(lambda: not network.connected)
            await brokers.start("b")
            receipts += await stored
            async with network.stream("orders").subscribe(durable="all", start="earliest") as messages:
                assert sorted(await taken(messages, 21)) == list(range(21))

    run(waiting())


def test_after_a_while_it_is_given_up_and_publishing_it_again_under_the_same_id_makes_sure() -> None:
    async def giving_up() -> None:
        patience = StreamsClientConfig(give_up_after=0.3, retry_min=0.05)
        async with (
            a_stream("a", "b") as (brokers, _),
            penstock.connect(brokers.urls["b"], streams=patience) as network,
        ):
            orders = network.stream("orders")
            await brokers.crash("a")
            with pytest.raises(GIVEN_UP, match="cannot be reached"):  # unknown only if an attempt was under way
                await orders.publish({"n": 1}, publication_id="mine")
            await brokers.start("a")
            await _until_stored(orders, 1, "mine")
            await _until_stored(orders, 2, "another")
            async with orders.subscribe(durable="all", start="earliest") as messages:
                await _until_stored(orders, 3, "last")
                assert sorted(await taken(messages, 3)) == [1, 2, 3]

    async def _until_stored(orders: penstock.Stream, n: int, publication_id: str) -> None:
        while True:
            try:
                await orders.publish({"n": n}, publication_id=publication_id)
                return
            except GIVEN_UP:
                continue

    run(giving_up())


def test_closing_the_network_leaves_the_outcome_unknown() -> None:
    async def closing() -> None:
        async with a_stream("a", "b") as (brokers, _):
            network = await penstock.connect(brokers.urls["b"]).open()
            await brokers.crash("a")
            stored = asyncio.create_task(network.stream("orders").publish({"n": 1}))
            await asyncio.sleep(0)
            await network.close()
            with pytest.raises(penstock.OutcomeUnknown, match="closed"):
                await stored
            with pytest.raises(penstock.NotConnected):
                await network.stream("orders").publish({"n": 1})

    run(closing())


def test_network_publish_takes_a_stream_too() -> None:
    async def plainly() -> None:
        async with a_stream() as (_, network):
            identity = await network.publish({"n": 1}, stream="orders", key="IBM")
            async with network.stream("orders").subscribe(durable="all", start="earliest") as messages:
                assert (await anext(messages)).identity == identity
            with pytest.raises(InvalidOption, match="stream"):
                network.subscribe("TRUE", stream="orders", durable="all")

    run(plainly())


# Reading.


def test_asking_for_the_next_one_acknowledges_and_the_last_one_comes_again() -> None:
    async def auto() -> None:
        async with a_stream() as (_, network):
            await published(network, *range(10))
            orders = network.stream("orders")
            async with orders.subscribe(durable="billing", start="earliest") as messages:
                async for message in messages:
                    if message.attributes["n"] == 4:
                        break
            async with orders.subscribe(durable="billing") as messages:
                assert await taken(messages, 1) == [4], "nobody had asked for another after it"
                assert await taken(messages, 3) == [5, 6, 7]
                await messages.ack()
            async with orders.subscribe(durable="billing") as messages:
                assert await taken(messages, 2) == [8, 9]

    run(auto())


def test_with_manual_only_what_was_acknowledged_counts() -> None:
    async def manual() -> None:
        async with a_stream("a", "b") as (brokers, network):
            await published(network, *range(10))
            orders = network.stream("orders")
            async with orders.subscribe(durable="billing", start="earliest", ack="manual") as messages:
                found = [await anext(messages) for _ in range(6)]
                await messages.ack(found[2])
            async with orders.subscribe(durable="billing", ack="manual") as messages:
                assert await taken(messages, 7) == [3, 4, 5, 6, 7, 8, 9]
                await messages.ack()
            await brokers.crash("a")
            await brokers.start("a")
            await published(network, 10)
            async with orders.subscribe(durable="billing") as messages:
                assert await taken(messages, 1) == [10]

    run(manual())


def test_whoever_keeps_the_position_goes_on_behind_it_at_any_broker() -> None:
    async def keeping() -> None:
        async with a_stream("a", "b", "c", at=("a", "b")) as (brokers, network):
            for n in range(30):
                await network.stream("orders").publish({"n": n}, key=str(n))
            seen: list[int] = []
            kept: tuple[Any, ...] = ()
            for name in ("c", "a", "b"):
                async with penstock.connect(brokers.urls[name]) as elsewhere:
                    orders = elsewhere.stream("orders")
                    async with orders.subscribe(
                        durable="ledger", start="earliest", ack="manual", positions=kept
                    ) as messages:
                        seen += await taken(messages, 10)
                        kept = messages.positions()
                        assert messages.positions() == kept
            assert sorted(seen) == list(range(30))

    run(keeping())


def test_start_decides_where_a_new_name_begins() -> None:
    async def starting() -> None:
        async with a_stream() as (_, network):
            _, second, third = await published(network, 1, 2, 3)
            orders = network.stream("orders")
            cases: list[tuple[Any, list[int]]] = [
                ("earliest", [1, 2, 3, 4]),
                ("latest", [4]),
                (second.tick, [2, 3, 4]),
                (str(third.tick), [3, 4]),
                ("10m", [1, 2, 3, 4]),
                (timedelta(hours=1), [1, 2, 3, 4]),
                (datetime.now(UTC) - timedelta(minutes=5), [1, 2, 3, 4]),
            ]
            opened = [await orders.subscribe(durable=f"n{n}", start=start).open() for n, (start, _) in enumerate(cases)]
            await published(network, 4)
            for messages, (start, expected) in zip(opened, cases, strict=True):
                assert await taken(messages, len(expected)) == expected, start
                await messages.close()
            with pytest.raises(InvalidOption, match="earliest"):
                orders.subscribe(durable="x", start="yesterday")

    run(starting())


def test_a_second_reader_is_refused_or_takes_over() -> None:
    async def two() -> None:
        async with a_stream("a", "b") as (brokers, network), penstock.connect(brokers.urls["a"]) as other:
            await published(network, 1, 2, 3)
            first = await network.stream("orders").subscribe(durable="billing", start="earliest").open()
            assert await taken(first, 1) == [1]
            with pytest.raises(penstock.StreamRefused, match="billing"):
                await other.stream("orders").subscribe(durable="billing").open()
            async with other.stream("orders").subscribe(durable="billing", takeover=True) as second:
                with pytest.raises(penstock.ReaderEnded, match="billing"):
                    await taken(first, 1_000)
                with pytest.raises(penstock.ReaderEnded):
                    await first.ack()
                assert (await taken(second, 2))[-1] == 2
            await first.close()

    run(two())


def test_a_slow_reader_loses_nothing_and_holds_up_nobody() -> None:
    async def slowly() -> None:
        few = StreamsClientConfig(window=10)
        async with (
            a_stream("a", "b") as (brokers, network),
            penstock.connect(brokers.urls["b"], streams=few) as slow,
            slow.stream("orders").subscribe(durable="slow", start="earliest") as behind,
        ):
            await published(network, *range(500))
            async with network.stream("orders").subscribe(durable="fast", start="earliest") as messages:
                assert await taken(messages, 500) == list(range(500))
            assert behind.report().queue <= 20
            assert await behind.lag() == 500
            assert await taken(behind, 500) == list(range(500))
            await behind.ack()
            assert await behind.lag() == 0

    run(slowly())


def test_reading_goes_on_through_crashes_of_every_broker_on_the_way() -> None:
    async def through() -> None:
        async with a_stream("a", "b", "c") as (brokers, network):
            orders = network.stream("orders")
            async with orders.subscribe(durable="billing", start="earliest") as messages:
                seen: list[int] = []
                for turn, name in enumerate(("a", "b", "c")):
                    stored = asyncio.create_task(published(network, *range(turn * 100, turn * 100 + 100)))
                    seen += await taken(messages, 10)
                    await brokers.crash(name)
                    await brokers.start(name)
                    await stored
                seen += await taken(messages, 300 - len(seen))
                assert sorted(seen) == list(range(300))
                assert messages.positions()[0][2] > 0

    run(through())


def test_a_gap_is_told_once_and_reading_goes_on_behind_it() -> None:
    async def gap() -> None:
        async with a_stream() as (_, network):
            orders = network.stream("orders")
            receipts = await published(network, 0, 1, 2, 3, 4)
            async with orders.subscribe(durable="late", start="earliest") as messages:
                assert await taken(messages, 1) == [0]
                await messages.ack()
            with pytest.raises(penstock.StreamRefused, match="late"):
                await orders.trim(upto=receipts[2].tick)
            assert (await orders.trim(upto=receipts[2].tick, force=True))["pubends"][0]["entries"] == 3
            async with orders.subscribe(durable="late") as messages:
                with pytest.raises(penstock.StreamGap, match="orders/0") as told:
                    await anext(messages)
                assert told.value.first <= receipts[1].tick <= receipts[2].tick <= told.value.last
                assert await taken(messages, 2) == [3, 4]
                assert messages.report().gaps == 1

    run(gap())


def test_iterating_without_opening_opens_it() -> None:
    async def plainly() -> None:
        async with a_stream() as (_, network):
            await published(network, 1)
            async for message in network.stream("orders").subscribe(durable="x", start="earliest"):
                assert message.attributes == {"n": 1}
                break

    run(plainly())


# Looking after them.


def test_streams_are_listed_described_verified_and_removed() -> None:
    async def commands() -> None:
        async with (
            a_stream("a", "b", at=("a", "b")) as (brokers, network),
            penstock.connect(brokers.urls["a"]) as other,
        ):
            await network.add_stream("news", at=["b"])
            await until(lambda: _listed(other, ["news", "orders"]))
            orders = network.stream("orders")
            await published(network, *range(10), key="one")
            async with orders.subscribe("n >= 5", durable="billing", start="earliest") as messages:
                assert await taken(messages, 2) == [5, 6]
                await messages.ack()
            info = await other.stream("orders").info()
            assert sum(pubend["entries"] for pubend in info["pubends"]) == 10
            assert sum(name["lag"] for pubend in info["pubends"] for name in pubend["names"]) == 3
            assert all(not pubend["damage"] for pubend in (await orders.verify())["pubends"])
            with pytest.raises(penstock.StreamRefused, match="force"):
                await orders.remove()
            await orders.remove(durable="billing")
            await orders.remove(force=True)
            await until(lambda: _listed(other, ["news"]))
            with pytest.raises(penstock.StreamRefused, match="already"):
                await network.add_stream("news", at=["a"])
            with pytest.raises(penstock.StreamRefused, match="no broker 'z'"):
                await network.add_stream("more", at=["z"])

    async def _listed(network: penstock.Network, names: list[str]) -> bool:
        return [stream["stream"] for stream in await network.streams()] == names

    run(commands())


# Bad input.


def test_an_unknown_stream_is_an_error_that_names_the_one_that_was_meant() -> None:
    async def unknown() -> None:
        async with a_stream() as (_, network):
            with pytest.raises(penstock.UnknownStream, match="orders"):
                await network.stream("order").publish({"n": 1})
            with pytest.raises(penstock.UnknownStream):
                await network.stream("order").subscribe(durable="x").open()
            with pytest.raises(penstock.UnknownStream):
                await network.stream("order").info()

    run(unknown())


def test_names_and_positions_that_cannot_be_are_refused_before_anything_is_sent() -> None:
    async def bad() -> None:
        async with a_stream() as (_, network):
            for name in ("", "a b", "x" * 65, "a/0", 7):
                with pytest.raises(InvalidOption, match="stream"):
                    network.stream(name)  # type: ignore[arg-type]  # that is the point
            orders = network.stream("orders")
            with pytest.raises(InvalidOption, match="limit is 128") as long:
                orders.subscribe(durable="x" * 10_000)
            assert len(str(long.value)) < 300
            with pytest.raises(InvalidOption, match="durable"):
                orders.subscribe(durable="")
            with pytest.raises(penstock.InvalidPredicate):
                orders.subscribe("n >", durable="x")
            with pytest.raises(InvalidOption, match="ack"):
                orders.subscribe(durable="x", ack="never")  # type: ignore[arg-type]  # that is the point
            for positions in ([("other/0", 1, 1)], [("orders/0", 1)], [("orders/0", "x", 1)], 7):
                with pytest.raises(InvalidOption, match="positions"):
                    orders.subscribe(durable="x", positions=positions)  # type: ignore[arg-type]  # likewise
            with pytest.raises(penstock.InvalidMessage):
                await orders.publish({"n": object()})  # type: ignore[dict-item]  # likewise
            with pytest.raises(penstock.StreamRefused, match="key"):
                await orders.publish({"n": 1}, key="k" * 300)
            with pytest.raises(penstock.StreamRefused, match="publication_id"):
                await orders.publish({"n": 1}, publication_id="i" * 100)
            assert (await orders.info())["pubends"][0]["entries"] == 0
            assert (await orders.info())["pubends"][0]["names_in_all"] == 0

    run(bad())


def test_a_position_in_the_future_or_of_another_life_of_the_stream_is_refused() -> None:
    async def future() -> None:
        async with a_stream() as (_, network):
            await published(network, 1)
            orders = network.stream("orders")
            async with orders.subscribe(durable="x", start="earliest") as messages:
                await anext(messages)
                ((pubend, epoch, tick),) = messages.positions()
            with pytest.raises(penstock.StreamRefused, match="future"):
                await orders.subscribe(durable="x", positions=[(pubend, epoch, tick + 10**12)]).open()
            with pytest.raises(penstock.StreamRefused, match="epoch"):
                await orders.subscribe(durable="x", positions=[(pubend, epoch + 1, tick)]).open()
            assert (await orders.info())["pubends"][0]["names"][0]["lag"] == 1

    run(future())


def test_a_message_of_another_stream_cannot_be_acknowledged_here() -> None:
    async def foreign() -> None:
        async with a_stream() as (_, network):
            await network.add_stream("news", at=["broker"])
            await published(network, 1)
            await network.stream("news").publish({"n": 1})
            async with (
                network.stream("orders").subscribe(durable="x", start="earliest", ack="manual") as orders,
                network.stream("news").subscribe(durable="x", start="earliest", ack="manual") as news,
            ):
                ours, theirs = await anext(orders), await anext(news)
                with pytest.raises(InvalidOption, match="news"):
                    await orders.ack(theirs)
                with pytest.raises(InvalidOption, match="none of a stream"):
                    await orders.ack(penstock.Message(ours.identity, {}, b"", 0))  # type: ignore[arg-type]
                await orders.ack(ours)
            with pytest.raises(StreamError, match="not open"):
                await orders.ack(ours)

    run(foreign())


def test_a_broker_that_stores_nothing_hosts_no_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def nowhere() -> None:
        from penstock.live.broker.plan import BrokerPlan
        from penstock.live.broker.server import BrokerServer
        from penstock.live.wire.addresses import Address

        server = BrokerServer(BrokerPlan(name="bare", listen=Address("127.0.0.1", 0)))
        await server.start()
        try:
            async with penstock.connect(f"penstock://{server.address}") as network:
                with pytest.raises(penstock.StreamRefused, match="--data"):
                    await network.add_stream("orders", at=["bare"])
        finally:
            await server.stop()

    run(nowhere())


# Without async.


STREAM = {
    *("begin", "failed", "hold", "info", "name", "over", "publish", "publish_many", "remove", "report", "slices"),
    *("subscribe", "survey", "trim", "verify"),
}
READER = {
    *("ack", "close", "durable", "in_force_after", "lag", "number", "open", "options", "positions", "report"),
    *("stream", "take", "where"),
}


def test_the_names_for_users_are_pinned_and_the_blocking_twins_have_the_same() -> None:
    stream = penstock.connect("penstock://127.0.0.1:1").stream("orders")
    twin = penstock.connect_blocking("penstock://127.0.0.1:1").stream("orders")
    reader, twin_reader = stream.subscribe(durable="x"), twin.subscribe(durable="x")
    assert public(stream) == public(twin) == STREAM
    assert public(reader) == public(twin_reader) == READER
    member, twin_member = stream.subscribe(durable="y", share=True), twin.subscribe(durable="y", share=True)
    assert public(member) == public(twin_member) == {*READER, "reject"}
    for one, other in ((stream, twin), (reader, twin_reader), (member, twin_member)):
        for name in public(one):
            if callable(getattr(one, name)):
                found = arguments(getattr(other, name))
                found.pop("timeout", None)  # asyncio has its own way to say this
                assert found == arguments(getattr(one, name)), name


def test_the_same_verbs_without_await() -> None:
    with embedded_network_blocking(("a", "b")) as brokers, penstock.connect_blocking(brokers.urls["b"]) as network:
        network.add_stream("orders", at=["a"])
        orders = network.stream("orders")
        assert orders.name == "orders"
        receipts = [orders.publish({"n": n}, key="one") for n in range(20)]
        with orders.subscribe("n >= 2", durable="billing", start="earliest") as messages:
            seen = []
            for message in messages:
                seen.append(message.attributes["n"])
                if len(seen) == 5:
                    break
            assert messages.positions()[0][2] >= receipts[6].tick
            assert messages.positions()[0][2] < receipts[7].tick
        with orders.subscribe("n >= 2", durable="billing") as messages:
            assert [message.attributes["n"] for message in messages.take(3)] == [6, 7, 8]
            messages.ack()
            assert messages.lag() == 11
        with orders.subscribe("n >= 2", durable="billing", ack="manual") as messages:
            first = messages.take(1)[0]
            assert first.attributes["n"] == 9
            messages.ack(first)
            kept = messages.positions()
        with orders.subscribe("n >= 2", durable="other", positions=kept) as messages:
            rest: list[Any] = []
            while len(rest) < 10:
                rest += [message.attributes["n"] for message in messages.take()]
            assert rest == list(range(10, 20))
            assert messages.take(timeout=0.01) == []
        assert [stream["stream"] for stream in network.streams()] == ["orders"]
        assert orders.info()["pubends"][0]["entries"] == 20
        assert orders.verify()["pubends"][0]["damage"] == ""
        assert orders.trim(upto=receipts[1].tick, force=True)["pubends"][0]["entries"] == 2
        orders.remove(force=True)


def test_settings_of_the_service_reach_the_brokers() -> None:
    async def short() -> None:
        node = NodeConfig(services={"streams": StreamsConfig(names_max=1)})
        async with a_stream(node=node) as (_, network):
            orders = network.stream("orders")
            async with orders.subscribe(durable="one"):
                with pytest.raises(penstock.StreamRefused, match="names_max"):
                    await orders.subscribe(durable="two").open()

    run(short())

"""The Python client against a real broker: its promises, one by one."""

from __future__ import annotations

import asyncio
import logging

import pytest

import penstock
from live_help import a_broker, a_line, a_network, dropped, known, run, subscriptions, until, url
from penstock.errors import InvalidMessage, InvalidPredicate, NotConnected, PenstockError, Unreachable
from penstock.live.broker.plan import BrokerPlan
from penstock.live.broker.server import BrokerServer
from penstock.live.wire.addresses import Address, free_ports
from penstock.overlay.broker import BrokerConfig


def test_the_example_of_the_readme() -> None:
    async def example() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            async with network.subscribe("symbol = 'IBM' AND price < 120") as messages:
                await network.publish({"symbol": "IBM", "price": 121.0}, b"too dear")
                sent = await network.publish({"symbol": "IBM", "price": 119.5}, b"...")
                async for message in messages:
                    assert message.identity == sent
                    assert message.attributes == {"symbol": "IBM", "price": 119.5}
                    assert message.body == b"..."
                    break
                report = messages.report()
                assert (report.received, report.dropped, report.queue, report.connected) == (1, 0, 0, True)
            assert (await network.broker_report())["clients"][0]["subscriptions"] == 0

    run(example())


def test_messages_cross_brokers_and_each_subscription_gets_its_own() -> None:
    async def crossing() -> None:
        async with (
            a_network(a_line("a", "b", "c", kind="reliable")) as brokers,
            penstock.connect(url(brokers["a"])) as here,
            penstock.connect(url(brokers["c"])) as there,
            there.subscribe("n < 5") as low,
            there.subscribe("n >= 3") as high,
        ):
            await known(brokers["a"], 1)
            for n in range(8):
                await here.publish({"n": n})
            assert [(await anext(low)).attributes["n"] for _ in range(5)] == list(range(5))
            assert [(await anext(high)).attributes["n"] for _ in range(5)] == list(range(3, 8))

    run(crossing())


def test_a_wrong_predicate_is_refused_before_anything_is_sent() -> None:
    async def wrong() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            with pytest.raises(InvalidPredicate):
                network.subscribe("symbol = = 3")
            with pytest.raises(InvalidMessage):
                await network.publish({"_reserved": 1})

    run(wrong())


def test_a_subscription_that_the_broker_refuses_raises_its_reason() -> None:
    async def refused() -> None:
        async with a_broker() as broker:
            broker.node.broker._config = BrokerConfig(subscriptions_per_client_max=1)
            async with penstock.connect(url(broker)) as network, network.subscribe("a = 1"):
                with pytest.raises(InvalidPredicate, match="subscriptions_per_client_max is 1"):
                    async with network.subscribe("b = 1"):
                        raise AssertionError("it must not open")

    run(refused())


def test_a_slow_reader_loses_the_oldest_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def slow() -> None:
        told: list[int] = []
        async with (
            a_broker() as broker,
            penstock.connect(url(broker)) as network,
            network.subscribe("n >= 0", queue_max=10, on_drop=told.append) as messages,
        ):
            for n in range(50):
                await network.publish({"n": n})
            await until(lambda: messages.report().received == 50)
            assert [message.attributes["n"] for message in await messages.take()] == list(range(40, 50))
            assert messages.report().dropped == 40
            assert told == list(range(1, 41))

    with caplog.at_level(logging.WARNING):
        run(slow())
    assert "the reader is slow" in caplog.text


def test_addresses_are_tried_in_turn_and_the_last_error_names_them_all() -> None:
    async def turns() -> None:
        (closed,) = free_ports(1)
        async with a_broker() as broker, penstock.connect(f"penstock://127.0.0.1:{closed},{broker.address}") as network:
            assert network.address == broker.address
        with pytest.raises(Unreachable, match=f"127.0.0.1:{closed}.*refused.*penstock up"):
            async with penstock.connect(f"penstock://127.0.0.1:{closed}", connect_within=0.2):
                raise AssertionError("there is nobody")

    run(turns())


def test_a_client_finds_its_broker_again_subscribes_by_itself_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def again() -> None:
        (port,) = free_ports(1)
        plan = BrokerPlan(name="solo", listen=Address("127.0.0.1", port))
        first = BrokerServer(plan)
        await first.start()
        async with penstock.connect(url(first)) as network, network.subscribe("n >= 0") as messages:
            await network.publish({"n": 1})
            assert (await anext(messages)).attributes == {"n": 1}
            await first.stop()
            await until(lambda: not network.connected)
            with pytest.raises(NotConnected, match="publish again"):
                await network.publish({"n": 2})
            second = BrokerServer(plan)
            await second.start()
            await until(lambda: second.node.broker.subscriptions_of(0) == 1)
            sent = await network.publish({"n": 3})
            assert (await anext(messages)).identity == sent
            assert messages.report().reconnects == 1
        await second.stop()

    with caplog.at_level(logging.WARNING):
        run(again())
    assert "lost the connection" in caplog.text
    assert "connected again" in caplog.text


def test_a_client_moves_to_the_other_broker_of_its_url() -> None:
    async def moves() -> None:
        async with a_network(a_line("a", "b", kind="reliable")) as brokers:
            both = f"penstock://{brokers['a'].address},{brokers['b'].address}"
            async with penstock.connect(both) as network, network.subscribe("n = 1") as messages:
                assert network.address == brokers["a"].address
                await brokers["a"].stop()
                await until(lambda: subscriptions(brokers["b"]) == 1)
                await network.publish({"n": 1})
                assert (await anext(messages)).attributes == {"n": 1}

    run(moves())


def test_a_refusal_when_subscribing_again_reaches_the_reader() -> None:
    async def refused_later() -> None:
        async with a_network(a_line("a", "b", kind="reliable")) as brokers:
            brokers["b"].node.broker._config = BrokerConfig(subscriptions_per_client_max=0)
            both = f"penstock://{brokers['a'].address},{brokers['b'].address}"
            async with penstock.connect(both) as network, network.subscribe("n = 1") as messages:
                await brokers["a"].stop()
                with pytest.raises(InvalidPredicate, match="subscriptions_per_client_max"):
                    await anext(messages)

    run(refused_later())


def test_closing_ends_the_iteration_and_unsubscribes() -> None:
    async def closing() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            messages = await network.subscribe("TRUE").open()
            reading = asyncio.ensure_future(collect(messages))
            await network.publish({"n": 1})
            await until(lambda: messages.report().received == 1)
            await messages.close()
            assert await reading == [{"n": 1}]
            await until(lambda: broker.node.broker.subscriptions_of(0) == 0)

    async def collect(messages: penstock.Subscription) -> list[object]:
        return [message.attributes async for message in messages]

    run(closing())


def test_all_that_was_published_before_closing_arrives() -> None:
    async def all_of_it() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker)) as reader,
            reader.subscribe("n >= 0", queue_max=100_000) as messages,
        ):
            async with penstock.connect(url(broker)) as network:
                for n in range(3000):
                    await network.publish({"n": n}, bytes(500))
            await until(lambda: messages.report().received == 3000)
            assert dropped(broker) == 0

    run(all_of_it())


def test_a_full_megabyte_goes_through_beside_small_ones() -> None:
    async def large() -> None:
        async with (
            a_network(a_line("a", "b", kind="reliable")) as brokers,
            penstock.connect(url(brokers["a"])) as here,
            penstock.connect(url(brokers["b"])) as there,
            there.subscribe("n >= 0") as messages,
        ):
            await known(brokers["a"], 1)
            for n in range(12):
                await here.publish({"n": n}, bytes(1 << 20 if n % 4 == 0 else 10))
            sizes = [len((await anext(messages)).body) for _ in range(12)]
            assert sorted(sizes) == [10] * 9 + [1 << 20] * 3

    run(large())


def test_a_fast_publisher_of_large_messages_waits_instead_of_losing_them() -> None:
    async def fast() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            await asyncio.gather(*(publish(network, 20) for _ in range(10)))
            assert network._link.host.drops == {}
            await until(lambda: sum(connection.packets_in for connection in broker.connections) >= 200)

    async def publish(network: penstock.Network, count: int) -> None:
        for n in range(count):
            await network.publish({"n": n}, bytes(300_000))

    run(fast())


def test_without_await_the_same_verbs() -> None:
    async def serve() -> None:
        async with a_broker() as broker:
            await asyncio.to_thread(use, url(broker))

    def use(address: str) -> None:
        with penstock.connect_blocking(address) as network:
            with network.subscribe("n > 1") as messages:
                for n in range(4):
                    network.publish({"n": n})
                got = []
                for message in messages:
                    got.append(message.attributes["n"])
                    if len(got) == 2:
                        break
                assert got == [2, 3]
                assert messages.take(timeout=0.01) == []
                assert messages.report().received == 2
            assert network.broker_report()["broker"] == "solo"
            with pytest.raises(InvalidPredicate):
                network.subscribe("n >")
        with pytest.raises(Unreachable), penstock.connect_blocking("penstock://127.0.0.1:1", connect_within=0.1):
            raise AssertionError("there is nobody")

    run(serve())


def test_a_url_that_is_none_is_an_error_at_once() -> None:
    with pytest.raises(PenstockError, match="penstock://"):
        penstock.connect("localhost:7420")


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def from_environment() -> None:
        async with a_broker() as broker:
            monkeypatch.setenv("PENSTOCK_URL", url(broker))
            async with penstock.connect() as network:
                assert network.address == broker.address

    run(from_environment())

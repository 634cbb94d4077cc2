"""The Python client against a real broker: its promises, one by one."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import penstock
from live_help import a_broker, a_network, dropped, known, run, subscriptions, until, url
from penstock.errors import InvalidMessage, InvalidPredicate, NotConnected, PenstockError, Unreachable
from penstock.kernel.trace import Published, Record
from penstock.live.broker.server import BrokerServer
from penstock.live.host import node_time
from penstock.live.wire.addresses import free_ports
from penstock.overlay.broker import Broker
from penstock.overlay.config import BrokerConfig
from penstock.testing import embedded_network


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
            a_network(("a", "b", "c")) as brokers,
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


def test_a_predicate_that_can_never_match_is_logged_when_subscribing(caplog: pytest.LogCaptureFixture) -> None:
    async def odd() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            network.subscribe("price < 5")
            assert caplog.records == []
            network.subscribe("price < 5 AND price = 'x'")

    run(odd())
    said = [(record.name, record.levelname) for record in caplog.records]
    assert said == [("penstock.client", "WARNING")] * 2
    assert "price = 'x' with a string" in caplog.text
    assert "no message can match" in caplog.text


def test_a_subscription_that_the_broker_refuses_raises_its_reason() -> None:
    async def refused() -> None:
        async with a_broker() as broker:
            broker.node.machine(Broker)._config = BrokerConfig(subscriptions_per_client_max=1)
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
        async with (
            embedded_network() as brokers,
            penstock.connect(brokers.url) as network,
            network.subscribe("n >= 0") as messages,
        ):
            await network.publish({"n": 1})
            assert (await anext(messages)).attributes == {"n": 1}
            await brokers.stop("broker")
            await until(lambda: not network.connected)
            with pytest.raises(NotConnected, match="publish again"):
                await network.publish({"n": 2})
            await brokers.start("broker")
            await until(lambda: subscriptions(brokers.servers["broker"]) == 1)
            sent = await network.publish({"n": 3})
            assert (await anext(messages)).identity == sent
            assert messages.report().reconnects == 1

    with caplog.at_level(logging.WARNING):
        run(again())
    assert "lost the connection" in caplog.text
    assert "connected again" in caplog.text


def test_a_client_moves_to_the_other_broker_of_its_url() -> None:
    async def moves() -> None:
        async with a_network(("a", "b")) as brokers:
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
        async with a_network(("a", "b")) as brokers:
            brokers["b"].node.machine(Broker)._config = BrokerConfig(subscriptions_per_client_max=1)
            both = f"penstock://{brokers['a'].address},{brokers['b'].address}"
            async with (
                penstock.connect(both) as network,
                network.subscribe("n = 2") as first,
                network.subscribe("n = 1") as second,
            ):
                await brokers["a"].stop()
                with pytest.raises(InvalidPredicate, match="subscriptions_per_client_max"):
                    await anext(second)
                await network.publish({"n": 2})
                assert (await anext(first)).attributes == {"n": 2}

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
            await until(lambda: broker.node.machine(Broker).subscriptions_of(0) == 0)

    async def collect(messages: penstock.Subscription) -> list[object]:
        return [message.attributes async for message in messages]

    run(closing())


def test_a_subscription_that_nobody_opened_opens_when_it_is_read_and_closes_when_nobody_holds_it() -> None:
    async def reading() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            async for message in _published_when_open(broker, network, network.subscribe("n = 1")):
                assert message.attributes == {"n": 1}
                break
            await until(lambda: subscriptions(broker) == 0)

            held = network.subscribe("n = 2")
            with pytest.raises(TimeoutError):  # to give up reading does not close it again
                await asyncio.wait_for(held.take(), 0.0)
            several = [asyncio.ensure_future(anext(held)) for _ in range(2)]
            await until(lambda: subscriptions(broker) == 1)
            await network.publish({"n": 2})
            await network.publish({"n": 2})
            assert [message.attributes["n"] for message in await asyncio.gather(*several)] == [2, 2]
            with pytest.raises(PenstockError, match="opened before"):
                await held.open()

            never = network.subscribe("n = 3")
            await never.close()
            assert await never.take() == []
            with pytest.raises(PenstockError, match="closed"):
                await never.open()
            left = asyncio.ensure_future(held.take())
            await asyncio.sleep(0)
        assert await left == [], "the network was closed"

    run(reading())


def _published_when_open(
    broker: BrokerServer, network: penstock.Network, messages: penstock.Subscription
) -> penstock.Subscription:
    async def publish() -> None:
        await until(lambda: subscriptions(broker) == 1)
        await network.publish({"n": 1})

    network.publishing = asyncio.ensure_future(publish())  # type: ignore[attr-defined]
    return messages


def test_a_reader_of_a_subscription_that_cannot_be_opened_hears_why_and_never_hangs() -> None:
    async def reading() -> None:
        async with a_broker() as broker:
            network = penstock.connect(url(broker))
            early = network.subscribe("n = 1")
            with pytest.raises(NotConnected, match="open the network"):
                await anext(early)
            async with network:
                await network.publish({"n": 0})
                broker.node.machine(Broker)._config = BrokerConfig(subscriptions_per_client_max=1)
                reading = asyncio.ensure_future(early.take())
                await until(lambda: subscriptions(broker) == 1)
                refused = network.subscribe("n = 2")
                answers = await asyncio.gather(refused.take(), anext(refused), return_exceptions=True)
                assert [type(answer) for answer in answers] == [InvalidPredicate] * 2
                with pytest.raises(InvalidPredicate, match="subscriptions_per_client_max is 1"):
                    await refused.take()
                await network.publish({"n": 1})
                assert [message.attributes for message in await reading] == [{"n": 1}]

    run(reading())


def test_a_reader_that_nobody_holds_is_not_collected_while_it_waits() -> None:
    async def reads_on() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            got: list[int] = []

            async def consume() -> None:
                async for message in network.subscribe("EXISTS n"):
                    got.append(message.attributes["n"])  # type: ignore[arg-type]

            asyncio.get_running_loop().create_task(consume())
            await until(lambda: subscriptions(broker) == 1)
            for number in range(3):
                await network.publish({"n": number})
                await until(lambda: len(got) == number + 1)  # noqa: B023
                gc.collect()
            assert got == [0, 1, 2]

    run(reads_on())


def test_without_await_reading_opens_too() -> None:
    async def serve() -> None:
        async with a_broker() as broker:
            await asyncio.to_thread(use, broker)

    def use(broker: BrokerServer) -> None:
        with penstock.connect_blocking(url(broker)) as network:
            messages = network.subscribe("n >= 0")
            while not messages.report().received:
                network.publish({"n": 1})
                messages.take(timeout=0.01)
            network.publish({"n": 2})
            assert next(message.attributes["n"] for message in messages if message.attributes["n"] > 1) == 2
            del messages
            while network.broker_report()["clients"][0]["subscriptions"]:
                pass

    run(serve())


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
            a_network(("a", "b")) as brokers,
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


def test_a_publication_that_was_cancelled_while_it_waited_for_the_socket_does_not_leave() -> None:
    async def cancelled() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker)) as network,
            network.subscribe("n > 0") as messages,
        ):
            link, socket_has_room = network._link, asyncio.Event()
            assert link is not None
            let_out, link.let_out = link.let_out, socket_has_room.wait  # type: ignore[method-assign,assignment]
            link.outbox_bytes = 1 << 20
            given_up, kept = [asyncio.ensure_future(network.publish({"n": n})) for n in (1, 2)]
            await asyncio.sleep(0)
            given_up.cancel()
            link.let_out, link.outbox_bytes = let_out, 0  # type: ignore[method-assign]
            socket_has_room.set()
            assert (await kept).count == 1
            assert (await anext(messages)).attributes == {"n": 2}

    run(cancelled())


def test_the_trace_says_how_long_publish_waited_for_the_socket() -> None:
    class Kept:
        lines: ClassVar[list[Record]] = []

        def write(self, time: float, node: str, record: Record) -> None:
            self.lines.append(record)

    async def held_up() -> None:
        async with a_broker() as broker, penstock.connect(url(broker), trace=Kept()) as network:
            link, socket_has_room = network._link, asyncio.Event()
            assert link is not None
            await network.publish({"n": 1})
            await asyncio.sleep(0)  # it leaves at the end of this turn of the loop
            let_out, link.let_out = link.let_out, socket_has_room.wait  # type: ignore[method-assign,assignment]
            link.outbox_bytes = 1 << 20
            waiting = asyncio.ensure_future(network.publish({"n": 2}))
            await asyncio.sleep(0)
            began = link.host.now()
            await until(lambda: link.host.now() >= began + 0.01)
            link.let_out, link.outbox_bytes = let_out, 0  # type: ignore[method-assign]
            socket_has_room.set()
            await waiting

    run(held_up())
    first, second = (record.waited for record in Kept.lines if isinstance(record, Published))
    assert first >= 0.0
    assert second >= 0.01


@pytest.mark.parametrize("transport", [False, True])
def test_the_beginning_that_a_trace_records_lies_within_the_call_of_publish(transport: bool) -> None:
    """Also for the last message of a long batch, whose record is written long after the machine was asked."""
    begins: dict[int, float] = {}
    calls: dict[int, tuple[float, float]] = {}

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, Published):
                begins[record.count] = time - record.waited

    async def batches() -> None:
        async with a_broker() as broker, penstock.connect(url(broker), trace=Kept(), transport=transport) as network:
            await asyncio.gather(*(publish(network, 200) for _ in range(4)))

    async def publish(network: penstock.Network, count: int) -> None:
        for n in range(count):
            before = node_time()
            identity = await network.publish({"n": n})
            calls[identity.count] = (before, node_time())

    run(batches())
    assert begins.keys() == calls.keys()
    outside = {count: at for count, at in begins.items() if not calls[count][0] - 1e-6 <= at <= calls[count][1] + 1e-6}
    assert outside == {}


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


NETWORK = {
    "add_stream",
    "address",
    "broker_report",
    "close",
    "connected",
    "flows",
    "incarnation",
    "lost_at_broker",
    "lost_in_connection",
    "name",
    "on_withheld",
    "open",
    "price",
    "publish",
    "reconnects",
    "retrieve",
    "slowed",
    "stream",
    "streams",
    "subscribe",
    "trace",
    "wait_connected",
    "withheld",
}
SUBSCRIPTION = {"close", "number", "open", "options", "ready_within", "report", "take", "unconfirmed", "where"}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def arguments(function: Any) -> dict[str, object]:
    return {name: (given.kind, given.default) for name, given in inspect.signature(function).parameters.items()}


def test_the_names_for_users_are_pinned_and_the_blocking_twins_have_the_same() -> None:
    """A new name is one that users will use: it must be meant."""

    async def made() -> tuple[penstock.Network, penstock.Subscription]:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker)) as network,
            network.subscribe("TRUE") as messages,
        ):
            return network, messages

    assert arguments(penstock.connect) == arguments(penstock.connect_blocking)
    network, messages = run(made())
    blocking = penstock.connect_blocking("penstock://127.0.0.1:1")
    assert public(network) == public(blocking) == NETWORK
    assert public(messages) == public(blocking.subscribe("TRUE")) == SUBSCRIPTION
    for one, twin in (
        (penstock.Network, penstock.BlockingNetwork),
        (penstock.Subscription, penstock.BlockingSubscription),
    ):
        assert public(one) <= public(twin), "what the class says is there too"
    for one, twin, names in ((network, blocking, NETWORK), (messages, blocking.subscribe("TRUE"), SUBSCRIPTION)):
        for name in names:
            if callable(getattr(one, name)):
                wanted, found = arguments(getattr(one, name)), arguments(getattr(twin, name))
                if name == "take":  # asyncio has its own way to say this
                    del found["timeout"]
                assert found == wanted, name
            else:
                assert not callable(getattr(twin, name)), name


def test_the_blocking_twins_say_the_same() -> None:
    async def serve() -> None:
        async with a_broker() as broker:
            await asyncio.to_thread(use, broker)

    def use(broker: BrokerServer) -> None:
        with penstock.connect_blocking(url(broker), name="twin") as network:
            assert (network.name, network.connected, network.reconnects) == ("twin", True, 0)
            assert (network.address, network.lost_at_broker, network.withheld) == (broker.address, 0, 0)
            assert network.incarnation == network.publish({"n": 0}).incarnation
            network.wait_connected()
            assert network.broker_report(within=3.0)["clients_connected"] == 1
            assert network.flows() == []
            messages = network.subscribe("n > 1", queue_max=50, ordered=True).open()
            assert (messages.where, messages.number, messages.options.ordered) == ("n > 1", 0, True)
            messages.close()
            assert messages.take() == []

    run(serve())


def test_without_await_what_an_iteration_leaves_is_there_for_the_next() -> None:
    async def serve() -> None:
        async with a_broker() as broker:
            await asyncio.to_thread(use, url(broker))

    def use(address: str) -> None:
        with penstock.connect_blocking(address) as network:
            with network.subscribe("n >= 0") as messages:
                for n in range(10):
                    network.publish({"n": n})
                while messages.report().received < 10:
                    network.broker_report()
                for message in messages:
                    if message.attributes["n"] == 3:
                        break
                assert [message.attributes["n"] for message in messages.take(2)] == [4, 5]
                assert next(iter(messages)).attributes == {"n": 6}
            assert [message.attributes["n"] for message in messages] == [7, 8, 9]  # closed: to its end

    run(serve())


def test_without_await_a_network_that_is_not_open_says_so_and_never_hangs() -> None:
    async def serve() -> None:
        async with a_broker() as broker:
            await asyncio.to_thread(use, url(broker))

    def use(address: str) -> None:
        network = penstock.connect_blocking(address)
        messages = network.subscribe("TRUE", queue_max=1, on_drop=lambda dropped: problems.append(verb_inside()))
        problems: list[str] = []

        def verb_inside() -> str:
            with pytest.raises(PenstockError) as caught:
                network.publish({"n": 1})
            return str(caught.value)

        verbs: list[Callable[[], object]] = [
            lambda: network.publish({"n": 1}),
            network.broker_report,
            network.wait_connected,
            network.subscribe("TRUE").open,
        ]
        for verb in (*verbs, messages.take):
            with pytest.raises(NotConnected, match="open the network"):
                verb()
        assert (network.flows(), messages.report().received, network.connected) == ([], 0, False)
        with network:
            with pytest.raises(PenstockError, match="opened before"):
                network.open()
            with messages:
                network.publish({"n": 1})
                network.publish({"n": 2})
                while not messages.report().dropped:
                    network.broker_report()
                network.close()
                assert messages.take() == list(messages) == []
        assert problems == ["the network's own thread would wait for itself; let another one use its verbs"]
        for verb in verbs:
            with pytest.raises(NotConnected, match="closed"):
                verb()
        assert (network.flows(), messages.report().dropped, network.connected) == ([], 1, False)

    run(serve())


def test_a_url_that_is_none_is_an_error_at_once() -> None:
    with pytest.raises(PenstockError, match="penstock://"):
        penstock.connect("http://localhost:7420")


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def from_environment() -> None:
        async with a_broker() as broker:
            for written in (url(broker), str(broker.address)):  # the scheme may be left out
                monkeypatch.setenv("PENSTOCK_URL", written)
                async with penstock.connect() as network:
                    assert network.address == broker.address

    run(from_environment())

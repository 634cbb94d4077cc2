"""Holding one lane of a real connection, slow readers as inputs of the machine, and the same verbs with and without a
trace."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import penstock
from live_help import RawClient, a_broker, a_network, known, run, until, url
from penstock.content.message import Identity, Message, make_message
from penstock.errors import NotConnected
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Hold, Release
from penstock.kernel.packet import Lane
from penstock.kernel.queue import LaneBounds, Overflow, QueueConfig
from penstock.kernel.service import Reading
from penstock.kernel.trace import Delivered, Dropped, Published, Record
from penstock.live.broker.server import BrokerServer
from penstock.live.client.home_link import HOME, HomeLink
from penstock.live.client.network import Network
from penstock.live.client.subscription import Subscription
from penstock.live.wire.frames import FrameDecoder
from penstock.live.wire.tcp_port import TcpPort
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.client import Client
from penstock.overlay.packets import Delivery, Publish

BODY_BYTES = 4000
MESSAGES = 500  # eight windows
WINDOW_BYTES = 1 << 18


def holding() -> NodeConfig:
    """A node whose priced lane holds its neighbours, each with such a window."""
    lanes = {**QueueConfig().lanes, Lane.PRICED: LaneBounds(overflow=Overflow.HOLD, bytes_max=WINDOW_BYTES)}
    return NodeConfig(queues=QueueConfig(lanes=lanes))


def priced(count: int, *, first: int = 1, publisher: str = "writer") -> list[Message]:
    body = bytes(BODY_BYTES)
    return [make_message(Identity(publisher, 1, n), {"priced": True}, body) for n in range(first, first + count)]


WINDOW_MESSAGES = WINDOW_BYTES // Publish(priced(1)[0], Lane.PRICED).size_bytes()


def link(network: Network) -> HomeLink:
    assert network._link is not None
    return network._link


def publish_priced(network: Network, messages: Sequence[Message]) -> None:
    """As the machine of a service would."""
    here = link(network)
    here.host.apply(here.node.route(here.node.machine(Client).sent(messages, Lane.PRICED)))


def tell(broker: BrokerServer, effect: Effect) -> None:
    """Let a machine of this broker have this effect."""
    broker.host.apply(broker.node.route([effect]))


def link_to(broker: BrokerServer, peer: str) -> Link:
    found = broker.admission.link_of(peer)
    assert found is not None
    return found


def counts(messages: Sequence[Message]) -> list[int]:
    return [message.identity.count for message in messages]


def waits(network: Network) -> int:
    """How many packets wait at this client."""
    return link(network).node.egress.waiting_packets(HOME)


async def all_came(network: Network) -> None:
    """The broker has handled what this client wrote before, and the client what the broker then granted."""
    for _ in range(2):
        await network.broker_report()


# Holding.


def test_a_held_lane_of_a_client_stops_after_a_window_and_everything_else_goes_on() -> None:
    async def held() -> None:
        async with (
            a_broker(node=holding()) as broker,
            penstock.connect(url(broker), name="writer") as writer,
            penstock.connect(url(broker), name="bystander") as bystander,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("priced = TRUE") as dear,
            reader.subscribe("n >= 0") as plain,
        ):
            publish_priced(writer, priced(10))
            await until(lambda: dear.report().received == 10)
            tell(broker, Hold(link_to(broker, "writer"), Lane.PRICED))
            publish_priced(writer, priced(MESSAGES, first=11))
            await all_came(writer)
            await until(lambda: dear.report().received + waits(writer) == 10 + MESSAGES)
            let_in = dear.report().received - 10
            assert 0 < let_in <= WINDOW_MESSAGES + 1

            began = asyncio.get_running_loop().time()
            for n in range(1000):  # on the same connection
                await writer.publish({"n": n})
                if n % 100 == 0:
                    assert (await writer.broker_report())["broker"] == "solo"
            assert [(await anext(plain)).attributes["n"] for _ in range(1000)] == list(range(1000))
            async with writer.subscribe("n >= 0") as own:  # control goes on too
                await writer.publish({"n": 1})
                assert (await anext(own)).attributes == {"n": 1}
            assert asyncio.get_running_loop().time() - began < 10.0  # nothing waited for a time limit

            others = priced(MESSAGES, first=10_001, publisher="bystander")
            publish_priced(bystander, others)  # they are not held
            await until(lambda: dear.report().received == 10 + let_in + MESSAGES)
            await all_came(writer)
            assert dear.report().received == 10 + let_in + MESSAGES

            tell(broker, Release(link_to(broker, "writer"), Lane.PRICED))
            await until(lambda: dear.report().received == 10 + 2 * MESSAGES)
            got = counts(await dear.take(10_000))
            assert [count for count in got if count < 10_000] == list(range(1, 11 + MESSAGES))
            assert [count for count in got if count > 10_000] == list(range(10_001, 10_001 + MESSAGES))
            for host in (broker.host, link(writer).host, link(bystander).host, link(reader).host):
                assert host.drops == {}

    run(held())


def test_a_lane_can_be_held_again_and_again_in_the_middle_of_a_stream() -> None:
    async def held() -> None:
        async with (
            a_broker(node=holding()) as broker,
            penstock.connect(url(broker), name="writer") as writer,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("priced = TRUE") as dear,
        ):
            source = link_to(broker, "writer")
            sent = 0
            for _ in range(5):
                tell(broker, Hold(source, Lane.PRICED))
                tell(broker, Hold(source, Lane.PRICED))  # twice is once
                before = dear.report().received
                publish_priced(writer, priced(200, first=sent + 1))
                sent += 200
                await all_came(writer)
                await until(lambda: dear.report().received + waits(writer) == sent)  # noqa: B023  # awaited here
                assert dear.report().received - before <= WINDOW_MESSAGES + 1
                tell(broker, Release(source, Lane.PRICED))
                tell(broker, Release(source, Lane.PRICED))
                await until(lambda: dear.report().received == sent)  # noqa: B023  # awaited here
            assert counts(await dear.take(10_000)) == list(range(1, sent + 1))
            assert broker.host.drops == link(writer).host.drops == {}

    run(held())


def test_a_new_connection_begins_unheld_with_a_new_window() -> None:
    async def again() -> None:
        async with (
            a_broker(node=holding()) as broker,
            penstock.connect(url(broker), name="writer") as writer,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("priced = TRUE") as dear,
        ):
            tell(broker, Hold(link_to(broker, "writer"), Lane.PRICED))
            publish_priced(writer, priced(MESSAGES))
            await all_came(writer)
            await until(lambda: dear.report().received + waits(writer) == MESSAGES)
            let_in = dear.report().received
            assert let_in < MESSAGES
            port = link(writer).port
            assert port is not None
            port.connection.abort("a test")
            await until(lambda: writer.reconnects == 1)
            lost = recorded(writer)
            assert sum(lost.values()) == MESSAGES - let_in  # it waited on a link that is gone, and is counted
            assert set(lost) == {("broker", "egress", "link down")}
            publish_priced(writer, priced(MESSAGES, first=1001))
            await until(lambda: dear.report().received == let_in + MESSAGES)

    run(again())


def test_a_held_lane_between_brokers_stops_there_and_everything_else_goes_on() -> None:
    async def held() -> None:
        async with (
            a_network(("a", "b"), queue_packets=10_000, node=holding()) as brokers,
            penstock.connect(url(brokers["a"]), name="writer") as writer,
            penstock.connect(url(brokers["b"]), name="reader") as reader,
            reader.subscribe("priced = TRUE") as dear,
            reader.subscribe("n >= 0") as plain,
        ):
            a, b = brokers["a"], brokers["b"]
            await known(a, 2)
            tell(b, Hold(link_to(b, "a"), Lane.PRICED))
            publish_priced(writer, priced(MESSAGES))
            to_b = link_to(a, "b")
            await until(lambda: a.node.egress.waiting_packets(to_b) > 0)
            for n in range(500):
                await writer.publish({"n": n})
            assert [(await anext(plain)).attributes["n"] for _ in range(500)] == list(range(500))
            await all_came(writer)
            let_in = dear.report().received
            assert 0 < let_in <= WINDOW_MESSAGES + 1
            for network, name in ((writer, "a"), (reader, "b")):
                report = await network.broker_report()
                assert (report["broker"], report["brokers_reachable"]) == (name, 1)
                assert [found["up"] for found in report["links"]] == [True]
            tell(b, Release(link_to(b, "a"), Lane.PRICED))
            await until(lambda: dear.report().received == MESSAGES)
            assert counts(await dear.take(10_000)) == list(range(1, MESSAGES + 1))
            assert a.host.drops == b.host.drops == link(writer).host.drops == {}

    run(held())


def test_a_full_queue_holds_those_behind_it_up_to_the_publisher_and_loses_nothing() -> None:
    """The last link is held; what waits for it at the broker before is the publisher's whole window."""

    async def held() -> None:
        async with (
            a_network(("a", "b"), queue_packets=10_000, node=holding()) as brokers,
            penstock.connect(url(brokers["a"]), name="writer") as writer,
            penstock.connect(url(brokers["b"]), name="reader") as reader,
            reader.subscribe("priced = TRUE") as dear,
        ):
            a, b = brokers["a"], brokers["b"]
            await known(a, 1)
            tell(b, Hold(link_to(b, "a"), Lane.PRICED))
            publish_priced(writer, priced(2 * MESSAGES))

            def waits_at_a() -> int:
                return a.node.egress.waiting_packets(link_to(a, "b"))

            await until(lambda: waits_at_a() > 0)
            await until(lambda: dear.report().received + waits_at_a() + waits(writer) == 2 * MESSAGES)
            await all_came(writer)
            assert dear.report().received <= WINDOW_MESSAGES + 1
            assert waits_at_a() <= WINDOW_MESSAGES + 1
            assert waits(writer) > MESSAGES  # more than the queues and the windows: it never left
            tell(b, Release(link_to(b, "a"), Lane.PRICED))
            await until(lambda: dear.report().received == 2 * MESSAGES)
            assert counts(await dear.take(10_000)) == list(range(1, 2 * MESSAGES + 1))
            assert a.host.drops == b.host.drops == link(writer).host.drops == {}

    run(held())


def test_a_subscriber_that_does_not_read_holds_the_lane_and_gets_everything_once_it_does() -> None:
    async def slow() -> None:
        async with (
            a_broker(node=holding()) as broker,
            penstock.connect(url(broker), name="writer") as writer,
        ):
            sloth = await RawClient.connect(broker.address, receive_bytes=1 << 14)
            sloth.handshake("sloth")
            sloth.subscribe("priced = TRUE", "sloth")
            await until(lambda: broker.admission.link_of("sloth") is not None)
            await all_came(writer)
            publish_priced(writer, priced(2 * MESSAGES))
            await until(lambda: broker.node.egress.waiting_packets(link_to(broker, "sloth")) > 0)
            await all_came(writer)
            assert waits(writer) > 0
            decoder, got = FrameDecoder(), []
            while len(got) < 2 * MESSAGES:
                for frame in decoder.feed(await sloth.reader.read(1 << 16)):
                    if isinstance(frame, list):
                        got += [packet.message.identity.count for packet in frame if isinstance(packet, Delivery)]
            assert got == list(range(1, 2 * MESSAGES + 1))
            assert broker.host.drops == link(writer).host.drops == {}
            await sloth.vanish()

    run(slow())


def test_a_broker_that_holds_nothing_gives_no_credit_and_takes_priced_messages_like_others() -> None:
    async def free() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer") as writer,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("priced = TRUE") as dear,
        ):
            publish_priced(writer, priced(MESSAGES))
            await until(lambda: dear.report().received == MESSAGES)
            waiting = link(writer).node.egress._up[HOME]
            assert waiting is not None
            assert waiting.credit == {}

    run(free())


def test_what_a_port_had_gathered_is_lost_in_its_own_lane() -> None:
    async def gone() -> None:
        lanes: Counter[tuple[str, Lane]] = Counter()

        def keep(record: Record) -> None:
            if isinstance(record, Dropped):
                lanes[record.kind, record.lane] += 1

        async with a_broker() as broker, penstock.connect(url(broker), name="writer") as writer:
            here = link(writer)
            here.host.on_record = keep
            publish_priced(writer, priced(3))  # gathered, to be written at the end of the turn
            here.host.apply(here.verbs.publish(priced(2), now=here.host.now()))
            assert isinstance(here.port, TcpPort)
            here.lost(here.port.connection, "a test")
            assert lanes == {("Publish", Lane.PRICED): 3, ("Publish", Lane.BEST_EFFORT): 2}

    run(gone())


def test_a_broker_that_stops_does_not_wait_for_credit_that_cannot_come() -> None:
    async def stopped() -> None:
        async with (
            a_network(("a", "b"), queue_packets=10_000, node=holding()) as brokers,
            penstock.connect(url(brokers["a"]), name="writer") as writer,
            penstock.connect(url(brokers["b"]), name="reader") as reader,
            reader.subscribe("priced = TRUE"),
        ):
            a, b = brokers["a"], brokers["b"]
            await known(a, 1)
            tell(b, Hold(link_to(b, "a"), Lane.PRICED))
            publish_priced(writer, priced(MESSAGES))
            await until(lambda: a.node.egress.waiting_packets(link_to(a, "b")) > WINDOW_MESSAGES // 2)
            await until(lambda: not a.node.egress.waits_for_room(link_to(a, "b")))
            assert a.node.egress.waiting_packets(link_to(a, "b")) > 0
            began = asyncio.get_running_loop().time()
            await a.stop()
            assert asyncio.get_running_loop().time() - began < 0.8 * a.config.drain_within

    run(stopped())


# A slow reader is an input of the machine.


@pytest.mark.parametrize("congestion", [True, False])
def test_a_slow_reader_is_an_input_of_its_own_and_what_it_misses_is_recorded(congestion: bool) -> None:
    settings = penstock.TransportConfig(congestion=congestion)

    async def slow() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=True) as writer,
            penstock.connect(url(broker), name="reader", transport=settings) as reader,
            reader.subscribe("n >= 0", queue_max=10) as messages,
        ):
            here = link(reader)
            inside = False
            readings: list[Reading] = []
            apply, read = here.host.apply, here.verbs.read

            def watched_apply(effects: Sequence[Effect]) -> None:
                nonlocal inside
                assert not inside, "the machine was given an input while its effects were being applied"
                inside = True
                try:
                    apply(effects)
                finally:
                    inside = False

            def watched_read(number: int, reading: Reading, *, now: float) -> list[Effect]:
                assert not inside
                assert number == messages.number
                readings.append(reading)
                return read(number, reading, now=now)

            here.host.apply = watched_apply  # type: ignore[method-assign]
            here.verbs.read = watched_read  # type: ignore[method-assign]
            for n in range(50):
                await writer.publish({"n": n})
            await until(lambda: messages.report().received == 50)
            await until(lambda: sum(len(reading.dropped) for reading in readings) == 40)
            assert {reading.queue_max for reading in readings} == {10}
            assert readings[-1].waiting == 10
            assert sum(reading.taken for reading in readings) == 0
            assert messages.report().dropped == 40
            assert here.host.drops == {("", "reader", "queue full"): 40}
            assert len(await messages.take()) == 10
            await writer.publish({"n": 50})
            await until(lambda: sum(reading.taken for reading in readings) == 10)
            assert readings[-1].waiting == 1

    run(slow())


def test_the_record_of_what_a_reader_misses_names_the_message_and_the_application_is_told() -> None:
    async def slow() -> None:
        kept = Kept()
        told: list[int] = []
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer") as writer,
            penstock.connect(url(broker), name="reader", trace=kept) as reader,
            reader.subscribe("n >= 0", queue_max=2, on_drop=told.append) as messages,
        ):
            sent = [await writer.publish({"n": n}) for n in range(5)]
            await until(lambda: messages.report().received == 5)
            found = [record for record in kept.records if isinstance(record, Dropped)]
            assert [(record.place, record.cause, record.kind) for record in found] == [
                ("reader", "queue full", "Delivery")
            ] * 3
            assert [Identity(each.publisher, each.incarnation, each.count) for each in found] == sent[:3]
            assert told == [1, 2, 3]
            assert link(reader).host.drops == {("", "reader", "queue full"): 3}
            assert counts(await messages.take()) == [identity.count for identity in sent[3:]]

    run(slow())


# The same verbs with a trace and without.


class Kept:
    """A trace in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, time: float, node: str, record: Record) -> None:
        self.records.append(record)

    def published(self) -> list[int]:
        return [record.count for record in self.records if isinstance(record, Published)]


async def publish_alone(network: Network, count: int) -> list[Identity]:
    """Each in a turn of its own."""
    sent = []
    for n in range(count):
        sent.append(await network.publish({"n": n}, bytes(100)))
        await asyncio.sleep(0)
    return sent


async def publish_in_batches(network: Network, count: int) -> list[Identity]:
    """Without a turn of the loop in between, but for those that publishing takes itself."""
    return [await network.publish({"n": n}, bytes(100)) for n in range(count)]


async def got(messages: Subscription, count: int) -> list[tuple[Identity, object]]:
    await until(lambda: messages.report().received == count)
    return [(message.identity, message.attributes["n"]) for message in await messages.take(count)]


@pytest.mark.parametrize("transport", [False, True])
@pytest.mark.parametrize("publish", [publish_alone, publish_in_batches])
@pytest.mark.parametrize("traced", [False, True])
def test_with_a_trace_and_without_the_same_messages_come(publish: Any, traced: bool, transport: bool) -> None:
    async def published() -> None:
        kept, here = Kept(), Kept()
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="reader", trace=here if traced else None) as reader,
            reader.subscribe("n >= 0", queue_max=2000) as messages,
            penstock.connect(url(broker), name="writer", trace=kept if traced else None, transport=transport) as writer,
        ):
            sent = await publish(writer, 600)
            assert counts_of(sent) == list(range(1, 601))
            assert await got(messages, 600) == [(identity, n) for n, identity in enumerate(sent)]
            assert kept.published() == (counts_of(sent) if traced else [])
            delivered = [record.count for record in here.records if isinstance(record, Delivered)]
            assert delivered == (counts_of(sent) if traced else [])
            assert broker.host.drops == link(writer).host.drops == {}

    run(published())


def recorded(writer: Network) -> dict[tuple[str, str, str], int]:
    """What was dropped, without what left just before the connection was lost: that is counted as not known."""
    return {key: packets for key, packets in link(writer).host.drops.items() if key[1] != "connection"}


def counts_of(identities: Sequence[Identity]) -> list[int]:
    return [identity.count for identity in identities]


@pytest.mark.parametrize("transport", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_with_a_trace_and_without_the_same_errors_come_when_the_connection_is_gone(
    traced: bool, transport: bool
) -> None:
    async def broken() -> None:
        kept = Kept()
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", trace=kept if traced else None, transport=transport) as writer,
        ):
            with pytest.raises(penstock.InvalidMessage):
                await writer.publish({"_reserved": 1})
            await writer.publish({"n": 1})
            await writer.broker_report()
            port = link(writer).port
            assert port is not None
            await writer.publish({"n": 2})  # waits for the end of this turn, and the connection does not live to see it
            link(writer).lost(port.connection, "a test")
            for publish in (publish_alone, publish_in_batches):
                with pytest.raises(NotConnected, match="publish again"):
                    await publish(writer, 3)
            with pytest.raises(NotConnected):
                await writer.broker_report()
            lost = [record for record in kept.records if isinstance(record, Dropped) and record.kind == "Publish"]
            assert [record.cause for record in lost] == (["link down"] if traced else [])
            assert sum(recorded(writer).values()) == 1
            assert kept.published() == ([1, 2] if traced else [])
            assert (await connected(writer, broker)).count == 3  # those that were refused have used up no count

    async def connected(writer: Network, broker: BrokerServer) -> Identity:
        """The connection itself was in order: close it, so that it is dialled again."""
        for connection in list(broker.connections):
            connection.abort("a test")
        await writer.wait_connected()
        return await writer.publish({"n": 3})

    run(broken())


@pytest.mark.parametrize("traced", [False, True])
def test_after_closing_and_before_opening_every_verb_says_so(traced: bool) -> None:
    async def closed() -> None:
        async with a_broker() as broker:
            network = penstock.connect(url(broker), trace=Kept() if traced else None)
            messages = network.subscribe("TRUE")
            verbs = (
                lambda: network.publish({"n": 1}),
                network.broker_report,
                network.wait_connected,
                lambda: network.subscribe("TRUE").open(),
            )
            for verb in verbs:
                with pytest.raises(NotConnected, match="open the network"):
                    await verb()
            await network.open()
            await messages.open()
            waiting = asyncio.ensure_future(messages.take())
            await asyncio.sleep(0)
            await network.close()
            assert await waiting == []
            for verb in verbs:
                with pytest.raises(NotConnected, match="closed"):
                    await verb()
            await messages.close()
            await network.close()
            assert (messages.report().received, network.connected) == (0, False)

    run(closed())


def test_whoever_waits_for_a_connection_hears_that_the_network_was_closed() -> None:
    async def closed() -> None:
        async with a_broker() as broker:
            network = await penstock.connect(url(broker)).open()
            await broker.stop()
            await until(lambda: not network.connected)
            waiting = asyncio.ensure_future(network.wait_connected())
            await asyncio.sleep(0)
            await network.close()
            with pytest.raises(NotConnected, match="closed"):
                await waiting

    run(closed())

"""Order and recovery on real sockets, through a link that really loses and reorders."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from math import sqrt
from pathlib import Path
from struct import pack

import pytest
from msgspec import structs

import penstock
from live_help import RawClient, a_broker, dropped, known, run, subscriptions, until, url
from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Identity, Message, Value
from penstock.errors import InvalidMessage
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Delivered, Record
from penstock.lab.pages.twins import twins
from penstock.live.client.network import Network
from penstock.live.client.subscription import Report
from penstock.live.emulation.scenario_run import drive_clients
from penstock.live.wire.frames import encode_frame
from penstock.overlay import client as client_machine
from penstock.overlay.broker import Broker
from penstock.overlay.client import Client
from penstock.overlay.config import BrokerConfig
from penstock.overlay.packets import Attach, Publish
from penstock.scenario.reader import read_scenario
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import simulate
from penstock.testing import embedded_network
from penstock.transport.config import papers_config
from penstock.transport.wire.header import encode_header

SEED = 7
MESSAGES = 1500
LOSS = 0.06
TICKS = "topic = 'tick'"
SENDS = penstock.TransportConfig()
CAREFUL = penstock.TransportConfig(late="hold", violation_probability=0.01)


def lossy() -> Scenario:
    """A publisher, and behind a bad link two subscribers with the same wish, one of them with the transport.

    In the simulator the workers put messages out of order, live the jitter does.
    """
    return Scenario(
        name="lossy",
        duration=4.0,
        drain=2.0,
        broker=tuple(BrokerSpec(name=name, workers=8, service_mean=0.004) for name in ("a", "b")),
        link=(LinkSpec(between=("a", "b"), rate_bits_per_s=50e6, delay=0.01, jitter=0.005, loss=LOSS, repair=False),),
        client=(
            ClientSpec(
                name="exchange",
                broker="a",
                services={"transport": SENDS},
                publish=(
                    PublisherSpec(
                        rate_messages_per_s=MESSAGES / 3.0,
                        start=1.0,
                        attributes={"topic": "tick", "symbol": Recipe(choose=("IBM", "AMD"))},
                        body_bytes=64,
                    ),
                ),
            ),
            ClientSpec(
                name="careful",
                broker="b",
                services={"transport": CAREFUL},
                subscribe=(SubscriptionSpec(where=TICKS, options={"ordered": True, "recover": True}),),
            ),
            ClientSpec(name="plain", broker="b", subscribe=(SubscriptionSpec(where=TICKS),)),
        ),
    )


def late(counts: list[int]) -> int:
    """How many came after a later one."""
    found = newest = 0
    for count in counts:
        found += count < newest
        newest = max(newest, count)
    return found


def by_the_binomial_law(missing: float, sigmas: float = 4.0) -> bool:
    return abs(missing - MESSAGES * LOSS) <= sigmas * sqrt(MESSAGES * LOSS * (1.0 - LOSS))


def gets_all_in_order(counts: list[int]) -> bool:
    """All from its first on, once each; a few of the first come before anybody can know how long to wait."""
    return sorted(counts) == list(range(min(counts), MESSAGES + 1)) and min(counts) < 5 and late(counts) <= 15


def test_through_loss_and_reordering_one_gets_everything_in_order_and_its_plain_twin_does_not() -> None:
    simulated: dict[str, list[int]] = {}

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, Delivered):
                simulated.setdefault(node, []).append(record.count)

    async def live() -> tuple[dict[str, list[int]], Report, int]:
        async with embedded_network(lossy(), seed=SEED) as network:
            addresses = {name: server.address for name, server in network.servers.items()}
            result = await drive_clients(lossy(), SEED, addresses)
            (emulator,) = network.emulated.emulators.values()
        assert emulator.forth.overflowed == emulator.back.overflowed == 0
        assert emulator.connections == 1
        deliveries = {
            name: [count for _, _, count in tally.deliveries] for name, tally in result.clients.items() if tally.reports
        }
        return deliveries, result.clients["careful"].reports[0], emulator.forth.overtaken

    simulate(lossy(), SEED, trace=Kept())
    found, report, overtaken = run(live())
    for world in (simulated, found):
        assert gets_all_in_order(world["careful"])
        assert by_the_binomial_law(MESSAGES - len(world["plain"]))
        assert len(set(world["plain"])) == len(world["plain"])
        assert late(world["plain"]) > MESSAGES / 10
    assert by_the_binomial_law(
        MESSAGES * LOSS + len(found["plain"]) - len(simulated["plain"]), 4.0 * sqrt(2.0)
    )  # the difference of two such numbers
    assert overtaken > MESSAGES / 10
    missing = len(found["careful"]) - len(found["plain"])
    assert report.delivered == report.received == len(found["careful"])
    assert report.recovered >= 0.99 * missing
    assert (report.known_lost, report.pending, report.refused, report.without_header) == (0, 0, 0, 0)
    assert report.lost >= report.recovered
    assert report.detection_probability is not None
    assert report.detection_probability > 0.99
    assert report.disorder_probability is not None
    assert report.heartbeats > 0
    assert report.delay_held > 0.0


def test_who_does_not_use_it_sees_messages_as_they_were_published_and_nothing_else() -> None:
    """Requests, repairs, heartbeats and echoes cross the same network; an application must not notice."""

    async def beside() -> None:
        # The burst is over before its subscriber has asked for heartbeats, so they are said again and again.
        sends = penstock.TransportConfig(heartbeat_interval=0.05, heartbeat_repeats=100)
        takes = structs.replace(CAREFUL, cache_interval=0.05, requests_max=12)
        async with embedded_network(("a", "b"), loss=0.1) as network:
            a, b = network.servers["a"], network.servers["b"]
            async with (
                penstock.connect(url(a), name="witness") as witness,
                witness.subscribe("TRUE") as everything,
                penstock.connect(url(b), name="careful", transport=takes) as there,
                there.subscribe("n >= 0", ordered=True, recover=True) as messages,
                penstock.connect(url(a), name="p", transport=sends) as here,
            ):
                await known(a, 2)
                published = {}
                for n in range(200):
                    attributes: dict[str, Value] = {"n": n, "word": "ü" * (n % 3), "share": n / 7, "even": n % 2 == 0}
                    body = bytes(n)
                    published[await here.publish(attributes, body)] = (attributes, body)
                first = (await anext(messages)).attributes["n"]
                assert isinstance(first, int)
                await until(lambda: messages.report().received == 200 - first and messages.report().heartbeats > 0)
                assert messages.report().recovered > 3
                await until(lambda: everything.report().received >= 200)
                seen = await everything.take()
                assert {m.identity: (dict(m.attributes), m.body) for m in seen} == published
                assert everything.report().received == len(seen) == 200
                assert everything.report().delivered == 200
                assert everything.report().detection_probability is None

    run(beside())


async def kill(network: Network) -> None:
    """End a client without a close frame, as the end of its process would."""
    assert network._link is not None
    for task in network._link.tasks:
        task.cancel()
    assert network._link.port is not None
    network._link.port.connection.abort("killed")
    with suppress(asyncio.CancelledError):
        await asyncio.wait(network._link.tasks)


def test_a_publisher_that_is_killed_and_comes_back_begins_a_new_life() -> None:
    lives, each = 6, 30
    settings = penstock.TransportConfig(sessions_max=2)

    async def lived() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), transport=settings) as there,
            there.subscribe("n >= 0", ordered=True, recover=True) as messages,
        ):
            for life in range(lives):
                network = await penstock.connect(url(broker), name="p", transport=True).open()
                for n in range(each):
                    await network.publish({"n": n, "life": life})
                await until(lambda: messages.report().received == (life + 1) * each)  # noqa: B023  # awaited here
                assert messages.report().publishers <= 2
                await kill(network)
            seen = await messages.take()
            assert [(m.attributes["life"], m.attributes["n"]) for m in seen] == [
                (life, n) for life in range(lives) for n in range(each)
            ]
            assert len({m.identity for m in seen}) == lives * each
            assert len({m.identity.incarnation for m in seen}) == lives
            report = messages.report()
            assert (report.late, report.lost, report.refused, report.duplicates) == (0, 0, 0, 0)

    run(lived())


def forged(identity: Identity, header: bytes, claimed: int | None = None) -> Message:
    """What nobody's client library would send."""
    length = len(header) if claimed is None else claimed
    return Message(identity, {"n": -1, FLAG: DATA}, length.to_bytes(2, "big") + header, 0)


def test_forged_headers_are_refused_and_counted_and_good_messages_come_as_before() -> None:
    def a_header(sequence: int, departure: float) -> bytes:
        return encode_header(sequence, departure, [0.01], [], flags=0, entry_bytes=32)

    async def forging() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), transport=papers_config()) as there,
            there.subscribe("n >= -1", ordered=True, recover=True) as messages,
            penstock.connect(url(broker), name="good", transport=papers_config()) as good,
        ):
            for n in range(20):
                await good.publish({"n": n})
            await until(lambda: messages.report().received == 20)
            now, life = good._link.host.now(), good.incarnation
            many = pack("<BBQdBBBB", 1, 0, 2000, now, 0, 255, 255, 32) + bytes(1000 * 36)
            forgeries = [
                forged(Identity("good", life, 1001), a_header(1_000_000_000, now)),
                forged(Identity("good", life, 1002), many),
                forged(Identity("good", life, 1003), a_header(21, now + 1e6)),
                forged(Identity("good", life, 1004), a_header(21, float("nan"))),
                forged(Identity("good", life, 1005), b"\xff" * 200),
                forged(Identity("good", life, 1006), b""),
                forged(Identity("good", life, 1007), b"short", claimed=60_000),
                Message(Identity("~good", life, 1), {"n": -1, FLAG: "repair"}, b"\x00\x05hello", 0),
                Message(Identity("~good", life, 2), {"n": -1, FLAG: "gossip"}, b"\x00\x00", 0),
            ]
            rogue = await RawClient.connect(broker.address)
            rogue.handshake("rogue")
            rogue.send(encode_frame([Attach("rogue", 1), *map(Publish, forgeries)]))
            await until(lambda: dropped(broker, cause="not its name") == len(forgeries))  # the broker stops a stranger
            own = good._link.node.machine(Client)  # so they come from a client of that name that has gone mad
            for message in forgeries:
                good._link.host.apply(good._link.node.route([own.carry(message, Lane.BEST_EFFORT)]))
            await until(lambda: messages.report().refused >= len(forgeries) - 1)
            for n in range(20, 40):
                await good.publish({"n": n})
            await until(lambda: messages.report().received >= 40)
            assert [m.attributes["n"] for m in await messages.take()] == list(range(40))
            report = messages.report()
            assert (report.lost, report.late, report.pending) == (0, 0, 0)
            assert report.delay_held < 0.5
            await rogue.vanish()

    run(forging())


def test_publishers_without_it_are_delivered_as_they_come_counted_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def mixed() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker)) as there,
            there.subscribe("n >= 0", ordered=True, recover=True) as messages,
            penstock.connect(url(broker), transport=True) as modern,
            penstock.connect(url(broker)) as old,
        ):
            for n in range(10):
                await modern.publish({"n": n})
                await old.publish({"n": n})
            await until(lambda: messages.report().received == 20)
            report = messages.report()
            assert (report.without_header, report.publishers, report.delivered) == (10, 1, 20)
            await until(lambda: "without the transport" in caplog.text)
            there._holder.warn_of_plain_publishers()
        assert Counter(record.levelno for record in caplog.records)[logging.WARNING] == 1

    with caplog.at_level(logging.WARNING, "penstock.client"):
        run(mixed())


def test_what_the_transport_needs_and_the_broker_refused_is_asked_for_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_machine, "AGAIN_FIRST", 0.01)

    async def crowded() -> None:
        async with a_broker() as broker:
            machine = broker.node.machine(Broker)
            machine._config = BrokerConfig(subscriptions_per_client_max=1)
            async with penstock.connect(url(broker), name="full", transport=papers_config()):  # an inbox and requests
                await until(lambda: "full: the broker refuses a subscription that a service needs" in caplog.text)
                machine._config = BrokerConfig()
                await until(lambda: subscriptions(broker) == 2)

    with caplog.at_level(logging.WARNING):
        run(crowded())


def test_a_message_without_room_for_a_header_is_refused_when_it_is_published() -> None:
    async def full() -> None:
        async with a_broker() as broker, penstock.connect(url(broker), transport=True) as network:
            await network.publish({f"a{n}": n for n in range(62)})
            with pytest.raises(InvalidMessage, match="attributes_max is 62"):
                await network.publish({f"a{n}": n for n in range(63)})
            with pytest.raises(InvalidMessage, match="body_bytes_max"):
                await network.publish({"a": 1}, bytes(1 << 20))

    run(full())


def test_order_without_await() -> None:
    async def waiting() -> list[object]:
        async with a_broker() as broker:
            return await asyncio.to_thread(blocking, url(broker))

    def blocking(place: str) -> list[object]:
        with (
            penstock.connect_blocking(place, transport=True) as network,
            network.subscribe("n >= 0", ordered=True, recover=True) as messages,
        ):
            for n in range(5):
                network.publish({"n": n})
            seen: list[object] = []
            while len(seen) < 5:
                seen += [message.attributes["n"] for message in messages.take()]
            assert (messages.report().delivered, messages.report().publishers) == (5, 1)
            return seen

    assert run(waiting()) == list(range(5))


def test_the_demo_finds_who_wants_the_same_with_and_without() -> None:
    town = read_scenario(Path(__file__).parents[2] / "networks" / "town.toml")
    found = twins(town)
    assert ("exchange", "trader", True) in found
    assert ("exchange", "apprentice", False) in found
    assert {client for _, client, _ in found} == {"trader", "apprentice"}
    assert twins(structs.replace(lossy(), client=lossy().client[:2])) == []


def test_who_leaves_at_once_has_told_of_its_last_message():
    async def leave() -> int:
        async with embedded_network(("a",)) as network:
            home = url(network.servers["a"])
            async with (
                penstock.connect(home, name="careful", transport=SENDS) as there,
                there.subscribe("n > 0", recover=True) as messages,
            ):
                async with penstock.connect(home, name="p", transport=SENDS) as here:
                    await here.publish({"n": 1})
                await until(lambda: messages.report().heartbeats == 3)
                return messages.report().broken_off

    assert run(leave()) == 0

"""Whatever one peer does, the broker runs on, counts it, and closes that connection only."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from live_help import IMPATIENT, RawClient, a_broker, a_line, a_network, dropped, run, subscriptions, until, url
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.broker.status import broker_status
from penstock.live.broker.supervisor import Brokers
from penstock.live.wire.addresses import Address
from penstock.live.wire.frames import MAGIC, VERSION, Handshake, encode_frame, encode_handshake, framed
from penstock.overlay.codec import BATCH_BYTES_MAX
from penstock.overlay.packets import Attach, Hello, Publication, Publish
from penstock.testing import a_message

HELLO = encode_handshake(Handshake(role="client", name="raw"))
WRONG: dict[str, tuple[bytes, str]] = {
    "a browser": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "limit"),
    "another protocol": (framed(b"hello there, broker"), "no handshake"),
    "another version": (framed(MAGIC + (VERSION + 8).to_bytes(2, "big") + b"future"), f"version {VERSION + 8}"),
    "a handshake of nonsense": (framed(MAGIC + VERSION.to_bytes(2, "big") + b"\xc1\xc1"), "cannot be read"),
    "an oversized frame": (HELLO + (BATCH_BYTES_MAX + 1).to_bytes(4, "big"), "limit"),
    "a malformed batch": (HELLO + framed(b"\x91\x92\xa5Hello\x01"), "no packets"),
    "random bytes": (HELLO + framed(random.Random(1).randbytes(500)), "no packets"),
    "a message over the limits": (
        HELLO + framed(b"\x91\x92\xa7Publish\x94\x93\xa1p\x01\x01\x81\xa0\x01\xc4\x00\x00"),
        "name",
    ),
    "a broker's packet from a client": (
        HELLO + encode_frame([Attach("raw", 1), Publication((1,), 3, a_message())]),
        "client may not send Publication",
    ),
    "a Hello from a client": (HELLO + encode_frame([Hello(9, 1, "s", 1)]), "client may not send Hello"),
    "a broker nobody expects": (encode_handshake(Handshake(role="broker", name="mallory")), "no link to a broker"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_bad_input_is_answered_counted_and_ends_that_connection_only(wrong: str) -> None:
    data, reason = WRONG[wrong]

    async def bad_input() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network, network.subscribe("n = 1") as wish:
            raw = await RawClient.connect(broker.address)
            raw.send(data)
            assert reason in await raw.close_reason()
            assert broker.host.refusals == 1
            await network.publish({"n": 1})
            await anext(wish)
            assert network.reconnects == 0
            raw.writer.close()

    run(bad_input())


def test_a_truncated_frame_is_simply_the_end() -> None:
    async def truncated() -> None:
        async with a_broker() as broker:
            raw = await RawClient.connect(broker.address)
            raw.send(HELLO + encode_frame([Publish(a_message())])[:-3])
            await until(lambda: len(broker.host.ports) == 1)
            await raw.vanish()
            await until(lambda: not broker.connections and not broker.host.ports)

    run(truncated())


def test_whoever_says_nothing_is_closed_after_a_while() -> None:
    async def silent() -> None:
        async with a_broker(ServerConfig(connection=IMPATIENT, sweep_interval=0.05)) as broker:
            raw = await RawClient.connect(broker.address)
            assert "no handshake" in await raw.close_reason()
            assert broker.host.refusals == 1
            raw.writer.close()

    run(silent())


def test_a_half_open_client_is_found_by_its_silence_and_a_quiet_one_is_not() -> None:
    async def half_open() -> None:
        config = ServerConfig(connection=IMPATIENT, sweep_interval=0.05)
        async with a_broker(config) as broker, penstock.connect(url(broker), config=IMPATIENT) as quiet:
            raw = await RawClient.connect(broker.address)
            raw.handshake()
            raw.subscribe("TRUE")
            await until(lambda: subscriptions(broker) == 1)  # and from here on, not a keepalive
            await until(lambda: subscriptions(broker) == 0)
            await until(lambda: len(broker.connections) == 1)
            assert quiet.connected
            assert quiet.reconnects == 0
            raw.writer.close()

    run(half_open())


def test_a_client_finds_a_broker_that_fell_silent() -> None:
    async def fell_silent() -> None:
        accepted: list[asyncio.StreamWriter] = []

        async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)
            await reader.read(10)
            writer.write(encode_handshake(Handshake(role="broker", name="stuck")))

        listener = await asyncio.start_server(stuck, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with a_broker() as broker:
            both = f"penstock://127.0.0.1:{port},{broker.address}"
            async with penstock.connect(both, config=IMPATIENT) as network:
                assert accepted  # it had shaken hands with the silent one
                assert network.address == broker.address
                assert network.connected
                assert network.reconnects >= 1
        for writer in accepted:
            writer.transport.abort()
        listener.close()

    run(fell_silent())


def test_a_client_that_never_reads_costs_a_bounded_queue_and_nobody_else_anything() -> None:
    async def never_reads() -> None:
        config = ServerConfig(client_queue_packets=100, sweep_interval=0.05)
        async with a_broker(config) as broker, penstock.connect(url(broker)) as network:
            raw = await RawClient.connect(broker.address, receive_bytes=4096)
            raw.handshake("sloth")
            raw.subscribe("TRUE", "sloth")
            raw.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: subscriptions(broker) == 1)
            async with network.subscribe("n >= 0", queue_max=100_000) as messages:
                sent = 0
                while not dropped(broker, place="egress", cause="queue full"):
                    await network.publish({"n": sent}, bytes(5000))
                    sent += 1
                    if sent % 50 == 0:
                        await until(lambda: messages.report().received == sent)  # noqa: B023  # awaited at once
                assert messages.report().lost_at_broker == 0
                sloth = next(link for link, port in broker.host.ports.items() if port.peer == "sloth")
                assert broker.node.egress.waiting_packets(sloth) <= 100 + 1  # and word of what was dropped
                report = await network.broker_report()
                assert {drop["peer"] for drop in report["drops"]} == {"sloth"}
            await raw.vanish()

    run(never_reads())


def test_a_slow_client_is_told_what_its_broker_dropped() -> None:
    async def told() -> None:
        config = ServerConfig(client_queue_packets=10, sweep_interval=0.05)
        async with (
            a_broker(config) as broker,
            penstock.connect(url(broker)) as publisher,
            penstock.connect(url(broker), name="slow") as slow,
            slow.subscribe("n >= 0") as messages,
        ):
            assert slow._link is not None
            assert slow._link.port is not None
            slow._link.port.connection.hold()
            while not dropped(broker):
                for n in range(64):
                    await publisher.publish({"n": n}, bytes(20_000))
            slow._link.port.connection.release()
            await until(lambda: messages.report().lost_at_broker > 0)

    run(told())


def test_more_connections_than_the_limit_are_told_so() -> None:
    async def crowded() -> None:
        async with a_broker(ServerConfig(connections_max=3)) as broker:
            raws = [await RawClient.connect(broker.address) for _ in range(3)]
            for number, raw in enumerate(raws):
                raw.handshake(f"raw {number}")
            await until(lambda: len(broker.host.ports) == 3)
            late = await RawClient.connect(broker.address)
            assert "connections_max is 3" in await late.close_reason()
            for raw in (*raws, late):
                await raw.vanish()
            await until(lambda: not broker.connections)

    run(crowded())


def rss_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_bounded_when_a_thousand_clients_connect_and_vanish() -> None:
    async def vanish_in_crowds(address: Address, count: int) -> None:
        for _ in range(count // 50):
            crowd = [await RawClient.connect(address) for _ in range(50)]
            for number, raw in enumerate(crowd):
                raw.handshake(f"ghost-{number}")
                raw.subscribe(f"n > {number} OR name LIKE 'ghost{number}%'")
                if number % 3 == 0:
                    raw.send(b"\xff" * 100)
            await asyncio.gather(*(raw.writer.drain() for raw in crowd), return_exceptions=True)
            for raw in crowd:
                await raw.vanish()

    async def thousand() -> None:
        scenario = a_line("a")
        async with Brokers(scenario, assign_addresses(scenario, base_port=None), restart=False) as brokers:
            address = brokers.addresses["a"]
            async with penstock.connect(f"penstock://{address}") as network, network.subscribe("n = 1") as messages:
                sizes = [rss_bytes(brokers.pid("a"))]
                while len(sizes) < 8:  # what is imported or compiled once, in the background, takes a round or two
                    await vanish_in_crowds(address, 1000)
                    await until(lambda: alone(network))
                    sizes.append(rss_bytes(brokers.pid("a")))
                    if sizes[-1] - sizes[-2] < 1 << 20:
                        break
                assert sizes[-1] - sizes[-2] < 1 << 20, f"each thousand of clients made it larger: {sizes}"
                await network.publish({"n": 1})
                await anext(messages)
                assert network.reconnects == 0

    async def alone(network: penstock.Network) -> bool:
        report = await network.broker_report()
        return bool(report["connections"] == 1)

    run(thousand())


def test_links_that_are_cut_again_and_again_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut() -> None:
        async with a_network(("a", "b")) as brokers:
            for _ in range(3):
                cutting(brokers["b"])()
                await until(lambda: not up(brokers["a"], "b"))
                await until(lambda: up(brokers["a"], "b") and up(brokers["b"], "a"))

    def cutting(broker: BrokerServer) -> Callable[[], None]:
        connection = next(iter(broker.connections))
        return lambda: connection.abort("a test cuts it")

    def up(broker: BrokerServer, peer: str) -> bool:
        return any(link["up"] for link in broker_status(broker)["links"] if link["peer"] == peer)

    run(cut())


def unfinished(name: str) -> bytes:
    """A handshake of this client, and the head of a frame that does not end."""
    return encode_handshake(Handshake(role="client", name=name)) + (1_800_000).to_bytes(4, "big")


UNFINISHED = unfinished("raw")


def test_a_frame_that_trickles_in_for_ever_ends_its_connection() -> None:
    async def trickles() -> None:
        patience = dataclasses.replace(IMPATIENT, silence_max=60.0, frame_within=0.3)
        async with a_broker(ServerConfig(connection=patience, sweep_interval=0.05)) as broker:
            raw = await RawClient.connect(broker.address)
            raw.send(UNFINISHED)
            reason = asyncio.ensure_future(raw.close_reason())
            while not reason.done():
                raw.send(b"\x00")  # progress, of a kind
                await asyncio.wait([reason], timeout=0.02)
            assert "not finished within 0.3 s" in await reason
            assert broker.host.refusals == 1
            raw.writer.close()

    run(trickles())


def test_a_long_frame_that_comes_quickly_is_not_the_one_that_is_cut_off() -> None:
    async def held_up() -> None:
        config = ServerConfig(unfinished_bytes_max=2_000_000)
        async with (
            a_broker(config) as broker,
            penstock.connect(url(broker)) as network,
            network.subscribe("n = 1") as wish,
        ):
            slow = [await RawClient.connect(broker.address) for _ in range(19)]
            for number, raw in enumerate(slow):
                raw.send(unfinished(f"slow-{number}") + bytes(100_000))
            await until(lambda: broker._unfinished.bytes_in_all >= 1_890_000)
            for _ in range(3):
                await network.publish({"n": 1}, bytes(900_000))
                assert len((await anext(wish)).body) == 900_000
            assert network.reconnects == 0
            for raw in slow:
                await raw.vanish()

    run(held_up())


def test_unfinished_frames_of_all_connections_together_have_a_bound() -> None:
    async def many() -> None:
        config = ServerConfig(unfinished_bytes_max=2_000_000)
        async with (
            a_broker(config) as broker,
            penstock.connect(url(broker)) as network,
            network.subscribe("n = 1") as wish,
        ):
            small = [await RawClient.connect(broker.address) for _ in range(5)]
            for number, raw in enumerate(small):
                raw.send(unfinished(f"small-{number}") + bytes(300_000))
            await until(lambda: broker._unfinished.bytes_in_all >= 1_500_000)
            large = await RawClient.connect(broker.address)
            large.send(UNFINISHED + bytes(700_000))
            assert "unfinished frames" in await small[0].close_reason()
            assert broker.host.refusals == 1
            assert broker._unfinished.bytes_in_all <= 2_000_000
            await network.publish({"n": 1})
            await anext(wish)
            for raw in (*small, large):
                await raw.vanish()
            await until(lambda: len(broker.connections) == 1)
            assert broker._unfinished.bytes_in_all == 0

    run(many())

"""Links between live brokers: each kind carries, keeps its bound, and drops nothing in silence."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import penstock
from live_help import PLAIN, a_network, dropped, known, run, until, url
from penstock.kernel.packet import Lane
from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.wire import datagram_port
from penstock.live.wire.datagram_port import DatagramPort
from penstock.live.wire.tcp_port import TcpPort
from penstock.overlay.client import Client
from penstock.overlay.packets import Publication
from penstock.testing import a_message

KINDS: dict[str, dict[str, Any]] = {
    "datagram": {"kind": "datagram"},
    "datagram at a rate": {"kind": "datagram", "rate_bits_per_s": 20e6},
    "shaped at a rate": {"kind": "shaped", "rate_bits_per_s": 20e6},
    "reliable": {"kind": "reliable"},
    "reliable at a rate": {"kind": "reliable", "rate_bits_per_s": 20e6},
}


async def publish_across(brokers: dict[str, BrokerServer], count: int, body_bytes: int) -> int:
    """Publish at a, subscribe at b; returns how many arrived once all that were not have been accounted for."""
    a, b = brokers["a"], brokers["b"]
    async with penstock.connect(url(b)) as there, there.subscribe("n >= 0", queue_max=count) as messages:
        await known(a, 1)
        async with penstock.connect(url(a)) as here:
            for n in range(count):
                await here.publish({"n": n}, bytes(body_bytes))
        await until(lambda: messages.report().received + dropped(a) >= count)
        assert messages.report().received + dropped(a) == count
        assert dropped(b) == 0
        return messages.report().received


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_link_carries_all_that_it_has_room_for(kind: str) -> None:
    async def carries() -> None:
        async with a_network(("a", "b"), node=PLAIN, **KINDS[kind]) as brokers:
            assert await publish_across(brokers, 300, 200) == 300
            port = next(port for port in brokers["a"].host.ports.values() if port.peer == "b")
            assert isinstance(port, DatagramPort if "datagram" in kind else TcpPort)

    run(carries())


@pytest.mark.parametrize(("kind", "place"), [("datagram", "pipe"), ("shaped", "egress"), ("reliable", "egress")])
def test_a_narrow_link_drops_what_its_queue_cannot_hold_and_counts_it(kind: str, place: str) -> None:
    async def narrow() -> None:
        link = {"kind": kind, "rate_bits_per_s": 200e3, "queue_packets": 20}
        async with a_network(("a", "b"), node=PLAIN, **link) as brokers:
            received = await publish_across(brokers, 200, 1000)
            assert 20 <= received < 200
            assert dropped(brokers["a"], place=place, cause="queue full") == 200 - received

    run(narrow())


def test_what_does_not_fit_a_datagram_is_dropped_with_that_cause() -> None:
    async def large() -> None:
        async with a_network(("a", "b"), kind="datagram") as brokers:
            assert await publish_across(brokers, 3, 60_001) == 0
            assert dropped(brokers["a"], place="pipe", cause="too large for a datagram") == 3
            brokers["a"].host.drops.clear()
            assert await publish_across(brokers, 3, 50_000) == 3

    run(large())


def test_what_does_not_fit_a_datagram_takes_the_connection_if_its_kind_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publication, "large_by_connection", True)

    async def large() -> None:
        async with a_network(("a", "b"), kind="datagram") as brokers:
            assert await publish_across(brokers, 3, 200_000) == 3
            monkeypatch.setattr(datagram_port, "LARGE_BYTES_MAX", 300_000)
            received = await publish_across(brokers, 3, 299_000)
            assert dropped(brokers["a"], place="pipe", cause="queue full") == 3 - received

    run(large())


def test_datagrams_of_strangers_are_counted_and_ignored() -> None:
    async def strangers() -> None:
        async with a_network(("a", "b"), kind="datagram") as brokers:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for data in (b"", b"short", bytes(100), b"\xff" * 2000):
                    sock.sendto(data, brokers["a"].address)
            await until(lambda: brokers["a"].endpoint.strangers == 4)
            assert await publish_across(brokers, 10, 10) == 10

    run(strangers())


def test_a_bad_datagram_from_a_neighbour_is_refused_and_the_link_goes_on() -> None:
    async def bad() -> None:
        async with a_network(("a", "b"), kind="datagram") as brokers:
            (token,) = brokers["a"].endpoint.ports
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(token.to_bytes(8, "big") + bytes(8) + b"\xc1nonsense", brokers["a"].address)
            await until(lambda: brokers["a"].host.refusals == 1)
            assert await publish_across(brokers, 10, 10) == 10

    run(bad())


def test_control_overtakes_data_on_a_narrow_link() -> None:
    async def overtakes() -> None:
        link = {"kind": "shaped", "rate_bits_per_s": 200e3, "queue_packets": 1000}
        async with a_network(("a", "b"), node=PLAIN, **link, config=ServerConfig(drain_within=0.1)) as brokers:
            a, b = brokers["a"], brokers["b"]
            async with penstock.connect(url(b)) as there, there.subscribe("n >= 0") as messages:
                await known(a, 1)
                async with penstock.connect(url(a)) as here:
                    for n in range(100):  # four seconds' worth
                        await here.publish({"n": n}, bytes(1000))
                    async with here.subscribe("reply = 1"):
                        await known(b, 1)
                        assert messages.report().received < 100

    run(overtakes())


def test_a_broker_that_stops_lets_out_what_waits_first() -> None:
    async def drains() -> None:
        link = {"kind": "reliable", "rate_bits_per_s": 2e6, "queue_packets": 1000}
        async with a_network(("a", "b"), node=PLAIN, **link) as brokers:
            a, b = brokers["a"], brokers["b"]
            async with penstock.connect(url(b)) as there, there.subscribe("n >= 0") as messages:
                await known(a, 1)
                async with penstock.connect(url(a)) as here:
                    for n in range(200):
                        await here.publish({"n": n}, bytes(1000))
                    await until(lambda: packets_from_clients(a) > 200)  # an Attach, and all that was published
                    await a.stop()
                await until(lambda: messages.report().received == 200)

    def packets_from_clients(broker: BrokerServer) -> int:
        return sum(one.packets_in for one in broker.connections if one.peer is not None and one.peer.role == "client")

    run(drains())


@pytest.mark.parametrize("kind", ["datagram", "shaped", "reliable"])
def test_control_messages_of_services_come_through_where_data_is_dropped(kind: str) -> None:
    async def come_through() -> None:
        link = {"kind": kind, "rate_bits_per_s": 200e3, "queue_packets": 20}
        async with (
            a_network(("a", "b"), node=PLAIN, **link) as brokers,
            penstock.connect(url(brokers["b"])) as there,
            there.subscribe("n >= 0") as data,
            there.subscribe("urgent") as urgent,
            penstock.connect(url(brokers["a"])) as here,
        ):
            a = brokers["a"]
            await known(a, 2)
            for n in range(100):
                await here.publish({"n": n}, bytes(1000))
            await until(lambda: dropped(a, cause="queue full") > 0)
            home = here._link
            assert home is not None
            feedback = a_message(1, {"urgent": True}, publisher=here.name)
            home.host.apply(home.node.route([home.node.machine(Client).carry(feedback, Lane.SERVICE_CONTROL)]))
            await anext(urgent)
            assert data.report().received + dropped(a, cause="queue full") < 100  # data still waits
            assert urgent.report().lost_at_broker == 0

    run(come_through())

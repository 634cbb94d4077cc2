"""What live links can carry is measured on their sockets (protocols 12.7 point 1), and what does not fit is thinned.

A link over TCP has no rate of its own: its port is busy while the socket takes nothing. Here that is a socket whose
other end reads so many bytes per second. A port with a rate knows how long its bytes take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, Literal

import pytest

import penstock
from live_help import a_network, dropped, run, until, url
from penstock.kernel.link import LinkLoad
from penstock.live.broker.plan import plan_for
from penstock.live.broker.server import BrokerServer
from penstock.live.wire.addresses import Address
from penstock.live.wire.tcp_port import TcpPort
from penstock.rates.broker_service import RatesBroker
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from throttled_link import ThrottledLink

BODY = bytes(400)
RATE = 100_000.0  # bytes per second
OFFERED = 3  # messages for each that comes
FIRST = 100
HERE = Address("127.0.0.1", 0)


@asynccontextmanager
async def throttled(
    kind: Literal["reliable", "shaped", "tcp"],
) -> AsyncIterator[tuple[BrokerServer, BrokerServer, Any]]:
    """Two brokers, and the way from the first to the second."""
    link = LinkSpec(between=("a", "b"), kind=kind, queue_packets=100)
    scenario = Scenario(name="two", duration=1.0, broker=(BrokerSpec(name="a"), BrokerSpec(name="b")), link=(link,))
    b = BrokerServer(plan_for(scenario, "b", {"a": HERE, "b": HERE}))
    await b.start()
    way = ThrottledLink(b.address.port, RATE)
    way.start()
    a = BrokerServer(plan_for(scenario, "a", {"a": HERE, "b": Address("127.0.0.1", way.port)}))
    await a.start()
    try:
        await until(lambda: bool(a.host.ports) and bool(b.host.ports))
        yield a, b, way
    finally:
        await a.stop()
        await way.close()
        await b.stop()


class Flood:
    """More than the link takes, from a to b; and what a says of the link meanwhile."""

    def __init__(self, here: BrokerServer, there: BrokerServer, writer: Any, messages: Any) -> None:
        self.here, self.there, self.writer, self.messages = here, there, writer, messages
        self.sent = 0
        self.capacities: list[float] = []
        self._seen = -1.0

    @property
    def withheld(self) -> int:
        return self.here.node.machine(RatesBroker).status().withheld_in_all

    async def until(self, enough: Callable[[], bool]) -> None:
        while not enough():
            for _ in range(10):
                self.sent += 1
                await self.writer.publish({"x": self.sent}, BODY)
            await until(lambda: self.sent < FIRST + OFFERED * self.messages.report().received)
            said = self.here.node.machine(RatesBroker).status().links.get("b")
            if said is not None and said.capacity != self._seen:
                self._seen = said.capacity
                self.capacities.append(said.capacity)


@asynccontextmanager
async def flood(a: BrokerServer, b: BrokerServer) -> AsyncIterator[Flood]:
    async with (
        penstock.connect(url(a), name="writer") as writer,
        penstock.connect(url(b), name="reader") as reader,
        reader.subscribe("x > 0", queue_max=100_000) as messages,
    ):
        yield Flood(a, b, writer, messages)


@pytest.mark.parametrize("kind", ["reliable", "tcp"])
def test_a_socket_that_takes_so_much_shows_its_capacity_and_the_rest_is_thinned(
    kind: Literal["reliable", "tcp"],
) -> None:
    async def measured() -> None:
        async with throttled(kind) as (a, b, way), flood(a, b) as flow:
            await flow.until(lambda: way.passed_bytes > 1.0 * RATE)
            before, sent = dropped(a) + dropped(b), flow.sent
            flow.capacities.clear()
            await flow.until(lambda: way.passed_bytes > 3.0 * RATE)
            assert 0.75 * RATE < median(flow.capacities) < 1.35 * RATE
            assert flow.withheld > 0
            assert dropped(a) + dropped(b) - before <= 0.02 * (flow.sent - sent)
            [port] = [port for port in a.host.ports.values() if port.peer == "b"]
            load = port.load()
            assert load.offered_bytes == load.left_bytes + load.waiting_bytes
            assert load.busy_seconds > 0.0

            way.rate = RATE / 4.0
            passed, withheld = way.passed_bytes, flow.withheld
            await flow.until(lambda: way.passed_bytes > passed + 0.4 * RATE)
            flow.capacities.clear()
            await flow.until(lambda: way.passed_bytes > passed + 0.7 * RATE)
            assert median(flow.capacities) < 0.4 * RATE, "a way that has become narrower is seen"
            assert flow.withheld > withheld

    run(measured())


@pytest.mark.parametrize("kind", ["datagram", "reliable", "shaped"])
def test_a_port_with_a_rate_has_that_capacity(kind: str) -> None:
    async def measured() -> None:
        link = {"kind": kind, "rate_bits_per_s": 8.0 * RATE, "queue_packets": 100}
        async with a_network(("a", "b"), **link) as brokers, flood(brokers["a"], brokers["b"]) as flow:
            [port] = [port for port in brokers["a"].host.ports.values() if port.peer == "b"]
            await flow.until(lambda: port.load().left_bytes > 0.5 * RATE)
            flow.capacities.clear()
            await flow.until(lambda: port.load().left_bytes > 1.2 * RATE)
            assert median(flow.capacities) == pytest.approx(RATE, rel=0.05)
            load = port.load()
            assert load.offered_bytes == load.left_bytes + load.waiting_bytes
            assert load.busy_seconds == pytest.approx(load.left_bytes / RATE, rel=0.05)
            assert flow.withheld > 0

    run(measured())


class _Stub:
    """A connection and a host with a clock, for one port."""

    def __init__(self) -> None:
        self.now, self.paused, self.buffered = 10.0, False, 0

    def time(self) -> float:
        return self.now

    def buffered_bytes(self) -> int:
        return self.buffered

    def limit_buffer(self, high_bytes: int, *, whole: bool = False) -> None: ...

    def link_ready(self, link: int, room_bytes: int) -> None: ...


def test_a_port_without_a_rate_is_busy_while_its_socket_takes_nothing() -> None:
    async def counted() -> None:
        stub: Any = _Stub()
        port = TcpPort(stub, 0, "b", stub, room_bytes=1_000)
        port._loop = stub
        port.bytes_sent = 5_000
        assert port.load() == LinkLoad(5_000, 5_000, 0, 0.0)
        stub.paused, stub.buffered = True, 800
        port.offer_room()
        stub.now += 0.25
        port.offer_room()  # still not
        stub.now += 0.25
        assert port.load() == LinkLoad(5_000, 4_200, 800, 0.5), "also while it lasts"
        stub.paused, stub.buffered = False, 100
        port.offer_room()
        stub.now += 1.0
        assert port.load() == LinkLoad(5_000, 4_900, 100, 0.5)

    run(counted())

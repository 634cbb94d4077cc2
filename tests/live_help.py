"""Helpers for tests with real sockets: brokers on free ports of this machine, and waiting for what must happen.

Nothing here sleeps for a guessed time: `until` looks again and again until a condition holds, and fails at a deadline
that no healthy machine comes near.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.live.broker.plan import BrokerPlan, assign_addresses, plan_for
from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.emulation.emulated_links import EmulatedLinks
from penstock.live.emulation.scenario_run import settled
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import ConnectionConfig
from penstock.live.wire.frames import Close, FrameDecoder, Handshake, encode_frame, encode_handshake
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.broker import Broker
from penstock.overlay.packets import Attach, Subscribe
from penstock.overlay.routing import Routing
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario

T = TypeVar("T")
DEADLINE = 30.0
IMPATIENT = ConnectionConfig(handshake_within=0.4, keepalive=0.1, silence_max=0.5)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; a hanging one fails."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * DEADLINE):
            return await work

    return asyncio.run(bounded())


async def until(holds: Callable[[], bool | Awaitable[bool]], *, within: float = DEADLINE) -> None:
    """Return as soon as the condition holds."""
    async with asyncio.timeout(within):
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.003)


@asynccontextmanager
async def a_broker(
    config: ServerConfig | None = None, *, node: NodeConfig | None = None, **plan: Any
) -> AsyncIterator[BrokerServer]:
    """One broker on a free port."""
    given = {"name": "solo", "listen": Address("127.0.0.1", 0), "config": node or NodeConfig(), **plan}
    server = BrokerServer(BrokerPlan(**given), config)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def a_line(*names: str, **link: Any) -> Scenario:
    """Brokers in a row, joined by links with these settings."""
    links = tuple(LinkSpec(between=(a, b), **link) for a, b in pairwise(names))
    return Scenario(name="line", duration=1.0, broker=tuple(BrokerSpec(name=name) for name in names), link=links)


@asynccontextmanager
async def a_network(
    scenario: Scenario, config: ServerConfig | None = None, *, node: NodeConfig | None = None
) -> AsyncIterator[dict[str, BrokerServer]]:
    """All brokers of a scenario in this process, linked."""
    async with an_emulated_network(scenario, config, node=node) as (servers, _):
        yield servers


@asynccontextmanager
async def an_emulated_network(
    scenario: Scenario, config: ServerConfig | None = None, *, seed: int = 7, node: NodeConfig | None = None
) -> AsyncIterator[tuple[dict[str, BrokerServer], EmulatedLinks]]:
    """The same, and the link emulators that make its datagram links lose and reorder as the scenario says."""
    addresses = assign_addresses(scenario, base_port=None)
    servers: dict[str, BrokerServer] = {}
    async with EmulatedLinks(scenario, addresses, seed) as emulated:
        try:
            for name in addresses:
                seen = {other: emulated.via.get((name, other), address) for other, address in addresses.items()}
                plan = plan_for(emulated.scenario, name, seen)
                servers[name] = BrokerServer(dataclasses.replace(plan, config=node or plan.config), config)
            for server in servers.values():
                await server.start()
            await settled(addresses, scenario)
            yield servers, emulated
        finally:
            for server in servers.values():
                await server.stop()


def with_links(scenario: Scenario, **changes: Any) -> Scenario:
    """The scenario with all its links changed."""
    return replace(scenario, link=tuple(replace(link, **changes) for link in scenario.link))


def url(server: BrokerServer) -> str:
    return f"penstock://{server.address}"


async def known(broker: BrokerServer, entries: int) -> None:
    """Wait until a broker has learnt that somebody elsewhere wants something."""
    await until(lambda: len(broker.node.machine(Routing).form) >= entries)


def subscriptions(broker: BrokerServer) -> int:
    """How many subscriptions a broker's clients have."""
    return sum(broker.node.machine(Broker).subscriptions_of(link) for link in broker.host.ports)


def dropped(server: BrokerServer, *, place: str | None = None, cause: str | None = None) -> int:
    """How many packets a broker has dropped, there and because of that."""
    return sum(
        packets for (_, at, why), packets in server.host.drops.items() if place in (None, at) and cause in (None, why)
    )


class RawClient:
    """A peer that is under no obligation to behave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: Address, *, receive_bytes: int | None = None) -> RawClient:
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
        return cls(*await asyncio.open_connection(sock=sock, limit=1 << 12))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def handshake(self, name: str = "raw", role: str = "client") -> None:
        self.send(encode_handshake(Handshake(role=role, name=name)))  # type: ignore[arg-type]

    def subscribe(self, where: str, name: str = "raw") -> None:
        self.send(encode_frame([Attach(name, 1), Subscribe(1, 1, where)]))

    async def close_reason(self) -> str:
        """Read until the broker closes; the reason it gave."""
        decoder = FrameDecoder()
        reason = ""
        while data := await self._read():
            for frame in decoder.feed(data):
                if isinstance(frame, Close):
                    reason = frame.problem
        return reason

    async def _read(self) -> bytes:
        try:
            return await self.reader.read(1 << 16)
        except ConnectionError:
            return b""

    async def vanish(self) -> None:
        """Go without a close frame."""
        self.writer.transport.abort()
        await asyncio.sleep(0)

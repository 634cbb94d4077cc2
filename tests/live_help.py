"""Helpers for tests with real sockets: what `penstock.testing` has no reason to offer to others.

The brokers of `penstock.testing.embedded_network` to look inside, and a peer that does not behave.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import ConnectionConfig
from penstock.live.wire.frames import Close, FrameDecoder, Handshake, encode_frame, encode_handshake
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.broker import Broker
from penstock.overlay.packets import Attach, Subscribe
from penstock.overlay.routing import Routing
from penstock.rates.config import RatesConfig
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from penstock.testing import embedded_network
from penstock.testing import until as until_it_holds
from penstock.testing.shape import Shape

T = TypeVar("T")
DEADLINE = 30.0
until = partial(until_it_holds, within=DEADLINE)
IMPATIENT = ConnectionConfig(handshake_within=0.4, keepalive=0.1, silence_max=0.5)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; a hanging one fails."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * DEADLINE):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def a_broker(
    config: ServerConfig | None = None, *, node: NodeConfig | None = None
) -> AsyncIterator[BrokerServer]:
    """One broker, to look inside."""
    async with embedded_network(("solo",), config=config, node=node) as network:
        yield network.servers["solo"]


def a_line(*names: str, **link: Any) -> Scenario:
    """Brokers in a row, joined by links with these settings."""
    links = tuple(LinkSpec(between=(a, b), **link) for a, b in pairwise(names))
    return Scenario(name="line", duration=1.0, broker=tuple(BrokerSpec(name=name) for name in names), link=links)


@asynccontextmanager
async def a_network(brokers: Shape, **settings: Any) -> AsyncIterator[dict[str, BrokerServer]]:
    """An embedded network, to look inside."""
    async with embedded_network(brokers, **settings) as network:
        yield network.servers


PLAIN = NodeConfig(services={"rates": RatesConfig(enabled=False)})  # links share nothing, and queues drop


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

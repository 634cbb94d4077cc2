"""One live broker: a listener, connections to neighbours and clients, and a broker's node behind them.

A connection begins with a greeting. A client gets a link of its own, for as long as it stays. A broker must be a
neighbour in the plan; its link has a fixed number, and a new connection for it replaces the old one, which the
neighbour has evidently given up. Roles decide what may be said: a client that sends routing packets, or a broker that
subscribes, has its connection closed.

Whatever goes wrong on one connection stays there: it is closed with a goodbye that says why, and recorded. The broker
calls the neighbours that the plan tells it to, again and again with growing waits, so a network heals by itself.

`stop` is what SIGTERM leads to: accept nothing, read nothing, let the queues drain for a bounded time, say goodbye.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from errno import EADDRINUSE, EADDRNOTAVAIL

from penstock.content.matching import compiled as kernels
from penstock.errors import NotPossibleHere
from penstock.kernel.machine import Lane, Link, Packet, Send
from penstock.kernel.randomness import stream
from penstock.kernel.trace import Counted, Dropped, InputRefused, NeighbourChanged, Record
from penstock.live.broker.plan import BrokerPlan, Neighbour
from penstock.live.broker.status import StatusService, broker_status
from penstock.live.host import LiveHost
from penstock.live.trace import LiveTrace
from penstock.live.wire.addresses import Address
from penstock.live.wire.backoff import Backoff
from penstock.live.wire.connection import Connection, ConnectionConfig
from penstock.live.wire.datagram_port import DatagramPort
from penstock.live.wire.frames import Greeting
from penstock.live.wire.tcp_port import BROKER_ROOM_BYTES, CLIENT_ROOM_BYTES, TcpPort
from penstock.live.wire.udp import DatagramEndpoint, datagram_socket
from penstock.overlay.egress import LinkInfo, LinkKind
from penstock.overlay.node import BrokerNode, NodeConfig
from penstock.overlay.packets import (
    Attach,
    Hello,
    Interest,
    LinkState,
    Losses,
    Publication,
    Publish,
    StatusRequest,
    Subscribe,
    Summary,
    Unsubscribe,
)

log = logging.getLogger("penstock.broker")

CLIENT_MAY_SAY = frozenset([Attach, Subscribe, Unsubscribe, Publish, StatusRequest])
BROKER_MAY_SAY = frozenset([Hello, LinkState, Interest, Summary, Publication])


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Bounds of a live broker; all our own choice."""

    connection: ConnectionConfig = field(default_factory=ConnectionConfig)
    connections_max: int = 12_000  # more than clients_max of the broker, so that a client over that limit is told
    client_queue_packets: int = 10_000  # what may wait for a client that the plan does not name
    sweep_interval: float = 1.0  # between two looks at all connections
    drain_within: float = 3.0
    backlog: int = 1024


class BrokerServer:
    """A broker that listens."""

    def __init__(self, plan: BrokerPlan, config: ServerConfig | None = None, *, trace: LiveTrace | None = None) -> None:
        self.plan = plan
        self.config = config or ServerConfig()
        self.address = plan.listen
        self.incarnation = time.time_ns() // 1_000_000
        self.connections: dict[Connection, Link | None] = {}  # None until it has said who it is
        self._trace = trace
        self.links: dict[Link, LinkInfo] = {}
        self.neighbours = dict(enumerate(plan.neighbours))
        self._tokens: dict[Link, int] = {}
        for link, neighbour in self.neighbours.items():
            spec = neighbour.spec
            self.links[link] = LinkInfo(neighbour.name, neighbour.kind, spec.cost, spec.queue_packets)
            if neighbour.kind is LinkKind.DATAGRAM:
                self._tokens[link] = 0
        self._next_link = len(plan.neighbours)
        self._peers: dict[str, Link] = {info.peer: link for link, info in self.links.items()}
        self._losses: dict[Link, int] = {}  # deliveries dropped on the way to a client since it was last told
        self._told_at: dict[Link, int] = {}  # how many packets had been sent to a client when it was last told
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    # Life.

    async def start(self) -> None:
        """Listen, and call the neighbours; raises NotPossibleHere if the address cannot be had."""
        kernels.prepare_beside(lambda job: threading.Thread(target=job, name="kernels", daemon=True).start())
        self._loop = asyncio.get_running_loop()
        self.host = LiveHost(self.plan.name, "broker", self.incarnation, trace=self._trace)
        self.host.on_record = self._recorded
        self.endpoint = DatagramEndpoint(self.host.note)
        await self._listen()
        random = stream(self.incarnation, self.plan.name, "routing")
        config = NodeConfig(scheme=self.plan.scheme)
        self.node = BrokerNode(
            self.plan.broker,
            self.incarnation,
            self.links,
            random,
            config,
            (StatusService(lambda: broker_status(self)),),
        )
        self.host.start(self.node)
        for link, neighbour in self.neighbours.items():
            if neighbour.calls is not None:
                self._tasks.append(self._loop.create_task(self._keep_calling(link, neighbour, neighbour.calls)))
        self._tasks.append(self._loop.create_task(self._keep_sweeping()))

    async def stop(self) -> None:
        """Take in nothing more, let out what waits, say goodbye."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        self._server.close()
        for connection in self.connections:
            connection.hold()
        await self._drain()
        for connection in list(self.connections):
            connection.end("the broker is shutting down")
        self.host.stop("leave")
        if self.connections:
            await asyncio.wait([connection.over for connection in self.connections], timeout=self.config.drain_within)
        self.endpoint.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._trace is not None:
            await self._loop.run_in_executor(None, self._trace.close)

    async def _listen(self) -> None:
        host, port = self.plan.listen
        try:
            self._server = await self._loop.create_server(
                lambda: Connection(self, self.config.connection), host, port, backlog=self.config.backlog
            )
            self.address = Address(host, self._server.sockets[0].getsockname()[1])
            if self._tokens:
                sock = datagram_socket(host, self.address.port)
                await self._loop.create_datagram_endpoint(lambda: self.endpoint, sock=sock)
        except OSError as error:
            raise _cannot_listen(self.plan.listen, error) from None

    async def _drain(self) -> None:
        """Wait until nothing is queued for anybody who still takes something, or the time is up."""
        until = self._loop.time() + self.config.drain_within
        while self._queued() and self._loop.time() < until:
            await asyncio.sleep(0.005)

    def _queued(self) -> int:
        egress = self.node.egress
        waiting = sum(egress.waiting_packets(link) for link in self.host.ports)
        for port in self.host.ports.values():
            if isinstance(port, DatagramPort):
                waiting += port.queued_packets()
            elif isinstance(port, TcpPort):
                waiting += port.connection.buffered_bytes()
        return waiting

    # Connections.

    def made(self, connection: Connection) -> None:
        """Somebody has called, or we have: it has yet to say who it is."""
        limit = self.config.connections_max
        if len(self.connections) >= limit:
            self._refuse(connection, f"this broker has as many connections as it takes: connections_max is {limit}")
        self.connections[connection] = None

    def greeted(self, connection: Connection, greeting: Greeting) -> None:
        """A peer has said who it is: find its link, answer, and bring the link up."""
        if self._stopping:
            connection.end("the broker is shutting down")
        elif greeting.role == "client":
            self._client_greeted(connection, greeting)
        else:
            self._broker_greeted(connection, greeting)

    def received(self, connection: Connection, packets: list[Packet]) -> None:
        link = self.connections.get(connection)
        if link is None:
            return
        allowed = BROKER_MAY_SAY if link in self.neighbours else CLIENT_MAY_SAY
        if not allowed.issuperset(map(type, packets)):
            kinds = sorted({type(packet).__name__ for packet in packets if type(packet) not in allowed})
            role = connection.peer.role if connection.peer is not None else "peer"
            self._refuse(connection, f"a {role} may not send {', '.join(kinds)}")
            return
        neighbour = self.neighbours.get(link)
        self.host.receive_after(neighbour.delay if neighbour is not None else 0.0, link, packets)

    def writable(self, connection: Connection) -> None:
        link = self.connections.get(connection)
        port = self.host.ports.get(link) if link is not None else None
        if isinstance(port, TcpPort):
            port.offer_room()

    def lost(self, connection: Connection, problem: str) -> None:
        link = self.connections.pop(connection, None)
        name = connection.peer.name if connection.peer is not None else connection.address
        if connection.violation and not self._stopping:
            self.host.note(InputRefused(name, problem))
        if link is None:
            return
        log.info("%s: %s is gone: %s", self.plan.name, name, problem)
        port = self.host.ports.get(link)
        if isinstance(port, TcpPort | DatagramPort) and port.connection is connection:
            self.host.link_down(link)
            if isinstance(port, DatagramPort):
                self.endpoint.ports.pop(port.own_token, None)
        if link not in self.neighbours:
            info = self.links.pop(link)
            self._peers.pop(info.peer, None)
            self._losses.pop(link, None)
            self._told_at.pop(link, None)
            self.host.forget_peer(info.peer)

    def _client_greeted(self, connection: Connection, greeting: Greeting) -> None:
        link = self._next_link
        self._next_link += 1
        peer = greeting.name if greeting.name not in self._peers else f"{greeting.name}#{link}"
        spec = self.plan.clients.get(greeting.name)
        queue = spec.queue_packets if spec is not None else self.config.client_queue_packets
        rate = spec.access_rate_bits_per_s if spec is not None else None
        self.links[link] = LinkInfo(peer, LinkKind.RELIABLE, 1, queue)
        self._peers[peer] = link
        connection.greet(self._greeting())
        port = TcpPort(self.host, link, peer, connection, room_bytes=CLIENT_ROOM_BYTES, rate_bits_per_s=rate)
        self._connected(connection, link, port)

    def _broker_greeted(self, connection: Connection, greeting: Greeting) -> None:
        link = self._peers.get(greeting.name)
        neighbour = self.neighbours.get(link) if link is not None else None
        if link is None or neighbour is None or neighbour.broker != greeting.broker:
            self._refuse(
                connection, f"the network file of '{self.plan.name}' has no link to a broker '{greeting.name}'"
            )
            return
        if connection.called not in (None, greeting.name):
            self._refuse(connection, f"called '{connection.called}' and found '{greeting.name}': mend the addresses")
            return
        if neighbour.kind is LinkKind.DATAGRAM and not greeting.datagram_token:
            self._refuse(
                connection, f"the link is a datagram link here and not at '{greeting.name}': use the same file"
            )
            return
        old = self.host.ports.get(link)
        if isinstance(old, TcpPort | DatagramPort):
            old.connection.abort("replaced by a new connection")
            self.host.link_down(link)
        if connection.called is None:
            connection.greet(self._greeting(link))
        self._connected(connection, link, self._broker_port(link, neighbour, connection))

    def _broker_port(self, link: Link, neighbour: Neighbour, connection: Connection) -> TcpPort | DatagramPort:
        spec = neighbour.spec
        if neighbour.kind is not LinkKind.DATAGRAM:
            room, rate = BROKER_ROOM_BYTES, spec.rate_bits_per_s
            return TcpPort(self.host, link, neighbour.name, connection, room_bytes=room, rate_bits_per_s=rate)
        port = DatagramPort(
            self.host,
            link,
            neighbour.name,
            connection,
            self.endpoint,
            own_token=self._tokens[link],
            queue_packets=spec.queue_packets,
            rate_bits_per_s=spec.rate_bits_per_s,
            delay=neighbour.delay,
        )
        self.endpoint.ports[port.own_token] = port
        return port

    def _connected(self, connection: Connection, link: Link, port: TcpPort | DatagramPort) -> None:
        self.connections[connection] = link
        log.info("%s: %s is connected from %s", self.plan.name, port.peer, connection.address)
        self.host.link_up(port)
        if isinstance(port, TcpPort):
            port.offer_room()

    def _greeting(self, link: Link = -1) -> Greeting:
        """What we say to the peer at this link; a datagram link gets a new word with every connection."""
        token = 0
        if link in self._tokens:
            token = self._tokens[link] = int.from_bytes(os.urandom(8), "big")
        return Greeting(
            role="broker",
            name=self.plan.name,
            broker=self.plan.broker,
            incarnation=self.incarnation,
            datagram_port=self.address.port if token else 0,
            datagram_token=token,
        )

    def _refuse(self, connection: Connection, problem: str) -> None:
        log.warning("%s: %s: %s", self.plan.name, connection.address, problem)
        connection.end(problem, violation=True)

    # Neighbours.

    async def _keep_calling(self, link: Link, neighbour: Neighbour, address: Address) -> None:
        """Hold a connection to a neighbour, for ever."""
        backoff = Backoff(stream(self.incarnation, self.plan.name, "calling", neighbour.name))
        while True:
            greeting = self._greeting(link)
            connection = Connection(self, self.config.connection, greeting=greeting, called=neighbour.name)
            try:
                async with asyncio.timeout(self.config.connection.greet_within):
                    await self._loop.create_connection(lambda made=connection: made, *address)  # type: ignore[misc]
            except (OSError, TimeoutError) as error:
                log.debug("%s: cannot reach %s at %s: %s", self.plan.name, neighbour.name, address, error)
            else:
                await asyncio.shield(connection.over)
                if connection.peer is not None:
                    backoff.reset()
            await asyncio.sleep(backoff.wait())

    def _recorded(self, record: Record) -> None:
        """A neighbour that has fallen silent is called anew; a client that missed something is told so."""
        if type(record) is NeighbourChanged and not record.up and record.cause == "silent":
            for link, neighbour in self.neighbours.items():
                port = self.host.ports.get(link)
                if neighbour.broker == record.neighbour and isinstance(port, TcpPort | DatagramPort):
                    port.connection.abort("silent")
        elif type(record) is Dropped and record.kind == "Delivery":
            link_to = self._peers.get(record.peer)
            if link_to is not None:
                self._losses[link_to] = self._losses.get(link_to, 0) + 1

    # Once a second.

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(self.config.sweep_interval)
            now = self._loop.time()
            for connection in list(self.connections):
                connection.look_after(now)
            self._tell_losses()
            if self._trace is not None:
                self.host.count()
                self._count_missing()
                self._trace.tick()

    def _count_missing(self) -> None:
        """What the network lost of our neighbours' datagrams is known from their numbers."""
        for port in self.host.ports.values():
            if isinstance(port, DatagramPort) and port.missing > port.missing_reported:
                self.host.note(Counted("datagrams missing", port.peer, port.missing - port.missing_reported))
                port.missing_reported = port.missing

    def _tell_losses(self) -> None:
        """Tell clients what was dropped on the way to them; one that has taken nothing since is not told yet."""
        for link, count in list(self._losses.items()):
            port = self.host.ports.get(link)
            if port is not None and port.packets_sent != self._told_at.get(link):
                self._told_at[link] = port.packets_sent
                del self._losses[link]
                self.host.apply(self.node.egress.route([Send((link,), Losses(count), Lane.CONTROL)]))


def _cannot_listen(address: Address, error: OSError) -> NotPossibleHere:
    if error.errno == EADDRINUSE:
        return NotPossibleHere(f"somebody listens at {address} already", "stop it, or choose another port")
    if error.errno == EADDRNOTAVAIL:
        return NotPossibleHere(f"{address} is no address of this machine", "listen at 127.0.0.1, or an address it has")
    return NotPossibleHere(f"cannot listen at {address}: {error.strerror or error}", "choose another address")

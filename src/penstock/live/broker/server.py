"""One live broker: a listener, a port for every neighbour and client, and a broker's node behind them.

A connection begins with a handshake. `admission` decides who may connect and what a role may send; `dialer` keeps the
connections that the plan tells this broker to dial. A new connection does not replace a neighbour that is alive
(`newcomers`); one of a client replaces the old one if it is the same client's. Whatever goes wrong on one connection
stays there: it is closed with a reason, and recorded; the log has it once, and then at growing intervals.

Once a second a sweep checks the liveness of all connections and writes counts to the trace. `stop` is what SIGTERM
leads to: accept nothing, read nothing, drain the queues for a bounded time, close.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from dataclasses import dataclass, field, replace
from errno import EADDRINUSE, EADDRNOTAVAIL

from penstock.content.matching import compiled as kernels
from penstock.errors import NotPossibleHere
from penstock.kernel.link import Link, LinkKind
from penstock.kernel.packet import Packet
from penstock.kernel.randomness import generator
from penstock.kernel.trace import InputRefused, Record
from penstock.live.broker.admission import Admission
from penstock.live.broker.dialer import Dialer
from penstock.live.broker.newcomers import Newcomers
from penstock.live.broker.offers import Offers
from penstock.live.broker.passed_on import ROUND_EVERY, PassedOn
from penstock.live.broker.plan import BrokerPlan, Neighbour
from penstock.live.broker.status import broker_status
from penstock.live.client.network import Network, connect
from penstock.live.host import LiveHost
from penstock.live.quiet_log import QuietLog, left_out_text
from penstock.live.store.group_commit import GroupCommit
from penstock.live.store.place import Place, open_store
from penstock.live.trace import LiveTrace
from penstock.live.trace_feed import TraceFeed
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import Connection, ConnectionConfig
from penstock.live.wire.datagram_port import DatagramPort
from penstock.live.wire.frames import Handshake, services_of
from penstock.live.wire.tcp_port import BROKER_ROOM_BYTES, CLIENT_ROOM_BYTES, TcpPort
from penstock.live.wire.udp import DatagramEndpoint, datagram_socket
from penstock.live.wire.unfinished import UNFINISHED_BYTES_MAX, UnfinishedFrames
from penstock.overlay.assembly import Life, broker_node
from penstock.overlay.records import NeighbourChanged
from penstock.services import codec_of, services_without, unknown_kinds

log = logging.getLogger("penstock.broker")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Bounds of a live broker; all our own choice."""

    connection: ConnectionConfig = field(default_factory=ConnectionConfig)
    connections_max: int = 12_000  # more than clients_max of the broker, so that a client over that limit gets a reason
    client_queue_packets: int = 10_000  # what may wait for a client that the plan does not name
    unfinished_bytes_max: int = UNFINISHED_BYTES_MAX  # of frames that were begun, on all connections together
    sweep_interval: float = 1.0  # between two looks at all connections
    drain_within: float = 3.0
    takeover_after: float = 2.0  # silence of a neighbour before a new connection may take its place
    backlog: int = 1024


class BrokerServer:
    """A broker that listens."""

    def __init__(
        self,
        plan: BrokerPlan,
        config: ServerConfig | None = None,
        *,
        trace: LiveTrace | None = None,
        data: Place | None = None,  # where services keep what must survive a crash
    ) -> None:
        self.plan = plan
        self.config = config or ServerConfig()
        self.address = plan.listen
        self.incarnation = time.time_ns() // 1_000_000
        self.connections: dict[Connection, Link | None] = {}  # None until its handshake has come
        self.admission = Admission(
            plan,
            connections_max=self.config.connections_max,
            client_queue_packets=self.config.client_queue_packets,
        )
        self.links = self.admission.links
        self.neighbours = self.admission.neighbours
        self.trace = trace
        self._quiet = QuietLog()
        self._passed_on = PassedOn()
        self._unfinished = UnfinishedFrames(self.config.unfinished_bytes_max)
        self._tokens: dict[Link, int] = {  # what datagrams from a neighbour must carry
            link: 0 for link, neighbour in self.neighbours.items() if neighbour.kind is LinkKind.DATAGRAM
        }
        self._services = services_without(plan.without)
        self._reads = codec_of(self._services)
        self._offers = Offers(self.neighbours, tuple(service.name for service in self._services))
        self._data = data
        self._store: GroupCommit | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    # Life.

    async def start(self) -> None:
        """Listen, and dial the neighbours; raises NotPossibleHere if the address or the store cannot be had."""
        kernels.prepare_beside(lambda job: threading.Thread(target=job, name="kernels", daemon=True).start())
        self._loop = asyncio.get_running_loop()
        self._newcomers = Newcomers(self.config.takeover_after, self._join_broker, self._refuse)
        self.host = LiveHost(self.plan.name, "broker", self.incarnation, trace=self.trace)
        self.host.on_record = self._recorded
        self.feed = TraceFeed(self.host, self._client_of_itself)
        self.endpoint = DatagramEndpoint(self.host.note)
        life = Life(
            name=self.plan.name,
            incarnation=self.incarnation,
            seed=int.from_bytes(os.urandom(8), "big"),
            number=self.plan.broker,
            traced=self.host.traced,
            storage=self._data is not None,
            host_view=lambda: broker_status(self),
            host_load=self.host.link_load,
            brokers=self.plan.brokers,
        )
        self.node = broker_node(self._services, life, self.links, self.plan.config)
        self.admission.allow(self.node.takes())
        if self._data is not None:
            self._store = open_store(self._data, self.plan.name, self.host.completed)
        self.host.start(self.node, self._store)  # before anybody can connect
        try:
            await self._listen()
        except BaseException:  # or nobody waits for it any more
            self.host.stop("cannot listen")
            await self._close_files()
            raise
        for link, neighbour in self.neighbours.items():
            if neighbour.dials is not None:
                self._tasks.append(self._loop.create_task(self._dialer(link, neighbour, neighbour.dials).run()))
        self._tasks.append(self._loop.create_task(self._keep_sweeping()))
        self._tasks.append(self._loop.create_task(self._keep_acknowledging()))

    async def stop(self) -> None:
        """Take in nothing more, drain, close."""
        await self.feed.stop("leave")  # it is a client of ours
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        self._server.close()
        for connection in self.connections:
            connection.hold()
        await self._drain()
        for connection in list(self.connections):
            connection.close("the broker is shutting down")
        self.host.stop("leave")
        if self.connections:
            await asyncio.wait([connection.closed for connection in self.connections], timeout=self.config.drain_within)
        self.endpoint.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_files()

    async def _close_files(self) -> None:
        """What was asked of storage and written to the trace is on disk afterwards."""
        for beside in (self._store, self.trace):
            if beside is not None:
                await self._loop.run_in_executor(None, beside.close)

    async def _listen(self) -> None:
        host, port = self.plan.listen
        backlog = self.config.backlog
        try:
            # It serves only when we have it: else nobody could close it if we are cancelled meanwhile.
            self._server = await self._loop.create_server(
                self._connection, host, port, backlog=backlog, start_serving=False
            )
        except OSError as error:
            raise _cannot_listen(self.plan.listen, error) from None
        try:
            await self._server.start_serving()
            self.address = Address(host, self._server.sockets[0].getsockname()[1])
            if self._tokens:
                sock = datagram_socket(host, self.address.port)
                await self._loop.create_datagram_endpoint(lambda: self.endpoint, sock=sock)
        except BaseException as error:
            self._server.close()
            if isinstance(error, OSError):
                raise _cannot_listen(self.plan.listen, error) from None
            raise

    async def _drain(self) -> None:
        """Wait until nothing is queued for anybody who still takes something, or the time is up."""
        until = self._loop.time() + self.config.drain_within
        while self._queued() and self._loop.time() < until:
            await asyncio.sleep(0.005)
            self.host.flush()  # what has just been let out and waits for the end of the turn

    def _queued(self) -> int:
        egress = self.node.egress
        waiting = sum(map(egress.waits_for_room, self.host.ports))  # no credit comes while we read nothing
        for port in self.host.ports.values():
            if isinstance(port, DatagramPort):
                waiting += port.queued_packets()
            elif isinstance(port, TcpPort):
                waiting += port.connection.buffered_bytes()
        return waiting

    # Connections.

    def _connection(self, handshake: Handshake | None = None, dialled: str | None = None) -> Connection:
        return Connection(
            self,
            self.config.connection,
            handshake=handshake,
            dialled=dialled,
            acknowledges=False,  # in rounds
            unfinished=self._unfinished,
            reads=self._reads,
        )

    def made(self, connection: Connection) -> None:
        """A connection was accepted or dialled; its handshake has yet to come."""
        problem = self.admission.connection_refusal(len(self.connections))
        if problem:
            self._refuse(connection, problem)
        self.connections[connection] = None

    def handshake_received(self, connection: Connection, handshake: Handshake) -> None:
        """Find the link of this peer, answer, and bring the link up."""
        if self._stopping:
            connection.close("the broker is shutting down")
        elif handshake.role == "client":
            self._admit_client(connection, handshake)
        else:
            self._admit_broker(connection, handshake)

    def received(self, connection: Connection, packets: list[Packet]) -> None:
        link = self.connections.get(connection)
        if link is None:
            return
        problem = self.admission.packets_refusal(link, packets)
        if problem:
            self._refuse(connection, problem)
            return
        self._passed_on.came(connection)
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
            if connection.dialled is not None and connection.refused:
                self._offers.refused(connection.dialled, self.neighbours, problem)
            self._newcomers.closed(connection)
            return
        log.info("%s: %s is gone: %s", self.plan.name, name, problem)
        if link in self.neighbours or not connection.peer_left:  # a client that leaves wants no more
            self.host.connection_lost(self.links[link].peer, connection.messages_unknown)
        port = self.host.ports.get(link)
        if isinstance(port, TcpPort | DatagramPort) and port.connection is connection:
            self.host.link_down(link)
            if isinstance(port, DatagramPort):
                self.endpoint.ports.pop(port.own_token, None)
        if link not in self.neighbours:
            self.host.forget_peer(self.admission.forget_client(link))
        self._newcomers.closed(connection)

    def _admit_client(self, connection: Connection, handshake: Handshake) -> None:
        problem = self.admission.client_refusal(handshake)
        old = self.admission.link_of(handshake.name)
        if problem and not (old is not None and self._ended(old)):
            self._refuse(connection, problem)
            return
        if old is not None:
            self._end_client(old)
        link, rate = self.admission.admit_client(handshake), self.admission.client_rate(handshake)
        self._heed_services(link, handshake)
        connection.send_handshake(self._handshake(link, handshake))
        peer = self.links[link].peer
        port = TcpPort(self.host, link, peer, connection, room_bytes=CLIENT_ROOM_BYTES, rate_bits_per_s=rate)
        self._connected(connection, link, port)

    def _admit_broker(self, connection: Connection, handshake: Handshake) -> None:
        problem = self.admission.broker_refusal(handshake, dialled=connection.dialled)
        if problem:
            self._refuse(connection, problem)
            return
        link = self.admission.link_of(handshake.name)
        assert link is not None
        old = self.host.ports.get(link)
        if isinstance(old, TcpPort | DatagramPort) and not old.connection.closing:
            self._newcomers.wait(connection, link, old.connection)
        else:
            self._join_broker(connection, link)

    def _join_broker(self, connection: Connection, link: Link) -> None:
        self.host.link_down(link)  # if it is up, its connection is closing
        connection.leave_shared_bounds()
        if connection.dialled is None:
            connection.send_handshake(self._handshake(link, connection.peer))
        if connection.peer is not None:
            self._heed_services(link, connection.peer)
        self._connected(connection, link, self._broker_port(link, self.neighbours[link], connection))

    def _ended(self, link: Link) -> bool:
        """Whether the connection of a client is closing already."""
        port = self.host.ports.get(link)
        return link not in self.neighbours and (not isinstance(port, TcpPort) or port.connection.closing)

    def _end_client(self, link: Link) -> None:
        """Its place is taken by the same client on a new connection."""
        port = self.host.ports.get(link)
        if isinstance(port, TcpPort):
            self.connections[port.connection] = None
            self.host.connection_lost(self.links[link].peer, port.connection.messages_unknown)
            port.connection.abort("replaced by a new connection of the same client")
        self.host.link_down(link)
        self.host.forget_peer(self.admission.forget_client(link))

    def _broker_port(self, link: Link, neighbour: Neighbour, connection: Connection) -> TcpPort | DatagramPort:
        spec = neighbour.spec
        if neighbour.kind is not LinkKind.DATAGRAM:
            small = spec.kind == "tcp"
            room = spec.send_buffer_bytes if small else BROKER_ROOM_BYTES
            rate = spec.rate_bits_per_s
            return TcpPort(
                self.host, link, neighbour.name, connection, room_bytes=room, rate_bits_per_s=rate, whole_buffer=small
            )
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
            repairs=self._offers.agreed(link, connection.peer),
            on_arrival=lambda: self._passed_on.came(connection),
        )
        self.endpoint.ports[port.own_token] = port
        return port

    def _connected(self, connection: Connection, link: Link, port: TcpPort | DatagramPort) -> None:
        self.connections[connection] = link
        log.info("%s: %s is connected from %s", self.plan.name, port.peer, connection.address)
        self.host.link_up(port)
        if isinstance(port, TcpPort):
            port.offer_room()

    def _handshake(self, link: Link, peer: Handshake | None = None) -> Handshake:
        """What we send to the peer at this link, in answer to its own or first; with a new token on a datagram link."""
        token, offer = 0, self._offers.say(link, peer)
        if link in self._tokens:
            token = self._tokens[link] = int.from_bytes(os.urandom(8), "big")
        return Handshake(
            role="broker",
            name=self.plan.name,
            broker=self.plan.broker,
            incarnation=self.incarnation,
            datagram_port=self.address.port if token else 0,
            datagram_token=token,
            repairs=offer.repairs,
            services=offer.services,
        )

    def _heed_services(self, link: Link, peer: Handshake) -> None:
        """Nothing is sent to this peer that it cannot read."""
        unknown = unknown_kinds(services_of(peer), self._services)
        self.links[link] = replace(self.links[link], unknown=unknown)

    def _refuse(self, connection: Connection, problem: str) -> None:
        kind = problem.partition("'")[0]  # the same complaint, whatever name the caller has made up
        left_out = self._quiet.allows(kind, self._loop.time())
        if left_out is not None:
            log.warning("%s: %s: %s%s", self.plan.name, connection.address, problem, left_out_text(left_out))
        connection.close(problem, violation=True)

    # Neighbours.

    def _dialer(self, link: Link, neighbour: Neighbour, address: Address) -> Dialer:
        def connect() -> Connection:
            handshake = self._handshake(link)
            return self._connection(handshake, neighbour.name)

        random = generator(self.incarnation, self.plan.name, "dialling", neighbour.name)
        names = (self.plan.name, neighbour.name)
        return Dialer(names, address, connect, self.config.connection.handshake_within, random)

    def _recorded(self, record: Record) -> None:
        """A neighbour that has fallen silent is dialled anew; an order to trace is followed."""
        self.feed.recorded(record)
        if type(record) is NeighbourChanged and not record.up and record.cause == "silent":
            for link, neighbour in self.neighbours.items():
                port = self.host.ports.get(link)
                if neighbour.broker == record.neighbour and isinstance(port, TcpPort | DatagramPort):
                    port.connection.abort("silent")

    # Now and then.

    async def _keep_acknowledging(self) -> None:
        while True:
            await asyncio.sleep(ROUND_EVERY)
            if not self._passed_on.idle:
                self.host.flush()
                self._passed_on.look(self.node.egress, self.host.ports, self._loop.time())

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(self.config.sweep_interval)
            now = self._loop.time()
            for connection in list(self.connections):
                connection.check_liveness(now)
            if self.host.trace is not None:
                self.host.count()
                for port in self.host.ports.values():
                    if isinstance(port, DatagramPort):
                        port.count()
            if self.trace is not None:
                self.trace.tick()

    def _client_of_itself(self, name: str) -> Network:
        """For our records: they travel as any client's messages do."""
        host, port = self.address
        return connect(f"penstock://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}", name=name)


def _cannot_listen(address: Address, error: OSError) -> NotPossibleHere:
    if error.errno == EADDRINUSE:
        return NotPossibleHere(f"somebody listens at {address} already", "stop it, or choose another port")
    if error.errno == EADDRNOTAVAIL:
        return NotPossibleHere(f"{address} is no address of this machine", "listen at 127.0.0.1, or an address it has")
    return NotPossibleHere(f"cannot listen at {address}: {error.strerror or error}", "choose another address")

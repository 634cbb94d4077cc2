"""The one link of a client, to its home broker: dial, handshake, link up and down, liveness, drain.

The addresses of the URL are dialled in turn. A connection is held until it is lost; then the addresses are dialled
again, with backoff, for as long as the client is open. When the broker has answered the handshake, the link is up and
the machine attaches and subscribes again by itself. A broker that cannot read a handshake with the names of our
services is older than these, and is dialled once more without them. Whoever waits for the link (`wait_up`) goes on when
the broker has also said which content is priced.

Outbox: messages published in one turn of the event loop are given to the machine together, at the end of that turn.
`let_out` writes them and waits while the socket is full; that is what makes `publish` wait on a slow connection. What
waits when the link goes down is lost with it, and counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.content.message import Message
from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.packet import Packet
from penstock.kernel.randomness import generator
from penstock.kernel.trace import TRACE_CLIENT
from penstock.live.client.connect_errors import reason
from penstock.live.host import LiveHost
from penstock.live.wire.addresses import Address
from penstock.live.wire.backoff import Backoff
from penstock.live.wire.connection import Connection, ConnectionConfig, dial
from penstock.live.wire.frames import HANDSHAKE_UNREADABLE, Handshake, services_of
from penstock.live.wire.tcp_port import CLIENT_ROOM_BYTES, TcpPort
from penstock.overlay.node import Node
from penstock.overlay.verbs import Verbs
from penstock.pricing.client_service import PricedClient
from penstock.services import services, unknown_kinds

log = logging.getLogger("penstock.client")

HOME = 0  # the number of the link
SECRET_BYTES = 16
CHECK_INTERVAL = 1.0  # seconds between two looks at the connection
OUTBOX_BYTES = 1 << 16  # published in one turn of the loop
CLOSE_WITHIN = 3.0  # seconds for the connection to close
DRAIN_WITHIN = 5.0  # seconds for what was published to leave before that
LAST_WORDS_AGAIN = (0.05, 0.15)  # seconds before each further copy of what services say last: datagrams may be lost


class HomeLink:
    """Keeps a client connected; the owner of its connection."""

    def __init__(
        self,
        host: LiveHost,
        node: Node,
        verbs: Verbs,
        links: dict[Link, LinkInfo],
        addresses: list[Address],
        config: ConnectionConfig,
        *,
        on_check: Callable[[], None],  # called whenever the connection's liveness was checked
    ) -> None:
        self.host = host
        self.node = node
        self.verbs = verbs
        self.limits = verbs.limits()
        self._pricing = node.machine(PricedClient)
        self._carrier = verbs.carrier()  # who sends what is published without options, whatever it says
        self.port: TcpPort | None = None  # None while there is no connection
        self.address: Address | None = None  # of the broker we are, or were last, connected to
        self.reconnects = 0
        self.lost_in_connection = 0  # messages handed over to connections that were lost, not known to have arrived
        self.problems: dict[Address, str] = {}  # why there was, or is no longer, a connection to it
        self.refused: frozenset[Address] = frozenset()  # those where a broker answered, and said no
        self.outbox_bytes = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._links = links  # as the node sees them
        self._addresses = addresses
        of_trace = host.name.startswith(TRACE_CLIENT)  # of no application, so none need hear of it
        self._level = logging.INFO if of_trace else logging.WARNING
        self._config = config
        self._on_check = on_check
        self._secret = os.urandom(SECRET_BYTES)  # by which a broker knows us again under our name
        self._connection: Connection | None = None  # that we dialled last
        self._outbox: list[Message] = []  # published in this turn of the loop
        self._along = False  # what is in the outbox neither waits nor depends on its content, nor do others then
        self._began: list[float] = []  # and when each publish() began; only with a trace
        self._loop = asyncio.get_running_loop()
        self._up = asyncio.Event()
        self._writable = asyncio.Event()

    # Life.

    def open(self) -> None:
        """Begin to dial."""
        self.tasks = [self._loop.create_task(self._keep_connected()), self._loop.create_task(self._keep_checking())]

    async def wait_up(self) -> None:
        """Return as soon as the link is up, and the broker has said what is priced."""
        await self._up.wait()

    @property
    def home_broker(self) -> str:
        """The name of the broker that we are connected to; empty while there is none."""
        return self.port.peer if self.port is not None else ""

    async def close(self) -> None:
        """Dial no more, drain, close the connection."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.port is not None:
            connection = self.port.connection
            await self._say_last_words()
            await self._drain()
            connection.close()
            await asyncio.wait([connection.closed], timeout=CLOSE_WITHIN)
        self._up.set()  # nobody waits for what will not come

    async def _keep_connected(self) -> None:
        """Dial the addresses in turn; hold the connection; begin again when it is lost."""
        name, incarnation = self.host.name, self.host.incarnation
        backoff = Backoff(generator(incarnation, name, "dialling"))
        plain = Handshake(role="client", name=name, incarnation=incarnation, credentials=self._secret)
        full = replace(plain, services=tuple(service.name for service in services()))
        older: dict[Address, None] = {}  # who could not read the last one
        while True:
            for address in self._addresses:
                handshake = plain if address in older else full
                connection = Connection(self, self._config, handshake=handshake, dialled=str(address))
                try:
                    await dial(connection, address, self._config.handshake_within)
                    self._connection = connection
                except (OSError, TimeoutError) as error:
                    self.problems[address] = reason(error)
                    self.refused -= {address}
                    continue
                try:
                    problem = await asyncio.shield(connection.closed)
                except asyncio.CancelledError:
                    if connection.peer is None:
                        connection.abort("closed before the broker had answered")
                    raise
                self.problems[address] = problem
                if connection.refused and problem.startswith(HANDSHAKE_UNREADABLE) and address not in older:
                    older[address] = None
                else:
                    older.pop(address, None)
                self.refused = self.refused | {address} if connection.refused else self.refused - {address}
                if connection.peer is not None:
                    backoff.reset()
            await asyncio.sleep(backoff.wait())

    async def _keep_checking(self) -> None:
        """Check the liveness of the connection, and write counts to the trace."""
        while True:
            await asyncio.sleep(min(CHECK_INTERVAL, self._config.keepalive / 2))
            if self._connection is not None:
                self._connection.check_liveness(self._loop.time())
            self._on_check()
            if self.host.trace is not None:
                self.host.count()

    # What the connection calls.

    def made(self, connection: Connection) -> None:
        """Connected; our handshake goes out now and the broker's is to come."""

    def handshake_received(self, connection: Connection, handshake: Handshake) -> None:
        """The broker has answered: the link is up, and the machine attaches and subscribes."""
        again = self.address is not None
        self.reconnects += again
        self.address = next((a for a in self._addresses if str(a) == connection.dialled), self._addresses[0])
        if again:
            log.log(self._level, "%s: connected again, to %s at %s", self.host.name, handshake.name, self.address)
        self._links[HOME] = dataclasses.replace(self._links[HOME], unknown=unknown_kinds(services_of(handshake)))
        port = TcpPort(self.host, HOME, handshake.name, connection, room_bytes=CLIENT_ROOM_BYTES)
        self.port = port
        self.host.link_up(port)
        port.offer_room()
        self._writable.set()

    def received(self, connection: Connection, packets: list[Packet]) -> None:
        if self.port is not None and self.port.connection is connection:
            self.host.receive(HOME, packets)
            self._writable.set()  # there may be credit
            if self._pricing.knows_classes:
                self._up.set()

    def writable(self, connection: Connection) -> None:
        if self.port is not None and self.port.connection is connection:
            self._writable.set()
            self.port.offer_room()

    def lost(self, connection: Connection, problem: str) -> None:
        if self.port is None or self.port.connection is not connection:
            return
        self.post()  # it is lost with the link, and counted
        peer, self.port = self.port.peer, None
        self._up.clear()
        self._writable.set()  # whoever waits for room finds that there is nothing to wait for
        self.host.link_down(HOME)
        unknown = connection.messages_unknown
        self.lost_in_connection += unknown
        self.host.connection_lost(peer, unknown)
        if unknown:
            problem += f" ({unknown} messages are not known to have arrived)"
        if not self.tasks[0].cancelled() and not self.tasks[0].cancelling():
            text = "%s: lost the connection to %s: %s; dialling again"
            log.log(self._level, text, self.host.name, self.address, problem)

    # What is published.

    def may_wait(self, message: Message) -> bool:
        """Whether this message, published without options, may have to wait before it leaves.

        Where that does not depend on its content, it goes along with those that are in the outbox.
        """
        if self._outbox and self._along:
            return False
        content = self.verbs.claims_content()
        carrier = self.verbs.carrier(None, message) if content else self._carrier
        waits = carrier is not None and carrier.may_wait()
        self._along = not (content or waits)
        return waits

    def must_wait(self) -> bool:
        """Whether whoever publishes is to wait: the socket is full, or the broker holds us.

        That is found out for the first message of a turn; the outbox has room for others.
        """
        if self.outbox_bytes:
            return self.outbox_bytes > OUTBOX_BYTES
        return self.node.egress.waits_for_room(HOME) or self.node.is_held(HOME)

    def put(self, message: Message, began: Sequence[float]) -> None:
        """Gather a message for the end of this turn; `began` says when it was published, or nothing."""
        self._outbox.append(message)
        self._began += began
        self.outbox_bytes += message.size_bytes
        if len(self._outbox) == 1:
            self._loop.call_soon(self.post)

    def post(self) -> None:
        """Give the machine what was gathered, in one go."""
        if self._outbox:
            messages, self._outbox, self.outbox_bytes = self._outbox, [], 0
            began, self._began = self._began, []
            if len(began) != len(messages):  # a trace began, or ended, between them
                began = []
            self.host.apply(self.verbs.publish(messages, now=self.host.now(), began=began))

    async def let_out(self) -> None:
        """Write what was published and give the loop its turn, until nothing waits for the socket any more.

        A lane that the broker holds is waited for if we asked for it (`when_full="wait"`); else the others go on.
        """
        self.post()
        self.host.flush()
        await asyncio.sleep(0)
        while (port := self.port) is not None:
            if port.connection.paused or self.node.is_held(HOME):
                self._writable.clear()
                await self._writable.wait()
            elif self.node.egress.waits_for_room(HOME):
                self.host.flush()
                await asyncio.sleep(0)
            else:
                return

    async def _say_last_words(self) -> None:
        """What services have to say before the client leaves, as often as they want it said."""
        self.post()
        for pause in (*LAST_WORDS_AGAIN, 0.0):
            words = self.verbs.leaving(now=self.host.now())
            self.host.apply(words)
            if not words or self.port is None:
                return
            self.host.flush()
            await asyncio.sleep(pause)

    async def _drain(self) -> None:
        """Wait until all that was published is in the socket, or the connection is lost, or time is up."""
        until = self._loop.time() + DRAIN_WITHIN
        while self.port is not None and self._loop.time() < until:
            self.host.flush()
            if not self.node.egress.waiting_packets(HOME) and not self.port.connection.buffered_bytes():
                return
            await asyncio.sleep(0.002)

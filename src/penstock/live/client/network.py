"""The Python client: connect, publish, subscribe.

    async with penstock.connect("penstock://127.0.0.1:7420") as network:
        async with network.subscribe("symbol = 'IBM' AND price < 120") as messages:
            await network.publish({"symbol": "IBM", "price": 119.5}, b"...")
            async for message in messages:
                print(message.attributes, message.body)

Behind it stands the same client machine as in the simulator, on one TCP connection. When the connection breaks, the
addresses of the URL are tried in turn, with growing waits, for as long as the network is open; the machine subscribes
again by itself, and the log and every report say so. Publishing while there is no connection raises `NotConnected`:
best effort keeps nothing. While the connection is slow, `publish` waits.

Order and recovery: `connect(..., transport=True)` gives what this client publishes the transport's header, and
`subscribe(..., ordered=True, recover=True)` uses it. Who asks for neither gets messages as they come, by the short way
past the transport.

Congestion control: with `TransportConfig(congestion=True)` on both sides, subscribers that cannot keep up tell their
publishers, and `publish` waits while the message belongs to a flow without tokens (or withholds it, with
`when_full="drop"`). Other content is not delayed. `flows()` says who slows what, and so does the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from penstock.content.bloom import EncodingScheme
from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS, Attributes, Identity, Message, make_message
from penstock.errors import NotConnected, PenstockError, Unreachable
from penstock.kernel.machine import Deliver, Lane, Outcome, Packet, Send
from penstock.kernel.randomness import stream
from penstock.kernel.trace import InputRefused, Record, Trace, Unsubscribed
from penstock.live.broker.status import NoticeService
from penstock.live.client.connect_errors import places, reason, unreachable_text
from penstock.live.client.flow_log import FlowWatch
from penstock.live.client.flow_query import ask_slowed
from penstock.live.client.subscription import Subscription
from penstock.live.client.tickets import Tickets
from penstock.live.host import LiveHost
from penstock.live.wire.addresses import Address, default_url, parse_url
from penstock.live.wire.backoff import Backoff
from penstock.live.wire.connection import Connection, ConnectionConfig
from penstock.live.wire.frames import Greeting
from penstock.live.wire.tcp_port import CLIENT_ROOM_BYTES, TcpPort
from penstock.overlay.egress import LinkInfo, LinkKind
from penstock.overlay.node import NodeConfig
from penstock.overlay.packets import StatusRequest
from penstock.transport.client_service import TransportClientNode
from penstock.transport.config import TransportConfig
from penstock.transport.flow_query import Slowdown
from penstock.transport.receiver.feedback_scheduler import ControlReport
from penstock.transport.report import TransportReport
from penstock.transport.sender import publication_record as outgoing
from penstock.transport.sender.rate_limiter import FlowReport

log = logging.getLogger("penstock.client")

HOME = 0  # the one link of a client
YIELD_EVERY = 256  # publications in a row before the event loop gets its turn
OUTBOX_BYTES = 1 << 16  # and so many bytes of them
QUEUE_MAX = 10_000


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    transport: TransportConfig | bool | None = None,
    connect_within: float = 5.0,
    trace: Trace | None = None,
    config: ConnectionConfig | None = None,
) -> Network:
    """A connection to a broker, to be opened with `async with`.

    `url` names one broker or several, which are tried in turn; without it PENSTOCK_URL counts, then this machine.
    `name` is how this client appears in messages' identities and in reports; it should be unique, and is made up if
    left out. With `transport` (True, or settings) what this client publishes can be put in order, and recovered when
    it is lost, by those who ask for it. `connect_within` is how long the first connection may take before `Unreachable`
    is raised.
    """
    chosen = name or f"client-{os.urandom(5).hex()}"
    addresses = parse_url(url or default_url())
    settings = TransportConfig() if transport is True else transport or None
    return Network(
        addresses, chosen, connect_within, transport=settings, trace=trace, config=config or ConnectionConfig()
    )


class Network:
    """A client's view of the network. Made by `connect`."""

    def __init__(
        self,
        addresses: list[Address],
        name: str,
        connect_within: float,
        *,
        transport: TransportConfig | None,
        trace: Trace | None,
        config: ConnectionConfig,
    ) -> None:
        self.name = name
        self.incarnation = time.time_ns() // 1_000_000
        self.reconnects = 0
        self.address: Address | None = None  # of the broker we are connected to
        self._addresses = addresses
        self._connect_within = connect_within
        self._transport = transport
        self._limits = DEFAULT_LIMITS if transport is None else outgoing.LIMITS
        self._trace = trace
        self._config = config
        self._count = 0
        self._outbox: list[Message] = []  # published in this turn of the loop
        self._outbox_bytes = 0
        self._tickets = Tickets()
        self._flow_watch = FlowWatch(name)
        self._waits = transport is not None and transport.congestion and transport.when_full == "wait"
        self._subscriptions: dict[int, Subscription] = {}
        self._next_subscription = 0
        self._port: TcpPort | None = None
        self._writable: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._up: asyncio.Event | None = None
        self._refused_subscription = ""
        self._plain_publishers_told = False
        self._closed = False

    # Life.

    async def open(self) -> Network:
        """Connect to the first broker that answers; raises Unreachable if none does in time."""
        if self._up is not None:
            raise PenstockError("this network was opened before; make another one with connect()")
        self._loop = asyncio.get_running_loop()
        self._host = LiveHost(self.name, "client", self.incarnation, trace=self._trace)
        self._host.on_deliver = self._deliver
        self._host.on_done = self._done
        self._host.on_record = self._recorded
        self._notices = NoticeService(self._tickets.told)
        links = {HOME: LinkInfo("broker", LinkKind.RELIABLE, 1, QUEUE_MAX)}
        config = NodeConfig(scheme=EncodingScheme())
        self._node = TransportClientNode(
            self.name,
            self.incarnation,
            links,
            config,
            (self._notices,),
            transport=self._transport,
            random=stream(self.incarnation, self.name, "transport"),
        )
        self._host.start(self._node)
        self._up = asyncio.Event()
        self._writable = asyncio.Event()
        self._problems: dict[Address, str] = {}
        keeping = self._loop.create_task(self._keep_connected())
        self._tasks = [keeping, self._loop.create_task(self._keep_watch())]
        try:
            async with asyncio.timeout(self._connect_within):
                await self._up.wait()
        except TimeoutError:
            await self.close()
            raise Unreachable(unreachable_text(self._addresses, self._problems)) from None
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Let out what waits, say goodbye, and end all subscriptions. A network that was closed stays closed."""
        if self._closed or self._up is None:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        connection = self._port.connection if self._port is not None else None
        if connection is not None:
            await self._drain()
            connection.end()
            await asyncio.wait([connection.over], timeout=3.0)
        for subscription in list(self._subscriptions.values()):
            subscription.end(None)
        self._subscriptions.clear()
        self._tickets.fail("the network was closed")
        self._host.stop("leave")

    async def __aenter__(self) -> Network:
        return await self.open()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Verbs.

    async def publish(self, attributes: Attributes, body: bytes = b"") -> Identity:
        """Send a message to whoever wants it; returns its identity when it is on its way.

        With congestion control that may take a while, if somebody who wants this content is slow; cancelled while it
        waits, the message leaves all the same. With `when_full="drop"` it never waits, and `withheld` counts. Raises
        InvalidMessage if it breaks a rule of the content model, NotConnected while there is no connection.
        """
        if self._node.egress.waiting_packets(HOME):
            await self._let_out()
        identity = Identity(self.name, self.incarnation, self._count + 1)
        message = make_message(identity, attributes, body, limits=self._limits)
        if self._port is None:
            raise NotConnected(
                f"not connected to {places(self._addresses)}; best effort keeps nothing: publish again later"
            )
        self._count += 1
        if self._waits and self._node.transport.limited:
            self._post()
            ticket = self._tickets.begin()  # most messages belong to no limited flow and are answered at once
            self._host.apply(self._node.publish(message, ticket=ticket, now=self._host.now()))
            await self._tickets.left(ticket)
        elif self._trace is None:
            self._outbox.append(message)
            self._outbox_bytes += message.size_bytes
            if len(self._outbox) == 1:
                self._loop.call_soon(self._post)
        else:
            self._host.apply(self._node.publish(message, ticket=0, now=self._host.now()))
            if self._tickets.refusal:
                problem, self._tickets.refusal = self._tickets.refusal, ""
                raise NotConnected(problem)
        if self._count % YIELD_EVERY == 0 or self._outbox_bytes > OUTBOX_BYTES:
            await self._let_out()
        return identity

    def flows(self) -> list[FlowReport]:
        """The content that subscribers have asked us to send more slowly: how fast, who asked, how much waits."""
        return self._node.transport.flows() if self._up is not None else []

    async def slowed(self, *, within: float = 1.0) -> list[Slowdown]:
        """Ask all other publishers with congestion control who slows them down, and listen for so many seconds.

        The answers come to our inbox, so this takes a client with a transport; our own flows are in `flows()`.
        """
        if self._transport is None:
            raise PenstockError("a client without a transport hears no answers; use connect(..., transport=True)")
        if self._port is None:
            raise NotConnected(f"not connected to {places(self._addresses)}")
        return await ask_slowed(self._host, self._node, within)

    @property
    def withheld(self) -> int:
        """Messages that did not leave, because their flow had no room (`when_full="drop"`)."""
        return self._flow_watch.withheld

    def on_withheld(self, call: Callable[[int, str], None]) -> None:
        """Call this for each of them, with the count of its identity and the name of the subscriber that is short."""
        self._flow_watch.on_withheld = call

    def subscribe(
        self,
        where: str,
        *,
        ordered: bool = False,
        recover: bool = False,
        priority: float = 1.0,
        queue_max: int = QUEUE_MAX,
        on_drop: Callable[[int], None] | None = None,
    ) -> Subscription:
        """Ask for all messages that match `where`; open it with `async with`, then iterate.

        The text is checked here first: raises InvalidPredicate. `ordered`: each publisher's messages come in the order
        in which it sent them, as far as a short wait can do that. `recover`: lost ones are asked for again. Both work
        for publishers that use the transport; the messages of others come as they are. `priority`: where congestion
        control must share out what we can take, 2 gets twice as much as 1. At most `queue_max` messages wait for the
        reader; when there are more, the oldest is dropped, and `on_drop` is called with the number dropped so far.
        """
        parse_predicate(where)
        number = self._next_subscription
        self._next_subscription += 1
        watched = self._transport is not None and self._transport.congestion
        wish = {"ordered": ordered, "recover": recover, "watched": watched}
        return Subscription(self, number, where, queue_max, on_drop, priority=priority, **wish)

    async def broker_report(self, *, within: float = 5.0) -> dict[str, Any]:
        """What the broker sees: its links, queues, drops and clients."""
        if self._port is None:
            raise NotConnected(f"not connected to {places(self._addresses)}")
        ticket, answer = self._tickets.take()
        request = Send((HOME,), StatusRequest(ticket), Lane.CONTROL)
        self._host.apply(self._node.egress.route([request]))
        try:
            async with asyncio.timeout(within):
                report: dict[str, Any] = await answer
        except TimeoutError:
            raise Unreachable(f"the broker did not report within {within:g} s") from None
        finally:
            self._tickets.drop(ticket)
        return report

    async def wait_connected(self) -> None:
        """Return as soon as there is a connection."""
        assert self._up is not None
        await self._up.wait()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._port is not None

    @property
    def lost_at_broker(self) -> int:
        """How many deliveries our brokers say they dropped on the way to us."""
        return self._notices.losses

    # Subscriptions.

    async def _open(self, subscription: Subscription) -> None:
        ticket, answer = self._tickets.take()
        self._subscriptions[subscription.number] = subscription
        effects = self._node.subscribe(
            subscription.number,
            subscription.where,
            ticket=ticket,
            now=self._host.now(),
            ordered=subscription.ordered,
            recover=subscription.recover,
            priority=subscription.priority,
        )
        self._host.apply(effects)
        try:
            await answer
        except BaseException:  # refused, or nobody waits for it any more: then the machine must not hold it either
            await self._close(subscription)
            raise
        finally:
            self._tickets.drop(ticket)

    async def _close(self, subscription: Subscription) -> None:
        if self._subscriptions.pop(subscription.number, None) is not None:
            self._host.apply(self._node.unsubscribe(subscription.number, ticket=0, now=self._host.now()))
            self._tickets.refusal = ""

    def _transport_report(self, subscription: Subscription) -> TransportReport | None:
        return self._node.report(subscription.number) if self._up is not None else None

    def _control_report(self, number: int) -> ControlReport:
        return self._node.transport.control(number) if self._up is not None else ControlReport()

    def _look_for_plain_publishers(self) -> None:
        """Say once if order or recovery was asked for and somebody's messages have no header to do it with."""
        transport = self._node.transport
        if not self._plain_publishers_told and any(map(transport.without_header, self._subscriptions)):
            self._plain_publishers_told = True
            log.warning(
                "%s: messages of publishers without the transport come as they are, neither in order nor recovered;"
                " publishers turn it on with connect(..., transport=True)",
                self.name,
            )

    def _deliver(self, effect: Deliver) -> None:
        subscription = self._subscriptions.get(effect.subscription)
        if subscription is not None:
            subscription.put(effect.message)

    def _recorded(self, record: Record) -> None:
        """What the application must learn of: a flow that is limited, a subscription refused after a reconnection."""
        if self._flow_watch.saw(record):
            return
        if type(record) is InputRefused:
            self._refused_subscription = record.problem
        elif type(record) is Unsubscribed and record.subscription in self._subscriptions:
            problem = self._refused_subscription
            self._subscriptions.pop(record.subscription).end(problem)

    def _dropped(self, message: Message) -> None:
        """The application was too slow for a message; congestion control takes it for a loss like any other."""
        if self._transport is not None and self._transport.congestion:
            self._node.transport.dropped_here(message, now=self._host.now())

    def _reader_takes(self, number: int, rate: float) -> None:
        """A subscription's application is behind, and this is what it takes; or it keeps up again."""
        self._node.transport.reader_takes(number, rate, now=self._host.now())

    def _done(self, ticket: int, outcome: Outcome) -> None:
        self._tickets.done(ticket, outcome, connected=self._port is not None)

    # The connection.

    async def _keep_connected(self) -> None:
        """Try the addresses in turn; hold the connection; begin again when it is lost."""
        backoff = Backoff(stream(self.incarnation, self.name, "calling"))
        greeting = Greeting(role="client", name=self.name, incarnation=self.incarnation)
        while True:
            for address in self._addresses:
                connection = Connection(self, self._config, greeting=greeting, called=str(address))
                try:
                    async with asyncio.timeout(self._config.greet_within):
                        await self._loop.create_connection(lambda made=connection: made, *address)  # type: ignore[misc]
                except (OSError, TimeoutError) as error:
                    self._problems[address] = reason(error)
                    continue
                try:
                    problem = await asyncio.shield(connection.over)
                except asyncio.CancelledError:
                    if connection.peer is None:
                        connection.abort("closed before the broker had answered")
                    raise
                self._problems[address] = problem
                if connection.peer is not None:
                    backoff.reset()
            await asyncio.sleep(backoff.wait())

    async def _keep_watch(self) -> None:
        """Look after the connection, and write counts to the trace."""
        while True:
            await asyncio.sleep(min(1.0, self._config.keepalive / 2))
            if self._port is not None:
                self._port.connection.look_after(self._loop.time())
            if not self._plain_publishers_told:
                self._look_for_plain_publishers()
            if self._trace is not None:
                self._host.count()

    def made(self, connection: Connection) -> None:
        """Connected; our greeting goes out now and the broker's is to come."""

    def greeted(self, connection: Connection, greeting: Greeting) -> None:
        """The broker has answered: the link is up, and the machine attaches and subscribes."""
        again = self.address is not None
        self.reconnects += again
        self.address = next((a for a in self._addresses if str(a) == connection.called), self._addresses[0])
        if again:
            log.warning("%s: connected again, to %s at %s", self.name, greeting.name, self.address)
        port = TcpPort(self._host, HOME, greeting.name, connection, room_bytes=CLIENT_ROOM_BYTES)
        self._port = port
        self._host.link_up(port)
        port.offer_room()
        assert self._up is not None
        assert self._writable is not None
        self._up.set()
        self._writable.set()

    def received(self, connection: Connection, packets: list[Packet]) -> None:
        if self._port is not None and self._port.connection is connection:
            self._host.receive(HOME, packets)

    def writable(self, connection: Connection) -> None:
        if self._port is not None and self._port.connection is connection:
            assert self._writable is not None
            self._writable.set()
            self._port.offer_room()

    def lost(self, connection: Connection, problem: str) -> None:
        if self._port is None or self._port.connection is not connection:
            return
        self._post()  # it is lost with the link, and counted
        self._port = None
        assert self._up is not None
        assert self._writable is not None
        self._up.clear()
        self._writable.set()  # whoever waits for room finds that there is nothing to wait for
        self._host.link_down(HOME)
        if self._tasks and not self._tasks[0].cancelled() and not self._tasks[0].cancelling():
            log.warning("%s: lost the connection to %s: %s; trying again", self.name, self.address, problem)

    def _post(self) -> None:
        """Give the machine what was published since the last turn, in one go; with a trace each goes by itself."""
        if self._outbox:
            messages, self._outbox, self._outbox_bytes = self._outbox, [], 0
            self._host.apply(self._node.publish_all(messages, now=self._host.now()))

    async def _let_out(self) -> None:
        """Write what was published and give the loop its turn, until nothing waits for the socket any more."""
        assert self._writable is not None
        self._post()
        self._host.flush()
        await asyncio.sleep(0)
        while (port := self._port) is not None:
            if port.connection.paused:
                self._writable.clear()
                await self._writable.wait()
            elif self._node.egress.waiting_packets(HOME):
                self._host.flush()
                await asyncio.sleep(0)
            else:
                return

    async def _drain(self) -> None:
        """Wait until all that was published is in the socket, or the connection is gone, or time is up."""
        self._post()
        until = self._loop.time() + 5.0
        while self._port is not None and self._loop.time() < until:
            self._host.flush()
            if not self._node.egress.waiting_packets(HOME) and not self._port.connection.buffered_bytes():
                return
            await asyncio.sleep(0.002)

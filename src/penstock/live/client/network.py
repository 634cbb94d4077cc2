"""The Python client: connect, publish, subscribe.

    async with penstock.connect("penstock://127.0.0.1:7420") as network:
        async with network.subscribe("symbol = 'IBM' AND price < 120") as messages:
            await network.publish({"symbol": "IBM", "price": 119.5}, b"...")
            async for message in messages:
                print(message.attributes, message.body)

Behind it stands the same client machine as in the simulator, on one TCP connection. When the connection is lost, the
addresses of the URL are dialled in turn, with backoff, for as long as the network is open (`home_link`); the machine
subscribes again by itself, and the log and every report say so. Publishing while there is no connection raises
`NotConnected`: best effort keeps nothing. While the connection is slow, `publish` waits.

Order and recovery: `connect(..., transport=True)` gives what this client publishes the transport's header, and
`subscribe(..., ordered=True, recover=True)` uses it. Who asks for neither gets messages as they come, by the short way
past the transport.

Congestion control: with `TransportConfig(congestion=True)` on both sides, subscribers that cannot keep up send feedback
to their publishers, and `publish` waits while the message belongs to a flow without tokens (or withholds it, with
`when_full="drop"`). Other content is not delayed. `flows()` says who slows what, and so does the log.

Priced content: where the network file has classes, `publish` of such content waits until the broker has bought its way;
`price()` says what it costs, and which link makes it dear.

Streams: `network.stream("orders")` stores what is published and is read exactly once (`stream`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from math import ceil
from types import TracebackType
from typing import Any, Literal

from penstock.content.language.parser import parse_predicate
from penstock.content.language.warnings import warnings
from penstock.content.message import Attributes, Identity, make_message
from penstock.errors import InvalidOption, NotConnected, PenstockError, Unreachable, did_you_mean
from penstock.kernel.link import LinkInfo, LinkKind
from penstock.kernel.machine import Effect
from penstock.kernel.packet import CLIENT
from penstock.kernel.trace import TRACE_STREAM, Record, Trace
from penstock.live.client.ask_flows import ask_slowed
from penstock.live.client.connect_errors import places, unreachable_text
from penstock.live.client.flow_log import FlowWatch
from penstock.live.client.home_link import HOME, HomeLink
from penstock.live.client.stream import Stream
from penstock.live.client.stream_verbs import StreamVerbs
from penstock.live.client.subscription import Subscription
from penstock.live.client.subscription_holder import SubscriptionHolder
from penstock.live.client.tickets import Tickets
from penstock.live.host import LiveHost
from penstock.live.trace_feed import TraceFeed
from penstock.live.wire.addresses import Address, default_url, parse_url
from penstock.live.wire.connection import ConnectionConfig
from penstock.overlay.assembly import Life, NodeConfig, client_node
from penstock.overlay.packets import READY_WITHIN_MAX
from penstock.overlay.status import StatusRequester
from penstock.pricing.client_service import PricedClient
from penstock.pricing.status import PriceReport
from penstock.rates.client_service import RatesClient
from penstock.rates.told import WithheldFlow
from penstock.retrieval.config import terms_of
from penstock.retrieval.service import RETRIEVAL
from penstock.services import options as service_options
from penstock.services import publication_options, services, settings_types
from penstock.tracing.client_service import TracingClient
from penstock.tracing.packets import ONE_IN_MAX, SECONDS_MAX
from penstock.transport.client_service import TransportClient
from penstock.transport.flow_query import Slowdown
from penstock.transport.sender.rate_limiter import FlowReport
from penstock.transport.service import TRANSPORT

log = logging.getLogger("penstock.client")

YIELD_EVERY = 256  # publications in a row before the event loop gets its turn
QUEUE_MAX = 10_000
READY_WITHIN = 5.0  # seconds: more than it takes to notice that a neighbour is dead


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    connect_within: float = 5.0,
    trace: Trace | None = None,
    config: ConnectionConfig | None = None,
    **settings: Any,
) -> Network:
    """A connection to a broker, to be opened with `async with`.

    `url` names one broker or several, which are tried in turn, such as `penstock://10.0.0.1:7420,10.0.0.2:7420` or
    plainly `localhost`; without it PENSTOCK_URL counts, then this machine.
    `name` is how this client appears in messages' identities and in reports; a broker has one client of a name, and
    refuses a second one. It is made up if left out. `connect_within` is how long the first connection may take before
    `Unreachable` is raised.

    Every other argument is a service with its settings, or True for its defaults. `transport=True`: what this client
    publishes can be put in order, and recovered when it is lost, by those who ask for it.
    """
    if name is not None and not isinstance(name, str):
        raise PenstockError(f"name is {name!r}; a name is a text, such as 'exchange'")
    chosen = name or f"client-{os.urandom(5).hex()}"
    addresses = parse_url(url or default_url())
    return Network(
        addresses,
        chosen,
        connect_within,
        settings=_settings(settings),
        trace=trace,
        config=config or ConnectionConfig(),
    )


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of services as `connect` takes them; raises TypeError for a name that no service has."""
    types = settings_types(CLIENT)
    for name, value in given.items():
        if name not in types:
            advice = did_you_mean(name, list(types)) or f"; services with settings are {', '.join(types)}"
            raise TypeError(f"connect() got an unexpected argument '{name}'{advice}")
        if value is not None and not isinstance(value, bool | types[name]):
            raise TypeError(f"{name} must be True or a {types[name].__name__}, not {type(value).__name__}")
    return {name: types[name]() if value is True else value for name, value in given.items() if value}


def _time(given: str | float) -> str:
    """A length of time as an option says it. What is none stays as it is, and the option says why not."""
    if isinstance(given, str) or type(given) not in (int, float):
        return str(given)
    text = f"{given:.9f}".rstrip("0").rstrip(".") if given else "0"
    return text if text != "0" or not given else str(given)  # the smallest times are not 0, which means another thing


class Network:
    """A client's view of the network. Made by `connect`."""

    def __init__(
        self,
        addresses: list[Address],
        name: str,
        connect_within: float,
        *,
        settings: dict[str, Any],
        trace: Trace | None,
        config: ConnectionConfig,
    ) -> None:
        self.name = name
        self.incarnation = time.time_ns() // 1_000_000
        self._addresses = addresses
        self._connect_within = connect_within
        self._settings = settings
        self._trace = trace
        self._config = config
        self._count = 0
        self._tickets = Tickets()
        self._flow_watch = FlowWatch(name)
        self._holder = SubscriptionHolder(name, self._tickets)
        self._streams = StreamVerbs(self._tickets, self._holder, self._next_identity)
        self._link: HomeLink | None = None  # None until it is opened
        self._feed: TraceFeed | None = None
        self._closed = False

    # Life.

    async def open(self) -> Network:
        """Connect to the first broker that answers; raises Unreachable if none does in time."""
        if self._link is not None:
            raise PenstockError("this network was opened before; make another one with connect()")
        host = LiveHost(self.name, "client", self.incarnation, trace=self._trace)
        life = Life(
            name=self.name,
            incarnation=self.incarnation,
            seed=int.from_bytes(os.urandom(8), "big"),
            traced=host.traced,
        )
        links = {HOME: LinkInfo("broker", LinkKind.RELIABLE, 1, QUEUE_MAX)}
        node, verbs = client_node(services(), life, links, NodeConfig(services=self._settings))
        check = self._holder.warn_of_plain_publishers
        link = self._link = HomeLink(host, node, verbs, links, self._addresses, self._config, on_check=check)
        self._holder.attach(link)
        self._streams.attach(link)
        host.on_deliver = self._holder.deliver
        host.on_done = lambda ticket, outcome: self._tickets.done(ticket, outcome, connected=self.connected)
        host.on_record = self._recorded
        self._feed = TraceFeed(host, self._another)
        host.start(node)
        link.open()
        try:
            async with asyncio.timeout(self._connect_within):
                await link.wait_up()
        except TimeoutError:
            await self.close()
            raise Unreachable(unreachable_text(self._addresses, link.problems, link.refused)) from None
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Let out what waits, disconnect, and end all subscriptions. A network that was closed stays closed."""
        if self._closed or self._link is None:
            return
        self._closed = True
        self._streams.close()
        await self._holder.settle()
        if self._feed is not None:
            await self._feed.stop("leave")
        await self._link.close()
        self._holder.end_all()
        self._tickets.fail("the network was closed")
        self._link.host.stop("leave")

    async def __aenter__(self) -> Network:
        return await self.open()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Verbs.

    async def publish(self, attributes: Attributes, body: bytes = b"", **options: Any) -> Identity:
        """Send a message to whoever wants it; returns its identity when it is on its way.

        With congestion control that may take a while, if somebody who wants this content is slow; and if it is priced,
        until its way was bought. Cancelled while it waits, the message does not leave, unless the broker has it
        already. With `when_full="drop"` it never waits for congestion control, and `withheld` counts. Raises
        InvalidMessage if it breaks a rule of the content model, NotConnected while there is no connection. Every other
        argument is an option of a service; raises InvalidOption. With `stream=` it is stored there, as by
        `stream(...).publish`.
        """
        chosen = service_options(options, publication_options()) if options else None
        if chosen is not None and chosen.stream:
            stored = await self.stream(chosen.stream)._publish(attributes, body, chosen.key, chosen.publication_id)
            return stored[1]
        link = self._link
        if link is None or link.port is None:
            raise self._not_connected("best effort keeps nothing: publish again later")
        began = () if link.host.trace is None else (link.host.now(),)
        # To wait is to wait here, not after it was handed over: so what was cancelled has not left.
        turn_due = self._count % YIELD_EVERY == YIELD_EVERY - 1
        while turn_due or link.must_wait():
            turn_due = False
            await link.let_out()
        identity = Identity(self.name, self.incarnation, self._count + 1)
        limits = link.limits if chosen is None else link.verbs.limits(chosen)
        message = make_message(identity, attributes, body, limits=limits)
        if link.port is None:
            raise self._not_connected("best effort keeps nothing: publish again later")
        self._count += 1
        if chosen is not None or link.may_wait(message):
            link.post()
            ticket = self._tickets.begin()  # most messages belong to no limited flow and are answered at once
            now = link.host.now()
            link.host.apply(link.verbs.publish((message,), chosen, tickets=(ticket,), now=now, began=began))
            try:
                await self._tickets.left(ticket)
            except asyncio.CancelledError:
                link.host.apply(link.verbs.withdraw(ticket, now=link.host.now()))
                raise
        else:
            link.put(message, began)
        return identity

    def flows(self) -> list[FlowReport | WithheldFlow]:
        """Who slows us down: full links and slow readers that withheld messages of ours in the last minute, most first;

        then, with congestion control, the content that subscribers have asked us to send more slowly.
        """
        if self._link is None:
            return []
        node, now = self._link.node, self._link.host.now()
        limited = node.machine(TransportClient).transport.flows()
        return [*node.machine(RatesClient).published.lately(now), *limited]

    async def slowed(self, *, within: float = 1.0) -> list[Slowdown]:
        """Ask all other publishers with congestion control who slows them down, and listen for so many seconds.

        The answers come to our inbox, so this takes a client with a transport; our own flows are in `flows()`.
        """
        if TRANSPORT.name not in self._settings:
            raise PenstockError("a client without a transport receives no answers; use connect(..., transport=True)")
        link = self._connected_link()
        return await ask_slowed(link.host, link.node, within)

    async def price(self, *, within: float = 5.0) -> list[PriceReport]:
        """How our accounts stand at the broker, if we publish priced content: one for each set of receivers.

        Each says the balance, what a message costs now, which link makes it dear, how many messages wait and for how
        long the first of them has been blocked.
        """
        service = self._connected_link().node.machine(PricedClient)
        found: list[PriceReport] = (await self._ask(service, service.ask_prices, within))["flows"]
        return found

    @property
    def withheld(self) -> int:
        """Messages of ours that were withheld, once for each broker or slow reader that did not get one.

        With congestion control and `when_full="drop"` also those that did not leave, because their flow had no room.
        """
        told = self._link.node.machine(RatesClient).published.messages if self._link is not None else 0
        return self._flow_watch.withheld + told

    def on_withheld(self, call: Callable[[int, str], None]) -> None:
        """Call this for each of them, with the count of its identity and the name of the subscriber that is short."""
        self._flow_watch.on_withheld = call

    def subscribe(
        self,
        where: str,
        *,
        queue_max: int = QUEUE_MAX,
        on_drop: Callable[[int], None] | None = None,
        ready: bool = True,
        ready_within: float = READY_WITHIN,
        **options: Any,
    ) -> Subscription:
        """Ask for all messages that match `where`; open it with `async with`, then iterate.

        Opening it returns when all brokers that can be reached know of it, so that what is published anywhere after
        that finds it. It waits for `ready_within` seconds at most; `subscription.unconfirmed` then names the brokers
        that have not confirmed it, and so does the log. With `ready=False` it does not wait for them.

        The text is checked here first: raises InvalidPredicate, and logs a warning if it can never match. At most
        `queue_max` messages wait for the reader; when there are more, the oldest is dropped, and `on_drop` is called
        with the number dropped so far.

        Every other argument is an option of a service; raises InvalidOption. `ordered=True`: each publisher's messages
        come in the order in which it sent them, as far as a short wait can do that. `recover=True`: lost ones are asked
        for again. Both work for publishers that use the transport; the messages of others come as they are.
        `priority=2.0`: where congestion control must share out what we can take, it gets twice as much as 1.
        """
        for warning in warnings(parse_predicate(where)):
            log.warning("subscription %s: %s", where, warning)
        if not 0 < ready_within <= READY_WITHIN_MAX:
            raise ValueError(f"ready_within is {ready_within:g} s; it must be above 0 and at most {READY_WITHIN_MAX:g}")
        chosen = service_options(options)
        if chosen.durable and not chosen.stream:
            raise InvalidOption("durable", "is for streams; say which one is to be read, such as stream='orders'")
        if chosen.stream:
            raise InvalidOption("stream", "is read by network.stream(...).subscribe(where, durable=...)")
        if RETRIEVAL.asked_by(chosen, "subscription_options"):
            terms_of(chosen)  # raises InvalidOption
            ready = False  # that an interest is known is nothing that routing can tell
        number, wait = self._holder.next_number(), ready_within if ready else 0.0
        return Subscription(self._holder, number, where, queue_max, on_drop, chosen, wait)

    def retrieve(
        self,
        where: str,
        *,
        max: int | Literal["all"] = 10,  # as the paper and the command line say
        lifetime: str | float = "24h",
        freshness: str | float = "24h",
        refresh: bool = True,
        at_end: bool = False,
        queue_max: int = QUEUE_MAX,
        on_drop: Callable[[int], None] | None = None,
    ) -> Subscription:
        """Ask the network's caches, and publishers to come, for items: at most `max` in each lifetime, none twice.

        `freshness`: how old an item may be when a lifetime begins; 0: new ones only. `lifetime` 0 asks once, for what
        is there, and iterating ends when it has come; otherwise the next lifetime begins when one is over, unless
        `refresh=False`. Times are seconds or texts such as "90s", "15m", "24h", "7d". With `at_end=True` all items of a
        lifetime come together at its end. "all" is as many as the broker allows (`items_max`, 10,000 unless it is set;
        `report()` says it as `max`). Raises InvalidPredicate and InvalidOption; opening it raises the broker's
        reason if it refuses.
        """
        options: dict[str, Any] = {"lifetime": _time(lifetime), "freshness": _time(freshness)}
        options |= {"all_items": True} if max == "all" else {"max": max}
        options |= {"one_lifetime": not refresh, "at_end": at_end}
        if options.get("max") == 0:
            raise InvalidOption("max", "is a number above 0, or 'all'")
        return self.subscribe(where, queue_max=queue_max, on_drop=on_drop, **options)

    # Streams.

    def stream(self, name: str) -> Stream:
        """The stream of this name, to publish to and to read; raises InvalidOption if it can be none's name."""
        return Stream(self._streams, name)

    async def streams(self) -> list[dict[str, Any]]:
        """The streams of the network, as our broker knows them."""
        found: list[dict[str, Any]] = (await self._streams.command("ls", ""))["streams"]
        return found

    async def add_stream(self, name: str, *, at: Sequence[str]) -> dict[str, Any]:
        """Make a stream with a pubend at each of these brokers; returns when it is on their disks."""
        brokers = [at] if isinstance(at, str) else list(at)
        return await self._streams.command("add", self.stream(name).name, at=brokers)

    # What the brokers say, and the connection.

    async def trace(
        self, seconds: float | None = None, *, one_in: int = 0, at: Sequence[str] = (), within: float = 5.0
    ) -> dict[str, Any]:
        """Whether brokers and clients send their records to the stream `_trace`: on, since, seconds_left, one_in.

        With `seconds` they do so for at least that long from now on; 0 ends it. `one_in` records one in so many
        messages; 0 leaves that as it is. The stream is made if it is not there, at the brokers `at`, or at ours.
        """
        link = self._connected_link()
        if seconds is not None and not (0 <= seconds <= SECONDS_MAX and 0 <= one_in <= ONE_IN_MAX):
            raise InvalidOption("trace", f"takes up to {SECONDS_MAX} s, and one in up to {ONE_IN_MAX} messages")
        if seconds and not any(stream["stream"] == TRACE_STREAM for stream in await self.streams()):
            await self.add_stream(TRACE_STREAM, at=at or [link.home_broker])
        service, change = link.node.machine(TracingClient), seconds is not None
        asked: dict[str, Any] = {"change": change, "seconds": ceil(seconds or 0), "one_in": one_in}
        return await self._ask(service, lambda ticket: service.ask(HOME, ticket, **asked), within)

    async def broker_report(self, *, within: float = 5.0) -> dict[str, Any]:
        """What the broker sees: its links, queues, drops and clients."""
        requester = self._connected_link().node.machine(StatusRequester)
        return await self._ask(requester, lambda ticket: requester.ask(HOME, ticket), within)

    async def _ask(
        self, service: StatusRequester | PricedClient | TracingClient, ask: Callable[[int], list[Effect]], within: float
    ) -> dict[str, Any]:
        """Let a service ask the broker; returns its answer."""
        link = self._connected_link()
        ticket, answer = self._tickets.take(lambda refused: PenstockError(refused.problem))
        link.host.apply(link.node.route(ask(ticket)))
        try:
            async with asyncio.timeout(within):
                report: dict[str, Any] = await answer
        except TimeoutError:
            raise Unreachable(f"the broker did not report within {within:g} s") from None
        finally:
            service.forget(ticket)
            self._tickets.drop(ticket)
        return report

    async def wait_connected(self) -> None:
        """Return as soon as there is a connection; raises NotConnected if there will be none, because it is closed."""
        if self._link is not None:
            await self._link.wait_up()
        if self._link is None or self._closed:
            raise self._not_connected("")

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None and self._link.port is not None

    @property
    def address(self) -> Address | None:
        """Of the broker we are, or were last, connected to."""
        return self._link.address if self._link is not None else None

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and found again."""
        return self._link.reconnects if self._link is not None else 0

    @property
    def lost_at_broker(self) -> int:
        """How many deliveries our brokers report as dropped on the way to us, for all subscriptions."""
        return self._holder.lost_at_broker()

    @property
    def lost_in_connection(self) -> int:
        """How many messages were handed over to a connection that was lost, and are not known to have gone on.

        Never too few, sometimes too many: what went on just before the loss is among them.
        """
        return self._link.lost_in_connection if self._link is not None else 0

    def _another(self, name: str) -> Network:
        """A connection to the same brokers, for records of this one."""
        config = self._config
        return Network(self._addresses, name, self._connect_within, settings={}, trace=None, config=config)

    def _next_identity(self) -> Identity:
        self._count += 1
        return Identity(self.name, self.incarnation, self._count)

    def _connected_link(self) -> HomeLink:
        if self._link is None or self._link.port is None:
            raise self._not_connected("try again later")
        return self._link

    def _not_connected(self, remedy: str) -> NotConnected:
        if self._closed or self._link is None:
            remedy = "the network was closed" if self._closed else "open the network first"
        return NotConnected(f"not connected to {places(self._addresses)}; {remedy}")

    def _recorded(self, record: Record) -> None:
        """What the application must learn of: a flow that is limited, a subscription refused after a reconnection."""
        if self._feed is not None:
            self._feed.recorded(record)
        if not self._flow_watch.saw(record):
            self._holder.recorded(record)

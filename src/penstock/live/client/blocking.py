"""The client for scripts and notebooks: the same verbs without `await`.

    with penstock.connect_blocking("penstock://127.0.0.1:7420") as network:
        with network.subscribe("symbol = 'IBM'") as messages:
            network.publish({"symbol": "IBM", "price": 119.5}, b"...")
            for message in messages:
                print(message.attributes)

An event loop runs in a thread of its own, so messages are taken in, and connections mended, while the script does
something else. Every verb hands its work to that thread and waits for the outcome. Functions that the network calls
(`on_drop`, `on_withheld`) are called in that thread, and can use no verbs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from penstock.content.message import Attributes, Identity, Message
from penstock.errors import NotConnected, PenstockError
from penstock.kernel.trace import Trace
from penstock.live.client import network as client
from penstock.live.client.blocking_stream import BlockingStream
from penstock.live.client.subscription import Report, Subscription
from penstock.live.loop_thread import LoopThread
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import ConnectionConfig
from penstock.pricing.status import PriceReport
from penstock.rates.told import WithheldFlow
from penstock.transport.flow_query import Slowdown
from penstock.transport.sender.rate_limiter import FlowReport

T = TypeVar("T")


def connect_blocking(
    url: str | None = None,
    *,
    name: str | None = None,
    connect_within: float = 5.0,
    trace: Trace | None = None,
    config: ConnectionConfig | None = None,
    **settings: Any,
) -> BlockingNetwork:
    """A connection to a broker, to be opened with `with`; the arguments are those of `connect`."""
    network = client.connect(url, name=name, connect_within=connect_within, trace=trace, config=config, **settings)
    return BlockingNetwork(network)


class BlockingNetwork:
    """A client's view of the network, without `await`. Made by `connect_blocking`."""

    def __init__(self, network: client.Network) -> None:
        self._network = network
        self._thread: LoopThread | None = None  # None until it is opened

    def __enter__(self) -> BlockingNetwork:
        return self.open()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> BlockingNetwork:
        """Connect; raises Unreachable."""
        if self._thread is not None:
            raise PenstockError("this network was opened before; make another one with connect_blocking()")
        self._thread = LoopThread("penstock")
        try:
            self._do(self._network.open())
        except BaseException:
            self._thread.end()
            raise
        return self

    def close(self) -> None:
        """Let out what waits, and end."""
        if self._thread is not None and self._thread.running:
            try:
                self._do(self._network.close())
            finally:
                self._thread.end()

    def publish(self, attributes: Attributes, body: bytes = b"", **options: Any) -> Identity:
        """Send a message to whoever wants it; raises InvalidMessage or NotConnected."""
        return self._do(self._network.publish(attributes, body, **options))

    def subscribe(
        self,
        where: str,
        *,
        queue_max: int = client.QUEUE_MAX,
        on_drop: Callable[[int], None] | None = None,
        ready: bool = True,
        ready_within: float = client.READY_WITHIN,
        **options: Any,
    ) -> BlockingSubscription:
        """Ask for all messages that match; open it with `with`. `on_drop` is called in the network's thread."""
        waits: dict[str, Any] = {"ready": ready, "ready_within": ready_within}
        made = self._network.subscribe(where, queue_max=queue_max, on_drop=on_drop, **waits, **options)
        return BlockingSubscription(self, made)

    def retrieve(
        self,
        where: str,
        *,
        max: int | Literal["all"] = 10,  # as the paper and the command line say
        lifetime: str | float = "24h",
        freshness: str | float = "24h",
        refresh: bool = True,
        at_end: bool = False,
        queue_max: int = client.QUEUE_MAX,
        on_drop: Callable[[int], None] | None = None,
    ) -> BlockingSubscription:
        """Ask the network's caches, and publishers to come, for items: at most `max` in each lifetime, none twice."""
        terms: dict[str, Any] = {"max": max, "lifetime": lifetime, "freshness": freshness, "refresh": refresh}
        made = self._network.retrieve(where, **terms, at_end=at_end, queue_max=queue_max, on_drop=on_drop)
        return BlockingSubscription(self, made)

    def stream(self, name: str) -> BlockingStream:
        """The stream of this name, to publish to and to read; raises InvalidOption if it can be none's name."""
        return BlockingStream(self, self._network.stream(name))

    def streams(self) -> list[dict[str, Any]]:
        """The streams of the network, as our broker knows them."""
        return self._do(self._network.streams())

    def add_stream(self, name: str, *, at: Sequence[str]) -> dict[str, Any]:
        """Make a stream with a pubend at each of these brokers; returns when it is on their disks."""
        return self._do(self._network.add_stream(name, at=at))

    def trace(
        self, seconds: float | None = None, *, one_in: int = 0, at: Sequence[str] = (), within: float = 5.0
    ) -> dict[str, Any]:
        """Whether brokers and clients send their records to `_trace`; with `seconds`, let them for so long."""
        return self._do(self._network.trace(seconds, one_in=one_in, at=at, within=within))

    def flows(self) -> list[FlowReport | WithheldFlow]:
        """The content that subscribers have asked us to send more slowly."""
        return self._look(self._network.flows)

    def slowed(self, *, within: float = 1.0) -> list[Slowdown]:
        """Ask all other publishers with congestion control who slows them down, and listen for so many seconds."""
        return self._do(self._network.slowed(within=within))

    def price(self, *, within: float = 5.0) -> list[PriceReport]:
        """How our accounts stand at the broker, if we publish priced content."""
        return self._do(self._network.price(within=within))

    @property
    def withheld(self) -> int:
        """Messages that did not leave, because their flow had no room."""
        return self._network.withheld

    def on_withheld(self, call: Callable[[int, str], None]) -> None:
        """Call this for each of them, in the network's thread."""
        self._network.on_withheld(call)

    def broker_report(self, *, within: float = 5.0) -> dict[str, Any]:
        """What the broker sees: its links, queues, drops and clients."""
        return self._do(self._network.broker_report(within=within))

    def wait_connected(self) -> None:
        """Return as soon as there is a connection."""
        self._do(self._network.wait_connected())

    @property
    def name(self) -> str:
        """How this client appears in messages' identities and in reports."""
        return self._network.name

    @property
    def incarnation(self) -> int:
        """Which life of it this is."""
        return self._network.incarnation

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._network.connected

    @property
    def address(self) -> Address | None:
        """Of the broker we are, or were last, connected to."""
        return self._network.address

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and found again."""
        return self._network.reconnects

    @property
    def lost_at_broker(self) -> int:
        """How many deliveries our brokers report as dropped on the way to us."""
        return self._network.lost_at_broker

    @property
    def lost_in_connection(self) -> int:
        """How many messages were handed over to a connection that was lost, and are not known to have gone on."""
        return self._network.lost_in_connection

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the network's thread do it; returns what comes of it."""
        if self._thread is None or not self._thread.running:
            work.close()
            raise NotConnected("open the network first" if self._thread is None else "the network was closed")
        return self._thread.do(work)

    def _look(self, call: Callable[[], T]) -> T:
        """The same for what needs no network: where it is at work, that is where the counts are in order."""
        if self._thread is None or not self._thread.running or self._thread.is_current:
            return call()

        async def called() -> T:
            return call()

        return self._do(called())

    def _ended(self) -> bool:
        return self._thread is not None and not self._thread.running


class BlockingSubscription:
    """Messages that match, as they come. Made by `BlockingNetwork.subscribe`."""

    def __init__(self, network: BlockingNetwork, subscription: Subscription) -> None:
        self._network = network
        self._subscription = subscription
        self._taken: deque[Message] = deque()  # by an iteration that has not come to them

    def __enter__(self) -> BlockingSubscription:
        return self.open()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> BlockingSubscription:
        """Subscribe; returns when a broker has accepted it. Raises InvalidPredicate with the reason if it does not."""
        self._network._do(self._subscription.open())
        return self

    def close(self) -> None:
        """Unsubscribe; iterating ends when the queue is empty."""
        if not self._network._ended():
            self._network._do(self._subscription.close())

    def __iter__(self) -> Iterator[Message]:
        """One after the other. They are taken in batches, and those that an iteration leaves are there for the next."""
        while True:
            if not self._taken:
                self._taken.extend(self.take())
            if not self._taken:
                return
            yield self._taken.popleft()

    def take(self, count_max: int = 1000, *, timeout: float | None = None) -> list[Message]:
        """At least one message and at most so many; nothing if none came within `timeout` seconds, or it is closed."""
        if self._taken:
            return [self._taken.popleft() for _ in range(min(count_max, len(self._taken)))]
        if self._network._ended():
            return []

        async def taken() -> list[Message]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._subscription.take(count_max)
            except TimeoutError:
                return []

        return self._network._do(taken())

    def report(self) -> Report:
        """How it fares: what came, what was dropped, what waits, and what the transport made of it."""
        return self._network._look(self._subscription.report)

    @property
    def where(self) -> str:
        """What it asks for."""
        return self._subscription.where

    @property
    def number(self) -> int:
        """Its number, as traces have it."""
        return self._subscription.number

    @property
    def ready_within(self) -> float:
        """Seconds that opening it may wait for all brokers."""
        return self._subscription.ready_within

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Brokers that had not confirmed by then that they know of it."""
        return self._subscription.unconfirmed

    @property
    def options(self) -> Any:
        """What it asks of services."""
        return self._subscription.options

"""The client for scripts and notebooks: the same verbs without `await`.

    with penstock.connect_blocking("penstock://127.0.0.1:7420") as network:
        with network.subscribe("symbol = 'IBM'") as messages:
            network.publish({"symbol": "IBM", "price": 119.5}, b"...")
            for message in messages:
                print(message.attributes)

An event loop runs in a thread of its own, so messages are taken in, and connections mended, while the script does
something else. Every verb hands its work to that thread and waits for the outcome.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from penstock.content.message import Attributes, Identity, Message
from penstock.live.client import network as client
from penstock.live.client.subscription import Report, Subscription
from penstock.transport.config import TransportConfig
from penstock.transport.flow_query import Slowdown
from penstock.transport.sender.rate_limiter import FlowReport

T = TypeVar("T")


def connect_blocking(
    url: str | None = None,
    *,
    name: str | None = None,
    transport: TransportConfig | bool | None = None,
    connect_within: float = 5.0,
) -> BlockingNetwork:
    """A connection to a broker, to be opened with `with`; the arguments are those of `connect`."""
    return BlockingNetwork(client.connect(url, name=name, transport=transport, connect_within=connect_within))


class BlockingNetwork:
    """A client's view of the network, without `await`."""

    def __init__(self, network: client.Network) -> None:
        self._network = network
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock", daemon=True)

    def __enter__(self) -> BlockingNetwork:
        return self.open()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> BlockingNetwork:
        """Connect; raises Unreachable."""
        self._thread.start()
        try:
            self._do(self._network.open())
        except BaseException:
            self._end()
            raise
        return self

    def close(self) -> None:
        """Let out what waits, and end."""
        if self._thread.is_alive():
            try:
                self._do(self._network.close())
            finally:
                self._end()

    def publish(self, attributes: Attributes, body: bytes = b"") -> Identity:
        """Send a message to whoever wants it; raises InvalidMessage or NotConnected."""
        return self._do(self._network.publish(attributes, body))

    def subscribe(
        self,
        where: str,
        *,
        ordered: bool = False,
        recover: bool = False,
        priority: float = 1.0,
        queue_max: int = client.QUEUE_MAX,
        on_drop: Callable[[int], None] | None = None,
    ) -> BlockingSubscription:
        """Ask for all messages that match; open it with `with`. `on_drop` is called in the network's thread."""
        made = self._network.subscribe(
            where, ordered=ordered, recover=recover, priority=priority, queue_max=queue_max, on_drop=on_drop
        )
        return BlockingSubscription(self, made)

    def flows(self) -> list[FlowReport]:
        """The content that subscribers have asked us to send more slowly."""

        async def asked() -> list[FlowReport]:
            return self._network.flows()

        return self._do(asked())

    def slowed(self, *, within: float = 1.0) -> list[Slowdown]:
        """Ask all other publishers with congestion control who slows them down, and listen for so many seconds."""
        return self._do(self._network.slowed(within=within))

    @property
    def withheld(self) -> int:
        """Messages that did not leave, because their flow had no room."""
        return self._network.withheld

    def broker_report(self) -> dict[str, Any]:
        """What the broker sees: its links, queues, drops and clients."""
        return self._do(self._network.broker_report())

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._network.connected

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the script must not leave the work behind
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingSubscription:
    """Messages that match, as they come."""

    def __init__(self, network: BlockingNetwork, subscription: Subscription) -> None:
        self._network = network
        self._subscription = subscription

    def __enter__(self) -> BlockingSubscription:
        self._network._do(self._subscription.open())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._network._do(self._subscription.close())

    def __iter__(self) -> Iterator[Message]:
        while batch := self.take():
            yield from batch

    def take(self, count_max: int = 1000, *, timeout: float | None = None) -> list[Message]:
        """At least one message and at most so many; nothing if none came within `timeout` seconds."""

        async def taken() -> list[Message]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._subscription.take(count_max)
            except TimeoutError:
                return []

        return self._network._do(taken())

    def report(self) -> Report:
        """How it fares: what came, what was dropped, what waits, and what the transport made of it."""

        async def reported() -> Report:  # in the network's thread, which is at work on what is counted
            return self._subscription.report()

        return self._network._do(reported())

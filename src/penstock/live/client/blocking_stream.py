"""Streams for scripts and notebooks: the same verbs without `await`.

    orders = network.stream("orders")
    orders.publish({"symbol": "IBM"}, key="IBM")
    with orders.subscribe("symbol = 'IBM'", durable="billing") as messages:
        for message in messages:
            print(message.tick, message.attributes)

Messages are taken from the network's thread in batches. With `ack="auto"` each is done with when the next is asked
for, as with `async for`; the thread is told of that every `TELL_EVERY` seconds, and before it is asked for more. Those
of a shared name are taken when they are asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, overload

from penstock.content.message import Attributes
from penstock.live.client.shared_subscription import SharedSubscription
from penstock.live.client.stream import Receipt, Start, Stream
from penstock.live.client.stream_subscription import ReaderReport, StreamSubscription
from penstock.streams.client_publishing import PublisherReport
from penstock.streams.message import StreamMessage, StreamSlice
from penstock.streams.packets import Position, Tick

T = TypeVar("T")

TELL_EVERY = 0.1  # seconds
BATCH_MAX = 1_000


class Runs(Protocol):
    """The network's thread."""

    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...

    def _look(self, call: Callable[[], T]) -> T: ...

    def _ended(self) -> bool: ...


class BlockingStream:
    """A stream of the network, without `await`. Made by `BlockingNetwork.stream`."""

    def __init__(self, network: Runs, stream: Stream) -> None:
        self._network = network
        self._stream = stream

    @property
    def name(self) -> str:
        """Of the stream."""
        return self._stream.name

    def publish(
        self, attributes: Attributes, body: bytes = b"", *, key: str = "", publication_id: str | None = None
    ) -> Receipt:
        """Store a message; returns when it is on disk."""
        return self._network._do(self._stream.publish(attributes, body, key=key, publication_id=publication_id))

    def publish_many(self, publications: Iterable[tuple[Attributes, bytes, str, str]]) -> list[Receipt]:
        """Store many messages, (attributes, body, key, publication_id) each; returns when all are on disk."""
        return self._network._do(self._stream.publish_many(publications))

    @overload
    def subscribe(
        self,
        where: str = "TRUE",
        *,
        durable: str,
        start: Start = "latest",
        ack: Literal["auto", "manual"] = "auto",
        takeover: bool = False,
        positions: Iterable[Position] | None = None,
    ) -> BlockingStreamSubscription: ...

    @overload
    def subscribe(
        self,
        where: str = "TRUE",
        *,
        durable: str,
        share: Literal[True],
        start: Start = "latest",
        ack: Literal["auto", "manual"] = "auto",
        ack_within: float | None = None,
        attempts_max: int | None = None,
        failed: str = "",
    ) -> BlockingSharedSubscription: ...

    def subscribe(
        self,
        where: str = "TRUE",
        *,
        durable: str,
        start: Start = "latest",
        ack: Literal["auto", "manual"] = "auto",
        takeover: bool = False,
        positions: Iterable[Position] | None = None,
        share: bool = False,
        ack_within: float | None = None,
        attempts_max: int | None = None,
        failed: str = "",
    ) -> BlockingStreamSubscription:
        """Read what matches, exactly once and in order, under a durable name; open it with `with`.

        With `share=True` the name is shared among all who subscribe so, each message to one of them.
        """
        begins: dict[str, Any] = {"durable": durable, "start": start, "positions": positions, "share": share}
        shared: dict[str, Any] = {"ack_within": ack_within, "attempts_max": attempts_max, "failed": failed}
        made = self._stream.subscribe(where, ack=ack, takeover=takeover, **begins, **shared)
        kind = BlockingSharedSubscription if share else BlockingStreamSubscription
        return kind(self._network, made)

    def hold(self, durable: str, positions: Iterable[Position], *, where: str = "TRUE") -> None:
        """Let this durable name be done with everything up to these positions; the stream keeps what is after them."""
        self._network._do(self._stream.hold(durable, positions, where=where))

    def report(self) -> PublisherReport:
        """How publishing fares here: what is not on disk yet, since when, and which brokers slow it down."""
        return self._network._look(self._stream.report)

    def info(self, *, durable: str = "") -> dict[str, Any]:
        """What the stream's pubends say of it."""
        return self._network._do(self._stream.info(durable=durable))

    def trim(self, *, upto: Start, force: bool = False) -> dict[str, Any]:
        """Forget all messages up to this tick or time, or older than that."""
        return self._network._do(self._stream.trim(upto=upto, force=force))

    def remove(self, *, durable: str = "", force: bool = False) -> dict[str, Any]:
        """Delete the stream with all that it keeps; or only this durable name."""
        return self._network._do(self._stream.remove(durable=durable, force=force))

    def failed(self, *, durable: str, redeliver: bool = False, drop: bool = False) -> dict[str, Any]:
        """What was tried too often under this shared name; let it be tried again, or forget it."""
        return self._network._do(self._stream.failed(durable=durable, redeliver=redeliver, drop=drop))

    def survey(self, ranges: Mapping[str, Mapping[str, int]] | None = None) -> dict[str, Any]:
        """How much each pubend keeps, counted and not read."""
        return self._network._do(self._stream.survey(ranges))

    def begin(self, *, writer: str, batch: int, part: int = 0) -> dict[str, Any]:
        """Say that a part of a batch begins which may have to be tried again; at each pubend, where the batch began."""
        return self._network._do(self._stream.begin(writer=writer, batch=batch, part=part))

    def over(self, *, writer: str) -> None:
        """Say that this writer of batches has none to try again."""
        return self._network._do(self._stream.over(writer=writer))

    def slices(self, pubend: str, *, epoch: int, first: int, last: int, where: str = "TRUE") -> Iterator[StreamSlice]:
        """What matches between two ticks of a pubend, slice after slice."""
        found = self._stream.slices(pubend, epoch=epoch, first=first, last=last, where=where)

        async def following() -> StreamSlice | None:
            return await anext(found, None)

        async def ended() -> None:
            await found.aclose()

        try:
            while (one := self._network._do(following())) is not None:
                yield one
        finally:
            if not self._network._ended():
                self._network._do(ended())

    def verify(self) -> dict[str, Any]:
        """Let the brokers of its pubends read all that they keep and check it."""
        return self._network._do(self._stream.verify())


class BlockingStreamSubscription:
    """Messages of a stream that match. Made by `BlockingStream.subscribe`."""

    def __init__(self, network: Runs, subscription: StreamSubscription) -> None:
        self._network = network
        self._subscription = subscription
        self._taken: deque[StreamMessage] = deque()  # by an iteration that has not come to them
        self._given: dict[str, Tick] = {}  # pubend -> the last message that was given out
        self._asked = True  # whether somebody has asked for more since
        self._done: dict[str, Tick] = {}  # what is done with, and the thread does not know
        self._told_at = 0.0

    def __enter__(self) -> BlockingStreamSubscription:
        return self.open()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> BlockingStreamSubscription:
        """Subscribe; returns when it is in force."""
        self._network._do(self._subscription.open())
        return self

    def close(self) -> None:
        """Read no more; the name and its position stay. What was not given out comes again."""
        self._taken.clear()
        if not self._network._ended():
            self._tell()
            self._network._do(self._subscription.close())

    def __iter__(self) -> Iterator[StreamMessage]:
        """One after the other. Raises StreamGap once for each gap, and ReaderEnded."""
        while batch := self._next(1, None):
            yield batch[0]

    def take(self, count_max: int = 1000, *, timeout: float | None = None) -> list[StreamMessage]:
        """At least one message and at most so many; nothing if none came within `timeout` seconds, or it is closed."""
        return self._next(count_max, timeout)

    def ack(self, message: StreamMessage | None = None) -> None:
        """Done with this message and all before it of the same pubend; without one, with all that were given out."""
        done = dict(self._given) if message is None else self._subscription._ours(message)
        self._network._do(self._subscription._acknowledge(done))

    def positions(self) -> tuple[Position, ...]:
        """Up to where messages were given out: to be kept with what the application made of them."""
        return self._network._look(lambda: self._subscription._positions_before(self._taken))

    def lag(self) -> int | None:
        """How many messages the stream has that match and are not acknowledged; None: the pubends could not say."""
        return self._network._do(self._subscription.lag())

    def report(self) -> ReaderReport:
        """How it fares here; `lag` asks the stream."""
        return self._network._look(self._subscription.report)

    @property
    def stream(self) -> str:
        """What it reads."""
        return self._subscription.stream

    @property
    def durable(self) -> str:
        """The name under which the stream keeps the position."""
        return self._subscription.durable

    @property
    def in_force_after(self) -> tuple[Position, ...]:
        """Every matching message with a later tick than these is delivered."""
        return self._subscription.in_force_after

    @property
    def where(self) -> str:
        """What it asks for."""
        return self._subscription.where

    @property
    def number(self) -> int:
        """Its number, as traces have it."""
        return self._subscription.number

    @property
    def options(self) -> Any:
        """What it asks of services."""
        return self._subscription.options

    def _next(self, count_max: int, timeout: float | None) -> list[StreamMessage]:
        if not self._asked:
            self._asked = True
            self._done |= self._given
        if not self._taken or monotonic() - self._told_at > TELL_EVERY:
            self._tell()
        if not self._taken:
            self._taken.extend(self._more(timeout))
        batch = [self._taken.popleft() for _ in range(min(count_max, len(self._taken)))]
        if batch:
            self._given |= {message.pubend: message.tick for message in batch}
            self._asked = False
        return batch

    def _more(self, timeout: float | None) -> list[StreamMessage]:
        async def taken() -> list[StreamMessage]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._subscription._take_ahead(BATCH_MAX)
            except TimeoutError:
                return []

        return [] if self._network._ended() else self._network._do(taken())

    def _tell(self) -> None:
        """Let the thread know what is done with."""
        self._told_at = monotonic()
        done, self._done = self._done, {}
        if done and not self._network._ended():
            self._network._look(lambda: self._subscription._done_with(done))


class BlockingSharedSubscription(BlockingStreamSubscription):
    """Messages of a shared name. Made by `BlockingStream.subscribe(..., share=True)`."""

    def ack(self, message: StreamMessage | None = None) -> None:
        """Done with this message, and no other; without one, with all that were given out and not settled."""
        self._network._do(self._shared.ack(message))

    def reject(self, message: StreamMessage) -> None:
        """This message cannot be processed here and now: it is tried again, or goes where failed ones go."""
        self._network._do(self._shared.reject(message))

    @property
    def _shared(self) -> SharedSubscription:
        assert isinstance(self._subscription, SharedSubscription)
        return self._subscription

    def _next(self, count_max: int, timeout: float | None) -> list[StreamMessage]:
        async def taken() -> list[StreamMessage]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._subscription.take(count_max)
            except TimeoutError:
                return []

        return [] if self._network._ended() else self._network._do(taken())

    def positions(self) -> tuple[Any, ...]:
        """A member of a shared name has none."""
        return ()

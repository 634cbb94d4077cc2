"""A durable subscription to a stream, as an application holds it: each message once, in order, and what was missed.

Messages wait in a queue until the application takes them. Nothing is dropped: the broker sends no more than the window
allows (`window` of [client.streams]), and the rest stays in the stream. A gap stands in the queue where it was found:
whoever comes to it gets `StreamGap` once, and reads on behind it.

Acknowledging: with `ack="auto"` whoever asks for the next message (or batch) is done with those before. So the last
message of a loop that is left is not acknowledged, and comes again, unless `ack()` says so. With `"manual"` only
`ack(message)` counts; it also covers all earlier messages of the same pubend. `ack` returns when it is on disk.

What is asked for here is told to the machine once per turn of the event loop, not once per message. Closing tells what
was acknowledged, and waits a moment until it is on disk. What waits in the queue then is thrown away, and comes again
to the next reader of this name; likewise when another reader takes over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Any, cast

from penstock.errors import InvalidOption, PenstockError, ReaderEnded, StreamError, StreamGap, StreamRefused
from penstock.kernel.machine import Refused
from penstock.live.client.readable import Readable, Sink
from penstock.live.client.stream_verbs import StreamVerbs, stream_error
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Position, Tick
from penstock.streams.records import DurableBegan, GapNoticed

CLOSE_WITHIN = 1.0  # seconds for the last acknowledgements to come to disk

Item = StreamMessage | GapNoticed


@dataclass(frozen=True, kw_only=True)
class ReaderReport:
    """How a durable subscription fares."""

    stream: str
    durable: str
    where: str
    received: int  # messages that came
    taken: int  # of those, how many the application took
    queue: int  # and how many wait for it
    gaps: int  # that were found so far
    positions: tuple[Position, ...]
    reconnects: int
    connected: bool


class StreamSubscription(Readable):
    """Messages of a stream that match. Made by `Stream.subscribe`; open it with `async with`, or just iterate."""

    def __init__(self, verbs: StreamVerbs, where: str, options: Any, presented: tuple[Position, ...]) -> None:
        super().__init__(verbs.holder, verbs.holder.next_number(), where, options)
        self.stream: str = options.stream
        self.durable: str = options.durable
        self._verbs = verbs
        self._presented = presented
        self._auto = options.ack == "auto"
        self._queue: deque[Item] = deque()
        self._received = self._taken = self._gaps = 0
        self._gaps_waiting = 0  # in the queue
        self._untold = 0  # messages taken that the machine does not know of
        self._given: dict[str, StreamMessage] = {}  # pubend -> the last message that the application took
        self._handed: dict[str, Tick] = {}  # its tick, if it has not asked for another since
        self._done: dict[str, Tick] = {}  # pubend -> up to where it is done with them, not told yet
        self._telling = False
        self._began: dict[str, Position] = {}
        self._last_positions: tuple[Position, ...] = presented

    async def open(self) -> StreamSubscription:
        """Subscribe; returns when it is in force. Waits for the pubends of the stream, however long they are gone.

        Raises UnknownStream, StreamRefused (somebody else reads under this name; the position is of another stream, or
        in the future), or NotConnected if the network was closed.
        """
        await self._open(Sink(self._put, self._end))
        return self

    async def close(self) -> None:
        """Read no more. The name and its position stay; what was acknowledged is on disk afterwards, if it can be."""
        if self._closed:
            return
        self._last_positions = self.positions()
        done, self._done = self._done, {}
        if done and self._opened:
            with suppress(TimeoutError, PenstockError):
                async with asyncio.timeout(CLOSE_WITHIN):
                    await self._verbs.acknowledge(self.number, done)
        self._opens.close(self.number)
        self._end(None)

    async def __aenter__(self) -> StreamSubscription:
        return await self.open()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Reading.

    def __aiter__(self) -> StreamSubscription:
        return self

    async def __anext__(self) -> StreamMessage:
        """The next one; the one before is done with (`ack="auto"`). Raises StreamGap, ReaderEnded."""
        self._ask()
        if not await self._some():
            raise StopAsyncIteration
        item = self._queue.popleft()
        if type(item) is GapNoticed:
            raise self._gap(item)
        assert isinstance(item, StreamMessage)
        self._given[item.pubend] = item
        self._hand((item,))
        self._took(1)
        return item

    async def take(self, count_max: int = 1000) -> list[StreamMessage]:
        """At least one message and at most so many; those of the last call are done with (`ack="auto"`).

        An empty list means that it is closed. Raises StreamGap when the next thing is a gap, and ReaderEnded.
        """
        self._ask()
        batch = await self._take_ahead(count_max)
        self._hand(batch)
        return batch

    def _hand(self, messages: Sequence[StreamMessage]) -> None:
        """The application gets these."""
        self._handed |= {message.pubend: message.tick for message in messages}

    async def _take_ahead(self, count_max: int) -> list[StreamMessage]:
        """The same for somebody who passes them on, and says what is done with (`_done_with`)."""
        if not await self._some():
            return []
        batch = self._batch(count_max)
        self._given |= {message.pubend: message for message in batch}
        self._took(len(batch))
        return batch

    async def _some(self) -> bool:
        """Return when there is something in the queue; False: no more will come."""
        while True:
            while not self._queue:
                if not await self._more():
                    return False
            await self._breathe()
            if self._queue:  # else another reader was faster
                return True

    def _batch(self, count_max: int) -> list[StreamMessage]:
        """From the queue, up to a gap."""
        queue = self._queue
        batch: list[StreamMessage] = []
        if not self._gaps_waiting:
            next_one = cast("Callable[[], StreamMessage]", queue.popleft)
            return [next_one() for _ in range(min(len(queue), count_max))]
        while queue and len(batch) < count_max:
            item = queue[0]
            if isinstance(item, StreamMessage):
                batch.append(item)
                queue.popleft()
            elif batch:
                break
            else:
                queue.popleft()
                raise self._gap(item)
        return batch

    def _gap(self, noticed: GapNoticed) -> StreamGap:
        self._gaps_waiting -= 1
        return StreamGap(noticed.stream, noticed.pubend, noticed.first, noticed.last)

    # Acknowledging.

    async def ack(self, message: StreamMessage | None = None) -> None:
        """Done with this message and all before it of the same pubend; without one, with all that were taken so far.

        Returns when that is on disk, and asks again until it is. Raises StreamRefused for a message that did not come
        from here, or ReaderEnded.
        """
        given = {pubend: last.tick for pubend, last in self._given.items()}
        await self._acknowledge(given if message is None else self._ours(message))

    async def _acknowledge(self, done: dict[str, Tick]) -> None:
        if self._error is not None:
            raise self._error
        if self._closed or not self._opened:
            raise StreamError("the subscription is not open, so nothing can be acknowledged")
        self._tell()
        try:
            await self._verbs.acknowledge(self.number, done)
        except StreamRefused as refused:
            raise self._error or refused from None  # it has ended meanwhile

    def _ours(self, message: StreamMessage) -> dict[str, Tick]:
        """Up to where somebody is done who acknowledges this; raises InvalidOption if it did not come from here."""
        if not isinstance(message, StreamMessage):
            raise InvalidOption("message", "is none of a stream; acknowledge what the subscription gave you")
        if message.stream != self.stream:
            raise InvalidOption("message", f"is of the stream '{message.stream}', and this is '{self.stream}'")
        last = self._given.get(message.pubend)
        if last is None or last.epoch != message.epoch or last.tick < message.tick:
            raise InvalidOption("message", f"at tick {message.tick} of {message.pubend} was not taken from here")
        return {message.pubend: message.tick}

    def _ask(self) -> None:
        """Somebody asks for more: whatever they have is done with."""
        if self._handed:
            self._done_with(self._handed)
            self._handed.clear()

    def _done_with(self, done: dict[str, Tick]) -> None:
        if self._auto:
            self._done |= done
            self._tell_soon()

    def _took(self, count: int) -> None:
        self._taken += count
        self._untold += count
        self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Tell the machine what was taken and what is done with."""
        self._telling = False
        taken, self._untold = self._untold, 0
        done, self._done = self._done, {}
        if (taken or done) and not self._closed:
            self._verbs.read(self.number, taken, done)

    # How it stands.

    @property
    def in_force_after(self) -> tuple[Position, ...]:
        """Every matching message with a later tick than these is delivered: so the answer said when it was opened."""
        return tuple(self._began.values())

    def positions(self) -> tuple[Position, ...]:
        """Up to where messages were handed to the application: to be kept with what it made of them.

        Give it to `subscribe(..., positions=...)` to go on behind exactly these.
        """
        return self._positions_before(())

    def _positions_before(self, waiting: Iterable[Item]) -> tuple[Position, ...]:
        """The positions at which these are still to come, and what is in the queue."""
        found = self._verbs.positions(self.number) if self._opened and not self._closed else self._last_positions
        first: dict[str, Tick] = {}
        for item in chain(waiting, self._queue):
            first.setdefault(item.pubend, item.tick if isinstance(item, StreamMessage) else item.first)
        return tuple((pubend, epoch, self._before(pubend, epoch, tick, first)) for pubend, epoch, tick in found)

    def _before(self, pubend: str, epoch: int, tick: Tick, first: dict[str, Tick]) -> Tick:
        """What was taken, of which the machine may not know yet; less what is still to come."""
        if pubend in first:
            return first[pubend] - 1
        last = self._given.get(pubend)
        return max(tick, last.tick) if last is not None and last.epoch == epoch else tick

    async def lag(self) -> int | None:
        """How many messages the stream has that match and are not acknowledged; None: the pubends could not say.

        Beyond 100,000 entries of the log it is "at least"; `Stream.info` says so, and what each pubend counts.
        """
        try:
            found = await self._verbs.command("info", self.stream, durable=self.durable)
        except StreamError:
            return None
        lags = [name["lag"] for pubend in found["pubends"] for name in pubend["names"]]
        return None if not lags or None in lags else sum(lags)

    def report(self) -> ReaderReport:
        """How it fares here; `lag` asks the stream."""
        holder = self._verbs.holder
        return ReaderReport(
            stream=self.stream,
            durable=self.durable,
            where=self.where,
            received=self._received,
            taken=self._taken,
            queue=sum(isinstance(item, StreamMessage) for item in self._queue),
            gaps=self._gaps,
            positions=self.positions(),
            reconnects=holder.reconnects,
            connected=holder.connected,
        )

    def _present(self, positions: tuple[Position, ...]) -> None:
        """What somebody has kept, before it is opened."""
        self._presented = self._last_positions = positions

    # What the client calls.

    async def _open(self, sink: Sink) -> None:
        if self._presented and not self._opened:
            self._verbs.present(self.number, self._presented)
        await super()._open(sink)

    def _refusal(self, refused: Refused) -> PenstockError:
        return stream_error(refused)

    def _put(self, item: Item | DurableBegan) -> None:
        if type(item) is StreamMessage:  # nearly always
            self._queue.append(item)
            self._received += 1
        elif isinstance(item, DurableBegan):
            self._began.setdefault(item.pubend, (item.pubend, item.epoch, item.tick))
            return
        else:
            self._queue.append(item)
            self._gaps += 1
            self._gaps_waiting += 1
        if self._waiter is not None:
            self._wake()

    def _end(self, problem: str | None) -> None:
        """Whatever waits comes to the next reader of the name, and to nobody here."""
        if not self._closed:
            self._last_positions = self.positions()
        self._queue.clear()
        self._gaps_waiting = 0
        self._closed = True
        if problem is not None:
            self._error = ReaderEnded(problem)
        self._wake()

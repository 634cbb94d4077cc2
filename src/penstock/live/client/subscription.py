"""What an application holds of a subscription: an asynchronous iterator over messages, and a report.

Messages wait in a bounded queue until the application takes them. When it is full the oldest goes, so that a reader
who has fallen behind finds the present and not the past; it is counted, and `on_drop` is called. The
subscription belongs to the application, not to the connection: when the connection breaks, it waits, and goes on when
a broker has been found again.

`async with` opens it and closes it. Whoever reads one that is not open opens it with that; it is then closed by
`close`, with the network, or when nobody holds it any more: so ends `async for ... in network.subscribe(...)`.

The report has two parts: what every subscription has, and what the transport knows. On a plain subscription, one
without order and recovery, the transport's counts are 0 and its probabilities None, because nobody measures them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from weakref import WeakMethod, finalize

import msgspec

from penstock.content.message import Message
from penstock.errors import InvalidPredicate, PenstockError
from penstock.kernel.reader_queue import READING_EVERY, ReaderQueue
from penstock.kernel.service import Reading
from penstock.transport.receiver.feedback_scheduler import ControlReport
from penstock.transport.service import TRANSPORT

log = logging.getLogger("penstock.client")

_WAITED_FOR: dict[object, Subscription] = {}  # so that nothing that is waited for can vanish

DROPS_LOGGED_EVERY = 1.0  # seconds
TURN_EVERY = 0.01  # seconds without a turn of the event loop, after which a busy reader gives it one


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a subscription fares."""

    where: str
    ordered: bool
    recover: bool
    received: int  # messages that came in over the network, and the transport let through
    dropped: int  # of those, how many the application was too slow for
    lost_at_broker: int  # deliveries for it that the broker reports as dropped on the way to this client
    queue: int  # messages that wait for the application now
    queue_max: int
    reconnects: int  # how often the connection was lost and found again; what was sent in between is not known
    connected: bool
    unconfirmed: tuple[str, ...] = ()  # brokers that had not confirmed, when it was opened, that they know of it
    # The transport's; those of publishers are of all publishers of this client together.
    delivered: int = 0  # messages that the transport handed over; on a plain subscription those received
    late: int = 0  # of those, how many came after a later one of the same publisher
    dropped_late: int = 0  # came too late and were left out, as configured
    recovered: int = 0  # of those delivered, how many were lost and came as a repair
    lost: int = 0  # losses that were detected
    known_lost: int = 0  # of those, how many are no longer asked for: they will not come
    pending: int = 0  # of those, how many are being asked for now
    duplicates: int = 0  # copies that were recognised and left out
    refused: int = 0  # messages whose header made no sense
    without_header: int = 0  # messages of publishers without the transport: neither ordered nor recovered
    publishers: int = 0  # that send with the transport, and sent something lately
    detection_probability: float | None = None  # that a loss is noticed at all
    disorder_probability: float | None = None  # that a message which waited for another still came out of order
    delay_assigned: float = 0.0  # seconds that a message should wait for others, on average
    delay_held: float = 0.0  # seconds that it really waited, on average
    heartbeats: int = 0  # received
    not_asked: int = 0  # losses that nobody asked for: not wanted, no room, or most such had proved to be none (ranges)
    unrevealed: int = 0  # publications, wanted or not, that no record ever covered: a loss among them went unnoticed
    # Congestion control's, of the publisher to whom the way is the worst; None: unknown, or no limit.
    loss_event_rate: float | None = None
    round_trip: float | None = None  # seconds
    allowed_rate: float | None = None  # messages/s that the way, or the reader of this subscription, can take
    feedbacks: int = 0  # sent, to all publishers
    # What other services report of it, by their names.
    services: dict[str, Any] = field(default_factory=dict)


class Sink(NamedTuple):
    """Where the client puts what comes for a subscription."""

    put: Callable[[Message], None]
    end: Callable[[str | None], None]  # no more will come; with a problem, the reader gets that


class Holder(Protocol):
    """What a subscription knows of the client that it is part of."""

    @property
    def connected(self) -> bool: ...

    @property
    def reconnects(self) -> int: ...

    def lost_at_broker(self, number: int | None = None) -> int: ...

    async def open(self, subscription: Subscription, sink: Sink) -> None: ...

    def close(self, number: int) -> None: ...

    async def settle(self) -> None: ...

    def read(self, number: int, reading: Reading) -> None: ...

    def reader_dropped(self, message: Message) -> None: ...

    def control_report(self, number: int) -> ControlReport | None: ...

    def service_reports(self, number: int) -> dict[str, Any]: ...


class Subscription:
    """Messages that match, as they come. Made by `Network.subscribe`; open it with `async with`, or just iterate."""

    def __init__(
        self,
        holder: Holder,
        number: int,
        where: str,
        queue_max: int,
        on_drop: Callable[[int], None] | None,
        options: Any,  # what it asks of services
        ready_within: float = 0.0,
    ) -> None:
        self.where = where
        self.number = number
        self.options = options
        self.ready_within = ready_within  # seconds that opening it may wait for all brokers
        self.unconfirmed: tuple[str, ...] = ()  # brokers that had not confirmed it by then
        self._holder = holder
        self._queue = ReaderQueue(queue_max)
        self._on_drop = on_drop
        self._waiter: asyncio.Future[None] | None = None
        self._closed = self._opened = False
        self._opening: asyncio.Task[None] | None = None  # by somebody who read before it was open
        self._reading_soon = False
        self._logged_at = -DROPS_LOGGED_EVERY
        self._error: PenstockError | None = None
        self._last_reports: dict[str, Any] = {}
        self._turn_at = 0.0  # when the event loop last had its turn

    async def open(self) -> Subscription:
        """Subscribe; returns when all brokers know of it, so that what is published from now on anywhere finds it.

        It waits no longer than `ready_within`; `unconfirmed` then names the brokers that have not confirmed it. Raises
        InvalidPredicate with the reason if the broker does not accept it.
        """
        await self._open(Sink(self._put, self._end))
        return self

    async def close(self) -> None:
        """Unsubscribe; iterating ends when the queue is empty. Afterwards the report knows what the broker dropped."""
        if not self._closed:
            self._last_reports = self._holder.service_reports(self.number)
            self._holder.close(self.number)
            self._end(None)
            await self._holder.settle()

    async def __aenter__(self) -> Subscription:
        return await self.open()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        while not self._queue.messages:
            if not await self._more():
                raise StopAsyncIteration
        await self._breathe()
        return self._queue.take(1)[0]

    async def take(self, count_max: int = 1000) -> list[Message]:
        """At least one message and at most so many: all that wait now. An empty list means that it is closed."""
        while not self._queue.messages:
            if not await self._more():
                return []
        await self._breathe()
        return self._queue.take(count_max)

    def report(self) -> Report:
        """How it fares: what came, what was dropped, what waits, and what the transport made of it."""
        reports = self._holder.service_reports(self.number) or self._last_reports
        transport = reports.get(TRANSPORT.name)
        control = self._holder.control_report(self.number)
        queue = self._queue
        return Report(
            where=self.where,
            ordered=self.options.ordered,
            recover=self.options.recover,
            received=queue.received,
            dropped=queue.dropped,
            lost_at_broker=self._holder.lost_at_broker(self.number),
            queue=len(queue.messages),
            queue_max=queue.queue_max,
            reconnects=self._holder.reconnects,
            connected=self._holder.connected,
            unconfirmed=self.unconfirmed,
            **({"delivered": queue.received} if transport is None else asdict(transport)),
            **({} if control is None else asdict(control)),
            services={name: msgspec.to_builtins(found) for name, found in reports.items() if name != TRANSPORT.name},
        )

    # What the client calls.

    def _put(self, message: Message) -> None:
        """A message has come."""
        dropped = self._queue.put(message)
        if dropped is not None:
            self._holder.reader_dropped(dropped)
            self._log_drop()
            if self._on_drop is not None:
                self._on_drop(self._queue.dropped)
        if not self._reading_soon:  # not from inside the machine's own effects: as an input of its own
            self._reading_soon = True
            asyncio.get_running_loop().call_later(READING_EVERY, self._read)
        self._wake()

    def _read(self) -> None:
        """Tell the machine how the application reads."""
        self._reading_soon = False
        if not self._closed:
            self._holder.read(self.number, self._queue.reading())

    def _log_drop(self) -> None:
        now = monotonic()
        if now - self._logged_at >= DROPS_LOGGED_EVERY:
            self._logged_at = now
            log.warning("%s: the reader is slow; %d messages dropped so far", self.where, self._queue.dropped)

    def _end(self, problem: str | None) -> None:
        """No more will come; with a problem, the reader gets it once the queue is empty."""
        self._closed = True
        if problem is not None:
            self._error = InvalidPredicate(problem)
        self._wake()

    async def _breathe(self) -> None:
        """A reader who works long on each message, and never waits, must not keep the connection from being read."""
        now = monotonic()
        if now - self._turn_at > TURN_EVERY:
            if self._turn_at:
                await asyncio.sleep(0)
            self._turn_at = monotonic()

    async def _more(self) -> bool:
        """Return when it is worth another look at the queue; False: no more will come."""
        if self._error is not None:
            raise self._error
        if self._closed:
            return False
        await (self._wait() if self._opened else self._open_by_reading())
        return True

    async def _wait(self) -> None:
        if self._waiter is None or self._waiter.done():
            self._waiter = asyncio.get_running_loop().create_future()
        reader = object()
        _WAITED_FOR[reader] = self  # a task that waits here may be known to nobody else
        try:
            # Shielded, because several readers may wait for one future and one of them may be cancelled.
            await asyncio.shield(self._waiter)
        finally:
            del _WAITED_FOR[reader]
        self._turn_at = monotonic()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # How it opens.

    async def _open(self, sink: Sink) -> None:
        if self._opened or self._closed:
            found = "opened before" if self._opened else "closed"
            raise PenstockError(f"this subscription was {found}; make another one with subscribe()")
        self._opened = True
        try:
            await self._holder.open(self, sink)
        except BaseException:
            self._opened = False
            self._wake()  # whoever reads finds out for themselves
            raise

    async def _open_by_reading(self) -> None:
        """The first who reads opens it, and whoever reads meanwhile waits too; to give up reading does not undo it."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_for_readers())
            self._opening.add_done_callback(self._opening_ended)
        try:
            await asyncio.shield(self._opening)
        except PenstockError:
            if not self._closed:  # else it ends as it does for all who read
                raise

    async def _open_for_readers(self) -> None:
        """Nobody has promised to close it, so it is closed when nobody holds it any more."""
        put, end = WeakMethod(self._put), WeakMethod(self._end)
        await self._open(Sink(lambda message: _call(put, message), lambda problem: _call(end, problem)))
        finalize(self, _let_go, asyncio.get_running_loop(), self._holder, self.number).atexit = False

    def _opening_ended(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; perhaps nobody did


def _call(method: WeakMethod[Any], argument: Any) -> None:
    """Call it if there is anybody left."""
    found = method()
    if found is not None:
        found(argument)


def _let_go(loop: asyncio.AbstractEventLoop, holder: Holder, number: int) -> None:
    """Nobody can read it any more. The last who could may have been another thread than the network's."""
    with suppress(RuntimeError):  # the loop has ended, and with it the network
        loop.call_soon_threadsafe(holder.close, number)

"""What an application holds of a subscription: an asynchronous iterator over messages, and a report.

Messages wait in a bounded queue until the application takes them. When it is full the oldest goes, so that a reader
who has fallen behind finds the present and not the past; it is counted, and `on_drop` is called. The
subscription belongs to the application, not to the connection: when the connection breaks, it waits, and goes on when
a broker has been found again.

How it opens, waits and ends is the part of every subscription (`readable`).

The report has two parts: what every subscription has, and what the transport knows. On a plain subscription, one
without order and recovery, the transport's counts are 0 and its probabilities None, because nobody measures them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, Protocol

import msgspec

from penstock.content.message import Message
from penstock.errors import InvalidPredicate, PenstockError
from penstock.kernel.machine import Refused
from penstock.kernel.reader_queue import READING_EVERY, ReaderQueue
from penstock.kernel.service import Reading
from penstock.live.client.readable import Opens, Readable, Sink
from penstock.rates.told import WithheldFlow
from penstock.transport.receiver.feedback_scheduler import ControlReport
from penstock.transport.service import TRANSPORT

log = logging.getLogger("penstock.client")

DROPS_LOGGED_EVERY = 1.0  # seconds


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
    # What full links withheld from our broker, of whatever its clients want: at most so many were for this one.
    # And what our broker withheld from it because we read slowly, which `lost_at_broker` counts too.
    withheld_by: tuple[WithheldFlow, ...] = ()
    # The transport's; those of publishers are of all publishers of this client together.
    delivered: int = 0  # messages that the transport handed over; on a plain subscription those received
    late: int = 0  # of those, how many came after a later one of the same publisher
    dropped_late: int = 0  # came too late and were left out, as configured
    recovered: int = 0  # of those delivered, how many were lost and came as a repair
    lost: int = 0  # losses that were detected
    known_lost: int = 0  # of those, how many are no longer asked for: they will not come
    pending: int = 0  # messages that are being asked for now, also those that we may not want
    withheld: int = 0  # with recovery: what it wanted of `withheld_by`; not lost, asked for when there is room
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
    broken_off: int = 0  # publishers' lives that ended without a last word: what they sent last may be lost unnoticed
    lost_numbers: tuple[tuple[str, int, int], ...] = ()  # publisher, life and number of what is lost for good: the last
    # Congestion control's, of the publisher to whom the way is the worst; None: unknown, or no limit.
    loss_event_rate: float | None = None
    round_trip: float | None = None  # seconds
    allowed_rate: float | None = None  # messages/s that the way, or the reader of this subscription, can take
    feedbacks: int = 0  # sent, to all publishers
    # What other services report of it, by their names.
    services: dict[str, Any] = field(default_factory=dict)


class Holder(Opens, Protocol):
    """What a subscription knows of the client that it is part of."""

    @property
    def connected(self) -> bool: ...

    @property
    def reconnects(self) -> int: ...

    def lost_at_broker(self, number: int | None = None) -> int: ...

    def withheld_by(self, number: int) -> tuple[WithheldFlow, ...]: ...

    async def settle(self) -> None: ...

    def read(self, number: int, reading: Reading) -> None: ...

    def reader_dropped(self, message: Message) -> None: ...

    def control_report(self, number: int) -> ControlReport | None: ...

    def service_reports(self, number: int) -> dict[str, Any]: ...


class Subscription(Readable):
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
        super().__init__(holder, number, where, options)
        self.ready_within = ready_within  # seconds that opening it may wait for all brokers
        self.unconfirmed: tuple[str, ...] = ()  # brokers that had not confirmed it by then
        self._holder = holder
        self._queue = ReaderQueue(queue_max)
        self._on_drop = on_drop
        self._reading_soon = False
        self._logged_at = -DROPS_LOGGED_EVERY
        self._last_reports: dict[str, Any] = {}

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
            withheld_by=self._holder.withheld_by(self.number),
            **({"delivered": queue.received} if transport is None else asdict(transport)),
            **({} if control is None else asdict(control)),
            services={name: msgspec.to_builtins(found) for name, found in reports.items() if name != TRANSPORT.name},
        )

    # What the client calls.

    def _refusal(self, refused: Refused) -> PenstockError:
        """The broker does not accept the text."""
        return InvalidPredicate(refused.problem)

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

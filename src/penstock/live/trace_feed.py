"""A node's records on their way into the stream `_trace`, while somebody wants them there.

`NetworkTrace` is where the host writes: it leaves out what is about the trace itself, keeps of the records of messages
those of one in `one_in` (the same messages at every node, so that a publication and its deliveries are chosen
together), and holds the rest until it is sent. What is left out by that is counted exactly, in a `Counted` for each
kind and second.

`TraceFeed` sends: once a second, over a connection of its own under a name that is never traced, one batch at a time,
each when the one before is on disk. A stream that is slow, full or away therefore only lets records wait. When
RECORDS_MAX wait, records of messages are left out, and the next batch says how many and of which time; the room
above that is for records of other kinds, which are few and which numbers depend on. Nobody who publishes or subscribes
ever waits for the trace, and it takes no more than a batch every PAUSE seconds of their process.

Every REPEAT seconds, and at the beginning, what holds of the node is said (again): `_trace` keeps its records for a
short time, and whoever begins to watch must know who is subscribed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.kernel.trace import (
    TRACE_CLIENT,
    TRACE_STREAM,
    Counted,
    NodeStopped,
    Record,
    Subscribed,
    Unsubscribed,
)
from penstock.kernel.trace_batch import Columns, TraceBatch, about_tracing, chosen, encode_batch, of_message, packed
from penstock.kernel.trace_files import kind_name
from penstock.live.host import LiveHost
from penstock.tracing.records import TracingSwitched

log = logging.getLogger("penstock.trace")

EVERY = 1.0  # seconds between two looks for something to send
IDLE_EVERY = 2.0  # seconds after which even nothing is said: that it is nothing must be known too
PAUSE = 0.1  # seconds between two batches: 10,000 records a second at most
BATCH_RECORDS = 1_000  # which are packed in some 3 ms
BATCH_BYTES = 512 << 10  # of text in it; a message may have 1 MiB
RECORDS_MAX = 50_000  # records of messages that may wait
OTHERS_MAX = 10_000  # and others besides
TEXT_MAX = 32 << 20  # characters that may wait
RECORD_TEXT = 50  # characters of a record without its long field
REPEAT = 60.0  # seconds until what holds is said again
RETRY_AFTER = 1.0  # seconds, if the stream cannot be had
CLOSE_WITHIN = 2.0  # seconds for the last batch
NAME_MAX = 100  # characters of a node's name in that of its connection


class TraceStream(Protocol):
    """What a feed needs of the stream."""

    async def publish(
        self, attributes: Any, body: bytes = b"", *, key: str = "", publication_id: str | None = None
    ) -> Any: ...


class TraceConnection(Protocol):
    """What a feed needs of a client."""

    def stream(self, name: str) -> TraceStream: ...


Connect = Callable[[str], AbstractAsyncContextManager[TraceConnection]]  # by its name
Lines = list[tuple[float, Record]]
LeftOut = tuple[int, float, float]  # how many records, and the times of the first and the last


class NetworkTrace:
    """Records that wait to be sent."""

    def __init__(self, one_in: int) -> None:
        self.one_in = one_in
        self.left_out = 0  # in all
        self._lines: deque[tuple[float, Record, int]] = deque()  # each with the length of its text, roughly
        self._text = 0  # of all these
        self._in_all: Counter[type[Record]] = Counter()  # records of messages since they were last told, chosen or not
        self._left: LeftOut = (0, 0.0, 0.0)  # since the last batch

    def __len__(self) -> int:
        return len(self._lines)

    def write(self, time: float, node: str, record: Record) -> None:
        """One fact, stamped with the node's clock."""
        if about_tracing(record):
            return
        long, once_each = _shape(type(record))  # for every record: what is known of its kind is looked up at once
        room = RECORDS_MAX + OTHERS_MAX
        if once_each:
            if self.one_in > 1:
                self._in_all[type(record)] += 1
                if not chosen(record, self.one_in):
                    return
            room = RECORDS_MAX if self._text < TEXT_MAX else 0
        if len(self._lines) >= room:
            self.leave_out(time)
            return
        text = RECORD_TEXT if long is None else RECORD_TEXT + len(long(record))  # as `_text`, without another look
        self._lines.append((time, record, text))
        self._text += text

    @property
    def has_left_out(self) -> bool:
        """Whether something was left out that nobody was told of."""
        return self._left[0] > 0

    def leave_out(self, time: float) -> None:
        """A record of this time finds no room."""
        count, first, _ = self._left
        self._left = (count + 1, first if count else time, time)
        self.left_out += 1

    def count(self, now: float, node: str, passed_over: Counter[type[Record]]) -> None:
        """Tell how many records of messages there were, of which only some are sent, or were even made."""
        counts, self._in_all = self._in_all + passed_over, Counter()
        passed_over.clear()
        for kind, value in counts.items():
            self.write(now, node, Counted(f"{kind_name(kind)} in all", "", value))

    def take(self) -> tuple[Lines, LeftOut]:
        """The oldest records, and what was left out lately."""
        taken = [self._lines.popleft() for _ in range(min(len(self._lines), BATCH_RECORDS))]
        self._text -= sum(text for _, _, text in taken)
        left, self._left = self._left, (0, 0.0, 0.0)
        return [(time, record) for time, record, _ in taken], left


class TraceSender:
    """Sends the records of one node, from when it is made until `end`: one writer of the trace."""

    def __init__(self, host: LiveHost, connect: Connect, one_in: int) -> None:
        self.trace = NetworkTrace(one_in)
        self._host = host
        self._connect = connect
        self._writer = f"{host.name[:NAME_MAX]}-{os.urandom(6).hex()}"
        self._number = 0
        self._holds_said = 0.0  # when what holds of the node was said last
        self._sent = 0.0  # when the last batch was made
        self._ended = asyncio.Event()
        self._say_what_holds()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def end(self, cause: str) -> None:
        """Send what waits, as far as there is time, and end; a cause means that the node ends too."""
        if cause:
            name, now = self._host.name, self._host.now()
            for _, record in self._host.standing.all():
                if isinstance(record, Subscribed):  # nothing is due to a node that has left
                    self.trace.write(now, name, Unsubscribed(record.subscription))
            self.trace.write(now, name, NodeStopped(cause))
        self._ended.set()
        asyncio.get_running_loop().call_later(CLOSE_WITHIN, self.task.cancel)

    async def _run(self) -> None:
        name = f"{TRACE_CLIENT}{self._writer}"
        while True:
            try:
                async with self._connect(name) as network:
                    await self._send_all(network.stream(TRACE_STREAM))
                    return
            except PenstockError as error:  # nobody answers at first; later it dials again by itself
                log.info("%s: records wait: %s", self._host.name, error)
                await asyncio.sleep(RETRY_AFTER)

    async def _send_all(self, stream: TraceStream) -> None:
        while True:
            last = self._ended.is_set()
            for batch in self._batches(last):
                await self._publish(stream, batch)
                await asyncio.sleep(0.0 if last else PAUSE)
            if last:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._ended.wait()

    async def _publish(self, stream: TraceStream, batch: TraceBatch) -> None:
        """Return when it is on disk, however often that must be tried; it is stored once."""
        attributes = {"node": batch.node, "role": batch.role}
        while True:
            try:
                named = f"{batch.writer}-{batch.number}"
                await stream.publish(attributes, encode_batch(batch), key=batch.writer, publication_id=named)
                return
            except PenstockError as error:
                log.info("%s: records wait: %s", self._host.name, error)
                await asyncio.sleep(RETRY_AFTER)

    def _batches(self, last: bool) -> Iterator[TraceBatch]:
        """What is to be said now; nothing if there is nothing new, and it was said not long ago."""
        now = self._host.now()
        if now > self._holds_said + REPEAT:
            self._say_what_holds()
        self.trace.count(now, self._host.name, self._host.traced.passed_over)
        if not (last or len(self.trace) or self.trace.has_left_out or now > self._sent + IDLE_EVERY):
            return
        while True:
            now = self._sent = self._host.now()
            lines, left = self.trace.take()
            done = not len(self.trace)
            parts = list(self._fitting(lines))
            for number, kinds in enumerate(parts, 1):
                whole = done and number == len(parts)
                yield self._batch(kinds, left, upto=now if whole else 0.0, closed=last and whole)
                left = (0, 0.0, 0.0)
            if done:
                return

    def _batch(self, kinds: dict[str, Columns], left: LeftOut, *, upto: float, closed: bool) -> TraceBatch:
        self._number += 1
        return TraceBatch(
            writer=self._writer,
            node=self._host.name,
            role=self._host.role,
            number=self._number,
            upto=upto,
            closed=closed,
            one_in=self.trace.one_in,
            left_out=left[0],
            left_from=left[1],
            left_upto=left[2],
            kinds=kinds,
        )

    def _fitting(self, lines: Lines) -> Iterator[dict[str, Columns]]:
        """The records in parts that fit a message; one that fits none is left out."""
        if sum(_text(record) for _, record in lines) <= BATCH_BYTES:
            yield packed(lines)
        elif len(lines) > 1:
            yield from self._fitting(lines[: len(lines) // 2])
            yield from self._fitting(lines[len(lines) // 2 :])
        else:
            self.trace.leave_out(lines[0][0])
            yield {}

    def _say_what_holds(self) -> None:
        self._holds_said = self._host.now()
        for at, record in self._host.standing.all():
            self.trace.write(at, self._host.name, record)


class TraceFeed:
    """Follows the orders to trace that a node gets."""

    def __init__(self, host: LiveHost, connect: Connect) -> None:
        self._host = host
        self._connect = connect
        self._sender: TraceSender | None = None  # None: nobody wants records
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def left_out(self) -> int:
        """Records of the present order that found no room."""
        return self._sender.trace.left_out if self._sender is not None else 0

    def recorded(self, record: Record) -> None:
        """A record of the node: an order is among them."""
        if isinstance(record, TracingSwitched) and not self._host.name.startswith(TRACE_CLIENT):
            self._switch(record.on, record.one_in)

    def _switch(self, on: bool, one_in: int) -> None:
        if not on:
            self._end("")
        elif self._sender is not None:
            self._sender.trace.one_in = one_in
            self._host.trace_also(self._sender.trace, one_in)
        else:
            self._sender = TraceSender(self._host, self._connect, one_in)
            self._tasks.add(self._sender.task)
            self._sender.task.add_done_callback(self._tasks.discard)
            self._host.trace_also(self._sender.trace, one_in)

    async def stop(self, cause: str) -> None:
        """The node ends: say so, as far as there is time."""
        self._end(cause)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self, cause: str) -> None:
        if self._sender is not None:
            sender, self._sender = self._sender, None
            self._host.trace_also(None)
            sender.end(cause)


def _text(record: Record) -> int:
    """How long it is, roughly."""
    long, _ = _shape(type(record))
    return RECORD_TEXT if long is None else RECORD_TEXT + len(long(record))


@cache
def _shape(kind: type[Record]) -> tuple[attrgetter[str] | None, bool]:
    """The field that may be long, if it has one, and whether there is one for each message.

    Only attributes and the text of a subscription may be long, and no kind has both.
    """
    (name,) = {"attributes", "where"} & {*kind.__struct_fields__} or ("",)
    return attrgetter(name) if name else None, of_message(kind)

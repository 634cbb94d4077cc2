"""A stream as an application holds it: publish and know that it is on disk, read under a durable name, look after it.

    orders = network.stream("orders")
    receipt = await orders.publish({"symbol": "IBM", "price": 119.5}, b"...", key="IBM")
    async with orders.subscribe("symbol = 'IBM'", durable="billing") as messages:
        async for message in messages:
            print(message.tick, message.attributes)

`publish` returns when the message is on disk at the broker of its pubend. It asks again by itself, over a new
connection too, under an id by which the stream knows that it is the same message. After `give_up_after` seconds in
which nothing was heard of it, it raises `OutcomeUnknown`, with that id.

If a broker on the way to readers cannot keep up, the stream takes messages more slowly, and `publish` waits its turn,
as long as that takes: bound it with `asyncio.timeout` if you must. `report()` says who slows it down, since when and
why, and the log says so once.
"""

from __future__ import annotations

from asyncio import create_task
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, overload

import msgspec

from penstock.content.message import Attributes, Identity
from penstock.errors import InvalidOption
from penstock.live.client.shared_subscription import SharedSubscription
from penstock.live.client.stream_subscription import StreamSubscription
from penstock.live.client.stream_verbs import StreamVerbs
from penstock.services import options as service_options
from penstock.services import publication_options
from penstock.streams.client_publishing import PublisherReport
from penstock.streams.config import StreamPublicationOptions
from penstock.streams.durable_options import check_positions, durable_request
from penstock.streams.message import StreamSlice
from penstock.streams.packets import STREAM_NAME_BYTES_MAX, Position, name_problem
from penstock.streams.start_times import start_on_wire

BATCH_MAX = 2_000  # messages that are sent together
_TRIMS = {"tick": "tick", "time": "time", "ago": "age"}

Start = str | int | datetime | timedelta  # "earliest", "latest", a tick, a time, how long ago


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The message is on disk, at this tick of this pubend."""

    stream: str
    pubend: str
    tick: int
    publication_id: str


class Stream:
    """A stream of the network. Made by `Network.stream`; to make one asks nobody, and no stream need be there yet."""

    def __init__(self, verbs: StreamVerbs, name: str) -> None:
        self.name = _checked_name(name)
        self._verbs = verbs
        self._plain = StreamPublicationOptions(stream=self.name)

    async def publish(
        self, attributes: Attributes, body: bytes = b"", *, key: str = "", publication_id: str | None = None
    ) -> Receipt:
        """Store a message; returns when it is on disk.

        `key` chooses the pubend: messages of one key come in the order in which they were stored. Without it, all
        messages of this client have the same pubend. A `publication_id` of your own makes it safe to publish the same
        message again for as long as the stream knows the id (`ids_window`): it is stored once, and the receipt is the
        first one's. Another message under that id is refused. If the stream has several pubends, each knows its own
        ids: whoever publishes it again from another process gives it the same key, or its client the same name.

        Without a connection it waits for one. Raises InvalidMessage, UnknownStream, StreamRefused (nothing was stored)
        or OutcomeUnknown.
        """
        return (await self._publish(attributes, body, key, publication_id))[0]

    async def publish_many(self, publications: Iterable[tuple[Attributes, bytes, str, str]]) -> list[Receipt]:
        """Store many messages, (attributes, body, key, publication_id) each; returns when all are on disk.

        They leave together, BATCH_MAX at a time, and those of one pubend are stored in their order as far as none must
        be tried again. Raises what `publish` raises, for the first that fails; others may be stored by then, so
        whoever tries again gives them ids of its own.
        """
        receipts: list[Receipt] = []
        waiting = iter(publications)
        while batch := [
            (attributes, body, _publication(self.name, key, publication_id))
            for attributes, body, key, publication_id in islice(waiting, BATCH_MAX)
        ]:
            receipts += [Receipt(**place) for place in await self._verbs.publish_many(batch)]
        return receipts

    async def _publish(
        self, attributes: Attributes, body: bytes, key: str, publication_id: str | None
    ) -> tuple[Receipt, Identity]:
        plain = key == "" and publication_id is None  # nearly all are
        options = self._plain if plain else _publication(self.name, key, publication_id or "")
        place, identity = await self._verbs.publish(attributes, body, options)
        return Receipt(**place), identity

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
    ) -> StreamSubscription: ...

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
    ) -> SharedSubscription: ...

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
    ) -> StreamSubscription:
        """Read what matches, exactly once and in order, under a durable name; open it with `async with`, then iterate.

        The stream keeps the name and its position, so whoever subscribes under it again, anywhere in the network, goes
        on behind the last message that was acknowledged. `ack="auto"`: whoever asks for the next message is done with
        the one before. `ack="manual"`: call `ack(message)`. If you keep the position yourself (`positions()`), give it
        as `positions`, and it counts instead of the stream's.

        `start` counts for a new name: "earliest", "latest", a tick, a time, or how long ago ("10m", a timedelta).
        A name has one reader at a time: a second one is refused, or takes its place with `takeover=True`.

        `share=True`: the name is shared among all who subscribe so, each message to one of them, at least once and in
        no order that is promised. One that dies, says no (`reject`), or does not acknowledge within `ack_within`
        seconds (30) loses the message to another; `message.attempt` counts. What was tried `attempts_max` times (5)
        is stored in the stream `failed`, or, without one, kept in a list (`Stream.failed`).
        """
        begins = _start_text(start)
        start_on_wire(begins, "start")
        asked: dict[str, Any] = {"stream": self.name, "durable": durable, "start_at": begins}
        shared = {"share": share, "ack_within": ack_within or 0.0, "attempts_max": attempts_max or 0, "failed": failed}
        options = service_options({**asked, **shared, "takeover": takeover, "ack": ack})
        durable_request(0, where, options, "", 0)  # a mistake is said here, not by the broker
        presented = _checked_positions(positions, self.name)
        if share:
            if presented:
                raise InvalidOption("positions", "are for names with one reader; a shared name has none")
            return SharedSubscription(self._verbs, where, options)
        return StreamSubscription(self._verbs, where, options, presented)

    async def hold(self, durable: str, positions: Iterable[Position], *, where: str = "TRUE") -> None:
        """Let this durable name be done with everything up to these positions; the stream keeps what is after them.

        Say one for each pubend. For whoever keeps its own positions and reads by `slices`: retention waits for the name
        as for any reader's. A reader of the name loses its place. Returns when it is on disk at all pubends.
        """
        given = _checked_positions(positions, self.name)
        async with self.subscribe(where, durable=durable, ack="manual", takeover=True, positions=given) as reader:
            await self._verbs.acknowledge(reader.number, {pubend: tick for pubend, _, tick in given})

    def report(self) -> PublisherReport:
        """How publishing fares here: what is not on disk yet, since when, and which brokers slow it down."""
        return self._verbs.publishing(self.name)

    async def info(self, *, durable: str = "") -> dict[str, Any]:
        """What the stream's pubends say of it: what they keep, and their durable names with their lag; or one name."""
        return await self._verbs.command("info", self.name, durable=durable)

    async def trim(self, *, upto: Start, force: bool = False) -> dict[str, Any]:
        """Forget all messages up to this tick or time, or older than that ("10m").

        What a durable name still needs is trimmed only with `force`; its reader then gets a gap notice.
        """
        words = start_on_wire(_start_text(upto), "upto")
        kind, _, value = words.partition(":")
        if kind not in _TRIMS:
            raise InvalidOption("upto", f"is {words}; say a tick, a time, or how old, such as '10m'")
        given = {_TRIMS[kind]: int(value) if kind == "tick" else float(value)}
        return await self._verbs.command("trim", self.name, force=force, **given)

    async def remove(self, *, durable: str = "", force: bool = False) -> dict[str, Any]:
        """Delete the stream with all that it keeps; or only this durable name.

        A stream that keeps anything, and a name that somebody reads under, are deleted only with `force`.
        """
        return await self._verbs.command("rm", self.name, durable=durable, force=force)

    async def failed(self, *, durable: str, redeliver: bool = False, drop: bool = False) -> dict[str, Any]:
        """What was tried too often under this shared name; let it be tried again, or forget it."""
        return await self._verbs.command("failed", self.name, durable=durable, redeliver=redeliver, drop=drop)

    async def survey(self, ranges: Mapping[str, Mapping[str, int]] | None = None) -> dict[str, Any]:
        """How much each pubend keeps, counted and not read: `entries`, `bytes`, the tick of the `last` message.

        `ranges` may have for a pubend, such as "orders/0", `first` and `last` tick, `entries_max` and `bytes_max`, at
        which the measured part ends, and `parts`: `marks` are ticks that cut it into so many, of as many messages each.
        """
        return await self._verbs.command("survey", self.name, ranges=ranges or {})

    async def begin(self, *, writer: str, batch: int, part: int = 0) -> dict[str, Any]:
        """Say that a part of a batch begins which may have to be tried again; at each pubend, where the batch began.

        Behind the tick `after` is all that this batch has stored there; `again` says that this part has begun before.
        If the number `batch` is another one, that batch has begun since, and this one is over.
        The stream keeps what is behind the tick until the writer begins its next batch, or is `over`.
        """
        return await self._verbs.command("begin", self.name, begun={"writer": writer, "batch": batch, "part": part})

    async def over(self, *, writer: str) -> None:
        """Say that this writer of batches has none to try again."""
        await self._verbs.command("begin", self.name, begun={"writer": writer, "over": True})

    async def slices(
        self, pubend: str, *, epoch: int, first: int, last: int, where: str = "TRUE"
    ) -> AsyncGenerator[StreamSlice, None]:
        """What matches between two ticks of a pubend, both included, slice after slice.

        Any range may be read again, by anybody, as long as it is kept: no name, no position, nothing acknowledged.
        `epoch` and the last tick are what `survey` says. The next slice is on its way while you look at one.
        """
        asking = create_task(self._verbs.read_slice(pubend, epoch, first, last, where))
        try:
            while first <= last:
                found = await asking
                first = found.upto + 1
                if first <= last:
                    asking = create_task(self._verbs.read_slice(pubend, epoch, first, last, where))
                yield found
        finally:
            asking.cancel()

    async def verify(self) -> dict[str, Any]:
        """Let the brokers of its pubends read all that they keep and check it."""
        return await self._verbs.command("verify", self.name)


def _publication(stream: str, key: Any, publication_id: Any) -> StreamPublicationOptions:
    """What one publication asks for; raises InvalidOption."""
    if type(key) is not str or type(publication_id) is not str:
        service_options({"key": key, "publication_id": publication_id}, publication_options())
    return StreamPublicationOptions(stream=stream, key=key, publication_id=publication_id)


def _checked_name(name: object) -> str:
    """The name, if it can be one of a stream."""
    if not isinstance(name, str):
        raise InvalidOption("stream", f"is {name!r}; a name is a text, such as 'orders'")
    problem = name_problem(name, "a stream", STREAM_NAME_BYTES_MAX)
    if problem:
        raise InvalidOption("stream", problem)
    return name


def _checked_positions(positions: Iterable[Position] | None, stream: str) -> tuple[Position, ...]:
    try:
        found = msgspec.convert([list(position) for position in positions or ()], list[Position])
    except (TypeError, msgspec.ValidationError):
        raise InvalidOption("positions", "are none; give what `positions()` of a subscription returned") from None
    check_positions(found, stream)
    return tuple(found)


def _start_text(start: object) -> str:
    """A start in words; raises InvalidOption."""
    match start:
        case bool():
            raise InvalidOption("start", f"is {start}; say earliest, latest, a tick, a time, or how long ago")
        case datetime():
            words = start.astimezone(UTC).isoformat()
        case timedelta():
            words = f"{start.total_seconds():.6f}s"
        case _:
            words = str(start)
    start_on_wire(words)  # a mistake is said here, not by the broker
    return words

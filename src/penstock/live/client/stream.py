"""A stream as an application holds it: publish and know that it is on disk, read under a durable name, look after it.

    orders = network.stream("orders")
    receipt = await orders.publish({"symbol": "IBM", "price": 119.5}, b"...", key="IBM")
    async with orders.subscribe("symbol = 'IBM'", durable="billing") as messages:
        async for message in messages:
            print(message.tick, message.attributes)

`publish` returns when the message is on disk at the broker of its pubend. It asks again by itself, over a new
connection too, under an id by which the stream knows that it is the same message. After `give_up_after` seconds it
raises `OutcomeUnknown`, with that id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Identity
from penstock.errors import InvalidOption
from penstock.live.client.stream_subscription import StreamSubscription
from penstock.live.client.stream_verbs import StreamVerbs
from penstock.services import options as service_options
from penstock.streams.packets import (
    DURABLE_NAME_BYTES_MAX,
    PUBENDS_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    Position,
    name_problem,
    stream_of,
)
from penstock.streams.start_times import start_on_wire

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
        self.name = checked_name("stream", name, STREAM_NAME_BYTES_MAX)
        self._verbs = verbs

    async def publish(
        self, attributes: Attributes, body: bytes = b"", *, key: str = "", publication_id: str | None = None
    ) -> Receipt:
        """Store a message; returns when it is on disk.

        `key` chooses the pubend: messages of one key come in the order in which they were stored. Without it, all
        messages of this client have the same pubend. A `publication_id` of your own makes it safe to publish the same
        message again, from another process too, for as long as the stream knows the id (`ids_window`): it is stored
        once, and the receipt is the first one's. Another message under that id is refused.

        Without a connection it waits for one. Raises InvalidMessage, UnknownStream, StreamRefused (nothing was stored)
        or OutcomeUnknown.
        """
        return (await self._publish(attributes, body, key, publication_id))[0]

    async def _publish(
        self, attributes: Attributes, body: bytes, key: str, publication_id: str | None
    ) -> tuple[Receipt, Identity]:
        options = {"stream": self.name, "key": key, "publication_id": publication_id or ""}
        place = await self._verbs.publish(attributes, body, options)
        identity: Identity = place.pop("identity")
        return Receipt(**place), identity

    def subscribe(
        self,
        where: str = "TRUE",
        *,
        durable: str,
        start: Start = "latest",
        ack: Literal["auto", "manual"] = "auto",
        takeover: bool = False,
        positions: Iterable[Position] | None = None,
    ) -> StreamSubscription:
        """Read what matches, exactly once and in order, under a durable name; open it with `async with`, then iterate.

        The stream keeps the name and its position, so whoever subscribes under it again, anywhere in the network, goes
        on behind the last message that was acknowledged. `ack="auto"`: whoever asks for the next message is done with
        the one before. `ack="manual"`: call `ack(message)`. If you keep the position yourself (`positions()`), give it
        as `positions`, and it counts instead of the stream's.

        `start` counts for a new name: "earliest", "latest", a tick, a time, or how long ago ("10m", a timedelta).
        A name has one reader at a time: a second one is refused, or takes its place with `takeover=True`.
        """
        parse_predicate(where)
        checked_name("durable", durable, DURABLE_NAME_BYTES_MAX)
        if ack not in ("auto", "manual"):
            raise InvalidOption("ack", f"is {ack!r}; choose 'auto' or 'manual'")
        presented = self._checked_positions(positions)
        asked: dict[str, Any] = {"stream": self.name, "durable": durable, "start_at": _start_text(start)}
        options = service_options({**asked, "takeover": takeover, "ack": ack})
        return StreamSubscription(self._verbs, where, options, presented)

    async def info(self) -> dict[str, Any]:
        """What the stream's pubends say of it: what they keep, and their durable names with their lag."""
        return await self._verbs.command("info", self.name)

    async def trim(self, *, before: Start) -> dict[str, Any]:
        """Forget all messages before this tick or time, read or not. Readers that are behind get a gap notice."""
        return await self._verbs.command("trim", self.name, before=_start_text(before))

    async def remove(self, *, durable: str | None = None) -> dict[str, Any]:
        """Delete the stream with all that it keeps; or only this durable name."""
        if durable is not None:
            checked_name("durable", durable, DURABLE_NAME_BYTES_MAX)
            return await self._verbs.command("rm", self.name, durable=durable)
        return await self._verbs.command("rm", self.name)

    async def verify(self) -> dict[str, Any]:
        """Let the brokers of its pubends read all that they keep and check it."""
        return await self._verbs.command("verify", self.name)

    def _checked_positions(self, positions: Iterable[Position] | None) -> tuple[Position, ...]:
        found = []
        for position in positions or ():
            try:
                pubend, epoch, tick = position
                good = all(type(number) is int and 0 <= number <= TICK_MAX for number in (epoch, tick))
            except (TypeError, ValueError):
                pubend, epoch, tick, good = "", 0, 0, False
            if not good or not isinstance(pubend, str):
                raise InvalidOption("positions", "is no position; give what `positions()` of a subscription returned")
            if stream_of(pubend) != self.name:
                raise InvalidOption("positions", f"has a position in '{pubend}', which is no part of '{self.name}'")
            found.append((pubend, epoch, tick))
        if len(found) > PUBENDS_MAX or len({pubend for pubend, _, _ in found}) < len(found):
            raise InvalidOption("positions", "has several positions in one pubend, or too many")
        return tuple(found)


def checked_name(option: str, name: object, bytes_max: int) -> str:
    """The name, if it can be one; raises InvalidOption."""
    if not isinstance(name, str):
        raise InvalidOption(option, f"is {name!r}; a name is a text")
    problem = name_problem(name, f"the name of a {option}" if option == "stream" else "a durable name", bytes_max)
    if problem:
        raise InvalidOption(option, problem if len(problem) < 300 else f"{problem[:300]}...")
    return name


def _start_text(start: object) -> str:
    """A start in words; raises InvalidOption."""
    match start:
        case bool():
            raise InvalidOption("start", f"is {start}; it is a text, a tick, a time, or how long ago")
        case datetime():
            words = start.astimezone(UTC).isoformat()
        case timedelta():
            words = f"{start.total_seconds():.6f}s"
        case _:
            words = str(start)
    start_on_wire(words)  # a mistake is said here, not by the broker
    return words

"""A member of a shared name, as an application holds it: messages that nobody else has, each with its own end.

Like any durable subscription (`stream_subscription`), but messages are acknowledged one by one. With `ack="auto"`
whoever asks for the next message (or batch) is done with those before. With `"manual"`, `ack(message)` says that this
one is done with and `reject(message)` that it shall be tried again, by somebody else if there is anybody. What is
neither, within `ack_within` seconds after the application took it, goes to another member. Leaving the block gives back
what was not taken at once; it does not count as an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from penstock.errors import InvalidOption, PenstockError, StreamError, StreamRefused
from penstock.live.client.stream_subscription import CLOSE_WITHIN, Item, StreamSubscription
from penstock.live.client.stream_verbs import StreamVerbs
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Handout, Position, ShareVerdict

UNSETTLED_MAX = 10_000  # messages that the application has taken and said nothing of; the oldest are forgotten here

Place = tuple[str, Handout]  # the pubend


class SharedSubscription(StreamSubscription):
    """Messages of a shared name. Made by `Stream.subscribe(..., share=True)`."""

    def __init__(self, verbs: StreamVerbs, where: str, options: Any) -> None:
        super().__init__(verbs, where, options, ())
        self._unsettled: dict[Place, None] = {}
        self._asked_after: list[Place] = []  # handed to the application, which has not asked for another since
        self._done_places: list[Place] = []  # done with, and the machine does not know

    async def close(self) -> None:
        """Read no more: what was not settled goes to others, at once."""
        if self._closed:
            return
        done, self._done_places = self._done_places, []
        if done and self._opened:
            with suppress(TimeoutError, PenstockError):
                async with asyncio.timeout(CLOSE_WITHIN):
                    await self._verbs.settle(self.number, done, ShareVerdict.DONE)
        await super().close()

    # Acknowledging.

    async def ack(self, message: StreamMessage | None = None) -> None:
        """Done with this message, and no other; without one, with all that were taken and not settled.

        Returns when that is on disk, and asks again until it is. It may come late: if somebody else got the message
        meanwhile, it is done with for both. Raises InvalidOption for a message that did not come from here, or
        ReaderEnded.
        """
        await self._settle(list(self._unsettled) if message is None else [self._place(message)], ShareVerdict.DONE)

    async def reject(self, message: StreamMessage) -> None:
        """This message cannot be processed, here and now: it is tried again, or goes where failed ones go.

        Returns when that is on disk. Raises InvalidOption for a message that did not come from here, or ReaderEnded.
        """
        await self._settle([self._place(message)], ShareVerdict.REJECTED)

    async def _settle(self, places: Sequence[Place], verdict: ShareVerdict) -> None:
        if self._error is not None:
            raise self._error
        if self._closed or not self._opened:
            raise StreamError("the subscription is not open, so nothing can be acknowledged")
        self._tell()
        for place in places:
            self._settled(place)
        try:
            await self._verbs.settle(self.number, places, verdict)
        except StreamRefused as refused:
            raise self._error or refused from None  # it has ended meanwhile

    def _place(self, message: StreamMessage) -> Place:
        """Of a message of ours; raises InvalidOption."""
        if not isinstance(message, StreamMessage):
            raise InvalidOption("message", "is none of a stream; acknowledge what the subscription gave you")
        place = _place(message)
        if message.stream != self.stream or place not in self._unsettled:
            at = f"at tick {message.tick} of {message.pubend}, attempt {message.attempt},"
            raise InvalidOption("message", f"{at} was not taken from here, or is settled")
        return place

    def _forget(self, message: StreamMessage) -> None:
        """Nothing will be said of it, not even by asking for the next."""
        self._settled(_place(message))

    def _settled(self, place: Place) -> None:
        self._unsettled.pop(place, None)
        if place in self._asked_after:
            self._asked_after.remove(place)

    def _hand(self, messages: Sequence[StreamMessage]) -> None:
        for message in messages:
            place = _place(message)
            self._unsettled[place] = None
            self._asked_after.append(place)
        while len(self._unsettled) > UNSETTLED_MAX:
            del self._unsettled[next(iter(self._unsettled))]
        if not self._auto:
            self._asked_after.clear()

    def _ask(self) -> None:
        """Somebody asks for more: whatever they have is done with."""
        if self._asked_after:
            done, self._asked_after = self._asked_after, []
            for place in done:
                self._unsettled.pop(place, None)
            self._done_places += done
            self._tell_soon()

    def _tell(self) -> None:
        super()._tell()
        done, self._done_places = self._done_places, []
        if done and not self._closed:
            self._verbs.settle_soon(self.number, done, ShareVerdict.DONE)

    # How it stands.

    def positions(self) -> tuple[Position, ...]:
        """A member of a shared name has none."""
        return ()

    def _positions_before(self, waiting: Iterable[Item]) -> tuple[Position, ...]:
        return ()


def _place(message: StreamMessage) -> Place:
    return message.pubend, (message.tick, message.attempt)

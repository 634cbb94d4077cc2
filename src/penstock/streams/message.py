"""A message as it comes out of a stream: the message that was published, and its place in the stream."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.content.message import Message
from penstock.streams.log_codec import decode_slice
from penstock.streams.packets import Position, Tick, stream_of


class StreamMessage(Message, frozen=True, array_like=True, gc=False):
    """Identity, attributes and body are as they were published; the place says where its pubend stored it."""

    pubend: str
    epoch: int
    tick: Tick
    attempt: int = 1  # under a shared name: how often it was handed out, this time included

    @property
    def stream(self) -> str:
        """The stream that the pubend is part of."""
        return stream_of(self.pubend)

    @property
    def position(self) -> Position:
        """Whoever keeps this is done with the message, and with all before it at the same pubend."""
        return (self.pubend, self.epoch, self.tick)


def placed(message: Message, pubend: str, epoch: int, tick: Tick, attempt: int = 1) -> StreamMessage:
    """The message with its place."""
    content = (message.identity, message.attributes, message.body, message.size_bytes)
    return StreamMessage(*content, pubend, epoch, tick, attempt)


class StreamSlice(Struct, frozen=True):
    """A part of a pubend's log: all that matches up to and with the tick `upto`, behind the slice before it.

    Nothing up to `gone` is kept: if the first tick that was asked for is not above it, messages were there that nobody
    can read any more. `ticks` and `entries` are the messages as the log has them, for whoever reads many
    (`streams.log_codec`); `messages()` makes messages of them.
    """

    pubend: str
    epoch: int
    upto: Tick
    gone: Tick
    ticks: bytes
    entries: bytes

    def messages(self) -> Iterator[StreamMessage]:
        """In the order of ticks."""
        for tick, entry in decode_slice(self.ticks, self.entries):
            yield placed(entry.message, self.pubend, self.epoch, tick)

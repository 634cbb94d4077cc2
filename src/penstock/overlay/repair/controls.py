"""What the two ends of a link tell each other about its datagrams, and the form it has on the wire.

    LinkNack   to the sender: these numbers have not come; send them again
    LinkTail   to the receiver: this was the last number so far

Both travel as datagrams without a number of their own, unrepaired. On the wire each is a MessagePack array: a letter,
then its fields; the ranges of a LinkNack as one flat list of gaps and lengths, so that most take one byte.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.errors import InvalidPacket

RANGES_MAX = 64  # of one LinkNack
NUMBER_MAX = (1 << 44) - 1
CONTROL_BYTES_MAX = 1_200

Range = tuple[int, int]  # the first and the last number


class LinkNack(Struct, frozen=True, array_like=True, tag="n", forbid_unknown_fields=True):
    """These have not come. Of each range: how many numbers lie before it, since the last one, and its length less 1."""

    steps: tuple[int, ...]
    congested: bool = False  # what was lost lately was lost while datagrams took long

    @property
    def ranges(self) -> list[Range]:
        """The numbers that are asked for, increasing."""
        found, after = [], 0
        for skipped, longer in zip(self.steps[::2], self.steps[1::2], strict=True):
            first = after + skipped
            found.append((first, first + longer))
            after = first + longer + 1
        return found


class LinkTail(Struct, frozen=True, array_like=True, tag="t", forbid_unknown_fields=True):
    """The last number so far."""

    last: int


LinkControl = LinkNack | LinkTail

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[LinkControl] = msgspec.msgpack.Decoder(LinkControl)


def nack_of(ranges: list[Range], congested: bool) -> LinkNack:
    """A LinkNack for these ranges, increasing, at most RANGES_MAX."""
    steps, after = [], 0
    for first, last in ranges:
        steps += [first - after, last - first]
        after = last + 1
    return LinkNack(tuple(steps), congested)


def encode_control(control: LinkControl) -> bytes:
    """Its form on the wire."""
    return _encoder.encode(control)


def decode_control(data: bytes | memoryview) -> LinkControl:
    """What a peer told us; raises InvalidPacket."""
    if len(data) > CONTROL_BYTES_MAX:
        raise InvalidPacket(f"{len(data)} bytes of link control; the limit is {CONTROL_BYTES_MAX}")
    try:
        control: LinkControl = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPacket(f"link control that cannot be read: {error}") from None
    if isinstance(control, LinkTail):
        numbers: tuple[int, ...] = (control.last,)
    else:
        numbers = control.steps
        if not numbers or len(numbers) % 2 or len(numbers) > 2 * RANGES_MAX:
            raise InvalidPacket(f"a LinkNack with {len(numbers)} steps")
    if min(numbers) < 0 or sum(numbers) > NUMBER_MAX:
        raise InvalidPacket("a number of a datagram is out of range")
    return control

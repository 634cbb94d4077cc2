"""Packets as bytes, and bytes as packets.

The format is MessagePack: an array that begins with the packet's kind, then its fields in order. The kinds are those of
the services in use. Types are checked while decoding; what types cannot say (limits, order, finite numbers) each kind
checks itself (`Packet.checked`), and a packet that fails is refused whole with `InvalidPacket`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import msgspec

from penstock.content.message import DEFAULT_LIMITS, MessageLimits
from penstock.errors import InvalidPacket
from penstock.kernel.packet import Packet

PACKET_BYTES_MAX = (1 << 20) + (1 << 19)  # the largest message, and room for the rest
BATCH_BYTES_MAX = PACKET_BYTES_MAX + (1 << 18)  # the largest packet, after a batch that was nearly full

_encoder = msgspec.msgpack.Encoder()


def encode(packet: Packet) -> bytes:
    """The packet as bytes."""
    return _encoder.encode(packet)


def encode_batch(packets: Sequence[Packet]) -> bytes:
    """Several packets as one array."""
    return _encoder.encode(packets)


class Codec:
    """Reads packets of these kinds."""

    def __init__(self, kinds: Sequence[type[Packet]]) -> None:
        any_packet: Any = Union[tuple(kinds)]  # noqa: UP007  # made at run time, where `|` has no form for a list
        self.kinds = tuple(kinds)
        self._decoder = msgspec.msgpack.Decoder(any_packet)
        self._batch_decoder = msgspec.msgpack.Decoder(list[any_packet])

    def decode(self, data: bytes, *, limits: MessageLimits = DEFAULT_LIMITS) -> Packet:
        """The packet in these bytes, checked; raises InvalidPacket."""
        if len(data) > PACKET_BYTES_MAX:
            raise InvalidPacket(f"{len(data)} bytes; the limit PACKET_BYTES_MAX is {PACKET_BYTES_MAX}")
        try:
            packet: Packet = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPacket(f"no packet of this protocol: {error}") from None
        return packet.checked(limits)

    def decode_batch(self, data: bytes | memoryview, *, limits: MessageLimits = DEFAULT_LIMITS) -> list[Packet]:
        """All packets of an array, each checked; raises InvalidPacket if one of them is bad."""
        if len(data) > BATCH_BYTES_MAX:
            raise InvalidPacket(f"{len(data)} bytes; the limit BATCH_BYTES_MAX is {BATCH_BYTES_MAX}")
        try:
            packets: list[Packet] = self._batch_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPacket(f"no packets of this protocol: {error}") from None
        return [packet.checked(limits) for packet in packets]

"""Packets as bytes, and bytes as packets.

The format is MessagePack: an array that begins with the packet's kind, then its fields in order. Types are checked
while decoding; what types cannot say (limits, order, finite numbers) is checked here, and a packet that fails is
refused whole with `InvalidPacket`. Nothing a peer sends is believed: sizes are counted again, and a destination set
that is not strictly increasing is refused, because a broker named twice would get the message twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from penstock.content.message import DEFAULT_LIMITS, INTEGER_MAX, Message, MessageLimits, make_message, plain_size
from penstock.errors import InvalidMessage, InvalidPacket
from penstock.kernel.machine import Packet
from penstock.overlay.packets import AnyPacket, Delivery, Interest, LinkState, Publication, Publish, Summary

PACKET_BYTES_MAX = (1 << 20) + (1 << 19)  # the largest message, and room for the rest
BATCH_BYTES_MAX = PACKET_BYTES_MAX + (1 << 18)  # the largest packet, after a batch that was nearly full
BROKER_ID_MAX = 65_535
DESTINATIONS_MAX = 4096  # as many as there may be brokers (RoutingConfig.brokers_max)
HOPS_MAX = 255
CLIENT_NAME_BYTES_MAX = 128

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyPacket)
_batch_decoder = msgspec.msgpack.Decoder(list[AnyPacket])


def encode(packet: Packet) -> bytes:
    """The packet as bytes."""
    return _encoder.encode(packet)


def decode(data: bytes, *, limits: MessageLimits = DEFAULT_LIMITS) -> Packet:
    """The packet in these bytes, checked; raises InvalidPacket."""
    if len(data) > PACKET_BYTES_MAX:
        raise InvalidPacket(f"{len(data)} bytes; the limit PACKET_BYTES_MAX is {PACKET_BYTES_MAX}")
    try:
        packet: Packet = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPacket(f"no packet of this protocol: {error}") from None
    return _checked(packet, limits)


def encode_batch(packets: Sequence[Packet]) -> bytes:
    """Several packets as one array."""
    return _encoder.encode(packets)


def decode_batch(data: bytes | memoryview, *, limits: MessageLimits = DEFAULT_LIMITS) -> list[Packet]:
    """All packets of an array, each checked; raises InvalidPacket if one of them is bad."""
    if len(data) > BATCH_BYTES_MAX:
        raise InvalidPacket(f"{len(data)} bytes; the limit BATCH_BYTES_MAX is {BATCH_BYTES_MAX}")
    try:
        packets = _batch_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPacket(f"no packets of this protocol: {error}") from None
    return [_checked(packet, limits) for packet in packets]


def _checked(packet: Packet, limits: MessageLimits) -> Packet:
    """The packet itself, or one with its message measured anew. Those that travel often come first."""
    if type(packet) is Delivery:
        subscriptions = packet.subscriptions
        if len(subscriptions) > 1:
            _require(_increasing(subscriptions), "subscriptions must increase")
        if subscriptions and subscriptions[0] < 0:
            raise InvalidPacket("a subscription's number is negative")
        message = _measured(packet.message, limits)
        return packet if message is packet.message else Delivery(subscriptions, message)
    if type(packet) is Publish:
        message = _measured(packet.message, limits)
        return packet if message is packet.message else Publish(message)
    if type(packet) is Publication:
        hops_left = packet.hops_left
        _check_destinations(packet.destinations)
        if not 0 <= hops_left <= HOPS_MAX:
            raise InvalidPacket(f"hops_left is {hops_left}; the limit HOPS_MAX is {HOPS_MAX}")
        message = _measured(packet.message, limits)
        return packet if message is packet.message else Publication(packet.destinations, hops_left, message)
    _check_control(packet)
    return packet


def _check_control(packet: Packet) -> None:
    _check_integers(packet)
    match packet:
        case LinkState(neighbours=neighbours):
            _require(_increasing(tuple(broker for broker, _ in neighbours)), "neighbours must increase")
            _require(all(0 <= b <= BROKER_ID_MAX and 1 <= cost <= 65_535 for b, cost in neighbours), "bad neighbour")
        case Interest(base=base, version=version, removed=removed, part=part, parts=parts):
            _require(0 <= base < version, f"interest from version {base} to {version}")
            _require(0 <= part < parts <= 4096, f"part {part} of {parts}")
            _require(base == 0 or parts == 1, "a change has one part")
            _require(base > 0 or not removed, "a snapshot removes nothing")
        case Summary(known):
            _require(_increasing(tuple(entry[0] for entry in known)), "origins must increase")
            _require(all(entry[0] <= BROKER_ID_MAX and min(entry) >= 0 for entry in known), "bad entry in a summary")
        case _:
            pass


def _check_integers(packet: Packet) -> None:
    """Every integer field is a count or a number of something: never negative, never beyond 64 bits."""
    for name in packet.__struct_fields__:
        value = getattr(packet, name)
        if isinstance(value, int) and not 0 <= value <= 2**64 - 1:
            raise InvalidPacket(f"{type(packet).__name__}.{name} is {value}")
        if name in ("broker", "origin"):
            _require(value <= BROKER_ID_MAX, f"broker id {value}; the limit BROKER_ID_MAX is {BROKER_ID_MAX}")
        if name == "client":
            _require(0 < len(value.encode()) <= CLIENT_NAME_BYTES_MAX, f"client name of {len(value)} characters")


def _check_destinations(destinations: tuple[int, ...]) -> None:
    if not 0 < len(destinations) <= DESTINATIONS_MAX:
        raise InvalidPacket(f"{len(destinations)} destinations")
    if len(destinations) > 1:
        _require(_increasing(destinations), "destinations must increase")
    _require(destinations[0] >= 0 and destinations[-1] <= BROKER_ID_MAX, "a destination is no broker id")


def _measured(message: Message, limits: MessageLimits) -> Message:
    """The message, checked; the same object if the peer has measured it as we do, otherwise with our size."""
    identity = message.identity
    if not (0 <= identity.count <= INTEGER_MAX and 0 <= identity.incarnation <= INTEGER_MAX):
        raise InvalidPacket("incarnation or count is no count")
    if not 0 < len(identity.publisher) <= CLIENT_NAME_BYTES_MAX or (
        not identity.publisher.isascii() and len(identity.publisher.encode()) > CLIENT_NAME_BYTES_MAX
    ):
        raise InvalidPacket("publisher name is empty or too long")
    if plain_size(identity, message.attributes, message.body, limits, True) == message.size_bytes != 0:
        return message
    try:
        return make_message(identity, message.attributes, message.body, limits=limits, reserved=True)
    except InvalidMessage as error:
        raise InvalidPacket(str(error)) from None


def _increasing(numbers: tuple[int, ...]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise InvalidPacket(problem)

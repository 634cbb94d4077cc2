"""What crosses a TCP connection: frames, each a length of four bytes and a payload. Pure: bytes in, frames out.

    handshake   the first frame of either side: "PENSTOCK", two bytes of version, then who sends it (MessagePack).
                The version stands before anything that may ever change, so another version can always be recognised.
    batch       a MessagePack array of packets (overlay.codec). An empty one is a keepalive and nothing else.
    acknowledgement
                a MessagePack integer: how many packets its sender has had on this connection in all. On a datagram
                link a second one may follow: up to which number it has had datagrams.
    close       a MessagePack string: the last frame, and the reason. It is empty when nothing is wrong. It may also be
                the first: a peer that is refused before the handshake was answered still gets the reason.

Nothing a peer sends is trusted. Before the handshake a frame may be no longer than a handshake; afterwards no longer
than the largest batch. So a connection never makes us hold more than one frame and one chunk of the socket. Whatever
is wrong is an `InvalidPacket` that says what, and the decoder is of no use afterwards: the connection must be closed.

The handshake has room for credentials: a client's are a secret that it makes up when it starts, by which a broker knows
it again when it connects a second time under its name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.content.message import DEFAULT_LIMITS, MessageLimits
from penstock.errors import InvalidPacket
from penstock.kernel.packet import CLIENT_NAME_BYTES_MAX, Packet
from penstock.overlay.codec import BATCH_BYTES_MAX, Codec, encode_batch
from penstock.overlay.packets import BROKER_ID_MAX
from penstock.services import UNSAID, codec

MAGIC = b"PENSTOCK"
VERSION = 4
HEAD_BYTES = 4
CREDENTIALS_BYTES_MAX = 4096
SERVICES_BYTES_MAX = 4096  # for the names of services
SERVICES_MAX = 256
HANDSHAKE_BYTES_MAX = CREDENTIALS_BYTES_MAX + SERVICES_BYTES_MAX + 512
CLOSE_BYTES_MAX = 1024
KEEPALIVE = b"\x00\x00\x00\x01\x90"
HANDSHAKE_UNREADABLE = "a handshake that cannot be read"

_UINT64 = 0xCF  # MessagePack's mark of an integer of eight bytes
_TWO_COUNTS = struct.Struct(">BQBQ")
_INTEGER_MARKS = frozenset([*range(0x80), 0xCC, 0xCD, 0xCE, 0xCF])  # first bytes of a MessagePack integer, not negative
_STRING_MARKS = frozenset([*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])  # first bytes of a MessagePack string


class Handshake(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who sends this. Three fields are for datagram links: where datagrams go, the token they must carry, and whether
    lost ones are repaired, if both ends want it. The last one names the sender's services: it cannot read packets of
    any other. Peers that know nothing of it, or of repair either, leave these fields out.
    """

    role: Literal["broker", "client"]
    name: str
    broker: int = 0  # the broker's id; 0 for clients
    incarnation: int = 0
    credentials: bytes = b""
    datagram_port: int = 0
    datagram_token: int = 0
    repairs: bool = False
    services: tuple[str, ...] = ()  # empty: it does not say, and has those of `services.UNSAID`


class Close(Struct, frozen=True):
    """The peer closes the connection; `problem` is empty if nothing is wrong."""

    problem: str


class Acknowledgement(Struct, frozen=True):
    """So many packets have come and have been handled: since the connection began, in all. The same for datagrams."""

    packets: int
    datagrams: int = 0


def services_of(handshake: Handshake) -> frozenset[str]:
    """The names of the services that this peer has."""
    return frozenset(handshake.services) or UNSAID


Batch = list[Packet]
Frame = Handshake | Batch | Acknowledgement | Close

_encoder = msgspec.msgpack.Encoder()
_handshake_decoder = msgspec.msgpack.Decoder(Handshake)
_count_decoder = msgspec.msgpack.Decoder(int)
_text_decoder = msgspec.msgpack.Decoder(str)


def framed(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return len(payload).to_bytes(HEAD_BYTES, "big") + payload


def encode_handshake(handshake: Handshake) -> bytes:
    """The frame that a connection begins with."""
    fields = msgspec.structs.astuple(handshake)
    left_out = 0 if handshake.services else 1 if handshake.repairs else 2
    return framed(MAGIC + VERSION.to_bytes(2, "big") + _encoder.encode(fields[: len(fields) - left_out]))


def encode_frame(packets: Sequence[Packet]) -> bytes:
    """The frame of a batch; the caller keeps it within BATCH_BYTES_MAX."""
    return framed(encode_batch(packets))


def encode_acknowledgement(packets: int, datagrams: int = 0) -> bytes:
    """The frame that says how many packets have come, and datagrams if any have."""
    return framed(_encoder.encode(packets) if not datagrams else _TWO_COUNTS.pack(_UINT64, packets, _UINT64, datagrams))


def encode_close(problem: str = "") -> bytes:
    """The frame that a connection ends with."""
    text = problem.encode("utf-8", "replace")[: CLOSE_BYTES_MAX - 8].decode("utf-8", "ignore")
    return framed(_encoder.encode(text))


class FrameDecoder:
    """Makes frames of whatever chunks the socket hands over."""

    def __init__(
        self,
        *,
        limits: MessageLimits = DEFAULT_LIMITS,
        frame_bytes_max: int = BATCH_BYTES_MAX,
        reads: Codec | None = None,  # None: the packets of all services
    ) -> None:
        self._limits = limits
        self._codec = reads or codec()
        self._frame_bytes_max = frame_bytes_max
        self._waiting = bytearray()
        self._handshaken = False
        self._ended = False

    def waiting_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return len(self._waiting)

    def feed(self, chunk: bytes) -> list[Frame]:
        """All frames that are complete now; raises InvalidPacket, and then the connection is over."""
        data: bytes | bytearray = chunk
        if self._waiting:
            self._waiting += chunk
            if len(self._waiting) < HEAD_BYTES or len(self._waiting) < HEAD_BYTES + self._length(self._waiting, 0):
                return []
            data, self._waiting = self._waiting, bytearray()
        frames: list[Frame] = []
        view = memoryview(data)
        start, end = 0, len(data)
        while end - start >= HEAD_BYTES and not self._ended:
            stop = start + HEAD_BYTES + self._length(data, start)
            if stop > end:
                break
            frames.append(self._frame(view[start + HEAD_BYTES : stop]))
            start = stop
        if start < end and not self._ended:
            self._waiting += view[start:]
        return frames

    def _length(self, data: bytes | bytearray, start: int) -> int:
        length = int.from_bytes(data[start : start + HEAD_BYTES], "big")
        limit = self._frame_bytes_max if self._handshaken else HANDSHAKE_BYTES_MAX
        if length > limit:
            what = "a frame" if self._handshaken else "a handshake"
            raise InvalidPacket(f"{what} of {length} bytes; the limit is {limit}")
        return length

    def _frame(self, payload: memoryview) -> Frame:
        if payload and payload[0] in _STRING_MARKS:
            self._ended = True
            return _decode_close(payload)
        if not self._handshaken:
            self._handshaken = True
            return decode_handshake(bytes(payload))
        if payload and payload[0] in _INTEGER_MARKS:
            return _decode_acknowledgement(payload)
        return self._codec.decode_batch(payload, limits=self._limits)


def decode_handshake(payload: bytes) -> Handshake:
    """Who is at the other end; raises InvalidPacket for another protocol, another version, or nonsense."""
    start = len(MAGIC) + 2
    if payload[: len(MAGIC)] != MAGIC or len(payload) < start:
        raise InvalidPacket("this is a Penstock broker, and the first frame was no handshake of Penstock's")
    version = int.from_bytes(payload[len(MAGIC) : start], "big")
    if version != VERSION:
        raise InvalidPacket(f"protocol version {version}; this side speaks version {VERSION}: update the older side")
    try:
        handshake = _handshake_decoder.decode(payload[start:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPacket(f"{HANDSHAKE_UNREADABLE}: {error}") from None
    name = handshake.name
    if not name.isprintable() or not 0 < len(name.encode()) <= CLIENT_NAME_BYTES_MAX:
        raise InvalidPacket(
            f"a name has between 1 and {CLIENT_NAME_BYTES_MAX} bytes, of characters that can be printed"
        )
    numbers = (handshake.broker, handshake.datagram_port, handshake.incarnation, handshake.datagram_token)
    limits = (BROKER_ID_MAX, 65_535, 2**63 - 1, 2**64 - 1)
    if any(not 0 <= number <= limit for number, limit in zip(numbers, limits, strict=True)):
        raise InvalidPacket("a number in the handshake is out of range")
    if len(handshake.services) > SERVICES_MAX:
        raise InvalidPacket(f"a handshake that names {len(handshake.services)} services; the limit is {SERVICES_MAX}")
    if len(handshake.credentials) > CREDENTIALS_BYTES_MAX:
        raise InvalidPacket(f"credentials of {len(handshake.credentials)} bytes; the limit is {CREDENTIALS_BYTES_MAX}")
    return handshake


def _decode_acknowledgement(payload: memoryview) -> Acknowledgement:
    try:
        if len(payload) == _TWO_COUNTS.size:
            mark, packets, second_mark, datagrams = _TWO_COUNTS.unpack(payload)
            if mark == second_mark == _UINT64:
                return Acknowledgement(packets, datagrams)
        return Acknowledgement(_count_decoder.decode(payload))
    except msgspec.DecodeError as error:
        raise InvalidPacket(f"an acknowledgement that cannot be read: {error}") from None


def _decode_close(payload: memoryview) -> Close:
    if len(payload) > CLOSE_BYTES_MAX:
        raise InvalidPacket(f"a close of {len(payload)} bytes; the limit is {CLOSE_BYTES_MAX}")
    try:
        text = _text_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidPacket(f"a close that cannot be read: {error}") from None
    return Close("".join(letter if letter.isprintable() else " " for letter in text))

"""UDP for all datagram links of a broker: one socket, on the port number at which the broker listens.

    datagram   8 bytes: the token that the receiver gave out for this link in its handshake
               8 bytes: the number of the datagram, counted from 0 for each connection
               a MessagePack array of packets, as in a frame

On links that repair (overlay.repair) the number has 44 bits. Above it stand 18 bits of the time at which the datagram
left, a bit for one that is sent again, and a bit for one without a number, with link control instead of packets.

A datagram that does not begin with a token we gave out is counted and ignored: whoever cannot read our handshakes
cannot put packets on our links. A bad one from a neighbour is refused with a record; there is no connection to close
for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from penstock.errors import InvalidPacket
from penstock.kernel.packet import Packet
from penstock.kernel.trace import InputRefused, Record
from penstock.overlay.repair.controls import NUMBER_MAX, LinkControl, decode_control
from penstock.overlay.repair.queue_delay import STAMP_BITS, STAMP_MASK
from penstock.services import codec, datagram_kinds

HEAD_BYTES = 16
DATAGRAM_BYTES_MAX = 60_000  # what a best-effort message must fit (architecture: Links); UDP itself ends at 65,507
SOCKET_BYTES = 4 << 20  # asked of the kernel, which may give less

_NUMBER_BITS = NUMBER_MAX.bit_length()
REPEATED_BIT = 1 << (_NUMBER_BITS + STAMP_BITS)
CONTROL_BIT = REPEATED_BIT << 1


class DatagramReceiver(Protocol):
    """The port of one datagram link, as the endpoint knows it."""

    peer: str
    repairs: bool

    def arrived(self, number: int, packets: Sequence[Packet]) -> None: ...

    def control_arrived(self, control: LinkControl) -> None: ...


class DatagramEndpoint(asyncio.DatagramProtocol):
    """The broker's UDP socket."""

    def __init__(self, note: Callable[[Record], None]) -> None:
        self.ports: dict[int, DatagramReceiver] = {}  # by the token that the peer must use
        self.strangers = 0  # datagrams that began with no token of ours
        self._note = note
        self._codec, self._kinds = codec(), datagram_kinds()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        port = self.ports.get(int.from_bytes(data[:8], "big"))
        if port is None or len(data) <= HEAD_BYTES:
            self.strangers += 1
            return
        number = int.from_bytes(data[8:HEAD_BYTES], "big")
        payload = memoryview(data)[HEAD_BYTES:]
        try:
            if number & CONTROL_BIT and port.repairs:
                port.control_arrived(decode_control(payload))
                return
            packets = self._codec.decode_batch(payload)
            if not self._kinds.issuperset(map(type, packets)):
                names = ", ".join(sorted(kind.__name__ for kind in self._kinds))
                raise InvalidPacket(f"a datagram carries packets of kind {names} and nothing else")
        except InvalidPacket as error:
            self._note(InputRefused(port.peer, str(error)))
            return
        port.arrived(number, packets)

    def error_received(self, exc: Exception) -> None:
        """The kernel reports that nobody listens at a neighbour's port; its connection will report the same."""

    def send(self, address: tuple[str, int], token: int, number: int, payload: bytes) -> int:
        """Put one datagram on the wire; returns its size."""
        data = token.to_bytes(8, "big") + number.to_bytes(8, "big") + payload
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, address)
        return len(data)

    def address_of(self, connection_address: str, port: int) -> tuple[str, int]:
        """Where a neighbour takes datagrams: the host of its connection, and the port from its handshake."""
        return connection_address.rpartition(":")[0].strip("[]"), port

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def stamped(number: int, stamp: int, *, repeated: bool = False) -> int:
    """The number as it stands in the head of a datagram on a link that repairs."""
    return number | stamp << _NUMBER_BITS | (REPEATED_BIT if repeated else 0)


def unstamped(field: int) -> tuple[int, int, bool]:
    """Number, time of departure, and whether it was sent before."""
    return field & NUMBER_MAX, field >> _NUMBER_BITS & STAMP_MASK, bool(field & REPEATED_BIT)


def datagram_socket(host: str, port: int) -> socket.socket:
    """A bound UDP socket with large buffers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def join_packets(parts: Sequence[bytes]) -> bytes:
    """Encoded packets as one MessagePack array."""
    count = len(parts)
    head = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return head + b"".join(parts)

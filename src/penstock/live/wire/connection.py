"""One TCP connection: handshake, frames in and out, keepalive and liveness, close.

The protocol object knows nothing of brokers and clients. It tells its owner when the peer's handshake has come, when a
batch has come, when there is room to write again, and when the connection is lost: once, with the reason.

A peer that breaks a rule gets a close frame that says which, and is disconnected; no other connection notices. Closing
waits for the peer to take what is written, but not for ever (`CLOSE_WITHIN`): a peer that never reads is cut off.

Half-open connections are found by silence. Each side sends a keepalive (five bytes) when it has sent nothing for
`keepalive` seconds, and gives up when it has received nothing for `silence_max`. The owner calls `check_liveness` once
a second or so, one round for all connections; a timer for each of ten thousand would cost more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from penstock.errors import InvalidPacket
from penstock.kernel.packet import Packet
from penstock.live.wire.addresses import Address
from penstock.live.wire.frames import (
    KEEPALIVE,
    Frame,
    FrameDecoder,
    Handshake,
    encode_close,
    encode_handshake,
    framed,
)
from penstock.overlay.codec import encode_batch

CLOSE_WITHIN = 2.0  # seconds for the peer to take what was written before the end
TURN_BYTES = 1 << 14  # whoever sends so much at once is read again in the next turn of the loop
FRAME_PACKETS = 256  # a receiver handles one frame at a time and writes in between
FRAME_SPLIT_BYTES = 1 << 18  # a batch longer than this goes out as several frames


@dataclass(frozen=True, kw_only=True)
class ConnectionConfig:
    """Patience with peers; all our own choice."""

    handshake_within: float = 5.0
    keepalive: float = 5.0
    silence_max: float = 15.0

    def __post_init__(self) -> None:
        if not 0 < self.keepalive < self.silence_max:
            raise ValueError("a keepalive must come before silence is taken for death: keepalive < silence_max")


class Owner(Protocol):
    """Whom a connection reports to."""

    def made(self, connection: Connection) -> None: ...

    def handshake_received(self, connection: Connection, handshake: Handshake) -> None: ...

    def received(self, connection: Connection, packets: list[Packet]) -> None: ...

    def writable(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection, problem: str) -> None: ...


class Connection(asyncio.Protocol):
    """One end of a TCP connection that carries frames."""

    def __init__(
        self, owner: Owner, config: ConnectionConfig, *, handshake: Handshake | None = None, dialled: str | None = None
    ) -> None:
        self.peer: Handshake | None = None  # who is at the other end, once its handshake has come
        self.dialled = dialled  # whom we dialled; None: we accepted it
        self.violation = False  # it ended because the peer broke a rule
        self.address = ""
        self.paused = False
        self.closing = False  # nothing that comes in counts any more
        self.packets_in = self.bytes_in = self.packets_out = self.bytes_out = 0
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # the reason, when it is
        self._owner = owner
        self._config = config
        self._handshake = handshake  # ours, sent at once; whoever accepts waits for the peer's
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._held = False
        self._problem = ""
        self._received_at = self._sent_at = self._began_at = self._checked_at = self._loop.time()
        self._cut_off: asyncio.TimerHandle | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = address_text(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._owner.made(self)
        if self._handshake is not None:
            self.send_handshake(self._handshake)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._received_at = self._loop.time()
        self.bytes_in += len(data)
        try:
            for frame in self._decoder.feed(data):
                self._handle(frame)
        except InvalidPacket as error:
            self.close(str(error), violation=True)
        if len(data) >= TURN_BYTES:
            self._pause_for_a_turn()

    def eof_received(self) -> bool | None:
        self._problem = self._problem or "the peer closed the connection"
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        if self._cut_off is not None:
            self._cut_off.cancel()
        problem = self._problem or (str(exc) if exc is not None else "the connection was closed")
        if not self.closed.done():
            self.closed.set_result(problem)
        self._owner.lost(self, problem)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if not self.closing:
            self._owner.writable(self)

    # What the owner does.

    def send_handshake(self, handshake: Handshake) -> None:
        """Send who we are."""
        self._write(encode_handshake(handshake))

    def send(self, packets: Sequence[Packet]) -> int:
        """Write packets in as few frames as may be; returns their size on the wire."""
        if len(packets) <= FRAME_PACKETS:
            data = _frames(packets)
        else:
            parts = (packets[start : start + FRAME_PACKETS] for start in range(0, len(packets), FRAME_PACKETS))
            data = b"".join(map(_frames, parts))
        self.packets_out += len(packets)
        self._write(data)
        return len(data)

    def close(self, problem: str = "", *, violation: bool = False) -> None:
        """Send the reason and close; what was written before still goes out. A violation is the peer's fault."""
        if not self.closing:
            self.violation = violation
            self._write(encode_close(problem))
            self._shut(problem)

    def abort(self, problem: str) -> None:
        """Close at once; nobody is there to read a reason."""
        self._problem = self._problem or problem
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def hold(self) -> None:
        """Read nothing for now."""
        self._held = True
        if self._transport is not None and not self.closing:
            self._transport.pause_reading()

    def release(self) -> None:
        """Read again."""
        self._held = False
        if self._transport is not None and not self.closing:
            self._transport.resume_reading()

    def limit_buffer(self, high_bytes: int) -> None:
        """How much may be unsent inside the socket; we count as `paused` with a quarter of it waiting in front.

        The kernel would otherwise take megabytes for a peer that does not read. What is sent and not acknowledged does
        not count, so a long way does not make a link slow.
        """
        if self._transport is not None:
            # uvloop writes at once when a write passes the mark, and at the end of the turn otherwise: with a low mark
            # a full load goes out now, and whoever asks for room afterwards gets some.
            self._transport.set_write_buffer_limits(high=high_bytes // 4, low=high_bytes // 8)
            sock = self._transport.get_extra_info("socket")
            if sock is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, high_bytes)

    def buffered_bytes(self) -> int:
        """What waits in front of the socket."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def received_at(self) -> float:
        """When something last came in, in the loop's time."""
        return self._received_at

    def check_liveness(self, now: float) -> None:
        """Send a keepalive if it is time for one, or give up on a silent peer. `now` is the loop's time."""
        if self.closing:
            return
        config = self._config
        if (
            now - self._checked_at > config.silence_max / 2
        ):  # we were asleep ourselves: let the loop read before judging
            self._received_at = max(self._received_at, now - config.silence_max / 2)
        self._checked_at = now
        if self.peer is None and now - self._began_at > config.handshake_within:
            self.close(f"no handshake within {config.handshake_within:g} s", violation=True)
        elif now - self._received_at > config.silence_max:
            self.abort(f"silent for {config.silence_max:g} s")
        elif self.peer is not None and now - self._sent_at > config.keepalive:
            self._write(KEEPALIVE)

    def _pause_for_a_turn(self) -> None:
        """Let the others have their turn. uvloop would read a busy peer dry, megabytes, before anybody may write."""
        if self._transport is not None and not self.closing and not self._held:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self.closing and not self._held:
            self._transport.resume_reading()

    def _handle(self, frame: Frame) -> None:
        if self.closing:  # because of the frame before
            return
        if isinstance(frame, list):
            self.packets_in += len(frame)
            if frame:
                self._owner.received(self, frame)
        elif isinstance(frame, Handshake):
            self.peer = frame
            self._owner.handshake_received(self, frame)
        else:
            self._shut(frame.problem or "the peer closed the connection")

    def _shut(self, problem: str) -> None:
        self._problem = self._problem or problem
        self.closing = True
        if self._transport is not None:
            self._transport.close()
            self._cut_off = self._loop.call_later(CLOSE_WITHIN, self._transport.abort)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._sent_at = self._loop.time()
            self.bytes_out += len(data)
            self._transport.write(data)


async def dial(connection: Connection, address: Address, within: float) -> None:
    """Connect to this address; raises OSError or TimeoutError."""
    async with asyncio.timeout(within):
        await asyncio.get_running_loop().create_connection(lambda: connection, *address)


def _frames(packets: Sequence[Packet]) -> bytes:
    """One frame, or several if the batch is too long for one."""
    payload = encode_batch(packets)
    if len(payload) <= FRAME_SPLIT_BYTES or len(packets) == 1:
        return framed(payload)
    half = len(packets) // 2
    return _frames(packets[:half]) + _frames(packets[half:])


def address_text(address: object) -> str:
    """A socket's address as host:port."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
        return f"{host}:{address[1]}"
    return str(address or "unknown address")

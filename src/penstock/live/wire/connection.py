"""One TCP connection: handshake, frames in and out, keepalive and liveness, close.

The protocol object knows nothing of brokers and clients. It tells its owner when the peer's handshake has come, when a
batch has come, when there is room to write again, and when the connection is lost: once, with the reason.

A peer that breaks a rule gets a close frame that says which, and is disconnected; no other connection notices. Closing
waits for the peer to take what is written, but not for ever (`CLOSE_WITHIN`): a peer that never reads is cut off.

Each end acknowledges what it has had, so that the other knows what was lost with a connection (`handed_over`): by
itself within `ACKNOWLEDGE_WITHIN`, or when its owner says so (`acknowledge`), and always before it closes. Whoever
closes cleanly waits for the last acknowledgement of what it wrote, as long as it waits for the peer at all.

Half-open connections are found by silence. Each side sends a keepalive (five bytes) when it has sent nothing for
`keepalive` seconds, and gives up when it has received nothing for `silence_max`. The owner calls `check_liveness` once
a second or so, one round for all connections; a timer for each of ten thousand would cost more. A frame that was begun
and is not finished within `frame_within` ends the connection too, however it trickles in.
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
    Acknowledgement,
    Close,
    Frame,
    FrameDecoder,
    Handshake,
    encode_acknowledgement,
    encode_close,
    encode_handshake,
    framed,
)
from penstock.live.wire.handed_over import HandedOver
from penstock.live.wire.unfinished import UnfinishedFrames
from penstock.overlay.codec import Codec, encode_batch

CLOSE_WITHIN = 2.0  # seconds for the peer to take what was written before the end
ACKNOWLEDGE_WITHIN = 0.05  # seconds after a packet has come
ACKNOWLEDGE_PACKETS = 256  # and at once when so many have
TURN_BYTES = 1 << 14  # whoever sends so much at once is read again in the next turn of the loop
FRAME_PACKETS = 256  # a receiver handles one frame at a time and writes in between
FRAME_SPLIT_BYTES = 1 << 18  # a batch longer than this goes out as several frames


@dataclass(frozen=True, kw_only=True)
class ConnectionConfig:
    """Patience with peers; all our own choice."""

    handshake_within: float = 5.0
    keepalive: float = 5.0
    silence_max: float = 15.0
    frame_within: float = 30.0  # the largest message takes so long at 300 kbit/s

    def __post_init__(self) -> None:
        if self.frame_within <= 0 or self.handshake_within <= 0:
            raise ValueError("frame_within and handshake_within must be above 0")
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
        self,
        owner: Owner,
        config: ConnectionConfig,
        *,
        handshake: Handshake | None = None,
        dialled: str | None = None,
        acknowledges: bool = True,  # by itself; or else when its owner says so
        unfinished: UnfinishedFrames | None = None,  # the table that it shares with others
        reads: Codec | None = None,  # None: the packets of all services
    ) -> None:
        self.peer: Handshake | None = None  # who is at the other end, once its handshake has come
        self.dialled = dialled  # whom we dialled; None: we accepted it
        self.violation = False  # it ended because the peer broke a rule
        self.refused = False  # the peer has closed it, and said why
        self.peer_left = False  # it ended because the peer wanted no more, and nothing was wrong
        self.handed_over = HandedOver()
        self.datagrams_over = HandedOver()  # what was sent beside this connection, by UDP
        self.datagrams_in = 0  # the number after the last datagram that came beside it
        self._datagrams_handled = self._datagrams_acknowledged = 0
        self.packets_acknowledged = 0  # of those that came in, how many the peer knows to have come
        self._packets_handled = 0  # and how many it is to know of
        self.address = ""
        self.paused = False
        self.closing = False  # nothing that comes in counts any more
        self.packets_in = self.bytes_in = self.bytes_out = 0
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # the reason, when it is
        self._owner = owner
        self._config = config
        self._handshake = handshake  # ours, sent at once; whoever accepts waits for the peer's
        self._acknowledges = acknowledges
        self._acknowledging: asyncio.TimerHandle | None = None
        self._unfinished = unfinished if unfinished is not None else UnfinishedFrames()
        self._frame_began: float | None = None  # since when a frame is unfinished
        self._last_words = False  # we have closed, and wait for what the peer has had
        self._decoder = FrameDecoder(reads=reads)
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
        if self.closing and not self._last_words:
            return
        self._received_at = self._loop.time()
        self.bytes_in += len(data)
        try:
            frames = self._decoder.feed(data)
            for frame in frames:
                self._handle(frame)
            self._watch_unfinished(began=bool(frames))
        except InvalidPacket as error:
            self.close(str(error), violation=True)
        if len(data) >= TURN_BYTES:
            self._pause_for_a_turn()

    def eof_received(self) -> bool | None:
        self._problem = self._problem or "the peer closed the connection"
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        for timer in (self._cut_off, self._acknowledging):
            if timer is not None:
                timer.cancel()
        self._unfinished.holds(self, 0)
        problem = self._problem or (str(exc) if exc is not None else "the connection was closed")
        if not self.closed.done():
            self.closed.set_result(problem)
        self._owner.lost(self, problem)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if not self.closing:
            self.acknowledge(self._packets_handled, self._datagrams_handled)
            self._owner.writable(self)

    # What the owner does.

    def send_handshake(self, handshake: Handshake) -> None:
        """Send who we are."""
        self._write(encode_handshake(handshake))

    def send(self, packets: Sequence[Packet], messages: int = 0) -> int:
        """Write packets, so many of them with a message, in as few frames as may be; returns their size on the wire."""
        if len(packets) <= FRAME_PACKETS:
            data = _frames(packets)
        else:
            parts = (packets[start : start + FRAME_PACKETS] for start in range(0, len(packets), FRAME_PACKETS))
            data = b"".join(map(_frames, parts))
        self.handed_over.wrote(len(packets), messages)
        self._write(data)
        return len(data)

    @property
    def messages_unknown(self) -> int:
        """How many messages were handed over and are not known to have arrived."""
        return self.handed_over.messages_unknown + self.datagrams_over.messages_unknown

    def acknowledge(self, packets: int | None = None, datagrams: int | None = None) -> None:
        """Tell the peer how many of its packets and datagrams have been handled: so many, or all that have come."""
        came = self.datagrams_in if datagrams is None else datagrams
        datagrams = self._datagrams_handled = max(self._datagrams_handled, came)
        packets = self._packets_handled = max(self._packets_handled, self.packets_in if packets is None else packets)
        news = packets > self.packets_acknowledged or datagrams > self._datagrams_acknowledged
        if news and not self.paused:  # a peer that does not read makes us keep nothing
            self.packets_acknowledged, self._datagrams_acknowledged = packets, datagrams
            self._write(encode_acknowledgement(packets, datagrams))

    def close(self, problem: str = "", *, violation: bool = False) -> None:
        """Send the reason and close; what was written before still goes out. A violation is the peer's fault."""
        if self._last_words and violation:
            self.abort(problem)
        elif not self.closing:
            self.violation = violation
            self.acknowledge()
            self._write(encode_close(problem))
            if violation:
                self._decoder = FrameDecoder()  # what it holds is of no use any more
            self._last_words = not violation and self.messages_unknown > 0
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

    def limit_buffer(self, high_bytes: int, *, whole: bool = False) -> None:
        """How much may be unsent inside the socket; we count as `paused` with a quarter of it waiting in front.

        The kernel would otherwise take megabytes for a peer that does not read. What is sent and not acknowledged does
        not count, so a long way does not make a link slow; unless the buffer as a `whole` shall be no larger, as that
        of a tcp link.
        """
        if self._transport is not None:
            # uvloop writes at once when a write passes the mark, and at the end of the turn otherwise: with a low mark
            # a full load goes out now, and whoever asks for room afterwards gets some.
            self._transport.set_write_buffer_limits(high=high_bytes // 4, low=high_bytes // 8)
            sock = self._transport.get_extra_info("socket")
            if sock is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, high_bytes)
            if sock is not None and whole:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, high_bytes)

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
            self._frame_began = None if self._frame_began is None else now
        self._checked_at = now
        if self.peer is None and now - self._began_at > config.handshake_within:
            self.close(f"no handshake within {config.handshake_within:g} s", violation=True)
        elif now - self._received_at > config.silence_max:
            self.abort(f"silent for {config.silence_max:g} s")
        elif self._frame_began is not None and now - self._frame_began > config.frame_within:
            self.close(f"a frame was begun and not finished within {config.frame_within:g} s", violation=True)
        elif self.peer is not None and now - self._sent_at > config.keepalive and not self.paused:
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
        if isinstance(frame, Acknowledgement):
            self.handed_over.arrived(frame.packets)
            if frame.datagrams:
                self.datagrams_over.arrived(frame.datagrams)
            if self._last_words and not self.messages_unknown and self._transport is not None:
                self._transport.close()
        elif self.closing:  # because of the frame before
            if self._last_words and isinstance(frame, Close) and self._transport is not None:
                self._transport.close()
        elif isinstance(frame, list):
            self.packets_in += len(frame)
            if frame:
                self._owner.received(self, frame)
                self._acknowledge_soon()
        elif isinstance(frame, Handshake):
            self.peer = frame
            self._owner.handshake_received(self, frame)
        else:
            self.acknowledge()
            self.peer_left, self.refused = not frame.problem, bool(frame.problem)
            self._shut(frame.problem or "the peer closed the connection")

    def _acknowledge_soon(self) -> None:
        if not self._acknowledges:
            return
        if self.packets_in - self.packets_acknowledged >= ACKNOWLEDGE_PACKETS:
            self.acknowledge()
        elif self._acknowledging is None:
            self._acknowledging = self._loop.call_later(ACKNOWLEDGE_WITHIN, self._acknowledge_now)

    def _acknowledge_now(self) -> None:
        self._acknowledging = None
        self.acknowledge()

    def leave_shared_bounds(self) -> None:
        """It is a neighbour of the plan: what clients hold of unfinished frames is none of its business."""
        self._unfinished.holds(self, 0)
        self._unfinished = UnfinishedFrames()

    def _watch_unfinished(self, *, began: bool) -> None:
        """Remember since when a frame is unfinished, and how much of it is here."""
        held = self._decoder.waiting_bytes()
        if not held:
            if self._frame_began is not None:
                self._frame_began = None
                self._unfinished.holds(self, 0)
        else:
            if began or self._frame_began is None:
                self._frame_began = self._loop.time()
            self._unfinished.holds(self, held)

    def _shut(self, problem: str) -> None:
        self._problem = self._problem or problem
        self.closing = True
        if self._transport is not None:
            if self._last_words and not self._transport.is_closing():
                self._transport.resume_reading()
            else:
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

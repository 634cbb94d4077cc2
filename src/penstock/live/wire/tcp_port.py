"""A link over a TCP connection: the port of reliable and shaped links.

The queue stands in the node's egress. The port lets at most `room_bytes` wait in front of the socket: 16 KiB towards
brokers, so that the queue stands where the machine can see it, and more towards clients. A tcp link has as much as the
file says, with what the socket has sent and nobody has acknowledged. The port tells the machine of room
after every write, and whenever the socket has taken enough. With a rate, room comes at that pace.
"""

from __future__ import annotations

import asyncio

from penstock.kernel.link import Link, LinkLoad
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.token_bucket import Pacer
from penstock.live.host import LiveHost
from penstock.live.wire.connection import Connection

BROKER_ROOM_BYTES = 16_384  # what a reliable link keeps in front of the socket at most (architecture: Links)
CLIENT_ROOM_BYTES = 1 << 18


class TcpPort:
    """A link over a TCP connection."""

    def __init__(
        self,
        host: LiveHost,
        link: Link,
        peer: str,
        connection: Connection,
        *,
        room_bytes: int,
        rate_bits_per_s: float | None = None,
        whole_buffer: bool = False,  # sent and not acknowledged counts too
    ) -> None:
        self.link = link
        self.peer = peer
        self.connection = connection
        self.packets_sent = self.bytes_sent = 0
        self._host = host
        self._room_bytes = room_bytes
        self._loop = asyncio.get_running_loop()
        self._pacer = Pacer(rate_bits_per_s / 8.0, self._loop.time()) if rate_bits_per_s else None
        self._waking: asyncio.TimerHandle | None = None
        self._gathered: list[Packet] = []
        self._control = 0  # how many of those carry no message
        self._closed = False
        self._blocked_seconds = 0.0  # in which the socket took nothing, on a link without a rate
        self._blocked_since: float | None = None
        connection.limit_buffer(room_bytes, whole=whole_buffer)

    def send(self, packet: Packet, lane: Lane) -> None:
        """Gather a packet; it is written at the next flush."""
        if not self._gathered:
            self._host.gathered(self)
        self._gathered.append(packet)
        if not lane:  # Lane.CONTROL
            self._control += 1

    def flush(self) -> None:
        """Write what was gathered, and what the machine lets out for the room that is left, while the socket takes it.

        Written in one go, because a batch that comes in may be many times as long as the room: with one write a turn
        the queue would overflow on a link that is idle.
        """
        while self._gathered and not self._closed:
            packets, self._gathered = self._gathered, []
            messages, self._control = len(packets) - self._control, 0
            size_bytes = self.connection.send(packets, messages)
            self.packets_sent += len(packets)
            self.bytes_sent += size_bytes
            if self._pacer is not None:
                self._pacer.spend(size_bytes, self._loop.time())
            self.offer_room()

    def offer_room(self) -> None:
        """Tell the machine of room, now or as soon as there is some."""
        if self._closed:
            return
        if self.connection.paused:  # the connection says when it is writable again
            if self._blocked_since is None:
                self._blocked_since = self._loop.time()
            return
        if self._blocked_since is not None:
            self._blocked_seconds += self._loop.time() - self._blocked_since
            self._blocked_since = None
        room = max(1, self._room_bytes - self.connection.buffered_bytes())
        if self._pacer is not None:
            now = self._loop.time()
            wait = self._pacer.wait(now)
            if wait > 0.0:
                if self._waking is None:
                    self._waking = self._loop.call_later(wait, self._paced)
                return
            room = max(1, min(room, self._pacer.room_bytes(now)))
        self._host.link_ready(self.link, room)

    def load(self) -> LinkLoad:
        """How busy the link is: with a rate, as long as its bytes take; without, while the socket takes nothing."""
        waiting, now = self.connection.buffered_bytes(), self._loop.time()
        blocked = self._blocked_seconds + (0.0 if self._blocked_since is None else now - self._blocked_since)
        busy = blocked if self._pacer is None else self._pacer.busy_seconds(self.bytes_sent, now)
        # A large packet leaves while its bytes take their time, not at once.
        owed = 0 if self._pacer is None else int(-min(0.0, self._pacer.tokens(now)))
        return LinkLoad(self.bytes_sent, self.bytes_sent - waiting - owed, waiting + owed, busy)

    def close(self) -> list[tuple[Packet, Lane]]:
        """No more; returns what had been gathered and not written."""
        self._closed = True
        if self._waking is not None:
            self._waking.cancel()
        left, self._gathered = self._gathered, []
        return [(packet, packet.travels_in()) for packet in left]

    def _paced(self) -> None:
        self._waking = None
        self.offer_room()

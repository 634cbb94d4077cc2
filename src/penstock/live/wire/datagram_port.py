"""A link over UDP, with a TCP connection beside it for control: the port of datagram links.

The egress passes everything on, and the queue stands here, below the machine: drop-tail, every drop recorded. Several
packets share a datagram. Datagrams leave at the link's rate, or at `PACE_BYTES_PER_S` where it has none, because a
receiver in Python cannot take an unpaced burst and the kernel would drop it in silence.

Every datagram carries the token that its receiver chose for this link, and a number, so that the receiver can count
what the network lost. A message that does not fit one datagram is dropped with that cause, unless its kind takes the
connection then (`large_by_connection`); if much waits there already, it is dropped as from a full queue. Control
packets travel on the TCP connection: they are not lost, and they do not count against the rate. Control messages of
services have a queue of their own here, and every second datagram while something waits in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from penstock.kernel.link import Link
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import SERVICE_CONTROL_BOUNDS
from penstock.kernel.token_bucket import Pacer
from penstock.kernel.trace import LimitReached
from penstock.live.host import LiveHost
from penstock.live.wire.connection import Connection
from penstock.live.wire.udp import DATAGRAM_BYTES_MAX, DatagramEndpoint, join_packets
from penstock.overlay.codec import encode
from penstock.overlay.egress import dropped

CONTROL_BYTES_MAX = 64 << 20  # kernel.queue.CONTROL_BOUNDS: beyond it the neighbour does not read
LARGE_BYTES_MAX = 16 << 20  # on the connection; beyond it what fits no datagram is dropped
DATAGRAM_FILL_BYTES = 8192  # packets are gathered into a datagram up to here
PACE_BYTES_PER_S = 40e6  # a broker in Python handles about as much; the kernel would drop the rest
UNPACED_QUEUE_PACKETS = 20_000  # a link without a rate queues for milliseconds only
DATAGRAM_QUEUE_BYTES_MAX = 64 << 20  # whatever the bound in packets, for they may be large


class DatagramPort:
    """A link over UDP, with its control packets on a TCP connection."""

    def __init__(
        self,
        host: LiveHost,
        link: Link,
        peer: str,
        connection: Connection,
        endpoint: DatagramEndpoint,
        *,
        own_token: int,
        queue_packets: int,
        rate_bits_per_s: float | None = None,
        delay: float = 0.0,
        on_arrival: Callable[[], None] = lambda: None,  # called for each datagram that comes
    ) -> None:
        assert connection.peer is not None
        self.link = link
        self.peer = peer
        self.connection = connection
        self.packets_sent = self.bytes_sent = 0
        self.own_token = own_token
        self.packets_received = 0
        self.missing = 0  # datagrams that the peer numbered and that never came
        self.missing_reported = 0  # of those, how many the trace knows of
        self.data_sent = 0  # packets, in datagrams
        self._on_arrival = on_arrival
        self._expected = 0
        self._delay = delay
        self._host = host
        self._endpoint = endpoint
        self._address = endpoint.address_of(connection.address, connection.peer.datagram_port)
        self._token = connection.peer.datagram_token
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._pacer = Pacer(rate_bits_per_s / 8.0 if rate_bits_per_s else PACE_BYTES_PER_S, self._loop.time())
        self._queue_packets = queue_packets if rate_bits_per_s else UNPACED_QUEUE_PACKETS
        self._fill_bytes = DATAGRAM_FILL_BYTES if not rate_bits_per_s else 1  # at a rate, packet by packet
        self._queue: deque[tuple[Packet, Lane, bytes]] = deque()
        self._queue_bytes = 0
        self._urgent: deque[tuple[Packet, Lane, bytes]] = deque()  # control messages of services
        self._urgent_turn = True
        self._control: list[Packet] = []
        self._large: list[tuple[Packet, Lane]] = []  # what fits no datagram, for the connection
        self._large_bytes = 0
        self._dirty = False
        self._waking: asyncio.TimerHandle | None = None
        self._closed = False

    def send(self, packet: Packet, lane: Lane) -> None:
        """Control is gathered for the connection; data is queued for its datagram, or dropped."""
        if not packet.as_datagram:
            self._control.append(packet)
        else:
            problem = self._queued(packet, lane, encode(packet))
            if problem:
                self._drop(packet, lane, problem)
                return
        if not self._dirty:
            self._dirty = True
            self._host.gathered(self)

    def _queued(self, packet: Packet, lane: Lane, data: bytes) -> str:
        """Put it in its queue; or the cause of its loss."""
        if len(data) > DATAGRAM_BYTES_MAX:
            if not packet.large_by_connection:
                return "too large for a datagram"
            if self._large_bytes + self.connection.buffered_bytes() + len(data) > LARGE_BYTES_MAX:
                return "queue full"
            self._large.append((packet, lane))
            self._large_bytes += len(data)
        elif lane is Lane.SERVICE_CONTROL:
            if len(self._urgent) >= SERVICE_CONTROL_BOUNDS.packets_max:
                return "queue full"
            self._urgent.append((packet, lane, data))
        else:
            if len(self._queue) >= self._queue_packets or self._queue_bytes + len(data) > DATAGRAM_QUEUE_BYTES_MAX:
                return "queue full"
            self._queue.append((packet, lane, data))
            self._queue_bytes += len(data)
        return ""

    def flush(self) -> None:
        self._dirty = False
        if self._closed:
            return
        if self._control or self._large:
            packets = self._control + [packet for packet, _ in self._large]
            self._control, self._large, self._large_bytes = [], [], 0
            self.bytes_sent += self.connection.send(packets)
            self.packets_sent += len(packets)
            if self.connection.buffered_bytes() > CONTROL_BYTES_MAX:
                self._host.note(LimitReached(f"control bytes waiting for {self.peer}", CONTROL_BYTES_MAX))
                self.connection.abort("the neighbour does not read its control packets")
        if (self._queue or self._urgent) and self._waking is None:
            self._pour()

    def arrived(self, number: int, packets: Sequence[Packet]) -> None:
        """A datagram of the peer's; numbers that were passed over are lost, or late, which is as good as lost."""
        if number >= self._expected:
            self.missing += number - self._expected
            self._expected = number + 1
        else:
            self.missing -= 1
        self.packets_received += len(packets)
        self.connection.datagrams_in = self._expected
        self._on_arrival()
        self._host.receive_after(self._delay, self.link, packets)

    def close(self) -> list[tuple[Packet, Lane]]:
        """No more; returns what had not left."""
        self._closed = True
        if self._waking is not None:
            self._waking.cancel()
        left = [(packet, Lane.CONTROL) for packet in self._control]
        left += self._large
        left += [(packet, lane) for packet, lane, _ in (*self._urgent, *self._queue)]
        self._control.clear()
        self._large.clear()
        self._urgent.clear()
        self._queue.clear()
        return left

    def queued_packets(self) -> int:
        """How many packets wait for the rate."""
        return len(self._queue) + len(self._urgent)

    def _pour(self) -> None:
        """Send datagrams as long as the pace allows, and come back when it does again."""
        self._waking = None
        while (self._queue or self._urgent) and not self._closed:
            now = self._loop.time()
            wait = self._pacer.wait(now)
            if wait > 0.0:
                self._waking = self._loop.call_later(wait, self._pour)
                return
            urgent = bool(self._urgent) and (self._urgent_turn or not self._queue)
            self._urgent_turn = not urgent
            queue = self._urgent if urgent else self._queue
            parts = [queue.popleft()[2]]
            size = len(parts[0])
            while queue and size + len(queue[0][2]) <= self._fill_bytes:
                parts.append(queue.popleft()[2])
                size += len(parts[-1])
            self._queue_bytes -= 0 if urgent else size
            sent = self._endpoint.send(self._address, self._token, self._number, join_packets(parts))
            self._number += 1
            self.data_sent += len(parts)
            self.connection.datagrams_over.wrote(1, len(parts))
            self._pacer.spend(sent, now)
            self.packets_sent += len(parts)
            self.bytes_sent += sent

    def _drop(self, packet: Packet, lane: Lane, cause: str) -> None:
        self._host.note(dropped("pipe", cause, self.peer, lane, packet))

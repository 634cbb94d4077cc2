"""A link over UDP, with a TCP connection beside it for control: the port of datagram links.

The egress passes everything on, and the queue stands here, below the machine: drop-tail, every drop recorded. Several
packets share a datagram. Datagrams leave at the link's rate, or at `PACE_BYTES_PER_S` where it has none, because a
receiver in Python cannot take an unpaced burst and the kernel would drop it in silence.

The rate of a way through queues of others is not known; where these lose datagrams, TCP's equation gives the pace
(`path_pace`), and the queue is as short as on a link with a rate.

Every datagram carries the token that its receiver chose for this link, and a number, so that the receiver can count
what the network lost. A message that does not fit one datagram is dropped with that cause, unless its kind takes the
connection then (`large_by_connection`); if much waits there already, it is dropped as from a full queue. Control
packets travel on the TCP connection: they are not lost, and they do not count against the rate. Control messages of
services have a queue of their own here, and every second datagram while something waits in it.

Where both ends want it the link repairs itself (overlay.repair): what the network lost is sent again, before all that
waits, at the link's pace like everything else. A datagram gets its number when it leaves, so what was dropped here has
none. The neighbour's acknowledgements on the connection say that it knows of the last number; if they do not come, it
is told beside the next control packets that leave after a while of silence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from penstock.kernel.link import Link, LinkLoad
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import SERVICE_CONTROL_BOUNDS
from penstock.kernel.token_bucket import Pacer
from penstock.kernel.trace import Counted, LimitReached
from penstock.live.host import LiveHost
from penstock.live.wire.connection import Connection
from penstock.live.wire.path_pace import PathPace
from penstock.live.wire.udp import (
    CONTROL_BIT,
    DATAGRAM_BYTES_MAX,
    DatagramEndpoint,
    join_packets,
    stamped,
    unstamped,
)
from penstock.overlay.codec import encode
from penstock.overlay.egress import dropped
from penstock.overlay.repair.controls import LinkControl, LinkNack, encode_control
from penstock.overlay.repair.link_repair import LinkRepair
from penstock.overlay.repair.queue_delay import stamp_of

CONTROL_BYTES_MAX = 64 << 20  # kernel.queue.CONTROL_BOUNDS: beyond it the neighbour does not read
LARGE_BYTES_MAX = 16 << 20  # on the connection; beyond it what fits no datagram is dropped
DATAGRAM_FILL_BYTES = 8192  # packets are gathered into a datagram up to here
PACE_BYTES_PER_S = 40e6  # a broker in Python handles about as much; the kernel would drop the rest
UNPACED_QUEUE_PACKETS = 20_000  # a link without a rate queues for milliseconds only
DATAGRAM_QUEUE_BYTES_MAX = 64 << 20  # whatever the bound in packets, for they may be large
PATH_EVERY = 0.05  # seconds between two looks at what the way loses
PATH_FILL_BYTES = 1_200  # of a datagram on a way whose queues are not ours: one frame
TAIL_AFTER = 0.2  # seconds of silence without an acknowledgement before the last number is told


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
        repairs: bool = False,  # both ends want it
        on_arrival: Callable[[], None] = lambda: None,  # called for each datagram that comes
    ) -> None:
        assert connection.peer is not None
        self.link = link
        self.peer = peer
        self.connection = connection
        self.packets_sent = self.bytes_sent = 0
        self.own_token = own_token
        self.packets_received = 0
        self.repairs = repairs
        self.repair: LinkRepair[tuple[bytes, int]] | None = LinkRepair() if repairs else None
        self.repair_bytes = 0  # sent for repair: datagrams again, and link control
        self._passed_over = 0  # numbers that have not come, where nothing is repaired
        self._counted: dict[str, int] = {}  # what the trace knows of
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
        self._limited = bool(rate_bits_per_s)
        self._full_rate = rate_bits_per_s / 8.0 if rate_bits_per_s else PACE_BYTES_PER_S
        self._pacer = Pacer(self._full_rate, self._loop.time())
        self._path = PathPace() if repairs else None
        self._path_at = 0.0
        self._queue_packets_limited = queue_packets
        self._queue_packets = queue_packets if rate_bits_per_s else UNPACED_QUEUE_PACKETS
        self._fill_bytes = DATAGRAM_FILL_BYTES if not rate_bits_per_s else 1  # at a rate, packet by packet
        self._queue: deque[tuple[Packet, Lane, bytes]] = deque()
        self._queue_bytes = 0
        self._paced_bytes = 0  # that have left in datagrams
        self._busy_seconds = 0.0  # that these take at the link's rate
        self._refused_bytes = 0
        self._urgent: deque[tuple[Packet, Lane, bytes]] = deque()  # control messages of services
        self._urgent_turn = True
        self._control: list[Packet] = []
        self._large: list[tuple[Packet, Lane]] = []  # what fits no datagram, for the connection
        self._large_bytes = 0
        self._dirty = False
        self._waking: asyncio.TimerHandle | None = None
        self._again: deque[tuple[int, bytes, int]] = deque()  # number, payload and packets of what is sent again
        self._sent_at = 0.0
        self._repair_timer: asyncio.TimerHandle | None = None
        self._repair_at = float("inf")
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
                self._refused_bytes += len(data)
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
            self._tell_quiet_tail()
            if self.connection.buffered_bytes() > CONTROL_BYTES_MAX:
                self._host.note(LimitReached(f"control bytes waiting for {self.peer}", CONTROL_BYTES_MAX))
                self.connection.abort("the neighbour does not read its control packets")
        if (self._queue or self._urgent) and self._waking is None:
            self._pour()

    def arrived(self, number: int, packets: Sequence[Packet]) -> None:
        """A datagram of the peer's; numbers that were passed over are lost, or late, which is as good as lost."""
        if self.repair is not None:
            number, stamp, repeated = unstamped(number)
            new = self.repair.arrived(number, self._loop.time(), stamp=stamp, repeated=repeated)
            self._arm_repair()
            if not new:
                return
        if number >= self._expected:
            self._passed_over += number - self._expected
            self._expected = number + 1
        else:
            self._passed_over -= 1
        self.packets_received += len(packets)
        self.connection.datagrams_in = self._expected
        self._on_arrival()
        self._host.receive_after(self._delay, self.link, packets)

    def close(self) -> list[tuple[Packet, Lane]]:
        """No more; returns what had not left."""
        self._closed = True
        for timer in (self._waking, self._repair_timer):
            if timer is not None:
                timer.cancel()
        self._again.clear()
        left = [(packet, Lane.CONTROL) for packet in self._control]
        left += self._large
        left += [(packet, lane) for packet, lane, _ in (*self._urgent, *self._queue)]
        self._control.clear()
        self._large.clear()
        self._urgent.clear()
        self._queue.clear()
        return left

    @property
    def missing(self) -> int:
        """How many datagrams the peer has numbered that never came, or not yet."""
        return self._passed_over

    def repair_counts(self) -> dict[str, int]:
        """What repair has done here, by name; nothing where there is none."""
        if self.repair is None:
            return {}
        receiving = self.repair.receiving
        return {
            "datagrams repaired": receiving.repaired,
            "datagrams given up": receiving.given_up,
            "repair bytes": self.repair_bytes,
        }

    def count(self) -> None:
        """Record what the network has lost of the peer's datagrams since the last time, and what repair has done."""
        for name, total in {"datagrams missing": self.missing, **self.repair_counts()}.items():
            if total > self._counted.get(name, 0):
                self._host.note(Counted(name, self.peer, total - self._counted.get(name, 0)))
                self._counted[name] = total

    def load(self) -> LinkLoad:
        """How busy the datagrams' way is; control has a connection of its own."""
        offered = self._paced_bytes + self._queue_bytes + self._refused_bytes
        # A large packet leaves while its bytes take their time, not at once.
        owed = -min(0.0, self._pacer.tokens(self._loop.time()))
        left, waiting = self._paced_bytes - int(owed), self._queue_bytes + int(owed)
        return LinkLoad(offered, left, waiting, self._busy_seconds - owed / self._pacer.rate)

    def queued_packets(self) -> int:
        """How many packets wait for the rate."""
        return len(self._queue) + len(self._urgent)

    def _pour(self) -> None:
        """Send datagrams as long as the pace allows, and come back when it does again."""
        self._waking = None
        if self._path is not None:
            self._follow_path(self._path, self._loop.time())
        while (self._queue or self._urgent or self._again) and not self._closed:
            now = self._loop.time()
            wait = self._pacer.wait(now)
            if wait > 0.0:
                self._waking = self._loop.call_later(wait, self._pour)
                return
            sent = self._send_again(now) if self._again else self._send_next(now)
            self._paced_bytes += sent
            self._busy_seconds += sent / self._pacer.rate
            self._pacer.spend(sent, now)

    def _follow_path(self, path: PathPace, now: float) -> None:
        """What the way loses says how fast to send, from time to time."""
        if 0.0 <= now - self._path_at < PATH_EVERY:
            return
        self._path_at = now
        path.sent(self._paced_bytes, self._number, now)
        path.update(self._number, now)
        rate = min(self._full_rate, path.rate or self._full_rate)
        if rate == self._pacer.rate:
            return
        self._pacer.set_pace(rate, now)
        if not self._limited:
            known = path.rate is not None
            self._queue_packets = self._queue_packets_limited if known else UNPACED_QUEUE_PACKETS
            self._fill_bytes = PATH_FILL_BYTES if known else DATAGRAM_FILL_BYTES

    def _send_next(self, now: float) -> int:
        """One datagram of what waits; returns its size."""
        urgent = bool(self._urgent) and (self._urgent_turn or not self._queue)
        self._urgent_turn = not urgent
        queue = self._urgent if urgent else self._queue
        parts = [queue.popleft()[2]]
        size = len(parts[0])
        while queue and size + len(queue[0][2]) <= self._fill_bytes:
            parts.append(queue.popleft()[2])
            size += len(parts[-1])
        self._queue_bytes -= 0 if urgent else size
        payload = join_packets(parts)
        number = self._number
        if self.repair is not None:
            number = stamped(self.repair.sent((payload, len(parts)), len(payload), now), stamp_of(now))
            self._sent_at = now
            self._arm_repair()
        sent = self._endpoint.send(self._address, self._token, number, payload)
        self._number += 1
        self.data_sent += len(parts)
        self.connection.datagrams_over.wrote(1, len(parts))
        self.packets_sent += len(parts)
        self.bytes_sent += sent
        return sent

    # Repair.

    def control_arrived(self, control: LinkControl) -> None:
        """The peer misses datagrams, or tells the number of its last one."""
        assert self.repair is not None
        now = self._loop.time()
        if self._path is not None and isinstance(control, LinkNack) and control.congested:
            self._path.lost(control.ranges, self.repair.sending.sent_at, self._number, now)
            self._path_at = 0.0
        for number, (payload, packets) in self.repair.heard(control, now):
            self._again.append((number, payload, packets))
        self._arm_repair()
        if self._again and self._waking is None:
            self._pour()

    def _send_again(self, now: float) -> int:
        number, payload, packets = self._again.popleft()
        field = stamped(number, stamp_of(now), repeated=True)
        sent = self._endpoint.send(self._address, self._token, field, payload)
        self.packets_sent += packets
        self.bytes_sent += sent
        self.repair_bytes += sent
        return sent

    def _tell(self, control: LinkControl) -> None:
        sent = self._endpoint.send(self._address, self._token, CONTROL_BIT, encode_control(control))
        self.bytes_sent += sent
        self.repair_bytes += sent

    def _tell_quiet_tail(self) -> None:
        """Control leaves for the neighbour: if it may not know of our last datagram, tell it too."""
        if self.repair is None or self.queued_packets() or self._loop.time() < self._sent_at + TAIL_AFTER:
            return
        self.repair.sending.known(self.connection.datagrams_over.packets_arrived)
        tail = self.repair.sending.untold_tail()
        if tail is not None:
            self._tell(tail)

    def _arm_repair(self) -> None:
        assert self.repair is not None
        deadline = self.repair.deadline()
        if deadline < self._repair_at and not self._closed:
            if self._repair_timer is not None:
                self._repair_timer.cancel()
            self._repair_at = deadline
            self._repair_timer = self._loop.call_at(deadline, self._repair_rang)

    def _repair_rang(self) -> None:
        assert self.repair is not None
        self._repair_timer, self._repair_at = None, float("inf")
        self.repair.sending.known(self.connection.datagrams_over.packets_arrived)
        for control in self.repair.wake(self._loop.time()):
            self._tell(control)
        self._arm_repair()

    def _drop(self, packet: Packet, lane: Lane, cause: str) -> None:
        self._host.note(dropped("pipe", cause, self.peer, lane, packet))

"""A connection between two nodes as TCP carries it: packets go in at one end, and come out in order at the other.

`TcpPipe` is one direction, and stands where a reliable `Pipe` would. It cuts each packet into segments, which travel
with those of other flows through pipes that queue and drop; acknowledgements come back through the opposite ones. Each
segment has a header on the wire (HEADER_BYTES), which neither the buffer nor the counts of packets know of. What was
sent stays in the send buffer until it is acknowledged, so the room in it comes back at the pace of the receiver: that
is how the node above learns how fast the link is. Small packets are not joined into one segment (TCP_NODELAY).

State: how much is in each unacknowledged segment, and the packets whose last segment has not arrived. Bound: the send
buffer and one packet, because a node sends only while there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.kernel.link import LinkLoad
from penstock.sim.engine import Engine
from penstock.sim.tcp.config import HEADER_BYTES, TcpConfig
from penstock.sim.tcp.flow import TcpFlow
from penstock.sim.tcp.packets import Arrive, Give, Lost


class TcpPipe:
    """One direction of a link inside a TCP connection."""

    def __init__(
        self,
        engine: Engine,
        forward: Sequence[Give],
        backward: Sequence[Give],
        arrive: Arrive,
        lost: Lost,
        config: TcpConfig,
        *,
        buffer_bytes: int,
    ) -> None:
        self.carried_packets = 0
        self.carried_bytes = 0
        self.buffered_bytes = 0  # sent, and not acknowledged
        self._taken_bytes = 0
        self._busy_seconds = 0.0  # in which somebody waited for room
        self._busy_since: float | None = None
        self._engine = engine
        self._ways = (tuple(forward), tuple(backward))
        self._arrive = arrive
        self._lost = lost
        self._config = config
        self._segment_bytes = config.segment_bytes - HEADER_BYTES  # of packets, in a full segment
        assert self._segment_bytes > 0, f"segments of {config.segment_bytes} bytes are all header"
        self._buffer_bytes = buffer_bytes
        self._wakes: tuple[Callable[[Any], None], Any] | None = None  # who waits for room
        self._begin()

    def _begin(self) -> None:
        """A new connection: numbers begin at 0, and nothing of an earlier one counts."""
        forward, backward = self._ways
        self._sizes: deque[int] = deque()  # what is in each segment that is not acknowledged, without its header
        self._first = 0  # the number of the first of them
        self._packets: deque[tuple[int, Any, int]] = deque()  # number after the last segment, packet, bytes
        self._given = 0  # segments in all
        self.flow = TcpFlow(self._engine, forward, backward, self._config, start=self._engine.now)
        self.flow.segments.size_of = self._size_of
        self.flow.receiver.progress = self._arrived
        self.flow.acknowledgements.take = self._acknowledged

    def send(self, item: Any, size_bytes: int, urgent: bool = False) -> None:
        """Take a packet; it arrives after all before it, or is reported lost when the connection breaks."""
        whole, rest = divmod(size_bytes, self._segment_bytes)
        sizes = [self._segment_bytes] * whole + ([rest] if rest else [])
        self._sizes.extend(sizes)
        self._given += len(sizes)
        self._packets.append((self._given, item, size_bytes))
        self.buffered_bytes += size_bytes
        self._taken_bytes += size_bytes
        self.flow.offer(len(sizes))

    def load(self) -> LinkLoad:
        """What was offered and acknowledged, and for how long room was waited for; what is under way waits nowhere."""
        now = self._engine.now
        busy = self._busy_seconds + (0.0 if self._busy_since is None else now - self._busy_since)
        return LinkLoad(self._taken_bytes, self._taken_bytes - self.buffered_bytes, 0, busy)

    def room_bytes(self) -> int:
        """How much the send buffer takes now."""
        return self._buffer_bytes - self.buffered_bytes

    def call_with_room(self, call: Callable[[Any], None], argument: Any) -> None:
        """Call when half of the send buffer is free."""
        self._wakes = (call, argument)
        self._busy_since = self._engine.now
        self._see_to_room()

    def fail(self) -> None:
        """The connection breaks: whatever has not arrived is lost, and another one begins."""
        self.flow.sender.stop()
        self.flow.sender.limit = 0  # also if it has not started yet
        self.flow.receiver.progress = None
        self.flow.acknowledgements.take = _too_late
        self.flow.segments.take = _too_late
        self._not_busy()
        self._wakes = None
        self.buffered_bytes = 0
        left = self._packets
        self._begin()
        for _, item, _ in left:
            self._lost(item, "link down")

    def _size_of(self, number: int) -> int:
        return self._sizes[number - self._first] + HEADER_BYTES

    def _arrived(self, expected: int) -> None:
        """All segments below this number have."""
        packets, flow = self._packets, self.flow
        while packets and packets[0][0] <= expected and flow is self.flow:
            _, item, size_bytes = packets.popleft()
            self.carried_packets += 1
            self.carried_bytes += size_bytes
            self._arrive(item)

    def _acknowledged(self, number: int) -> None:
        self.flow.sender.take(number)
        while self._first < self.flow.sender.acknowledged:
            self.buffered_bytes -= self._sizes.popleft()
            self._first += 1
        self._see_to_room()

    def _see_to_room(self) -> None:
        if self._wakes is not None and self.room_bytes() >= self._buffer_bytes // 2:
            call, argument = self._wakes
            self._wakes = None
            self._not_busy()
            self._engine.soon(call, argument)

    def _not_busy(self) -> None:
        if self._busy_since is not None:
            self._busy_seconds += self._engine.now - self._busy_since
            self._busy_since = None


def _too_late(number: int) -> None:
    """A segment or an acknowledgement of a connection that is gone."""

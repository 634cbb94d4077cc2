"""What lies below a link: a wire with a rate, a delay, some loss, and a drop-tail queue.

A pipe carries packets one way. A packet waits until those before it are on the wire, takes size/rate to get onto it,
and arrives one delay later. The delay may wander: every second a new offset within ± jitter is drawn, and the delay
moves there in a straight line, so by itself the pipe never puts packets out of order. With `reorder` it does: a share
of them takes up to HELD_UP times the delay longer, and others overtake them. With `duplicate` a share of them arrives
twice. With `loss_burst` losses come in bursts (`kernel.gilbert`). One event per packet: the queue is a list of the
times at which packets leave it.

Control on a datagram link does not wait behind data and does not take its places in the queue: it has a turn and a
bound of its own (`URGENT_PACKETS_MAX`), as live, where it has a connection. What it takes of the rate is not there for
later data.

Datagram: queued, lost or dropped here; the sender sees nothing. Shaped: the sender is notified when the wire is free.
Reliable: nothing is lost; what would have been lost comes one retransmission later and delays what follows, and the
sender is notified when less than SOCKET_BYTES are on their way onto the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from penstock.kernel.gilbert import GilbertLoss
from penstock.kernel.link import LinkLoad
from penstock.sim.engine import Engine

SOCKET_BYTES = 16_384  # what a live reliable link keeps in the socket at most
RETRANSMISSION_MIN = 0.2  # seconds; the usual least timeout of TCP
WANDER_INTERVAL = 1.0
URGENT_PACKETS_MAX = 10_000
HELD_UP = 4.0
HELD_UP_MIN = 0.01  # seconds, where the delay is next to nothing


class Pipe:
    """One direction of a link."""

    def __init__(
        self,
        engine: Engine,
        random: Random,
        arrive: Callable[[Any], None],
        lost: Callable[[Any, str], None],
        *,
        rate_bits_per_s: float | None,
        delay: float,
        jitter: float,
        loss: float,
        queue_packets: int,
        reliable: bool,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        loss_burst: float = 1.0,
    ) -> None:
        self.loss = loss
        self.duplicate = duplicate
        self.reorder = reorder
        self.up = True
        self.carried_packets = 0
        self.carried_bytes = 0
        self._refused_bytes = 0
        self._taken_bytes = 0
        self._wire_seconds = 0.0  # that the wire needs for all it has taken
        self._older = (0.0, 1.0)  # until when what waits leaves at the rate before the last change, and that
        self._bursts = GilbertLoss(loss, loss_burst) if loss_burst > 1.0 else None
        self._engine = engine
        self._random = random
        self._arrive = arrive
        self._lost = lost
        self._seconds_per_byte = 8.0 / rate_bits_per_s if rate_bits_per_s else 0.0
        self._delay = delay
        self._jitter = jitter
        self._queue_packets = queue_packets
        self._reliable = reliable
        self._free_at = 0.0  # when the wire has taken everything so far
        self._leaving: deque[float] = deque()  # when each queued packet is on the wire
        self._last_arrival = 0.0
        self._urgent_free_at = 0.0  # the same for what does not wait behind data
        self._urgent_leaving: deque[float] = deque()
        self._urgent_last_arrival = 0.0
        self._landing_at = -1.0  # the latest landing that the engine has in its heap
        self._life = 0  # grows with every failure: what was on the way then does not arrive
        self._wander_from = 0.0
        self._wander_to = 0.0
        self._wander_start = -WANDER_INTERVAL

    def send(self, item: Any, size_bytes: int, urgent: bool = False) -> None:
        """Take a packet; it arrives later, or is reported lost."""
        if not self.up:
            self._lost(item, "link down")
            return
        now = self._engine.now
        if urgent and self._seconds_per_byte:
            self._send_urgent(item, size_bytes, now)
            return
        if self._seconds_per_byte:
            leaving = self._leaving
            while leaving and leaving[0] <= now:
                leaving.popleft()
            if len(leaving) >= self._queue_packets and not self._reliable:
                self._refused_bytes += size_bytes
                self._lost(item, "queue full")
                return
            start = self._free_at if self._free_at > now else now
            seconds = size_bytes * self._seconds_per_byte
            self._free_at = start + seconds
            self._wire_seconds += seconds
            self._taken_bytes += size_bytes
            leaving.append(self._free_at)
            arrival = self._free_at + self._delay
        else:
            arrival = now + self._delay
        if self.loss and self._loses():
            if not self._reliable:
                self._lost(item, "lost on the wire")
                return
            arrival += max(RETRANSMISSION_MIN, 4.0 * self._delay)
        if self._jitter:
            arrival += self._wander(now)
        if arrival < self._last_arrival:
            arrival = self._last_arrival
        self.carried_packets += 1
        self.carried_bytes += size_bytes
        if (self.duplicate or self.reorder) and self._astray(item, arrival):
            return
        self._last_arrival = arrival
        if arrival > now or self._landing_at >= now:  # what lands at this very moment must not be overtaken
            self._landing_at = arrival
            self._engine.at(arrival, self._land, (self._life, item))
        else:
            self._engine.soon(self._land, (self._life, item))

    def _send_urgent(self, item: Any, size_bytes: int, now: float) -> None:
        """The same for what does not wait behind data."""
        leaving = self._urgent_leaving
        while leaving and leaving[0] <= now:
            leaving.popleft()
        if len(leaving) >= URGENT_PACKETS_MAX:
            self._refused_bytes += size_bytes
            self._lost(item, "queue full")
            return
        self._taken_bytes += size_bytes
        self._wire_seconds += size_bytes * self._seconds_per_byte
        seconds = size_bytes * self._seconds_per_byte
        self._urgent_free_at = max(self._urgent_free_at, now) + seconds
        self._free_at = max(self._free_at, now) + seconds
        leaving.append(self._urgent_free_at)
        arrival = self._urgent_free_at + self._delay
        if self.loss and self._loses():
            self._lost(item, "lost on the wire")
            return
        if self._jitter:
            arrival += self._wander(now)
        arrival = max(arrival, self._urgent_last_arrival)
        self.carried_packets += 1
        self.carried_bytes += size_bytes
        if (self.duplicate or self.reorder) and self._astray(item, arrival):
            return
        self._urgent_last_arrival = arrival
        self._engine.at(arrival, self._land, (self._life, item))

    def _loses(self) -> bool:
        draw = self._random.random()
        return draw < self.loss if self._bursts is None else self._bursts.loses(draw)

    def _astray(self, item: Any, arrival: float) -> bool:
        """Let a second copy come later, or the packet itself; says whether it is the packet itself."""
        duplicated = self._random.random() < self.duplicate
        held_up = self._random.random() < self.reorder
        if duplicated or held_up:
            later = self._random.random() * max(HELD_UP_MIN, HELD_UP * self._delay)
            self._engine.at(arrival + later, self._land, (self._life, item))
        if duplicated and held_up:
            self._engine.at(arrival + later / 2.0, self._land, (self._life, item))
        return held_up

    def idle_at(self) -> float:
        """When the wire will have taken all it was given."""
        return max(self._engine.now, self._free_at)

    def load(self) -> LinkLoad:
        """What was offered, what is on the wire, and for how long the wire was busy; nothing where it has no rate."""
        if not self._seconds_per_byte:
            return LinkLoad()
        now = self._engine.now
        ahead, older = self.idle_at() - now, max(0.0, self._older[0] - now)
        waiting = int(older / self._older[1] + (ahead - older) / self._seconds_per_byte)
        offered = self._taken_bytes + self._refused_bytes
        return LinkLoad(offered, self._taken_bytes - waiting, waiting, self._wire_seconds - ahead)

    def room_bytes(self) -> int:
        """How much a reliable link may put into its socket now."""
        if not self._seconds_per_byte:
            return SOCKET_BYTES
        return SOCKET_BYTES - int((self.idle_at() - self._engine.now) / self._seconds_per_byte)

    def call_with_room(self, call: Callable[[Any], None], argument: Any) -> None:
        """Call when the wire has taken all it was given, or, on a reliable link, when half of the socket is free."""
        kept = SOCKET_BYTES // 2 if self._reliable else 0
        self._engine.at(max(self._engine.now, self._free_at - kept * self._seconds_per_byte), call, argument)

    def change_rate(self, rate_bits_per_s: float) -> None:
        """From now on; what waits already leaves as it would have."""
        self._older = (self.idle_at(), self._seconds_per_byte or 1.0)
        self._seconds_per_byte = 8.0 / rate_bits_per_s

    def fail(self) -> None:
        """The link goes down; what is on the way is lost."""
        self.up = False
        self._life += 1
        self._wire_seconds -= self.idle_at() - self._engine.now
        self._older = (0.0, 1.0)
        self._free_at = self._last_arrival = self._urgent_free_at = self._urgent_last_arrival = 0.0
        self._leaving.clear()
        self._urgent_leaving.clear()

    def restore(self) -> None:
        """The link is up again."""
        self.up = True

    def _land(self, flight: tuple[int, Any]) -> None:
        life, item = flight
        if life == self._life:
            self._arrive(item)
        else:
            self._lost(item, "link down")

    def _wander(self, now: float) -> float:
        """The present offset of the delay."""
        if now - self._wander_start >= WANDER_INTERVAL:
            self._wander_from = self._wander_to
            self._wander_to = self._random.uniform(-self._jitter, self._jitter)
            self._wander_start = now
        share = (now - self._wander_start) / WANDER_INTERVAL
        return self._wander_from + share * (self._wander_to - self._wander_from)

"""The way out of a node: one per node, shared by all its services.

A datagram link takes everything at once; the pipe below it, or the kernel, queues and drops. On shaped and reliable
links the queue stands here, in lanes, and a packet leaves when the host says there is room. So the node sees its own
congestion, and control packets overtake data.

A packet that finds its lane full, or its link down, is dropped and recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.kernel.machine import Effect, Lane, Link, Packet, Send
from penstock.kernel.queue import LaneQueue, QueueConfig
from penstock.kernel.trace import Dropped


class LinkKind(Enum):
    """Who keeps the queue of a link."""

    DATAGRAM = "datagram"  # the pipe: it queues and drops
    SHAPED = "shaped"  # this node: a packet leaves when the one before it is on the wire
    RELIABLE = "reliable"  # this node: a packet leaves when the socket has room; nothing is lost below


@dataclass(frozen=True)
class LinkInfo:
    """What the host knows about a link before anything has been said on it."""

    peer: str
    kind: LinkKind = LinkKind.RELIABLE
    cost: int = 1
    queue_packets: int = 1_000  # how many may wait here in each lane, where the queue stands here


class _Waiting:
    __slots__ = ("queue", "room_bytes")

    def __init__(self, config: QueueConfig) -> None:
        self.queue: LaneQueue[tuple[Packet, Lane]] = LaneQueue(config)
        self.room_bytes = 0


class Egress:
    """Lets packets out as their links allow."""

    def __init__(self, links: Mapping[Link, LinkInfo], config: QueueConfig) -> None:
        self._links = links
        self._config = config
        self._up: dict[Link, _Waiting | None] = {}  # None for datagram links

    def link_changed(self, link: Link, *, up: bool) -> list[Effect]:
        """Begin with an empty queue, or drop what waits."""
        waiting = self._up.pop(link, None)
        if up:
            info = self._links.get(link) or LinkInfo(peer=self.peer(link))
            direct = info.kind is LinkKind.DATAGRAM
            self._up[link] = None if direct else _Waiting(self._config.holding(info.queue_packets))
        if waiting is None:
            return []
        return [dropped("egress", "link down", self.peer(link), lane, packet) for packet, lane in waiting.queue.clear()]

    def link_ready(self, link: Link, room_bytes: int) -> list[Effect]:
        """The link can take this many bytes more."""
        waiting = self._up.get(link)
        if waiting is None:
            return []
        waiting.room_bytes = room_bytes
        return self._release(link, waiting)

    def route(self, effects: Iterable[Effect]) -> list[Effect]:
        """Let every packet out, keep it, or drop it; everything else passes."""
        passed: list[Effect] = []
        up = self._up
        for effect in effects:
            if type(effect) is not Send:
                passed.append(effect)
            elif len(effect.to) == 1:
                waiting = up.get(effect.to[0])
                if waiting is not None and waiting.room_bytes > 0:  # as in `_offer`, without a call for each packet
                    waiting.room_bytes -= effect.packet.size_bytes()
                    passed.append(effect)
                    continue
                outcome = self._offer(effect.to[0], effect)
                if outcome is not None:
                    passed.append(outcome)
            else:
                passed += self._spread(effect)
        return passed

    def peer(self, link: Link) -> str:
        """The name of the node at the other end."""
        info = self._links.get(link)
        return info.peer if info is not None else f"link {link}"

    def waiting_packets(self, link: Link) -> int:
        """How many packets wait for this link."""
        waiting = self._up.get(link)
        return len(waiting.queue) if waiting is not None else 0

    def _spread(self, effect: Send) -> list[Effect]:
        """One packet for many links; those that take it at once stay together in one effect, after the others."""
        passed: list[Effect] = []
        direct: list[Link] = []
        for link in effect.to:
            outcome = self._offer(link, effect)
            if outcome is effect:
                direct.append(link)
            elif outcome is not None:
                passed.append(outcome)
        if direct:
            passed.append(effect if len(direct) == len(effect.to) else Send(tuple(direct), effect.packet, effect.lane))
        return passed

    def _offer(self, link: Link, effect: Send) -> Effect | None:
        """One packet for one link: the effect itself if it may go, None if it must wait, or the record of its end."""
        packet, lane = effect.packet, effect.lane
        if link not in self._up:
            return dropped("egress", "link down", self.peer(link), lane, packet)
        waiting = self._up[link]
        if waiting is None:
            return effect
        size_bytes = packet.size_bytes()
        if waiting.room_bytes > 0:  # then nothing waits, because whatever did would have left
            waiting.room_bytes -= size_bytes
            return effect
        if waiting.queue.put(lane, (packet, lane), size_bytes):
            return None
        return dropped("egress", "queue full", self.peer(link), lane, packet)

    def _release(self, link: Link, waiting: _Waiting) -> list[Effect]:
        """Let packets go while there is room; the last one may be larger than what is left of it."""
        released: list[Effect] = []
        while waiting.room_bytes > 0:
            taken = waiting.queue.get()
            if taken is None:
                break
            (packet, lane), size_bytes = taken
            waiting.room_bytes -= size_bytes
            released.append(Send((link,), packet, lane))
        return released


def dropped(place: str, cause: str, peer: str, lane: Lane, packet: Packet) -> Dropped:
    """The record of a packet that ended here."""
    message = packet.carried()
    publisher, incarnation, count = ("", 0, 0)
    if message is not None:
        identity = message.identity
        publisher, incarnation, count = identity.publisher, identity.incarnation, identity.count
    return Dropped(place, cause, peer, lane, type(packet).__name__, publisher, incarnation, count, packet.meant_for())

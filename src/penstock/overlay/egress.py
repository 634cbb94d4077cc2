"""The way out of a node: one per node, shared by all its services.

A datagram link takes everything at once; the pipe below it, or the kernel, queues and drops. On shaped and reliable
links the queue stands here, in lanes, and a packet leaves when the host says there is room. So the node sees its own
congestion, and control packets overtake data. On reliable links a lane also waits for the neighbour's credit, where the
neighbour gives any; in lanes that hold, the egress knows over which link each waiting packet came (`credit`). There our
own packets have as much room before each link as those of a neighbour have, so that nobody takes it from them.

What waits in a lane that holds waits on an *account*: that of the link over which it came, which gets no more credit
meanwhile, or ours. A service may take back what waits for a link, and send it another way on the same account
(`SendFor`); or on that of KEPT, which nobody's credit pays for: how much that may be is its business. What can go
nowhere at present it sends to PARKED, a link that never has room. There is also what waited for a link that went down,
if the service asked for that.

What a peer cannot read, because it lacks the service, is not sent to it (`LinkInfo.unknown`): a peer that gets a packet
of a kind that it does not know ends the connection.

All of that, and what finds its lane full, or its link down, is dropped and recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.kernel.machine import Effect, Send, SendFor
from penstock.kernel.packet import DATA_LANES, Lane, Packet
from penstock.kernel.queue import LaneQueue, QueueConfig
from penstock.kernel.trace import Dropped, dropped_record
from penstock.overlay.packets import Delivery

OURSELVES: Link = -1  # the source of what came over no link
KEPT: Link = -2  # the source of what a service keeps here on nobody's account
PARKED: Link = -3  # where it waits for a way; no room ever comes
NOT_KNOWN_THERE = "no such service at the peer"  # why a packet ended


class _Waiting:
    __slots__ = ("credit", "own_bytes", "queue", "refused_bytes", "room_bytes", "sent")

    def __init__(self, config: QueueConfig) -> None:
        self.queue: LaneQueue[tuple[Packet, Lane, Link, int]] = LaneQueue(config)
        self.room_bytes = 0
        self.refused_bytes = 0  # in all, of what found its lane full
        self.credit: dict[Lane, int] = {}  # bytes in all that the neighbour takes, in lanes that it limits
        self.sent = [0] * len(Lane)  # bytes in all, by lane
        self.own_bytes = dict.fromkeys(config.held_lanes, 0)  # of what waits in lanes that hold, ours


class Egress:
    """Lets packets out as their links allow."""

    def __init__(self, links: Mapping[Link, LinkInfo], config: QueueConfig) -> None:
        self._links = links
        self._config = config
        self._up: dict[Link, _Waiting | None] = {PARKED: _Waiting(config)}  # None for datagram links
        self._unknown: dict[Link, frozenset[type[Packet]]] = {}  # what the peers there cannot read, if anything
        self.parked_kinds: dict[type[Packet], None] = {}  # that are kept when their link goes down
        self._round = 0  # in which a packet began to wait
        self._held_lanes = config.held_lanes
        self._waiting_from: dict[
            tuple[Link, Lane], int
        ] = {}  # bytes that wait in lanes that hold, by where they came from
        self.freed: dict[tuple[Link, Lane], None] = {}  # whose bytes have left since somebody looked
        # Deliveries that were dropped for want of room since somebody took note of it, by the client's subscription.
        self.lost_deliveries: dict[Link, dict[int, int]] = {}
        self.on_crowded: Callable[[Link], None] | None = None  # a delivery waits in a queue that is so

    def link_changed(self, link: Link, *, up: bool) -> list[Effect]:
        """Begin with an empty queue, or drop what waits."""
        waiting = self._up.pop(link, None)
        self.lost_deliveries.pop(link, None)
        self._unknown.pop(link, None)
        if up:
            info = self._links.get(link) or LinkInfo(peer=self.peer(link))
            if info.unknown:
                self._unknown[link] = info.unknown
            direct = info.kind is LinkKind.DATAGRAM
            self._up[link] = None if direct else _Waiting(self._config.sized(info.queue_packets))
        if waiting is None:
            return []
        lost: list[Effect] = []
        for packet, lane, source, _ in waiting.queue.clear():
            self._free(waiting, source, lane, packet.size_bytes())
            if type(packet) in self.parked_kinds and lane in self._held_lanes and link != PARKED:
                paid = source not in (link, OURSELVES)
                lost += self._send_for(SendFor(PARKED, packet, lane, source if paid else KEPT))
            else:
                lost.append(dropped("egress", "link down", self.peer(link), lane, packet))
        return lost

    def link_ready(self, link: Link, room_bytes: int) -> list[Effect]:
        """The link can take this many bytes more."""
        waiting = self._up.get(link)
        if waiting is None:
            return []
        waiting.room_bytes = room_bytes
        return self._release(link, waiting)

    def credited(self, link: Link, lane: Lane, bytes_in_all: int) -> list[Effect]:
        """The neighbour takes so many bytes in this lane, counted since the link came up."""
        waiting = self._up.get(link)
        if waiting is None or bytes_in_all <= waiting.credit.get(lane, -1):
            return []
        waiting.credit[lane] = bytes_in_all
        if waiting.sent[lane] < bytes_in_all:
            waiting.queue.unblock(lane)
            return self._release(link, waiting)
        waiting.queue.block(lane)
        return []

    def route(self, effects: Iterable[Effect], source: Link = OURSELVES) -> list[Effect]:
        """Let every packet out, keep it, or drop it; everything else passes. `source`: over which link it all came."""
        passed: list[Effect] = []
        up = self._up
        if self._unknown:
            effects = self._understood(effects, passed)
        for effect in effects:
            if type(effect) is not Send:
                if type(effect) is SendFor:
                    passed += self._send_for(effect)
                else:
                    passed.append(effect)
            elif len(effect.to) == 1:
                waiting = up.get(effect.to[0])
                if waiting is not None and waiting.room_bytes > 0 and not waiting.credit:
                    size_bytes = effect.packet.size_bytes()  # as in `_offer`, without a call for each packet
                    waiting.room_bytes -= size_bytes
                    waiting.sent[effect.lane] += size_bytes
                    passed.append(effect)
                    continue
                outcome = self._offer(effect.to[0], effect, source)
                if outcome is not None:
                    passed.append(outcome)
            else:
                passed += self._spread(effect, source)
        return passed

    def peer(self, link: Link) -> str:
        """The name of the node at the other end."""
        info = self._links.get(link)
        return info.peer if info is not None else f"link {link}"

    def is_reliable(self, link: Link) -> bool:
        """Whether nothing is lost on this link while it is up."""
        info = self._links.get(link)
        return info is None or info.kind is LinkKind.RELIABLE

    def waiting_packets(self, link: Link) -> int:
        """How many packets wait for this link."""
        waiting = self._up.get(link)
        return len(waiting.queue) if waiting is not None else 0

    def waiting_bytes(self, link: Link) -> int:
        """How many bytes of data wait for this link, in all lanes."""
        waiting = self._up.get(link)
        return sum(waiting.queue.lane_bytes(lane) for lane in DATA_LANES) if waiting is not None else 0

    def refused_bytes(self, link: Link) -> int:
        """How many bytes found no room here since the link came up."""
        waiting = self._up.get(link)
        return waiting.refused_bytes if waiting is not None else 0

    def lane_packets(self, link: Link, lane: Lane) -> int:
        """How many packets of one lane wait for this link."""
        waiting = self._up.get(link)
        return waiting.queue.lane_packets(lane) if waiting is not None else 0

    def holds(self, lane: Lane) -> bool:
        """Whether this lane holds its neighbours where others drop."""
        return lane in self._held_lanes

    def has_room(self, link: Link, lane: Lane, size_bytes: int, after_bytes: int = 0, after_packets: int = 0) -> bool:
        """Whether a packet of our own, behind so much that is about to go out, would find its place.

        In a lane that holds the first one does, whatever its size.
        """
        waiting = self._up.get(link)
        if waiting is None:
            return link in self._up
        if lane not in self._held_lanes:
            return waiting.queue.has_room(lane, after_bytes + size_bytes, after_packets)
        before = waiting.own_bytes[lane] + after_bytes
        return before == 0 or before + size_bytes <= self._config.lanes[lane].bytes_max

    def recall(self, link: Link, lane: Lane) -> list[tuple[Packet, Link]]:
        """Take back what waits for this link in one lane, each packet with its source."""
        waiting = self._up.get(link)
        if waiting is None:
            return []
        left = waiting.queue.clear_lane(lane)
        for packet, _, source, _ in left:
            self._free(waiting, source, lane, packet.size_bytes())
        return [(packet, source) for packet, _, source, _ in left]

    def next_round(self) -> int:
        """From now on packets begin to wait in a new round; returns the number of the one before."""
        self._round += 1
        return self._round - 1

    def oldest_round(self, link: Link) -> int:
        """The round in which the first of what waits for this link began to wait; the present one if nothing does."""
        waiting = self._up.get(link)
        if waiting is None:
            return self._round
        return min((item[3] for item in waiting.queue.heads()), default=self._round)

    def is_held(self, link: Link, lanes: Iterable[Lane]) -> bool:
        """Whether something waits for this link in one of these lanes, because the neighbour gives no credit."""
        waiting = self._up.get(link)
        if waiting is None or not waiting.credit:
            return False
        return any(not _has_credit(waiting, lane) and waiting.queue.lane_packets(lane) for lane in lanes)

    def waits_for_room(self, link: Link) -> bool:
        """Whether something waits that room would let out; what waits for credit alone does not count."""
        waiting = self._up.get(link)
        return waiting is not None and waiting.room_bytes <= 0 and len(waiting.queue) > 0

    def waiting_control_bytes(self, link: Link) -> int:
        """How much control waits for this link."""
        waiting = self._up.get(link)
        return waiting.queue.lane_bytes(Lane.CONTROL) if waiting is not None else 0

    def window(self, lane: Lane) -> int:
        """How much of one neighbour may wait here, in a lane that holds."""
        return self._config.lanes[lane].bytes_max

    def waiting_bytes_from(self, source: Link, lane: Lane) -> int:
        """How much waits here of what came over this link, in a lane that holds."""
        return self._waiting_from.get((source, lane), 0)

    def count_lost(self, link: Link, subscriptions: Iterable[int]) -> None:
        """A client does not get something that these of its subscriptions want."""
        lost = self.lost_deliveries.setdefault(link, {})
        for number in subscriptions:
            lost[number] = lost.get(number, 0) + 1

    def _understood(self, effects: Iterable[Effect], passed: list[Effect]) -> list[Effect]:
        """These without packets for peers that cannot read them, which end here; their records are `passed` on."""
        kept: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, Send | SendFor):
                kept.append(effect)
                continue
            kind, links = type(effect.packet), effect.to if isinstance(effect, Send) else (effect.to,)
            readers = tuple(link for link in links if kind not in self._unknown.get(link, ()))
            for link in links:
                if link not in readers:
                    passed.append(dropped("egress", NOT_KNOWN_THERE, self.peer(link), effect.lane, effect.packet))
            if len(readers) == len(links):
                kept.append(effect)
            elif readers:
                kept.append(Send(readers, effect.packet, effect.lane))
        return kept

    def _spread(self, effect: Send, source: Link) -> list[Effect]:
        """One packet for many links; those that take it at once stay together in one effect, after the others."""
        passed: list[Effect] = []
        direct: list[Link] = []
        for link in effect.to:
            outcome = self._offer(link, effect, source)
            if outcome is effect:
                direct.append(link)
            elif outcome is not None:
                passed.append(outcome)
        if direct:
            passed.append(effect if len(direct) == len(effect.to) else Send(tuple(direct), effect.packet, effect.lane))
        return passed

    def _send_for(self, effect: SendFor) -> list[Effect]:
        outcome = self._offer(effect.to, Send((effect.to,), effect.packet, effect.lane), effect.source)
        return [] if outcome is None else [outcome]

    def _offer(self, link: Link, effect: Send, source: Link) -> Effect | None:
        """One packet for one link: the effect itself if it may go, None if it must wait, or the record of its end."""
        packet, lane = effect.packet, effect.lane
        if link not in self._up:
            return dropped("egress", "link down", self.peer(link), lane, packet)
        waiting = self._up[link]
        if waiting is None:
            return effect
        size_bytes = packet.size_bytes()
        # With room nothing waits, because whatever did would have left; but for lanes without credit.
        if waiting.room_bytes > 0 and _has_credit(waiting, lane):
            self._leave(waiting, lane, size_bytes)
            return effect
        held = lane in self._held_lanes
        granted = held and (source != OURSELVES or self.has_room(link, lane, size_bytes))
        fits = granted or not held
        if fits and waiting.queue.put(lane, (packet, lane, source, self._round), size_bytes, granted=granted):
            if granted and source == OURSELVES:
                waiting.own_bytes[lane] += size_bytes
            elif granted:
                self._waiting_from[source, lane] = self._waiting_from.get((source, lane), 0) + size_bytes
            if self.on_crowded is not None and type(packet) is Delivery and waiting.queue.crowded(lane):
                self.on_crowded(link)
            return None
        waiting.refused_bytes += size_bytes
        if type(packet) is Delivery:
            self.count_lost(link, packet.subscriptions)
        return dropped("egress", "queue full", self.peer(link), lane, packet)

    def _release(self, link: Link, waiting: _Waiting) -> list[Effect]:
        """Let packets go while there is room; the last one may be larger than what is left of it."""
        released: list[Effect] = []
        while waiting.room_bytes > 0:
            taken = waiting.queue.get()
            if taken is None:
                break
            (packet, lane, source, _), size_bytes = taken
            self._free(waiting, source, lane, size_bytes)
            self._leave(waiting, lane, size_bytes)
            released.append(Send((link,), packet, lane))
        return released

    def _free(self, waiting: _Waiting, source: Link, lane: Lane, size_bytes: int) -> None:
        """Something that came from there waits no longer."""
        if source == OURSELVES and lane in waiting.own_bytes:
            waiting.own_bytes[lane] -= size_bytes
        key = (source, lane)
        if key in self._waiting_from:
            self._waiting_from[key] -= size_bytes
            if self._waiting_from[key] <= 0:
                del self._waiting_from[key]
            self.freed[key] = None

    def _leave(self, waiting: _Waiting, lane: Lane, size_bytes: int) -> None:
        waiting.room_bytes -= size_bytes
        waiting.sent[lane] += size_bytes
        if not _has_credit(waiting, lane):
            waiting.queue.block(lane)


def _has_credit(waiting: _Waiting, lane: Lane) -> bool:
    return lane not in waiting.credit or waiting.sent[lane] < waiting.credit[lane]


def dropped(place: str, cause: str, peer: str, lane: Lane, packet: Packet) -> Dropped:
    """The record of a packet that ended here."""
    return dropped_record(place, cause, peer, lane, type(packet).__name__, packet.carried(), packet.meant_for())

"""Credit: how one lane of one link is held without stopping anything else on it.

A connection cannot be read in part, so holding happens at the sender. For each lane whose overflow rule is *hold*, the
receiver tells its neighbour how many bytes may have come in this lane since the link came up (`Credit`, a running
total). The sender lets the lane wait when the total is reached. The total is always a window (`bytes_max` of the lane)
more than what has come, less what of it still waits in our own queues. So a neighbour that sends what cannot go on is
slowed to the pace at which it goes on, whatever others send, and what comes from it has its place here: nothing is
dropped. While a machine holds the lane (`Hold`, until `Release`) the total stays as it is, and at most a window more
comes. Control and all other lanes go on.

Waiting cannot form a circle where messages never turn back and the links form a tree: what waits for one link waits for
links farther on. On other networks it can; a service that holds sees to it (priced sending: one spanning tree).

Only reliable links have credit: on the others a Credit could be lost, and what a full queue cannot take is dropped and
recorded. A sender that has never had a Credit in a lane is not limited: its neighbour drops.

A sender that would rather wait than lose may ask to be held in a lane that drops (`CreditRequest`): it gets credit
there too, and a machine may hold it. Both ends count its first window, ASKED_BYTES, from the request on; each time it
is held its window halves, and it doubles when half of it has come and nobody held it, from ASKED_LEAST to ASKED_MOST:
so little waits for a link that is full, and nobody with room waits. Nothing changes for others in that lane.

State: four numbers for each link and lane that holds. A neighbour that sends on when its credit is used up is recorded,
once a link, and what it sends then is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from penstock.content.message import MessageLimits
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, check_integers, require
from penstock.kernel.queue import QueueConfig
from penstock.kernel.trace import InputRefused
from penstock.overlay.egress import dropped

ASKED_LEAST, ASKED_BYTES, ASKED_MOST = 1 << 12, 1 << 14, 1 << 16  # windows of a lane that was asked for


class Credit(Packet, frozen=True):
    """In this lane so many bytes may come over this link, counted from the moment it came up."""

    sent_by = (BROKER, CLIENT)

    lane: Lane
    bytes_in_all: int

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.lane is not Lane.CONTROL, "control needs no credit")
        return self


class CreditRequest(Packet, frozen=True):
    """In this lane I keep to credit from here on, although you would drop; nothing has gone out in it yet."""

    sent_by = (CLIENT,)

    lane: Lane

    def checked(self, limits: MessageLimits) -> Self:
        require(self.lane is not Lane.CONTROL, "control needs no credit")
        return self


class CreditGrants:
    """The receiver's side: what was granted to each neighbour, what has come, and what of it waits here."""

    def __init__(self, queues: QueueConfig, waiting_bytes: Callable[[Link, Lane], int]) -> None:
        self.lanes = queues.held_lanes
        self._windows = {lane: queues.lanes[lane].bytes_max for lane in queues.held_lanes}
        self._waiting_bytes = waiting_bytes  # of what came over a link in a lane
        self._taken: dict[tuple[Link, Lane], int] = {}
        self._granted: dict[tuple[Link, Lane], int] = {}
        self._held: dict[tuple[Link, Lane], None] = {}
        self._overdrawn: dict[Link, None] = {}
        self._asked: dict[Link, dict[Lane, int]] = {}  # the windows of lanes that neighbours asked for

    def link_up(self, link: Link) -> list[Effect]:
        """The first credit of a new link."""
        effects: list[Effect] = []
        for lane in self.lanes:
            self._taken[link, lane] = 0
            self._granted[link, lane] = 0
            effects += self.renew(link, lane) or [Send((link,), Credit(lane, 0), Lane.CONTROL)]  # not yet
        return effects

    def link_down(self, link: Link) -> None:
        """The link is gone, and all counts with it."""
        self._overdrawn.pop(link, None)
        for lane in self._lanes_of(link):
            self._taken.pop((link, lane), None)
            self._granted.pop((link, lane), None)
            self._held.pop((link, lane), None)
        self._asked.pop(link, None)

    def asked(self, link: Link, lane: Lane) -> None:
        """The neighbour keeps to credit in this lane from now on."""
        if (link, lane) not in self._taken:
            self._asked.setdefault(link, {})[lane] = ASKED_BYTES
            self._taken[link, lane] = 0
            self._granted[link, lane] = ASKED_BYTES

    def counts(self, link: Link, lane: Lane) -> bool:
        """Whether the neighbour keeps to credit in this lane."""
        return (link, lane) in self._taken

    def admitted(self, link: Link, packets: Sequence[Packet], peer: str) -> tuple[list[Packet], list[Effect]]:
        """Count what has come; returns what the sender had credit for, and records of the rest, which ends here."""
        kept: list[Packet] = []
        refused: list[Effect] = []
        for packet in packets:
            if type(packet) is CreditRequest:
                self.asked(link, packet.lane)
                continue
            lane = packet.travels_in()
            key = (link, lane)
            if key not in self._taken:
                kept.append(packet)
                continue
            within = self._taken[key] < self._granted[key]
            self._taken[key] += packet.size_bytes()  # also what ends here: its sender has counted it
            if within:
                kept.append(packet)
                continue
            if link not in self._overdrawn:
                self._overdrawn[link] = None
                refused.append(InputRefused(peer, f"it sends more in lane {lane.name} than it has credit for"))
            refused.append(dropped("ingress", "no credit", peer, lane, packet))
        return kept, refused

    def renew_all(self, link: Link) -> list[Effect]:
        """Grant more to this neighbour, in every lane that holds."""
        effects = [effect for lane in self.lanes for effect in self.renew(link, lane)]
        asked = self._asked.get(link, {})
        for lane, window in asked.items():
            more = self.renew(link, lane)
            if more:
                asked[lane] = min(ASKED_MOST, 2 * window)
            effects += more
        return effects

    def hold(self, link: Link, lane: Lane) -> None:
        """Let no more come than was granted."""
        assert lane in self.lanes or (link, lane) in self._taken, (
            f"lane {lane.name} drops when it is full; give it the overflow rule 'hold'"
        )
        self._held[link, lane] = None
        asked = self._asked.get(link, {})
        if lane in asked:
            asked[lane] = max(ASKED_LEAST, asked[lane] // 2)

    def release(self, link: Link, lane: Lane) -> list[Effect]:
        """Let more come."""
        self._held.pop((link, lane), None)
        return self.renew(link, lane)

    def _lanes_of(self, link: Link) -> list[Lane]:
        return [*self.lanes, *self._asked.get(link, ())]

    def renew(self, link: Link, lane: Lane) -> list[Effect]:
        """Grant more, if it is worth a packet."""
        key = (link, lane)
        if key not in self._taken or key in self._held:
            return []
        window = self._windows[lane] if lane in self._windows else self._asked[link][lane]
        total = self._taken[key] + window - self._waiting_bytes(link, lane)
        if total - self._granted[key] < window // 2:
            return []
        self._granted[key] = total
        return [Send((link,), Credit(lane, total), Lane.CONTROL)]

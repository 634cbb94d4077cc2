"""One node: the machines of its services side by side, over one egress and one heap of timers.

The node hands each packet to the machine that takes its kind, each expired timer and each answer of storage to the
service that it belongs to, and lets all packets out through the egress. It gives and obeys credit (`credit`), so that
holding a lane is an effect like any other. What it is made of is `assembly`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

import msgspec

from penstock.kernel.link import Link, LinkInfo, LinkLoad
from penstock.kernel.machine import Effect, Hold, Release, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import QueueConfig
from penstock.kernel.service import (
    HasStatus,
    HasTimers,
    TakesPackets,
    UsesStorage,
    WatchesLinks,
    WatchesLosses,
    WatchesTraffic,
    can,
)
from penstock.kernel.storage import StorageResult, StorageTickets, Ticket
from penstock.kernel.timers import Timers
from penstock.kernel.trace import InputRefused
from penstock.overlay.credit import ASKED_BYTES, Credit, CreditGrants, CreditRequest
from penstock.overlay.egress import OURSELVES, PARKED, Egress

T = TypeVar("T")
Receive = Callable[..., list[Effect]]  # receive(packets, *, sender, now)


class Node:
    """What a host drives: implements `kernel.machine.Machine`."""

    def __init__(
        self,
        links: Mapping[Link, LinkInfo],
        queues: QueueConfig,
        host_view: Callable[[], dict[str, Any]] = dict,  # what the host adds to a report
        host_load: Callable[[Link], LinkLoad] = lambda link: LinkLoad(),  # what it knows of a link below the egress
    ) -> None:
        self.egress = Egress(links, queues)
        self.timers = Timers()
        self.storage = StorageTickets()
        self.machines: dict[str, Any] = {}  # by the name of their service, in the order of the list
        self._host_view = host_view
        self._host_load = host_load
        self._queues = queues
        self._grants = CreditGrants(queues, self.egress.waiting_bytes_from) if queues.held_lanes else None
        self._asked_lanes: dict[Lane, None] = {}  # in which we keep to credit although our neighbour would drop
        self._receivers: dict[type[Packet], Receive] = {}
        self._on_link: list[Callable[..., list[Effect]]] = []
        self._on_traffic: list[Callable[..., None]] = []
        self._on_drained: list[Callable[..., list[Effect]]] = []
        self._on_timer: dict[str, Callable[..., list[Effect]]] = {}
        self._on_storage: dict[str, Callable[..., list[Effect]]] = {}

    def install(self, service: str, machine: Any) -> None:
        """Make the machine of a service part of the node."""
        self.machines[service] = machine
        if can(machine, TakesPackets):
            for kind in machine.packet_kinds:
                assert kind not in self._receivers, f"two services take {kind.__name__}"
                self._receivers[kind] = machine.receive
        if can(machine, WatchesLinks):
            self._on_link.append(machine.link_changed)
        if can(machine, WatchesTraffic):
            self._on_traffic.append(machine.link_active)
        if can(machine, WatchesLosses):
            self._on_drained.append(machine.link_drained)
        if can(machine, HasTimers):
            self._on_timer[service] = machine.expired
        if can(machine, UsesStorage):
            self._on_storage[service] = machine.completed

    # What others may see of it.

    def machine(self, kind: type[T]) -> T:
        """The machine of this type."""
        return next(machine for machine in self.machines.values() if isinstance(machine, kind))

    def takes(self) -> tuple[type[Packet], ...]:
        """The kinds of packets that somebody here handles."""
        return (Credit, CreditRequest, *self._receivers)

    def status(self) -> dict[str, Any]:
        """What the host says of the node, and each service of itself, as plain data."""
        parts = {name: machine for name, machine in self.machines.items() if can(machine, HasStatus)}
        services = {name: msgspec.to_builtins(machine.status()) for name, machine in parts.items()}
        return {**self._host_view(), "services": services}

    def take_lost_deliveries(self, link: Link | None = None) -> dict[Link, dict[int, int]]:
        """How many deliveries to each client were dropped here since the last call, by link and subscription.

        Of one link if it is named; else of all but those that take nothing now.
        """
        lost = self.egress.lost_deliveries
        if link is not None:
            return {link: lost.pop(link)} if link in lost else {}
        taken = [link for link in lost if not self.egress.waiting_control_bytes(link)]
        return {link: lost.pop(link) for link in taken}

    def lane_packets(self, link: Link, lane: Lane) -> int:
        """How many packets of one lane wait for this link."""
        return self.egress.lane_packets(link, lane)

    def has_room(self, link: Link, lane: Lane, size_bytes: int, after_bytes: int = 0, after_packets: int = 0) -> bool:
        """Whether a packet of our own that goes out now, after so much else, would not be dropped."""
        return self.egress.has_room(link, lane, size_bytes, after_bytes, after_packets)

    def recall(self, link: Link, lane: Lane) -> list[tuple[Packet, Link]]:
        """Take back what waits for this link in one lane, each packet with the link on whose account it waits."""
        return self.egress.recall(link, lane)

    def holds(self, lane: Lane) -> bool:
        return self.egress.holds(lane)

    def window(self, lane: Lane) -> int:
        """How many bytes one neighbour may have waiting here, in a lane that holds."""
        return self.egress.window(lane)

    def waiting_from(self, source: Link, lane: Lane) -> int:
        """How many bytes wait here on the account of this link, in a lane that holds."""
        return self.egress.waiting_bytes_from(source, lane)

    def park(self, kind: type[Packet]) -> None:
        """Keep packets of this kind, in lanes that hold, when the link that they wait for goes down."""
        self.egress.parked_kinds[kind] = None

    def stop(self) -> list[Effect]:
        """The node ends, and all its links are down: records of what waited for none of them."""
        return self.egress.link_changed(PARKED, up=False)

    def ask_credit(self, link: Link, lane: Lane) -> list[Effect]:
        """Keep to the neighbour's credit in this lane, from the first packet on, although it would drop."""
        if not self.egress.is_reliable(link):
            return []
        self.egress.credited(link, lane, ASKED_BYTES)
        self._asked_lanes[lane] = None
        return [Send((link,), CreditRequest(lane), Lane.CONTROL)]

    def is_held(self, link: Link) -> bool:
        """Whether something waits for credit that we asked for: who publishes more had better wait too."""
        return bool(self._asked_lanes) and self.egress.is_held(link, self._asked_lanes)

    def keeps_credit(self, link: Link, lane: Lane) -> bool:
        """Whether the neighbour keeps to our credit in this lane, so that it can be held."""
        return self._grants is not None and self._grants.counts(link, lane)

    def delivery_lost(self, link: Link, subscription: int) -> None:
        """A delivery to a client was withheld here: the client is told of it with those that were dropped."""
        self.egress.count_lost(link, (subscription,))

    def watch_crowded(self, call: Callable[[Link], None]) -> None:
        """Call this when a delivery begins to wait in a queue that is crowded."""
        self.egress.on_crowded = call

    def link_load(self, link: Link) -> LinkLoad:
        """How busy this link is, here and below."""
        below = self._host_load(link)
        waiting = self.egress.waiting_bytes(link) + self.egress.waiting_control_bytes(link)
        offered = below.offered_bytes + waiting + self.egress.refused_bytes(link)
        return below._replace(offered_bytes=offered, waiting_bytes=below.waiting_bytes + waiting)

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        for active in self._on_traffic:
            active(sender, now=now)
        if self._grants is not None:
            return self._receive_counted(packets, sender, now, self._grants)
        if len(packets) == 1 or len(set(map(type, packets))) == 1:  # nearly always: alone, or among its like
            receive = self._receivers.get(type(packets[0]))
            if receive is not None:
                return self.egress.route(receive(packets, sender=sender, now=now))
        if CreditRequest in map(type, packets):  # the first neighbour that is to be counted
            self._grants = CreditGrants(self._queues, self.egress.waiting_bytes_from)
            return self._receive_counted(packets, sender, now, self._grants)
        effects, released = self._handled(packets, sender, now)
        return released + self.egress.route(effects)

    def _handled(self, packets: Sequence[Packet], sender: Link, now: float) -> tuple[list[Effect], list[Effect]]:
        """What the machines want, and what credit has let out, which has passed the egress already."""
        effects: list[Effect] = []
        released: list[Effect] = []
        for kind, group in groupby(packets, type):
            batch = list(group)
            receive = self._receivers.get(kind)
            if receive is not None:
                effects += receive(batch, sender=sender, now=now)
            elif kind is Credit:
                released += self._credited(batch, sender)
            else:
                problem = f"no service here takes packets of kind {kind.__name__}"
                effects.append(InputRefused(self.egress.peer(sender), problem))
        return effects, released

    def link_ready(self, link: Link, *, room_bytes: int, now: float) -> list[Effect]:
        effects = self.egress.link_ready(link, room_bytes) + self._renewed()
        if link in self.egress.lost_deliveries and not self.egress.waiting_packets(link):
            for drained in self._on_drained:  # all that had room has left: now it can be told what had not
                effects += self.route(drained(link, now=now))
        return effects

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        effects = self.egress.link_changed(link, up=up)
        if self._grants is not None:
            self._grants.link_down(link)
            if up and self.egress.is_reliable(link):
                effects += self.egress.route(self._grants.link_up(link))
        for changed in self._on_link:
            effects += self.route(changed(link, up=up, now=now))
        return effects + self._renewed()

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        return self.route(self._on_storage[self.storage.owner(ticket)](ticket, result, now=now))

    def wake(self, *, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while (name := self.timers.pop_due(now)) is not None:
            timer = name[1]
            assert isinstance(timer, int)
            effects += self.route(self._on_timer[str(name[0])](timer, name[2:], now=now))
        return effects + self._renewed()

    def deadline(self) -> float | None:
        return self.timers.deadline()

    # The way out.

    def route(self, effects: Iterable[Effect], source: Link = OURSELVES) -> list[Effect]:
        """Let packets out as their links allow, hold and release lanes; everything else passes."""
        if self._grants is not None:
            effects = self._held(effects, self._grants)
        return self.egress.route(effects, source)

    def discarded(self, packets: Sequence[Packet], *, sender: Link) -> list[Effect]:
        """These have come in over a link, and the host had no room for them: for credit they have come."""
        if self._grants is None:
            return []
        self._grants.admitted(sender, packets, self.egress.peer(sender))  # their end is recorded already
        return self.egress.route(self._grants.renew_all(sender))

    # Credit.

    def _credited(self, packets: Sequence[Packet], sender: Link) -> list[Effect]:
        """The neighbour takes more in some lane; what that lets out has passed the egress already."""
        released: list[Effect] = []
        for packet in packets:
            assert isinstance(packet, Credit)
            released += self.egress.credited(sender, packet.lane, packet.bytes_in_all)
        return released

    def _held(self, effects: Iterable[Effect], grants: CreditGrants) -> list[Effect]:
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Hold:
                grants.hold(effect.source, effect.lane)
            elif type(effect) is Release:
                passed += grants.release(effect.source, effect.lane)
            else:
                passed.append(effect)
        return passed

    def _receive_counted(
        self, packets: Sequence[Packet], sender: Link, now: float, grants: CreditGrants
    ) -> list[Effect]:
        """Handle what the sender had credit for, then renew its credit for what has gone on."""
        kept, refused = grants.admitted(sender, packets, self.egress.peer(sender))
        effects, released = self._handled(kept, sender, now)
        # Only what was granted has its place in a full queue.
        routed = self.route(effects, sender if self.egress.is_reliable(sender) else OURSELVES)
        return refused + released + routed + self.egress.route(grants.renew_all(sender)) + self._renewed()

    def _renewed(self) -> list[Effect]:
        """Credit for those whose bytes have left."""
        if self._grants is None or not self.egress.freed:
            return []
        freed, self.egress.freed = self.egress.freed, {}
        renewed = [effect for link, lane in freed for effect in self._grants.renew(link, lane)]
        return self.egress.route(renewed)

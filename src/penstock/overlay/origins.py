"""What is known of the other brokers: for each origin its life, its neighbours and its clients' interest.

Interest has bounds, because every broker keeps that of all others: one origin may have `interest_room_per_broker_max`,
all together `interest_room_max`; when that is reached, only origins below an equal share of it may grow. Room is
counted in bytes of memory's order: those of an entry, and `form.room` says what it costs beside.

A broker that begins a new life keeps its old interest until it has told the new one, for `STALE_AFTER` at most: nobody
shall be able to silence it by claiming a new life for it.

State: an entry for each broker that is known. Bound: `brokers_max`, of which `strangers_max` may be brokers that the
plan does not name (`guard`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from hashlib import blake2b

import msgspec

from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.packet import Packet
from penstock.overlay.config import RoutingConfig
from penstock.overlay.guard import Guard
from penstock.overlay.interest import ReadEntry, RemoteInterest
from penstock.overlay.interest_form import InterestForm
from penstock.overlay.packets import BrokerId, Interest, LinkState

STALE_AFTER = 10.0  # seconds that the interest of an earlier life counts


class AdjacentBroker:
    """The broker at the other end of a link."""

    __slots__ = ("broker", "differed", "hearsay", "incarnation", "received_at")

    def __init__(self, broker: BrokerId, incarnation: int, now: float) -> None:
        self.broker = broker
        self.incarnation = incarnation
        self.received_at = now
        self.differed = False  # the last Hello's hash was not ours
        self.hearsay = False  # others have news of it that it has not told us


class Origin:
    """The latest that is known of one broker."""

    __slots__ = ("incarnation", "interest", "links", "links_version", "renewed_at", "unreachable_since")

    def __init__(self, incarnation: int, interest: RemoteInterest, now: float) -> None:
        self.incarnation = incarnation
        self.links_version = 0
        self.links: tuple[tuple[BrokerId, int], ...] = ()
        self.interest = interest
        self.unreachable_since: float | None = now
        self.renewed_at = now  # when this life of it was first heard of


class Origins:
    """All other brokers, and the room that their interest takes."""

    def __init__(self, form: InterestForm, config: RoutingConfig, guard: Guard) -> None:
        self._form = form
        self._config = config
        self._guard = guard
        self._origins: dict[BrokerId, Origin] = {}
        self._room = 0  # of the interest of all

    def get(self, broker: BrokerId) -> Origin | None:
        return self._origins.get(broker)

    def __getitem__(self, broker: BrokerId) -> Origin:
        return self._origins[broker]

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)

    def items(self) -> Iterator[tuple[BrokerId, Origin]]:
        return iter(self._origins.items())

    def add(self, broker: BrokerId, incarnation: int, now: float) -> Origin:
        """A broker that was not known; `full_table` has said that there is room."""
        origin = self._origins[broker] = Origin(incarnation, RemoteInterest(broker, self._form), now)
        return origin

    def full_table(self, broker: BrokerId) -> tuple[str, int]:
        """Which table has no room for this broker, and its limit."""
        if len(self._origins) >= self._config.brokers_max:
            return "brokers_max", self._config.brokers_max
        limit = self._config.strangers_max
        if self._guard.stranger(broker) and sum(map(self._guard.stranger, self._origins)) >= limit:
            return "strangers_max", limit
        return "", 0

    def knows(self, packet: Packet) -> bool:
        """Whether the packet repeats what we know."""
        if not isinstance(packet, LinkState | Interest):
            return False
        origin = self._origins.get(packet.origin)
        if isinstance(packet, Interest) and origin is not None and origin.interest.has_part(packet):
            return origin.incarnation == packet.incarnation
        return not newer(packet, origin)

    def later_life(self, origin: Origin, incarnation: int, now: float) -> None:
        """The origin has begun again: whatever it says now replaces what it said in its last life."""
        origin.incarnation = incarnation
        origin.links_version = 0
        origin.renewed_at = now
        self._room -= origin.interest.parts_room
        origin.interest.renew()

    def _clear(self, origin: Origin) -> None:
        self._room -= origin.interest.held_room
        origin.interest.clear()

    def interest_limit(self, packet: Interest, origin: Origin, read: list[ReadEntry]) -> tuple[str, int]:
        """Which bound on interest this packet would break; a snapshot replaces what was there."""
        interest, config = origin.interest, self._config
        added = sum(entry.room for entry in read)
        kept = interest.room if packet.base else interest.parts_room
        if kept + added > config.interest_room_per_broker_max:
            return "interest_room_per_broker_max", config.interest_room_per_broker_max
        held = interest.held_room if packet.base else interest.parts_room
        if not self._guard.interest_room(held, added, self._room, len(self._origins)):
            return "interest_room_max", config.interest_room_max
        return "", 0

    def apply(self, packet: Interest, origin: Origin, read: list[ReadEntry]) -> tuple[Interest, ...]:
        """Move the origin's interest on; returns what is news to our neighbours too."""
        before = origin.interest.held_room
        news = origin.interest.apply(packet, read)
        self._room += origin.interest.held_room - before
        return news

    def forget_unreachable(self, reached: Container[BrokerId], now: float) -> list[BrokerId]:
        """Forget brokers that no way has led to for long; returns those."""
        forgotten = []
        for broker, origin in self._origins.items():
            if not origin.interest.version and len(origin.interest) and now - origin.renewed_at > STALE_AFTER:
                self._clear(origin)
            if broker in reached:
                origin.unreachable_since = None
            elif origin.unreachable_since is None:
                origin.unreachable_since = now
            elif now - origin.unreachable_since > self._config.forget_after:
                forgotten.append(broker)
        for broker in forgotten:
            self._clear(self._origins[broker])
            del self._origins[broker]
        return forgotten


def newer(packet: LinkState | Interest, origin: Origin | None) -> bool:
    """Whether the packet says more than is known of this origin."""
    if origin is None:
        return True
    known = origin.links_version if isinstance(packet, LinkState) else origin.interest.version
    return (packet.incarnation, packet.version) > (origin.incarnation, known)


def cheapest_links(
    neighbours: Mapping[Link, AdjacentBroker], links: Mapping[Link, LinkInfo]
) -> dict[BrokerId, tuple[int, Link]]:
    """For each neighbour the cost of its cheapest link, and that link; of equal ones the first."""
    best: dict[BrokerId, tuple[int, Link]] = {}
    for link, neighbour in neighbours.items():
        info = links.get(link)
        offer = (1 if info is None else info.cost, link)
        best[neighbour.broker] = min(offer, best.get(neighbour.broker, offer))
    return best


def hash_of(versions: list[tuple[BrokerId, int, int, int]]) -> int:
    """The versions of all origins in 64 bits, the same in every process."""
    return int.from_bytes(blake2b(msgspec.msgpack.encode(versions), digest_size=8).digest(), "big")

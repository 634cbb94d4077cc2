"""How brokers learn who is there, how to get there, and who wants what.

State. Each broker is the *origin* of two facts: its neighbours (link state) and its clients' interest. Every broker
keeps the latest of both for every origin it knows, and a map made from the link states.

Messages. News is flooded: whoever learns something newer passes it on to its other neighbours. Floods get lost on lossy
links, so a Hello carries a hash of all versions that its sender knows; when hashes differ twice running, the receiver
sends a Summary of its versions, and the neighbour answers with whatever it has that is newer. A healthy network
therefore exchanges nothing but small Hellos, and any two neighbours agree within a few of them.

A neighbour is a broker whose Hello came over a link; any packet counts as a keepalive, so that a link crowded with data
does not look dead. It is lost when the link goes down or has been silent for `dead_after`. Only origins that can be
reached go into hashes and summaries: what is unreachable is kept for `forget_after` (a partition may heal) and then
dropped, and no neighbour brings it back.

A client that subscribes may ask when all brokers know of it: `confirmation` finds that out.

Timers. HELLO: send Hellos, look for dead neighbours, ask again for confirmations. ANNOUNCE: flood what changed here; a
short wait gathers changes that come together. READY: a client has waited long enough for all brokers.

Departure: the paper leaves the unicast routing protocol open (002 section 2.7); this one is ours. It re-announces by
hash instead of repeating everything (docs/decisions/0003-anti-entropy.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b

import msgspec

from penstock.content.predicate import Predicate
from penstock.errors import InvalidEncoding
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.config import RoutingConfig
from penstock.overlay.confirmation import Confirmations
from penstock.overlay.interest import OwnInterest, RemoteInterest, snapshot
from penstock.overlay.interest_form import EncodedForm, Entry, ExactForm, InterestForm
from penstock.overlay.packets import (
    BrokerId,
    Confirmation,
    ConfirmRequest,
    Hello,
    Interest,
    LinkState,
    ReadyRequest,
    Summary,
)
from penstock.overlay.records import NeighbourChanged
from penstock.overlay.topology import Topology, Way


class RoutingTimer(IntEnum):
    """The timers of routing."""

    HELLO = 0  # send Hellos, look for dead neighbours
    ANNOUNCE = 1  # flood what changed here
    READY = 2  # a client has waited long enough for all brokers


class _Neighbour:
    __slots__ = ("broker", "differed", "incarnation", "received_at")

    def __init__(self, broker: BrokerId, incarnation: int, now: float) -> None:
        self.broker = broker
        self.incarnation = incarnation
        self.received_at = now
        self.differed = False  # the last Hello's hash was not ours


class _Origin:
    """The latest that is known of one broker."""

    __slots__ = ("incarnation", "interest", "links", "links_version", "unreachable_since")

    def __init__(self, incarnation: int, interest: RemoteInterest, now: float) -> None:
        self.incarnation = incarnation
        self.links_version = 0
        self.links: tuple[tuple[BrokerId, int], ...] = ()
        self.interest = interest
        self.unreachable_since: float | None = now


class Routing:
    """The service that keeps a broker's picture of the network."""

    packet_kinds: tuple[type[Packet], ...] = (
        Hello,
        LinkState,
        Interest,
        Summary,
        ConfirmRequest,
        Confirmation,
        ReadyRequest,
    )

    def __init__(self, context: Context) -> None:
        self.broker: BrokerId = context.number
        self._config = context.settings(RoutingConfig)
        exact = self._config.interest == "exact"
        self.form: InterestForm = ExactForm() if exact else EncodedForm(context.scheme)
        self.own = OwnInterest(self.broker, context.incarnation, self.form)
        self._confirmations = Confirmations(self.broker, context.incarnation, self._name_of)
        self._incarnation = context.incarnation
        self._timers = context.timers
        self._random = context.random("hello")
        self._link_info = context.links
        self._links_up: dict[Link, None] = {}
        self._client_links: dict[Link, None] = {}
        self._neighbours: dict[Link, _Neighbour] = {}
        self._links_version = 0
        self._links: tuple[tuple[BrokerId, int], ...] = ()
        self._links_changed = False
        self._announcing = False
        self._origins: dict[BrokerId, _Origin] = {}
        self._interest_bytes = 0  # of all origins
        self._topology = Topology()
        self._ways: dict[BrokerId, Way] | None = {}
        self._link_to: dict[BrokerId, Link] = {}
        self._exits: dict[BrokerId, Link] | None = {}
        self._versions_hash: int | None = None

    # What the broker asks of it.

    def way(self, destination: BrokerId) -> Way | None:
        """The way to a broker, or None if there is none."""
        return self._all_ways().get(destination)

    def exits(self) -> Mapping[BrokerId, Link]:
        """The link to take for every broker that can be reached."""
        if self._exits is None:
            self._exits = {broker: self._link_to[way.neighbour] for broker, way in self._all_ways().items()}
        return self._exits

    def want(self, entries: Sequence[Entry], *, now: float) -> None:
        """A client of ours wants these."""
        self.own.want(entries)
        self._announce_soon(now)

    def unwant(self, entries: Sequence[Entry], *, now: float) -> None:
        """A client of ours no longer wants these."""
        self.own.unwant(entries)
        self._announce_soon(now)

    def entries(self, predicate: Predicate) -> tuple[Entry, ...]:
        """What the network hears of a predicate; raises InvalidEncoding if neighbours would not take it."""
        entries = self.form.entries(predicate)
        config = self._config
        if (
            len(self.own) + len(entries) > config.entries_per_broker_max
            or self.own.size_bytes + sum(map(len, entries)) > config.interest_bytes_per_broker_max
        ):
            raise InvalidEncoding("this broker holds as much interest as its neighbours take")
        return entries

    def client_attached(self, link: Link) -> None:
        """The other end of the link is a client: no Hellos for it."""
        self._client_links[link] = None

    def is_neighbour(self, link: Link) -> bool:
        """Whether a broker is known to be at the other end of the link."""
        return link in self._neighbours

    def view(self) -> tuple[dict[Link, BrokerId], int, int]:
        """For reports: the neighbour at each link, how many brokers can be reached, a hash of all versions we know."""
        neighbours = {link: neighbour.broker for link, neighbour in self._neighbours.items()}
        return neighbours, len(self._all_ways()), self._own_hash()

    def link_active(self, link: Link, *, now: float) -> None:
        """Anything at all came over the link."""
        neighbour = self._neighbours.get(link)
        if neighbour is not None:
            neighbour.received_at = now

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            if isinstance(packet, Hello):
                effects += self._hello(packet, sender, now)
            elif isinstance(packet, ReadyRequest):
                effects += self._ready_request(packet, sender, now)
            elif sender not in self._neighbours:
                continue  # it will say Hello first, and then tell us again
            elif isinstance(packet, LinkState):
                effects += self._link_state(packet, sender, now)
            elif isinstance(packet, Interest):
                effects += self._interest(packet, sender, now)
            elif isinstance(packet, Summary):
                effects += self._summary(packet, sender)
            elif isinstance(packet, ConfirmRequest):
                effects += self._confirm_request(packet, sender, now)
            elif isinstance(packet, Confirmation):
                effects += self._confirmations.confirmed(packet, sender, now=now)
        return effects

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if not up:
            self._links_up.pop(link, None)
            if self._client_links.pop(link, 0) is None:
                self._confirmations.client_left(link)
            return self._lose(link, "link down", now)
        if not self._links_up:
            self._timers.set(RoutingTimer.HELLO, now + self._random.random() * self._config.hello_interval)
        self._links_up[link] = None
        return [self._send_hello((link,))]

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        if timer == RoutingTimer.HELLO:
            return self._hello_due(now)
        if timer == RoutingTimer.ANNOUNCE:
            return self._announce(now)
        return self._confirmations.expire(now) + self._wake_for_the_waiting()

    # Neighbours.

    def _hello(self, packet: Hello, sender: Link, now: float) -> list[Effect]:
        problem = self._hello_problem(packet, sender)
        if problem:  # whoever was at the other end before is there no more
            return [InputRefused(sender=f"link {sender}", problem=problem), *self._lose(sender, "refused", now)]
        neighbour = self._neighbours.get(sender)
        if neighbour is None or (neighbour.broker, neighbour.incarnation) != (packet.broker, packet.incarnation):
            self._neighbours[sender] = _Neighbour(packet.broker, packet.incarnation, now)
            self._confirmations.neighbour_up(sender, packet.broker)
            self._neighbourhood_changed(now)
            fact = NeighbourChanged(neighbour=packet.broker, up=True, cause="hello")
            return [fact, self._send_hello((sender,)), self._send_summary(sender)]
        neighbour.received_at = now
        differs = packet.versions_hash != self._own_hash()
        effects: list[Effect] = [self._send_summary(sender)] if differs and neighbour.differed else []
        neighbour.differed = differs
        return effects

    def _hello_problem(self, packet: Hello, sender: Link) -> str:
        if packet.broker == self.broker:
            return f"broker id {packet.broker} is ours too; every broker needs an id of its own"
        if packet.scheme != self.form.fingerprint:
            return "the neighbour tells interest in another form; give both brokers the same interest and encoding"
        if sender in self._client_links:
            return "a client's link cannot turn into a broker's"
        if sender not in self._neighbours and len(self._neighbours) >= self._config.neighbours_max:
            return f"too many neighbours; the limit neighbours_max is {self._config.neighbours_max}"
        return ""

    def _lose(self, link: Link, cause: str, now: float) -> list[Effect]:
        neighbour = self._neighbours.pop(link, None)
        if neighbour is None:
            return []
        self._neighbourhood_changed(now)
        fact = NeighbourChanged(neighbour=neighbour.broker, up=False, cause=cause)
        return [fact, *self._confirmations.neighbour_down(link, now)]

    def _neighbourhood_changed(self, now: float) -> None:
        """Work out our own links anew: the cheapest link to each neighbour, then the first."""
        best: dict[BrokerId, tuple[int, Link]] = {}
        for link, neighbour in self._neighbours.items():
            info = self._link_info.get(link)
            offer = (1 if info is None else info.cost, link)
            best[neighbour.broker] = min(offer, best.get(neighbour.broker, offer))
        self._link_to = {broker: link for broker, (_, link) in best.items()}
        self._exits = None
        links = tuple(sorted((broker, cost) for broker, (cost, _) in best.items()))
        if links != self._links:
            self._links = links
            self._topology.claim(self.broker, dict(links))
            self._links_changed = True
            self._map_changed()
            self._announce_soon(now)

    def _hello_due(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for link, neighbour in list(self._neighbours.items()):
            if now - neighbour.received_at > self._config.dead_after:
                effects += self._lose(link, "silent", now)
        self._forget_unreachable(now)
        links = tuple(link for link in self._links_up if link not in self._client_links)
        if links:
            effects.append(self._send_hello(links))
        effects += self._confirmations.repeat(now)
        if self._links_up:
            self._timers.set(RoutingTimer.HELLO, now + self._config.hello_interval)
        return effects

    def _send_hello(self, links: tuple[Link, ...]) -> Send:
        hello = Hello(self.broker, self._incarnation, self.form.fingerprint, self._own_hash())
        return Send(links, hello, Lane.CONTROL)

    # Facts from other brokers.

    def _link_state(self, packet: LinkState, sender: Link, now: float) -> list[Effect]:
        origin, effects = self._origin_for(packet, now)
        if origin is None or packet.version <= origin.links_version:
            return effects
        origin.links_version = packet.version
        origin.links = packet.neighbours
        self._topology.claim(packet.origin, dict(packet.neighbours))
        self._map_changed()
        return effects + self._flood((packet,), sender)

    def _interest(self, packet: Interest, sender: Link, now: float) -> list[Effect]:
        origin, effects = self._origin_for(packet, now)
        if origin is None:
            return effects
        interest = origin.interest
        problem = self._room_problem(packet, interest)
        if packet.version > interest.version and problem is not None:
            return [*effects, problem]
        before = interest.held_bytes
        try:
            news = interest.apply(packet)
        except InvalidEncoding as error:
            return [*effects, InputRefused(sender=f"link {sender}", problem=str(error))]
        self._interest_bytes += interest.held_bytes - before
        if not news:
            return effects
        self._versions_hash = None
        effects += self._flood(news, sender)
        return effects + self._confirmations.learnt(packet.origin, packet.incarnation, interest.version, now=now)

    def _room_problem(self, packet: Interest, interest: RemoteInterest) -> LimitReached | None:
        """Which bound on interest this packet would break; a snapshot replaces what was there."""
        config = self._config
        entries, size_bytes = len(packet.added) * packet.parts, sum(map(len, packet.added))
        kept, kept_bytes = (len(interest), interest.size_bytes) if packet.base else (0, interest.parts_bytes)
        if kept + entries > config.entries_per_broker_max:
            return LimitReached(table="entries_per_broker_max", limit=config.entries_per_broker_max)
        if kept_bytes + size_bytes > config.interest_bytes_per_broker_max:
            return LimitReached(table="interest_bytes_per_broker_max", limit=config.interest_bytes_per_broker_max)
        if self._interest_bytes + size_bytes > config.interest_bytes_max:
            return LimitReached(table="interest_bytes_max", limit=config.interest_bytes_max)
        return None

    def _origin_for(self, packet: LinkState | Interest, now: float) -> tuple[_Origin | None, list[Effect]]:
        """The origin that the packet speaks of, in the life it speaks of; None if the packet is of no use."""
        if packet.origin == self.broker:
            ours = self._links_version if isinstance(packet, LinkState) else self.own.version
            if (packet.incarnation, packet.version) <= (self._incarnation, ours):
                return None, []
            problem = f"broker {self.broker} has a later life elsewhere; every broker needs an id of its own"
            return None, [InputRefused(sender=f"broker {packet.origin}", problem=problem)]
        origin = self._origins.get(packet.origin)
        if origin is None:
            if len(self._origins) >= self._config.brokers_max:
                return None, [LimitReached(table="brokers_max", limit=self._config.brokers_max)]
            interest = RemoteInterest(packet.origin, self.form)
            origin = self._origins[packet.origin] = _Origin(packet.incarnation, interest, now)
        elif packet.incarnation > origin.incarnation:
            origin.incarnation = packet.incarnation
            origin.links_version = 0
            self._clear_interest(origin)
            self._topology.forget(packet.origin)
            self._map_changed()
        return (origin if packet.incarnation == origin.incarnation else None), []

    def _clear_interest(self, origin: _Origin) -> None:
        self._interest_bytes -= origin.interest.held_bytes
        origin.interest.clear()

    def _flood(self, news: Sequence[Packet], sender: Link) -> list[Effect]:
        links = tuple(link for link in self._neighbours if link != sender)
        return [Send(links, packet, Lane.CONTROL) for packet in news] if links else []

    def _forget_unreachable(self, now: float) -> None:
        ways = self._all_ways()
        for broker, origin in list(self._origins.items()):
            if broker in ways:
                origin.unreachable_since = None
            elif origin.unreachable_since is None:
                origin.unreachable_since = now
            elif now - origin.unreachable_since > self._config.forget_after:
                self._clear_interest(origin)
                self._topology.forget(broker)
                self._confirmations.forget(broker)
                del self._origins[broker]

    # Facts of our own, and agreement with neighbours.

    def _announce_soon(self, now: float) -> None:
        """Within the delay; what changes meanwhile goes along and does not put it off."""
        if not self._announcing:
            self._announcing = True
            self._timers.set(RoutingTimer.ANNOUNCE, now + self._config.announce_delay)

    def _announce(self, now: float) -> list[Effect]:
        self._announcing = False
        news: list[Packet] = []
        if self._links_changed:
            self._links_changed = False
            self._links_version += 1
            news.append(LinkState(self.broker, self._incarnation, self._links_version, self._links))
        news += self.own.changes()
        self._versions_hash = None
        return self._flood(news, -1) + self._confirmations.announced(self.own.version, now)

    def _summary(self, packet: Summary, sender: Link) -> list[Effect]:
        """Send back whatever we know better, link states first, so that the way is known before the interest."""
        theirs = {broker: (incarnation, links, interest) for broker, incarnation, links, interest in packet.known}
        links: list[Packet] = []
        interests: list[Packet] = []
        for broker, incarnation, links_version, interest_version in self._known():
            their_incarnation, their_links, their_interest = theirs.get(broker, (-1, 0, 0))
            if incarnation < their_incarnation:
                continue
            later = incarnation > their_incarnation
            if links_version and (later or links_version > their_links):
                neighbours = self._links if broker == self.broker else self._origins[broker].links
                links.append(LinkState(broker, incarnation, links_version, neighbours))
            if interest_version and (later or interest_version > their_interest):
                source = self.own if broker == self.broker else self._origins[broker].interest
                interests += snapshot(broker, incarnation, interest_version, source.announced())
        return [Send((sender,), packet, Lane.CONTROL) for packet in links + interests]

    # Confirmation.

    def _ready_request(self, packet: ReadyRequest, sender: Link, now: float) -> list[Effect]:
        if sender not in self._client_links:
            return []
        ask = self._confirmations.ask
        effects = ask(sender, packet.ticket, packet.within, untold=self.own.untold, now=now)
        return effects + self._wake_for_the_waiting()

    def _wake_for_the_waiting(self) -> list[Effect]:
        deadline = self._confirmations.next_deadline()
        if deadline is not None:
            self._timers.set(RoutingTimer.READY, deadline)
        return []

    def _confirm_request(self, packet: ConfirmRequest, sender: Link, now: float) -> list[Effect]:
        origin = self._origins.get(packet.origin)
        if packet.origin != self.broker and (origin is None or origin.incarnation != packet.incarnation):
            return []  # its interest has not come yet; whoever waits asks again
        known = origin is not None and origin.interest.version >= packet.version
        return self._confirmations.requested(packet, sender, known=known, now=now)

    def _name_of(self, broker: BrokerId) -> str:
        """A neighbour's name; of others we know the number."""
        links = (link for link, neighbour in self._neighbours.items() if neighbour.broker == broker)
        info = self._link_info.get(next(links, -1))
        return f"broker {broker}" if info is None else info.peer

    # Agreement with neighbours.

    def _send_summary(self, link: Link) -> Send:
        return Send((link,), Summary(tuple(self._known())), Lane.CONTROL)

    def _known(self) -> list[tuple[BrokerId, int, int, int]]:
        """Our versions of every origin that we can reach, ourselves included."""
        known = [(self.broker, self._incarnation, self._links_version, self.own.version)]
        ways = self._all_ways()
        for broker, origin in self._origins.items():
            if broker in ways:
                known.append((broker, origin.incarnation, origin.links_version, origin.interest.version))
        return sorted(known)

    def _own_hash(self) -> int:
        if self._versions_hash is None:
            data = msgspec.msgpack.encode(self._known())
            self._versions_hash = int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
        return self._versions_hash

    def _all_ways(self) -> dict[BrokerId, Way]:
        if self._ways is None:
            self._ways = self._topology.ways_from(self.broker)
        return self._ways

    def _map_changed(self) -> None:
        self._ways = None
        self._exits = None
        self._versions_hash = None

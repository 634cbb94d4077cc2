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

Lies and floods. What others say of a neighbour counts for nothing while the neighbour itself is there; a false later
life of ours is outbid (`_outbid`); implausible lives, strangers and work beyond a neighbour's budget are left out
(`guard`).

A client that subscribes may ask when all brokers know of it: `confirmation` finds that out.

Timers. HELLO: send Hellos, look for dead neighbours, ask again for confirmations. ANNOUNCE: flood what changed here; a
short wait gathers changes that come together. READY: a client has waited long enough for all brokers. NEWS: the next of
others' changes of interest has its turn; a burst of them must not keep messages waiting.

Departure: the paper leaves the unicast routing protocol open (002 section 2.7); this one is ours. It re-announces by
hash instead of repeating everything (docs/decisions/0003-anti-entropy.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from penstock.content.predicate import Predicate
from penstock.errors import InvalidEncoding
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.paced_queue import PacedQueue
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.overlay.config import RoutingConfig
from penstock.overlay.confirmation import Confirmations
from penstock.overlay.guard import CONFIRM_RATE, HELLO_SLACK, NEWS_WAITING_MAX, OUTBID_EVERY, Guard, news_in, work_of
from penstock.overlay.interest import OwnInterest, ReadEntry, read_entries, snapshot
from penstock.overlay.interest_form import Entry, interest_form
from penstock.overlay.origins import AdjacentBroker, Origin, Origins, cheapest_links, hash_of, newer
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
from penstock.overlay.timers import RoutingTimer
from penstock.overlay.topology import Topology, Way


class Routing:
    """The service that keeps a broker's picture of the network."""

    packet_kinds = (Hello, LinkState, Interest, Summary, ConfirmRequest, Confirmation)

    def __init__(self, context: Context) -> None:
        self.broker: BrokerId = context.number
        self._config = context.settings(RoutingConfig)
        self.form = interest_form(self._config.interest, context.scheme)
        self.own = OwnInterest(self.broker, context.incarnation, self.form)
        self._confirmations = Confirmations(self.broker, context.incarnation, self._name_of)
        self.incarnation = context.incarnation
        self._timers = context.timers
        self._random = context.random("hello")
        self._link_info = context.links
        self._guard = Guard(self._config, None if context.brokers is None else context.brokers.values())
        self._news = PacedQueue[Interest](self._config.work_rate, self._config.work_burst, NEWS_WAITING_MAX)
        self._rival = -1  # the latest life that somebody else claims to be ours
        self._outbid_at = -inf
        self._anew = False  # all facts of ours must be announced, not only what changed
        self._links_up: dict[Link, None] = {}
        self._client_links: dict[Link, None] = {}
        self._neighbours: dict[Link, AdjacentBroker] = {}
        self._links_version = 0
        self._links: tuple[tuple[BrokerId, int], ...] = ()
        self._links_changed = False
        self._announcing = False
        self.origins = Origins(self.form, self._config, self._guard)
        self.topology = Topology()
        self._ways: dict[BrokerId, Way] = {}
        self._map_stale = False  # the ways are those of an older map
        self._now = 0.0  # the time of the latest input
        self.link_to: dict[BrokerId, Link] = {}
        self._exits: dict[BrokerId, Link] | None = {}
        self._versions_hash: int | None = None

    # What the broker asks of it.

    def way(self, destination: BrokerId) -> Way | None:
        """The way to a broker, or None if there is none."""
        return self._all_ways().get(destination)

    def exits(self) -> Mapping[BrokerId, Link]:
        """The link to take for every broker that can be reached."""
        if self._map_stale or self._exits is None:
            ways, links = self._all_ways(), self.link_to
            if self._exits is None:
                self._exits = {to: links[way.neighbour] for to, way in ways.items() if way.neighbour in links}
        return self._exits

    def want(self, entries: Sequence[ReadEntry], *, now: float) -> None:
        """A client of ours wants these."""
        self.own.want(entries)
        self._announce_soon(now)

    def unwant(self, entries: Sequence[Entry], *, now: float) -> None:
        """A client of ours no longer wants these."""
        self.own.unwant(entries)
        self._announce_soon(now)

    @property
    def room(self) -> int:
        """How much interest of our clients neighbours accept."""
        return self._config.interest_room_per_broker_max

    def entries(self, predicate: Predicate) -> list[ReadEntry]:
        """What the network hears of a predicate; raises InvalidEncoding if neighbours would not take it."""
        entries = read_entries(self.form.entries(predicate), self.form)
        if self.own.room + sum(entry.room for entry in entries) > self.room:
            raise InvalidEncoding("this broker holds as much interest as its neighbours take")
        return entries

    def client_attached(self, link: Link) -> None:
        """The other end of the link is a client: no Hellos for it."""
        self._client_links[link] = None

    def is_neighbour(self, link: Link) -> bool:
        """Whether a broker is known to be at the other end of the link."""
        return link in self._neighbours

    def neighbour(self, link: Link) -> AdjacentBroker | None:
        """The broker at the other end of the link, if there is one."""
        return self._neighbours.get(link)

    def view(self) -> tuple[dict[Link, BrokerId], int, int]:
        """For reports: the neighbour at each link, how many brokers can be reached, a hash of all versions we know."""
        neighbours = {link: neighbour.broker for link, neighbour in self._neighbours.items()}
        return neighbours, len(self._all_ways()), self._own_hash()

    def link_active(self, link: Link, *, now: float) -> None:
        """Anything at all came over the link."""
        self._now = now
        neighbour = self._neighbours.get(link)
        if neighbour is not None:
            neighbour.received_at = now

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self._now = now
        effects: list[Effect] = []
        for packet in packets:
            if isinstance(packet, Hello):
                effects += self._hello(packet, sender, now)
            elif sender not in self._neighbours:
                continue  # it will say Hello first, and then tell us again
            elif not self._guard.news(sender, 1 if self.origins.knows(packet) else news_in(packet), now):
                effects += self._guard.limit("news_rate", int(self._config.news_rate), sender, now)
            elif isinstance(packet, LinkState):
                effects += self._link_state(packet, sender, now)
            elif isinstance(packet, Interest):
                if not self._news.put(sender, packet, work_of(packet)):
                    effects += self._guard.limit("news_waiting_max", NEWS_WAITING_MAX, sender, now)
            elif isinstance(packet, Summary):
                effects += self._summary(packet, sender, now)
            elif isinstance(packet, ConfirmRequest):
                effects += self._confirm_request(packet, sender, now)
            elif isinstance(packet, Confirmation):
                effects += self._confirmations.confirmed(packet, sender, now=now)
        return effects + self._take_news(now)

    def _take_news(self, now: float) -> list[Effect]:
        """The changes of interest whose turn it is."""
        taken = self._news.take(now)
        effects = [effect for sender, packet in taken for effect in self._interest(packet, sender, now)]
        ready_at = self._news.ready_at()
        if ready_at is not None:
            self._timers.set(RoutingTimer.NEWS, ready_at)
        return effects

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self._now = now
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
        self._now = now
        if timer == RoutingTimer.HELLO:
            return self._hello_due(now)
        if timer == RoutingTimer.ANNOUNCE:
            return self._announce(now)
        if timer == RoutingTimer.NEWS:
            return self._take_news(now)
        effects = self._confirmations.expire(now)
        self._wake_for_the_waiting()
        return effects

    # Neighbours.

    def _hello(self, packet: Hello, sender: Link, now: float) -> list[Effect]:
        problem = self._hello_problem(packet, sender, now)
        if problem:  # whoever was at the other end before is there no more
            return [*self._guard.refusal(sender, problem, now), *self._lose(sender, "refused", now)]
        neighbour = self._neighbours.get(sender)
        if neighbour is None or (neighbour.broker, neighbour.incarnation) != (packet.broker, packet.incarnation):
            if neighbour is not None and not self._guard.later_life(sender, now):
                return self._guard.limit("later lives", self._guard.lives_burst, sender, now)
            self._neighbours[sender] = AdjacentBroker(packet.broker, packet.incarnation, now)
            self._confirmations.neighbour_up(sender, packet.broker)
            self._neighbourhood_changed(now)
            fact = NeighbourChanged(neighbour=packet.broker, up=True, cause="hello")
            return [fact, self._send_hello((sender,)), *self._send_summary(sender, now)]
        neighbour.received_at = now
        differs = packet.versions_hash != self._own_hash()
        ask = differs and neighbour.differed and not self._news.waits(sender)  # what waits may be what is missing
        effects = self._send_summary(sender, now) if ask else []
        neighbour.differed = differs
        return effects

    def _hello_problem(self, packet: Hello, sender: Link, now: float) -> str:
        if packet.broker == self.broker:
            return f"broker id {packet.broker} is ours too; every broker needs an id of its own"
        info = self._link_info.get(sender)
        if info is not None and info.broker not in (None, packet.broker):
            return f"broker id {packet.broker}, and the plan has broker {info.broker} ('{info.peer}') at this link"
        if not self._guard.plausible(packet.incarnation, now, slack=HELLO_SLACK):
            return f"broker {packet.broker} claims a life that begins in the future: set the clocks of both brokers"
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
        self._news.drop(link)
        self._neighbourhood_changed(now)
        effects: list[Effect] = [NeighbourChanged(neighbour=neighbour.broker, up=False, cause=cause)]
        effects += self._confirmations.neighbour_down(link, now)
        if neighbour.hearsay and neighbour.broker not in self.link_to:
            for other in self._neighbours:
                effects += self._send_summary(other, now)  # now we believe what others say of it
        return effects

    def _neighbourhood_changed(self, now: float) -> None:
        """Work out our own links anew: the cheapest link to each neighbour, then the first."""
        best = cheapest_links(self._neighbours, self._link_info)
        self.link_to = {broker: link for broker, (_, link) in best.items()}
        self._exits = None
        links = tuple(sorted((broker, cost) for broker, (cost, _) in best.items()))
        if links != self._links:
            self._links = links
            self.topology.claim(self.broker, dict(links))
            self._links_changed = True
            self._map_changed()
            self._announce_soon(now)

    def _hello_due(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for link, neighbour in list(self._neighbours.items()):
            if now - neighbour.received_at > self._config.dead_after:
                effects += self._lose(link, "silent", now)
        for broker in self.origins.forget_unreachable(self._all_ways(), now):
            self.topology.forget(broker)
            self._confirmations.forget(broker)
        self._outbid(now)
        links = tuple(link for link in self._links_up if link not in self._client_links)
        if links:
            effects.append(self._send_hello(links))
        effects += self._confirmations.repeat(now)
        if self._links_up:
            self._timers.set(RoutingTimer.HELLO, now + self._config.hello_interval)
        return effects

    def _send_hello(self, links: tuple[Link, ...]) -> Send:
        hello = Hello(self.broker, self.incarnation, self.form.fingerprint, self._own_hash())
        return Send(links, hello, Lane.CONTROL)

    # Facts from other brokers.

    def _link_state(self, packet: LinkState, sender: Link, now: float) -> list[Effect]:
        limit = self._config.neighbours_max
        if len(packet.neighbours) > limit:
            return self._guard.limit("neighbours_max", limit, sender, now)
        origin, effects = self._origin_for(packet, sender, now)
        if origin is None or packet.version <= origin.links_version:
            return effects
        origin.links_version = packet.version
        origin.links = packet.neighbours
        self.topology.claim(packet.origin, dict(packet.neighbours))
        self._map_changed()
        return effects + self._flood((packet,), sender)

    def _interest(self, packet: Interest, sender: Link, now: float) -> list[Effect]:
        origin, effects = self._origin_for(packet, sender, now)
        if origin is None or packet.version <= origin.interest.version:
            return effects
        try:
            read = read_entries(packet.added, self.form)
        except InvalidEncoding as error:
            return effects + self._guard.refusal(sender, str(error), now)
        table, limit = self.origins.interest_limit(packet, origin, read)
        if table:
            return effects + self._guard.limit(table, limit, sender, now)
        news = self.origins.apply(packet, origin, read)
        if not news:
            return effects
        self._versions_hash = None
        effects += self._flood(news, sender)
        return effects + self._confirmations.learnt(packet.origin, packet.incarnation, packet.version, now=now)

    def _origin_for(self, packet: LinkState | Interest, sender: Link, now: float) -> tuple[Origin | None, list[Effect]]:
        """The origin that the packet speaks of, in the life it speaks of; None if the packet is of no use."""
        if packet.origin == self.broker:
            return None, self._of_ourselves(packet, sender, now)
        if not self._guard.plausible(packet.incarnation, now):
            problem = f"a life of broker {packet.origin} that begins in the future: set the clocks of all brokers"
            return None, self._guard.refusal(sender, problem, now)
        origin = self.origins.get(packet.origin)
        if packet.origin in self.link_to and self._neighbours[sender].broker != packet.origin:
            return None, self._hearsay(packet, origin)
        if origin is None:
            table, limit = self.origins.full_table(packet.origin)
            if table:
                return None, self._guard.limit(table, limit, sender, now)
            origin = self.origins.add(packet.origin, packet.incarnation, now)
        elif packet.incarnation > origin.incarnation:
            if not self._guard.later_life(sender, now):
                return None, self._guard.limit("later lives", self._guard.lives_burst, sender, now)
            self.origins.later_life(origin, packet.incarnation, now)
            self._versions_hash = None
        return (origin if packet.incarnation == origin.incarnation else None), []

    def _hearsay(self, packet: LinkState | Interest, origin: Origin | None) -> list[Effect]:
        """Of a neighbour we believe what it says itself; it learns what others say of it, and can outbid that."""
        if not newer(packet, origin):
            return []
        link = self.link_to[packet.origin]
        self._neighbours[link].hearsay = True
        return [Send((link,), packet, Lane.CONTROL)]

    def _of_ourselves(self, packet: LinkState | Interest, sender: Link, now: float) -> list[Effect]:
        """Our own words come back; or somebody else speaks in our name, and must be outbid."""
        ours = self._links_version if isinstance(packet, LinkState) else self.own.version
        if (packet.incarnation, packet.version) <= (self.incarnation, ours):
            return []
        if self._guard.plausible(packet.incarnation, now):  # nobody else believes any other
            self._rival = max(self._rival, packet.incarnation)
            self._outbid(now)
        problem = f"broker {self.broker} has a later life elsewhere; every broker needs an id of its own"
        return self._guard.refusal(sender, problem, now)

    def _outbid(self, now: float) -> None:
        """Begin a life that is later than the latest that others claim, and say everything again."""
        if self._rival >= self.incarnation and not 0.0 <= now - self._outbid_at < OUTBID_EVERY:
            self._outbid_at = now
            self.incarnation = self.own.incarnation = self._rival + 1
            self._confirmations.restart(self.incarnation)
            self._anew = True
            self._versions_hash = None
            self._announce_soon(now)

    def _flood(self, news: Sequence[Packet], sender: Link) -> list[Effect]:
        links = tuple(link for link in self._neighbours if link != sender)
        return [Send(links, packet, Lane.CONTROL) for packet in news] if links else []

    # Facts of our own, and agreement with neighbours.

    def _announce_soon(self, now: float) -> None:
        """Within the delay; what changes meanwhile goes along and does not put it off."""
        if not self._announcing:
            self._announcing = True
            self._timers.set(RoutingTimer.ANNOUNCE, now + self._config.announce_delay)

    def _announce(self, now: float) -> list[Effect]:
        self._announcing = False
        news: list[Packet] = []
        anew, self._anew = self._anew, False
        if self._links_changed or anew:
            self._links_changed = False
            self._links_version += 1
            news.append(LinkState(self.broker, self.incarnation, self._links_version, self._links))
        changes = list(self.own.changes())
        if anew and self.own.version:
            version, wanted = self.own.version, self.own.announced()
            changes = snapshot(self.broker, self.incarnation, version, wanted)
        news += changes
        self._versions_hash = None
        return self._flood(news, -1) + self._confirmations.announced(self.own.version, now)

    def _summary(self, packet: Summary, sender: Link, now: float) -> list[Effect]:
        """Send back whatever we know better, link states first, so that the way is known before the interest."""
        if not self._guard.answer(sender, 0, now):
            return self._guard.limit("news_rate", int(self._config.news_rate), sender, now)
        theirs = {broker: (incarnation, links, interest) for broker, incarnation, links, interest in packet.known}
        links: list[Packet] = []
        interests: list[Packet] = []
        for broker, incarnation, links_version, interest_version in self._known():
            their_incarnation, their_links, their_interest = theirs.get(broker, (-1, 0, 0))
            if incarnation < their_incarnation:
                continue
            later = incarnation > their_incarnation
            if links_version and (later or links_version > their_links):
                neighbours = self._links if broker == self.broker else self.origins[broker].links
                links.append(LinkState(broker, incarnation, links_version, neighbours))
            if interest_version and (later or interest_version > their_interest):
                source = self.own if broker == self.broker else self.origins[broker].interest
                if not self._guard.answer(sender, len(source) or 1, now):
                    continue  # it will ask again
                interests += snapshot(broker, incarnation, interest_version, source.announced())
        return [Send((sender,), packet, Lane.CONTROL) for packet in links + interests]

    def tell_when_ready(self, packet: ReadyRequest, sender: Link, now: float) -> list[Effect]:
        """A client wants to know when all brokers know what it has subscribed to."""
        effects = self._confirmations.ask(sender, packet.ticket, packet.within, untold=self.own.untold, now=now)
        self._wake_for_the_waiting()
        return effects

    def _wake_for_the_waiting(self) -> None:
        deadline = self._confirmations.next_deadline()
        if deadline is not None:
            self._timers.set(RoutingTimer.READY, deadline)

    def _confirm_request(self, packet: ConfirmRequest, sender: Link, now: float) -> list[Effect]:
        if not self._guard.confirm(sender, now):
            return self._guard.limit("CONFIRM_RATE", int(CONFIRM_RATE), sender, now)
        origin = self.origins.get(packet.origin)
        if packet.origin != self.broker and (origin is None or origin.incarnation != packet.incarnation):
            return []  # its interest has not come yet; whoever waits asks again
        known = origin is None or origin.interest.version >= packet.version
        return self._confirmations.requested(packet, sender, known=known, now=now)

    def _name_of(self, broker: BrokerId) -> str:
        """A neighbour's name; of others we know the number."""
        info = self._link_info.get(self.link_to.get(broker, -1))
        return f"broker {broker}" if info is None else info.peer

    def _send_summary(self, link: Link, now: float) -> list[Effect]:
        if not self._guard.summary(link, now):
            return []
        return [Send((link,), Summary(tuple(self._known())), Lane.CONTROL)]

    def _known(self) -> list[tuple[BrokerId, int, int, int]]:
        """Our versions of every origin that we can reach, ourselves included."""
        known = [(self.broker, self.incarnation, self._links_version, self.own.version)]
        ways = self._all_ways()
        for broker, origin in self.origins.items():
            if broker in ways:
                known.append((broker, origin.incarnation, origin.links_version, origin.interest.version))
        return sorted(known)

    def _own_hash(self) -> int:
        self._all_ways()
        if self._versions_hash is None:
            self._versions_hash = hash_of(self._known())
        return self._versions_hash

    def _all_ways(self) -> dict[BrokerId, Way]:
        """By the latest map; by an older one, while there is more news than there is time to work it out."""
        if self._map_stale and self._guard.map(self.topology.lines, self._now):
            self._map_stale = False
            before, self._ways = self._ways, self.topology.ways_from(self.broker)
            if self._ways.keys() - before.keys():
                self._confirmations.doubt()
            self._exits = None
            self._versions_hash = None
        return self._ways

    def _map_changed(self) -> None:
        self._map_stale = True
        self._versions_hash = None

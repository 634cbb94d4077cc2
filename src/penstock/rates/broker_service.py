"""Fair rates at brokers: each measures its own links, tells the homes of those who send, and thins for its own clients.

Follow one link:
1. Every copy that goes to a neighbour is noted, and at each interval the link's rate is worked out anew (`own_links`).
2. `_tell`: a rate that has changed goes to the homes of those who send.
3. `receive`: a rate that comes from the neighbour on the way to its origin is kept (`rate_table`), and passed on to the
   neighbours that send over that link.

Follow one message of our own client:
1. `_admit`: a client that begins to send, or sends much more than before, waits a moment (`slow_start`).
2. Brokers behind links that the client cannot pay are left out of its set, or the message waits for its share
   (`sharing`); what was left out is counted (`withheld`).

The link to a client is a link too: one that is slow, or whose client reads slowly, is thinned here (`edge_service`).

Only applications' messages of the lanes best effort and transport are regulated. Streams and priced content have a
control of their own; they and all control are counted as what a link does not have for others.

State: that of the parts. Bounds: theirs. Timers: MEASURE while links carry something; SERVE for each client of whom
something waits; TELL while something withheld is not told, or a reader is slow; READ for slow readers, LOOK
while links to clients are slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Hold, Release, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused
from penstock.overlay.broker import Broker, Leaving
from penstock.overlay.egress import OURSELVES
from penstock.overlay.packets import BrokerId, Publish
from penstock.overlay.routing import Routing
from penstock.overlay.spanning_tree import Hop
from penstock.rates.config import RatesConfig, WhenFull
from penstock.rates.edge import ReaderKey
from penstock.rates.edge_service import EdgeService
from penstock.rates.home import Home
from penstock.rates.own_links import OwnLinks
from penstock.rates.packets import (
    RATE_MAX,
    RATE_MIN,
    ClientTerms,
    LinkRate,
    RateHeard,
    ReaderRate,
    ReadersWithheld,
    WithheldFrom,
)
from penstock.rates.rate_table import RateTable
from penstock.rates.rated_link import RatedEgress
from penstock.rates.records import ReaderThinned
from penstock.rates.regulated import LANES, regulated, regulated_lanes, tells_of_data
from penstock.rates.sharing import Copy
from penstock.rates.status import RatesStatus, WithheldReport
from penstock.rates.telling import Telling
from penstock.rates.timers import RatesTimer
from penstock.rates.way_links import WayLinks
from penstock.rates.withheld import records

SERVE_AGAIN = 1e-5  # seconds: a client that was served is not served again at the same moment
TELL_EVERY = 1.0
TELL_FIRST = 0.1  # seconds after something was withheld, if nothing was for longer than that
TOLD_MAX = 50  # of what was withheld, in a report
HEARD_EVERY = 10.0  # seconds, of one link
ANSWERS_RATE = 1_000.0
COMPLAINTS_RATE, COMPLAINTS_BURST = 1.0, 20.0


class RatesBroker:
    """The machine of brokers."""

    packet_kinds: tuple[type[Packet], ...] = (
        *(LinkRate, RateHeard, ReaderRate, ClientTerms),
        *(WithheldFrom, ReadersWithheld),
    )

    def __init__(self, context: Context) -> None:
        self._config = context.settings(RatesConfig)
        self._routing = context.below(Routing)
        self._broker = context.below(Broker)
        self._links = context.links
        self._node = context.node
        self._timers = context.timers
        self._traced = context.traced
        self._names = {number: name for name, number in (context.brokers or {}).items()}
        self._rates = RateTable(self._config.expire_after)
        self._lanes = regulated_lanes(context.node)
        self._home = Home(self._config, self._rates, context.random("purses"), self._lanes)
        self._edge = EdgeService(self._config, self._broker, context.links, context.node, context.timers)
        self._own = OwnLinks(self._config, self._broker, context.links, context.node, context.timers)
        self._tell_at: float | None = None  # when it is told next
        self._told_at = -inf
        self._telling_of = Telling(self._routing, self._broker, self._rates, self._own.upstream, self._name)
        self._map: Mapping[BrokerId, Link] | None = None
        self._ways = WayLinks((), self._routing.broker)
        self._complaints = TokenBucket(COMPLAINTS_RATE, COMPLAINTS_BURST, 0.0)
        self._answers = TokenBucket(ANSWERS_RATE, ANSWERS_RATE, 0.0)  # that we take or pass on
        self._now = 0.0
        if self._config.enabled:
            self._broker.admit = self._admit

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            if not self._config.enabled:
                continue
            if isinstance(packet, LinkRate):
                effects += self._told(packet, sender, now)
            elif isinstance(packet, RateHeard):
                effects += self._heard(packet, sender, now)
            elif isinstance(packet, ReaderRate):
                effects += self._edge.told(packet, sender, now)
                self._tell_soon(now)
            elif isinstance(packet, WithheldFrom):
                effects += self._telling_of.told(packet, sender, now)
            elif isinstance(packet, ReadersWithheld):
                effects += self._telling_of.readers(packet, sender, now)
            elif isinstance(packet, ClientTerms) and self._broker.attached(sender) is not None:
                self._agree(packet.when_full, sender)
                if packet.keep == "newest":
                    self._edge.keep_newest(sender)
        return effects

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up:
            self._home.client_came(link)
            return []
        self._own.link_down(link)
        self._edge.link_down(link)
        leaving = self._home.client_gone(link, self._ways.to, now)
        self._timers.cancel(RatesTimer.SERVE, link)
        self._arm(link, now)
        return [effect for copy in leaving for effect in self._broker.forward(*copy, now)]

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        self._now = now
        if timer == RatesTimer.MEASURE:
            return self._measure(now)
        if timer == RatesTimer.TELL:
            self._tell_at = None
            return self._tell_of_withheld(now)
        if timer == RatesTimer.READ:
            return self._edge.expired(ReaderKey(int(key[0]), int(key[1])), now)
        if timer == RatesTimer.LOOK:
            self._tell_soon(now)
            return self._edge.look(now)
        client = int(key[0])
        self._see_map()
        leaving = self._home.serve(client, self._ways.to, now)
        held = self._home.credit_change(client)
        self._arm(client, now, least=SERVE_AGAIN)
        effects = [effect for copy in leaving for effect in self._broker.forward(*copy, now)]
        if held is not None:
            change = Hold if held else Release
            effects += [change(client, lane) for lane in LANES]
        return effects

    # Our own links.

    def _measure(self, now: float) -> list[Effect]:
        """Look at our links, and tell the rates of busy ones."""
        effects: list[Effect] = []
        for link, rated, rate in self._own.measure(now):
            neighbour = self._routing.neighbour(link)
            if neighbour is not None:
                effects += self._tell((self._routing.broker, neighbour.broker), rated, rate, now)
        return effects

    def _tell(self, hop: Hop, rated: RatedEgress, rate: float, now: float) -> list[Effect]:
        """Our link's rate, to our own clients and to the neighbours that send over it."""
        life, version = self._routing.incarnation, rated.announcer.version
        rate = min(RATE_MAX, max(RATE_MIN, rate))
        self._hear(hop, life, version, rate, now)
        effects = self._pass_on(LinkRate(hop[0], life, hop[1], version, rate), OURSELVES, now)
        if self._traced:
            effects.append(rated.record(hop[1]))
        return effects

    # Others' links.

    def _told(self, packet: LinkRate, sender: Link, now: float) -> list[Effect]:
        """Somebody's link has a rate: keep it, and pass it on."""
        known = self._routing.origins.get(packet.origin)
        if known is None or known.incarnation != packet.life or not self._routing.is_neighbour(sender):
            return []  # the map is behind
        hop = (packet.origin, packet.neighbour)
        problem = ""
        if self._routing.exits().get(packet.origin) != sender:
            problem = f"it tells a rate of broker {packet.origin}, to which it is not the way"
        elif not self._routing.topology.has_line(*hop):
            problem = f"it tells a rate of a link from broker {packet.origin} to {packet.neighbour}, which is not there"
        if problem:
            info = self._links.get(sender)
            name = info.peer if info is not None else f"link {sender}"
            return [InputRefused(name, problem)] if self._complaints.take(now) else []
        if not self._hear(hop, packet.life, packet.version, packet.rate, now):
            return []
        return self._pass_on(packet, sender, now)

    def _hear(self, hop: Hop, life: int, version: int, rate: float, now: float) -> bool:
        """Keep the rate of a link, if it is news; who waits for it may be served sooner."""
        self._home.expire(now)
        if not self._rates.hear(hop, life, version, rate, now):
            return False
        for client in self._home.rate_changed(hop, now):
            self._arm(client, now)
        return True

    def _pass_on(self, packet: LinkRate, source: Link, now: float) -> list[Effect]:
        self._see_map()
        hop, ways = (packet.origin, packet.neighbour), self._ways
        feeding = self._own.upstream.feeding(lambda broker: hop in ways.to(broker), now)
        links = tuple(link for link in feeding if link != source and self._routing.is_neighbour(link))
        effects: list[Effect] = [Send(links, packet, Lane.CONTROL)] if links else []
        if OURSELVES in feeding and source != OURSELVES and self._rates.answers(hop, HEARD_EVERY, now):
            heard = RateHeard(*hop, packet.version, self._routing.broker)
            effects.append(Send((source,), heard, Lane.CONTROL))
        return effects

    def _heard(self, packet: RateHeard, sender: Link, now: float) -> list[Effect]:
        """A home has heard of a link's rate: of one of ours, or we pass it on to whose link it is."""
        if not self._routing.is_neighbour(sender) or not self._answers.take(now):
            return []
        if packet.origin != self._routing.broker:
            onward = self._routing.exits().get(packet.origin, sender)
            return [Send((onward,), packet, Lane.CONTROL)] if onward != sender else []
        rated = self._own.rated.get(self._routing.link_to.get(packet.neighbour, -1))
        if rated is not None and self._routing.exits().get(packet.home) == sender:
            rated.trips.heard(packet.version, packet.home, now)
        return []

    # Our own clients.

    def _admit(
        self, packets: Sequence[Publish], found: Sequence[tuple[BrokerId, ...]], client: Link, now: float
    ) -> Leaving | None:
        """What leaves now of a client's messages and of earlier ones; None if just these do, which is usual."""
        self._now = now
        self._see_map()
        exits, way = self._routing.exits(), self._ways.to
        if self._home.passes(client, packets, found, exits, way, now):
            return None
        leaving: Leaving = []
        for packet, destinations in zip(packets, found, strict=True):
            copy = Copy(packet.message, packet.lane, destinations)
            if destinations and (
                regulated(packet.message, packet.lane, self._lanes)
                or tells_of_data(packet.message, packet.lane, self._lanes)
            ):
                leaving += self._home.admit(client, copy, exits, way, now)
            elif destinations:
                leaving.append(copy)
        self._arm(client, now)
        return leaving

    def _agree(self, when_full: WhenFull, client: Link) -> None:
        """Who waits must be held, and that takes credit: without it, what finds no room is thinned."""
        held = all(self._node.keeps_credit(client, lane) for lane in LANES)
        self._home.agree(client, when_full if held or when_full != "wait" else "thin")

    def _arm(self, client: Link, now: float, *, least: float = 0.0) -> None:
        ready_at = self._home.rearmed(client, now)
        if ready_at is not None:
            self._timers.set(RatesTimer.SERVE, max(now + least, ready_at), client)
        self._tell_soon(now)

    def _tell_soon(self, now: float) -> None:
        withheld = self._home.withheld
        set_back = self._tell_at is not None and self._tell_at > now + TELL_EVERY
        if (withheld or self._edge or self._telling_of) and (withheld.full or self._tell_at is None or set_back):
            soon = max(now + TELL_FIRST, min(self._told_at, now) + TELL_EVERY)
            self._tell_at = now if withheld.full else soon
            self._timers.set(RatesTimer.TELL, self._tell_at)

    def _tell_of_withheld(self, now: float) -> list[Effect]:
        """Sum up what was withheld: for the trace, for publishers, and for those who did not get it."""
        self._now = self._told_at = now
        effects = self._edge.expire(now)
        taken, readers = self._home.withheld.take(now), self._edge.take(self._telling_of.may_tell, now)
        effects += records(taken)
        effects += [
            ReaderThinned(one.client, one.subscription, one.messages.messages, one.messages.since) for one in readers
        ]
        effects += self._telling_of.withheld(taken, now)
        effects += self._telling_of.from_readers(readers, now)
        self._tell_soon(now)
        return effects

    def _see_map(self) -> None:
        exits = self._routing.exits()
        if exits is not self._map:
            self._map = exits
            self._ways = WayLinks(self._routing.topology.all_lines(), self._routing.broker)
            self._home.forget_ways()

    # Reports.

    def status(self) -> RatesStatus:
        links = {}
        for link, rated in self._own.rated.items():
            neighbour, said = self._routing.neighbour(link), rated.status()
            if neighbour is not None and said is not None:
                links[self._name(neighbour.broker)] = said
        links |= self._edge.slow_links()
        lately = sorted(self._home.withheld.lately(self._now), key=lambda entry: (-entry[1].messages, entry[0]))
        withheld = [
            WithheldReport(
                publisher=key.publisher,
                link=(self._name(key.hop[0]), self._name(key.hop[1])),
                rate=self._rates.rate(key.hop),
                destination=self._name(key.destination),
                messages=count.messages,
                size_bytes=count.size_bytes,
                seconds=max(0.0, self._now - count.since),
            )
            for key, count in lately[:TOLD_MAX]
        ]
        sums = (self._home.withheld.messages, self._home.waiting())
        return RatesStatus(links, withheld, *sums, self._edge.lately(self._now)[:TOLD_MAX], self._edge.withheld)

    def _name(self, broker: BrokerId) -> str:
        return self._names.get(broker, str(broker))

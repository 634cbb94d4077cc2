"""Retrieval at brokers: a mediation router beside the broker, with packets, clients and a store around it (004 3.3).

Follow one publication and one interest:
1. `uploaded`: what a broker's own client publishes, and `keep` says, waits in line while nobody asks for anything. It
   goes into the cache when the first interest comes, or at once where there are some (`_catch_up`).
2. `_request`: a client asks. Its broker names the interest, serves it from its cache and tells its neighbours what is
   left to ask for; they do the same. Answers come back hop by hop.
3. New publications that fit a pending interest are multicast along the ways that interests came.
4. At the end of the lifetime the client asks again, and says that the chain goes on: it gets nothing twice (Req 1).

When the map changes, interests that are not satisfied are asked for anew (`renewal`), so that broken ways mend.

Moves: a client says which home, and which life of its cache, its chain had last. If it was another, the chain counts as
moved now; a restart without a stored cache is another life too.

State: the router's tables, chains, sessions with neighbours, uploads that wait. Bounds: cache_size and item_bytes_max,
interests_max, interests_per_client_max, lifetime_max, items_max; what is over a bound is refused with the reason.
Timers: TICK while there is anything to look after; PUSH, ASK, RECEIPT, RESEND, ITEMS.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from penstock.content.envelope import FLAG
from penstock.content.language.parser import parse_predicate
from penstock.content.message import INBOX, Identity, Message
from penstock.errors import NotPossibleHere
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.storage import StorageResult, Ticket
from penstock.kernel.timers import Key
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused, dropped_record
from penstock.overlay.attached_client import RECORDS_BURST, RECORDS_RATE, AttachedClient
from penstock.overlay.broker import Broker
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing
from penstock.overlay.text_work import work_of_text
from penstock.retrieval.broker_outlet import BrokerOutlet
from penstock.retrieval.cache_store import CacheStore
from penstock.retrieval.chains import RetrievalChain, RetrievalChains
from penstock.retrieval.client_lines import ClientLines
from penstock.retrieval.config import RetrievalConfig
from penstock.retrieval.contents import ItemContent, content_of, new_item, public_content
from penstock.retrieval.interest import LOCAL, PublicationId, PublishedItem
from penstock.retrieval.interest_index import EngineIndex, fits, home_of, places_of, text_of
from penstock.retrieval.life_cycle import PENDING, USED_PENDING, CachePlace, Selector, Table
from penstock.retrieval.link_recovery import LinkRecovery
from penstock.retrieval.mediation import MediationRouter
from penstock.retrieval.outlet import AddressedNonce
from penstock.retrieval.packets import (
    BROKER_PACKETS,
    FROM_CLIENT,
    CarriedPublication,
    InterestName,
    NumberedPacket,
    RetrievalAnswer,
    RetrievalInterest,
    RetrievalMulticast,
    RetrievalOverload,
    RetrievalReceipt,
    RetrieveReply,
    RetrieveRequest,
    RetrieveStop,
)
from penstock.retrieval.pending_interests import PendingInterests
from penstock.retrieval.records import CachePlaced, CacheStoreFailed
from penstock.retrieval.renewal import Renewal
from penstock.retrieval.requests import InterestReader, InvalidRequest, content_problem, read_request
from penstock.retrieval.status import RetrievalStatus
from penstock.retrieval.timers import RetrievalTimer

TICK_EVERY = 1.0
APART = 1e-6  # seconds, so that of publications that come together the last one is the freshest
RECENT_MAX = 10_000  # publications of our clients, so that none is uploaded twice
EARLY_MAX = 1_000  # requests that wait for the disk


class RetrievalBroker:
    """The machine of brokers."""

    packet_kinds: tuple[type[Packet], ...] = BROKER_PACKETS + FROM_CLIENT

    def __init__(self, context: Context) -> None:
        config = self._config = context.settings(RetrievalConfig)
        self._routing = context.below(Routing)
        self._broker = context.below(Broker)
        self._timers = context.timers
        self._traced = context.traced
        self._life = context.incarnation
        self._names = 0  # interests and multicasts of ours
        plan = None if context.brokers is None else dict.fromkeys(context.brokers.values())
        self._reader = InterestReader((self._routing.broker, self._life), plan, config)
        keep = config.keep.strip().upper()
        self._keep = None if keep == "TRUE" else parse_predicate(config.keep)
        self._eager = config.stored or config.flushing  # else what nobody asks for costs nothing but its place
        self._chains = RetrievalChains()
        self._lines = ClientLines(context.node, context.timers, config.items_max)
        self._recovery = LinkRecovery(self._life, self._routing, context.timers, config)
        rules = config.rules()
        self._pending = PendingInterests(EngineIndex(), size=rules.interests_max, linger=rules.linger, places=places_of)
        self._out = BrokerOutlet(
            self._routing, self._recovery, self._chains, context.timers, self._forget, self._pending
        )
        self.router = MediationRouter(
            rules, self._out, fits=fits, table=self._pending, nonces=self._next_name, home_of=home_of, looks_for=text_of
        )
        self.router.cache.changed = self._placed
        self._renewal = Renewal(self.router, self._chains, self._pending, self._next_name)
        self._waiting: deque[tuple[Message, float]] = deque(maxlen=config.cache_size or 1)  # nobody has asked yet
        self._published_at = 0.0  # the last of them
        self._recent: dict[Identity, None] = {}
        self._refusals = TokenBucket(RECORDS_RATE, RECORDS_BURST, 0.0)
        self._ticking = False
        self._exits: object = None  # the map that interests were told on
        self._early: list[tuple[RetrieveRequest, Link]] = []
        self._store: CacheStore | None = None
        self._started = False
        if config.stored:
            if not context.has_storage:
                raise NotPossibleHere("the cache cannot be stored", "give the broker a folder to store in (--data)")
            self._store = CacheStore(context.storage, config.cache_size, 2 * self._life)
        if config.cache_size and keep != "FALSE":
            self._broker.uploads = self.uploaded

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self._out.now = now
        for packet in packets:
            if isinstance(packet, RetrieveRequest):
                self._request(packet, sender, now)
            elif isinstance(packet, RetrieveStop):
                chain = self._chains.get(sender, packet.subscription)
                if chain is not None:
                    self._end(chain, now)
                self._chains.forget_cursor(sender, packet.subscription)
            else:
                self._from_neighbour(packet, sender, now)
        return self._effects(now)

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self._out.now = now
        effects: list[Effect] = []
        if up and not self._started:
            self._started = True
            effects = self._store.load() if self._store is not None else []
        if not up:
            if self._store is not None:
                effects += self._store.link_down(link)
            self._early = [(packet, sender) for packet, sender in self._early if sender != link]
            for chain in self._chains.of(link):
                self._end(chain, now)
            self._chains.forget_cursors(link)
            effects += self._lines.link_down(link)
        return effects + self._effects(now)

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        self._out.now = now
        if timer == RetrievalTimer.TICK:
            self._tick(now)
        elif timer == RetrievalTimer.PUSH:
            self.router.push(Identity(str(key[0]), int(key[1]), int(key[2])), now)
        elif timer == RetrievalTimer.ASK:
            self.router.proceed((int(key[0]), int(key[1]), int(key[2])), now)
        elif timer == RetrievalTimer.ITEMS:
            return self._lines.expired(int(key[0]), now)
        else:
            self._out.put(self._recovery.expired(timer, int(key[0]), now))
        return self._effects(now)

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        store = self._store
        assert store is not None, "nobody else asks"
        self._out.now = now
        loading, failed = not store.loaded, bool(store.failed)
        effects = store.completed(ticket, result, now)
        if store.failed and not failed:
            self._set_aside()
            self._renewal.take_back(store.take_withheld(), now)
            told = [self._reply(chain, moved=False) for chain in self._chains]
            effects = [CacheStoreFailed(store.failed), *told, *effects]
        if loading and store.loaded:
            self._restore(store, now)
        return self._lines.paced(effects, now) + self._effects(now)

    def uploaded(self, messages: Sequence[Message], now: float) -> list[Effect]:
        """Our own clients have published these."""
        waiting, keep, largest = self._waiting, self._keep, self._config.item_bytes_max
        room = self._config.cache_size - len(waiting)
        at = self._published_at
        at = now if at < now or at > now + 1.0 else at  # later than that: the clock was set back
        for message in messages:
            attributes = message.attributes
            if FLAG in attributes or INBOX in attributes:
                if (found := public_content(message, later=keep is None and message.size_bytes <= largest)) is None:
                    continue
                message = found
            if keep is not None and not keep.matches(message.attributes):
                continue
            if message.size_bytes > largest:
                self._out.counts["published, and too large to cache"] += 1
                continue
            at += APART
            room -= 1
            waiting.append((message, at))
        self._published_at = at
        if room < 0:
            self._out.counts["evicted before anybody asked"] -= room
        if not self._eager and not len(self._pending):
            return []
        self._out.now = now
        self._catch_up(now)
        return self._effects(now)

    def status(self) -> RetrievalStatus:
        cache = self.router.cache
        counts = [len(table.get(0, ())) for table in (cache.pending, cache.overflowing, cache.disseminated)]
        return RetrievalStatus(
            cached=len(cache) + len(self._waiting),
            waiting=len(self._waiting),
            cache_size=cache.size,
            pending=counts[0] + len(self._waiting),
            overflowing=counts[1],
            disseminated=counts[2],
            stored=self._store is not None and not self._store.failed,
            interests=len(self._pending),
            own_interests=len(self._chains),
            refused=self._pending.refused,
            evicted=cache.evicted,
            unreceipted=self._recovery.unreceipted(),
            resent=self._recovery.resent,
            counts=dict(sorted(self._out.counts.items())),
        )

    # Clients.

    def _request(self, packet: RetrieveRequest, link: Link, now: float) -> None:
        """A lifetime of a subscription begins, or goes on over a new connection."""
        client = self._broker.attached(link)
        if client is None:
            return
        if self._store is not None and not self._store.loaded:
            if len(self._early) < EARLY_MAX:
                self._early.append((packet, link))
            else:
                self._refuse(packet, client, link, "this broker is still reading its cache; ask again", now)
            return
        before = self._chains.get(link, packet.subscription)
        if before is not None:
            if before.lifetime == packet.lifetime:  # it has not heard us yet
                self._out.put([self._reply(before, moved=before.moved)])
                return
            self._end(before, now)
        moved = packet.refreshed and packet.home != self.home
        if moved and packet.home is not None and packet.home[0] == self._routing.broker:
            self._distrust_restored()
        try:
            self._check_limits(client, link, work_of_text(packet.where), now)
            interest = read_request(packet, client, self._config, self._next_name, moved, now)
            interest = replace(interest, cursor=self._cursor(packet, link, moved))
        except InvalidRequest as error:
            self._refuse(packet, client, link, str(error), now)
            return
        chain = RetrievalChain(link, packet.subscription, packet.lifetime, interest, moved)
        self._chains.add(chain)
        self._out.put([self._reply(chain, moved=moved)])
        self._watch(now)
        self._catch_up(now)
        registered = self.router.register(interest, now)
        assert registered is not None, "its name is new, and there was room"

    def _check_limits(self, client: AttachedClient, link: Link, places: int, now: float) -> None:
        """Whether there is room and time for a text that takes so many places; a client has as many as it leaves."""
        chains, limit = self._chains.of(link), self._config.interests_per_client_max
        if len(chains) >= limit:
            raise InvalidRequest(f"the limit interests_per_client_max is {limit}")
        own = sum(places_of(chain.interest) for chain in chains)
        if own + places > self._pending.left(LOCAL):
            self._pending.refused += 1
            limit = self._config.interests_max
            raise InvalidRequest(f"this broker knows as many interests as it may: interests_max is {limit}")
        if not client.verbs.take(now, places):
            raise InvalidRequest("too many at once; ask again")

    def _end(self, chain: RetrievalChain, now: float) -> None:
        box = self.router.finish(chain.interest.id, now)
        self._chains.remove(chain)
        if box is not None:
            self._chains.keep_cursor(chain.link, chain.subscription, box.cursor)

    def _cursor(self, packet: RetrieveRequest, link: Link, moved: bool) -> int:
        """Above it, nothing in the cache was given to this chain; over a new connection we do not know what was."""
        if moved or not packet.refreshed:
            return 0
        known = self._chains.cursor(link, packet.subscription)
        return max((entry.number for entry in self.router.cache), default=0) if known is None else known

    def _reply(self, chain: RetrievalChain, *, moved: bool) -> Send:
        reply = RetrieveReply(chain.subscription, chain.lifetime, self.home, moved, items_max=self._config.items_max)
        return Send((chain.link,), reply, Lane.CONTROL)

    def _refuse(self, packet: RetrieveRequest, client: AttachedClient, link: Link, problem: str, now: float) -> None:
        if client.answers.take(now):
            reply = RetrieveReply(packet.subscription, packet.lifetime, self.home, False, problem)
            self._out.put([Send((link,), reply, Lane.CONTROL)])
        if client.records.take(now):
            self._out.put([InputRefused(client.name, problem)])

    # Neighbours.

    def _from_neighbour(self, packet: Packet, link: Link, now: float) -> None:
        """What a neighbour sends; whoever is not heard sends it again."""
        neighbour = self._routing.neighbour(link)
        if neighbour is None or (self._store is not None and not self._store.loaded):
            return
        broker = neighbour.broker
        self._watch(now)
        if isinstance(packet, RetrievalReceipt):
            self._out.put(self._recovery.receipt(packet, broker, now))
            return
        assert isinstance(packet, NumberedPacket)
        new, effects = self._recovery.take(packet, broker, now)
        self._out.put(effects)
        if not new:
            return
        if isinstance(packet, RetrievalInterest):
            self._interest(packet, broker, now)
        elif isinstance(packet, RetrievalOverload):
            self.router.overload(packet.name, broker, now)
        else:
            assert isinstance(packet, CarriedPublication)
            self._publication(packet, broker, now)

    def _interest(self, packet: RetrievalInterest, broker: BrokerId, now: float) -> None:
        try:
            interest = self._reader.read(packet, self._names, broker, now)
        except InvalidRequest as error:
            self._refused(broker, str(error), now)
            return
        if interest is not None:
            self._catch_up(now)
            self.router.interest(interest, broker)

    def _publication(self, packet: CarriedPublication, broker: BrokerId, now: float) -> None:
        message = packet.message
        cached = self.router.cache.get(message.identity)
        known = None if cached is None else content_of(cached.publication).content_hash
        problem = content_problem(packet, known, self._config.item_bytes_max)
        if problem:
            self._out.counts[problem] += 1
            kind = type(packet).__name__
            self._out.put([dropped_record("route", problem, "", Lane.BEST_EFFORT, kind, message, 1)])
            return
        content = ItemContent(message, packet.content_hash)
        item = PublishedItem(message.identity, now - max(packet.age, 0.0), 0, content)  # none comes from the future
        self._catch_up(now)
        if isinstance(packet, RetrievalAnswer):
            self.router.answer(item, packet.pending, packet.name, now, came_from=broker)
        elif isinstance(packet, RetrievalMulticast):
            nonce = AddressedNonce(packet.nonce, packet.homes) if packet.homes else packet.nonce
            self.router.multicast(item, packet.pending, nonce, broker, now)
        else:
            self.router.flushed(item)

    def _refused(self, broker: BrokerId, problem: str, now: float) -> None:
        self._out.counts["refused interests"] += 1
        if self._refusals.take(now):
            self._out.put([InputRefused(f"broker {broker}", problem)])

    # The cache.

    @property
    def home(self) -> tuple[BrokerId, int]:
        """This broker, and the life of its cache."""
        store = self._store
        return self._routing.broker, 2 * self._life + 1 if store is None or store.failed else store.life

    def _catch_up(self, now: float) -> None:
        """Upload what our clients have published."""
        if self._store is not None and not self._store.loaded:
            return
        waiting, recent = self._waiting, self._recent
        while waiting:
            waited, published = waiting.popleft()
            if (message := public_content(waited)) is None:
                continue
            if message.identity in recent:
                self._out.counts["published twice"] += 1
                continue
            recent[message.identity] = None
            if len(recent) > RECENT_MAX:
                del recent[next(iter(recent))]
            self.router.upload(new_item(message, published), now)

    def _placed(self, item: PublishedItem, place: CachePlace | None) -> None:
        if self._store is not None:
            self._store.placed(item, place)
        if self._traced:
            identity = content_of(item).message.identity
            table = "" if place is None else "used" if place is USED_PENDING else place.table.name.lower()
            who = (identity.publisher, identity.incarnation, identity.count)
            self._out.put([CachePlaced(*who, table)])

    def _forget(self, publication: PublicationId) -> None:
        self.router.forget(publication)

    def _restore(self, store: CacheStore, now: float) -> None:
        """The disk has been read: from now on we serve."""
        if not store.failed:
            cache = self.router.cache
            self.router.began = now + self._config.moved_slack
            for item, place in store.restored(now):
                cache.add(item, place, first_hand=False)  # who got it before cannot be told by its new number
                self._recent[content_of(item).message.identity] = None
            self._out.counts["damaged on disk"] += store.damaged
        early, self._early = self._early, []
        for packet, link in early:
            self._request(packet, link, now)
        self._catch_up(now)

    def _set_aside(self) -> None:
        """The store fails: what is pending on disk will be so after a restart, so nobody may use it meanwhile."""
        for entry in [one for one in self.router.cache if one.place.table == Table.PENDING]:
            self._forget(entry.publication.id)
            self._out.counts["set aside when the store failed"] += 1

    def _distrust_restored(self) -> None:
        """A life of this cache was in memory alone: what is pending on disk may have been used in it."""
        cache = self.router.cache
        for entry in [one for one in cache if not one.first_hand and one.place is PENDING]:
            cache.use(entry, Selector.LOCAL)

    # Time.

    def _watch(self, now: float) -> None:
        if not self._ticking:
            self._ticking = True
            self._exits = self._routing.exits()
            self._timers.set(RetrievalTimer.TICK, now + TICK_EVERY)

    def _tick(self, now: float) -> None:
        self.router.expire(now)
        for chain in self._chains:
            if chain.interest.deadline <= now:
                self._end(chain, now)
        self._out.put(self._recovery.tick(now))
        exits = self._routing.exits()
        if exits is not self._exits:
            self._exits = exits
            self._forget_former_lives(now)
            self._renewal.map_changed()
        self._renewal.tick(now)
        self._ticking = bool(len(self._chains) or len(self._pending) or self._recovery.busy)
        if self._ticking:
            self._timers.set(RetrievalTimer.TICK, now + TICK_EVERY)

    def _forget_former_lives(self, now: float) -> None:
        """Interests of brokers that have restarted since."""
        for name in list(self._pending.names()):
            home, life = name[0], name[1]  # type: ignore[index]  # a name
            origin = self._routing.origins.get(home)
            if origin is not None and origin.incarnation > life:
                self._pending.over(name, now)

    def _next_name(self) -> InterestName:
        self._names += 1
        return self._routing.broker, self._life, self._names

    def _effects(self, now: float) -> list[Effect]:
        """What has been gathered, once the cache's places are on disk."""
        effects = self._out.take()
        return self._lines.paced(effects if self._store is None else self._store.commit(effects, now), now)

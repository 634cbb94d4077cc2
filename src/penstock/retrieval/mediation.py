"""A mediation router: answers interests from its cache, sends publications to those who wait for them (004 3.3).

    register     a receiver of this router asks        -> deliveries from the cache, an advertisement of the rest
    proceed      a probe has had its time              -> the next probe, or an advertisement
    probe        a neighbour asks this router alone    -> answers from the cache
    interest     another router advertises one         -> answers from the cache, the rest advertised further
    upload       a publisher hands in a publication    -> deliveries, a multicast to those who wait for it
    multicast    a publication comes for many          -> deliveries, and on to the interfaces with recipients
    answer       a publication comes for one interest  -> one hop back along its way; a delivery at its home
    overload     an interest is satisfied elsewhere    -> its state is dropped, the notification goes on
    push         the time of a delayed push has come   -> a multicast (PDP)
    flushed      a neighbour hands on what it evicts   -> cached as pending, if there is room
    finish       a lifetime is over                    -> the box; expire() forgets what the table held for others

State: the table of pending interests, the cache with its three tables, a box for each local interest, and nonces of
multicasts. What the router wants done it tells its outlet, in order; it knows no packets, clock or neighbours. A
copy is sent with the pending flag on when it leaves its first router for the first time, and in one wave only.

Req 1 without a history: a new interest is served from any table. A refreshed one is served at its home from what was
never used there (overflowing; pending and not dispatched), elsewhere from what never left its router (pending), and
takes no copy with the pending flag off. If its chain had another home before, what was uploaded before the move counts
only where it is pending and not dispatched: the old home's receivers cannot have had it.

Cursors (ours, off in the paper's experiments): the cache numbers what comes in, and a box keeps the highest number that
was given to it. In the next lifetime everything with a higher number is new to the chain, used by others or not, if it
was never in this cache before: uploaded here, or come with the pending flag on, which happens once. So a home needs
enough for one receiver and not for each, and one number for each chain is no history.

Late copies (ours): a wave may take more than one way, and a link that was down hands over a copy long after another one
has been used here, left the cache, and the chain was refreshed. So a router remembers some of what was used and left
its cache; for its own receivers the pending flag of these is off. Likewise for what was uploaded before the youngest
that it has forgotten, or before it began, if it has its cache from a former life: but for an answer to what a receiver
has asked for, which left its first router just now.

A home that remembers (ours): what it has neither cached nor used nor forgotten is new to all its chains, whatever the
pending flag of a copy says. So a refreshed interest may be sent anything that its home has not had (asking.py), but for
a chain that came from another home. One list for each router is no history of what anybody got.

Addressed multicasts (ours): each copy names the homes that it is for (recipients.py).

Choices where the paper is silent or does not fit together:
- An answer serves every local interest that may take it, not only the one that asked: it is disseminated afterwards
  and lost for refreshed ones.
- An answer whose interest is gone is left over: cached as overflowing if its pending flag is on, else dropped.
- In-network duplicate dropping looks at answers alone (E9): a multicast copy may be for others.
- A delayed push that nobody has pulled keeps the pending flag on: it is the first time that it leaves (E7).
- A time of push that has passed is now (E3). It is computed once, at upload; later interests pull.
- A delayed push goes to interests that are not yet satisfied (3.3.4), and nobody is notified: a router takes one for
  satisfied when as many publications as it asked for have gone its way from here (recipients.py).
- Flushing, which the paper names and does not define: an unsent, unused publication that is evicted is handed to one
  neighbour, which keeps it as its own pending one if it has a free place. It is still in one place only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from itertools import count
from math import inf, nextafter

from penstock.retrieval.asking import HomeAsking
from penstock.retrieval.boxes import Boxes, InterestBox, may_take
from penstock.retrieval.cache import Cache, CachedItem, Noted, Shelf
from penstock.retrieval.interest import (
    LOCAL,
    Fits,
    InterestId,
    Interface,
    LooseInterest,
    PublicationId,
    PublishedItem,
)
from penstock.retrieval.life_cycle import PENDING, CacheArrival, CachePlace, Selector, Table, arrived
from penstock.retrieval.outlet import AddressedNonce, Nonce, RouterOutlet
from penstock.retrieval.pending_interests import InterestIndex, InterestTable, PendingInterests, ShelfIndex
from penstock.retrieval.recipients import HomeOf, Recipients, WaitingInterests
from penstock.retrieval.rules import MediationRules
from penstock.retrieval.selection import configuration

LISTED_FEW = 8  # publications that are looked through one by one


class MediationRouter:
    """One router."""

    def __init__(
        self,
        rules: MediationRules,
        outlet: RouterOutlet,
        *,
        fits: Fits | None = None,
        index: InterestIndex | None = None,
        table: InterestTable | None = None,
        nonces: Callable[[], Nonce] | None = None,
        noted: Noted | None = None,
        interfaces: Callable[[], Sequence[Interface]] = tuple,
        home_of: HomeOf | None = None,
        looks_for: Callable[[LooseInterest], Hashable] | None = None,
    ) -> None:
        self.rules = rules
        self.cache = Cache(rules.cache_size, configuration(rules.policy), noted)
        self.boxes = Boxes() if looks_for is None else Boxes(looks_for)
        if table is None:
            found = index if index is not None else ShelfIndex(fits)
            table = PendingInterests(found, size=rules.interests_max, linger=rules.linger)
        self.pending = table
        self._outlet = outlet
        self._asking = HomeAsking(rules, outlet, self.boxes, self._had_here, interfaces)
        self._fits = fits
        self._next_nonce = nonces if nonces is not None else count().__next__
        self._nonces: dict[Nonce, None] = {}
        self._left: dict[PublicationId, PublishedItem] = {}  # used here and no longer cached
        self.began = -inf  # what was uploaded before, and is not cached, may have been used here and forgotten
        self._delays = rules.dissemination == "delayed push"  # else overloads are notified
        home_of = home_of if rules.addressed else None
        self._waiting = WaitingInterests(table, counting=self._delays, home_of=home_of)
        self._drops_answers = rules.duplicates in ("in network", "both")
        self._lists_sent = rules.duplicates in ("proactive", "both")

    # Interests.

    def register(self, interest: LooseInterest, now: float) -> InterestBox | None:
        """A receiver here asks; None if it is known already or there is no room."""
        if not self.pending.add(interest, LOCAL):
            return None
        box = self.boxes.open(interest)
        for entry in self._in_order(interest, self._candidates(interest, at_home=True)):
            self.cache.use(entry, Selector.LOCAL)
            self._put(box, entry.publication, entry.number, now)
        if box.missing > 0:
            self._asking.begin(box, now)
        return box

    def proceed(self, interest: InterestId, now: float) -> None:
        """The time has come to ask others, or whoever was asked has had its time."""
        self._asking.proceed(interest, now)

    def probe(self, interest: LooseInterest, came_from: Interface) -> None:
        """A neighbour asks for what is here, and nothing more."""
        self._answer_from_cache(interest, came_from)

    def interest(self, interest: LooseInterest, came_from: Interface) -> None:
        """Another router advertises one."""
        if not self.pending.add(interest, came_from):
            return
        sent = self._answer_from_cache(interest, came_from)
        if len(sent) < interest.max:
            rest = interest.after(tuple(sent), listing=self._lists_sent) if sent else interest
            if sent and self.rules.budgeted:
                rest = rest.shared(self._asking.likely.count() - 1)
            self._outlet.advertise(rest, came_from)

    def _answer_from_cache(self, interest: LooseInterest, came_from: Interface) -> list[PublicationId]:
        candidates = self._candidates(interest, at_home=False)
        if not candidates:
            return []
        sent = []
        for entry in self.cache.first(candidates, min(interest.max, self._outlet.room(came_from))):
            before = self.cache.use(entry, Selector.REMOTE)
            sent.append(entry.publication.id)
            self._outlet.answer(came_from, interest.id, entry.publication, before.table == Table.PENDING)
        self._waiting.answered(interest.id, len(sent))
        return sent

    def overload(self, interest: InterestId, came_from: Interface, now: float) -> None:
        """An interest is satisfied at its home; that counts where it comes the way of the interest, and goes on."""
        found = self.pending.get(interest)
        if found is None or found[1] < 0 or found[1] != came_from:
            return
        self.pending.over(interest, now)
        self._outlet.overload(interest, came_from)

    def finish(self, interest: InterestId, now: float) -> InterestBox | None:
        """A lifetime is over, or its receiver has left. Others are told if it is before its deadline."""
        box = self.boxes.close(interest)
        if box is None:
            return None
        self.pending.over(interest, now)
        if box.advertised and box.missing > 0 and now < box.interest.deadline and not self._delays:
            self._outlet.overload(interest, LOCAL)
        return box

    def expire(self, now: float) -> None:
        """Forget interests whose time is up. Boxes stay until finish()."""
        self.pending.expire(now)

    # Publications.

    def upload(self, publication: PublishedItem, now: float) -> None:
        """A publisher hands one in."""
        if publication.id in self.cache:
            self._outlet.drop(publication, "uploaded before")
            return
        recipients = self._waiting.for_it(publication, LOCAL, pending=True, now=now)
        waits = bool(recipients.remote) and self._delays
        arrival = CacheArrival(
            uploaded=True,
            used=bool(recipients.local),
            satisfied=recipients.satisfied,
            remote=bool(recipients.remote) and not waits,
            pending=True,
            en_route=self.rules.en_route,
        )
        decision = arrived(arrival)
        entry = self._keep(publication, decision.place, now, first_hand=True)
        self._put_all(recipients.local, publication, entry, now)
        if waits:
            self._schedule(entry, publication, recipients, now)
        elif decision.forward:
            self._send(recipients, publication, pending=True)

    def multicast(
        self, publication: PublishedItem, pending: bool, nonce: Nonce, came_from: Interface, now: float
    ) -> None:
        """A publication comes for whoever waits for it, or for the homes it is addressed to."""
        homes = None
        if isinstance(nonce, AddressedNonce):
            homes = [home for home in nonce.homes if self._first((nonce.nonce, home))]
        elif not self._first(nonce):
            return
        unused = pending or self._unused(publication)
        recipients = self._waiting.for_it(publication, came_from, pending=pending, unused=unused, now=now, homes=homes)
        if self._transit(publication, recipients, pending=pending, now=now):
            self._waiting.sent(publication, came_from, pending=pending, now=now)
            self._send_on(recipients, publication, pending, nonce)

    def answer(
        self, publication: PublishedItem, pending: bool, interest: InterestId, now: float, came_from: Interface = LOCAL
    ) -> None:
        """A publication comes for one interest."""
        self._asking.likely.helped(publication.shelf, came_from)
        if self._drops_answers and publication.id in self.cache:
            self._outlet.drop(publication, "cached here")
            return
        recipients = self._waiting.here(
            publication, pending=pending, unused=pending or self._unused(publication), now=now
        )
        found = self.pending.get(interest)
        asked = None
        if found is not None:
            asked, way = found
            if way >= 0:
                recipients.remote.append(way)
            elif way == LOCAL and self._takes_answer(asked, publication, recipients, pending, now):
                recipients.local.append(asked)
        if self._transit(publication, recipients, pending=pending, now=now, asked=asked):
            self._waiting.answered(interest, 1)
            self._outlet.answer(recipients.remote[0], interest, publication, pending)

    def push(self, publication: PublicationId, now: float) -> None:
        """The time of a delayed push has come."""
        entry = self.cache.get(publication)
        if entry is not None and entry.scheduled_at is not None:
            self._push(entry, now)

    def flushed(self, publication: PublishedItem) -> None:
        """A neighbour hands on what it had to evict."""
        if publication.id in self.cache or len(self.cache) >= self.cache.size:
            self._outlet.drop(publication, "no room for a flushed one")
            return
        self.cache.add(publication, PENDING)

    def forget(self, publication: PublicationId) -> None:
        """Take it out of the cache; whether it was used here stays known."""
        entry = self.cache.get(publication)
        if entry is not None:
            self.cache.remove(publication)
            if entry.place.dispatched:
                self._remember(entry.publication)

    # What fits.

    def _candidates(self, interest: LooseInterest, *, at_home: bool) -> list[CachedItem]:
        """What the cache may serve an interest with."""
        cache, shelf = self.cache, interest.shelf
        tables: Sequence[Mapping[Hashable, Shelf]]
        if not interest.refreshed:
            tables = (cache.pending, cache.overflowing, cache.disseminated)
        else:
            tables = (cache.pending, cache.overflowing) if at_home else (cache.pending,)
            if at_home and self.rules.cursors:
                tables = (*tables, cache.disseminated)
        found: list[CachedItem] = []
        listed = interest.listed if len(interest.listed) < LISTED_FEW else frozenset(interest.listed)
        for table in tables:
            those = table.get(shelf)
            if those:
                found += [entry for entry in those.values() if self._may_serve(entry, interest, listed, at_home)]
        return found

    def _in_order(self, interest: LooseInterest, found: list[CachedItem]) -> list[CachedItem]:
        """What a receiver here gets first: with a cursor as it came, so that nothing is passed over."""
        if interest.refreshed and self.rules.cursors:
            found.sort(key=lambda entry: entry.number)
            return found[: interest.max]
        return self.cache.first(found, interest.max)

    def _may_serve(
        self, entry: CachedItem, interest: LooseInterest, listed: Container[PublicationId], at_home: bool
    ) -> bool:
        publication = entry.publication
        if publication.uploaded < interest.oldest or publication.id in listed:
            return False
        if interest.refreshed:
            place = entry.place
            if at_home and place.dispatched and not self._unread(entry, interest.cursor):
                return False
            if publication.uploaded < interest.moved_at and place != PENDING:
                return False
        return self._fits is None or self._fits(interest, publication)

    def _unread(self, entry: CachedItem, cursor: int) -> bool:
        """Whether a chain with this cursor was never given what receivers here have used."""
        return self.rules.cursors and entry.first_hand and entry.number > cursor

    def _takes_answer(
        self, asked: LooseInterest, publication: PublishedItem, recipients: Recipients, pending: bool, now: float
    ) -> bool:
        """Whether the interest takes an answer that it would refuse if it had not asked for it."""
        if asked in recipients.local:
            return False
        unused = pending or self._unused(publication)
        return may_take(asked, publication, pending=pending, unused=unused, now=now, asked=True)

    def _unused(self, publication: PublishedItem) -> bool:
        """Whether it is known that nobody here ever got it; what is cached its entry tells."""
        return self.rules.remembers and publication.id not in self._left and publication.uploaded >= self.began

    def _had_here(self, interest: LooseInterest) -> tuple[PublicationId, ...] | None:
        """What fits an interest and was here before; None if that is too much, or some of it is forgotten."""
        oldest, shelf, fits = interest.oldest, interest.shelf, self._fits
        if oldest < self.began:
            return None
        tables = (self.cache.pending, self.cache.overflowing, self.cache.disseminated)
        had = [entry.publication for table in tables for entry in table.get(shelf, {}).values()]
        had = [one for one in had if one.uploaded >= oldest and (fits is None or fits(interest, one))]
        had += [one for one in self._left.values() if one.shelf == shelf and one.uploaded >= oldest]
        return tuple(one.id for one in had) if len(had) <= self.rules.had_max else None

    # What happens to a publication.

    def _transit(
        self,
        publication: PublishedItem,
        recipients: Recipients,
        *,
        pending: bool,
        now: float,
        asked: LooseInterest | None = None,
    ) -> bool:
        """Cache and deliver what comes from another router; True if it goes on."""
        entry = self.cache.get(publication.id)
        if entry is not None:
            return self._again(entry, recipients, now)
        left = publication.id in self._left
        first_hand = pending or self._unused(publication)
        if left or publication.uploaded < self.began:
            excepted = asked if pending and not left else None
            pending = first_hand = False  # the wave may have been here before
            recipients.local = [one for one in recipients.local if not one.refreshed or one is excepted]
        arrival = CacheArrival(
            uploaded=False,
            used=bool(recipients.local),
            satisfied=recipients.satisfied,
            remote=bool(recipients.remote),
            pending=pending,
            en_route=self.rules.en_route,
        )
        decision = arrived(arrival)
        if decision.place is None and not decision.forward:
            self._outlet.drop(publication, "nobody here wants it")
        kept = self._keep(publication, decision.place, now, first_hand=first_hand)
        self._put_all(recipients.local, publication, kept, now)
        return decision.forward

    def _again(self, entry: CachedItem, recipients: Recipients, now: float) -> bool:
        """It is cached here already: its entry decides who may have it."""
        local = [one for one in recipients.local if self._takes_again(entry, one)]
        if local:
            self.cache.use(entry, Selector.LOCAL)
            self._put_all(local, entry.publication, entry, now)
        return bool(recipients.remote)

    def _takes_again(self, entry: CachedItem, interest: LooseInterest) -> bool:
        if not interest.refreshed or not entry.place.dispatched:
            return True
        box = self.boxes.get(interest.id)
        return box is not None and self._unread(entry, box.cursor)

    def _keep(
        self, publication: PublishedItem, place: CachePlace | None, now: float, *, first_hand: bool
    ) -> CachedItem | None:
        if place is None:
            return None
        added = self.cache.add(publication, place, first_hand=first_hand)
        if added is None:
            if place.dispatched:
                self._remember(publication)
            return None
        entry, out = added
        if place.dispatched:
            entry.uses = 1
        if out is not None:
            self._evicted(out, now)
        return entry

    def _evicted(self, entry: CachedItem, now: float) -> None:
        """What was waiting for its time leaves at once; what was never sent or used may go to a neighbour."""
        if entry.place.dispatched:
            self._remember(entry.publication)
        if entry.scheduled_at is not None:
            self._push(entry, now)
        elif self.rules.flushing and entry.place == PENDING:
            self._outlet.flush(entry.publication)

    def _remember(self, publication: PublishedItem) -> None:
        """It was used here and is not cached any more."""
        if not self.rules.left_max:
            return
        self._left[publication.id] = PublishedItem(publication.id, publication.uploaded, publication.shelf)
        if len(self._left) > self.rules.left_max:
            youngest = self._left.pop(next(iter(self._left))).uploaded + self.rules.age_slack
            self.began = max(self.began, nextafter(youngest, inf))

    def _put_all(
        self, interests: Sequence[LooseInterest], publication: PublishedItem, entry: CachedItem | None, now: float
    ) -> None:
        number = entry.number if entry is not None else 0
        for interest in interests:
            box = self.boxes.get(interest.id)
            if box is not None:
                self._put(box, publication, number, now)

    def _put(self, box: InterestBox, publication: PublishedItem, number: int, now: float) -> None:
        if not box.put(publication.id, number):
            return
        self._outlet.deliver(box.interest, publication)
        if box.missing == 0:
            self.pending.satisfied(box.interest.id)
            if box.advertised and not self._delays:
                self._outlet.overload(box.interest.id, LOCAL)

    # Multicast.

    def _schedule(
        self, entry: CachedItem | None, publication: PublishedItem, recipients: Recipients, now: float
    ) -> None:
        """Send it when the nearest deadline of those who wait comes near (3); without a cache, now."""
        if entry is None:
            self._send(recipients, publication, pending=True)
            return
        nearest = self._waiting.nearest_deadline(publication, now)
        if nearest == inf:
            return  # what was evicted for it has satisfied them, as far as we have seen
        entry.scheduled_at = max(now, nearest - self.rules.push_margin)
        self._outlet.schedule(publication.id, entry.scheduled_at)

    def _push(self, entry: CachedItem, now: float) -> None:
        """Multicast what was scheduled; the flag is on if it never left before."""
        publication = entry.publication
        entry.scheduled_at = None
        pending = entry.place.table == Table.PENDING
        recipients = self._waiting.for_it(publication, LOCAL, pending=pending, now=now)
        if recipients.remote:
            if publication.id in self.cache:
                self.cache.use(entry, Selector.REMOTE)
            self._waiting.sent(publication, LOCAL, pending=pending, now=now)
            self._send(recipients, publication, pending=pending)

    def _send(self, recipients: Recipients, publication: PublishedItem, *, pending: bool) -> None:
        nonce = self._next_nonce()
        self._first(nonce)
        self._send_on(recipients, publication, pending, nonce)

    def _send_on(self, recipients: Recipients, publication: PublishedItem, pending: bool, nonce: Nonce) -> None:
        if not recipients.homes:
            self._outlet.multicast(recipients.remote, publication, pending, nonce)
            return
        plain = nonce.nonce if isinstance(nonce, AddressedNonce) else nonce
        for interface in recipients.remote:
            homes = tuple(recipients.homes[interface])
            for home in homes:
                self._first((plain, home))  # ways that faults bent may lead back to us
            copy = AddressedNonce(plain, homes) if len(homes) <= self.rules.homes_max else plain
            self._outlet.multicast((interface,), publication, pending, copy)

    def _first(self, nonce: Nonce) -> bool:
        """Whether this multicast comes for the first time."""
        if nonce in self._nonces:
            return False
        self._nonces[nonce] = None
        if len(self._nonces) > self.rules.nonces_max:
            del self._nonces[next(iter(self._nonces))]
        return True

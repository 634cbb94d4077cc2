"""A network of mediation routers in steps of one hop, fast enough for 100,000 interests (004 section 4).

Everything that is sent in a tick arrives in the next. In a tick, interests arrive first, in the order in which they
were made, then publications in the order in which they were sent; then what the outside does: uploads, lifetimes that
end, new interests, delayed pushes. The rules are those of `MediationRouter`; what is done once for many routers is how
interests spread (floods.py).

Every run is checked: no chain of lifetimes may get a publication twice (Req 1), no interest more than it asked for,
none anything that is too old.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil

from penstock.lab.fast.floods import FAR, NEVER, Flood, FloodIndex, HomeTree, SharedTable, Ways
from penstock.lab.fast.news_outcome import NewsTally
from penstock.lab.fast.news_workload import NewsRequest, NewsWorkload
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.retrieval.forwarding import ForwardingQueue, forwarding_queue, score_of_answer, score_of_copy
from penstock.retrieval.interest import (
    EVERYTHING,
    LOCAL,
    SATISFIED,
    InterestId,
    LooseInterest,
    PublicationId,
    PublishedItem,
    oldest_upload,
)
from penstock.retrieval.life_cycle import Table
from penstock.retrieval.mediation import MediationRouter

Arrives = tuple[bool, int, PublishedItem, bool, object, int]  # answer?, to, what, flag, interest or nonce, from


class FastOutlet:
    """What one router wants done."""

    def __init__(self, network: FastNetwork, router: int) -> None:
        self._network = network
        self._router = router
        self.forwarded: LooseInterest | None = None
        self.answered: list[PublicationId] | None = None  # with what, while an interest is looked at

    def watch(self) -> list[PublicationId]:
        """An interest will be looked at; returns what will hold the answers."""
        self.forwarded = None
        self.answered = []
        return self.answered

    def advertise(self, interest: LooseInterest, came_from: int) -> None:
        if came_from == LOCAL:
            self._network.begin(interest, self._router)
        else:
            self.forwarded = interest

    def probe(self, interface: int, interest: LooseInterest) -> None:
        network = self._network
        network.tally.interest_messages += 1
        network.probes.append((interface, interest, self._router))

    def proceed_at(self, interest: InterestId, at: float) -> None:
        self._network.proceed_at(round(at * TICKS), self._router, interest)

    def room(self, interface: int) -> int:
        return EVERYTHING

    def answer(self, interface: int, interest: InterestId, publication: PublishedItem, pending: bool) -> None:
        network = self._network
        network.tally.answers += 1
        if self.answered is not None:
            self.answered.append(publication.id)
        network.sent.append((True, interface, publication, pending, interest, self._router))

    def multicast(self, interfaces: Sequence[int], publication: PublishedItem, pending: bool, nonce: object) -> None:
        network, router = self._network, self._router
        network.tally.multicasts += len(interfaces)
        network.sent += [(False, to, publication, pending, nonce, router) for to in interfaces]

    def overload(self, interest: InterestId, came_from: int) -> None:
        self._network.end(interest)

    def deliver(self, interest: LooseInterest, publication: PublishedItem) -> None:
        self._network.tally.deliver(interest, publication)

    def schedule(self, publication: PublicationId, at: float) -> None:
        self._network.push_at(ceil(at * TICKS - 1e-6), self._router, publication)

    def flush(self, publication: PublishedItem) -> None:
        self._network.flush(self._router, publication)

    def drop(self, publication: PublishedItem, reason: str) -> None:
        self._network.tally.drops[reason] = self._network.tally.drops.get(reason, 0) + 1


class FastNetwork:
    """One run of one setting and seed."""

    def __init__(self, setting: NewsSetting, seed: int, *, on_tick: Callable[[int], None] | None = None) -> None:
        self.setting = setting
        self.workload = NewsWorkload(setting, seed)
        self.tally = NewsTally(setting)
        self.neighbours = self.workload.neighbours
        self.sent: list[Arrives] = []
        self.probes: list[tuple[int, LooseInterest, int]] = []  # to, what, from
        self._on_tick = on_tick
        self._index = FloodIndex()
        self._trees = [HomeTree(self.neighbours, home) for home in range(setting.routers)]
        self._holders: tuple[dict[object, int], ...] = tuple({} for _ in Table)  # bits of routers, by table and shelf
        rules = setting.rules()
        self.outlets = [FastOutlet(self, router) for router in range(setting.routers)]
        self._nonce = 0
        self.routers = [
            MediationRouter(
                rules,
                outlet,
                table=SharedTable(self._index, router),
                nonces=self._next_nonce,
                noted=self._noter(router),
                interfaces=partial(self.neighbours.__getitem__, router),
                home_of=_home_of,
            )
            for router, outlet in enumerate(self.outlets)
        ]
        self._spreading: list[tuple[int, list[Flood]]] = []  # by the tick in which they began
        self._ended: dict[int, list[InterestId]] = {}  # floods to forget, by tick
        self._lifetimes: dict[int, list[tuple[LooseInterest, NewsRequest]]] = {}
        self._pushes: dict[int, list[tuple[int, PublicationId]]] = {}
        self._proceeding: dict[int, list[tuple[int, InterestId]]] = {}
        self._flushed: list[tuple[int, PublishedItem]] = []
        self._interests = 0
        self._published = 0
        self._queues = self._make_queues()
        self._lines = self._make_queues() if setting.two_queues else None
        self._credit, self._turns = 0.0, 0

    def _noter(self, router: int) -> Callable[[Table, object, bool], None]:
        bit, holders = 1 << router, self._holders

        def noted(table: Table, shelf: object, there: bool) -> None:
            masks = holders[table]
            masks[shelf] = masks.get(shelf, 0) | bit if there else masks[shelf] & ~bit

        return noted

    def _next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def run(self) -> NewsTally:
        """From the first unit to the last."""
        was = gc.isenabled()
        gc.disable()
        try:
            for tick in range(self.setting.units * TICKS + 1):
                self._step(tick)
                if self._on_tick is not None:
                    self._on_tick(tick)
        finally:
            if was:
                gc.enable()
        for _, floods in self._spreading:
            for flood in floods:
                self._settle(flood)
        self.tally.finish(self.routers)
        return self.tally

    # One tick.

    def _step(self, tick: int) -> None:
        self._index.tick = tick
        self.now = tick / TICKS
        self._turns = self._turns_now()
        arrived, self.sent = self._transmitted(self.sent), []
        probes, self.probes = self.probes, []
        self._forget(tick)
        self._spread(tick)
        for router, interest, came_from in probes:
            self.routers[router].probe(interest, came_from)
        self._arrive(arrived)
        for router, asked in self._proceeding.pop(tick, ()):
            self.routers[router].proceed(asked, self.now)
        for router, publication in self._pushes.pop(tick, ()):
            self.routers[router].push(publication, self.now)
        self._upload(tick)
        renewed = self._renew(tick)
        for request in self.workload.new_requests(tick, renewed):
            self._ask(request, tick)
        self.tally.sample(self._index, self.routers, tick)

    def _upload(self, tick: int) -> None:
        for router, topic in self.workload.uploads(tick):
            self._published += 1
            self.tally.uploaded(topic, router)
            self.routers[router].upload(PublishedItem(self._published, self.now, topic), self.now)

    def _renew(self, tick: int) -> int:
        """Lifetimes end, and what follows them begins."""
        ended = self._lifetimes.pop(tick, ())
        for interest, request in ended:
            box = self.routers[request.router].finish(interest.id, self.now)
            assert box is not None
            self.tally.expired(request, len(box.got), interest.id)
            self._index.remove(interest.id)
            following = self.workload.after(request)
            if following is not None:
                self._ask(following, tick, box.cursor)
        return len(ended)

    def _ask(self, request: NewsRequest, tick: int, cursor: int = 0) -> None:
        self._interests += 1
        setting, life = self.setting, max(request.lifetime, 1)
        interest = LooseInterest(
            self._interests,
            request.max,
            self.now + life,
            oldest_upload(setting.freshness_rule, now=self.now, lifetime=request.lifetime, freshness=setting.freshness),
            request.refreshed,
            request.topic,
            request,
            cursor=cursor,
        )
        self._lifetimes.setdefault(tick + life * TICKS, []).append((interest, request))
        self.tally.asked(request, interest.id)
        self.routers[request.router].register(interest, self.now)

    # Interests spread.

    def begin(self, interest: LooseInterest, home: int) -> None:
        """A home advertises an interest."""
        tree = self._trees[home]
        refreshed = interest.refreshed
        ways = self._index.shared(interest.shelf, (home, refreshed), lambda: Ways(tree.way, tree.hops, refreshed))
        flood = Flood(interest, home, self._index.tick, ways)
        box = self.routers[home].boxes.get(interest.id)
        if box is not None:
            flood.answered = {publication: [home] for publication in box.got}
        self._index.add(flood)
        if not self._spreading or self._spreading[-1][0] != flood.start:
            self._spreading.append((flood.start, []))
        self._spreading[-1][1].append(flood)

    def _spread(self, tick: int) -> None:
        still = []
        for start, floods in self._spreading:
            hop = tick - start
            going = [flood for flood in floods if self._spread_one(flood, hop)] if hop else floods
            if going:
                still.append((start, going))
        self._spreading = still

    def _spread_one(self, flood: Flood, hop: int) -> bool:
        """One hop further; False when it has reached all that it will."""
        if flood.walks:
            self._walk(flood, hop)
            if flood.front:
                return True
            self._settle(flood)
            return False
        tree = self._trees[flood.home]
        if hop >= len(tree.rings):
            self._settle(flood)
            return False
        met = tree.masks[hop] & self._able(flood.interest)
        if met:
            stopped = [router for router in tree.rings[hop] if met >> router & 1 and not self._visit(flood, router)]
            if stopped:
                self._set_out(flood, hop, stopped)
        return True

    def _able(self, interest: LooseInterest) -> int:
        """The routers that have something which the interest may be answered with, as bits."""
        pending, overflowing, disseminated = self._holders
        shelf = interest.shelf
        found = pending.get(shelf, 0)
        if not interest.refreshed:
            found |= overflowing.get(shelf, 0) | disseminated.get(shelf, 0)
        return found

    def _visit(self, flood: Flood, router: int) -> bool:
        """The router's rules decide; False if it sends the interest no further."""
        copy = flood.copy_at(router) if flood.copies else flood.interest
        sent = self._ask_router(flood, router, copy)
        if sent is None:
            return False
        if sent is not copy:
            flood.copies[router] = sent
        return True

    def _ask_router(self, flood: Flood, router: int, copy: LooseInterest) -> LooseInterest | None:
        outlet = self.outlets[router]
        answered = outlet.watch()
        self.routers[router].interest(copy, flood.ways.way[router])
        outlet.answered = None
        for publication in answered:
            self._count_answer(flood, router, publication)
        return outlet.forwarded

    def _count_answer(self, flood: Flood, router: int, publication: PublicationId) -> None:
        """Whether somebody answered with it before, and on the way from here to the home."""
        others = flood.answered.setdefault(publication, [])
        if others:
            self.tally.in_vain += 1
            before = flood.ways.way[router]
            while before != LOCAL and before not in others:
                before = flood.ways.way[before]
            self.tally.twice_on_branch += before != LOCAL
        others.append(router)

    def _set_out(self, flood: Flood, hop: int, stopped: list[int]) -> None:
        """Somebody stopped it: from here it goes its own ways."""
        tree = self._trees[flood.home]
        way, hops = tree.way.copy(), tree.hops.copy()
        for ring in tree.rings[hop + 1 :]:
            for router in ring:
                way[router], hops[router] = LOCAL, FAR
        for router in tree.rings[hop]:
            if router not in stopped:
                flood.front.append((router, flood.copies.get(router) or flood.copy_at(router)))
        sent = sum(len(self.neighbours[router]) - 1 for ring in tree.rings[1 : hop + 1] for router in ring)
        sent -= sum(len(self.neighbours[router]) - 1 for router in stopped)
        self.tally.interest_messages += len(self.neighbours[flood.home]) + sent
        flood.walks = True
        self._index.move(flood, (flood.interest.id,), lambda: Ways(way, hops, flood.interest.refreshed))

    def _walk(self, flood: Flood, hop: int) -> None:
        """One hop on its own ways."""
        way, hops, able = flood.ways.way, flood.ways.hops, self._able(flood.interest)
        front: list[tuple[int, LooseInterest]] = []
        for router, copy in flood.front:
            for other in self.neighbours[router]:
                if hops[other] != FAR:
                    continue
                hops[other], way[other] = hop, router
                sent: LooseInterest | None = copy
                if able >> other & 1:
                    sent = self._ask_router(flood, other, copy)
                if sent is not None:
                    if sent is not copy:
                        flood.copies[other] = sent
                    front.append((other, sent))
                    self.tally.interest_messages += len(self.neighbours[other]) - 1
        flood.front = front

    def _settle(self, flood: Flood) -> None:
        """It goes no further; floods with the same ways share them."""
        flood.settled = True
        if flood.over != NEVER:
            self._count_end(flood)
        if not flood.walks:
            self.tally.interest_messages += self._trees[flood.home].messages
        elif flood.interest.id in self._index.floods:
            way, hops = flood.ways.way, flood.ways.hops
            refreshed = flood.interest.refreshed
            self._index.move(flood, (refreshed, *way), lambda: Ways(way, hops, refreshed))

    def end(self, interest: InterestId) -> None:
        """Its home tells everybody that it is satisfied."""
        flood = self._index.floods.get(interest)
        if flood is None:
            return
        flood.over = self._index.tick
        if flood.settled:
            self._count_end(flood)
        self._ended.setdefault(flood.over + len(self._trees[flood.home].rings) + 4, []).append(interest)

    def _count_end(self, flood: Flood) -> None:
        """Every router that knew of it passes the notification on."""
        if not flood.walks:
            self.tally.overload_messages += self._trees[flood.home].messages
            return
        reached = [len(those) - 1 for those, far in zip(self.neighbours, flood.ways.hops, strict=True) if far != FAR]
        self.tally.overload_messages += sum(reached) + 1

    def _forget(self, tick: int) -> None:
        for interest in self._ended.pop(tick, ()):
            self._index.remove(interest)

    # Publications travel.

    def _arrive(self, arrived: list[Arrives]) -> None:
        handed, self._flushed = self._flushed, []
        for router, publication in handed:
            self.routers[router].flushed(publication)
        arrived = self._served(arrived)
        routers, now = self.routers, self.now
        for is_answer, to, publication, pending, what, came_from in arrived:
            if is_answer:
                routers[to].answer(publication, pending, what, now, came_from)
            else:
                routers[to].multicast(publication, pending, what, came_from, now)

    def push_at(self, tick: int, router: int, publication: PublicationId) -> None:
        """A delayed push is due then; now is the next tick."""
        self._pushes.setdefault(max(tick, self._index.tick + 1), []).append((router, publication))

    def proceed_at(self, tick: int, router: int, interest: InterestId) -> None:
        """A probed neighbour has time until then."""
        self._proceeding.setdefault(tick, []).append((router, interest))

    def flush(self, router: int, publication: PublishedItem) -> None:
        """Hand it to a neighbour, each in turn."""
        those = self.neighbours[router]
        self._nonce += 1
        self._flushed.append((those[self._nonce % len(those)], publication))
        self.tally.flushes += 1

    # Routers with little time (004 section 3.3.6).

    def _make_queues(self) -> list[ForwardingQueue[Arrives]] | None:
        setting = self.setting
        if not setting.service:
            return None
        return [forwarding_queue(setting.queue, setting.buffer) for _ in range(setting.routers)]

    def _turns_now(self) -> int:
        """How many publication messages a router has time for in this tick, at either queue."""
        self._credit += self.setting.service
        turns = int(self._credit)
        self._credit -= turns
        return turns

    def _served(self, arrived: list[Arrives]) -> list[Arrives]:
        """What routers get done of what waits to be matched."""
        return self._through(self._queues, arrived, before_sending=False)

    def _transmitted(self, sent: list[Arrives]) -> list[Arrives]:
        """What leaves routers of what waits to be sent, one way and one copy after another."""
        return self._through(self._lines, sent, before_sending=True)

    def _through(
        self, queues: list[ForwardingQueue[Arrives]] | None, messages: list[Arrives], *, before_sending: bool
    ) -> list[Arrives]:
        if queues is None:
            return messages
        by_score = self.setting.queue == "score"
        for message in messages:
            points = self._score(message, before_sending=before_sending) if by_score else 0.0
            where = message[5] if before_sending else message[1]
            if queues[where].push(message, points) is not None:
                self.tally.overflowed += 1
        return [queue.pop() for queue in queues for _ in range(min(self._turns, len(queue)))]

    def _score(self, message: Arrives, *, before_sending: bool) -> float:
        """Before it is sent, of those on the way that it takes; before it is matched, of all that wait for it."""
        is_answer, to, publication, pending, what, came_from = message
        table = self.routers[came_from if before_sending else to].pending
        if is_answer:
            return score_of_answer(table, what, self.now)
        if before_sending:
            return score_of_copy(table, publication, lambda way: way == to, pending=pending, now=self.now)
        return score_of_copy(table, publication, lambda way: way != SATISFIED, pending=pending, now=self.now)


def _home_of(interest: LooseInterest) -> int:
    request: NewsRequest = interest.where  # type: ignore[assignment]  # everybody here asks so
    return request.router

"""The fast network does what routers do that are run one by one, message by message.

Deliveries and copies of publications are the same, one by one; of interests and notifications, those that are under
way when the run ends are counted as if they had arrived.
"""

from __future__ import annotations

from math import ceil

import pytest

from penstock.kernel.randomness import generator
from penstock.lab.fast.exhaustive_network import ExhaustiveNetwork
from penstock.lab.fast.fast_network import FastNetwork
from penstock.lab.fast.news_workload import NewsWorkload
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.lab.fast.topology import diameter, power_law_network
from penstock.lab.papers.retrieval import beyond
from penstock.retrieval.interest import EVERYTHING, LOCAL, LooseInterest, PublishedItem, oldest_upload
from penstock.retrieval.mediation import MediationRouter

SMALL = {
    "routers": 12,
    "units": 30,
    "interests": 900,
    "publications": 300,
    "events": 4,
    "topics": 2,
    "selectivity": 3.0,
    "lifetime": 6.0,
    "freshness": 12.0,
    "cache_size": 12,
}
SETTINGS = {
    "default": {},
    "other readings": {"batched": False, "counts_refreshed": True, "drawn": "by volume"},
    "delayed push": {"dissemination": "delayed push"},
    "random locality": {"locality": "random", "selectivity": 8.0},
    "en route": {"en_route": True, "locality": "random", "cache_size": 6},
    "no dropping": {"duplicates": "none", "policy": "PPF", "refresh_probability": 0.5},
    "ours": beyond.OURS,
    "addressed": {"addressed": True, "locality": "random"},
    "background": {"background": 0.5, "policy": "LFU", "flushing": True},
}


class PlainNetwork:
    """Routers with tables of their own; every message is carried."""

    def __init__(self, setting: NewsSetting, seed: int) -> None:
        self.setting, self.workload = setting, NewsWorkload(setting, seed)
        self.neighbours = self.workload.neighbours
        self.delivered: list[tuple[int, int]] = []
        self.counts = {"interest": 0, "overload": 0, "publication": 0}
        self.flying: dict[str, list] = {"interest": [], "overload": [], "publication": []}
        self.pushes: dict[int, list] = {}
        self.proceeding: dict[int, list] = {}
        self.probes: list = []
        self.begun: dict[int, int] = {}  # in which order homes asked everybody
        self.lifetimes: dict[int, list] = {}
        self.nonce = self.published = self.asked = 0
        self.routers = [
            MediationRouter(
                setting.rules(),
                PlainOutlet(self, router),
                nonces=self.next_nonce,
                interfaces=lambda router=router: self.neighbours[router],
                home_of=lambda interest: interest.where.router,
            )
            for router in range(setting.routers)
        ]

    def next_nonce(self) -> int:
        self.nonce += 1
        return self.nonce

    def send(self, kind: str, router: int, came_from: int, message: tuple) -> None:
        for to in self.neighbours[router]:
            if to != came_from:
                self.counts[kind] += 1
                self.flying[kind].append((to, router, *message))

    def run(self) -> PlainNetwork:
        for tick in range(self.setting.units * TICKS + 1):
            self.tick = tick
            self.step()
        return self

    def step(self) -> None:
        self.now = now = self.tick / TICKS
        flying, self.flying = self.flying, {kind: [] for kind in self.flying}
        for to, came_from, interest in sorted(flying["interest"], key=lambda one: self.begun[one[2].id]):
            self.routers[to].interest(interest, came_from)
        probes, self.probes = self.probes, []
        for to, interest, came_from in probes:
            self.routers[to].probe(interest, came_from)
        for to, came_from, interest in flying["overload"]:
            self.routers[to].overload(interest, came_from, now)
        for call, to, *values in sorted(flying["publication"], key=lambda one: one[0] != "flushed"):
            self.arrive(call, self.routers[to], values)
        for router, asked in self.proceeding.pop(self.tick, ()):
            self.routers[router].proceed(asked, now)
        for router, publication in self.pushes.pop(self.tick, ()):
            self.routers[router].push(publication, now)
        for router, topic in self.workload.uploads(self.tick):
            self.published += 1
            self.routers[router].upload(PublishedItem(self.published, now, topic), now)
        ended = self.lifetimes.pop(self.tick, ())
        for interest, request in ended:
            self.ask(self.workload.after(request), self.routers[request.router].finish(interest, now).cursor)
        for request in self.workload.new_requests(self.tick, len(ended)):
            self.ask(request)
        for router in self.routers:
            router.expire(now)

    def arrive(self, call, router, values) -> None:
        if call == "flushed":
            router.flushed(*values)
        elif call == "multicast":
            router.multicast(*values, self.now)
        else:
            publication, pending, interest, came_from = values
            router.answer(publication, pending, interest, self.now, came_from)

    def ask(self, request, cursor=0) -> None:
        self.asked += 1
        setting = self.setting
        oldest = oldest_upload(
            setting.freshness_rule, now=self.now, lifetime=request.lifetime, freshness=setting.freshness
        )
        interest = LooseInterest(
            self.asked,
            request.max,
            self.now + request.lifetime,
            oldest,
            request.refreshed,
            request.topic,
            request,
            cursor=cursor,
        )
        self.lifetimes.setdefault(self.tick + request.lifetime * TICKS, []).append((interest.id, request))
        self.routers[request.router].register(interest, self.now)


class PlainOutlet:
    """Carries what one router wants."""

    def __init__(self, network: PlainNetwork, router: int) -> None:
        self.network, self.router = network, router

    def advertise(self, interest, came_from):
        self.network.begun.setdefault(interest.id, len(self.network.begun))
        self.network.send("interest", self.router, came_from, (interest,))

    def probe(self, interface, interest):
        self.network.counts["interest"] += 1
        self.network.probes.append((interface, interest, self.router))

    def proceed_at(self, interest, at):
        self.network.proceeding.setdefault(round(at * TICKS), []).append((self.router, interest))

    def overload(self, interest, came_from):
        self.network.send("overload", self.router, came_from, (interest,))

    def room(self, interface):
        return EVERYTHING

    def answer(self, interface, interest, publication, pending):
        self.network.counts["publication"] += 1
        self.network.flying["publication"].append(("answer", interface, publication, pending, interest, self.router))

    def multicast(self, interfaces, publication, pending, nonce):
        self.network.counts["publication"] += len(interfaces)
        for to in interfaces:
            self.network.flying["publication"].append(("multicast", to, publication, pending, nonce, self.router))

    def deliver(self, interest, publication):
        self.network.delivered.append((interest.id, publication.id))

    def schedule(self, publication, at):
        tick = max(ceil(at * TICKS - 1e-6), self.network.tick + 1)
        self.network.pushes.setdefault(tick, []).append((self.router, publication))

    def flush(self, publication):
        those = self.network.neighbours[self.router]
        self.network.counts["publication"] += 1
        to = those[self.network.next_nonce() % len(those)]
        self.network.flying["publication"].append(("flushed", to, publication))

    def drop(self, publication, reason):
        pass


@pytest.mark.parametrize("name", SETTINGS)
def test_fast_and_plain_deliver_the_same_at_the_same_cost(name, monkeypatch):
    setting = NewsSetting(**(SMALL | SETTINGS[name]))
    plain = PlainNetwork(setting, 3).run()
    fast = FastNetwork(setting, 3)
    delivered = []
    deliver = fast.tally.deliver
    monkeypatch.setattr(
        fast.tally, "deliver", lambda one, what: (delivered.append((one.id, what.id)), deliver(one, what))
    )
    tally = fast.run()
    assert len(plain.delivered) > 300
    assert delivered == plain.delivered
    assert tally.publication_messages == plain.counts["publication"]
    flood = sum(len(those) for those in plain.neighbours)  # one may be under way at the end
    assert tally.interest_messages == pytest.approx(plain.counts["interest"], rel=0.01, abs=flood)
    assert tally.overload_messages == pytest.approx(plain.counts["overload"], rel=0.02)  # sent at the very end
    assert (tally.twice, tally.too_old, tally.too_many) == (0, 0, 0)


@pytest.mark.parametrize("queue", ["score", "fifo"])
def test_a_busy_router_matches_and_sends_no_more_than_it_has_time_for(queue, monkeypatch):
    """004 section 3.3.1: buffers before and after the forwarding decision."""
    network = FastNetwork(NewsSetting(**(SMALL | {"service": 0.5, "queue": queue})), 3)
    through = {True: [], False: []}  # before sending or matching: how many left the busiest queue in each tick
    call = network._through

    def watched(queues, messages, *, before_sending):
        done = call(queues, messages, before_sending=before_sending)
        where = [one[5] if before_sending else one[1] for one in done]
        through[before_sending].append(max(map(where.count, where), default=0))
        return done

    monkeypatch.setattr(network, "_through", watched)
    tally = network.run()
    assert max(through[True]) == max(through[False]) == 1
    assert sum(through[True]) <= 0.5 * len(through[True])
    assert tally.starved > 0
    assert (tally.twice, tally.too_old, tally.too_many) == (0, 0, 0)


@pytest.mark.parametrize("seed", [3, 4])
def test_who_asks_for_everything_to_come_gets_what_exhaustive_filtering_brings_and_no_more(seed: int):
    setting = NewsSetting(**(SMALL | {"selectivity": 0.0, "freshness": 0.0}))
    all_there_was = ExhaustiveNetwork(setting, seed).run()["deliveries to ended lifetimes"]
    assert FastNetwork(setting, seed).run().deliveries_ended == all_there_was > 0


def test_exhaustive_filtering_floods_every_interest():
    setting = NewsSetting(**(SMALL | {"selectivity": 1_000.0, "freshness": 6.0}))
    found = ExhaustiveNetwork(setting, 3).run()
    assert found["satisfaction"] == 0.0
    assert found["control messages"] == found["interests"] * (1 + sum(len(those) - 1 for those in network_of(setting)))


def network_of(setting: NewsSetting) -> list[list[int]]:
    return NewsWorkload(setting, 3).neighbours


def test_the_network_of_the_paper():
    """004 section 4.2: 100 routers, average degree 4, diameter 6, few with many neighbours."""
    neighbours = power_law_network(100, 4, generator(1, "network"))
    degrees = sorted(map(len, neighbours))
    assert sum(degrees) / 100 == pytest.approx(4.0, abs=0.1)
    assert diameter(neighbours) == 6
    assert degrees[50] <= 3 < 12 < degrees[-1]


def test_volumes_are_those_of_the_events():
    setting = NewsSetting(publications=5_000, interests=1_000)
    workload = NewsWorkload(setting, 1)
    events = [topic // setting.topics for tick in range(setting.units * TICKS) for _, topic in workload.uploads(tick)]
    assert (events.count(0), events.count(1)) == (1_500, 500)
    assert all(len(places) <= 30 for places in workload.places)
    assert LOCAL < 0

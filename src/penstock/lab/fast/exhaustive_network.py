"""The same news network with exhaustive filtering (EF): everything goes to everybody, and receivers keep it all.

The baseline of 004 section 4. Interests are flooded to every router and publications multicast when they are uploaded.
What a receiver got is what came to its router on its topic during its lifetime; it is satisfied if that is as much as
it wanted. All interests of a router travel the same ways (HomeTree), a hop in each tick; one that lives no longer than
another of its router and topic changes nothing on them. Messages are counted as if each had travelled alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from penstock.lab.fast.floods import HomeTree
from penstock.lab.fast.news_workload import NewsRequest, NewsWorkload
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.retrieval.exhaustive import ExhaustiveRouter
from penstock.retrieval.interest import EVERYTHING, LOCAL


class CrowdOutlet:
    """What one router wants done."""

    def __init__(self, network: ExhaustiveNetwork, router: int) -> None:
        self._network = network
        self._router = router

    def multicast(self, interfaces: Sequence[int], shelf: Hashable, nonce: Hashable) -> None:
        network, router = self._network, self._router
        network.publication_messages += len(interfaces)
        network.sent += [(to, shelf, nonce, router) for to in interfaces]

    def deliver(self, shelf: Hashable, nonce: Hashable) -> None:
        arrived = self._network.arrived
        arrived[self._router, shelf] = arrived.get((self._router, shelf), 0) + 1


class ExhaustiveNetwork:
    """One run of one setting and seed."""

    def __init__(self, setting: NewsSetting, seed: int) -> None:
        self.setting = setting
        self.workload = NewsWorkload(setting, seed)
        self.neighbours = self.workload.neighbours
        self.sent: list[tuple[int, Hashable, Hashable, int]] = []
        self.arrived: dict[tuple[int, Hashable], int] = {}
        self.publication_messages = 0
        self.interest_messages = 0
        self.lifetimes = self.satisfied = self.interests = 0
        self.new = self.new_satisfied = self.deliveries = 0
        self._routers = [ExhaustiveRouter(CrowdOutlet(self, router)) for router in range(setting.routers)]
        self._trees = [HomeTree(self.neighbours, home) for home in range(setting.routers)]
        self._until: dict[tuple[int, int], int] = {}  # somebody at a router waits for a topic
        self._asking: dict[int, list[tuple[int, int, int, float]]] = {}  # home, hop, topic, deadline, by tick
        self._lifetimes: dict[int, list[tuple[NewsRequest, int]]] = {}
        self._published = 0

    def run(self) -> dict[str, float]:
        """From the first unit to the last."""
        for tick in range(self.setting.units * TICKS + 1):
            self._step(tick)
        return {
            "satisfaction": 100.0 * self.satisfied / (self.lifetimes or 1),
            "satisfaction of new interests": 100.0 * self.new_satisfied / (self.new or 1),
            "publication messages": self.publication_messages,
            "control messages": self.interest_messages,
            "interests": self.interests,
            "lifetimes": self.lifetimes,
            "deliveries to ended lifetimes": self.deliveries,
        }

    def _step(self, tick: int) -> None:
        now = tick / TICKS
        for home, hop, topic, deadline in self._asking.pop(tick, ()):
            tree = self._trees[home]
            for router in tree.rings[hop]:
                self._routers[router].interest(topic, deadline, tree.way[router])
        sent, self.sent = self.sent, []
        for to, shelf, nonce, came_from in sent:
            self._routers[to].publication(shelf, nonce, came_from, now)
        for router, topic in self.workload.uploads(tick):
            self._published += 1
            self._routers[router].publication(topic, self._published, LOCAL, now)
        ended = self._lifetimes.pop(tick, ())
        for request, had in ended:
            self._expired(request, had)
            following = self.workload.after(request)
            if following is not None:
                self._ask(following, tick)
        for request in self.workload.new_requests(tick, len(ended)):
            self._ask(request, tick)

    def _ask(self, request: NewsRequest, tick: int) -> None:
        self.interests += 1
        home, topic = request.router, request.topic
        tree = self._trees[home]
        self.interest_messages += tree.messages
        ends = tick + max(request.lifetime, 1) * TICKS
        self._lifetimes.setdefault(ends, []).append((request, self.arrived.get((home, topic), 0)))
        if ends <= self._until.get((home, topic), 0):
            return
        self._until[home, topic] = ends
        self._routers[home].interest(topic, ends / TICKS, LOCAL)
        for hop in range(1, len(tree.rings)):
            self._asking.setdefault(tick + hop, []).append((home, hop, topic, ends / TICKS))

    def _expired(self, request: NewsRequest, had: int) -> None:
        got = self.arrived.get((request.router, request.topic), 0) - had
        self.lifetimes += 1
        enough = got >= request.max or request.max == EVERYTHING
        self.satisfied += enough
        self.deliveries += min(got, request.max)
        if not request.refreshed:
            self.new += 1
            self.new_satisfied += enough

"""What must hold of retrieval in every run (protocols section 8), whatever its seed.

    at-most-once       Req 1: a subscription gets no item twice, over all its lifetimes and homes (`checkers`)
    retrieval-max      no lifetime brings more than it asked for
    retrieval-fresh    nothing that is older than was asked for, and nothing long after the end of a lifetime
    retrieval-tables   a cache lists an item in one table, moves it as the life cycle says, and holds no more than it
                       may; what is pending was never sent
    retrieval-waves    no broker passes on a multicast twice to the same neighbour for the same home
    retrieval-served   in the end, when everything is up: a lifetime brings what is published during it, up to its
                       maximum; a first one that asks for all also what was published before and is fresh enough
    retrieval-told     what a client subscribed to began, or was refused

All but the last two are safe to judge at any time; those are for runs that heal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message
from penstock.content.predicate import Predicate
from penstock.kernel.trace import NodeStarted, Record
from penstock.retrieval.config import RetrievalConfig, RetrievalOptions
from penstock.retrieval.life_cycle import DISSEMINATED, LIFE_CYCLE, OVERFLOWING, PENDING, USED_PENDING, CachePlace
from penstock.retrieval.packets import CarriedPublication, RetrievalFlush, RetrievalMulticast
from penstock.retrieval.records import CachePlaced, ItemRetrieved, LifetimeBegan, LifetimeEnded
from penstock.scenario.checker import Checker
from penstock.scenario.node_config import broker_config
from penstock.scenario.spec import Scenario

SLACK = 1.0  # seconds that packets may be under way, by which ages are wrong
WRITES = 8  # of a stored cache, one after the other, that an item may wait for which was taken in time
PLACES: dict[str, CachePlace] = {
    "pending": PENDING,
    "used": USED_PENDING,
    "overflowing": OVERFLOWING,
    "disseminated": DISSEMINATED,
}
MOVES = {(before, after) for (before, _), after in LIFE_CYCLE.items()}

Lifetime = tuple[str, int, int]  # client, subscription, number


def retrieves(options: Mapping[str, Any]) -> bool:
    """Whether a subscription with these options retrieves."""
    return any(name in options for name in RetrievalOptions.__struct_fields__)


def retrieval_of(scenario: Scenario) -> RetrievalConfig:
    """The settings of all brokers."""
    config = broker_config(scenario).services.get("retrieval", RetrievalConfig())
    assert isinstance(config, RetrievalConfig)
    return config


class RetrievalMax(Checker):
    """At most so many in a lifetime."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._most: dict[Lifetime, int] = {}
        self._items: defaultdict[Lifetime, int] = defaultdict(int)

    def retrieval(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, LifetimeBegan):
            self._most[node, record.subscription, record.lifetime] = record.most
        elif isinstance(record, ItemRetrieved):
            key = (node, record.subscription, record.lifetime)
            self._items[key] += 1
            if 0 < self._most[key] < self._items[key]:
                self.problem(
                    f"{time:.6f}: {node} got {self._items[key]} items in lifetime {key[1:]} for {self._most[key]}"
                )


class RetrievalFresh(Checker):
    """Nothing too old, nothing too late."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._published: dict[Identity, float] = {}
        self._spans: dict[Lifetime, tuple[float, float]] = {}  # published from, delivered until
        disk = max((broker.disk_delay for broker in scenario.broker), default=0.0)
        self._late = SLACK + (WRITES * disk if retrieval_of(scenario).stored else 0.0)

    def published(self, time: float, client: str, message: Message) -> None:
        self._published[message.identity] = time

    def retrieval(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, LifetimeBegan):
            oldest = time - record.elapsed - record.freshness - SLACK
            self._spans[node, record.subscription, record.lifetime] = (oldest, time + record.left + self._late)
        elif isinstance(record, ItemRetrieved):
            identity = Identity(record.publisher, record.incarnation, record.count)
            oldest, latest = self._spans[node, record.subscription, record.lifetime]
            published = self._published.get(identity, oldest - 1.0)
            if published < oldest:
                self.problem(
                    f"{time:.6f}: {node} got {identity} of {published:.6f}; it asked for none before {oldest:.6f}"
                )
            if time > latest:
                self.problem(f"{time:.6f}: {node} got {identity} for a lifetime that was over at {latest:.6f}")


class RetrievalTables(Checker):
    """Each item in one table, in the way of its life cycle; what is pending was never sent."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._size = retrieval_of(scenario).cache_size
        self._caches: defaultdict[str, dict[Identity, CachePlace]] = defaultdict(dict)

    def retrieval(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, NodeStarted):
            self._caches[node].clear()
        if not isinstance(record, CachePlaced):
            return
        cache = self._caches[node]
        identity = Identity(record.publisher, record.incarnation, record.count)
        before = cache.get(identity)
        if not record.table:
            if cache.pop(identity, None) is None:
                self.problem(f"{time:.6f}: {node} evicts {identity}, which it does not have")
            return
        after = PLACES[record.table]
        if before is not None and (before, after) not in MOVES:
            self.problem(f"{time:.6f}: {node} moves {identity} from {before} to {after}")
        cache[identity] = after
        if len(cache) > self._size:
            self.problem(f"{time:.6f}: {node} caches {len(cache)} items; its cache has room for {self._size}")

    def item_sent(self, time: float, broker: str, neighbour: str, packet: CarriedPublication) -> None:
        place = self._caches[broker].get(packet.message.identity)
        if place in (PENDING, USED_PENDING) and not isinstance(packet, RetrievalFlush):
            self.problem(f"{time:.6f}: {broker} sends {packet.message.identity} to {neighbour} and lists it as pending")


class RetrievalWaves(Checker):
    """A nonce goes once over each link in each direction for each home, but for repetitions of what was lost."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._numbers: dict[tuple[object, ...], int] = {}

    def item_sent(self, time: float, broker: str, neighbour: str, packet: CarriedPublication) -> None:
        if isinstance(packet, RetrievalMulticast):
            for home in packet.homes or (None,):
                key = (broker, packet.sender, neighbour, packet.receiver, packet.nonce, home)
                if self._numbers.setdefault(key, packet.number) != packet.number:
                    self.problem(f"{time:.6f}: {broker} passes multicast {packet.nonce} on to {neighbour} again")


class RetrievalServed(Checker):
    """Once settled, lifetimes bring what there is."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._config = retrieval_of(scenario)
        self._published: list[tuple[float, Message]] = []
        self._began: dict[Lifetime, tuple[float, LifetimeBegan]] = {}
        self._items: defaultdict[Lifetime, int] = defaultdict(int)
        self._ended: dict[Lifetime, float] = {}
        self._stopped: dict[Lifetime, float] = {}  # their clients wanted no more
        self._predicates: dict[str, Predicate] = {}

    def published(self, time: float, client: str, message: Message) -> None:
        if time >= self.scenario.settled_after:
            self._published.append((time, message))

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        for key in self._began:
            if key[:2] == (client, subscription):
                self._stopped.setdefault(key, time)

    def retrieval(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, LifetimeBegan):
            self._began.setdefault((node, record.subscription, record.lifetime), (time, record))
        elif isinstance(record, LifetimeEnded):
            self._ended[node, record.subscription, record.lifetime] = time
        elif isinstance(record, ItemRetrieved):
            self._items[node, record.subscription, record.lifetime] += 1

    def finish(self) -> None:
        for key, (began, record) in self._began.items():
            ended = self._ended.get(key, self._stopped.get(key, self.scenario.duration))
            if self._config.dissemination != "overload notification" and (record.refreshed or key not in self._ended):
                continue  # what somebody has pulled before is not for them, and a push may come at the end
            due = self._due(began, ended, record)
            wanted = min(due, record.most) if record.most else due
            if self._items[key] < wanted:
                self.problem(
                    f"{key} from {began:.6f} to {ended:.6f} brought {self._items[key]} items; {wanted} were due"
                )

    def _due(self, began: float, ended: float, record: LifetimeBegan) -> int:
        """How many publications fit and must have come."""
        settle, settled_after = self.scenario.settle, self.scenario.settled_after
        predicate = self._predicates.setdefault(record.where, parse_predicate(record.where))
        whole = self._config.cache_size >= len(self._published) and self._config.duplicates in ("none", "proactive")
        spans = [(max(began, settled_after) + settle, ended - settle)]
        if record.most == 0 and not record.refreshed and whole and began >= settled_after:
            spans.append((began - record.freshness + settle, began - settle))
        return sum(
            predicate.matches(message.attributes)
            for time, message in self._published
            if any(first <= time <= last for first, last in spans)
        )


class RetrievalTold(Checker):
    """Whoever subscribes while it can is served or told why not."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._asked: dict[tuple[str, int], float] = {}
        self._loose = {
            (client.name, number)
            for client in scenario.client
            for number, one in enumerate(client.subscribe)
            if retrieves(one.options)
        }

    def subscribed(self, time: float, client: str, subscription: int, where: str) -> None:
        if (client, subscription) in self._loose:
            self._asked[client, subscription] = time

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        self._asked.pop((client, subscription), None)

    def retrieval(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, LifetimeBegan | LifetimeEnded):
            self._asked.pop((node, record.subscription), None)

    def finish(self) -> None:
        for (client, subscription), time in self._asked.items():
            self.problem(f"subscription {subscription} of {client}, made at {time:.6f}, never began")


RETRIEVAL_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "retrieval-max": RetrievalMax,
    "retrieval-fresh": RetrievalFresh,
    "retrieval-tables": RetrievalTables,
    "retrieval-waves": RetrievalWaves,
    "retrieval-served": RetrievalServed,
    "retrieval-told": RetrievalTold,
}

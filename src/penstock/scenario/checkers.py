"""What must hold in every run, whatever its seed: watchers of the whole network, no part of the product.

A checker sees what no node can see: every publication, delivery, hop and drop. It reports problems in words. The
invariants are those of B-DRP (002 section 2.7):

    at-most-once    no application gets a message twice for one subscription
    only-wanted     every delivery matches the subscription it was made for, judged by the predicate's text
    sets-split      copies that are under way name disjoint brokers, and no broker is served twice
    nothing-silent  every broker that a copy named was served, or the trace says where and why not
    nothing-missed  from `settled_after` on, everybody gets all they asked for; not part of the default, because it
                    holds only where nothing is overloaded or lossy

Those of streams stand in `stream_checkers`, those of priced sending in `priced_checkers`, those of retrieval in
`retrieval_checkers`, those of fair rates in `rates_checkers`, those of order and recovery in `transport_checkers`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from penstock import services
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message
from penstock.content.predicate import Predicate
from penstock.errors import InvalidScenario, choose_one
from penstock.kernel.trace import Dropped
from penstock.overlay.packets import BrokerId, Publication
from penstock.scenario.checker import Checker
from penstock.scenario.priced_checkers import PRICED_CHECKERS
from penstock.scenario.rates_checkers import RATES_CHECKERS
from penstock.scenario.retrieval_checkers import RETRIEVAL_CHECKERS, retrieves
from penstock.scenario.shared_checkers import SHARED_CHECKERS
from penstock.scenario.spec import DEFAULT_CHECKS, PRICED_CHECKS, RETRIEVAL_CHECKS, STREAM_CHECKS, Scenario
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.scenario.transport_checkers import TRANSPORT_CHECKERS

UNDER_WAY = 1.0  # seconds before the end of a run; what is sent later may not arrive in time


class AtMostOnce(Checker):
    """No application gets a message twice for one subscription."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._seen: set[tuple[str, int, Identity]] = set()

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        key = (client, subscription, message.identity)
        if key in self._seen:
            self.problem(f"{time:.6f}: {client} got {message.identity} twice for subscription {subscription}")
        self._seen.add(key)


class OnlyWanted(Checker):
    """Every delivery matches, and comes while the subscription is in force."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._predicates: dict[tuple[str, int], Predicate] = {}

    def subscribed(self, time: float, client: str, subscription: int, where: str) -> None:
        self._predicates[client, subscription] = parse_predicate(where)

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        self._predicates.pop((client, subscription), None)

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        predicate = self._predicates.get((client, subscription))
        if predicate is None:
            self.problem(f"{time:.6f}: {client} got {message.identity} for subscription {subscription}, not in force")
        elif not predicate.matches(message.attributes):
            self.problem(f"{time:.6f}: {client} got {message.identity}, which does not match {predicate.text}")


class SetsSplit(Checker):
    """Copies under way name disjoint brokers, and no broker is served twice."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        # For every message the brokers that copies are under way to, and those that were served.
        self._brokers: defaultdict[Identity, tuple[set[BrokerId], set[BrokerId]]]
        self._brokers = defaultdict(lambda: (set(), set()))

    def sent(self, time: float, packet: Publication) -> None:
        identity, destinations = packet.message.identity, packet.destinations
        under_way, served = self._brokers[identity]
        if not under_way.isdisjoint(destinations):
            for broker in sorted(under_way.intersection(destinations)):
                self.problem(f"{time:.6f}: two copies of {identity} are under way to broker {broker}")
        if not served.isdisjoint(destinations):
            for broker in sorted(served.intersection(destinations)):
                self.problem(f"{time:.6f}: {identity} goes to broker {broker}, which has it")
        under_way.update(destinations)

    def arrived(self, time: float, broker: BrokerId, packet: Publication) -> None:
        identity, destinations = packet.message.identity, packet.destinations
        under_way, served = self._brokers[identity]
        if not under_way.issuperset(destinations):
            for other in sorted(set(destinations) - under_way):
                self.problem(f"{time:.6f}: broker {broker} got {identity} for {other}, and nobody had sent it")
        under_way.difference_update(destinations)
        if broker in destinations:
            if broker in served:
                self.problem(f"{time:.6f}: broker {broker} was served twice with {identity}")
            served.add(broker)


class NothingSilent(Checker):
    """Whoever was named in a copy was served, or a record reports the loss."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._unserved: defaultdict[Identity, set[BrokerId]] = defaultdict(set)
        self._dropped: dict[Identity, int] = {}
        # Applications are silent while the network is drained; services go on, and the run ends among their messages.
        self._over = scenario.duration + scenario.drain - min(UNDER_WAY, scenario.drain)

    def sent(self, time: float, packet: Publication) -> None:
        if time <= self._over:
            self._unserved[packet.message.identity].update(packet.destinations)

    def arrived(self, time: float, broker: BrokerId, packet: Publication) -> None:
        self._unserved[packet.message.identity].discard(broker)

    def dropped(self, time: float, record: Dropped) -> None:
        if record.kind == "Publication":
            identity = Identity(record.publisher, record.incarnation, record.count)
            self._dropped[identity] = self._dropped.get(identity, 0) + record.destinations

    def finish(self) -> None:
        for identity, brokers in self._unserved.items():
            explained = self._dropped.get(identity, 0)
            if len(brokers) > explained:
                self.problem(f"{identity} never reached brokers {sorted(brokers)}; records explain {explained} of them")


class NothingMissed(Checker):
    """Once settled, every message reaches every subscription that was in force long enough before and after it."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._spans: dict[tuple[str, int], list[tuple[float, float | None, Predicate]]] = {}
        self._published: list[tuple[float, Message]] = []
        self._delivered: set[tuple[str, int, Identity]] = set()
        self._loose = {
            (client.name, number)
            for client in scenario.client
            for number, one in enumerate(client.subscribe)
            if retrieves(one.options)
        }

    def subscribed(self, time: float, client: str, subscription: int, where: str) -> None:
        if (client, subscription) in self._loose:
            return  # it does not ask for everything
        self._spans.setdefault((client, subscription), []).append((time, None, parse_predicate(where)))

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        spans = self._spans.get((client, subscription))
        if spans:
            begun, _, predicate = spans.pop()
            spans.append((begun, time, predicate))

    def published(self, time: float, client: str, message: Message) -> None:
        if time >= self.scenario.settled_after:
            self._published.append((time, message))

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        if time >= self.scenario.settled_after:
            self._delivered.add((client, subscription, message.identity))

    def finish(self) -> None:
        for (client, subscription), spans in self._spans.items():
            for begun, ended, predicate in spans:
                for time, message in self._due(begun, ended):
                    got = (client, subscription, message.identity) in self._delivered
                    if not got and predicate.matches(message.attributes):
                        self.problem(f"{message.identity} of {time:.6f} never reached {client}: {predicate.text}")

    def _due(self, begun: float, ended: float | None) -> Iterator[tuple[float, Message]]:
        """The messages that a subscription in force over this span must not miss, if it wants them."""
        settle = self.scenario.settle
        for time, message in self._published:
            if begun + settle <= time and (ended is None or time + settle <= ended):
                yield time, message


CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "at-most-once": AtMostOnce,
    "only-wanted": OnlyWanted,
    "sets-split": SetsSplit,
    "nothing-silent": NothingSilent,
    "nothing-missed": NothingMissed,
}


def all_checkers() -> dict[str, Callable[[Scenario], Checker]]:
    """The checkers of the network and of the services that come with it, and those that other services bring."""
    own = (CHECKERS, STREAM_CHECKERS, SHARED_CHECKERS, PRICED_CHECKERS, RATES_CHECKERS, RETRIEVAL_CHECKERS)
    every = (*own, TRANSPORT_CHECKERS, services.checkers())
    return {name: make for some in every for name, make in some.items()}


def check_names(scenario: Scenario) -> tuple[str, ...]:
    """What is checked: what the scenario names; with the default, what goes with its streams and classes too."""
    if scenario.check != DEFAULT_CHECKS:
        return scenario.check
    names = DEFAULT_CHECKS + STREAM_CHECKS * bool(scenario.stream) + PRICED_CHECKS * bool(scenario.classes)
    retrieving = any(retrieves(one.options) for client in scenario.client for one in client.subscribe)
    return names + RETRIEVAL_CHECKS * retrieving


def make_checkers(scenario: Scenario) -> list[Checker]:
    """The checkers of a scenario."""
    known = all_checkers()
    names = check_names(scenario)
    for index, name in enumerate(names):
        if name not in known:
            raise InvalidScenario(f"check[{index}]", f"there is no checker '{name}'; {choose_one(name, known)}")
    return [known[name](scenario) for name in names]

"""Who is worth comparing in a scenario: clients, or publishers, that differ in one thing alone.

Two clients that want the same, of whom only one asks for order or recovery, show what the transport does and what it
costs. Two publishers that send the same amount over equally narrow ways, of whom only one listens to its readers, show
what congestion control does. The network file says who they are; nothing here looks at a run.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from penstock.content.language.parser import parse_predicate
from penstock.scenario.spec import ClientSpec, LinkSpec, Scenario
from penstock.transport.service import TRANSPORT


class Pair(NamedTuple):
    """A publisher, a client that wants what it publishes, and whether they have what is compared."""

    publisher: str
    client: str
    careful: bool


def twins(scenario: Scenario) -> list[Pair]:
    """Clients that want the same, some with order or recovery and some without, beside each publisher."""
    publishers = [client.name for client in scenario.client if TRANSPORT.name in client.services and client.publish]
    clients = [client for client in scenario.client if client.subscribe]
    found = []
    for first in clients:
        for second in clients:
            if _careful(first) and not _careful(second) and _predicates(first) & _predicates(second):
                for publisher in publishers:
                    found += [Pair(publisher, first.name, True), Pair(publisher, second.name, False)]
    return list(dict.fromkeys(found))


def narrow_ways(scenario: Scenario) -> list[Pair]:
    """Publishers that send the same amount, some with congestion control and some without, and who wants it."""
    publishers = [client for client in scenario.client if len(client.publish) == 1]
    found = []
    for first in publishers:
        for second in publishers:
            if _controlled(first) and not _controlled(second) and _load(first) == _load(second):
                for publisher in (first, second):
                    recipes = publisher.publish[0].attributes
                    topic = {name: value for name, value in recipes.items() if isinstance(value, str)}
                    found += [
                        Pair(publisher.name, client.name, _controlled(publisher))
                        for client in scenario.client
                        for subscription in client.subscribe
                        if topic and parse_predicate(subscription.where).matches(topic)
                    ]
    return found


def bottleneck(scenario: Scenario, pair: Pair) -> tuple[str, str, LinkSpec] | None:
    """The narrowest link on the cheapest way from the publisher to the client: from, to, link; None without one."""
    homes = {client.name: client.broker for client in scenario.client}
    way = _cheapest_way(scenario, homes[pair.publisher], homes[pair.client])
    rated = [(link.rate_bits_per_s, a, b, link) for a, b, link in way if link.rate_bits_per_s is not None]
    return min(rated, key=lambda one: one[0])[1:] if rated else None


def _cheapest_way(scenario: Scenario, start: str, goal: str) -> list[tuple[str, str, LinkSpec]]:
    """Links in the order in which a message takes them; none if there is no way, or no need for one."""
    waiting: list[tuple[int, int, str, list[tuple[str, str, LinkSpec]]]] = [(0, 0, start, [])]
    seen: set[str] = set()
    number = 0
    while waiting:
        cost, _, here, way = heappop(waiting)
        if here == goal:
            return way
        if here in seen:
            continue
        seen.add(here)
        for link in scenario.link:
            if here in link.between:
                there = link.between[1] if here == link.between[0] else link.between[0]
                number += 1
                heappush(waiting, (cost + link.cost, number, there, [*way, (here, there, link)]))
    return []


def _controlled(client: ClientSpec) -> bool:
    settings = client.services.get(TRANSPORT.name)
    return settings is not None and settings.congestion


def _load(client: ClientSpec) -> tuple[object, ...]:
    spec = client.publish[0]
    return spec.rate_messages_per_s, spec.start, spec.stop, spec.body_bytes, spec.arrivals, client.broker


def _careful(client: ClientSpec) -> bool:
    return any({"ordered", "recover"} & set(subscription.options) for subscription in client.subscribe)


def _predicates(client: ClientSpec) -> set[str]:
    return {subscription.where for subscription in client.subscribe}

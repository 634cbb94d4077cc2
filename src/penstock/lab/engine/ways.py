"""Which way messages take to a client, where there is only one: in a tree of brokers.

A *hop* is (node, its neighbour on the way to the client, the client): what ends on this link was meant for the client.
The last hop of all is the queue of a slow reader, from the client to nobody.
"""

from __future__ import annotations

from penstock.scenario.spec import Scenario

Hop = tuple[str, str, str]


def first_hops(scenario: Scenario) -> list[Hop]:
    """The ways to each client: over its own queue and access link, and from each broker elsewhere."""
    neighbours: dict[str, list[str]] = {broker.name: [] for broker in scenario.broker}
    for link in scenario.link:
        a, b = link.between
        neighbours[a].append(b)
        neighbours[b].append(a)
    assert len(scenario.link) == len(scenario.broker) - 1, "only a tree has one way"
    found: list[Hop] = []
    for client in scenario.client:
        found += [(client.name, "", client.name), (client.broker, client.name, client.name)]
        reached, queue = {client.broker}, [client.broker]
        for near in queue:
            for far in neighbours[near]:
                if far not in reached:
                    reached.add(far)
                    queue.append(far)
                    found.append((far, near, client.name))
    return found

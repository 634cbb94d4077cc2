"""The ways that a home works out are those that copies take, from broker to broker."""

from __future__ import annotations

from random import Random

import pytest

from penstock.overlay.topology import Topology
from penstock.rates.way_links import WayLinks


@pytest.mark.parametrize("seed", range(20))
def test_ways_are_those_that_brokers_on_the_way_choose(seed: int) -> None:
    random = Random(seed)
    brokers = range(random.randint(2, 12))
    lines = {(a, b): random.randint(1, 3) for a in brokers for b in brokers if a < b and random.random() < 0.35}
    topology = Topology()
    for broker in brokers:
        near = {b if a == broker else a: cost for (a, b), cost in lines.items() if broker in (a, b)}
        topology.claim(broker, near)
    ways = WayLinks(topology.all_lines(), 0)
    for destination in brokers:
        hops, here = [], 0
        while here != destination:
            way = topology.ways_from(here).get(destination)
            if way is None:
                hops = []
                break
            hops.append((here, way.neighbour))
            here = way.neighbour
        assert ways.to(destination) == tuple(hops), f"seed {seed}, to {destination}"

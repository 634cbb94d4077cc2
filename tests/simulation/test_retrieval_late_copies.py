"""Busy rings with small caches: copies come late over links that were down, when others have left the caches (Req 1).

Each of these seeds brings items twice if routers do not remember what left their caches; those with crashes, if they
take for new what was uploaded before they began.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from penstock.retrieval.config import RetrievalConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate

NAMES = ("b0", "b1", "b2", "b3")
PAIRS = (("b0", "b1"), ("b1", "b2"), ("b2", "b3"), ("b3", "b0"), ("b0", "b2"))


def a_busy_ring(seed: int, *, crashes: bool) -> Scenario:
    random = Random(seed)
    return Scenario(
        name=f"busy ring {seed}",
        duration=18.0,
        drain=3.0,
        broker=tuple(BrokerSpec(name=name) for name in NAMES),
        link=tuple(_link(random, pair) for pair in PAIRS),
        client=(*_publishers(), *_readers(random)),
        fault=tuple(sorted(_faults(random, crashes=crashes), key=lambda fault: fault.at)),
        check=("at-most-once", "retrieval-max", "retrieval-tables", "retrieval-waves"),
        services={"retrieval": RetrievalConfig(cache_size=random.choice((2, 3, 8)), stored=crashes)},
    )


def _link(random: Random, pair: tuple[str, str]) -> LinkSpec:
    lossy: dict[str, Any] = {"kind": "datagram", "loss": random.choice((0.1, 0.4)), "duplicate": 0.1, "reorder": 0.1}
    kind = lossy if random.random() < 0.5 else {"kind": "reliable"}
    return LinkSpec(between=pair, delay=random.choice((0.001, 0.05, 0.3)), **kind)


def _publishers() -> Iterator[ClientSpec]:
    flow = PublisherSpec(rate_messages_per_s=15.0, arrivals="poisson", attributes={"topic": "news"}, body_bytes=10)
    for number in (0, 1):
        yield ClientSpec(name=f"p{number}", broker=NAMES[number], publish=(flow,))


def _readers(random: Random) -> Iterator[ClientSpec]:
    for number in range(4):
        options = {"all_items": True, "lifetime": random.choice(("2s", "2.5s")), "freshness": "1h"}
        wanted = SubscriptionSpec(where="TRUE", start=random.uniform(0.0, 4.0), options=options)
        yield ClientSpec(name=f"r{number}", broker=random.choice(NAMES), subscribe=(wanted,))


def _faults(random: Random, *, crashes: bool) -> Iterator[FaultSpec]:
    for _ in range(6):
        pair, at = random.choice(PAIRS), random.uniform(0.5, 12.0)
        yield FaultSpec(at=at, kind="link_down", link=pair)
        yield FaultSpec(at=at + random.choice((0.3, 3.0, 6.0)), kind="link_up", link=pair)
    for _ in range(3 if crashes else 0):
        broker, at = random.choice(NAMES), random.uniform(2.0, 12.0)
        yield FaultSpec(at=at, kind="crash", broker=broker)
        yield FaultSpec(at=at + random.choice((0.2, 3.0)), kind="restart", broker=broker)


@pytest.mark.parametrize(("seed", "crashes"), [(0, False), (2, False), (4, False), (14, True), (15, True)])
def test_copies_that_come_late_bring_nothing_twice(seed: int, crashes: bool) -> None:
    assert simulate(a_busy_ring(seed, crashes=crashes), seed).problems == []

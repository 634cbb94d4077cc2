"""Random scenarios for retrieval: small networks in which brokers crash, clients move, and nobody gets an item twice.

`retrieval_storm(seed)` draws a tree, a ring or a mesh of brokers on reliable links or on lossy ones, caches of several
sizes and policies, in memory or on disk, publishers, and readers with loose subscriptions, one-shot requests and
exhaustive ones. In the *safety phase* brokers crash (what their disks keep of the last changes is drawn too), links are
cut, the network is parted, clients lose their connections and move to other homes. Then everything heals. CONVERGENCE
seconds later the *liveness phase* begins: from then on lifetimes bring what there is.

The seed decides both the scenario and the run, so one number replays it: `penstock storm --retrieval --seed 17`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from penstock.kernel.randomness import generator
from penstock.retrieval.config import RetrievalClientConfig, RetrievalConfig
from penstock.retrieval.selection import CONFIGURATIONS
from penstock.scenario.checkers import CHECKERS
from penstock.scenario.retrieval_checkers import RETRIEVAL_CHECKERS
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec

EVENTS_MAX = 60_000
SAFETY = 6.0  # seconds of trouble
CONVERGENCE = 5.0
LIVENESS = 7.0
DRAIN = 3.0
TOPICS = ("news", "sport", "weather")


def retrieval_storm(seed: int) -> Scenario:
    """The scenario of this seed."""
    random = generator(seed, "retrieval storm")
    names = [f"b{number}" for number in range(random.choice((1, 2, 3, 3, 4, 5)))]
    links = list(_links(random, names))
    clients = (*_publishers(random, names), *_readers(random, names))
    return Scenario(
        name=f"retrieval-storm-{seed}",
        duration=SAFETY + CONVERGENCE + LIVENESS,
        drain=DRAIN,
        settled_after=SAFETY + CONVERGENCE,
        settle=1.0,
        broker=tuple(_broker(random, name) for name in names),
        link=tuple(links),
        client=clients,
        fault=tuple(sorted(_faults(random, names, links, clients), key=lambda fault: fault.at)),
        check=(*CHECKERS, *RETRIEVAL_CHECKERS),
        services={"retrieval": _retrieval(random)},
    )


def _retrieval(random: Random) -> RetrievalConfig:
    changed: dict[str, Any] = {"cache_size": random.choice((2, 5, 500, 500)), "stored": random.random() < 0.5}
    if random.random() < 0.5:
        changed |= {"policy": random.choice(list(CONFIGURATIONS)), "en_route": random.random() < 0.5}
    if random.random() < 0.3:
        changed |= {"dissemination": "delayed push", "push_margin": 1.5}
    if random.random() < 0.3:
        changed |= {"flushing": True, "cursors": random.random() < 0.5}
    if random.random() < 0.3:
        changed |= {"duplicates": random.choice(("none", "in network", "both"))}
    if random.random() < 0.3:
        changed |= {"addressed": False}
    return RetrievalConfig(**changed)


def _broker(random: Random, name: str) -> BrokerSpec:
    return BrokerSpec(
        name=name,
        clock_offset=random.uniform(-50.0, 50.0),
        clock_drift=random.uniform(-1e-3, 1e-3),
        joins_at=random.choice((0.0, 0.0, 0.0, random.uniform(0.0, SAFETY))),
        disk_delay=random.choice((0.002, 0.1, 0.5)),
    )


def _links(random: Random, names: list[str]) -> Iterator[LinkSpec]:
    pairs = {(random.choice(names[:number]), names[number]): None for number in range(1, len(names))}
    shape = random.choice(("tree", "ring", "mesh"))
    if shape == "ring" and len(names) > 2:
        pairs = {(name, names[(number + 1) % len(names)]): None for number, name in enumerate(names)}
    elif shape == "mesh" and len(names) > 2:
        for _ in range(len(names)):
            a, b = random.sample(names, 2)
            if (a, b) not in pairs and (b, a) not in pairs:
                pairs[a, b] = None
    lossy = random.random() < 0.5
    for a, b in pairs:
        harm: dict[str, Any] = {}
        if lossy:
            harm = {"kind": "datagram", "loss": random.choice((0.0, 0.05, 0.3))}
            harm |= {"duplicate": random.choice((0.0, 0.1)), "reorder": random.choice((0.0, 0.1))}
        yield LinkSpec(between=(a, b), delay=random.uniform(0.0, 0.05), **({"kind": "reliable"} | harm))


def _publishers(random: Random, names: list[str]) -> Iterator[ClientSpec]:
    for number in range(random.randint(1, 2)):
        flows = tuple(
            PublisherSpec(
                rate_messages_per_s=random.choice((1.0, 2.0)),
                arrivals="poisson",
                attributes={"topic": topic, "urgent": random.choice((True, False))},
                body_bytes=random.choice((10, 200)),
            )
            for topic in random.sample(TOPICS, random.randint(1, 2))
        )
        yield ClientSpec(name=f"p{number}", broker=random.choice(names), publish=flows)


def _readers(random: Random, names: list[str]) -> Iterator[ClientSpec]:
    for number in range(random.randint(2, 4)):
        wanted = tuple(_subscription(random) for _ in range(random.randint(1, 2)))
        settings = {"retrieval": RetrievalClientConfig(held_max=random.choice((1, 10_000)))}
        yield ClientSpec(
            name=f"r{number}",
            broker=random.choice(names),
            subscribe=wanted,
            services=settings,
            access_delay=random.choice((0.0, 0.02)),
            clock_offset=random.uniform(-50.0, 50.0),
            clock_drift=random.uniform(-1e-3, 1e-3),
        )


def _subscription(random: Random) -> SubscriptionSpec:
    start = random.uniform(0.0, SAFETY + CONVERGENCE + LIVENESS)
    if random.random() < 0.6:
        start = random.uniform(0.0, 2.0)
    stop = random.choice((None, None, None, start + random.uniform(1.0, 8.0)))
    where = random.choice(("TRUE", "topic = 'news'", "topic <> 'news'", "urgent"))
    options: dict[str, Any] = random.choice(({"all_items": True}, {"max": 1}, {"max": 3}, {"max": 6}))
    freshness = random.choice(("0", "2s", "5s", "1h"))
    lifetime = random.choice(("2s", "3.5s", "5s", "30s", "0"))
    options |= {"freshness": freshness, "lifetime": "4s" if freshness == lifetime == "0" else lifetime}
    if random.random() < 0.2:
        options |= {"at_end": True}
    if random.random() < 0.1:
        options |= {"one_lifetime": True}
    return SubscriptionSpec(where=where, start=start, stop=stop, options=options)


def _faults(
    random: Random, names: list[str], links: list[LinkSpec], clients: tuple[ClientSpec, ...]
) -> Iterator[FaultSpec]:
    def moment() -> float:
        return random.uniform(0.3, SAFETY)

    def later(at: float) -> float:
        return min(SAFETY, at + random.expovariate(1.5))

    for _ in range(random.randint(0, 3)):
        broker, at = random.choice(names), moment()
        yield FaultSpec(at=at, kind="crash", broker=broker, tail=random.choice(("lost", "kept", "torn")))
        yield FaultSpec(at=later(at), kind="restart", broker=broker)
    for _ in range(random.randint(0, 3) if links else 0):
        link, at = random.choice(links), moment()
        yield FaultSpec(at=at, kind="link_down", link=link.between)
        yield FaultSpec(at=later(at), kind="link_up", link=link.between)
    if random.random() < 0.3 and len(names) > 1:
        group = tuple(random.sample(names, random.randint(1, len(names) - 1)))
        yield FaultSpec(at=moment(), kind="partition", group=group)
    if random.random() < 0.2:
        broker, at = random.choice(names), moment()
        yield FaultSpec(at=at, kind="disk_full", broker=broker)
        yield FaultSpec(at=later(at), kind="disk_freed", broker=broker)
    for client in clients:
        if random.random() < 0.4 and client.subscribe:
            for _ in range(random.randint(1, 3)):
                yield FaultSpec(at=moment(), kind="move", client=client.name, broker=random.choice(names))
        elif random.random() < 0.3:
            at = moment()
            yield FaultSpec(at=at, kind="link_down", link=(client.name, client.broker))
            yield FaultSpec(at=later(at), kind="link_up", link=(client.name, client.broker))
    yield FaultSpec(at=SAFETY, kind="heal")

"""Random scenarios for the invariants: a small network in which everything goes wrong, and then heals.

`storm(seed)` draws a connected network with links of all kinds, clients that come and go with their subscriptions, and
a *safety phase* full of crashes, cut links, partitions, loss and jumping clocks, in which nothing may be delivered
twice, wrongly, or dropped in silence. Then everything heals. CONVERGENCE seconds later the *liveness phase* begins: as
long as it lasts, nobody may miss anything.

The seed of a storm decides both the scenario and the run, so one number replays it: `penstock storm --seed 17`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock.kernel.randomness import generator
from penstock.scenario.checkers import all_checkers
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe

SAFETY = 14.0  # seconds of trouble
CONVERGENCE = 5.0  # the time within which a healed network must miss nothing any more
LIVENESS = 6.0

ATTRIBUTES: dict[str, Recipe] = {
    "symbol": Recipe(choose=("IBM", "AMD", "SAP", "ARM"), zipf=1.0),
    "price": Recipe(uniform=(80.0, 140.0)),
    "volume": Recipe(integer=(0, 100), missing=0.3),
    "urgent": Recipe(chance=0.3, missing=0.3),
    "note": Recipe(choose=("urgent: now", "later", "re: urgent"), missing=0.5),
}


def storm(seed: int, *, rate_messages_per_s: float = 135.0) -> Scenario:
    """The scenario of this seed.

    The rate is that of all clients together in a network of seven brokers; a larger one, where a message makes more
    hops, publishes less, so that a run has at least 20,000 events at the default whatever its size.
    """
    random = generator(seed, "storm")
    names = [f"b{number}" for number in range(random.randint(4, 10))]
    links = list(_links(random, names))
    leaver = "b-leaver"  # it carries nobody's only way and nobody's clients, so the rest can do without it
    links += [_link(random, leaver, other) for other in random.sample(names, 2)]
    count = len(names) + 4
    share = rate_messages_per_s * (7 / len(names)) ** 0.6 / count
    clients = tuple(_client(random, number, random.choice(names), share) for number in range(count))
    return Scenario(
        name=f"storm-{seed}",
        duration=SAFETY + CONVERGENCE + LIVENESS,
        drain=4.0,
        settled_after=SAFETY + CONVERGENCE,
        settle=2.0,
        broker=tuple(_broker(random, name) for name in [*names, leaver]),
        link=tuple(links),
        client=clients,
        fault=tuple(sorted(_faults(random, names, leaver, links), key=lambda fault: fault.at)),
        check=tuple(all_checkers()),
        services={"routing": {"interest": random.choice(("exact", "exact", "encoded"))}},
    )


def _broker(random: Random, name: str) -> BrokerSpec:
    return BrokerSpec(
        name=name,
        workers=random.randint(1, 4),
        service_mean=random.choice((0.0, 0.001, 0.003)),
        joins_at=random.choice((0.0, 0.0, 0.0, random.uniform(0.0, SAFETY))),
        clock_offset=random.uniform(-5.0, 5.0),
        clock_drift=random.uniform(-1e-3, 1e-3),
    )


def _links(random: Random, names: list[str]) -> Iterator[LinkSpec]:
    """A random tree, and a few links more."""
    pairs = {(random.choice(names[:number]), names[number]): None for number in range(1, len(names))}
    for _ in range(random.randint(0, len(names))):
        a, b = random.sample(names, 2)
        if (a, b) not in pairs and (b, a) not in pairs:
            pairs[a, b] = None
    for number, (a, b) in enumerate(pairs):
        yield _link(random, a, b, repair=number % 2 == 0)


def _link(random: Random, a: str, b: str, *, repair: bool = True) -> LinkSpec:
    delay = random.uniform(0.0, 0.03)
    return LinkSpec(
        between=(a, b),
        kind=random.choice(("datagram", "datagram", "shaped", "reliable")),
        rate_bits_per_s=random.choice((None, 10e6, 2e6)),
        delay=delay,
        jitter=random.uniform(0.0, delay / 2),
        loss=random.choice((0.0, 0.01, 0.2)),
        queue_packets=random.choice((100, 1_000)),
        cost=random.randint(1, 4),
        repair=repair,
    )


def _client(random: Random, number: int, broker: str, rate_messages_per_s: float) -> ClientSpec:
    end = SAFETY + CONVERGENCE + LIVENESS
    subscriptions = []
    for _ in range(random.randint(1, 3)):
        start = random.choice((0.0, random.uniform(0.0, end)))
        stop = random.choice((None, random.uniform(start, end)))
        subscriptions.append(SubscriptionSpec(where=random_filter(random), start=start, stop=stop))
    publishers = (
        PublisherSpec(
            rate_messages_per_s=rate_messages_per_s * random.uniform(0.5, 1.5),
            arrivals=random.choice(("constant", "poisson")),
            attributes=dict(ATTRIBUTES),
            body_bytes=random.randint(0, 300),
        ),
    )
    return ClientSpec(
        name=f"c{number}",
        broker=broker,
        access_delay=random.choice((0.0, 0.0, 0.002)),
        access_rate_bits_per_s=random.choice((None, None, 5e6)),
        subscribe=tuple(subscriptions),
        publish=publishers,
    )


def random_filter(random: Random) -> str:
    """What somebody may want of messages with these attributes."""
    symbol = random.choice(("IBM", "AMD", "SAP", "ARM"))
    low = random.randint(80, 130)
    return random.choice(
        (
            "TRUE",
            f"symbol = '{symbol}'",
            f"symbol <> '{symbol}' AND urgent",
            f"price BETWEEN {low} AND {low + 15}",
            f"symbol IN ('{symbol}', 'ARM') OR volume > 70",
            f"volume IS NULL AND price < {low}",
            f"note LIKE 'urgent%' OR NOT (urgent OR price > {low})",
            "NOT EXISTS note AND volume BETWEEN 32 AND 47",
        )
    )


def _faults(random: Random, names: list[str], leaver: str, links: list[LinkSpec]) -> Iterator[FaultSpec]:
    def moment() -> float:
        return random.uniform(0.5, SAFETY)

    for _ in range(random.randint(1, 6)):
        broker, at = random.choice(names), moment()
        yield FaultSpec(at=at, kind="crash", broker=broker)
        if random.random() < 0.8:
            yield FaultSpec(at=min(SAFETY, at + random.expovariate(1.0)), kind="restart", broker=broker)
    for _ in range(random.randint(1, 8)):
        link, at = random.choice(links), moment()
        yield FaultSpec(at=at, kind="link_down", link=link.between)
        if random.random() < 0.8:
            yield FaultSpec(at=min(SAFETY, at + random.expovariate(0.5)), kind="link_up", link=link.between)
    if random.random() < 0.5:
        group = tuple(random.sample(names, random.randint(1, len(names) - 1)))
        yield FaultSpec(at=moment(), kind="partition", group=group)
    if random.random() < 0.3:
        yield FaultSpec(at=moment(), kind="leave", broker=leaver)
    for _ in range(random.randint(0, 3)):
        yield FaultSpec(at=moment(), kind="clock_step", broker=random.choice(names), seconds=random.uniform(-1.0, 1.0))
    yield FaultSpec(at=SAFETY, kind="heal")

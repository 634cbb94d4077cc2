"""Random scenarios for fair rates: small networks with narrow links and more to carry than they can, in trouble.

`rates_storm(seed)` draws a tree or a mesh of brokers joined by links of all kinds, most of them narrow, publishers of
messages of all sizes, steady and in spikes, who prefer this or that when a link is full, and readers of overlapping
content, some of them slow, or behind a slow link of their own. Some publishers' names form groups, and in some storms
these share; in some, one broker has no rates at all. In the *safety phase* brokers crash, links are cut and change
their rates, clients die, clocks are set. Then everything heals. CONVERGENCE seconds later the *liveness phase* begins:
links are still too narrow for all, so brokers withhold, and count what they withhold, and nobody is shut out.

The seed decides both the scenario and the run, so one number replays it: `penstock storm --rates --seed 17`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec.structs import replace

from penstock.kernel.randomness import generator
from penstock.rates.config import RatesClientConfig, RatesConfig, WhenFull
from penstock.scenario.rates_checkers import RATES_CHECKERS
from penstock.scenario.spec import (
    DEFAULT_CHECKS,
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    SubscriptionSpec,
)
from penstock.scenario.storm import ATTRIBUTES, random_filter
from penstock.scenario.transport_storm import transport_storm
from penstock.scenario.workload import PublisherSpec

EVENTS_MAX = 200_000
SAFETY = 3.0  # seconds of trouble
CONVERGENCE = 7.0  # news may stand behind a full socket of a narrow reliable link
LIVENESS = 22.0  # whoever is shut out before its middle is seen to be
DRAIN = 40.0  # a home holds up to 64 KiB of one that waits; half of a narrow link carries that in so long


def rates_storm(seed: int) -> Scenario:
    """The scenario of this seed."""
    random = generator(seed, "rates storm")
    names = [f"b{number}" for number in range(random.randint(2, 6))]
    links = list(_links(random, names))
    brokers = _brokers(random, names)
    clients = (*_readers(random, brokers), *_publishers(random, names))
    return Scenario(
        name=f"rates-storm-{seed}",
        duration=SAFETY + CONVERGENCE + LIVENESS,
        drain=DRAIN,
        settled_after=SAFETY + CONVERGENCE,
        settle=2.0,
        broker=brokers,
        link=tuple(links),
        client=clients,
        fault=tuple(sorted(_faults(random, names, links, clients), key=lambda fault: fault.at)),
        check=(*DEFAULT_CHECKS, *RATES_CHECKERS),
        services={"rates": _settings(random)},
    )


def recovery_storm(seed: int) -> Scenario:
    """The transport's storm of this seed over narrow links: what is thinned is recovered later, or told as withheld."""
    storm = transport_storm(seed)
    random = generator(seed, "recovery storm")
    links = tuple(replace(link, rate_bits_per_s=random.choice((None, 4e4, 6e4, 1e5))) for link in storm.link)
    return replace(storm, name=f"recovery-storm-{seed}", link=links, services={"rates": _settings(random)})


def _settings(random: Random) -> RatesConfig:
    """What is unusual is so only in some storms."""
    changed: dict[str, Any] = {}
    if random.random() < 0.2:
        changed |= {"slow_start": False}
    if random.random() < 0.2:
        changed |= {"wait": random.choice((0.0, 1.0))}
    if random.random() < 0.2:
        changed |= {"announce_every": 0.5, "refresh": 0.5, "expire_after": 1.0}
    if random.random() < 0.25:
        changed |= {"share_by": "group"}
    return RatesConfig(enabled=True, **changed)


def _brokers(random: Random, names: list[str]) -> tuple[BrokerSpec, ...]:
    unaware = random.choice(names) if random.random() < 0.2 else ""
    brokers = (_broker(random, name) for name in names)
    return tuple(replace(broker, without=("rates",)) if broker.name == unaware else broker for broker in brokers)


def _broker(random: Random, name: str) -> BrokerSpec:
    return BrokerSpec(
        name=name,
        workers=random.choice((1, 4)),
        service_mean=random.choice((0.0, 0.001)),
        clock_offset=random.uniform(-5.0, 5.0),
        clock_drift=random.uniform(-1e-3, 1e-3),
        joins_at=random.choice((0.0, 0.0, 0.0, random.uniform(0.0, SAFETY))),
    )


def _links(random: Random, names: list[str]) -> Iterator[LinkSpec]:
    """A random tree, and in every second storm some links more."""
    pairs = {(random.choice(names[:number]), names[number]): None for number in range(1, len(names))}
    for _ in range(random.choice((0, len(names) // 2))):
        a, b = random.sample(names, 2)
        if (a, b) not in pairs and (b, a) not in pairs:
            pairs[a, b] = None
    for a, b in pairs:
        yield LinkSpec(
            between=(a, b),
            kind=random.choice(("datagram", "datagram", "shaped", "reliable", "tcp")),
            segment_bytes=536,
            send_buffer_bytes=4_096,  # more would be seconds of a narrow link
            wire_packets=random.choice((5, 20)),
            rate_bits_per_s=random.choice((None, 1e11, 2e4, 2e4, 3e4, 6e4)),
            delay=random.uniform(0.0, 0.05),
            loss=random.choice((0.0, 0.0, 0.02)),
            queue_packets=random.choice((10, 20)),
            cost=random.randint(1, 3),
        )


def _readers(random: Random, brokers: tuple[BrokerSpec, ...]) -> Iterator[ClientSpec]:
    for number in range(random.randint(2, 6)):
        home = random.choice(brokers)
        start = random.choice((0.0, 0.0, random.uniform(0.0, SAFETY)))
        stop = random.choice((None, None, random.uniform(start, SAFETY)))
        reads = random.choice((None, None, 3.0))
        wanted = (
            SubscriptionSpec(
                where=random.choice(("TRUE", random_filter(random))),
                reads_messages_per_s=reads,
                queue_max=random.choice((20, 1_000)) if reads is None else 20,  # what stands there comes late
            ),
            SubscriptionSpec(where=random_filter(random), start=start, stop=stop),
        )
        services = {"rates": RatesClientConfig(enabled=True, keep=random.choice(("oldest", "newest")))}
        yield ClientSpec(
            name=f"r{number}",
            broker=home.name,
            subscribe=wanted,
            services=services,
            access_rate_bits_per_s=random.choice((None, None, None, 3e4)),
            queue_packets=20 if home.without else random.choice((20, 1_000)),  # nobody thins what stands there
        )


def _publishers(random: Random, names: list[str]) -> Iterator[ClientSpec]:
    for number in range(random.randint(2, 4)):
        when_full: WhenFull = random.choice(("thin", "thin", "wait", "drop"))
        flow = PublisherSpec(
            rate_messages_per_s=random.choice((2.0, 6.0, 12.0)),
            spike_rate_messages_per_s=random.choice((None, None, 50.0)),
            spike_every=4.0,
            spike_lasts=(0.1, 0.8),
            arrivals=random.choice(("constant", "poisson")),
            attributes=dict(ATTRIBUTES),
            body_bytes=random.choice((20, 200, 200, 600)),
            waits=int(when_full == "wait"),  # or what it says would stand in its client for ever
        )
        services = {"rates": RatesClientConfig(when_full=when_full)}
        name = f"{random.choice(('', '', 'pool/'))}p{number}"
        yield ClientSpec(name=name, broker=random.choice(names), publish=(flow,), services=services)


def _faults(
    random: Random, names: list[str], links: list[LinkSpec], clients: tuple[ClientSpec, ...]
) -> Iterator[FaultSpec]:
    def moment() -> float:
        return random.uniform(0.3, SAFETY)

    def later(at: float) -> float:
        return min(SAFETY, at + random.expovariate(1.0))

    for _ in range(random.randint(0, 2)):
        broker, at = random.choice(names), moment()
        yield FaultSpec(at=at, kind="crash", broker=broker)
        yield FaultSpec(at=later(at), kind="restart", broker=broker)
    for _ in range(random.randint(0, 3)):
        link, at = random.choice(links).between, moment()
        yield FaultSpec(at=at, kind="link_down", link=link)
        yield FaultSpec(at=later(at), kind="link_up", link=link)
    narrow = [link.between for link in links if link.rate_bits_per_s is not None and link.rate_bits_per_s < 1e6]
    for _ in range(random.randint(0, 3) if narrow else 0):
        rate = random.choice((2e4, 3e4, 6e4))
        yield FaultSpec(at=moment(), kind="link_rate", link=random.choice(narrow), rate_bits_per_s=rate)
    for client in clients:
        if random.random() < 0.1:
            at = moment()
            yield FaultSpec(at=at, kind="client_crash", client=client.name)
            yield FaultSpec(at=later(at), kind="client_restart", client=client.name)
    for _ in range(random.randint(0, 2)):
        yield FaultSpec(at=moment(), kind="clock_step", broker=random.choice(names), seconds=random.uniform(-2.0, 2.0))
    yield FaultSpec(at=SAFETY, kind="heal")

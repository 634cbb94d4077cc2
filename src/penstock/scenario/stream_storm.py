"""Random scenarios for streams: small networks in which everything goes wrong, and then heals.

`stream_storm(seed)` draws a connected network of three to seven brokers with links of all kinds, one to three streams
with one to three pubends each, publishers, durable names that are read by one client after the other at different
brokers, and in some a name that several share (`share_storm`). In the *safety phase* brokers and clients crash, with
what their disks had not confirmed lost, kept or torn; links are cut, in one direction too, and lose, duplicate and
reorder; the network is parted, and joined again in one direction first; disks are full, slow, or damaged; clocks are
set. Then everything heals, and in the end nothing may be missing. Most settings are the product's defaults; some storms
have small caches, small windows or a short retention.

The seed decides both the scenario and the run, so one number replays it: `penstock storm --streams --seed 17`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from penstock.kernel.randomness import generator
from penstock.scenario.share_storm import drawn_members
from penstock.scenario.shared_checkers import SHARED_CHECKERS
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
)
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.streams.config import StreamsClientConfig, StreamsConfig

EVENTS_MAX = 20_000
SAFETY = 6.0  # seconds of trouble
QUIET = 2.0  # of publishing after it
CONVERGENCE = 14.0  # the time within which a healed network must have delivered everything: a lease, and a retry
MESSAGES = 60  # for all publishers together
LARGE = 6_000  # bytes of a body that fills narrow links
NARROW = 1e5  # bits per second

_ATTRIBUTES: dict[str, Recipe] = {
    "symbol": Recipe(choose=("IBM", "AMD", "SAP"), zipf=1.0),
    "price": Recipe(integer=(80, 140)),
    "urgent": Recipe(chance=0.3, missing=0.3),
}


def stream_storm(seed: int) -> Scenario:
    """The scenario of this seed."""
    random = generator(seed, "stream storm")
    names = [f"b{number}" for number in range(random.choice((3, 3, 4, 4, 5, 7)))]
    links = list(_links(random, names))
    streams = tuple(_stream(random, number, names) for number in range(random.choice((1, 1, 1, 2, 2, 3))))
    settings = _settings(random)
    clients = [
        *_publishers(random, names, streams, settings),
        *(client for stream in streams for client in _readers(random, names, stream)),
    ]
    faults = [*_faults(random, names, links, streams, settings), *_client_faults(random, clients)]
    draws = generator(seed, "shared names")
    members, more = drawn_members(draws, names, streams, [_where(draws) for _ in range(4)], SAFETY)
    faults = sorted((*faults, *_client_faults(draws, members)), key=lambda fault: fault.at)
    return Scenario(
        name=f"stream-storm-{seed}",
        duration=SAFETY + QUIET,
        drain=CONVERGENCE - QUIET,
        broker=tuple(_broker(random, name) for name in names),
        link=tuple(links),
        stream=(*streams, *more),
        client=(*clients, *members),
        fault=tuple(faults),
        check=(*STREAM_CHECKERS, *SHARED_CHECKERS) if members else tuple(STREAM_CHECKERS),
        services={"streams": settings, "routing": {"interest": random.choice(("exact", "exact", "encoded"))}},
    )


def _settings(random: Random) -> StreamsConfig:
    """Mostly the defaults."""
    changed: dict[str, Any] = {}
    if random.random() < 0.4:
        changed |= {"cache_bytes": random.choice((500, 1_500, 2_900)), "answer_bytes": random.choice((600, 4_000))}
    if random.random() < 0.3:
        changed |= {"nack_window": random.choice((0.2, 1.0)), "receive_window": random.choice((1.0, 3.0))}
    if random.random() < 0.2:
        changed |= {"runs_max": random.choice((3, 20)), "outstanding_max": random.choice((1, 4))}
    if random.random() < 0.2:
        changed |= {"lease": random.choice((0.3, 2.0)), "reads_max": 1}
    if random.random() < 0.2:
        changed |= {"refresh_interval": 0.3}
    if random.random() < 0.4:
        changed |= {"history": random.choice((0.5, 2.0)), "ids_window": random.choice((2.0, 4.0))}
        if random.random() < 0.5:
            changed |= {"retain": random.choice((2.5, 4.0))}
    return StreamsConfig(**changed)


def _broker(random: Random, name: str) -> BrokerSpec:
    return BrokerSpec(
        name=name,
        workers=random.randint(1, 3),
        service_mean=random.choice((0.0, 0.0, 0.002)),
        clock_offset=random.choice((1e6, 1e6 + random.uniform(-5.0, 5.0))),
        clock_drift=random.uniform(-1e-3, 1e-3),
        disk_delay=random.choice((0.0, 0.002, 0.02)),
    )


def _links(random: Random, names: list[str]) -> Iterator[LinkSpec]:
    """A random tree, and a few links more."""
    pairs = {(random.choice(names[:number]), names[number]): None for number in range(1, len(names))}
    for _ in range(random.randint(0, len(names) // 2)):
        a, b = random.sample(names, 2)
        if (a, b) not in pairs and (b, a) not in pairs:
            pairs[a, b] = None
    for number, (a, b) in enumerate(pairs):
        yield _link(random, a, b, repair=number % 2 == 0)


def _link(random: Random, a: str, b: str, *, repair: bool = True) -> LinkSpec:
    kind: Literal["datagram", "shaped", "reliable"] = random.choice(("datagram", "datagram", "shaped", "reliable"))
    delay = random.uniform(0.0, 0.03)
    astray = kind != "reliable"
    return LinkSpec(
        between=(a, b),
        kind=kind,
        rate_bits_per_s=random.choice((None, None, 10e6, 1e6)),
        delay=delay,
        jitter=random.uniform(0.0, delay / 2),
        loss=random.choice((0.0, 0.02, 0.2)),
        duplicate=random.choice((0.0, 0.03)) if astray else 0.0,
        reorder=random.choice((0.0, 0.2)) if astray else 0.0,
        queue_packets=random.choice((20, 1_000)),
        cost=random.randint(1, 3),
        repair=repair,
    )


def _stream(random: Random, number: int, names: list[str]) -> StreamSpec:
    return StreamSpec(name=f"s{number}", at=tuple(random.choice(names) for _ in range(random.choice((1, 1, 2, 3)))))


def _publishers(
    random: Random, names: list[str], streams: tuple[StreamSpec, ...], settings: StreamsConfig
) -> Iterator[ClientSpec]:
    known = settings.ids_window > SAFETY + QUIET  # a repeat is recognised, however long it is on its way
    large = known and settings.cache_bytes > LARGE  # a cache holds some messages
    bodies = (0, 100, 400, LARGE, LARGE) if large else (0, 100, 400)
    flows = [(stream.name, number) for stream in streams for number in range(max(random.randint(1, 3), len(stream.at)))]
    rate = MESSAGES / len(flows) / (SAFETY + QUIET)
    for number, (stream, key) in enumerate(flows):
        hasty = random.random() < 0.3  # it gives up soon, and tries again itself: large messages would fill the links
        publisher = PublisherSpec(
            rate_messages_per_s=rate * random.uniform(0.5, 1.5),
            arrivals="poisson",
            attributes=dict(_ATTRIBUTES),
            body_bytes=min(random.choice(bodies), 400 if hasty else LARGE),
            options={"stream": stream, "key": f"k{key}"},
            repeats=random.choice((0.0, 0.3)) if known else 0.0,
        )
        yield ClientSpec(
            name=f"p{number}",
            broker=random.choice(names),
            access_delay=random.choice((0.0, 0.002)),
            publish=(publisher,),
            services={"streams": StreamsClientConfig(give_up_after=1.0 if hasty else 60.0)},
        )


def _readers(random: Random, names: list[str], stream: StreamSpec) -> Iterator[ClientSpec]:
    """Durable names, each read by one client or by several in turn, at brokers to which readers come back."""
    homes = random.sample(names, random.choice((1, 2, len(names))))
    for number in range(random.randint(1, 3)):
        durable, where = f"d{number}", _where(random)
        options = {
            "stream": stream.name,
            "durable": durable,
            "takeover": True,
            "start_at": random.choice(("earliest", "latest", "")),
            "ack": random.choice(("auto", "manual")),
        }
        every, kept = random.choice((1, 1, 5)), random.random() < 0.5
        starts = sorted(random.choice((0.0, random.uniform(0.0, SAFETY))) for _ in range(random.choice((1, 2, 3, 4))))
        for turn, start in enumerate(starts):
            follower = starts[turn + 1] if turn + 1 < len(starts) else None
            overlap = random.random() < 0.3
            stop = None if follower is None or overlap else max(start, follower - random.uniform(0.0, 3.0))
            subscription = SubscriptionSpec(
                where=where,
                start=start,
                stop=stop,
                options=options,
                reads_messages_per_s=random.choice((None, None, 20.0)),
                from_kept=kept,
                acknowledge_every=every,
            )
            narrow = random.random() < 0.4  # until it heals; what does not fit its queue at the broker is dropped
            yield ClientSpec(
                name=f"r-{stream.name}-{durable}-{turn}",
                broker=random.choice(homes),
                access_rate_bits_per_s=NARROW if narrow else None,
                queue_packets=1 if narrow else 1_000,
                subscribe=(subscription,),
                services={"streams": StreamsClientConfig(window=random.choice((500, 500, 5)))},
            )


def _where(random: Random) -> str:
    low = random.randint(80, 125)
    return random.choice(
        (
            "TRUE",
            f"symbol = '{random.choice(('IBM', 'AMD', 'SAP'))}'",
            f"price BETWEEN {low} AND {low + 15}",
            f"urgent OR price > {low}",
            "urgent IS NULL",
        )
    )


def _faults(
    random: Random,
    names: list[str],
    links: list[LinkSpec],
    streams: tuple[StreamSpec, ...],
    settings: StreamsConfig,
) -> Iterator[FaultSpec]:
    hosts = [broker for stream in streams for broker in stream.at]

    def moment() -> float:
        return random.uniform(0.3, SAFETY)

    for _ in range(random.randint(0, 4)):
        broker, at = random.choice((*names, *hosts)), moment()
        yield FaultSpec(at=at, kind="crash", broker=broker, tail=random.choice(("lost", "kept", "torn")))
        if random.random() < 0.4:  # what a clock that is set during a life does to timers is no matter of streams
            seconds = random.choice((random.uniform(-60.0, 60.0), random.uniform(-5.0, 0.0)))
            yield FaultSpec(at=at, kind="clock_step", broker=broker, seconds=seconds)
        yield FaultSpec(at=min(SAFETY, at + random.expovariate(2.0)), kind="restart", broker=broker)
    for _ in range(random.randint(0, 4)):
        yield from _cut(random, random.choice(links), moment())
    if random.random() < 0.3:
        yield from _partition(random, names, links, moment())
    for _ in range(random.randint(0, 2)):
        furthest = min(1.0, settings.ids_window / 10.0)  # an id is kept a little longer than it must be
        broker, seconds = random.choice((*names, *hosts)), random.uniform(-1.0, furthest)
        yield FaultSpec(at=moment(), kind="clock_step", broker=broker, seconds=seconds)
    yield from _disk_faults(random, hosts, moment())
    yield FaultSpec(at=SAFETY, kind="heal")


def _client_faults(random: Random, clients: list[ClientSpec]) -> Iterator[FaultSpec]:
    """Connections break, and clients crash; somebody reads under each durable name in the end."""
    for client in clients:
        if client.access_rate_bits_per_s is not None:
            yield FaultSpec(at=SAFETY, kind="link_rate", link=(client.name, client.broker), rate_bits_per_s=1e7)
        if random.random() < 0.2:
            at = random.uniform(0.3, SAFETY)
            back = min(SAFETY, at + random.expovariate(2.0))
            yield FaultSpec(at=at, kind="link_down", link=(client.name, client.broker))
            yield FaultSpec(at=back, kind="link_up", link=(client.name, client.broker))
    if random.random() < 0.3:
        last = {client.name.rpartition("-")[0]: client.name for client in clients}
        mortal = [client.name for client in clients if client.name not in last.values()]
        if mortal:
            yield FaultSpec(at=random.uniform(0.3, SAFETY), kind="client_crash", client=random.choice(mortal))


def _cut(random: Random, link: LinkSpec, at: float) -> Iterator[FaultSpec]:
    """A link goes down for a while, in both directions or in one; one direction may come back first."""
    towards = random.choice((None, *link.between))
    back = min(SAFETY, at + random.expovariate(1.0))
    yield FaultSpec(at=at, kind="link_down", link=link.between, towards=towards)
    if random.random() < 0.3:
        yield FaultSpec(at=(at + back) / 2.0, kind="link_up", link=link.between, towards=random.choice(link.between))
    yield FaultSpec(at=back, kind="link_up", link=link.between)


def _partition(random: Random, names: list[str], links: list[LinkSpec], at: float) -> Iterator[FaultSpec]:
    """The network is parted, and perhaps joined again in one direction only, until it heals."""
    group = tuple(random.sample(names, random.randint(1, len(names) - 1)))
    yield FaultSpec(at=at, kind="partition", group=group)
    if random.random() < 0.5:
        joined = min(SAFETY, at + random.expovariate(1.0))
        for link in links:
            inside = [name for name in link.between if name in group]
            if len(inside) == 1:
                yield FaultSpec(at=joined, kind="link_up", link=link.between, towards=inside[0])


def _disk_faults(random: Random, hosts: list[str], at: float) -> Iterator[FaultSpec]:
    """A disk is full, slow or damaged for a while."""
    broker, later = random.choice(hosts), min(SAFETY, at + random.expovariate(1.0))
    chance = random.random()
    if chance < 0.15:
        yield FaultSpec(at=at, kind="disk_full", broker=broker)
        yield FaultSpec(at=later, kind="disk_freed", broker=broker)
    elif chance < 0.3:
        yield FaultSpec(at=at, kind="disk_slow", broker=broker, seconds=random.choice((0.1, 0.5)))
    elif chance < 0.5:
        yield FaultSpec(at=at, kind=random.choice(("disk_flip", "disk_roll_back")), broker=broker)
        if random.random() < 0.7:
            yield FaultSpec(at=later, kind="crash", broker=broker)
            yield FaultSpec(at=min(SAFETY, later + 0.2), kind="restart", broker=broker)

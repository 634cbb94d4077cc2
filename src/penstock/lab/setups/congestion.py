"""The larger networks of the experiments on congestion control (000 section IV-E, 002 sections 5.1.3, 5.3.5, 5.3.6).

`large_network`: 760 clients at 8 brokers, seven in a row and one beside the fourth (diameter 6, erratum C11). Both
publishers stand at the first broker, behind the one link of 1 Mbit/s. A message has ten attributes with Zipf(1.0)
values; a filter has one to five equalities, on values drawn by the same popularity, which is what the paper says
("zipf"). Beside that there are filters chosen so that the r-th subscriber wants about TOP_MATCH / r of all messages, or
TOP_MATCH / r**1.7: a few want much, most hardly anything. The bottleneck has the dumbbell's 20 ms, all other links half
a millisecond: the paper's machines stood in one room, and its 102 ms without control are little more than what a full
queue of 50 messages takes (112 ms).

`recovering_star`: five publishers at a hub and five subscribers at each of three brokers around it, two of them behind
1.5 Mbit/s. The i-th subscriber of each broker wants the messages with flag i, which two in three have, independently of
the other flags: so nearly all cross each link, and those behind the fast link want the same as the others.

`fork`: one publisher, a slow way and a fast one. `covered`: two subscribers of which one wants part of what the other
wants. `nested`: many subscribers behind one slow link, each with a filter of its own, many of them inside others.
"""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random
from typing import Literal

from penstock.content.message import Value
from penstock.kernel.randomness import generator
from penstock.lab.setups.dumbbell import ACCESS_DELAY, CONTROL, DELAY, PUBLISHING_STARTS, QUEUE_PACKETS, body_bytes
from penstock.lab.setups.paper_network import PAPER_SERVICES
from penstock.lab.setups.transported import with_transport_settings
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.transport.config import TransportConfig

FAST_BITS = 10e6
FAST_QUEUE = 1_000
Attributes = dict[str, Value | Recipe]

# The large network.
LARGE_BITS = 1e6
LARGE_DELAY = 0.0005  # of all other links
CLIENTS_PER_BROKER = 95
NAMES = tuple(f"a{number}" for number in range(10))
VALUES = tuple(chr(ord("A") + number) for number in range(20))
TOP_MATCH = 0.2
STEEPNESS = {"1/r": 1.0, "r^-1.7": 1.7}
LargeFilters = Literal["zipf", "1/r", "r^-1.7"]
CONSTRAINTS_MAX = 5
_HARMONIC = sum(1.0 / rank for rank in range(1, len(VALUES) + 1))

# Nested filters: enough of them that 1,600 subscribers have one each.
LEVELS = {"topic": 200, "place": 5, "leaf": 4}
NESTED_RATE = 400.0  # messages/s that are wanted, whoever wants them

# The star.
STAR_BITS = 1.5e6
FLAG_MATCH = 0.66
FLAGS = tuple(f"f{number}" for number in range(1, 6))


def large_network(
    *, duration: float, rate: float, subscribers: int, controlled: bool, name: str, filters: LargeFilters = "zipf"
) -> Scenario:
    """Two publishers with `rate` messages/s each, and so many subscribers; with 758 every broker has 95 clients."""
    brokers, links = large_brokers()
    attributes: Attributes = {attribute: Recipe(choose=VALUES, zipf=1.0) for attribute in NAMES}
    sample: dict[str, Value] = dict.fromkeys(NAMES, VALUES[0])
    clients = [
        _publisher(f"p{number}", "b0", attributes, sample, rate, duration, CONTROL if controlled else None)
        for number in (1, 2)
    ]
    homes = [f"b{number % 8}" for number in range(16, 8 * CLIENTS_PER_BROKER)] + [f"b{n}" for n in range(1, 8)] * 2
    for number, (home, where) in enumerate(zip(homes, large_subscriptions(subscribers, filters), strict=False)):
        clients.append(_subscriber(f"s{number}", home, where, CONTROL if controlled else None))
    return _scenario(name, controlled, brokers, links, clients, duration)


def large_brokers() -> tuple[list[str], list[LinkSpec]]:
    """Its brokers and links."""
    pairs = [(number, number + 1) for number in range(6)] + [(3, 7)]
    links = [
        _link(f"b{a}", f"b{b}", LARGE_BITS if a == 0 else FAST_BITS, delay=DELAY if a == 0 else LARGE_DELAY)
        for a, b in pairs
    ]
    return [f"b{number}" for number in range(8)], links


def large_subscriptions(subscribers: int, filters: LargeFilters = "zipf") -> list[str]:
    """A filter for each, in random order."""
    random = generator(0, "congestion", "large", subscribers)
    if filters == "zipf":
        return [zipf_filter(random, NAMES, CONSTRAINTS_MAX) for _ in range(subscribers)]
    found = [_filter(TOP_MATCH / rank ** STEEPNESS[filters], random) for rank in range(1, subscribers + 1)]
    random.shuffle(found)
    return found


def zipf_filter(random: Random, names: tuple[str, ...], most: int) -> str:
    """One to `most` equalities on values drawn by their popularity."""
    weights = [1.0 / rank for rank in range(1, len(VALUES) + 1)]
    chosen = random.sample(names, random.randint(1, most))
    return " AND ".join(f"{name} = '{random.choices(VALUES, weights)[0]}'" for name in chosen)


def _filter(probability: float, random: Random) -> str:
    """Equalities whose values come together about so often."""
    most, least = 1.0 / _HARMONIC, 1.0 / (_HARMONIC * len(VALUES))
    possible = [n for n in range(1, CONSTRAINTS_MAX + 1) if least**n <= probability <= most**n]
    each = probability ** (1.0 / (count := random.choice(possible)))
    rank = min(len(VALUES), max(1, round(most / each)))
    return " AND ".join(f"{name} = '{VALUES[rank - 1]}'" for name in random.sample(NAMES, count))


def recovering_star(*, duration: float, rate: float, transport: TransportConfig | None, name: str) -> Scenario:
    """Five publishers with `rate` messages/s each; with a transport all subscriptions ask for recovery."""
    links = [_link("b1", "b2", STAR_BITS), _link("b1", "b3", STAR_BITS), _link("b1", "b4", FAST_BITS)]
    attributes: Attributes = {flag: Recipe(chance=FLAG_MATCH) for flag in FLAGS}
    clients = [
        _publisher(f"p{number}", "b1", attributes, dict.fromkeys(FLAGS, True), rate, duration, transport)
        for number in range(1, 6)
    ]
    for broker in ("b2", "b3", "b4"):
        for number, flag in enumerate(FLAGS, start=1):
            clients.append(_subscriber(f"{broker}-s{number}", broker, flag, transport, recover=transport is not None))
    return _scenario(name, transport is not None, ["b1", "b2", "b3", "b4"], links, clients, duration)


def fork(*, duration: float, rate: float, controlled: bool, name: str) -> Scenario:
    """Half of the messages have the flag `slow`, half have `fast`, independently of each other."""
    links = [_link("hub", "slow", 500e3), _link("hub", "fast", FAST_BITS)]
    transport = CONTROL if controlled else None
    attributes: Attributes = {"source": "p", "slow": Recipe(chance=0.5), "fast": Recipe(chance=0.5)}
    sample: dict[str, Value] = {"source": "p", "slow": True, "fast": True}
    clients = [
        _publisher("p", "hub", attributes, sample, rate, duration, transport),
        _subscriber("b", "slow", "slow", transport),
        _subscriber("c", "fast", "fast", transport),
    ]
    return _scenario(name, controlled, ["hub", "slow", "fast"], links, clients, duration)


def covered(*, duration: float, controlled: bool, name: str) -> Scenario:
    """100 messages/s for one subscriber, 10 of them for the other too, and a link that takes 50."""
    links = [_link("hub", "middle", 50 * 8.0 * 283), _link("middle", "b-side", FAST_BITS)]
    links.append(_link("middle", "c-side", FAST_BITS))
    transport = CONTROL if controlled else None
    attributes: Attributes = {"topic": "t", "rare": Recipe(chance=0.1)}
    clients = [
        _publisher("p", "hub", attributes, {"topic": "t", "rare": True}, 100.0, duration, transport),
        _subscriber("b", "b-side", "topic = 't'", transport),
        _subscriber("c", "c-side", "topic = 't' AND rare", transport),
    ]
    return _scenario(name, controlled, ["hub", "middle", "b-side", "c-side"], links, clients, duration)


def nested(subscribers: int, *, duration: float, name: str) -> Scenario:
    """Filters of one to three levels, no two alike, the deeper the more of them; 400 messages/s are wanted."""
    filters = nested_filters(subscribers)
    attributes: Attributes = {k: Recipe(choose=tuple(map(_level, range(n)))) for k, n in LEVELS.items()}
    rate = NESTED_RATE / _wanted(filters)
    clients = [_publisher("p", "left", attributes, dict.fromkeys(LEVELS, _level(0)), rate, duration, CONTROL)]
    for number, path in enumerate(filters):
        where = " AND ".join(f"{k} = '{_level(value)}'" for k, value in zip(LEVELS, path, strict=False))
        clients.append(_subscriber(f"s{number}", "right", where, CONTROL))
    return _scenario(name, True, ["left", "right"], [_link("left", "right", 500e3)], clients, duration)


def nested_filters(subscribers: int) -> list[tuple[int, ...]]:
    """As many different filters as subscribers, as values of the first one, two or three levels."""
    random = generator(0, "congestion", "nested", subscribers)
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < subscribers:
        depth = random.choices((1, 2, 3), weights=(1, 3, 6))[0]
        chosen[tuple(random.randrange(n) for n in list(LEVELS.values())[:depth])] = None
    return list(chosen)


def _wanted(filters: list[tuple[int, ...]]) -> float:
    """The share of all messages that anybody wants."""
    chosen = set(filters)
    paths = product(*map(range, LEVELS.values()))
    return sum(any(path[:depth] in chosen for depth in (1, 2, 3)) for path in paths) / prod(LEVELS.values())


def _level(value: int) -> str:
    return f"v{value:03}"


# Parts.


def _link(a: str, b: str, bits: float, *, delay: float = DELAY) -> LinkSpec:
    queue = QUEUE_PACKETS if bits < FAST_BITS else FAST_QUEUE
    return LinkSpec(between=(a, b), rate_bits_per_s=bits, delay=delay, queue_packets=queue, repair=False)


def _publisher(
    name: str,
    broker: str,
    attributes: Attributes,
    sample: dict[str, Value],
    rate: float,
    stop: float,
    transport: TransportConfig | None,
) -> ClientSpec:
    flow = PublisherSpec(
        rate_messages_per_s=rate,
        arrivals="poisson",
        start=PUBLISHING_STARTS,
        stop=stop,
        attributes=attributes,
        body_bytes=body_bytes(sample, name, header=transport is not None),
    )
    return ClientSpec(
        name=name,
        broker=broker,
        access_delay=ACCESS_DELAY,
        publish=(flow,),
        services=with_transport_settings(transport),
    )


def _subscriber(
    name: str, broker: str, where: str, transport: TransportConfig | None, *, recover: bool = False
) -> ClientSpec:
    subscription = SubscriptionSpec(where=where, options={"recover": recover})
    return ClientSpec(
        name=name,
        broker=broker,
        access_delay=ACCESS_DELAY,
        queue_packets=100_000,
        subscribe=(subscription,),
        services=with_transport_settings(transport),
    )


def _scenario(
    name: str, controlled: bool, brokers: list[str], links: list[LinkSpec], clients: list[ClientSpec], duration: float
) -> Scenario:
    return Scenario(
        services=PAPER_SERVICES,
        name=f"{name}-{'controlled' if controlled else 'free'}",
        duration=duration,
        drain=3.0,
        settle=PUBLISHING_STARTS,
        broker=tuple(BrokerSpec(name=broker) for broker in brokers),
        link=tuple(links),
        client=tuple(clients),
        check=("at-most-once",),
    )

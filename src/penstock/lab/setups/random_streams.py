"""Networks with streams that are drawn from a seed, for runs with the product's defaults.

A core of brokers is a random tree with some links more; around it stand brokers with one link each. Two kinds of these
matter: *sources*, which have the pubends and the publishers, and *edges*, which have readers. Rates, sizes, delays,
the number of pubends, and what readers want (values, ranges, both; they overlap) are drawn too.

A set-up of 001 makes one of the outer links narrow or lets it fail. How much a link carries when nothing is in the way
is known from the filters and the recipes of the messages, by drawing some: so a link can be made to carry a given share
of it, whatever the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from random import Random
from typing import Any
from zlib import crc32

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Identity, make_message
from penstock.kernel.randomness import generator
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, StreamSpec, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe

SYMBOLS = ("IBM", "AMD", "SAP", "HP", "SUN", "DEC")
ATTRIBUTES: dict[str, Any] = {
    "symbol": Recipe(choose=SYMBOLS, zipf=0.7),
    "price": Recipe(integer=(0, 999)),
    "urgent": Recipe(chance=0.2),
}
STREAM = "orders"
FAST = 100e6  # bits/s
OVERHEAD = 40  # bytes of a message on the wire beside itself, when several travel together
SAMPLES = 2_000
UNANSWERED_MAX = 32


@dataclass(frozen=True)
class RandomNetwork:
    """One that was drawn."""

    brokers: tuple[str, ...]
    links: tuple[LinkSpec, ...]
    homes: tuple[str, ...]  # of the pubends
    clients: tuple[ClientSpec, ...]
    sources: tuple[str, ...]
    edges: tuple[str, ...]
    inner: dict[str, str]  # of each outer broker, the one that it is linked to

    def load(self, outer: str) -> float:
        """Bytes per second on the link of an outer broker if nothing is in the way, in the busier direction."""
        if outer in self.edges:
            return sum(self._wanted(flow, (outer,)) for _, flow in self._flows())
        others = [edge for edge in self.edges if edge != outer]
        return sum(self._wanted(flow, others) for home, flow in self._flows() if home == outer)

    def _flows(self) -> Iterator[tuple[str, PublisherSpec]]:
        for client in self.clients:
            for flow in client.publish:
                yield client.broker, flow

    def _wanted(self, flow: PublisherSpec, edges: Sequence[str]) -> float:
        """Bytes per second of a flow that anybody at these brokers wants."""
        texts = dict.fromkeys(
            subscription.where for client in self.clients if client.broker in edges for subscription in client.subscribe
        )
        predicates = [parse_predicate(text).matches for text in texts]
        samples = _samples()
        share = sum(any(matches(sample) for matches in predicates) for sample in samples) / len(samples)
        sample = make_message(Identity("p0", 1, 1), samples[0], bytes(flow.body_bytes))
        return share * flow.rate_messages_per_s * (sample.size_bytes + OVERHEAD)

    def scenario(
        self, name: str, *, duration: float, drain: float, rates: dict[str, float], faults: Sequence[FaultSpec] = ()
    ) -> Scenario:
        """The network with the product's defaults. `rates`: bytes per second of the links of some outer brokers."""
        return Scenario(
            name=name,
            duration=duration,
            drain=drain,
            broker=tuple(BrokerSpec(name=broker) for broker in self.brokers),
            link=tuple(self._limited(link, rates) for link in self.links),
            stream=(StreamSpec(name=STREAM, at=self.homes),),
            client=self.clients,
            fault=tuple(sorted(faults, key=lambda fault: fault.at)),
            check=(),
        )

    def link_of(self, outer: str) -> tuple[str, str]:
        """The link of an outer broker."""
        return self.inner[outer], outer

    def _limited(self, link: LinkSpec, rates: dict[str, float]) -> LinkSpec:
        outer = link.between[1]
        if outer not in rates:
            return link
        return LinkSpec(between=link.between, kind=link.kind, delay=link.delay, rate_bits_per_s=8.0 * rates[outer])


def random_network(seed: int, *, fewer: float = 1.0) -> RandomNetwork:
    """The network of this seed; with `fewer` everybody publishes so many times less."""
    random = generator(seed, "random streams")
    core = [f"C{number}" for number in range(random.randint(3, 6))]
    sources = [f"S{number}" for number in range(random.randint(1, 3))]
    edges = [f"E{number}" for number in range(random.randint(3, 6))]
    inner = {outer: random.choice(core) for outer in (*sources, *edges)}
    pairs = [*_core_links(random, core), *((near, outer) for outer, near in inner.items())]
    links = tuple(
        LinkSpec(between=pair, kind="reliable", delay=random.uniform(0.001, 0.03), rate_bits_per_s=FAST)
        for pair in pairs
    )
    homes = tuple(random.choice(sources) for _ in range(random.randint(1, 5)))
    clients = [*_publishers(random, homes, fewer), *_readers(random, edges)]
    brokers = (*core, *sources, *edges)
    used = tuple(dict.fromkeys(homes))
    return RandomNetwork(brokers, links, homes, tuple(clients), used, tuple(edges), inner)


def _core_links(random: Random, core: Sequence[str]) -> list[tuple[str, str]]:
    pairs = {(random.choice(core[:number]), core[number]): None for number in range(1, len(core))}
    for _ in range(random.randint(1, len(core) // 2)):
        near, far = sorted(random.sample(core, 2))
        pairs[near, far] = None
    return list(pairs)


def _publishers(random: Random, homes: Sequence[str], fewer: float) -> Iterator[ClientSpec]:
    """At least one for each pubend, at its broker; their rates differ by up to a factor of ten."""
    for number in range(len(homes) + random.randint(0, 3)):
        pubend = number % len(homes)
        flow = PublisherSpec(
            rate_messages_per_s=round(exp(random.uniform(log(10.0), log(100.0))) / fewer, 3),
            arrivals=random.choice(("constant", "poisson")),
            start=3.0,
            attributes=ATTRIBUTES,
            body_bytes=random.choice((50, 200, 200, 800)),
            options={"stream": STREAM, "key": _key(pubend, len(homes), number)},
            unanswered_max=UNANSWERED_MAX,
        )
        yield ClientSpec(name=f"p{number}", broker=homes[pubend], publish=(flow,))


def _readers(random: Random, edges: Sequence[str]) -> Iterator[ClientSpec]:
    for edge in edges:
        for number in range(random.randint(1, 4)):
            options = {"stream": STREAM, "durable": f"{edge}-{number}", "ack": "manual"}
            wanted = SubscriptionSpec(where=_where(random), start=1.0, options=options, acknowledge_every=20)
            yield ClientSpec(name=f"{edge}-r{number}", broker=edge, subscribe=(wanted,))


def _where(random: Random) -> str:
    low = random.randint(0, 900)
    price = f"price BETWEEN {low} AND {min(999, low + random.randint(100, 600))}"
    symbol = f"symbol = '{random.choice(SYMBOLS)}'"
    return random.choice(
        (price, symbol, f"{symbol} AND {price}", f"{symbol} OR {price}", f"price > {low}", "price >= 0")
    )


@cache
def _samples() -> list[Attributes]:
    """Messages as publishers draw them."""
    random = generator(1, "random streams", "samples")
    weights = [(rank + 1) ** -0.7 for rank in range(len(SYMBOLS))]
    return [
        {
            "symbol": random.choices(SYMBOLS, weights)[0],
            "price": random.randint(0, 999),
            "urgent": random.random() < 0.2,
        }
        for _ in range(SAMPLES)
    ]


def _key(pubend: int, pubends: int, number: int) -> str:
    """A key of the pubend, another one for each publisher."""
    found = [key for key in map(str, range(20_000)) if crc32(key.encode()) % pubends == pubend]
    return found[number]

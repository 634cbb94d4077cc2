"""What the networks of this family are drawn from: sides of fast links, bottlenecks, publishers and readers.

Two *sides* are random trees of one to four brokers with fast links. A *bottleneck* joins `near`, the root of one, and
`far`, the root of the other. Publishers stand anywhere on the near side and readers anywhere on the far one, or beside
the publishers, where nobody should notice the bottleneck. What a bottleneck is (datagram, shaped or reliable), how long
it takes and how much may wait before it is drawn too; its rate is given, because it is what a row is about.

A message has so many bytes on the wire, all together, in every run of a network: there are no headers of a transport.
`busy` says how many messages/s of which a given share is wanted are so and so many times what a link carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Value, make_message
from penstock.lab.setups.dumbbell import BROKER_BYTES, PACKET_BYTES
from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, SubscriptionSpec, TcpSpec
from penstock.scenario.workload import PublisherSpec, Recipe, attribute_source

Kind = Literal["datagram", "shaped", "reliable"]
MBIT = 1e6
FAST_BITS = 100 * MBIT
FAST_DELAY = (0.001, 0.010)
DELAY = (0.005, 0.040)  # of a bottleneck
QUEUES = (50, 50, 100, 200)  # packets
KINDS: tuple[Kind, ...] = ("datagram", "datagram", "shaped", "reliable")
SIZES = (150, 280, 280, 600, 1_000)  # bytes on the wire
BUSY = (1.4, 2.5)  # what is wanted behind a bottleneck over what it carries
READING, STARTS = 0.5, 3.0  # seconds: by then everybody knows what everybody wants
SAMPLES = 1_000
Content = Mapping[str, Value | Recipe]


@dataclass
class Draft:
    """A network as it grows."""

    random: Random
    seconds: float  # from the first message to the last
    message_bytes: int = 280
    brokers: list[str] = field(default_factory=list)
    links: list[LinkSpec] = field(default_factory=list)
    clients: list[ClientSpec] = field(default_factory=list)
    tcp: list[TcpSpec] = field(default_factory=list)
    faults: list[FaultSpec] = field(default_factory=list)
    cheats: list[str] = field(default_factory=list)  # brokers that hold their clients to nothing

    @property
    def duration(self) -> float:
        """When publishing ends."""
        return STARTS + self.seconds

    def broker(self, name: str) -> str:
        """One broker more."""
        self.brokers.append(name)
        return name

    def side(self, root: str, brokers: int | None = None) -> list[str]:
        """A random tree of fast links around a new broker of this name, the root first."""
        names = [self.broker(root)]
        for number in range(1, brokers or self.random.randint(1, 4)):
            names.append(self.broker(f"{root}-{number}"))
            self.fast(self.random.choice(names[:-1]), names[-1])
        return names

    def fast(self, a: str, b: str, delay: float | None = None) -> None:
        """A link that is in nobody's way."""
        delay = self.random.uniform(*FAST_DELAY) if delay is None else delay
        self.links.append(LinkSpec(between=(a, b), rate_bits_per_s=FAST_BITS, delay=delay))

    def bottleneck(self, a: str, b: str, rate: float, *, kind: Kind | None = None, queue: int | None = None) -> None:
        """A link of this rate; the rest is drawn, if it is not given."""
        self.links.append(
            LinkSpec(
                between=(a, b),
                kind=self.random.choice(KINDS) if kind is None else kind,
                rate_bits_per_s=rate,
                delay=self.random.uniform(*DELAY),
                queue_packets=queue or self.random.choice(QUEUES),
            )
        )

    def publisher(self, name: str, home: str, content: Content, rate: float, **more: Any) -> None:
        """A Poisson process of messages that have the size of this network."""
        flow = PublisherSpec(
            rate_messages_per_s=rate,
            arrivals="poisson",
            start=more.pop("start", STARTS),
            attributes=dict(content),
            body_bytes=self.body_bytes(name, content),
            **more,
        )
        self.clients.append(ClientSpec(name=name, broker=home, publish=(flow,)))

    def reader(self, name: str, home: str, where: str, **more: Any) -> None:
        """Who wants something all the time; `more` is of the subscription, `client` of the client."""
        client = more.pop("client", {"queue_packets": 100_000})
        wanted = SubscriptionSpec(where=where, start=READING, **more)
        self.clients.append(ClientSpec(name=name, broker=home, subscribe=(wanted,), **client))

    def body_bytes(self, publisher: str, content: Content) -> int:
        """How long a body must be, about, if all messages shall have the size that was chosen."""
        sample = drawn_messages(content, self.random, 1)[0]
        bare = make_message(Identity(publisher, 1, 1), sample).size_bytes
        return max(0, self.message_bytes - PACKET_BYTES - BROKER_BYTES - bare)

    def busy(self, bits_per_s: float, share: float = 1.0, times: float | None = None) -> float:
        """Messages/s of which this share is wanted behind a link that they fill so many times; else drawn."""
        times = self.random.uniform(*BUSY) if times is None else times
        return times * bits_per_s / 8.0 / self.message_bytes / share


def drawn_messages(content: Content, random: Random, count: int) -> list[dict[str, Value]]:
    """Attributes of some messages."""
    draw = attribute_source(PublisherSpec(rate_messages_per_s=1.0, attributes=dict(content)), random)
    return [draw() for _ in range(count)]


def wanted_share(content: Content, wheres: Sequence[str], random: Random) -> float:
    """Which share of such messages is wanted by anybody of these."""
    matches = [parse_predicate(where).matches for where in dict.fromkeys(wheres)]
    samples = drawn_messages(content, random, SAMPLES)
    return sum(any(one(sample) for one in matches) for sample in samples) / SAMPLES


def brokers_of(draft: Draft) -> tuple[BrokerSpec, ...]:
    """All of them, none of which takes any time."""
    cheats = {RATES.name: RatesConfig(enabled=False)}
    return tuple(BrokerSpec(name=name, services=cheats if name in draft.cheats else {}) for name in draft.brokers)

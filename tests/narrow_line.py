"""For tests of fair rates: a line of three brokers with one narrow link, and what became of the messages."""

from __future__ import annotations

from collections import Counter

from penstock.kernel.trace import Delivered, Dropped, Record
from penstock.rates.config import RatesConfig
from penstock.rates.records import LinkRated, Thinned
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import simulate


class Notes:
    """What a run's trace says of deliveries, of losses, and of what was withheld."""

    def __init__(self) -> None:
        self.got: Counter[str] = Counter()
        self.from_whom: Counter[str] = Counter()
        self.lost = self.withheld = 0
        self.links: Counter[tuple[int, int]] = Counter()
        self.rated = 0
        self.published = 0
        self.published_by: Counter[str] = Counter()
        self.got_from: Counter[tuple[str, str]] = Counter()
        self.withheld_of: Counter[str] = Counter()
        self.by_first_link = 0

    def write(self, time: float, node: str, record: Record) -> None:
        match record:
            case Delivered():
                self.got[node] += 1
                self.from_whom[record.publisher] += 1
                self.got_from[node, record.publisher] += time < 8.0  # while all publish
            case Dropped() if record.kind == "Publication":
                self.lost += record.destinations
            case Thinned():
                self.withheld += record.messages
                self.withheld_of[record.publisher] += record.messages
                self.by_first_link += record.messages if (record.origin, record.neighbour) == (0, 1) else 0
                self.links[record.origin, record.neighbour] += record.messages
            case LinkRated():
                self.rated += 1


def network(narrow_bits: float, kind: str = "datagram", rate: float = 60.0, **rates: object) -> Scenario:
    """Three publishers at a, a reader before the narrow link from b to c, and one behind it."""
    link = {"kind": kind, "delay": 0.005, "queue_packets": 50}
    publishing = PublisherSpec(
        rate_messages_per_s=rate,
        arrivals="poisson",
        start=1.0,
        attributes={"x": Recipe(uniform=(0.0, 1.0))},
        body_bytes=200,
    )
    publishers = [ClientSpec(name=f"p{number}", broker="a", publish=(publishing,)) for number in range(3)]
    readers = [
        ClientSpec(name=name, broker=broker, subscribe=(SubscriptionSpec(where="x < 2"),))
        for name, broker in (("near", "b"), ("far", "c"))
    ]
    return Scenario(
        name="narrow",
        duration=8.0,
        services={"rates": RatesConfig(**rates)},  # type: ignore[arg-type]  # a setting by name
        broker=tuple(BrokerSpec(name=name) for name in "abc"),
        link=(
            LinkSpec(between=("a", "b"), rate_bits_per_s=1e7, **link),  # type: ignore[arg-type]  # as above
            LinkSpec(between=("b", "c"), rate_bits_per_s=narrow_bits, **link),  # type: ignore[arg-type]  # as above
        ),
        client=(*publishers, *readers),
    )


def run(scenario: Scenario) -> Notes:
    notes = Notes()
    result = simulate(scenario, 1, trace=notes)
    assert result.problems == []
    notes.published_by.update({name: tally.published for name, tally in result.clients.items()})
    notes.published = notes.published_by.total()
    return notes

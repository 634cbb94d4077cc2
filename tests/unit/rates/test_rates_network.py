"""Fair rates in small simulated networks: who is behind a narrow link pays for it, and nobody else notices."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from penstock.kernel.trace import Delivered, Dropped, Record
from penstock.rates.config import RatesClientConfig, RatesConfig
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


@pytest.mark.parametrize("kind", ["datagram", "shaped", "reliable", "tcp"])
def test_a_narrow_link_costs_those_behind_it_and_nobody_else(kind: str) -> None:
    notes = run(network(200_000.0, kind))
    published = notes.published
    assert notes.got["near"] == published
    assert notes.links.keys() == {(1, 2)}
    assert notes.got["far"] + notes.lost + notes.withheld == published, "everything withheld is counted once"
    assert notes.lost <= 0.01 * published
    assert notes.got["far"] > 0.9 * 7.0 * 200_000 / 8 / 300
    shares = [notes.from_whom[f"p{number}"] for number in range(3)]
    assert max(shares) < 1.1 * min(shares)


def test_a_network_with_room_is_not_touched_and_says_nothing() -> None:
    notes = run(network(1_000_000.0))
    assert notes.got["far"] == notes.got["near"] == notes.published
    assert (notes.rated, notes.withheld, notes.lost) == (0, 0, 0)


@pytest.mark.parametrize("rates", [{"wait": 0.0}, {"slow_start": False}])
def test_its_parts_can_be_switched_off(rates: dict[str, object]) -> None:
    notes = run(network(200_000.0, **rates))
    assert notes.got["near"] == notes.published
    assert notes.lost <= 0.02 * notes.published


def test_switched_off_it_does_nothing() -> None:
    notes = run(network(200_000.0, enabled=False))
    assert notes.lost > 0.2 * notes.published
    assert (notes.rated, notes.withheld) == (0, 0)


def test_a_plan_without_rates_and_absurd_rates_are_survived() -> None:
    scenario = network(200_000.0)
    links = tuple(msgspec.structs.replace(link, rate_bits_per_s=None) for link in scenario.link)
    free = run(msgspec.structs.replace(scenario, link=links))
    assert free.got["far"] == free.published
    slow = run(network(1.0))
    assert slow.got["near"] == slow.published
    fast = run(network(1e11))
    assert fast.got["far"] == fast.published


def chosen(when_full: str, *, waits: int = 0, narrow_bits: float = 200_000.0) -> Scenario:
    """As `network`, but the first publisher says what becomes of its messages."""
    scenario = network(narrow_bits)
    first, *others = scenario.client
    publishing = tuple(msgspec.structs.replace(one, waits=waits) for one in first.publish)
    settings = {"rates": RatesClientConfig(when_full=when_full)}  # type: ignore[arg-type]  # a parameter of the test
    first = msgspec.structs.replace(first, services=settings, publish=publishing)
    return msgspec.structs.replace(scenario, client=(first, *others))


def test_who_waits_loses_nothing_and_takes_no_more_than_its_share() -> None:
    notes = run(chosen("wait", waits=1))
    assert notes.withheld_of["p0"] == 0
    assert notes.withheld_of["p1"] > 0
    assert notes.lost == 0
    shares = [notes.got_from["far", f"p{number}"] for number in range(3)]
    assert max(shares) < 1.15 * min(shares)
    assert notes.got_from["near", "p0"] - shares[0] < 40, "it publishes no faster than its share"
    assert notes.got_from["near", "p1"] >= notes.published_by["p1"] - 2


def test_who_waits_and_publishes_on_is_held_and_what_finds_no_room_ends_in_the_client() -> None:
    notes = run(chosen("wait"))
    assert notes.withheld_of["p0"] == 0
    assert 0 < notes.got_from["near", "p0"] < 0.9 * notes.published_by["p0"]
    assert notes.got_from["near", "p1"] >= notes.published_by["p1"] - 2


def test_who_drops_waits_for_nothing_in_slow_start_neither() -> None:
    notes = run(chosen("drop"))
    assert notes.withheld_of["p0"] > 0
    assert notes.got["far"] + notes.lost + notes.withheld == notes.got["near"] + notes.by_first_link
    assert notes.got_from["near", "p1"] >= notes.published_by["p1"] - 2


@pytest.mark.parametrize(("share_by", "together"), [("connection", 2.0), ("group", 1.0)])
def test_many_connections_have_many_shares_unless_groups_share_one(share_by: str, together: float) -> None:
    scenario = network(200_000.0, share_by=share_by)
    names = {"p0": "pool/0", "p1": "pool/1", "p2": "alone"}
    clients = tuple(msgspec.structs.replace(one, name=names.get(one.name, one.name)) for one in scenario.client)
    notes = run(msgspec.structs.replace(scenario, client=clients))
    pool = notes.got_from["far", "pool/0"] + notes.got_from["far", "pool/1"]
    assert pool / notes.got_from["far", "alone"] == pytest.approx(together, rel=0.15)
    assert notes.got["far"] + notes.lost + notes.withheld == notes.published
    assert notes.lost <= 0.01 * notes.published

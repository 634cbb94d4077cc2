"""Datagram links that repair themselves, in whole networks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from penstock.kernel.trace import Counted, Dropped, Record
from penstock.lab.setups.paper_network import NO_RATES
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import RunResult, simulate

REPAIR = ("datagrams repaired", "datagrams given up", "repair bytes")


class Kept:
    """A trace in memory: what links counted, and drops by cause."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def write(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, Counted):
            self.counted[record.name] += record.value
        elif isinstance(record, Dropped) and record.kind == "Publication":
            self.dropped[record.cause] += 1


def a_tree(seed: int, *, brokers: int = 12, faults: tuple[FaultSpec, ...] = (), **link: object) -> Scenario:
    """A random tree; each broker has a publisher and a subscriber."""
    random = Random(seed)
    kind = Recipe(integer=(0, 4))
    return Scenario(
        name="tree",
        duration=6.0,
        drain=2.0,
        services=NO_RATES,  # or nothing would be dropped
        broker=tuple(BrokerSpec(name=f"b{number}") for number in range(brokers)),
        link=tuple(
            LinkSpec(between=(f"b{random.randrange(n)}", f"b{n}"), delay=random.uniform(0.001, 0.03), **link)  # type: ignore[arg-type]
            for n in range(1, brokers)
        ),
        client=tuple(
            ClientSpec(
                name=f"c{number}",
                broker=f"b{number}",
                subscribe=(SubscriptionSpec(where=f"kind = {random.randrange(5)}"),),
                publish=(
                    PublisherSpec(rate_messages_per_s=10.0, arrivals="poisson", start=1.0, attributes={"kind": kind}),
                ),
            )
            for number in range(brokers)
        ),
        fault=faults,
    )


def delivered(result: RunResult) -> int:
    return sum(tally.delivered for tally in result.clients.values())


def run(scenario: Scenario, seed: int) -> tuple[RunResult, Kept]:
    kept = Kept()
    result = simulate(scenario, seed, trace=kept)
    assert result.problems == [], f"penstock sim: seed {seed}"
    return result, kept


@pytest.mark.parametrize(("loss", "share"), [(0.01, 0.98), (0.05, 0.97), (0.15, 0.88)])
def test_a_link_repairs_nearly_all_that_its_wire_loses(loss: float, share: float) -> None:
    seed = 3
    with_repair, kept = run(a_tree(seed, loss=loss), seed)
    without, plain = run(a_tree(seed, loss=loss, repair=False), seed)
    lossless, _ = run(a_tree(seed, repair=False), seed)
    repaired, data = kept.counted["datagrams repaired"], kept.counted["link bytes"]
    assert repaired >= share * (repaired + kept.dropped["lost on the wire"])
    assert delivered(with_repair) > delivered(without)
    assert delivered(with_repair) >= (1.0 - 0.5 * loss) * delivered(lossless)
    assert kept.counted["repair bytes"] <= (0.03 + 1.3 * loss) * data
    assert not any(plain.counted[name] for name in REPAIR)


def test_without_losses_repair_changes_nothing_and_costs_nothing() -> None:
    repaired, kept = run(a_tree(4, rate_bits_per_s=1e6, jitter=0.001), 4)
    plain, _ = run(a_tree(4, rate_bits_per_s=1e6, jitter=0.001, repair=False), 4)
    assert repaired.digest == plain.digest
    assert repaired.links == plain.links
    assert not any(kept.counted[name] for name in REPAIR)


def test_what_a_full_queue_dropped_is_not_repaired() -> None:
    narrow = {"rate_bits_per_s": 15e3, "queue_packets": 10}
    repaired, kept = run(a_tree(5, **narrow), 5)
    plain, _ = run(a_tree(5, repair=False, **narrow), 5)
    assert kept.dropped["queue full"] > 100
    assert not any(kept.counted[name] for name in REPAIR)
    assert repaired.digest == plain.digest


def test_a_link_that_is_cut_for_a_moment_makes_up_for_it() -> None:
    [link, *_] = a_tree(6).link
    faults = tuple(
        FaultSpec(at=at + part, kind=kind, link=link.between)
        for at in (2.0, 4.0)
        for part, kind in ((0.0, "link_down"), (0.3, "link_up"))
    )
    result, kept = run(a_tree(6, faults=faults), 6)
    without, plain = run(a_tree(6, faults=faults, repair=False), 6)
    assert plain.dropped["link down"] > 10
    assert kept.dropped["link down"] <= 0.1 * plain.dropped["link down"]
    assert delivered(result) > delivered(without)


@pytest.mark.parametrize("seed", range(4))
def test_brokers_that_crash_and_come_back_count_from_the_beginning(seed: int) -> None:
    faults = tuple(
        FaultSpec(at=at, kind=kind, broker=f"b{number}")
        for at, number in ((1.5, 0), (2.5, 1), (3.5, 0))
        for at, kind in ((at, "crash"), (at + 0.4, "restart"))
    )
    scenario = a_tree(20 + seed, faults=faults, loss=0.05, duplicate=0.05, reorder=0.05, jitter=0.001)
    result, kept = run(replace(scenario, check=("at-most-once", "nothing-silent")), seed)
    assert kept.counted["datagrams repaired"] > 0
    assert result.complete

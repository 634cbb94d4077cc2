"""Links come up while lanes are full, and the tree changes: nothing that was bought is lost, and all of it drains."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from penstock.errors import CheckFailed
from penstock.pricing import passing
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.pricing.passing import PricedPassing
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LaneSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate

SEEDS = 6
KEPT = ("priced-drains", "priced-kept", "priced-once", "priced-paid", "at-most-once")
WINDOW = 4_096
STANDS_STILL = 5  # a seed that does, if copies go back on the account of those to whom they go


def rising(seed: int) -> Scenario:
    """Everybody sends to everybody, more than narrow links carry; cheaper links come up one after the other."""
    random = Random(seed)
    names = [f"b{number}" for number in range(random.randint(3, 6))]
    tree = [(random.choice(names[:number]), names[number]) for number in range(1, len(names))]
    others = [(a, b) for number, a in enumerate(names) for b in names[number + 1 :] if (a, b) not in tree]
    later = random.sample(others, min(len(others), random.randint(1, 6)))
    flow = PublisherSpec(
        rate_messages_per_s=200.0,
        start=1.0,
        attributes={"topic": "freight"},
        body_bytes=random.choice((500, 1_500)),
        waits=8,
    )
    return Scenario(
        name=f"rising-{seed}",
        duration=7.0,
        drain=20.0,
        settled_after=1.0,
        settle=0.5,
        broker=tuple(BrokerSpec(name=name) for name in names),
        link=tuple(_links(random, tree, 5, 9)) + tuple(_links(random, later, 1, 7)),
        lanes={"priced": LaneSpec(bytes_max=WINDOW, overflow="hold")},
        classes=(PricedClass(where="topic = 'freight'"),),
        services={"pricing": PricingConfig(soft_limit=1_000.0)},  # prices do not help: lanes fill to the brim
        client=tuple(
            ClientSpec(name=f"at-{name}", broker=name, publish=(flow,), subscribe=(SubscriptionSpec(where="TRUE"),))
            for name in names
        ),
        fault=tuple(sorted(_faults(random, later), key=lambda fault: fault.at)),
        check=(*KEPT, "nothing-missed"),
    )


def _links(random: Random, pairs: list[tuple[str, str]], least: int, most: int) -> Iterator[LinkSpec]:
    for pair in pairs:
        rate, delay = random.choice((1e5, 2e5)), random.uniform(0.0, 0.02)
        yield LinkSpec(
            between=pair, kind="reliable", rate_bits_per_s=rate, delay=delay, cost=random.randint(least, most)
        )


def _faults(random: Random, pairs: list[tuple[str, str]]) -> Iterator[FaultSpec]:
    for pair in pairs:
        yield FaultSpec(at=0.05, kind="link_down", link=pair)
        yield FaultSpec(at=random.uniform(2.0, 6.0), kind="link_up", link=pair)


def flapping(seed: int) -> Scenario:
    """The same, but each of those links comes and goes, faster than lanes drain."""
    scenario, random = rising(seed), Random(-seed - 1)
    faults = list(scenario.fault)
    for fault in scenario.fault:
        at = random.uniform(2.0, 3.0)
        while fault.kind == "link_down" and at < 6.0:
            faults.append(FaultSpec(at=at, kind="link_up", link=fault.link))
            faults.append(FaultSpec(at=at + random.uniform(0.2, 1.0), kind="link_down", link=fault.link))
            at += random.uniform(1.0, 2.0)
    faults.sort(key=lambda fault: fault.at)
    return replace(scenario, drain=60.0, fault=tuple(faults), check=KEPT)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_comes_up_nothing_is_lost_and_everything_drains(seed):
    result = simulate(rising(seed), seed)
    if result.problems:
        raise CheckFailed("\n".join(result.problems), replay=f".venv/bin/pytest {__file__} -k '[{seed}]'")
    assert not {"tree changed", "no way", "hop limit"}.intersection(cause for *_, cause in result.drops)


@pytest.mark.parametrize("seed", range(3))
def test_links_that_come_and_go_lose_what_they_had_taken_and_no_more(seed):
    result = simulate(flapping(seed), seed)
    if result.problems:
        raise CheckFailed("\n".join(result.problems), replay=f".venv/bin/pytest {__file__} -k '[{seed}]'")
    assert not {"tree changed", "no way", "hop limit"}.intersection(cause for *_, cause in result.drops)


def test_if_what_must_go_back_waited_on_its_neighbours_account_it_would_not_drain(monkeypatch):
    monkeypatch.setattr(passing, "_payer", lambda link, source: source)
    assert simulate(rising(STANDS_STILL), STANDS_STILL).problems


def test_if_nothing_were_parked_it_would_be_seen(monkeypatch):
    original = PricedPassing.receive

    def receive(self, packet, sender):
        self._parks = False
        return original(self, packet, sender)

    monkeypatch.setattr(PricedPassing, "receive", receive)
    assert any("no way" in problem for problem in simulate(rising(1), 1).problems)

"""What fair rates cost where no link is busy: batches pass as they would one by one, and nobody notes every copy."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from penstock.content.message import Identity, make_message
from penstock.kernel.packet import Lane
from penstock.overlay.broker import Groups
from penstock.overlay.packets import Publish
from penstock.overlay.spanning_tree import Hop
from penstock.rates.config import RatesConfig
from penstock.rates.home import Home
from penstock.rates.own_links import OwnLinks
from penstock.rates.rate_table import RateTable
from penstock.rates.sharing import Copy
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate

SETS = ((1,), (2,), (3,), (1, 2), (1, 2, 3))
EXITS = {1: 10, 2: 10, 3: 20}


def way(broker: int) -> tuple[Hop, ...]:
    return ((0, broker),)


def a_home(limited: float | None) -> Home:
    rates = RateTable(1e9)
    if limited is not None:
        rates.hear((0, 3), 1, 1, limited, 0.0)
    return Home(RatesConfig(), rates, Random(1))


@pytest.mark.parametrize("limited", [None, 5_000.0])
def test_a_batch_passes_as_its_messages_would_one_by_one(limited: float | None) -> None:
    random = Random(3)
    quick, plain = a_home(limited), a_home(limited)
    now, number, passed = 0.0, 0, 0
    for _ in range(2_000):
        now += random.expovariate(20.0)
        batch = []
        for _ in range(random.choice((1, 1, 3, 30))):
            number += 1
            batch.append(Publish(make_message(Identity("p", 1, number), {"x": number % 100 + 100})))
        found = [random.choice(SETS) for _ in batch]
        expected = [*plain.serve(5, way, now)]
        for packet, destinations in zip(batch, found, strict=True):
            expected += plain.admit(5, Copy(packet.message, packet.lane, destinations), EXITS, way, now)
        leaving = [*quick.serve(5, way, now)]
        if quick.passes(5, batch, found, EXITS, way, now):
            passed += 1
            leaving += [Copy(packet.message, packet.lane, some) for packet, some in zip(batch, found, strict=True)]
        else:
            for packet, destinations in zip(batch, found, strict=True):
                leaving += quick.admit(5, Copy(packet.message, packet.lane, destinations), EXITS, way, now)
        assert leaving == expected
    assert passed > 300
    assert quick.withheld.messages == plain.withheld.messages
    assert (quick.withheld.messages > 0) == (limited is not None)


def test_what_is_not_regulated_is_left_to_the_long_way() -> None:
    home, message = a_home(None), make_message(Identity("p", 1, 1), {"x": 1})
    home.admit(5, Copy(message, Lane.BEST_EFFORT, (1,)), EXITS, way, 0.0)
    assert home.passes(5, [Publish(message)], [(1,)], EXITS, way, 9.0)
    assert not home.passes(5, [Publish(message, Lane.STREAM)], [(1,)], EXITS, way, 18.0)


def test_where_much_passes_and_no_link_is_busy_copies_are_not_noted_until_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = PublisherSpec(rate_messages_per_s=3_000.0, start=1.0, attributes={"x": 1}, body_bytes=100)
    narrowed = FaultSpec(at=3.0, kind="link_rate", link=("a", "b"), rate_bits_per_s=1e6)
    scenario = Scenario(
        name="naps",
        duration=5.0,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(LinkSpec(between=("a", "b"), rate_bits_per_s=1e9),),
        client=(
            ClientSpec(name="p", broker="a", publish=(flow,)),
            ClientSpec(name="r", broker="b", subscribe=(SubscriptionSpec(where="x = 1"),)),
        ),
        fault=(narrowed,),
    )
    noted: list[float] = []
    copied = OwnLinks.copied

    def counted(links: OwnLinks, *args: Any) -> Groups:
        noted.append(args[-1])
        return copied(links, *args)

    monkeypatch.setattr(OwnLinks, "copied", counted)
    result = simulate(scenario, 1)
    assert not result.problems
    assert sum(1.5 <= at < 3.0 for at in noted) < 0.2 * 1.5 * 3_000
    assert result.clients["r"].delivered < 0.8 * 4.0 * 3_000
    late = sorted(at for at in noted if at >= 3.2)
    assert max(after - before for before, after in pairwise(late)) < 0.3

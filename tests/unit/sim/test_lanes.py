"""Lanes that hold, in a simulated network: brokers drop nothing, publishers wait, and nobody waits for ever."""

from __future__ import annotations

from typing import Literal

import pytest

from penstock.rates.config import RatesConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, LaneSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import RunResult, simulate

SECONDS = 12.0
CARRIED = 200.0  # messages/s that a link carries at least; each flow has twice as many


def a_run(links: list[str], flows: list[str], *, overflow: Literal["drop", "hold"] = "hold") -> RunResult:
    """Brokers and reliable links of 4 Mbit/s between them; a flow `ab` goes from a client at a to one at b."""
    writers, readers = [], []
    for way in flows:
        publisher = PublisherSpec(rate_messages_per_s=400.0, start=1.0, attributes={"way": way}, body_bytes=2_000)
        writers.append(ClientSpec(name=f"writer {way}", broker=way[0], publish=(publisher,)))
        wanted = SubscriptionSpec(where=f"way = '{way}'")
        readers.append(ClientSpec(name=f"reader {way}", broker=way[1], subscribe=(wanted,)))
    scenario = Scenario(
        name="lanes",
        duration=SECONDS,
        drain=10.0,
        services={"rates": RatesConfig(enabled=False)},  # or what does not fit would be withheld
        lanes={"best_effort": LaneSpec(bytes_max=1 << 20, overflow=overflow)},
        broker=tuple(BrokerSpec(name=name) for name in sorted(set("".join(links)))),
        link=tuple(LinkSpec(between=(a, b), kind="reliable", rate_bits_per_s=4e6) for a, b in links),
        client=(*writers, *readers),
    )
    return simulate(scenario, 1)


def flows_go_on(result: RunResult, flows: list[str], *, sharing: int = 1) -> None:
    """Every reader gets its share of a link to the end, and what is lost is lost at the publishers."""
    for way in flows:
        per_second = result.clients[f"reader {way}"].per_second
        assert min(per_second[second] for second in range(3, int(SECONDS) - 1)) >= CARRIED / sharing, way
        published, delivered = (result.clients[f"{who} {way}"] for who in ("writer", "reader"))
        lost = result.drops.get((f"writer {way}", way[0], "egress", "queue full"), 0)
        assert delivered.delivered + lost == published.published
    assert {node for node, *_ in result.drops} <= {f"writer {way}" for way in flows}, "brokers drop nothing"
    assert result.problems == []


def test_a_lane_that_drops_loses_at_the_broker_and_its_publisher_never_waits() -> None:
    result = a_run(["ab"], ["ab"], overflow="drop")
    assert {(node, place, cause) for node, _, place, cause in result.drops} == {("a", "egress", "queue full")}


@pytest.mark.parametrize("links", [["ab"], ["ac", "cb"]])
def test_where_a_lane_holds_brokers_lose_nothing_and_the_publisher_has_to_wait(links: list[str]) -> None:
    result = a_run(links, ["ab"])
    flows_go_on(result, ["ab"])
    assert {node for node, *_ in result.drops} == {"writer ab"}


def test_the_same_seed_gives_the_same_run() -> None:
    assert a_run(["ab"], ["ab"]).digest == a_run(["ab"], ["ab"]).digest


@pytest.mark.parametrize("links", [["ab"], ["ac", "cb"]])
def test_brokers_that_have_much_for_each_other_do_not_wait_for_ever(links: list[str]) -> None:
    flows_go_on(a_run(links, ["ab", "ba"]), ["ab", "ba"])


def test_neighbours_in_a_circle_do_not_wait_for_ever() -> None:
    flows_go_on(a_run(["ab", "bc", "ca"], ["ab", "bc", "ca"]), ["ab", "bc", "ca"])


@pytest.mark.xfail(reason="where links form a circle, waiting can: overlay.credit says so")
def test_flows_over_two_hops_of_a_circle_do_not_wait_for_ever() -> None:
    flows = ["ac", "bd", "ca", "db"]
    flows_go_on(a_run(["ab", "bc", "cd", "da"], flows), flows, sharing=2)

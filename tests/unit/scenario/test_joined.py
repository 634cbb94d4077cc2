"""When a network was whole, as its faults say."""

from __future__ import annotations

from penstock.scenario.joined import Joined
from penstock.scenario.spec import BrokerSpec, FaultSpec, LinkSpec, Scenario


def a_ring(*faults: FaultSpec, joins_at: float = 0.0) -> Joined:
    brokers = (BrokerSpec(name="a"), BrokerSpec(name="b"), BrokerSpec(name="c", joins_at=joins_at))
    links = tuple(LinkSpec(between=pair) for pair in (("a", "b"), ("b", "c"), ("c", "a")))
    return Joined(Scenario(name="ring", duration=10.0, broker=brokers, link=links, fault=faults))


def test_a_cut_with_a_way_round_parts_nobody_and_two_do():
    joined = a_ring(
        FaultSpec(at=1.0, kind="link_down", link=("b", "a")),
        FaultSpec(at=3.0, kind="link_down", link=("b", "c")),
        FaultSpec(at=4.0, kind="link_up", link=("a", "b")),
    )
    assert [joined.for_seconds(time) for time in (0.5, 2.0, 3.5, 4.5, 9.0)] == [0.5, 2.0, -1.0, 0.5, 5.0]


def test_crashes_partitions_and_late_brokers_part_until_they_are_over():
    joined = a_ring(
        FaultSpec(at=2.0, kind="crash", broker="a"),
        FaultSpec(at=3.0, kind="restart", broker="a"),
        FaultSpec(at=4.0, kind="partition", group=("a", "b")),
        FaultSpec(at=5.0, kind="heal"),
        FaultSpec(at=6.0, kind="clock_step", broker="a", seconds=1.0),
        FaultSpec(at=7.0, kind="leave", broker="a"),
        joins_at=1.0,
    )
    found = [joined.for_seconds(time) for time in (0.5, 1.5, 2.5, 3.5, 4.5, 6.5, 7.5)]
    assert found == [-1.0, 0.5, -1.0, 0.5, -1.0, 1.5, -1.0]

"""TCP beside the brokers in a scenario: it shares the wire, and a wire may change its rate."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.errors import InvalidScenario
from penstock.kernel.trace import Counted, Record
from penstock.scenario.spec import BrokerSpec, FaultSpec, LinkSpec, Scenario, TcpSpec
from penstock.scenario.validate import validate
from penstock.sim.run import simulate

PAIR = Scenario(
    name="pair",
    duration=20.0,
    broker=(BrokerSpec(name="l"), BrokerSpec(name="r")),
    link=(LinkSpec(between=("l", "r"), rate_bits_per_s=1e6, delay=0.02, queue_packets=50),),
    tcp=(TcpSpec(name="bulk", path=("l", "r"), start=1.0),),
)


class Bytes:
    """What TCP delivered in each second."""

    def __init__(self) -> None:
        self.per_second: dict[int, int] = {}

    def write(self, time: float, node: str, record: Record) -> None:
        if type(record) is Counted and record.name == "tcp delivered bytes":
            self.per_second[int(time)] = self.per_second.get(int(time), 0) + record.value

    def rate(self, start: int, end: int) -> float:
        return 8 * sum(self.per_second.get(second, 0) for second in range(start, end)) / (end - start)


def test_one_connection_fills_the_wire_between_two_brokers() -> None:
    counted = Bytes()
    result = simulate(PAIR, 1, trace=counted)
    assert counted.rate(8, 20) > 0.95e6
    assert not result.problems


def test_a_wire_takes_another_rate_while_it_runs() -> None:
    counted = Bytes()
    halved = replace(PAIR, fault=(FaultSpec(at=10.0, kind="link_rate", link=("l", "r"), rate_bits_per_s=0.5e6),))
    simulate(halved, 1, trace=counted)
    assert counted.rate(5, 10) > 0.9e6
    assert 0.42e6 < counted.rate(14, 20) <= 0.51e6


@pytest.mark.parametrize(
    ("change", "place", "problem"),
    [
        ({"tcp": (TcpSpec(name="bulk", path=("l",)),)}, "tcp[0] (bulk).path", "at least two"),
        ({"tcp": (TcpSpec(name="bulk", path=("l", "x")),)}, "tcp[0] (bulk).path", "there is no broker 'x'"),
        ({"tcp": (TcpSpec(name="l", path=("l", "r")),)}, "tcp[0].name", "is taken"),
        ({"link": (replace(PAIR.link[0], kind="shaped"),)}, "tcp[0] (bulk).path", "datagram"),
        ({"link": ()}, "tcp[0] (bulk).path", "no link joins"),
        (
            {"fault": (FaultSpec(at=1.0, kind="link_rate", link=("l", "r")),)},
            "fault[0].rate_bits_per_s",
            "more than 0",
        ),
    ],
)
def test_a_bad_connection_is_named(change: dict[str, object], place: str, problem: str) -> None:
    with pytest.raises(InvalidScenario) as error:
        validate(replace(PAIR, **change))
    assert error.value.where == place
    assert problem in error.value.problem

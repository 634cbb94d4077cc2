"""The set-ups of 002 chapter 3: calibrated to what the paper reports about its workload."""

import pytest

from penstock.content.language import parse_predicate
from penstock.kernel.randomness import stream
from penstock.lab.setups import FAST_RATE, RECEIVERS_FAST, RECEIVERS_SLOW, chain, eight_brokers, fast_starts
from penstock.overlay.topology import Topology
from penstock.scenario.network import validate
from penstock.scenario.workload import attribute_source


@pytest.fixture(scope="module")
def scenario():
    return eight_brokers("paper")


def test_the_network_is_that_of_section_3_1(scenario):
    validate(scenario)
    assert len(scenario.broker) == 8
    assert len(scenario.client) == 400
    assert sum(bool(client.publish) for client in scenario.client) == 50
    assert fast_starts(scenario) == [90, 190]


def test_its_diameter_is_three(scenario):
    topology = Topology()
    for number in range(8):
        pairs = [tuple(int(name[1:]) for name in link.between) for link in scenario.link]
        ends = [b if a == number else a for a, b in pairs if number in (a, b)]
        topology.claim(number, dict.fromkeys(ends, 1))
    assert max(way.hops for number in range(8) for way in topology.ways_from(number).values()) == 3


@pytest.mark.parametrize(("fast", "expected"), [(False, RECEIVERS_SLOW), (True, RECEIVERS_FAST)])
def test_a_message_has_as_many_receivers_as_reported(scenario, fast, expected):
    flow = next(f for c in scenario.client for f in c.publish if (f.rate_messages_per_s == FAST_RATE) is fast)
    draw = attribute_source(flow, stream(1, "sample"))
    wishes = [parse_predicate(wish.where) for client in scenario.client for wish in client.subscribe]
    samples = [draw() for _ in range(600)]
    receivers = sum(wish.matches(attributes) for attributes in samples for wish in wishes) / len(samples)
    assert receivers == pytest.approx(expected, rel=0.05)


def test_smoke_is_the_same_in_a_shorter_time(scenario):
    smoke = eight_brokers("smoke")
    assert smoke.duration < scenario.duration / 10
    assert (smoke.broker, smoke.link) == (scenario.broker, scenario.link)


def test_a_chain_has_one_exponential_stage_for_each_broker():
    made = chain(5, messages=100, scales=(0.001, 0.001, 0.001, 0.001, 0.01))
    validate(made)
    assert [broker.service_mean for broker in made.broker] == [0.001, 0.001, 0.001, 0.001, 0.01]
    assert len(made.link) == 4

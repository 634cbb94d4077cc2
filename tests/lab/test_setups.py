"""The set-ups of 002 chapter 3: calibrated to what the paper reports about its workload."""

import pytest

from penstock import services
from penstock.content.language.parser import parse_predicate
from penstock.kernel.randomness import generator
from penstock.lab.setups import (
    FAST_RATE,
    RECEIVERS_FAST,
    RECEIVERS_SLOW,
    chain,
    eight_brokers,
    fast_starts,
    forty_six_brokers,
    with_transport,
)
from penstock.lab.setups.subscriptions import HEAVY_MATCH, HEAVY_SUBSCRIPTION
from penstock.overlay.topology import Topology
from penstock.scenario.validate import validate
from penstock.scenario.workload import attribute_source
from penstock.transport.config import papers_config


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
    assert diameter(scenario) == 3


def diameter(scenario):
    topology = Topology()
    pairs = [tuple(int(name[1:]) for name in link.between) for link in scenario.link]
    for number in range(len(scenario.broker)):
        ends = [b if a == number else a for a, b in pairs if number in (a, b)]
        topology.claim(number, dict.fromkeys(ends, 1))
    ways = [topology.ways_from(number) for number in range(len(scenario.broker))]
    assert {len(way) for way in ways} <= {len(scenario.broker), len(scenario.broker) - 1}, "not connected"
    return max(way.hops for found in ways for way in found.values())


@pytest.mark.parametrize("network", [eight_brokers, forty_six_brokers])
@pytest.mark.parametrize(("fast", "expected"), [(False, RECEIVERS_SLOW), (True, RECEIVERS_FAST)])
def test_a_message_has_as_many_receivers_as_reported(network, fast, expected):
    scenario = network("smoke")
    flow = next(f for c in scenario.client for f in c.publish if (f.rate_messages_per_s == FAST_RATE) is fast)
    draw = attribute_source(flow, generator(1, "sample"))
    subscriptions = [
        parse_predicate(subscription.where) for client in scenario.client for subscription in client.subscribe
    ]
    samples = [draw() for _ in range(600)]
    receivers = sum(subscription.matches(attributes) for attributes in samples for subscription in subscriptions) / len(
        samples
    )
    assert receivers == pytest.approx(expected, rel=0.06)


def test_smoke_is_the_same_in_a_shorter_time(scenario):
    smoke = eight_brokers("smoke")
    assert smoke.duration < scenario.duration / 10
    assert (smoke.broker, smoke.link) == (scenario.broker, scenario.link)


def test_the_larger_network_is_that_of_section_3_5_2():
    scenario = forty_six_brokers("paper")
    validate(scenario)
    assert (len(scenario.broker), len(scenario.client), scenario.duration) == (46, 460, 240.0)
    assert sum(bool(client.publish) for client in scenario.client) == 50
    assert fast_starts(scenario) == [90, 190]
    assert diameter(scenario) == 15
    assert len(scenario.link) == 45


def test_four_subscribers_of_the_larger_network_are_heavy():
    scenario = forty_six_brokers("smoke")
    heavy = [client for client in scenario.client if client.subscribe[0].where == HEAVY_SUBSCRIPTION]
    assert len({client.broker for client in heavy}) == 4
    flow = next(f for c in scenario.client for f in c.publish if f.rate_messages_per_s == FAST_RATE)
    draw = attribute_source(flow, generator(1, "sample"))
    subscription = parse_predicate(HEAVY_SUBSCRIPTION)
    assert sum(subscription.matches(draw()) for _ in range(2_000)) / 2_000 == pytest.approx(HEAVY_MATCH, abs=0.02)


def test_set_ups_are_the_same_each_time_they_are_made():
    assert forty_six_brokers("smoke") == forty_six_brokers("smoke")
    assert forty_six_brokers("smoke").link == forty_six_brokers("paper").link


def test_a_transport_can_be_put_on_all_clients(scenario):
    config = papers_config(record_entries=25)
    made = with_transport(scenario, config, ordered=True)
    validate(made)
    assert all(client.services == {"transport": config} for client in made.client)
    options = [services.options(subscription.options) for client in made.client for subscription in client.subscribe]
    assert {(chosen.ordered, chosen.recover) for chosen in options} == {(True, False)}
    assert [client.publish for client in made.client] == [client.publish for client in scenario.client]


def test_a_chain_has_one_exponential_stage_for_each_broker():
    made = chain(5, messages=100, scales=(0.001, 0.001, 0.001, 0.001, 0.01))
    validate(made)
    assert [broker.service_mean for broker in made.broker] == [0.001, 0.001, 0.001, 0.001, 0.01]
    assert len(made.link) == 4

"""The set-ups of 002 chapter 4: the workload has the figures of section 4.4.1."""

from collections import Counter

import networkx
import pytest

from penstock import services
from penstock.content.language.parser import parse_predicate
from penstock.kernel.randomness import generator
from penstock.lab.setups import recovery_network
from penstock.lab.setups.recovery import match_probabilities, receivers_of_classes
from penstock.scenario.validate import validate
from penstock.scenario.workload import attribute_source, publication_times
from penstock.transport.config import papers_config

SAMPLES = 4_000


@pytest.fixture(scope="module", params=[12, 46])
def brokers(request):
    return request.param


@pytest.fixture(scope="module")
def scenario(brokers):
    made = recovery_network(brokers, scale="paper")
    validate(made)
    return made


def flows(scenario):
    return [flow for client in scenario.client for flow in client.publish]


@pytest.mark.parametrize(
    ("brokers", "diameter", "publishers", "subscribers", "spike"), [(12, 5, 6, 54, 500.0), (46, 11, 10, 220, 250.0)]
)
def test_the_networks_are_those_of_section_4_4_1(brokers, diameter, publishers, subscribers, spike):
    scenario = recovery_network(brokers, scale="paper")
    graph = networkx.Graph(link.between for link in scenario.link)
    assert graph.number_of_nodes() == len(scenario.broker) == brokers
    assert networkx.diameter(graph) == diameter
    assert sum(bool(client.publish) for client in scenario.client) == publishers
    assert sum(bool(client.subscribe) for client in scenario.client) == subscribers
    assert set(Counter(client.broker for client in scenario.client).values()) == {5}
    assert {(flow.rate_messages_per_s, flow.spike_rate_messages_per_s) for flow in flows(scenario)} == {(20.0, spike)}
    assert scenario.duration == 300.0


def test_links_lose_one_in_a_hundred_and_their_delays_differ(scenario):
    assert {link.loss for link in scenario.link} == {0.01}
    assert {link.jitter for link in scenario.link} == {0.005}
    delays = [link.delay for link in scenario.link]
    assert len(set(delays)) == len(delays)
    assert all(0.025 <= delay <= 0.075 for delay in delays)
    assert max(delays) - min(delays) > 0.03


def test_loss_is_a_parameter_and_stands_in_the_name(brokers):
    rare = recovery_network(brokers, scale="smoke", loss=0.001)
    assert {link.loss for link in rare.link} == {0.001}
    assert rare.name != recovery_network(brokers, scale="smoke").name


def test_messages_have_ten_attributes_and_filters_two_constraints(scenario):
    assert {len(flow.attributes) for flow in flows(scenario)} == {10}
    for client in scenario.client:
        for subscription in client.subscribe:
            assert all(len(filter_.constraints) >= 2 for filter_ in parse_predicate(subscription.where).filters)


def test_half_of_the_messages_have_at_most_two_receivers(brokers):
    receivers = receivers_of_classes(brokers)
    assert sum(count <= 2 for count in receivers) >= 0.54 * len(receivers)
    assert min(receivers) >= 1
    assert receivers[0] >= 5 * sum(receivers) / len(receivers)  # and a few have many
    assert receivers[:10] == sorted(receivers[:10], reverse=True)


def test_four_fifths_of_the_pairs_match_rarely_and_none_often(brokers):
    found = match_probabilities(brokers)
    assert sum(probability < 0.08 for probability in found) >= 0.81 * len(found)
    assert 0.08 < max(found) <= 0.09


@pytest.mark.parametrize(("brokers", "expected"), [(12, 4.2), (46, 5.0)])
def test_the_mean_number_of_receivers_is_the_sum_of_the_probabilities(brokers, expected):
    receivers = receivers_of_classes(brokers)
    assert sum(match_probabilities(brokers)) == pytest.approx(sum(receivers) / len(receivers))
    assert sum(receivers) / len(receivers) == pytest.approx(expected, abs=0.05)


def test_a_drawn_sample_matches_as_the_recipe_says(brokers, scenario):
    draw = attribute_source(flows(scenario)[0], generator(1, "sample"))
    subscriptions = [
        parse_predicate(subscription.where) for client in scenario.client for subscription in client.subscribe
    ]
    samples = [draw() for _ in range(SAMPLES)]
    matches = [[subscription.matches(attributes) for subscription in subscriptions] for attributes in samples]
    for number, expected in enumerate(match_probabilities(brokers)):
        measured = sum(row[number] for row in matches) / SAMPLES
        error = (expected * (1.0 - expected) / SAMPLES) ** 0.5
        assert measured == pytest.approx(expected, abs=4.5 * error)
    assert sum(sum(row) <= 2 for row in matches) >= 0.5 * SAMPLES
    assert sum(map(sum, matches)) / SAMPLES == pytest.approx(sum(match_probabilities(brokers)), rel=0.12)


def test_rates_jump(scenario):
    flow = flows(scenario)[0]
    times = list(publication_times(flow, scenario.duration, generator(1, "publish")))
    per_second = Counter(map(int, times))
    assert times[0] >= 3.0
    spike = flow.spike_rate_messages_per_s
    assert sum(per_second[second] > 0.8 * spike for second in range(300)) > 10
    assert sum(per_second[second] < 2 * 20.0 for second in range(3, 300)) > 150


def asked_for(scenario):
    """(ordered, recover) of all subscriptions."""
    subscriptions = [subscription for client in scenario.client for subscription in client.subscribe]
    chosen = [services.options(subscription.options) for subscription in subscriptions]
    return {(options.ordered, options.recover) for options in chosen}


def test_all_clients_get_the_transport_and_subscriptions_recover(brokers):
    config = papers_config(record_entries=10)
    made = recovery_network(brokers, scale="smoke", transport=config)
    validate(made)
    assert all(client.services == {"transport": config} for client in made.client)
    assert asked_for(made) == {(False, True)}
    both = recovery_network(brokers, scale="smoke", transport=config, ordered=True)
    assert asked_for(both) == {(True, True)}


def test_without_a_transport_nothing_is_recovered(brokers):
    made = recovery_network(brokers, scale="smoke")
    assert all(client.services == {} for client in made.client)
    assert asked_for(made) == {(False, False)}


def test_smoke_is_the_same_in_a_shorter_time(brokers, scenario):
    smoke = recovery_network(brokers, scale="smoke")
    assert smoke.duration == 15.0
    assert (smoke.broker, smoke.link, smoke.client) == (scenario.broker, scenario.link, scenario.client)


def test_another_table_changes_the_mean():
    table = {18: 10, 5: 44}
    made = recovery_network(12, scale="smoke", wanted=table)
    filters = [
        len(parse_predicate(subscription.where).filters) for client in made.client for subscription in client.subscribe
    ]
    assert Counter(filters) == table
    assert sum(filters) / 200 == pytest.approx(2.0)


@pytest.mark.parametrize("table", [{10: 3}, {1: 54}])
def test_a_table_must_speak_of_all_subscribers_and_all_classes(table):
    with pytest.raises(AssertionError):
        recovery_network(12, scale="smoke", wanted=table)

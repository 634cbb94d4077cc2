"""The networks for any content, and what the truth about a message is; `make lab-smoke` runs the experiment."""

from __future__ import annotations

import numpy as np

from penstock.content.language.parser import parse_predicate
from penstock.kernel.randomness import generator
from penstock.lab.engine.experiment import SCALES
from penstock.lab.engine.ways import first_hops
from penstock.lab.papers.any_content import EXPERIMENTS, setting
from penstock.lab.papers.any_content.fates import MessageFates
from penstock.lab.setups.any_content import ATTRIBUTES, FILTERS, any_content_network
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario
from penstock.scenario.validate import validate
from penstock.scenario.workload import PublisherSpec, attribute_source
from penstock.transport.config import TransportConfig

NAN = float("nan")


def test_every_run_can_be_made_and_no_two_are_one():
    for scale in SCALES:
        scenarios = [plan.scenario for plan in EXPERIMENTS[0].plans(scale).values()]
        for scenario in scenarios:
            validate(scenario)
        assert len({scenario.name for scenario in scenarios}) == len(scenarios)


def test_all_runs_on_a_network_have_the_same_tree_and_publishers():
    plans = [plan.scenario for plan in setting.drawn("paper", 2).values()]
    assert len({tuple(link.between for link in scenario.link) for scenario in plans}) == 1
    assert len({tuple((c.name, c.broker) for c in scenario.client if c.publish) for scenario in plans}) == 1


def test_every_run_with_recovery_is_made_with_and_without_link_repair():
    for seed in range(1, len(setting.NETWORKS["paper"]) + 1):
        runs = setting.drawn("paper", seed)
        for name in (*setting.RECOVERED, *setting.LOSSLESS):
            columns = [runs[run].scenario for run in setting.both([name])]
            assert [{link.repair for link in scenario.link} for scenario in columns] == [{False}, {True}]
            assert columns[0].client == columns[1].client


def test_each_seed_has_a_network_of_its_own():
    trees = [setting.drawn("paper", seed)["order"].scenario.link for seed in range(1, 6)]
    assert len(set(trees)) == 5


def test_every_criterion_is_about_a_run_that_is_made():
    runs = set(setting.drawn("paper", 1))
    kinds = {criterion.name.rsplit(": ", 1)[0] for criterion in EXPERIMENTS[0].criteria if ": " in criterion.name}
    assert kinds <= runs


def test_filters_match_as_much_as_their_names_say():
    draw = attribute_source(PublisherSpec(rate_messages_per_s=1.0, attributes=ATTRIBUTES), generator(1, "messages"))
    messages = [draw() for _ in range(600)]
    shares = {}
    for name, drawn in FILTERS.items():
        random = generator(1, name)
        predicates = [parse_predicate(drawn(random)) for _ in range(60)]
        matches = [sum(predicate.matches(message) for message in messages) for predicate in predicates]
        shares[name] = sum(matches) / len(matches) / len(messages)
    assert 0.05 < shares["equality"] < 0.085
    assert shares["rare"] < 0.006
    for name in ("ranges", "ranges and LIKE", "mixed"):
        assert 0.02 < shares[name] < 0.3


def test_order_is_judged_on_twins():
    scenario = any_content_network(1, "mixed", scale="smoke", twins=True, transport=TransportConfig(), ordered=True)
    pairs = [client.subscribe for client in scenario.client if client.subscribe]
    assert all(plain.where == ordered.where for plain, ordered in pairs)
    assert all((plain.options, ordered.options) == ({}, {"ordered": True}) for plain, ordered in pairs)


def test_what_ends_on_a_link_was_meant_for_those_behind_it():
    scenario = Scenario(
        name="three",
        broker=tuple(BrokerSpec(name=name) for name in "abc"),
        link=(LinkSpec(between=("a", "b")), LinkSpec(between=("b", "c"))),
        client=(ClientSpec(name="x", broker="c"), ClientSpec(name="y", broker="a")),
    )
    assert first_hops(scenario) == [
        *[("x", "", "x"), ("c", "x", "x"), ("b", "c", "x"), ("a", "b", "x")],
        *[("y", "", "y"), ("a", "y", "y"), ("b", "a", "y"), ("c", "b", "y")],
    ]


def test_a_lost_message_comes_back_or_is_declared_or_is_lost_in_silence():
    found = MessageFates(
        published_at=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        lost_at=np.array([NAN, 2.5, 3.5, 4.5, 5.5]),
        delivered_at=np.array([1.1, 3.0, NAN, NAN, NAN]),
        declared_at=np.array([NAN, 2.7, 5.5, NAN, NAN]),
        suspected_at=np.array([NAN, NAN, NAN, NAN, 6.0]),
        last=np.array([False, False, True, True, False]),
        end=20.0,
    )
    assert found.lost.tolist() == [False, True, True, True, True]
    assert found.recovered.tolist() == [False, True, False, False, False]
    assert found.silent.tolist() == [False, False, False, True, False]
    assert found.undeclared.tolist() == [False, False, False, True, True]
    assert found.recovery_times().tolist() == [0.5]
    assert found.notice_times().tolist() == [2.0, 15.5], "what is never noticed counts until the end"

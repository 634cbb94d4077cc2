"""A workload drawn on Spark and carried by a simulated network: everybody gets what the texts say."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.lab.engine.workload import carry
from penstock.pipeline.workloads import WorkloadSpec, read_publications, read_subscriptions, write_workload

NETWORK = """
name = "three"
duration = 1.0
[[broker]]
name = "a"
[[broker]]
name = "b"
[[broker]]
name = "c"
[[link]]
between = ["a", "b"]
[[link]]
between = ["b", "c"]
"""
SPEC = WorkloadSpec(
    publications=300,
    subscriptions=20,
    clients=20,
    publishers=5,
    hot_publishers=1,
    duration=3.0,
    names=4,
    names_per_message=4,
    values=5,
)


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    made = tmp_path_factory.mktemp("workload")
    write_workload(spark, SPEC, made)
    return made


def test_every_publication_reaches_all_who_asked_for_it(folder, tmp_path):
    network = tmp_path / "three.toml"
    network.write_text(NETWORK)
    _, result = carry(folder, network, seed=1)
    subscriptions = [parse_predicate(subscription.where) for subscription in read_subscriptions(folder)]
    due = sum(
        subscription.matches(drawn.attributes) for drawn in read_publications(folder) for subscription in subscriptions
    )
    assert due > 100
    assert sum(tally.published for tally in result.clients.values()) == 300
    assert sum(tally.delivered for tally in result.clients.values()) == due
    assert result.problems == []


def test_the_folder_says_how_it_was_drawn(folder):
    assert json.loads((Path(folder) / "workload.json").read_text()) == asdict(SPEC)

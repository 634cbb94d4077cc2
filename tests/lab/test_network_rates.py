"""The networks for fair rates, and what is lost, withheld and received; `make lab-smoke` runs the experiment."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernel.randomness import generator
from penstock.lab.engine.experiment import SCALES
from penstock.lab.papers.network_rates.outcome import Due
from penstock.lab.papers.network_rates.rows import MEASURES
from penstock.lab.papers.network_rates.table import CRITERIA, EXPERIMENTS, drawn
from penstock.lab.setups.network_rates import rates_network
from penstock.lab.setups.network_rates.drawing import Draft, wanted_share
from penstock.lab.setups.network_rates.rows import ROWS
from penstock.scenario.validate import validate
from penstock.scenario.workload import Recipe

NAN = float("nan")


def test_every_run_can_be_made_and_no_two_are_one():
    for scale in SCALES:
        scenarios = [plan.scenario for plan in EXPERIMENTS[0].plans(scale).values()]
        for scenario in scenarios:
            validate(scenario)
        assert len({scenario.name for scenario in scenarios}) == len(scenarios)


@pytest.mark.parametrize("row", ROWS)
def test_the_two_runs_of_a_row_differ_in_control_alone_and_another_seed_is_another_network(row):
    free, controlled, other = (
        rates_network(row, seed, seconds=5.0, controlled=controlled)
        for seed, controlled in ((3, False), (3, True), (4, True))
    )
    assert (free.link, free.client, free.fault, free.tcp) == (
        controlled.link,
        controlled.client,
        controlled.fault,
        controlled.tcp,
    )
    assert (free.services, free.name) != (controlled.services, controlled.name)
    assert (other.link, other.client) != (controlled.link, controlled.client)


def test_every_row_is_measured_and_every_criterion_belongs_to_a_row():
    assert list(MEASURES) == [*ROWS, "town"]
    assert {criterion.name.split(":")[0] for criterion in CRITERIA} == set(MEASURES)
    assert {name.split(",")[0] for name in drawn("smoke", 1)} < set(ROWS)


def test_a_link_is_filled_as_often_as_was_asked_for():
    draft = Draft(generator(1, "test"), 10.0, message_bytes=500)
    content = {"x": Recipe(uniform=(0.0, 1_000.0))}
    share = wanted_share(content, ["x < 100", "x < 250", "x < 100"], generator(1, "messages"))
    assert 0.2 < share < 0.3
    assert draft.busy(1e6, 0.25, times=2.0) == 2_000.0, "of which a quarter is wanted: twice 250/s of 500 bytes"


def test_what_ended_on_the_way_is_lost_and_what_never_left_is_withheld():
    found = Due(
        publisher=np.array(["p", "p", "q", "q"]),
        client=np.array(["a", "b", "a", "b"]),
        published_at=np.array([1.0, 1.0, 2.0, 2.0]),
        ended_at=np.array([NAN, 1.5, 2.5, NAN]),
        delivered_at=np.array([1.2, NAN, 2.8, NAN]),
    )
    assert (found.received(), found.lost(), found.withheld()) == (2, 1, 1), "what was repaired is not lost"
    assert found.lost_share() == pytest.approx(100.0 / 3.0)
    assert found.lost_share(found.published(2.0, 3.0)) == 0.0
    assert found.by_client() == [2, 0]
    assert found.received(found.of_publisher("q")) == 1

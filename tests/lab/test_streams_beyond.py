"""Experiments on streams beyond the paper's figures: their networks, how faults are counted, and one from end to end.

`make lab-smoke` runs all of them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.papers.gryphon.clocks import PLACES, drifting
from penstock.lab.papers.gryphon.outcome import Outcome, percentile
from penstock.lab.papers.gryphon.processor import slowed
from penstock.lab.papers.gryphon.random_networks import busiest, victim
from penstock.lab.papers.gryphon.setting import Faults
from penstock.lab.setups.gryphon import PAPER_CONTROL, simple_network
from penstock.lab.setups.random_streams import random_network
from penstock.scenario.spec import ClientSpec, SubscriptionSpec

END_TO_END = "pdcc-separate-trees"


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_random_network_is_that_of_its_seed_and_its_outer_brokers_have_one_link_each(seed):
    network = random_network(seed)
    assert network == random_network(seed)
    for outer in (*network.sources, *network.edges):
        assert [link.between for link in network.links if outer in link.between] == [network.link_of(outer)]
    edge, source = victim(network), busiest(network)
    assert network.load(edge) > 0.0
    assert network.load(source) > 0.0
    assert network.load(edge) <= 1.001 * sum(network.load(one) for one in network.sources)


def test_drifting_clocks_are_apart_and_only_those_named_drift():
    scenario = drifting(simple_network("clocks", duration=10.0), 0.04, PLACES["edges fast, pubend slow"])
    assert {broker.name: broker.clock_drift for broker in scenario.broker} == {
        "PB": -0.02,
        "IB": 0.0,
        "SB1": 0.02,
        "SB2": 0.02,
    }
    assert len({broker.clock_offset for broker in scenario.broker}) == len(scenario.broker)


def test_a_slow_broker_has_as_much_work_with_fewer_messages():
    one, ten = (slowed("slow", fewer, "IB", PAPER_CONTROL, 10.0, service_mean=0.01) for fewer in (1, 10))
    costs = [[broker.service_mean for broker in scenario.broker] for scenario in (one, ten)]
    assert costs == [[0.0, 0.01, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0]]


def an_outcome(stored: list[tuple[int, str]], came: list[int], where: str) -> Outcome:
    """One reader; what was stored, with its symbol, by tick; and the ticks that came, in order."""
    found: Any = Outcome.__new__(Outcome)
    reader = ClientSpec(name="r", broker="b", subscribe=(SubscriptionSpec(where=where),))
    found._scenario = SimpleNamespace(client=(reader,))
    count = len(stored)
    ticks, numbers = np.array([tick for tick, _ in stored]), np.arange(count)
    names = {"pubend": np.array(["orders/0"] * count), "publisher": np.array(["p"] * count)}
    found._committed = {**names, "tick": ticks, "count": numbers}
    texts = np.array([f'{{"symbol": "{symbol}"}}' for _, symbol in stored], dtype=object)
    asked = {"publisher": names["publisher"], "count": numbers, "attributes": texts}
    found._tables = SimpleNamespace(stream_requested=Table(asked))
    found._delivered = {
        "time": np.arange(float(len(came))),
        "node": np.array(["r"] * len(came)),
        "pubend": np.array(["orders/0"] * len(came)),
        "tick": np.array(came),
    }
    return found


class Table:
    """A table that answers like one of the pipeline."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns
        self.column_names = list(columns)

    def select(self, *names: str) -> Table:
        return self

    def toArrow(self) -> Table:  # noqa: N802
        return self

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(to_numpy=lambda zero_copy_only: self.columns[name])


STORED = [(1, "IBM"), (2, "AMD"), (3, "IBM"), (4, "IBM"), (5, "IBM")]


@pytest.mark.parametrize(
    ("came", "faults"),
    [
        ([1, 3, 4, 5], Faults(missed=0, waiting=0, repeated=0, disordered=0)),
        ([1, 4, 5], Faults(missed=1, waiting=0, repeated=0, disordered=0)),
        ([1, 3], Faults(missed=0, waiting=2, repeated=0, disordered=0)),
        ([1, 3, 4, 4, 5], Faults(missed=0, waiting=0, repeated=1, disordered=1)),
        ([3, 1, 4, 5], Faults(missed=0, waiting=0, repeated=0, disordered=1)),
    ],
)
def test_faults_are_counted_against_what_the_reader_wants(came, faults):
    assert an_outcome(STORED, came, "symbol = 'IBM'").all_faults == faults


def test_a_percentile_of_nothing_is_not_a_number():
    assert percentile(np.array([1.0, 2.0, 3.0, 4.0]), 0.5) == 3.0
    assert percentile(np.array([1.0, 2.0]), 1.0) == 2.0
    assert np.isnan(percentile(np.array([]), 0.5))


def test_one_of_them_from_end_to_end(spark, lab_root):
    (found,) = run_experiments(
        [find(END_TO_END)],
        scale="smoke",
        seeds=[1],
        runs_root=lab_root,
        spark=lambda: spark,
        processes=1,
        progress=lambda what, share: None,
    )
    assert found.holds(), [f"{f.criterion.name}: {f.value}" for f in found.findings if f.gated and not f.passed]

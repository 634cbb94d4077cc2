"""The experiments on priced sending: their set-ups, and two of them from end to end.

`make lab-smoke` runs all of them at smoke scale.
"""

from __future__ import annotations

import pytest

from penstock.content.message import Identity, make_message
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.papers import compared
from penstock.lab.papers.spread import EXPERIMENTS
from penstock.lab.setups.spread import GROUPS, SCENARIO_2, WIRE_BYTES, spread_network
from penstock.pricing.packets import PricedPublication
from penstock.scenario.validate import validate
from penstock.sim.tcp.config import HEADER_BYTES

END_TO_END = ("cb-s2-buffers", "cb-s2-throughput")


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_every_plan_is_a_valid_scenario(scale):
    for experiment in (*EXPERIMENTS, *compared.EXPERIMENTS):
        names = [criterion.name for criterion in experiment.criteria]
        assert len(names) == len(set(names))
        for plan in experiment.plans(scale).values():
            validate(plan.scenario)


def test_a_message_has_1000_bytes_on_the_wire_of_its_last_link():
    scenario = spread_network("size", SCENARIO_2, GROUPS, duration=10.0, senders=1)
    sender = next(client for client in scenario.client if client.publish)
    flow = sender.publish[0]
    message = make_message(Identity(sender.name, 1, 1), flow.attributes, bytes(flow.body_bytes))
    assert PricedPublication((4,), 7, message).size_bytes() + HEADER_BYTES == WIRE_BYTES


def test_two_of_them_from_end_to_end_share_one_run(spark, lab_root):
    results = run_experiments(
        [find(name) for name in END_TO_END],
        scale="smoke",
        seeds=[1],
        runs_root=lab_root,
        spark=lambda: spark,
        processes=1,
        progress=lambda what, share: None,
    )
    assert results[0].runs == results[1].runs
    for found in results:
        assert found.holds(), [f"{f.criterion.name}: {f.value}" for f in found.findings if f.gated and not f.passed]

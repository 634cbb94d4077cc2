"""The experiments on congestion control of streams: their set-ups, and two of them from end to end.

`make lab-smoke` runs all of them at smoke scale.
"""

from __future__ import annotations

import pytest

from penstock.content.message import Identity, make_message
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.papers.gryphon import EXPERIMENTS
from penstock.lab.setups.gryphon import PUBENDS, WIRE_BYTES, link_messages_per_s, parts_of, simple_network
from penstock.scenario.validate import validate
from penstock.streams.packets import Knowledge, pubend_name

END_TO_END = ("pdcc-queue-bound", "pdcc-bandwidth-steps")


def test_every_plan_is_a_valid_scenario_at_both_scales():
    for experiment in EXPERIMENTS:
        names = [criterion.name for criterion in experiment.criteria]
        assert len(names) == len(set(names))
        for scale in ("smoke", "paper"):
            for plan in experiment.plans(scale).values():
                validate(plan.scenario)


@pytest.mark.parametrize("fewer", [1, 10])
def test_a_message_has_366_bytes_on_the_wire(fewer):
    scenario = simple_network("size", duration=10.0, fewer=fewer)
    flow = scenario.client[0].publish[0]
    message = make_message(Identity("p0", 1, 1), {"part": 4}, bytes(flow.body_bytes))
    packet = Knowledge(pubend_name("orders", 0), 1, 1, 1, 1, 2, ((2, message),))
    assert packet.size_bytes() == fewer * WIRE_BYTES


def test_links_carry_what_the_page_of_experiments_says():
    assert [round(link_messages_per_s(kilobytes)) for kilobytes in (60, 150, 250, 500)] == [168, 420, 699, 1399]


def test_the_publishers_have_a_pubend_each_and_edges_of_the_large_network_want_everything_together():
    scenario = simple_network("keys", duration=10.0)
    keys = {client.publish[0].options["key"] for client in scenario.client if client.publish}
    assert len(keys) == PUBENDS
    assert {part for number in range(1, 6) for part in parts_of(f"SB{number}", True)} == set(range(5))
    assert all(len(parts_of(f"SB{number}", True)) == 2 for number in range(1, 6))


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

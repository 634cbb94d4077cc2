"""The experiments on congestion control: their arithmetic, their set-ups, and two of them from end to end.

`make lab-smoke` runs all of them at smoke scale.
"""

from __future__ import annotations

import math

import networkx
import numpy as np
import pytest

from penstock.content.envelope import wrap
from penstock.content.message import Identity, make_message
from penstock.kernel.trace import Dropped
from penstock.lab.engine.experiment import Views
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.papers.congestion import EXPERIMENTS, large_network, load, theory
from penstock.lab.papers.congestion.setting import jain, rate, time_until
from penstock.lab.setups.congestion import large_subscriptions, nested_filters
from penstock.lab.setups.dumbbell import HEADER_BYTES, WIRE_BYTES, DumbbellPair, Stretch, body_bytes, dumbbell
from penstock.overlay.packets import Publication
from penstock.scenario.validate import validate
from penstock.sim.run import simulate
from penstock.transport.wire.flow_fields import Control
from penstock.transport.wire.header import encode_header

END_TO_END = ("cacc-variable-load", "cacc-covered-receiver")


def test_every_plan_is_a_valid_scenario():
    """That all experiments of the page are there is a question for `test_experiment`."""
    for experiment in EXPERIMENTS:
        names = [criterion.name for criterion in experiment.criteria]
        assert len(names) == len(set(names))
        for plan in experiment.plans("smoke").values():
            validate(plan.scenario)


@pytest.mark.parametrize("header", [False, True])
def test_a_message_has_280_bytes_on_the_wire_with_and_without_control(header):
    sample = {"source": "s1", "wanted": True}
    message = make_message(Identity("p1", 1, 1), sample, bytes(body_bytes(sample, "p1", header=header)))
    if header:
        header = encode_header(9, 1.0, [0.1, 0.2], [bytes(32)] * 2, flags=0, entry_bytes=32, control=Control(1.0))
        bare, message = message.size_bytes, wrap(message, header)
        assert message.size_bytes - bare == HEADER_BYTES
    assert Publication((1,), 8, message).size_bytes() == WIRE_BYTES


def test_without_control_a_flow_loses_what_the_link_cannot_take_and_with_control_hardly_anything():
    drops = []
    for controlled in (False, True):
        pair = DumbbellPair(1.0, (Stretch(0.0, 8.0, 400.0),))
        scenario = dumbbell("short", [pair], rate_bits_per_s=500e3, duration=8.0, controlled=controlled)
        result = simulate(scenario, 1)
        drops.append(sum(result.drops.values()))
        assert result.records[Dropped.__name__] == drops[-1]
    assert drops[0] > 1000
    assert drops[1] < drops[0] / 10


def test_the_load_has_the_rates_of_figure_7():
    flows = load.load_plans("paper")[load.FREE].scenario.client[0].publish
    assert (flows[0].rate_messages_per_s, flows[0].rate_end_messages_per_s) == (400, 4000)
    assert (flows[1].start, flows[1].stop, flows[1].rate_messages_per_s) == (60.0, 120.0, 4000)
    assert max(flow.stop or 0.0 for flow in flows) == 250.0


def test_a_few_subscribers_of_the_large_network_want_much_and_filters_have_one_to_five_constraints():
    for kind in ("1/r", "r^-1.7"):
        few = [where.count("=") for where in large_subscriptions(758, kind)]
        assert set(few) <= {1, 2, 3, 4, 5}
        assert few.count(1) < 20
    subscriptions = large_subscriptions(758)
    counts = [subscription.count("=") for subscription in subscriptions]
    assert len(subscriptions) == 758
    assert set(counts) == {1, 2, 3, 4, 5}
    assert counts.count(1) == pytest.approx(758 / 5, rel=0.3)


def test_the_large_network_has_a_diameter_of_six_and_760_clients():
    """000 section IV-E says 3 and 758 subscribers, 002 section 5.3.5 says 6 and 760: erratum C11."""
    scenario = large_network.plans("paper")[load.CONTROLLED].scenario
    overlay = networkx.Graph([link.between for link in scenario.link])
    assert len(overlay) == 8
    assert networkx.is_tree(overlay)
    assert networkx.diameter(overlay) == 6
    assert len(scenario.client) == 760
    assert sum(bool(client.subscribe) for client in scenario.client) == 758


def test_as_many_distinct_filters_as_subscribers_and_many_of_them_inside_others():
    """000 section IV-E: the table grows sub-linearly with the number of subscribers, not of filters."""
    filters = nested_filters(1600)
    assert len(set(filters)) == len(filters) == 1600
    assert sum(any(path[:depth] in set(filters) for depth in range(1, len(path))) for path in filters) > 1000


def test_rates_and_times_are_read_off_bins_of_a_tenth_of_a_second():
    bins = np.concatenate([np.full(20, 10.0), np.full(20, 5.0)])  # 100 per second, then 50
    assert rate(bins, 0.0, 2.0) == pytest.approx(100.0)
    assert time_until(bins, 2.0, 45.0, 55.0, stop=4.0) == pytest.approx(0.5)
    assert time_until(bins, 1.0, 45.0, 55.0, stop=4.0) == pytest.approx(1.5)
    assert math.isnan(time_until(bins, 0.0, 1.0, 2.0, stop=4.0))


def test_jain_is_one_for_equal_shares_and_one_by_n_if_one_gets_all():
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([3.0, 0.0, 0.0]) == pytest.approx(1.0 / 3.0)


def test_the_response_function_has_the_exact_values():
    response = theory.EXPERIMENTS[0]
    measured = response.measure(Views(seed=1, scale="smoke"))
    assert all(criterion.holds(measured[criterion.name]) for criterion in response.criteria)
    assert len(response.draw(Views(seed=1, scale="smoke"))) == 2


def test_a_record_that_tells_everything_sees_most_losses():
    came = theory.arrivals(1, 0)
    seen = [theory.estimates(came, size, "probable")[1].mean() for size in theory.SIZES.values()]
    assert seen == sorted(seen, reverse=True)


@pytest.fixture(scope="module")
def results(spark, tmp_path_factory):
    return run_experiments(
        [find(name) for name in END_TO_END],
        scale="smoke",
        seeds=[1],
        runs_root=tmp_path_factory.mktemp("congestion"),
        spark=lambda: spark,
        processes=1,
        progress=lambda what, share: None,
    )


@pytest.mark.parametrize("number", range(len(END_TO_END)), ids=END_TO_END)
def test_the_criteria_hold_at_smoke_scale(results, number):
    failed = [f"{f.criterion.name}: {f.value}" for f in results[number].findings if f.gated and not f.passed]
    assert not failed
    assert results[number].figures

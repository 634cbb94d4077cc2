"""The experiments on recovery at smoke scale, from end to end; and what their parts mean, on small rows.

The two that run here share their simulation. `make lab-smoke` runs the whole family.
"""

from __future__ import annotations

import math
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.lab.engine.experiment import SCALES
from penstock.lab.engine.registry import experiments, find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.papers import detection
from penstock.lab.papers.recovery import EXPERIMENTS, beyond, setting, traffic
from penstock.lab.setups.recovery import CLASSES, NETWORKS

NAMES = ("recovery-control-traffic", "recovery-cache-hit-ratio")


@pytest.fixture(scope="module")
def results(spark, tmp_path_factory):
    return run_experiments(
        [find(name) for name in NAMES],
        scale="smoke",
        seeds=[1],
        runs_root=tmp_path_factory.mktemp("lab"),
        spark=lambda: spark,
        processes=2,
        progress=lambda what, share: None,
    )


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_the_criteria_of_the_paper_hold_at_smoke_scale(results, number):
    found = results[number]
    failed = [f"{f.criterion.name}: {f.value}" for f in found.findings if f.gated and not f.passed]
    assert found.holds(), failed
    assert found.figures


def test_all_experiments_of_the_chapter_are_there():
    names = set(experiments())
    assert {experiment.name for experiment in (*detection.EXPERIMENTS, *EXPERIMENTS)} <= names
    assert len(detection.EXPERIMENTS) + len(EXPERIMENTS) == 13


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_run_can_be_planned_and_every_network_is_gated_only_where_it_runs(experiment):
    for scale in SCALES:
        plans = experiment.plans(scale)
        assert plans
        gated = [c.name for c in experiment.criteria if scale in c.scales]
        if not any(len(plan.scenario.broker) == 46 for plan in plans.values()):
            assert not any(name.startswith("46") for name in gated)


def test_experiments_share_their_runs():
    scenarios = [plan.scenario for experiment in EXPERIMENTS for plan in experiment.plans("paper").values()]
    different = {repr(scenario) for scenario in scenarios}
    assert len(different) == 31
    assert len(scenarios) > 1.5 * len(different)


def test_the_tables_of_receivers_say_what_everybody_wants():
    tables = ((NETWORKS[12].wanted, 54), (NETWORKS[46].wanted, 220), (setting.RARE_12, 54))
    for table, subscribers in tables:
        assert sum(table.values()) == subscribers
        above = sum(many for classes, many in table.items() if classes / CLASSES >= 0.08)
        assert above <= 0.2 * subscribers
        assert max(table) / CLASSES < 0.1


def test_a_message_has_as_many_receivers_as_section_4_5_says_or_as_many_as_are_possible():
    """With 54 subscribers of which four fifths are below 0.08 and none above 0.1 there are 4.54 at most."""
    means = {size: sum(n * k for n, k in NETWORKS[size].wanted.items()) / CLASSES for size in (12, 46)}
    assert means == {12: 4.2, 46: 5.0}


# Detection.


def test_the_formulas_give_the_values_of_the_experiments_page():
    single = detection.detection_single
    assert [round(single(0.001, 0.01, size), 4) for size in (10, 100)] == [0.0099, 0.0943]
    assert [round(single(0.05, 0.01, size), 4) for size in (5, 10, 20)] == [0.2242, 0.3981, 0.6377]
    shared = detection.detection_shared
    assert [round(shared(0.01, 0.01, 10, others), 3) for others in (1, 2, 4)] == [0.117, 0.139, 0.181]
    assert [round(shared(0.05, 0.01, 10, others), 3) for others in (1, 2, 4)] == [0.469, 0.531, 0.634]
    assert shared(0.05, 0.01, 10, 0) == pytest.approx(single(0.05, 0.01, 10))


@pytest.mark.parametrize(("others", "exact"), [(0, 0.3981), (4, 0.6336)])
def test_the_real_detector_notices_what_the_formula_says(others, exact):
    """002 section 4.3, equation (4.1) and erratum R2; three standard errors."""
    found = detection.detected_share(0.05, 10, others, 3_000, Random(7))
    assert found == pytest.approx(exact, abs=3 * (exact * (1 - exact) / 3_000) ** 0.5)


# Measures.


def a_view(**columns):
    scenario = SimpleNamespace(
        duration=10.0, drain=2.0, client=[SimpleNamespace(name=name, subscribe=(1,)) for name in ("s", "t")]
    )
    return SimpleNamespace(scenario=scenario, **columns)


def test_a_request_hits_if_anybody_has_the_message():
    answers = {
        "requested_at": np.array([1.0, 5.0, 5.5, 8.0, 11.0]),
        "hits": np.array([0, 2, 0, 1, 0]),
    }
    ratio, shares = traffic.hit_ratios(a_view(answers=answers), "hits", settled=4, width=2)
    assert ratio == pytest.approx(2 / 3), "the first comes too early, the last after the end"
    assert shares.tolist() == [0.5, 1.0]


def test_a_cache_that_says_nothing_has_its_smallest_size():
    sizes = {
        "publisher": np.array(["p", "p", "p"]),
        "second": np.array([4, 4, 5]),
        "entries": np.array([20, 10, 30]),
    }
    rates = {"p": np.array([20.0] * 4 + [400.0] + [20.0] * 5)}
    view = a_view(cache_sizes=sizes, published_by_publisher=rates)
    least, mean, most = traffic.size_curves(view)
    assert (least[4], mean[4], most[4]) == (10.0, 15.0, 20.0), "both caches speak"
    assert (least[5], mean[5], most[5]) == (5.0, 17.5, 30.0)
    assert (least[6], mean[6], most[6]) == (5.0, 5.0, 5.0)
    assert traffic._grown(view) == 1.0
    assert traffic._grown(view, np.full(10, 300.0)) == 0.0, "the largest of all was as large before"
    assert traffic._at_minimum(view) == pytest.approx(1 - 3 / (2 * 7))


def test_a_fixed_cache_of_the_same_size_lies_between_those_that_were_run():
    assert traffic.hits_at(10.0, (5, 20), (0.2, 0.6)) == pytest.approx(0.4)
    assert math.isnan(traffic.hits_at(30.0, (5, 20), (0.2, 0.6)))


def test_what_never_comes_back_counts_until_the_end_of_the_run():
    view = a_view(
        recoveries={"client": np.array(["s", "t"]), "delay": np.array([0.5, 0.7])},
        losses={
            "client": np.array(["s", "t", "t"]),
            "recovered": np.array([True, True, False]),
            "published_at": np.array([1.0, 1.0, 3.0]),
        },
    )
    assert beyond.recovery_times(view).tolist() == [0.5, 0.7, 9.0]
    assert beyond.recovery_times(view, ["s"]).tolist() == [0.5]

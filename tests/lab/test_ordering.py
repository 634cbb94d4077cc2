"""The ordering experiments from end to end: two at smoke scale, the others on a few seconds of the eight brokers.

`make lab-smoke` runs all of them at smoke scale.
"""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace as changed

from penstock.errors import NotPossibleHere
from penstock.lab.engine.experiment import Views
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.engine.simulated_runs import simulate_run
from penstock.lab.engine.trace_ordering import NONE, ORACLE
from penstock.lab.engine.variants import variants
from penstock.lab.engine.view import View
from penstock.lab.papers.ordering import EXPERIMENTS, beyond, multipath
from penstock.lab.papers.ordering.instances import EIGHT, appendix, exact, of_slow_publishers
from penstock.lab.setups import FAST_RATE, eight_brokers, forty_six_brokers

AT_SMOKE = ("fifo-adaptivity-trace", "fifo-multipath")
ON_A_NETWORK = [one for one in EXPERIMENTS if one.name not in AT_SMOKE]


@pytest.fixture(scope="module")
def results(spark, tmp_path_factory):
    return run_experiments(
        [find(name) for name in AT_SMOKE],
        scale="smoke",
        seeds=[1],
        runs_root=tmp_path_factory.mktemp("ordering"),
        spark=lambda: spark,
        processes=1,
        progress=lambda what, share: None,
    )


@pytest.mark.parametrize("number", range(len(AT_SMOKE)), ids=AT_SMOKE)
def test_the_criteria_hold_at_smoke_scale(results, number):
    failed = [f"{f.criterion.name}: {f.value}" for f in results[number].findings if f.gated and not f.passed]
    assert not failed


def test_the_trace_has_five_frames(results):
    assert len(results[0].figures) == 5


@pytest.fixture(scope="module")
def views(spark, tmp_path_factory):
    """Two seconds of the eight brokers, with both fast publishers from the beginning; the same with twins."""
    scenario = eight_brokers("smoke")
    clients = tuple(
        changed(client, publish=tuple(changed(flow, start=min(flow.start, 0.5)) for flow in client.publish))
        for client in scenario.client
    )
    short = changed(scenario, name="eight-brokers-short", duration=2.0, drain=1.0, client=clients)
    folder = tmp_path_factory.mktemp("short")
    shorter = beyond.with_twins(changed(short, duration=1.0))
    bare, twins = (View(spark, simulate_run(one, 1, folder).folder, one) for one in (short, shorter))
    return Views({"best effort": bare, "rarely slow": bare, "product": twins}, seed=1, scale="smoke")


@pytest.mark.parametrize("experiment", ON_A_NETWORK, ids=lambda one: one.name)
def test_every_criterion_is_measured_and_there_is_a_figure(views, experiment):
    measured = experiment.measure(views)
    assert {criterion.name for criterion in experiment.criteria} <= set(measured)
    # In two seconds most pairs are too short for a latch, so that a median may be none.
    assert not [name for name, value in measured.items() if math.isnan(value) and "median" not in name]
    assert experiment.draw(views)


def test_more_caution_leaves_fewer_violations_and_waits_longer(views):
    traces = views["best effort"].ordered_traces(EIGHT)
    left = [traces.total(exact(probability, 0), "violations") for probability in (0.2, 0.05, 0.01, 0.001)]
    assert traces.total(NONE, "violations") > left[0] > left[1] > left[2] > left[3]
    assigned = [traces.total(exact(probability, 0), "assigned") for probability in (0.2, 0.05, 0.01, 0.001)]
    assert assigned == sorted(assigned)


def test_a_record_saves_waiting_and_hardly_any_order(views):
    traces = views["best effort"].ordered_traces(EIGHT)
    extra = [traces.extra_delay(appendix(0.05, entries)).mean() for entries in (0, 5, 25)]
    assert extra[0] > extra[1] > extra[2]
    assert min(traces.removed(appendix(0.05, entries)) for entries in (0, 5, 25)) > 0.95
    assert traces.total(ORACLE, "held") > 0.0


def test_the_machine_and_the_replay_count_the_same(views):
    traces = views["best effort"].ordered_traces(EIGHT)
    assert traces.table["late"].to_pylist() == traces.table["violations"].to_pylist()
    assert sum(traces.table["refused"].to_pylist()) == 0


def test_slow_publishers_are_those_that_are_not_fast(views):
    view = views["best effort"]
    traces = view.ordered_traces(EIGHT)
    slow = of_slow_publishers(view, traces)
    names = {name for name, is_slow in zip(traces.of(NONE)["publisher"].to_pylist(), slow, strict=True) if is_slow}
    rates = {client.name: client.publish[0].rate_messages_per_s for client in view.scenario.client if client.publish}
    assert names == {name for name, rate in rates.items() if rate < FAST_RATE}


def test_what_order_leaves_and_what_it_costs_is_counted_on_the_same_arrivals(views):
    found = beyond.waits(views["product"])
    assert 0 <= found.left < found.violations
    assert found.oracle > 0.0, "who leaves violations may hold less"
    assert found.unnecessary >= found.held - found.oracle - 1e-9, "pair by pair nobody gets time back"


def test_brokers_whose_jobs_are_rarely_slow_differ_in_nothing_else():
    plain, slow = (forty_six_brokers("smoke", rarely_slow=rarely) for rarely in (False, True))
    assert {(broker.slow_share, broker.slow_mean) for broker in slow.broker} == {(0.01, 0.015)}
    brokers = tuple(changed(broker, slow_share=0.0, slow_mean=0.0) for broker in slow.broker)
    assert changed(slow, name=plain.name, broker=brokers) == plain


def test_a_seed_decides_all_that_an_experiment_without_runs_draws():
    measured = [multipath.EXPERIMENT.measure(Views(seed=seed, scale="smoke")) for seed in (1, 1, 2)]
    assert measured[0] == measured[1] != measured[2]


def test_an_experiment_without_runs_has_no_variants():
    with pytest.raises(NotPossibleHere, match="nothing to vary"):
        variants("fifo-multipath")

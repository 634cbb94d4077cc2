"""Replays against their definitions, by brute force on small cases, and a whole run on Spark against a plain loop."""

from __future__ import annotations

from math import inf
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from penstock.content import bloom
from penstock.content.language.parser import parse_predicate
from penstock.kernel.trace import Delivered, Published
from penstock.lab.engine.simulated_runs import simulate_run
from penstock.lab.engine.trace_ordering import (
    NONE,
    ORACLE,
    Instance,
    make_pair,
    order_trace,
    outcomes,
    relevance,
    shape_of,
    words_of,
)
from penstock.lab.engine.trace_ordering_runs import OrderedTraces, read_pairs
from penstock.lab.engine.view import View
from penstock.lab.setups import chain
from penstock.scenario.spec import SubscriptionSpec
from penstock.sim.run import simulate
from penstock.transport.config import papers_config
from penstock.transport.ordering.latch import make_latch
from penstock.transport.ordering.reorder_buffer import ReorderBuffer
from penstock.transport.wire.header import Header

RECORDED = papers_config(record_entries=8, record_bits=128)
BASIC = papers_config(record_entries=0)


@st.composite
def arrivals(draw):
    """Departures, the numbers of those that arrive, and when."""
    count = draw(st.integers(2, 25))
    steps = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    departures = np.cumsum(steps) * 0.5
    got = sorted(draw(st.sets(st.integers(1, count), min_size=1)))
    delays = draw(st.lists(st.integers(0, 40), min_size=len(got), max_size=len(got)))
    return departures.tolist(), np.array(got), departures[np.array(got) - 1] + np.array(delays) * 0.17


def pair_of(case, relevant=None):
    departures, got, at = case
    return make_pair(departures, got, at, relevant or {})


def static(latch):
    return papers_config(latch="static", static_latch=latch, record_entries=0)


@given(arrivals())
def test_late_and_oracle_are_what_their_definitions_say(case):
    pair = pair_of(case)
    rows = list(zip(pair.sequences.tolist(), pair.arrivals.tolist(), strict=True))
    for place, (number, at) in enumerate(rows):
        assert pair.late[place] == any(other > number for other, _ in rows[:place])
        last_before = max((when for other, when in rows if other < number), default=at)
        assert pair.oracle[place] == max(0.0, last_before - at)


@given(arrivals(), st.sampled_from([0.0, 0.3, 1.0, 2.5, 5.0]))
def test_what_a_static_latch_leaves_needs_no_machine(case, latch):
    pair = pair_of(case)
    outcome = order_trace(pair, static(latch))
    assert outcome.violations == outcome.late == (pair.late_by > latch).sum()
    assert outcome.gaps == pair.gaps.sum()
    assert outcome.refused == 0


@given(arrivals())
def test_whatever_was_sent_before_the_first_message_is_late_for_any_latch(case):
    pair = pair_of(case)
    assert (pair.late_by == inf).sum() == (pair.sequences < pair.sequences[0]).sum()


@given(arrivals(), st.integers(0, 2**32))
def test_a_replayed_header_means_what_a_real_one_means(case, seed):
    """The same machine is fed with headers that hold real encodings, and asked about them as a client would be."""
    random = Random(seed)
    departures = case[0]
    scheme = RECORDED.encoding
    subscription = parse_predicate("topic = 'a' OR topic = 'b'")
    wanted = scheme.routing_encodings(subscription)
    encodings = [scheme.encode_message({"topic": random.choice("abcde")}) for _ in departures]
    rows = np.stack([words_of(one, RECORDED.record_bits) for one in encodings])
    subscriptions = np.stack([words_of(one, RECORDED.record_bits) for one in wanted])
    relevant = relevance(rows, subscriptions)
    assert list(relevant) == [any(bloom.matches(one, message) for one in wanted) for message in encodings]
    pair = pair_of(case, {shape_of(RECORDED): relevant})
    for config in (RECORDED, BASIC):
        headers = [real_header(number, departures, encodings, config) for number in pair.sequences.tolist()]
        expected = by_hand(pair, headers, config, lambda entry: any(bloom.matches(one, entry) for one in wanted))
        outcome = order_trace(pair, config)
        assert (outcome.violations, outcome.held, outcome.assigned, outcome.losses) == expected


def real_header(number, departures, encodings, config):
    size = min(config.record_entries, number - 1)
    ages = [departures[number - 1] - departures[number - 2 - back] for back in range(min(number - 1, max(1, size)))]
    entries = tuple(encodings[number - 2 - back] for back in range(size))
    return Header(number, departures[number - 1], tuple(ages), entry_bits=config.record_bits, entries=entries)


def by_hand(pair, headers, config, relevant):
    ordering = ReorderBuffer(config, make_latch(config, 2))
    handed = []
    for header, now in zip(headers, pair.arrivals.tolist(), strict=True):
        while (due := ordering.deadline()) is not None and due < now:
            handed += ordering.expired(now=due).released
        handed += ordering.arrived(header, relevant, None, hold=True, now=now).released
    while (due := ordering.deadline()) is not None:
        handed += ordering.expired(now=due).released
    order = [one.sequence for one in handed]
    violations = sum(number < max(order[:place], default=0) for place, number in enumerate(order))
    return violations, ordering.held_seconds, ordering.assigned_seconds, ordering.losses


@given(arrivals())
def test_an_instance_is_never_unnecessarily_slow_where_the_oracle_waits_as_long(case):
    pair = pair_of(case)
    patient = order_trace(pair, static(5.0))
    assert patient.unnecessary >= 0.0
    assert patient.held - patient.unnecessary <= float(pair.oracle.sum()) + 1e-9
    assert order_trace(pair, static(0.0)).unnecessary == 0.0


def test_a_message_that_came_twice_is_one_message_and_ties_are_in_order():
    pair = make_pair([0.0, 1.0, 2.0], np.array([3, 2, 2, 1]), np.array([5.0, 5.0, 6.0, 4.0]), {})
    assert pair.sequences.tolist() == [1, 2, 3]
    assert pair.arrivals.tolist() == [4.0, 5.0, 5.0]


def test_instances_asked_for_violations_alone_skip_pairs_in_order():
    pair = make_pair([0.0, 1.0], np.array([1, 2]), np.array([1.0, 2.0]), {})
    asked = [Instance(name=str(only), config=BASIC, violations_only=only) for only in (True, False)]
    assert [name for name, _ in outcomes(pair, asked)] == [NONE, ORACLE, "False"]


# A run on Spark.


class Kept:
    def __init__(self):
        self.records = []

    def write(self, time, node, record):
        if type(record) in (Published, Delivered):
            self.records.append((time, node, record))


INSTANCES = (
    Instance(name="recorded", config=RECORDED),
    Instance(name="basic", config=BASIC),
    Instance(name="static", config=static(0.002)),
)


@pytest.fixture(scope="module")
def scenario():
    """A fast publisher and two subscribers, one of which wants a fifth of its messages."""
    made = chain(3, messages=1_500, rate=1_500.0)
    publisher, subscriber = made.client
    thin = changed(subscriber, name="thin", subscribe=(SubscriptionSpec(where="value = 3 OR value = 7"),))
    return changed(made, name="traces", client=(publisher, subscriber, thin))


@pytest.fixture(scope="module")
def view(spark, scenario, tmp_path_factory):
    run = simulate_run(scenario, 1, tmp_path_factory.mktemp("replay"))
    return View(spark, run.folder, scenario)


def test_a_run_on_spark_gives_what_a_plain_loop_gives(view, scenario):
    traces = view.ordered_traces(INSTANCES)
    trace = Kept()
    simulate(scenario, 1, trace=trace)
    subscriptions = {client.name: parse_predicate(client.subscribe[0].where) for client in scenario.client[1:]}
    sent = [(time, record) for time, _, record in trace.records if type(record) is Published]
    for client, subscription in subscriptions.items():
        got = [(r.count, time) for time, node, r in trace.records if type(r) is Delivered and node == client]
        pair = make_pair(
            [time for time, _ in sent],
            np.array([count for count, _ in got]),
            np.array([time for _, time in got]),
            {shape_of(RECORDED): relevant_bytes(subscription, [record.attributes for _, record in sent])},
        )
        expected = dict(outcomes(pair, INSTANCES))
        for name, outcome in expected.items():
            (row,) = (row for row in traces.of(name).to_pylist() if row["client"] == client)
            assert {key: row[key] for key in outcome._fields} == outcome._asdict()
        assert expected[NONE].violations > 5


def relevant_bytes(subscription, attributes):
    scheme = RECORDED.encoding
    wanted = scheme.routing_encodings(subscription)
    encodings = [scheme.encode_message(msgspec.json.decode(text)) for text in attributes]
    return bytes(any(bloom.matches(one, message) for one in wanted) for message in encodings)


def test_the_shortest_static_latch_that_leaves_so_many_is_found(view):
    traces = view.ordered_traces(INSTANCES)
    assert traces.left_by_static(0.002) == traces.total("static", "violations")
    left = traces.total("basic", "violations")
    latch = traces.static_latch_leaving(left)
    assert traces.left_by_static(latch) <= left < traces.left_by_static(latch * (1 - 1e-9))
    assert traces.static_latch_leaving(traces.total(NONE, "violations")) == 0.0


def test_extra_delay_is_the_mean_latch_of_a_pair(view):
    traces = view.ordered_traces(INSTANCES)
    by_machine = traces.extra_delay("static")
    by_gaps = traces.static_extra_delay(0.002)
    rest = 0.002 * traces.column(NONE, "late") / traces.column(NONE, "messages")
    assert np.all(by_gaps <= by_machine)  # a late message that finds its place gets what is left of the latch
    assert np.all(by_machine <= by_gaps + rest)


def test_pairs_can_be_read_without_a_job_of_their_own(view):
    pairs = read_pairs(view.tables, INSTANCES)
    assert sorted(pairs) == [("publisher", "subscriber"), ("publisher", "thin")]
    assert isinstance(view.ordered_traces(INSTANCES), OrderedTraces)
    assert view.ordered_traces(INSTANCES) is view.ordered_traces(INSTANCES)

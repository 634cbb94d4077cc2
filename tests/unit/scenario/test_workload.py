"""Workloads: when messages are published, and how their attributes are drawn."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.message import Identity, Value, make_message
from penstock.errors import InvalidScenario
from penstock.scenario.workload import (
    PublisherSpec,
    Recipe,
    attribute_source,
    publication_times,
    validate_publisher,
)


def times(end: float = 10.0, seed: int = 1, **spec: object) -> list[float]:
    publisher = PublisherSpec(**{"rate_messages_per_s": 10.0, **spec})  # type: ignore[arg-type]
    return list(publication_times(publisher, end, Random(seed)))


def draws(recipe: Value | Recipe, count: int = 2000, seed: int = 1) -> list[Value | None]:
    draw = attribute_source(PublisherSpec(rate_messages_per_s=1.0, attributes={"a": recipe}), Random(seed))
    return [draw().get("a") for _ in range(count)]


def test_constant_intervals_are_constant_and_begin_at_a_random_phase() -> None:
    found = times()
    assert len(found) == 100
    assert all(b - a == pytest.approx(0.1) for a, b in pairwise(found))
    assert found[0] != times(seed=2)[0]


def test_poisson_arrivals_have_the_rate_and_irregular_gaps() -> None:
    found = times(end=1000.0, arrivals="poisson")
    gaps = [b - a for a, b in pairwise(found)]
    assert len(found) == pytest.approx(10_000, rel=0.03)
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(mean**2, rel=0.1)


def test_start_and_stop_bound_the_flow() -> None:
    found = times(start=2.0, stop=4.0)
    assert len(found) == 20
    assert found[0] >= 2.0
    assert found[-1] < 4.0


def test_the_end_of_the_run_bounds_the_flow() -> None:
    assert max(times(end=3.0, stop=50.0)) < 3.0
    assert times(end=3.0, start=3.0) == []
    assert times(end=3.0, start=9.0) == []


def test_a_rate_that_climbs_does_so_steadily() -> None:
    found = times(end=10.0, rate_messages_per_s=10.0, rate_end_messages_per_s=30.0)
    per_second = Counter(int(time) for time in found)
    assert len(found) == pytest.approx(200, abs=1)
    assert [per_second[second] for second in (0, 4, 9)] == pytest.approx([11, 19, 29], abs=1)


def test_a_rate_that_falls_comes_to_an_end() -> None:
    found = times(end=10.0, rate_messages_per_s=30.0, rate_end_messages_per_s=1e-9)
    assert len(found) == pytest.approx(150, abs=1)


@given(
    st.floats(0.1, 50.0),
    st.one_of(st.none(), st.floats(0.1, 50.0)),
    st.sampled_from(["constant", "poisson"]),
    st.floats(0.0, 12.0),
    st.one_of(st.none(), st.floats(0.0, 12.0)),
    st.one_of(st.none(), st.floats(0.1, 200.0)),
)
def test_times_increase_and_stay_between_start_and_stop(
    rate: float, end_rate: float | None, arrivals: str, start: float, length: float | None, spike: float | None
) -> None:
    stop = None if length is None else start + length
    found = times(
        rate_messages_per_s=rate,
        rate_end_messages_per_s=end_rate,
        arrivals=arrivals,
        start=start,
        stop=stop,
        spike_rate_messages_per_s=spike,
        spike_every=0.5,
        spike_lasts=(0.001, 0.5),
    )
    assert found == sorted(found)
    assert all(start <= time < min(10.0, stop if stop is not None else 10.0) for time in found)


# Spikes.

SPIKES: dict[str, Any] = {"rate_messages_per_s": 20.0, "spike_rate_messages_per_s": 500.0}


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
def test_spikes_have_the_mean_rate_of_the_formula(arrivals: str) -> None:
    found = times(end=20_000.0, arrivals=arrivals, rate_messages_per_s=1.0, spike_rate_messages_per_s=25.0)
    assert len(found) / 20_000.0 == pytest.approx((10.0 * 1.0 + 1.75 * 25.0) / 11.75, rel=0.05)


def test_spikes_stand_out_and_last_as_long_as_they_should() -> None:
    found = times(end=600.0, **SPIKES)
    gaps = [b - a for a, b in pairwise(found)]
    slow = [gap for gap in gaps if gap > 0.026]
    assert {round(gap, 6) for gap in gaps if gap < 0.0021} == {0.002}
    assert sum(round(gap, 6) == 0.05 for gap in slow) > 0.98 * len(slow)  # the others reach over the edge of a spike
    lengths = [length for length in _runs_of(gaps, 0.0021) if length > 0.1]
    assert len(lengths) == pytest.approx(600.0 / 11.75, rel=0.3)
    assert all(0.5 - 0.01 <= length <= 3.0 + 0.01 for length in lengths)
    assert sum(lengths) / len(lengths) == pytest.approx(1.75, rel=0.15)


def _runs_of(gaps: list[float], below: float) -> list[float]:
    """How long each run of short gaps is."""
    runs = [0.0]
    for gap in gaps:
        if gap < below:
            runs[-1] += gap
        elif runs[-1]:
            runs.append(0.0)
    return runs


def test_time_from_spike_to_spike_is_exponential() -> None:
    found = times(end=40_000.0, rate_messages_per_s=1e-6, spike_rate_messages_per_s=20.0, spike_lasts=(1.0, 1.0))
    pauses = sorted(b - a for a, b in pairwise(found) if b - a > 0.06)
    assert sum(pauses) / len(pauses) == pytest.approx(10.0, rel=0.05)
    assert pauses[len(pauses) // 2] == pytest.approx(10.0 * 0.6931, rel=0.08)


def test_the_same_seed_has_the_same_spikes_whatever_else_is_drawn() -> None:
    assert times(end=100.0, **SPIKES) == times(end=100.0, **SPIKES)
    assert times(end=100.0, **SPIKES) != times(end=100.0, seed=2, **SPIKES)
    disturbed = Random(1)
    flow = publication_times(PublisherSpec(**SPIKES), 100.0, disturbed)
    assert [time for time in flow if disturbed.random() >= 0.0] == times(end=100.0, **SPIKES)


def test_a_shorter_run_with_spikes_is_the_beginning_of_a_longer_one() -> None:
    long = times(end=100.0, arrivals="poisson", **SPIKES)
    assert times(end=40.0, arrivals="poisson", **SPIKES) == [time for time in long if time < 40.0]


def test_between_spikes_the_rate_climbs_on() -> None:
    found = times(end=1000.0, rate_messages_per_s=1.0, rate_end_messages_per_s=99.0, spike_rate_messages_per_s=500.0)
    quiet = [(a, b - a) for a, b in pairwise(found) if b - a > 0.0021]
    for around, rate in ((250.0, 25.5), (500.0, 50.0), (750.0, 74.5)):
        gaps = sorted(gap for time, gap in quiet if abs(time - around) < 20.0)
        assert gaps[len(gaps) // 2] == pytest.approx(1.0 / rate, rel=0.1)


def test_without_spikes_the_times_are_what_they_were_before_there_were_any() -> None:
    climbing: dict[str, Any] = {
        "end": 1.5,
        "rate_messages_per_s": 2.0,
        "rate_end_messages_per_s": 8.0,
        "start": 0.5,
        "stop": 2.0,
    }
    assert times(**climbing) == [
        0.5631892417795289,
        0.9039812620050267,
        1.147685550164417,
        1.3480289767123703,
    ]
    assert times(arrivals="poisson", **climbing) == [
        0.5675786571522529,
        1.1234872784171022,
        1.4084417373247637,
        1.4597739502695375,
    ]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"spike_rate_messages_per_s": 0.0}, "here.spike_rate_messages_per_s"),
        ({"spike_rate_messages_per_s": float("inf")}, "here.spike_rate_messages_per_s"),
        ({"spike_every": 0.0}, "here.spike_every"),
        ({"spike_every": float("nan")}, "here.spike_every"),
        ({"spike_lasts": (0.0, 1.0)}, "here.spike_lasts"),
        ({"spike_lasts": (1.0, float("inf"))}, "here.spike_lasts"),
        ({"spike_lasts": (3.0, 0.5)}, "here.spike_lasts"),
    ],
)
def test_spikes_that_make_no_sense_are_refused(spec: dict[str, object], where: str) -> None:
    publisher = PublisherSpec(**{"rate_messages_per_s": 10.0, **spec})  # type: ignore[arg-type]
    with pytest.raises(InvalidScenario) as caught:
        validate_publisher("here", publisher)
    assert caught.value.where == where


def test_a_plain_value_is_always_the_same() -> None:
    assert set(draws("IBM", 10)) == {"IBM"}


def test_choose_is_uniform_by_default() -> None:
    counts = Counter(draws(Recipe(choose=("a", "b", "c", "d")), 8000))
    assert all(count == pytest.approx(2000, rel=0.1) for count in counts.values())


def test_choose_with_zipf_prefers_the_first() -> None:
    counts = Counter(draws(Recipe(choose=("a", "b", "c"), zipf=1.0), 11_000))
    assert [counts[value] for value in "abc"] == pytest.approx([6000, 3000, 2000], rel=0.1)


def test_uniform_and_integer_stay_within_their_ends() -> None:
    floats = draws(Recipe(uniform=(-1.0, 2.0)))
    assert all(isinstance(value, float) and -1.0 <= value <= 2.0 for value in floats)
    assert set(draws(Recipe(integer=(3, 5)))) == {3, 4, 5}


def test_chance_is_a_boolean_with_that_probability() -> None:
    found = draws(Recipe(chance=0.2), 5000)
    assert {type(value) for value in found} == {bool}
    assert found.count(True) == pytest.approx(1000, rel=0.1)


def test_missing_leaves_the_attribute_out() -> None:
    found = draws(Recipe(choose=("x",), missing=0.9), 5000)
    assert found.count(None) == pytest.approx(4500, rel=0.05)
    assert set(draws(Recipe(choose=("x",), missing=1.0), 50)) == {None}


def test_the_same_seed_draws_the_same() -> None:
    recipe = Recipe(choose=tuple(range(100)), zipf=0.5, missing=0.1)
    assert draws(recipe, 100, seed=5) == draws(recipe, 100, seed=5)
    assert draws(recipe, 100, seed=5) != draws(recipe, 100, seed=6)


values = st.one_of(st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=3))
recipes = st.builds(
    Recipe,
    choose=st.one_of(st.none(), st.lists(values, max_size=3).map(tuple)),
    uniform=st.one_of(st.none(), st.tuples(st.floats(), st.floats())),
    integer=st.one_of(st.none(), st.tuples(st.integers(), st.integers())),
    chance=st.one_of(st.none(), st.floats()),
    zipf=st.one_of(st.just(0.0), st.floats()),
    missing=st.one_of(st.just(0.0), st.floats()),
)


@given(st.dictionaries(st.text(max_size=3), st.one_of(values, recipes), max_size=3))
def test_a_recipe_that_is_accepted_makes_messages(attributes: dict[str, Value | Recipe]) -> None:
    publisher = PublisherSpec(rate_messages_per_s=1.0, attributes=attributes)
    try:
        validate_publisher("here", publisher)
    except InvalidScenario:
        return
    draw = attribute_source(publisher, Random(1))
    for count in range(5):
        make_message(Identity("p", 1, count), draw())

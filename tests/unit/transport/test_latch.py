"""Latches and the ring of delay differences they look at."""

from __future__ import annotations

from math import fsum, log
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import delay_laws as laws
from penstock.transport.config import LatchName, papers_config
from penstock.transport.ordering.delay_differences import DelayDifferences
from penstock.transport.ordering.latch import Latch, make_latch, two_ways

NAMES: tuple[LatchName, ...] = get_args(LatchName)
ADAPTIVE = [name for name in NAMES if name != "static"]


def a_latch(name: LatchName, *, hops: int = 2, differences: list[float] | None = None, **settings: object) -> Latch:
    latch = make_latch(papers_config(latch=name, **settings), hops)  # type: ignore[arg-type]
    for difference in differences or []:
        latch.observe(difference)
    return latch


def stage_differences(count: int, stages: int, seed: int, gap: float = 0.0) -> list[float]:
    rng = np.random.default_rng(seed)
    delays = rng.exponential(1.0, (count + 1, stages)).sum(axis=1) + gap * (rng.random(count + 1) < 0.5)
    return [float(x) for x in np.diff(delays)]


# --- The ring


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(1, 30))
def test_the_ring_is_the_last_few(samples: list[float], size: int) -> None:
    ring = DelayDifferences(size)
    for sample in samples:
        ring.add(sample)
    last = samples[-size:]
    assert len(ring) == len(last)
    assert ring.sizes() == sorted(map(abs, last))
    mean = fsum(map(abs, last)) / len(last) if last else 0.0
    largest = max(map(abs, samples), default=0.0)
    assert ring.mean_absolute == pytest.approx(mean, rel=1e-9, abs=1e-12 * largest)
    assert ring.scale == pytest.approx(2.0 / 3.0 * mean, rel=1e-9, abs=1e-12 * largest)
    assert ring.variance == pytest.approx(fsum(x * x for x in last) / len(last) if last else 0.0)
    assert ring.largest == max(map(abs, last), default=0.0)


def test_an_outlier_leaves_no_trace_after_a_turn() -> None:
    ring = DelayDifferences(25)
    for sample in [1e15] + [1e-3] * 60:
        ring.add(sample)
    assert ring.mean_absolute == pytest.approx(1e-3, rel=1e-12)


# --- All latches


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_configuration_makes_a_latch(name: LatchName) -> None:
    latch = a_latch(name, differences=stage_differences(25, 2, 1))
    assert latch.wait(0.0) > 0.0
    assert 0.0 < latch.chance(1.0) < 0.5


@pytest.mark.parametrize("name", ADAPTIVE)
def test_no_wait_while_nothing_was_seen_or_delays_are_constant(name: LatchName) -> None:
    assert a_latch(name).wait(0.0) == 0.0
    assert a_latch(name, differences=[0.0] * 30).wait(0.0) == 0.0


@pytest.mark.parametrize("name", NAMES)
@given(
    differences=st.lists(st.floats(-100, 100), max_size=40),
    interval=st.floats(0, 1e9),
    hops=st.integers(1, 255),
    probability=st.floats(1e-9, 0.5),
)
def test_a_wait_is_never_negative_nor_above_its_bound(
    name: LatchName, differences: list[float], interval: float, hops: int, probability: float
) -> None:
    latch = a_latch(name, hops=hops, differences=differences, violation_probability=probability, latch_max=2.0)
    for one in (0.0, interval):
        assert 0.0 <= latch.wait(one) <= 2.0
        assert 0.0 <= latch.chance(one) <= 0.5 + 1e-9


@pytest.mark.parametrize("name", ADAPTIVE)
def test_a_longer_interval_waits_less_and_a_smaller_probability_longer(name: LatchName) -> None:
    differences = stage_differences(25, 3, 5)
    waits = [a_latch(name, hops=3, differences=differences).wait(x) for x in (0.0, 0.5, 1.0, 4.0)]
    assert waits == sorted(waits, reverse=True)
    waits = [
        a_latch(name, hops=3, differences=differences, latch_max=1e9, violation_probability=p).wait(0.1)
        for p in (0.4, 0.2, 0.05, 0.01, 0.001)
    ]
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]


@pytest.mark.parametrize("name", ADAPTIVE)
def test_waits_grow_with_the_scale(name: LatchName) -> None:
    differences = stage_differences(25, 3, 5)
    one = a_latch(name, hops=3, differences=differences, latch_max=1e9).wait(1.0)
    ten = a_latch(name, hops=3, differences=[10 * x for x in differences], latch_max=1e9).wait(10.0)
    assert ten == pytest.approx(10 * one, rel=1e-9)


@pytest.mark.parametrize("name", ["two-laplace", "stages", "chebyshev", "bernstein", "hoeffding", "normal"])
def test_no_wait_for_a_message_older_than_the_reach(name: LatchName) -> None:
    latch = a_latch(name, differences=stage_differences(25, 2, 2), latch_max=1e9)
    reach = latch.wait(0.0)
    assert latch.wait(reach) == 0.0
    assert latch.wait(reach * 0.99) > 0.0


# --- Each by itself


def test_two_laplace_is_the_quantile_less_the_interval() -> None:
    differences = [1.5e-3, -1.5e-3, 3e-3]
    scale = 2.0 / 3.0 * 2e-3
    assert a_latch("two-laplace", differences=differences).wait(1e-3) == pytest.approx(3.27181 * scale - 1e-3, rel=1e-4)
    appendix = a_latch("two-laplace", differences=differences, quantile="appendix").wait(1e-3)
    assert appendix == pytest.approx(7.27181 * scale - 1e-3, rel=1e-4)


def test_conditional_leaves_the_chance_that_was_asked_for() -> None:
    differences = stage_differences(25, 2, 3)
    latch = a_latch("conditional", differences=differences, latch_max=1e9, violation_probability=0.05)
    scale = laws.two_laplace_scale(differences)
    for interval in (0.0, 1.0, 5.0):
        left = laws.two_laplace_tail(interval + latch.wait(interval), scale)
        assert left == pytest.approx(0.05 * laws.two_laplace_tail(interval, scale), rel=1e-9)
    assert latch.wait(1e6) == pytest.approx(scale * log(20.0), rel=1e-3)


def test_static_is_the_same_for_all() -> None:
    assert {a_latch("static", differences=d).wait(x) for d in ([], [5.0]) for x in (0.0, 10.0)} == {0.030}
    assert a_latch("static", static_latch=1e9, latch_max=3.0).wait(0.0) == 3.0


def test_stages_of_two_are_two_laplace() -> None:
    differences = stage_differences(25, 2, 4)
    for interval in (0.0, 1.0, 2.0):
        one, two = (a_latch(name, hops=2, differences=differences) for name in ("stages", "two-laplace"))
        assert one.wait(interval) == pytest.approx(two.wait(interval), rel=1e-9)
        assert one.chance(interval) == pytest.approx(two.chance(interval), rel=1e-9)


# --- Two ways


@pytest.mark.parametrize("gap", [20.0, 50.0])
def test_two_ways_are_found(gap: float) -> None:
    found = []
    for seed in range(100):
        ring = DelayDifferences(25)
        for difference in stage_differences(25, 2, seed, gap):
            ring.add(difference)
        found.append(two_ways(ring))
    assert sum(one[0] > 0.0 for one in found) >= 98
    assert np.median([one[0] for one in found]) == pytest.approx(gap, rel=0.05)
    assert np.median([one[1] for one in found]) == pytest.approx(1.0, rel=0.15)
    assert np.median([one[2] for one in found]) == pytest.approx(0.5, abs=0.1)


def test_a_single_way_is_seldom_taken_for_two_and_waits_little_longer_then() -> None:
    wrong = 0
    for seed in range(200):
        differences = stage_differences(25, 2, seed)
        ratio = a_latch("two-paths", differences=differences).wait(0.0) / a_latch(
            "two-laplace", differences=differences
        ).wait(0.0)
        wrong += ratio != pytest.approx(1.0)
        assert ratio < 2.0
    assert wrong <= 30


def test_with_two_ways_the_wait_covers_the_gap() -> None:
    differences = stage_differences(25, 2, 7, 50.0)
    latch = a_latch("two-paths", differences=differences, latch_max=1e9)
    assert 51.0 < latch.wait(0.0) < 60.0
    assert latch.chance(25.0) == pytest.approx(0.25, abs=0.1)
    assert latch.chance(100.0) < 1e-6


@pytest.mark.parametrize("name", ["static", "two-laplace", "stages", "conditional"])
def test_differences_too_small_to_divide_by_give_no_chance_and_no_nonsense(name: LatchName) -> None:
    latch = a_latch(name, hops=3, differences=[5e-324], violation_probability=0.05, latch_max=2.0)
    assert latch.chance(1.0) == 0.0

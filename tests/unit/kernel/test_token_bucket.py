"""The token bucket: what may leave in any window, when, and what strange clocks do to it."""

from __future__ import annotations

from itertools import accumulate
from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.token_bucket import Pacer, TokenBucket


def test_a_full_bucket_gives_its_depth_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10.0, depth=3.0, now=0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(0.05)
    assert bucket.take(0.1)
    assert not bucket.take(0.1)


def test_an_idle_bucket_saves_up_no_more_than_its_depth() -> None:
    bucket = TokenBucket(rate=10.0, depth=3.0, now=0.0)
    assert bucket.tokens(1000.0) == 3.0
    assert sum(bucket.take(1000.0) for _ in range(10)) == 3


def test_items_may_cost_different_amounts() -> None:
    bucket = TokenBucket(rate=1.0, depth=10.0, now=0.0)
    assert bucket.take(0.0, cost=7.5)
    assert not bucket.take(0.0, cost=3.0)
    assert bucket.take(0.0, cost=2.5)
    assert bucket.ready_at(cost=4.0) == 4.0


def test_a_refused_item_takes_nothing_and_to_look_takes_nothing() -> None:
    bucket = TokenBucket(rate=1.0, depth=2.0, now=0.0)
    assert not bucket.take(0.0, cost=3.0)
    assert bucket.has(0.0, cost=2.0)
    assert bucket.tokens(0.0) == 2.0


def test_what_can_leave_now_was_ready_before() -> None:
    bucket = TokenBucket(rate=1.0, depth=2.0, now=5.0)
    assert bucket.ready_at() == 5.0


def test_what_costs_more_than_the_depth_is_never_ready_nor_is_anything_at_rate_zero() -> None:
    assert TokenBucket(rate=1.0, depth=2.0, now=0.0).ready_at(cost=2.1) == inf
    empty = TokenBucket(rate=0.0, depth=1.0, now=0.0)
    assert empty.take(0.0)
    assert empty.ready_at() == inf
    assert not empty.take(1e12)


def test_a_new_rate_counts_from_now_on() -> None:
    bucket = TokenBucket(rate=10.0, depth=5.0, now=0.0)
    assert bucket.take(0.0, cost=5.0)
    bucket.set_rate(1.0, now=0.2)
    assert bucket.tokens(0.2) == pytest.approx(2.0)
    assert bucket.tokens(1.2) == pytest.approx(3.0)
    assert bucket.rate == 1.0


def test_a_smaller_depth_takes_away_what_no_longer_fits_and_a_larger_one_gives_nothing() -> None:
    bucket = TokenBucket(rate=1.0, depth=5.0, now=0.0)
    bucket.set_rate(1.0, now=0.0, depth=2.0)
    assert bucket.tokens(0.0) == 2.0
    bucket.set_rate(1.0, now=0.0, depth=9.0)
    assert bucket.tokens(0.0) == 2.0
    assert bucket.depth == 9.0


def test_a_clock_that_steps_back_neither_stops_the_bucket_nor_fills_it() -> None:
    bucket = TokenBucket(rate=1.0, depth=2.0, now=1000.0)
    assert bucket.take(1000.0, cost=2.0)
    assert not bucket.take(10.0)
    assert bucket.ready_at() == 11.0
    assert bucket.take(11.0)


@pytest.mark.parametrize(("rate", "depth"), [(-1.0, 1.0), (inf, 1.0), (1.0, -1.0), (1.0, float("nan"))])
def test_a_bucket_that_cannot_be_is_refused(rate: float, depth: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        TokenBucket(rate, depth, 0.0)


def test_a_refused_rate_changes_nothing() -> None:
    bucket = TokenBucket(rate=1.0, depth=2.0, now=0.0)
    with pytest.raises(ValueError, match="finite"):
        bucket.set_rate(inf, now=1.0)
    assert (bucket.rate, bucket.depth) == (1.0, 2.0)


costs = st.floats(0.1, 5.0)
rates = st.floats(0.1, 1000.0)
depths = st.floats(1.0, 50.0)


@given(rates, depths, st.lists(st.tuples(st.floats(0.0, 2.0), costs), min_size=1, max_size=60))
def test_in_any_window_at_most_depth_and_rate_times_window_leave(
    rate: float, depth: float, tries: list[tuple[float, float]]
) -> None:
    bucket = TokenBucket(rate, depth, 0.0)
    times = list(accumulate(wait for wait, _ in tries))
    left = [(at, cost) for at, (_, cost) in zip(times, tries, strict=True) if bucket.take(at, cost)]
    for first, (begin, _) in enumerate(left):
        gone = 0.0
        for end, cost in left[first:]:
            gone += cost
            assert gone <= depth + rate * (end - begin) + 1e-6


@given(st.floats(0.0, 2e9), rates, depths, st.lists(st.floats(0.1, 1.0), min_size=1, max_size=20))
def test_a_timer_set_to_ready_at_always_finds_the_tokens(
    start: float, rate: float, depth: float, parts: list[float]
) -> None:
    bucket, now = TokenBucket(rate, depth, start), start
    for part in parts:
        cost = depth * part
        ready = max(now, bucket.ready_at(cost))
        if ready > now:
            assert not bucket.has(nextafter(now, inf) if nextafter(now, inf) < ready else now, cost)
        now = ready
        assert bucket.take(now, cost)


@given(rates, depths, st.lists(st.tuples(st.floats(-5.0, 5.0), rates), min_size=1, max_size=40))
def test_whatever_the_clock_and_the_rate_do_the_tokens_stay_between_zero_and_the_depth(
    rate: float, depth: float, steps: list[tuple[float, float]]
) -> None:
    bucket, now = TokenBucket(rate, depth, 0.0), 0.0
    for step, new_rate in steps:
        now += step
        bucket.take(now)
        bucket.set_rate(new_rate, now)
        assert 0.0 <= bucket.tokens(now) <= depth


@given(rates, depths, st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=60))
def test_a_clock_that_jumps_gives_at_most_what_its_steps_forward_earn(
    rate: float, depth: float, steps: list[float]
) -> None:
    bucket, now, left = TokenBucket(rate, depth, 0.0), 0.0, 0
    for step in steps:
        now += step
        while bucket.take(now):
            left += 1
    assert left <= depth + rate * sum(step for step in steps if step > 0.0) + 1e-6


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 3000)), min_size=1, max_size=60))
def test_a_pacer_never_lets_out_more_than_its_rate_and_one_burst(steps: list[tuple[float, int]]) -> None:
    rate, now, sent = 100_000.0, 0.0, 0
    pacer = Pacer(rate, now)
    for elapsed, size in steps:
        now += elapsed
        if pacer.wait(now) == 0.0:
            pacer.spend(size, now)
            sent += size
    assert sent <= rate * now + 1500 + 3000


def test_a_pacer_says_exactly_how_long_to_wait() -> None:
    pacer = Pacer(1000.0, 0.0)
    pacer.spend(2500, 0.0)
    wait = pacer.wait(0.0)
    assert wait == pytest.approx(1.001)
    assert pacer.wait(wait) == 0.0
    assert pacer.room_bytes(wait) <= 1


def test_one_item_may_leave_before_its_tokens_are_there_and_the_next_ones_pay_for_it() -> None:
    bucket = TokenBucket(1.0, 2.0, 0.0)
    assert bucket.take(0.0, 2.0)
    assert bucket.overdraw(0.0)
    assert not bucket.overdraw(0.5), "something is owed already"
    assert not bucket.take(1.5)
    assert bucket.ready_at() == 2.0
    assert bucket.take(2.0)

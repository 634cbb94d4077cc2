"""Slow start delays, keeps the order, and withholds nothing."""

from __future__ import annotations

from penstock.rates.slow_start import STEP, WAITING_MAX, SlowStart


def run(rate: float, seconds: float) -> tuple[list[float], int]:
    """How long each of these messages waits, and how many left out of order."""
    start: SlowStart[tuple[int, float]] = SlowStart(100, 0.0)
    waits, disorder, expected = [], 0, 0
    left: list[tuple[int, float, float]] = []
    arrivals = [number / rate for number in range(round(rate * seconds))]
    now, number = 0.0, 0
    while number < len(arrivals) or len(start):
        ready = start.ready_at() if len(start) else float("inf")
        if number < len(arrivals) and arrivals[number] <= ready:
            now = arrivals[number]
            left += [(*item, now) for item in start.offer((number, now), 100, now)]
            number += 1
        else:
            now = max(now, ready)
            left += [(*item, now) for item in start.serve(now)]
    for one, arrived, at in left:
        disorder += one != expected
        expected = one + 1
        waits.append(at - arrived)
    assert len(left) == len(arrivals)
    return waits, disorder


def test_a_quiet_client_never_waits() -> None:
    waits, _ = run(15.0, 5.0)
    assert max(waits) == 0.0


def test_a_fast_client_doubles_its_rate_and_waits_no_more() -> None:
    waits, disorder = run(1_000.0, 5.0)
    assert disorder == 0
    assert 0.1 < max(waits) < 1.0
    assert max(waits[-1_000:]) == 0.0


def test_what_leaves_in_the_first_steps_is_little() -> None:
    start: SlowStart[int] = SlowStart(100, 0.0)
    left = sum(len(start.offer(number, 100, 0.0)) for number in range(1_000))
    assert left == 1
    left += len(start.serve(0.99 * STEP))
    assert left <= 4


def test_when_more_waits_than_may_the_first_goes_out_early() -> None:
    start: SlowStart[int] = SlowStart(100, 0.0)
    left = [item for number in range(2 * WAITING_MAX) for item in start.offer(number, 100, 0.0)]
    assert left == list(range(WAITING_MAX))
    assert len(start) == WAITING_MAX


def test_a_burst_of_a_fast_client_does_not_leave_before_a_link_can_say_that_it_is_too_much() -> None:
    """At 5,000 per second 2,000 wait after 0.4 s. If no more might, all would leave as it comes from then on."""
    start: SlowStart[int] = SlowStart(100, 0.0)
    left = [len(start.offer(number, 100, number / 5_000)) for number in range(3_000)]  # 0.6 s
    assert sum(left[2_000:2_500]) < 100
    assert sum(left) < 200


def test_a_timer_finds_its_step_over() -> None:
    start: SlowStart[int] = SlowStart(100, 9.435816775536004)
    for number in range(50):
        start.offer(number, 100, 9.435816775536004)
    before, now = start.rate, 9.435816775536004
    for _ in range(200):
        now = start.ready_at()
        start.serve(now)
    assert start.rate > before
    assert len(start) == 0

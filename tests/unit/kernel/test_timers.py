"""Timers: named deadlines, popped in order, moved and cancelled."""

from __future__ import annotations

from enum import IntEnum

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.timers import ServiceTimers, TimerName, Timers

A: TimerName = ("part", "a")
B: TimerName = ("part", "b")


class Beat(IntEnum):
    TICK = 0
    TOCK = 1


def test_without_timers_there_is_no_deadline() -> None:
    assert Timers().deadline() is None
    assert Timers().pop_due(1e9) is None


def test_a_timer_is_due_at_its_time_and_not_before() -> None:
    timers = Timers()
    timers.set(A, 2.0)
    assert timers.pop_due(1.999) is None
    assert timers.pop_due(2.0) == A
    assert timers.pop_due(9.0) is None


def test_setting_a_name_again_moves_it_both_ways() -> None:
    timers = Timers()
    timers.set(A, 2.0)
    timers.set(A, 5.0)
    assert timers.deadline() == 5.0
    timers.set(A, 1.0)
    assert timers.deadline() == 1.0
    assert len(timers) == 1


def test_equal_deadlines_expire_in_the_order_they_were_set() -> None:
    timers = Timers()
    timers.set(B, 1.0)
    timers.set(A, 1.0)
    assert [timers.pop_due(1.0), timers.pop_due(1.0)] == [B, A]


def test_a_cancelled_timer_never_expires_and_cancelling_nothing_is_no_mistake() -> None:
    timers = Timers()
    timers.set(A, 1.0)
    timers.cancel(A)
    timers.cancel(B)
    assert timers.deadline() is None
    assert timers.pop_due(2.0) is None


def test_moving_a_timer_a_million_times_does_not_fill_the_memory() -> None:
    timers = Timers()
    for step in range(10_000):
        timers.set(A, float(step))
    assert len(timers._heap) <= 2 * len(timers) + 65


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 20))), max_size=60))
def test_timers_behave_like_a_sorted_table(steps: list[tuple[int, int | None]]) -> None:
    timers, table = Timers(), dict[int, tuple[int, int]]()
    for count, (name, at) in enumerate(steps):
        if at is None:
            timers.cancel((name,))
            table.pop(name, None)
        else:
            timers.set((name,), at)
            table[name] = (at, count)
        assert timers.deadline() == min((at for at, _ in table.values()), default=None)
    popped = []
    while (due := timers.pop_due(100)) is not None:
        popped.append(due[0])
    assert popped == sorted(table, key=lambda name: table[name])


def test_the_timers_of_services_share_a_heap_and_nothing_else() -> None:
    heap = Timers()
    first, second = ServiceTimers("first", heap), ServiceTimers("second", heap)
    first.set(Beat.TICK, 3.0)
    second.set(Beat.TICK, 2.0)
    first.set(Beat.TOCK, 1.0, "p", 7)
    first.set(Beat.TOCK, 4.0, "p", 8)
    second.cancel(Beat.TOCK, "p", 7)
    first.cancel(Beat.TOCK, "p", 8)
    first.cancel(Beat.TOCK)
    popped = [heap.pop_due(9.0) for _ in range(4)]
    assert popped == [("first", Beat.TOCK, "p", 7), ("second", Beat.TICK), ("first", Beat.TICK), None]
    assert isinstance(popped[0], tuple)
    assert isinstance(popped[0][1], int)


def test_setting_a_timer_of_a_service_again_moves_the_one_of_this_key() -> None:
    heap = Timers()
    timers = ServiceTimers("first", heap)
    timers.set(Beat.TICK, 1.0, "p")
    timers.set(Beat.TICK, 2.0, "q")
    timers.set(Beat.TICK, 3.0, "p")
    assert len(heap) == 2
    assert [heap.pop_due(9.0), heap.pop_due(9.0)] == [("first", Beat.TICK, "q"), ("first", Beat.TICK, "p")]

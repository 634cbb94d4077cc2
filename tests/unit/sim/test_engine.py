"""The engine: in order of time, then of scheduling; nothing in the past; bounded when asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sim.engine import Engine


def test_actions_run_in_order_of_time_and_see_that_time() -> None:
    engine, seen = Engine(), list[tuple[float, str]]()
    for time, name in ((2.0, "b"), (1.0, "a"), (3.0, "c")):
        engine.at(time, lambda name: seen.append((engine.now, name)), name)
    engine.run(10.0)
    assert seen == [(1.0, "a"), (2.0, "b"), (3.0, "c")]
    assert engine.now == 10.0
    assert engine.events == 3


def test_equal_times_run_in_the_order_of_scheduling() -> None:
    engine, seen = Engine(), list[int]()
    for number in range(50):
        engine.at(1.0, seen.append, number)
    engine.run(1.0)
    assert seen == list(range(50))


def test_soon_runs_before_time_moves_on_and_in_order() -> None:
    engine, seen = Engine(), list[str]()

    def first(_: object) -> None:
        engine.soon(seen.append, "a")
        engine.soon(seen.append, "b")
        seen.append("first")

    engine.at(1.0, first, None)
    engine.at(1.5, seen.append, "later")
    engine.run(2.0)
    assert seen == ["first", "a", "b", "later"]


def test_time_stops_at_the_limit_and_goes_on_from_there() -> None:
    engine, seen = Engine(), list[str]()
    engine.at(1.0, seen.append, "in")
    engine.at(1.0000001, seen.append, "out")
    engine.run(1.0)
    assert seen == ["in"]
    assert engine.now == 1.0
    engine.run(2.0)
    assert seen == ["in", "out"]


def test_what_an_action_schedules_runs_in_the_same_run() -> None:
    engine, seen = Engine(), list[float]()

    def tick(_: object) -> None:
        seen.append(engine.now)
        engine.at(engine.now + 0.25, tick, None)

    engine.at(0.0, tick, None)
    engine.run(1.0)
    assert seen == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("time", [0.999, float("nan"), float("-inf")])
def test_the_past_and_no_time_at_all_are_broken_invariants(time: float) -> None:
    engine = Engine()
    engine.run(1.0)
    with pytest.raises(AssertionError, match="scheduled at"):
        engine.at(time, print, None)


def test_a_limit_on_events_stops_in_the_middle_and_counts_all_runs_together() -> None:
    engine, seen = Engine(), list[int]()
    for number in range(10):
        engine.at(number / 10, seen.append, number)
    engine.run(5.0, 4)
    assert (len(seen), engine.events, engine.now) == (4, 4, 0.3)
    engine.run(5.0, 4)
    assert len(seen) == 4
    engine.run(5.0, 6)
    assert len(seen) == 6
    engine.run(5.0)
    assert len(seen) == 10


@given(st.lists(st.floats(0.0, 10.0), max_size=40))
def test_time_never_goes_backwards(times: list[float]) -> None:
    engine, seen = Engine(), list[float]()
    for time in times:
        engine.at(time, lambda _: seen.append(engine.now), None)
    engine.run(20.0)
    assert seen == sorted(times)

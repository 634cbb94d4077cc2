"""Work in turns: a burst becomes a trickle, sources take turns, and nothing of one source overtakes itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.paced_queue import PacedQueue


def test_what_fits_the_budget_is_taken_at_once_and_the_rest_when_it_says() -> None:
    queue: PacedQueue[int] = PacedQueue(rate=10.0, depth=2.0, items_max=100)
    for number in range(5):
        assert queue.put(1, number, 1)
    assert queue.take(0.0) == [(1, 0), (1, 1)]
    assert queue.take(0.0) == []
    due = queue.ready_at()
    assert due is not None
    assert queue.take(due) == [(1, 2)]
    assert queue.take(100.0) == [(1, 3), (1, 4)]
    assert queue.ready_at() is None


def test_sources_take_turns_and_one_that_is_dropped_leaves_nothing() -> None:
    queue: PacedQueue[str] = PacedQueue(rate=1.0, depth=4.0, items_max=3)
    for item in ("a1", "a2", "a3"):
        queue.put(1, item, 1)
    assert not queue.put(1, "a4", 1)
    queue.put(2, "b1", 1)
    assert queue.take(0.0) == [(1, "a1"), (2, "b1"), (1, "a2"), (1, "a3")]
    queue.put(1, "a5", 1)
    queue.drop(1)
    assert not queue.waits(1)
    assert queue.ready_at() is None


def test_what_costs_more_than_a_full_bucket_takes_a_full_bucket() -> None:
    queue: PacedQueue[str] = PacedQueue(rate=10.0, depth=5.0, items_max=3)
    queue.put(1, "huge", 1_000)
    queue.put(1, "next", 1)
    assert queue.take(0.0) == [(1, "huge")]
    assert queue.take(0.1) == [(1, "next")]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=60))
def test_everything_comes_out_once_and_in_the_order_of_its_source(items: list[tuple[int, int]]) -> None:
    queue: PacedQueue[int] = PacedQueue(rate=100.0, depth=4.0, items_max=100)
    taken: list[tuple[int, int]] = []
    now = 0.0
    for number, (source, cost) in enumerate(items):
        queue.put(source, number, cost)
        taken += queue.take(now)
    while (due := queue.ready_at()) is not None:
        now = max(now, due)
        more = queue.take(now)
        assert more, "what is due can be taken"
        taken += more
    assert sorted(number for _, number in taken) == list(range(len(items)))
    for source in range(4):
        own = [number for link, number in taken if link == source]
        assert own == sorted(own)
    assert sum(cost for _, cost in items) <= 4.0 + 100.0 * now + 1e-6

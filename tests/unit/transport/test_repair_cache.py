"""The message cache: rings, the rule of their size, and what they learn from requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.message import Identity, Message, make_message
from penstock.kernel.trace import Counted, LimitReached
from penstock.transport.config import papers_config
from penstock.transport.recovery.repair_cache import Kept, RepairCache, RequestMeans, needed_size, next_size
from penstock.transport.wire.control_messages import Key, Request

BOUNDS = {"size_min": 5, "size_max": 300}


def a_message(count: int, publisher: str = "p") -> Message:
    return make_message(Identity(publisher, 1, count), {"price": count})


def key(sequence: int, publisher: str = "p") -> Key:
    return Key(publisher, 1, sequence)


def cache(**settings: Any) -> RepairCache:
    return RepairCache(papers_config(**settings))


def fill(made: RepairCache, count: int, *, rate: float = 100.0, start: float = 0.0, first: int = 1) -> float:
    """Put `count` messages at this rate; when the last came."""
    now = start
    for number in range(count):
        now = start + number / rate
        made.put(key(first + number), a_message(first + number), now, now)
    return now


def a_request(sequence: int, *, distance: float = 0.1, publisher: str = "p") -> Request:
    return Request(key(sequence, publisher), "other", 0.0, distance, 2.0, 2.0, 1)


def test_a_message_is_found_by_publisher_life_and_number() -> None:
    made = cache()
    assert made.put(key(1), a_message(1), 0.5, 1.0) == []
    assert made.get(key(1)) == Kept(a_message(1), 0.5)
    assert made.get(key(2)) is None
    assert made.get(Key("p", 2, 1)) is None
    assert made.get(key(1, "q")) is None


def test_the_ring_begins_at_its_minimum_and_overwrites_what_came_first() -> None:
    made = cache(cache_min=5)
    fill(made, 7)
    assert [made.get(key(number)) is not None for number in range(1, 8)] == [False] * 2 + [True] * 5
    assert len(made) == made.capacity("p", 1) == 5


def test_a_message_that_comes_twice_keeps_its_place_and_is_one() -> None:
    made = cache(cache_min=2)
    made.put(key(1), a_message(1), 0.0, 0.0)
    made.put(key(2), a_message(2), 0.0, 0.0)
    made.put(key(1), a_message(1), 9.0, 0.1)
    made.put(key(3), a_message(3), 0.0, 0.2)
    assert made.get(key(1)) is None
    assert made.get(key(2)) is not None


def test_a_fixed_cache_always_has_the_maximum() -> None:
    made = cache(cache_fixed=True, cache_max=50)
    now = fill(made, 60)
    assert made.capacity("p", 1) == len(made) == 50
    assert made.tune(now) == [Counted("cache entries", "p", 50)]
    assert made.capacity("p", 1) == 50


def test_an_active_repairer_takes_what_is_needed_at_once() -> None:
    made = cache()
    now = fill(made, 201)
    made.note_request(a_request(200), 0.05, now)
    made.note_repair_sent(key(200), now)
    # r ((C1 + C2/2 + 1) d_ZB + d_BA) + 1 = 100 (4 * 0.1 + 0.05) + 1 = 46
    assert made.tune(now) == [Counted("cache entries", "p", 47)]  # the rate is a little above 100 just after a message
    assert made.capacity("p", 1) == 47


def test_without_repairs_the_ring_shrinks_by_a_tenth_per_run_down_to_its_minimum() -> None:
    made = cache()
    now = fill(made, 201)
    made.note_request(a_request(200), 0.05, now)
    made.note_repair_sent(key(200), now)
    made.tune(now)
    sizes = []
    for _ in range(40):
        now += 1.0
        made.put(key(10_000 + round(now)), a_message(1), now, now)
        made.tune(now)
        sizes.append(made.capacity("p", 1))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 5
    assert len(made) == 5
    assert made.tune(now) == []  # at the minimum, and unchanged


def test_the_active_repairer_is_active_for_five_seconds() -> None:
    made = cache(cache_hit_ratio=1.0)
    made.put(key(1), a_message(1), 0.0, 0.0)
    made.note_request(a_request(99), 0.0, 0.0)  # a miss
    made.note_repair_sent(key(1), 0.0)
    made.tune(5.0)
    assert made.capacity("p", 1) == 6
    made.tune(5.1)
    assert made.capacity("p", 1) == 5


def test_misses_make_an_active_repairer_grow_to_the_maximum() -> None:
    made = cache(cache_max=30)
    made.put(key(1), a_message(1), 0.0, 0.0)
    for run in range(40):
        made.note_request(a_request(99), 0.0, float(run))
        made.note_repair_sent(key(1), float(run))
        made.put(key(2 + run), a_message(1), 0.0, float(run))
        made.tune(float(run))
    assert made.capacity("p", 1) == 30


def test_the_hit_ratio_is_running_and_forgets() -> None:
    made = cache()
    assert made.hit_ratio("p", 1) == 1.0
    fill(made, 3)
    made.note_request(a_request(3), 0.1, 0.0)
    assert made.hit_ratio("p", 1) == 1.0
    made.note_request(a_request(99), 0.1, 0.0)
    assert 0.4 < made.hit_ratio("p", 1) < 0.5
    for _ in range(100):
        made.note_request(a_request(3), 0.1, 0.0)
    assert made.hit_ratio("p", 1) > 0.99


def test_what_requests_say_is_averaged() -> None:
    made = cache()
    now = fill(made, 501)
    for _ in range(100):
        made.note_request(a_request(500, distance=0.1), 0.0, now)
    made.note_request(a_request(500, distance=1.1), 0.0, now)
    made.note_repair_sent(key(500), now)
    made.tune(now)
    assert made.capacity("p", 1) == pytest.approx(100 * 4 * 0.2 + 1, rel=0.03)  # 0.9 * 0.1 + 0.1 * 1.1 = 0.2


def test_requests_about_publishers_of_whom_nothing_is_kept_leave_nothing_behind() -> None:
    made = cache()
    for number in range(1_000):
        made.note_request(a_request(1, publisher=f"forged{number}"), 0.1, 0.0)
        made.note_repair_sent(key(1, f"forged{number}"), 0.0)
    assert made.tune(0.0) == []
    assert made.capacity("forged1", 1) == 0


def test_rings_are_bounded_and_the_one_used_least_recently_gives_way() -> None:
    made = cache(sessions_max=2)
    made.put(key(1, "a"), a_message(1), 0.0, 0.0)
    made.put(key(1, "b"), a_message(1), 0.0, 1.0)
    made.put(key(2, "a"), a_message(2), 0.0, 2.0)
    assert made.put(key(1, "c"), a_message(1), 0.0, 3.0) == [LimitReached("cached publishers", 2)]
    assert made.get(key(1, "a")) is not None
    assert made.get(key(1, "b")) is None


def test_a_publisher_that_was_silent_long_enough_is_forgotten() -> None:
    made = cache(session_idle=10.0)
    fill(made, 3)
    made.tune(9.0)
    assert len(made) == 3
    made.tune(10.1)
    assert len(made) == 0


sizes = st.floats(1.0, 1e6)


@given(sizes, st.booleans(), st.booleans(), st.floats(0.0, 1e12), st.integers(1, 50), st.integers(0, 500))
def test_the_size_stays_within_its_bounds(
    size: float, active: bool, enough: bool, needed: float, size_min: int, more: int
) -> None:
    found = next_size(
        size, active=active, hits_enough=enough, needed=needed, size_min=size_min, size_max=size_min + more
    )
    assert size_min <= found <= size_min + more


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.0, 1e4)), max_size=100))
def test_it_never_shrinks_by_more_than_a_tenth_nor_grows_by_more_without_need(
    runs: list[tuple[bool, bool, float]],
) -> None:
    size = 5.0
    for active, enough, needed in runs:
        new = next_size(size, active=active, hits_enough=enough, needed=needed, **BOUNDS)
        assert new >= min(0.9 * size, 300.0) - 1e-9
        assert new <= max(1.1 * size, needed) + 1e-9 or new == 5.0
        size = new


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10), st.floats(0, 10), st.floats(0, 1e4))
def test_what_is_needed_grows_with_every_distance_wait_and_rate(
    distance: float, first: float, spread: float, back: float, rate: float
) -> None:
    found = needed_size(RequestMeans(distance, first, spread, back), rate)
    assert found >= 1.0
    for more in (
        needed_size(RequestMeans(distance + 1, first, spread, back), rate),
        needed_size(RequestMeans(distance, first + 1, spread, back), rate),
        needed_size(RequestMeans(distance, first, spread + 1, back), rate),
        needed_size(RequestMeans(distance, first, spread, back + 1), rate),
        needed_size(RequestMeans(distance, first, spread, back), rate + 1),
    ):
        assert more >= found


events = st.lists(
    st.tuples(st.sampled_from(["put", "ask", "repair", "tune"]), st.integers(1, 400), st.floats(0.0, 2.0)), max_size=120
)


@given(events)
def test_whatever_happens_a_ring_has_between_minimum_and_maximum(done: list[tuple[str, int, float]]) -> None:
    made, now = cache(cache_min=3, cache_max=20), 0.0
    for verb, sequence, step in done:
        now += step
        if verb == "put":
            made.put(key(sequence), a_message(1), now, now)
        elif verb == "ask":
            made.note_request(a_request(sequence, distance=step), step, now)
        elif verb == "repair":
            made.note_repair_sent(key(sequence), now)
        else:
            made.tune(now)
        capacity = made.capacity("p", 1)
        assert capacity == 0 or 3 <= capacity <= 20
        assert len(made) <= capacity

"""The lane queue: control first, the rest by weight, every lane bounded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.packet import DATA_LANES, Lane
from penstock.kernel.queue import QUANTUM_BYTES, LaneBounds, LaneQueue, Overflow, QueueConfig

DATA = [lane for lane in Lane if lane is not Lane.CONTROL]


def a_queue(**bounds: LaneBounds) -> LaneQueue[str]:
    return LaneQueue(QueueConfig(lanes={lane: bounds.get(lane.name.lower(), LaneBounds()) for lane in Lane}))


def drained(queue: LaneQueue[str]) -> list[str]:
    items = []
    while (taken := queue.get()) is not None:
        items.append(taken[0])
    return items


def test_within_a_lane_first_in_is_first_out() -> None:
    queue = a_queue()
    for item in "abc":
        assert queue.put(Lane.BEST_EFFORT, item, 100)
    assert drained(queue) == ["a", "b", "c"]


def test_an_empty_queue_gives_nothing() -> None:
    assert a_queue().get() is None


def test_control_overtakes_everything_that_waits() -> None:
    queue = a_queue()
    queue.put(Lane.BEST_EFFORT, "data", 100)
    queue.put(Lane.STREAM, "stream", 100)
    queue.put(Lane.CONTROL, "control", 100)
    assert drained(queue)[0] == "control"


def test_busy_lanes_share_by_weight() -> None:
    queue = a_queue(transport=LaneBounds(weight=3), best_effort=LaneBounds(weight=1))
    for _ in range(400):
        queue.put(Lane.TRANSPORT, "transport", QUANTUM_BYTES)
        queue.put(Lane.BEST_EFFORT, "best effort", QUANTUM_BYTES)
    share = Counter(queue.get()[0] for _ in range(400))  # type: ignore[index]
    assert share == {"transport": 300, "best effort": 100}


def test_small_packets_get_no_smaller_share_than_large_ones() -> None:
    queue = a_queue()
    for _ in range(900):
        queue.put(Lane.TRANSPORT, "small", 150)
        queue.put(Lane.BEST_EFFORT, "large", 1500)
    sent: Counter[str] = Counter()
    for _ in range(550):
        item, size = queue.get()  # type: ignore[misc]
        sent[item] += size
    assert abs(sent["small"] - sent["large"]) <= 2 * QUANTUM_BYTES


def test_a_quiet_lane_costs_the_others_nothing() -> None:
    queue = a_queue(stream=LaneBounds(weight=100))
    for number in range(10):
        queue.put(Lane.BEST_EFFORT, str(number), 1500)
    assert drained(queue) == [str(number) for number in range(10)]


def test_a_lane_that_comes_late_does_not_wait_for_the_backlog() -> None:
    queue = a_queue()
    for number in range(100):
        queue.put(Lane.BEST_EFFORT, str(number), 1500)
    queue.put(Lane.STREAM, "late", 1500)
    assert "late" in drained(queue)[:3]


def test_a_packet_larger_than_many_quanta_gets_out() -> None:
    queue = a_queue()
    queue.put(Lane.BEST_EFFORT, "large", 1_000_000)
    queue.put(Lane.TRANSPORT, "small", 10)
    assert sorted(drained(queue)) == ["large", "small"]


def test_a_full_lane_refuses_by_packets_and_keeps_what_it_has() -> None:
    queue = a_queue(best_effort=LaneBounds(packets_max=2))
    assert [queue.put(Lane.BEST_EFFORT, item, 1) for item in "abc"] == [True, True, False]
    assert queue.put(Lane.STREAM, "elsewhere", 1)
    assert len(queue) == 3
    assert sorted(drained(queue)) == ["a", "b", "elsewhere"]


def test_a_full_lane_refuses_by_bytes_and_takes_what_still_fits() -> None:
    queue = a_queue(best_effort=LaneBounds(bytes_max=100))
    assert [queue.put(Lane.BEST_EFFORT, "x", size) for size in (60, 41, 40, 1)] == [True, False, True, False]


def test_room_is_given_back_when_packets_leave() -> None:
    queue = a_queue(best_effort=LaneBounds(packets_max=1, bytes_max=100))
    for _ in range(3):
        assert queue.put(Lane.BEST_EFFORT, "x", 100)
        assert queue.get() == ("x", 100)


def test_clear_returns_everything_and_leaves_an_empty_queue() -> None:
    queue = a_queue(best_effort=LaneBounds(packets_max=2, bytes_max=100))
    queue.put(Lane.BEST_EFFORT, "data", 100)
    queue.put(Lane.CONTROL, "control", 1)
    assert sorted(queue.clear()) == ["control", "data"]
    assert len(queue) == 0
    assert queue.get() is None
    assert queue.put(Lane.BEST_EFFORT, "data", 100)


@pytest.mark.parametrize("bounds", [{"packets_max": 0}, {"bytes_max": 0}, {"weight": 0}])
def test_bounds_below_one_are_a_mistake(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LaneBounds(**bounds)


def test_a_size_in_packets_is_that_of_every_lane_that_drops_but_control() -> None:
    lanes = {**QueueConfig().lanes, Lane.PRICED: LaneBounds(weight=3, overflow=Overflow.HOLD)}
    config = QueueConfig(lanes=lanes).sized(7)
    sized = [lane for lane in DATA if lane not in (Lane.PRICED, Lane.SERVICE_CONTROL)]
    assert {config.lanes[lane].packets_max for lane in sized} == {7}
    for lane in (Lane.CONTROL, Lane.SERVICE_CONTROL):  # their bounds are their own
        assert config.lanes[lane] == QueueConfig().lanes[lane]
    assert config.lanes[Lane.PRICED] == LaneBounds(weight=3, overflow=Overflow.HOLD)


def test_a_lane_that_holds_is_bounded_in_bytes_alone() -> None:
    queue = a_queue(stream=LaneBounds(packets_max=1, bytes_max=3, overflow=Overflow.HOLD))
    assert [queue.put(Lane.STREAM, item, 1) for item in "abcd"] == [True, True, True, False]


def test_lanes_drop_by_default_and_those_that_hold_are_known() -> None:
    assert QueueConfig().held_lanes == ()
    lanes = {lane: LaneBounds(overflow=Overflow.HOLD) for lane in Lane}
    assert QueueConfig(lanes=lanes).held_lanes == DATA_LANES
    assert QueueConfig(lanes={**lanes, Lane.STREAM: LaneBounds()}).held_lanes == DATA_LANES[1:]


# Blocked lanes.


def test_a_blocked_lane_waits_while_all_others_go_on_and_keeps_its_order() -> None:
    queue = a_queue()
    queue.put(Lane.STREAM, "1", 100)
    queue.block(Lane.STREAM)
    queue.put(Lane.STREAM, "2", 100)
    queue.put(Lane.BEST_EFFORT, "other", 100)
    queue.put(Lane.CONTROL, "control", 100)
    assert drained(queue) == ["control", "other"]
    assert (len(queue), queue.lane_bytes(Lane.STREAM), queue.lane_bytes(Lane.BEST_EFFORT)) == (2, 200, 0)
    queue.unblock(Lane.STREAM)
    queue.put(Lane.STREAM, "3", 100)
    assert drained(queue) == ["1", "2", "3"]


def test_a_lane_may_be_blocked_and_unblocked_twice_and_while_it_is_empty() -> None:
    queue = a_queue()
    for _ in range(2):
        queue.block(Lane.STREAM)
        queue.block(Lane.STREAM)
        assert queue.put(Lane.STREAM, "x", 100)
        assert queue.get() is None
        queue.unblock(Lane.STREAM)
        queue.unblock(Lane.STREAM)
        assert drained(queue) == ["x"]


def test_a_blocked_lane_is_bounded_like_any_other() -> None:
    queue = a_queue(stream=LaneBounds(packets_max=2))
    queue.block(Lane.STREAM)
    assert [queue.put(Lane.STREAM, item, 1) for item in "abc"] == [True, True, False]


def test_a_cleared_queue_has_no_blocked_lanes() -> None:
    queue = a_queue()
    queue.put(Lane.STREAM, "old", 1)
    queue.block(Lane.STREAM)
    assert queue.clear() == ["old"]
    queue.put(Lane.STREAM, "new", 1)
    assert drained(queue) == ["new"]


def test_control_cannot_be_blocked() -> None:
    with pytest.raises(AssertionError, match="control is never blocked"):
        a_queue().block(Lane.CONTROL)


STEPS = st.one_of(
    st.just("get"),
    st.tuples(st.just("put"), st.sampled_from(Lane), st.integers(1, 4000)),
    st.tuples(st.sampled_from(["block", "unblock"]), st.sampled_from(DATA_LANES)),
)


@given(st.lists(STEPS, max_size=80))
def test_nothing_is_lost_invented_or_reordered_within_a_lane(steps: list[str | tuple[object, ...]]) -> None:
    queue = LaneQueue[tuple[Lane, int]](QueueConfig(lanes={lane: LaneBounds(packets_max=5) for lane in Lane}))
    waiting: dict[Lane, list[int]] = {lane: [] for lane in Lane}
    blocked: set[Lane] = set()
    for number, step in enumerate(steps):
        match step:
            case "get":
                taken = queue.get()
                if taken is None:
                    assert not any(items for lane, items in waiting.items() if lane not in blocked)
                    continue
                lane, item = taken[0]
                assert waiting[lane].pop(0) == item
                assert lane not in blocked
                assert lane is Lane.CONTROL or not waiting[Lane.CONTROL]
            case ("put", Lane() as lane, int(size_bytes)):
                accepted = queue.put(lane, (lane, number), size_bytes)
                assert accepted == (len(waiting[lane]) < 5)
                if accepted:
                    waiting[lane].append(number)
            case ("block", Lane() as lane):
                queue.block(lane)
                blocked.add(lane)
            case ("unblock", Lane() as lane):
                queue.unblock(lane)
                blocked.discard(lane)
        assert len(queue) == sum(map(len, waiting.values()))

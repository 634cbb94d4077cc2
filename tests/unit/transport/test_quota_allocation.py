"""How a subscriber divides its rate: max-min, priorities, and the whole decision."""

from __future__ import annotations

from itertools import product
from math import inf, isclose, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.transport.receiver.quota_allocation import (
    Reception,
    allocate_quotas,
    by_priority,
    decrease,
    increase,
    max_min,
)

demands = st.lists(st.floats(0.0, 1000.0), max_size=12)
capacities = st.floats(0.0, 5000.0)
entries = st.lists(
    st.builds(Reception, st.floats(0.0, 1000.0), st.booleans(), st.sampled_from([0.5, 1.0, 2.0, 10.0]), st.just(inf)),
    max_size=10,
)


def test_the_smallest_demands_are_served_first() -> None:
    assert max_min([10.0, 2.0, 8.0], 12.0) == [5.0, 2.0, 5.0]
    assert max_min([10.0, 2.0, 8.0], 3.0) == [1.0, 1.0, 1.0]
    assert max_min([10.0, 2.0, 8.0], inf) == [10.0, 2.0, 8.0]
    assert max_min([10.0, 2.0], 0.0) == [0.0, 0.0]
    assert max_min([], 5.0) == []


@given(demands, capacities)
def test_no_share_is_above_its_demand_and_all_that_can_be_given_is_given(wanted: list[float], capacity: float) -> None:
    shares = max_min(wanted, capacity)
    assert all(0.0 <= share <= demand for share, demand in zip(shares, wanted, strict=True))
    assert isclose(sum(shares), min(capacity, sum(wanted)), rel_tol=1e-9, abs_tol=1e-9)


@given(demands, capacities)
def test_nobody_gets_more_than_one_who_was_not_satisfied(wanted: list[float], capacity: float) -> None:
    shares = max_min(wanted, capacity)
    for share, demand in zip(shares, wanted, strict=True):
        if share < demand - 1e-9:
            assert share >= max(shares) - 1e-9


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 20))
def test_no_other_division_is_better_for_the_worst_off(wanted: list[int], capacity: int) -> None:
    """All divisions into halves, by brute force: the sorted list of max-min is the largest of all."""
    halves = [[half / 2.0 for half in range(2 * demand + 1)] for demand in wanted]
    others = [sorted(division) for division in product(*halves) if sum(division) <= capacity]
    mine = sorted(max_min([float(demand) for demand in wanted], float(capacity)))
    assert all(other <= [share + 1e-9 for share in mine] for other in others)


@given(demands, capacities)
def test_equal_demands_get_equal_shares_in_any_order(wanted: list[float], capacity: float) -> None:
    shares = max_min(wanted, capacity)
    backwards = max_min(wanted[::-1], capacity)[::-1]
    assert all(isclose(one, other, abs_tol=1e-9) for one, other in zip(shares, backwards, strict=True))


def test_a_higher_priority_gets_more_where_both_want_more() -> None:
    assert by_priority([100.0, 100.0], [3.0, 1.0], 40.0) == [30.0, 10.0]
    assert by_priority([5.0, 100.0], [3.0, 1.0], 40.0) == [5.0, 35.0]


@given(entries, capacities)
def test_shares_by_priority_are_max_min_of_share_by_priority(given_entries: list[Reception], capacity: float) -> None:
    wanted = [entry.rate for entry in given_entries]
    weights = [entry.priority for entry in given_entries]
    shares = by_priority(wanted, weights, capacity)
    assert isclose(sum(shares), min(capacity, sum(wanted)), rel_tol=1e-9, abs_tol=1e-9)
    levels = [share / weight for share, weight in zip(shares, weights, strict=True)]
    for share, demand, level in zip(shares, wanted, levels, strict=True):
        assert 0.0 <= share <= demand
        assert share >= demand - 1e-9 or level >= max(levels) - 1e-9


@pytest.mark.parametrize(
    ("wanted", "weights", "capacity"),
    [
        ([-1.0], [1.0], 1.0),
        ([inf], [1.0], 1.0),
        ([nan], [1.0], 1.0),
        ([1.0], [0.0], 1.0),
        ([1.0], [], 1.0),
        ([1.0], [1.0], -1.0),
        ([1.0], [1.0], nan),
    ],
)
def test_numbers_that_cannot_be_are_refused(wanted: list[float], weights: list[float], capacity: float) -> None:
    with pytest.raises(ValueError, match=r"demands|priorities|capacity"):
        by_priority(wanted, weights, capacity)


@given(entries, capacities)
def test_after_a_decrease_the_quotas_sum_up_to_the_smaller_of_allowed_and_received(
    given_entries: list[Reception], allowed: float
) -> None:
    quotas = decrease(given_entries, allowed)
    received = sum(entry.rate for entry in given_entries)
    assert isclose(sum(quotas), min(allowed, received), rel_tol=1e-9, abs_tol=1e-9)
    assert all(quota <= entry.rate for quota, entry in zip(quotas, given_entries, strict=True))


@given(entries, st.floats(0.0, 5000.0), st.floats(0.5, 1.0))
def test_an_increase_is_at_most_alpha_of_the_rate_and_never_uses_more_than_is_free(
    given_entries: list[Reception], free: float, alpha: float
) -> None:
    received = sum(entry.rate for entry in given_entries)
    quotas = increase(given_entries, received + free, alpha)
    for quota, entry in zip(quotas, given_entries, strict=True):
        assert entry.rate <= quota + 1e-9
        assert quota <= entry.rate * (1.0 + alpha if entry.limiting else 1.0) + 1e-9
    assert sum(quotas) <= received + free + 1e-6


def test_room_without_end_is_used_step_by_step() -> None:
    assert allocate_quotas([Reception(100.0, True), Reception(50.0, False)], inf, 0.5, 10.0) == [150.0, None]


def test_who_limits_nothing_and_has_room_says_nothing() -> None:
    assert allocate_quotas([Reception(100.0, False), Reception(50.0, False)], 1000.0, 0.5, 10.0) == [None, None]
    assert allocate_quotas([], 1000.0, 0.5, 10.0) == []


def test_if_just_the_allowed_rate_comes_in_only_the_limited_filters_get_a_quota() -> None:
    assert allocate_quotas([Reception(0.1, True), Reception(0.2, False)], 0.1 + 0.2, 0.5, 0.0) == [0.1, None]


def test_filters_that_keep_their_rate_in_a_decrease_are_not_reported() -> None:
    assert allocate_quotas([Reception(100.0, False), Reception(5.0, False)], 55.0, 0.5, 1.0) == [50.0, None]


def test_priorities_count_in_a_decrease() -> None:
    two = [Reception(100.0, False, priority=3.0), Reception(100.0, False, priority=1.0)]
    assert allocate_quotas(two, 40.0, 0.5, 1.0) == [30.0, 10.0]


def test_priorities_count_in_an_increase_too() -> None:
    """Else what is free would bring two filters nearer to each other, round trip by round trip."""
    two = [Reception(60.0, True, priority=2.0), Reception(30.0, True, priority=1.0)]
    assert allocate_quotas(two, 99.0, 0.5, 1.0) == [66.0, 33.0]


def test_no_quota_is_above_the_pace_and_the_others_have_the_rest() -> None:
    slow, quick = Reception(100.0, True, pace=20.0), Reception(100.0, True)
    assert allocate_quotas([slow, quick], inf, 0.5, 10.0) == [20.0, 150.0]
    assert allocate_quotas([slow, quick], 90.0, 0.5, 10.0) == [20.0, 70.0]
    assert allocate_quotas([slow._replace(limiting=False), quick._replace(limiting=False)], inf, 0.5, 10.0) == [
        20.0,
        None,
    ]
    assert allocate_quotas([Reception(10.0, True, pace=20.0)], inf, 0.5, 1.0) == [15.0]  # alpha holds all the same


def test_the_floor_of_a_pace_is_its_own() -> None:
    """Erratum C14: one message per round trip is a thousand per second next door, and no reader's business."""
    assert allocate_quotas([Reception(100.0, True, pace=50.0)], inf, 0.5, 1000.0, 1.0) == [50.0]
    assert allocate_quotas([Reception(100.0, True, pace=0.0)], inf, 0.5, 1000.0, 1.0) == [1.0]


@given(entries, st.floats(0.0, 5000.0), st.floats(0.0, 100.0))
def test_only_what_is_to_be_reported_is_reported_and_never_below_the_floor(
    given_entries: list[Reception], allowed: float, floor: float
) -> None:
    received = sum(entry.rate for entry in given_entries)
    assume(not isclose(allowed, received))
    for quota, entry in zip(allocate_quotas(given_entries, allowed, 0.5, floor), given_entries, strict=True):
        if quota is None:
            assert not entry.limiting
            assert allowed > received or floor >= entry.rate or entry.rate <= allowed
        else:
            assert quota >= floor
            assert entry.limiting or quota < entry.rate

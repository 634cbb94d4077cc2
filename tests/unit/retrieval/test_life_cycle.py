"""The two tables of the life cycle, row by row, and that no case is left open."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.retrieval.life_cycle import (
    ARRIVAL,
    DISSEMINATED,
    LIFE_CYCLE,
    OVERFLOWING,
    PENDING,
    PLACES,
    USED_PENDING,
    CacheArrival,
    Selector,
    Table,
    arrived,
    selected,
)


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        (PENDING, Selector.LOCAL, USED_PENDING),
        (USED_PENDING, Selector.LOCAL, USED_PENDING),
        (PENDING, Selector.REMOTE, OVERFLOWING),
        (USED_PENDING, Selector.REMOTE, DISSEMINATED),
        (OVERFLOWING, Selector.REMOTE, OVERFLOWING),
        (OVERFLOWING, Selector.LOCAL, DISSEMINATED),
        (DISSEMINATED, Selector.LOCAL, DISSEMINATED),
        (DISSEMINATED, Selector.REMOTE, DISSEMINATED),
    ],
)
def test_each_selection(before, by, after):
    assert selected(before, by) == after


def test_every_selection_has_a_row():
    assert sorted(LIFE_CYCLE) == sorted(product(PLACES, Selector))


def test_nothing_becomes_pending_again_nor_unused():
    for (before, _), after in LIFE_CYCLE.items():
        assert before.table == Table.PENDING or after.table != Table.PENDING
        assert after.dispatched >= before.dispatched


def arrival(**facts: bool) -> CacheArrival:
    """All false but these."""
    return CacheArrival(*(facts.get(name, False) for name in CacheArrival._fields))


@pytest.mark.parametrize(
    ("facts", "place", "forward"),
    [
        ({"uploaded", "used", "remote"}, DISSEMINATED, True),
        ({"uploaded", "remote"}, OVERFLOWING, True),
        ({"uploaded", "used"}, USED_PENDING, False),
        ({"uploaded"}, PENDING, False),
        ({"uploaded", "satisfied"}, PENDING, False),
        ({"used", "remote"}, DISSEMINATED, True),
        ({"used", "pending"}, DISSEMINATED, False),
        ({"pending"}, OVERFLOWING, False),
        ({"pending", "satisfied"}, OVERFLOWING, False),
        ({"pending", "satisfied", "remote"}, OVERFLOWING, True),
        ({"pending", "remote", "en_route"}, OVERFLOWING, True),
        ({"remote", "en_route"}, DISSEMINATED, True),
        ({"remote"}, None, True),
        ({"pending", "remote"}, None, True),
        ({"satisfied"}, None, False),
        (set(), None, False),
    ],
)
def test_each_arrival(facts, place, forward):
    assert arrived(arrival(**dict.fromkeys(facts, True))) == (place, forward)


def test_every_row_decides_some_arrival():
    reached = set()
    for bits in product((False, True), repeat=len(CacheArrival._fields)):
        rows = [
            number
            for number, (row, _) in enumerate(ARRIVAL)
            if all(wanted is None or wanted == found for wanted, found in zip(row, bits, strict=True))
        ]
        reached.add(rows[0])
        assert arrived(CacheArrival(*bits)) == ARRIVAL[rows[0]][1]
    assert reached == set(range(len(ARRIVAL)))


def test_what_is_used_is_marked_and_what_is_sent_is_not_pending():
    for bits in product((False, True), repeat=len(CacheArrival._fields)):
        one = CacheArrival(*bits)
        place, forward = arrived(one)
        assert forward == one.remote
        if one.used:
            assert place is not None
            assert place.dispatched
        if place is not None and place.table == Table.PENDING:
            assert one.uploaded
            assert not forward

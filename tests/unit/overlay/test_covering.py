"""Covering: what is advertised selects exactly what is wanted, whatever comes and goes, with bounded work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.filter_bytes import filter_bytes
from penstock.content.language.budget import Budget
from penstock.content.language.parser import parse_predicate
from penstock.content.predicate import Filter
from penstock.content.relations import covers
from penstock.overlay import covering
from penstock.overlay.covering import COMPARED_MAX, COVERED_MAX, STEPS, Covering

TEXTS = [
    "TRUE",
    "a = 1",
    "a = 2",
    "a = 1 AND b < 5",
    "a = 1 AND b < 3",
    "a IN (1, 2)",
    "a < 9",
    "a < 4 AND b = 'x'",
    "b = 'x'",
    "b LIKE 'x%'",
    "EXISTS a",
    "a IS NULL",
    "a IS NULL AND b = 'x'",
]


def the_filter(text: str) -> Filter:
    (selected,) = parse_predicate(text).filters
    return selected


FILTERS = {filter_bytes(the_filter(text)): the_filter(text) for text in TEXTS}


def added(table: Covering, entry: bytes, selected: Filter) -> list[bytes]:
    table.begin()
    return table.add(entry, selected)


def removed(table: Covering, entry: bytes) -> list[bytes]:
    table.begin()
    return table.remove(entry)


def advertised(table: Covering, wanted: dict[bytes, Filter]) -> list[Filter]:
    return [selected for entry, selected in wanted.items() if table.advertises(entry)]


@given(st.lists(st.sampled_from(sorted(FILTERS)), max_size=40))
def test_the_advertised_cover_all_that_is_wanted_and_none_covers_another(toggled: list[bytes]) -> None:
    table = Covering()
    wanted: dict[bytes, Filter] = {}
    shown: set[bytes] = set()
    for entry in toggled:
        if entry in wanted:
            changed = removed(table, entry)
            del wanted[entry]
        else:
            wanted[entry] = FILTERS[entry]
            changed = added(table, entry, FILTERS[entry])
        shown = {one for one in shown if one not in changed} | {one for one in changed if table.advertises(one)}
        assert shown == {one for one in wanted if table.advertises(one)}, "every change is told"
        told = advertised(table, wanted)
        assert all(any(covers(wide, selected) for wide in told) for selected in wanted.values())
        assert not any(covers(one, other) for one in told for other in told if one is not other)


def test_a_wide_filter_withdraws_the_narrow_ones_and_they_come_back() -> None:
    table = Covering()
    entries = {text: filter_bytes(the_filter(text)) for text in ("a < 3", "a < 5", "b = 1", "a < 9")}
    for text in ("a < 3", "b = 1", "a < 5"):
        added(table, entries[text], the_filter(text))
    assert added(table, entries["a < 9"], the_filter("a < 9")) == [entries["a < 9"], entries["a < 5"]]
    assert removed(table, entries["a < 9"]) == [entries["a < 9"], entries["a < 5"]]
    assert [text for text, entry in entries.items() if table.advertises(entry)] == ["a < 5", "b = 1"]


@pytest.mark.parametrize(
    "text", ["v < {}", "v > {}", "v = {}", "v = 1 AND w < {}", "v <> {}", "s LIKE 'a{}%'", "v{} = 1"]
)
def test_one_more_filter_is_compared_with_a_bounded_number_of_others(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = counting(monkeypatch)
    table = Covering()
    for number in range(1, 200):
        selected = the_filter(text.format(number))
        before = compared()
        added(table, filter_bytes(selected), selected)
        assert compared() - before <= 2 * COMPARED_MAX


def test_long_lists_are_compared_within_the_same_budget() -> None:
    table = Covering()
    for number in range(100):
        selected = the_filter(f"v IN ({', '.join(str(number * 50 + value) for value in range(50))})")
        added(table, filter_bytes(selected), selected)
        assert table._budget.spent <= STEPS + 200  # the question that was too many


def test_removing_what_covers_all_others_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = counting(monkeypatch)
    table = Covering()
    everything = the_filter("TRUE")
    added(table, filter_bytes(everything), everything)
    for number in range(COVERED_MAX + 100):
        selected = the_filter(f"v <> {number}")
        added(table, filter_bytes(selected), selected)
    before = compared()
    assert len(removed(table, filter_bytes(everything))) <= COVERED_MAX + 1
    assert compared() - before <= STEPS


def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls = [0]

    def counted(general: Filter, specific: Filter, budget: Budget) -> bool:
        calls[0] += 1
        return covers(general, specific, budget)

    monkeypatch.setattr(covering, "covers", counted)
    return lambda: calls[0]

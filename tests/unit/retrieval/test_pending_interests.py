"""The table of pending interests: known, ended, expired, refused."""

from __future__ import annotations

from penstock.retrieval.interest import LOCAL, SATISFIED
from penstock.retrieval.pending_interests import PendingInterests, ShelfIndex
from retrieval_network import asks, says


def a_table(**settings) -> PendingInterests:
    return PendingInterests(ShelfIndex(settings.pop("fits", None)), **({"size": 10, "linger": 2.0} | settings))


def matching(table: PendingInterests, publication) -> dict[int, list[object]]:
    return {
        interface: [one.id for one in interests] for interface, interests in table.matching(publication, pending=True)
    }


def test_interests_are_found_by_interface():
    table = a_table()
    assert table.add(asks("a"), 1)
    assert table.add(asks("b"), 2)
    assert table.add(asks("c"), 1)
    assert table.add(asks("elsewhere", shelf=5), 1)
    assert matching(table, says("p")) == {1: ["a", "c"], 2: ["b"]}


def test_a_known_one_keeps_its_first_interface():
    table = a_table()
    table.add(asks("a"), 1)
    assert not table.add(asks("a"), 2)
    assert table.get("a")[1] == 1


def test_one_that_is_over_is_remembered_for_a_while():
    table = a_table()
    table.add(asks("a"), 1)
    assert table.over("a", 10.0)
    assert not table.over("a", 10.0)
    assert matching(table, says("p")) == {}
    assert not table.add(asks("a"), 1)
    table.expire(13.0)
    assert "a" not in table


def test_what_is_over_is_kept_once_and_not_until_its_deadline():
    table = a_table(size=3)
    for number in range(100):
        assert table.add(asks(number, deadline=1_000.0 + number), 1)
        table.over(number, 10.0 * number)
        table.expire(10.0 * number + 4.0)
        assert len(table) == sum(map(len, table._ends.values())) == 0


def test_a_satisfied_one_stays_until_its_deadline():
    table = a_table()
    table.add(asks("a", deadline=5.0), LOCAL)
    table.satisfied("a")
    assert matching(table, says("p")) == {SATISFIED: ["a"]}
    assert [one.id for one, _ in table.expire(6.0)] == ["a"]
    assert matching(table, says("p")) == {}
    assert len(table) == 0


def test_what_has_no_room_is_refused_and_counted():
    table = a_table(size=1)
    assert table.add(asks("a"), 1)
    assert not table.add(asks("b"), 1)
    assert table.refused == 1
    table.expire(101.0)
    assert table.add(asks("b"), 1)


def test_fits_decides_on_a_shelf():
    table = a_table(fits=lambda interest, publication: interest.where == publication.id)
    table.add(asks("a", where="p"), 1)
    table.add(asks("b", where="q"), 2)
    assert matching(table, says("p")) == {1: ["a"]}


def test_whoever_asks_for_all_places_leaves_as_many_for_others():
    table = a_table(size=12)
    assert [table.add(asks(f"greedy {n}"), 1) for n in range(12)].count(True) == 6
    assert [table.add(asks(f"second {n}"), 2) for n in range(12)].count(True) == 3
    assert table.add(asks("third"), LOCAL)
    assert table.refused == 6 + 9
    table.over("third", 0.0)
    table.expire(1_000.0)
    assert (table.left(1), table.left(LOCAL), len(table)) == (12, 12, 0)


def test_places_come_back_when_an_interest_is_over_but_for_its_name():
    table = a_table(size=100, places=lambda interest: 30)
    assert table.add(asks("a"), 1)
    assert table.left(1) == 40
    assert table.add(asks("b"), 1)
    assert not table.add(asks("c"), 1)
    table.over("b", 0.0)
    assert table.left(1) == 38
    table.over("a", 0.0)
    assert table.left(1) == 96


def test_what_was_listed_for_those_who_answer_is_not_kept():
    table = a_table()
    table.add(asks("a", listed=("p", "q")), 1)
    assert table.get("a")[0].listed == ()

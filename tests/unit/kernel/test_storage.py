"""Storage without a disk: a log and a table for each service, within bounds, and every change whole or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import storage
from penstock.kernel.storage import (
    ENTRY_BYTES_MAX,
    Append,
    Appended,
    Ask,
    Entries,
    Get,
    MemoryStore,
    Operation,
    Put,
    Read,
    ServiceStorage,
    StorageFailed,
    StorageResult,
    StorageTickets,
    Stored,
    Trim,
    Value,
)


class Area:
    """One service's area of a store."""

    def __init__(self, store: MemoryStore | None = None, name: str = "here") -> None:
        self.store = store or MemoryStore()
        self.name = name

    def do(self, operation: Operation) -> StorageResult:
        return self.store.carry_out(self.name, operation)

    def log(self) -> StorageResult:
        return self.do(Read(0, 1000))


def test_entries_get_positions_one_by_one_and_come_back_in_order() -> None:
    area = Area()
    assert area.do(Append((b"a", b"b"))) == Appended(0)
    assert area.do(Append((b"c",))) == Appended(2)
    assert area.do(Append(())) == Appended(3)
    assert area.do(Append((b"",))) == Appended(3), "an empty entry is an entry"
    assert area.log() == Entries(0, (b"a", b"b", b"c", b""))


@pytest.mark.parametrize(
    ("start", "count", "found"),
    [
        (0, 2, Entries(0, (b"a", b"b"))),
        (1, 1, Entries(1, (b"b",))),
        (2, 9, Entries(2, (b"c",))),
        (3, 9, Entries(3, ())),
        (99, 9, Entries(99, ())),
        (-5, 2, Entries(0, (b"a", b"b"))),
        (0, 0, Entries(0, ())),
        (0, -1, Entries(0, ())),
    ],
)
def test_reading_gives_what_there_is_of_what_was_asked_for(start: int, count: int, found: Entries) -> None:
    area = Area()
    area.do(Append((b"a", b"b", b"c")))
    assert area.do(Read(start, count)) == found


def test_an_empty_log_can_be_read_and_trimmed() -> None:
    assert Area().log() == Entries(0, ())
    assert Area().do(Trim(5)) == Stored()


def test_one_answer_has_no_more_entries_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "READ_MAX", 2)
    area = Area()
    area.do(Append((b"a", b"b", b"c")))
    assert area.do(Read(0, 3)) == Entries(0, (b"a", b"b"))
    assert area.do(Read(2, 3)) == Entries(2, (b"c",))


def test_what_was_trimmed_is_gone_and_positions_stay() -> None:
    area = Area()
    area.do(Append((b"a", b"b", b"c")))
    assert area.do(Trim(2)) == Stored()
    assert area.log() == Entries(2, (b"c",))
    assert area.do(Read(1, 9)) == Entries(2, (b"c",)), "later than asked for, because the log was trimmed"
    assert area.do(Trim(1)) == Stored(), "nothing comes back"
    assert area.log() == Entries(2, (b"c",))
    assert area.do(Append((b"d",))) == Appended(3)


def test_trimming_beyond_the_end_forgets_all_and_no_position_is_left_out() -> None:
    area = Area()
    area.do(Append((b"a", b"b")))
    assert area.do(Trim(100)) == Stored()
    assert area.log() == Entries(2, ())
    assert area.do(Append((b"c",))) == Appended(2)


def test_values_are_put_replaced_and_removed() -> None:
    area = Area()
    assert area.do(Get("x")) == Value(b"")
    assert area.do(Put("x", b"1")) == Stored()
    assert area.do(Put("x", b"2")) == Stored()
    assert area.do(Get("x")) == Value(b"2")
    assert area.do(Put("x", b"")) == Stored()
    assert area.do(Put("x", b"")) == Stored(), "removing what is not there is no mistake"
    assert area.do(Get("x")) == Value(b"")
    assert area.store.size_bytes() == 0


def test_services_share_neither_log_nor_values() -> None:
    store = MemoryStore()
    first, second = Area(store, "first"), Area(store, "second")
    first.do(Append((b"a",)))
    first.do(Put("x", b"1"))
    assert second.log() == Entries(0, ())
    assert second.do(Get("x")) == Value(b"")
    assert second.do(Append((b"b",))) == Appended(0)


def test_the_size_is_that_of_all_entries_and_values() -> None:
    store = MemoryStore()
    first, second = Area(store, "first"), Area(store, "second")
    first.do(Append((b"aa", b"bbb")))
    second.do(Put("name", b"1234"))
    assert store.size_bytes() == 9
    first.do(Trim(1))
    assert store.size_bytes() == 7


def test_an_entry_over_the_limit_is_refused_with_all_that_came_along() -> None:
    area = Area()
    assert area.do(Append((bytes(ENTRY_BYTES_MAX),))) == Appended(0)
    refused = area.do(Append((b"small", bytes(ENTRY_BYTES_MAX + 1))))
    assert refused == StorageFailed(
        f"an entry of {ENTRY_BYTES_MAX + 1} bytes; the limit ENTRY_BYTES_MAX is {ENTRY_BYTES_MAX}"
    )
    assert area.do(Read(1, 9)) == Entries(1, ())
    area.do(Put("x", b"old"))
    assert isinstance(area.do(Put("x", bytes(ENTRY_BYTES_MAX + 1))), StorageFailed)
    assert area.do(Get("x")) == Value(b"old")


def test_one_name_too_many_is_refused_but_replacing_and_removing_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "VALUES_MAX", 2)
    area = Area()
    for name in ("x", "y"):
        assert area.do(Put(name, b"1")) == Stored()
    assert area.do(Put("z", b"1")) == StorageFailed("2 names; the limit VALUES_MAX is 2")
    assert area.do(Get("z")) == Value(b"")
    assert area.do(Put("x", b"2")) == Stored()
    assert area.do(Put("y", b"")) == Stored()
    assert area.do(Put("z", b"1")) == Stored()


STEPS = st.one_of(
    st.lists(st.binary(max_size=3), max_size=3).map(lambda entries: Append(tuple(entries))),
    st.integers(0, 12).map(Trim),
    st.tuples(st.integers(0, 12), st.integers(0, 5)).map(lambda pair: Read(*pair)),
)


@given(st.lists(STEPS, max_size=30))
def test_a_log_is_a_list_whose_beginning_is_forgotten(steps: list[Operation]) -> None:
    area, everything, kept_from = Area(), list[bytes](), 0
    for step in steps:
        result = area.do(step)
        match step:
            case Append(entries):
                assert result == Appended(len(everything))
                everything += entries
            case Trim(start):
                kept_from = max(kept_from, min(start, len(everything)))
            case Read(start, count):
                first = max(start, kept_from)
                assert result == Entries(first, tuple(everything[first : first + count]))
    assert area.log() == Entries(kept_from, tuple(everything[kept_from:]))


# Questions.


def test_no_two_questions_of_a_node_share_a_ticket_and_each_belongs_to_its_service_once() -> None:
    tickets = StorageTickets()
    first, second = ServiceStorage("first", tickets), ServiceStorage("second", tickets)
    asks = [first.ask(Get("x")), second.ask(Get("x")), first.ask(Get("y"))]
    assert asks == [Ask(1, "first", Get("x")), Ask(2, "second", Get("x")), Ask(3, "first", Get("y"))]
    assert len(tickets) == 3
    assert [tickets.owner(ticket) for ticket in (2, 3, 1)] == ["second", "first", "first"]
    assert len(tickets) == 0
    with pytest.raises(KeyError):
        tickets.owner(2)

"""Storage without a disk: logs and values by area, within bounds, and every change whole or not at all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import storage
from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.storage import (
    ENTRY_BYTES_MAX,
    NAME_BYTES_MAX,
    Append,
    Appended,
    Ask,
    Drop,
    Entries,
    Extent,
    Get,
    LogExtent,
    Measure,
    Measured,
    Names,
    NamesFound,
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

ABC = ((10, b"a"), (20, b"bb"), (30, b"ccc"))


class Area:
    """One area of a store."""

    def __init__(self, store: MemoryStore | None = None, name: str = "here") -> None:
        self.store = store or MemoryStore()
        self.name = name

    def do(self, operation: Operation) -> StorageResult:
        return self.store.carry_out(self.name, operation)

    def log(self) -> StorageResult:
        return self.do(Read(0, 1_000, 1_000))

    def fails(self, operation: Operation, *words: str) -> None:
        result = self.do(operation)
        assert isinstance(result, StorageFailed)
        assert not result.damaged
        for word in words:
            assert word in result.problem


def with_abc() -> Area:
    area = Area()
    assert area.do(Append(ABC)) == Appended()
    return area


def test_entries_come_back_in_order_under_their_keys() -> None:
    area = with_abc()
    assert area.do(Append(())) == Appended()
    assert area.do(Append(((31, b""),))) == Appended(), "an empty entry is an entry"
    assert area.log() == Entries((*ABC, (31, b"")), True)


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (Read(0, 99, 2), Entries(ABC[:2], False)),
        (Read(0, 99, 3), Entries(ABC, True)),
        (Read(0, 20, 2), Entries(ABC[:2], True)),
        (Read(10, 10, 9), Entries(ABC[:1], True)),
        (Read(11, 20, 9), Entries(ABC[1:2], True)),
        (Read(11, 19, 9), Entries((), True)),
        (Read(31, 99, 9), Entries((), True)),
        (Read(20, 10, 9), Entries((), True)),
        (Read(-5, 2**80, 9), Entries(ABC, True)),
        (Read(0, 99, 0), Entries((), False)),
        (Read(0, 99, -1), Entries((), False)),
    ],
)
def test_reading_gives_what_there_is_of_what_was_asked_for_and_says_if_that_is_all(read: Read, found: Entries) -> None:
    assert with_abc().do(read) == found


@pytest.mark.parametrize("keys", [(30,), (5,), (40, 40), (50, 45), (0,), (-1,), (31, 2**63)])
def test_a_key_that_is_not_above_all_others_is_refused_with_all_that_came_along(keys: tuple[int, ...]) -> None:
    area = with_abc()
    area.fails(Append(tuple((key, b"x") for key in keys)), "is not above")
    assert area.log() == Entries(ABC, True)


def test_the_first_key_is_above_0() -> None:
    area = Area()
    area.fails(Append(((0, b"x"),)), "key 0 is not above 0")
    assert area.do(Append(((1, b"x"), (2**63 - 1, b"y")))) == Appended()


def test_an_empty_log_can_be_read_measured_and_trimmed() -> None:
    assert Area().log() == Entries((), True)
    assert Area().do(Extent()) == LogExtent(0, 0, 0, 0)
    assert Area().do(Trim(5)) == Stored()
    area = Area()
    area.do(Trim(5))
    assert area.do(Append(((1, b"x"),))) == Appended(), "nothing was there to be trimmed"


def test_one_answer_has_no_more_entries_or_bytes_than_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    area = with_abc()
    monkeypatch.setattr(storage, "READ_MAX", 2)
    assert area.do(Read(0, 99, 3)) == Entries(ABC[:2], False)
    assert area.do(Read(21, 99, 3)) == Entries(ABC[2:], True)
    monkeypatch.setattr(storage, "READ_BYTES_MAX", 2)
    assert area.do(Read(0, 99, 3)) == Entries(ABC[:1], False)
    assert area.do(Read(30, 99, 3)) == Entries(ABC[2:], True), "at least one"


def test_what_was_trimmed_is_gone_and_its_keys_are_not_given_again() -> None:
    area = with_abc()
    assert area.do(Trim(20)) == Stored()
    assert area.log() == Entries(ABC[2:], True)
    assert area.do(Read(5, 20, 9)) == Entries((), True)
    assert area.do(Extent()) == LogExtent(30, 30, 3, 1)
    assert area.do(Trim(15)) == Stored(), "nothing comes back"
    assert area.do(Extent()) == LogExtent(30, 30, 3, 1)
    assert area.do(Trim(25)) == Stored()
    assert area.do(Extent()) == LogExtent(30, 30, 3, 1)
    assert area.do(Trim(1_000)) == Stored()
    assert area.do(Extent()) == LogExtent(0, 30, 0, 0), "the last key is still known"
    area.fails(Append(((30, b"x"),)))
    assert area.do(Append(((31, b"dddd"),))) == Appended(), "what was trimmed in vain is no limit"
    assert area.do(Extent()) == LogExtent(31, 31, 4, 1)
    assert area.log() == Entries(((31, b"dddd"),), True)


def test_a_part_of_a_log_is_measured_and_cut() -> None:
    area = with_abc()
    assert area.do(Measure(1, 99)) == Measured((99,), 3, 6)
    assert area.do(Measure(11, 29)) == Measured((29,), 1, 2)
    assert area.do(Measure(1, 99, entries_max=2)) == Measured((29,), 2, 3), "and the silence behind it"
    assert area.do(Measure(1, 99, bytes_max=5)) == Measured((29,), 2, 3)
    assert area.do(Measure(11, 99, bytes_max=1)) == Measured((29,), 1, 2), "at least one"
    assert area.do(Measure(1, 99, parts=2)) == Measured((10, 99), 3, 6)
    assert area.do(Measure(1, 99, parts=9)) == Measured((10, 20, 99), 3, 6)
    area.do(Trim(10))
    assert area.do(Measure(1, 99, entries_max=1)) == Measured((29,), 1, 2)
    assert area.do(Measure(31, 99)) == Measured((99,), 0, 0)
    assert area.do(Measure(5, 4)) == Measured((4,), 0, 0)
    assert Area().do(Measure(1, 9)) == Measured((9,), 0, 0)


@given(
    st.lists(st.integers(1, 60), unique=True).map(sorted),
    st.integers(1, 60),
    st.integers(1, 70),
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(1, 5),
)
def test_what_is_measured_is_what_a_read_would_find(
    keys: list[int], first: int, last: int, entries_max: int, bytes_max: int, parts: int
) -> None:
    area = Area()
    area.do(Append(tuple((key, bytes(key % 7)) for key in keys)))
    found = area.do(Measure(first, last, entries_max, bytes_max, parts))
    assert isinstance(found, Measured)
    read = area.do(Read(first, found.marks[-1], 100))
    assert isinstance(read, Entries)
    sizes = [len(data) for _, data in read.entries]
    assert (found.entries, found.bytes) == (len(sizes), sum(sizes))
    assert found.entries <= entries_max
    assert found.bytes <= bytes_max or found.entries == 1
    more = [key for key in keys if found.marks[-1] < key <= last]
    if more:
        assert found.entries == entries_max or found.bytes + more[0] % 7 > bytes_max
    else:
        assert found.marks[-1] == last
    assert list(found.marks) == sorted(set(found.marks))
    counts = [sum(low < key <= high for key, _ in read.entries) for low, high in pairwise((first - 1, *found.marks))]
    assert len(counts) == max(1, min(parts, found.entries))
    assert max(counts) - min(counts) <= 1


def test_values_are_put_replaced_named_and_removed() -> None:
    area = Area()
    assert area.do(Get("x")) == Value(b"")
    assert area.do(Names()) == NamesFound(())
    assert area.do(Put("x", b"1")) == Stored()
    assert area.do(Put("x", b"2")) == Stored()
    assert area.do(Put("a", b"3")) == Stored()
    assert area.do(Get("x")) == Value(b"2")
    assert area.do(Names()) == NamesFound(("a", "x"))
    assert area.do(Put("x", b"")) == Stored()
    assert area.do(Put("x", b"")) == Stored(), "removing what is not there is no mistake"
    assert area.do(Get("x")) == Value(b"")
    assert area.do(Names()) == NamesFound(("a",))


def test_areas_share_neither_log_nor_values() -> None:
    store = MemoryStore()
    first, second = Area(store, "service"), Area(store, "service/log")
    first.do(Append(ABC))
    first.do(Put("x", b"1"))
    assert second.log() == Entries((), True)
    assert second.do(Get("x")) == Value(b"")
    assert second.do(Append(((1, b"b"),))) == Appended()


def test_an_area_that_was_dropped_begins_anew_and_no_other_does() -> None:
    store = MemoryStore()
    first, second = Area(store, "service/log"), Area(store, "service")
    for area in (first, second):
        area.do(Append(ABC))
        area.do(Put("x", b"1"))
    assert first.do(Drop()) == Stored()
    assert first.do(Drop()) == Stored()
    assert first.do(Extent()) == LogExtent(0, 0, 0, 0)
    assert (first.log(), first.do(Names())) == (Entries((), True), NamesFound(()))
    assert first.do(Append(((1, b"new"),))) == Appended()
    assert (second.log(), second.do(Get("x"))) == (Entries(ABC, True), Value(b"1"))


def test_everything_is_there_when_it_is_opened_again() -> None:
    area = with_abc()
    area.do(Put("x", b"1"))
    area.do(Trim(10))
    area.store.reopen()
    assert area.log() == Entries(ABC[1:], True)
    assert area.do(Extent()) == LogExtent(20, 30, 5, 2)
    assert area.do(Get("x")) == Value(b"1")
    area.fails(Append(((30, b"x"),)))


def test_an_entry_over_the_limit_is_refused_with_all_that_came_along() -> None:
    area = Area()
    assert area.do(Append(((1, bytes(ENTRY_BYTES_MAX)),))) == Appended()
    refused = area.do(Append(((2, b"small"), (3, bytes(ENTRY_BYTES_MAX + 1)))))
    assert refused == StorageFailed(
        f"an entry of {ENTRY_BYTES_MAX + 1} bytes; the limit ENTRY_BYTES_MAX is {ENTRY_BYTES_MAX}"
    )
    assert area.do(Read(2, 9, 9)) == Entries((), True)
    area.do(Put("x", b"old"))
    area.fails(Put("x", bytes(ENTRY_BYTES_MAX + 1)), "ENTRY_BYTES_MAX")
    assert area.do(Get("x")) == Value(b"old")


def test_one_name_or_area_too_many_is_refused_but_replacing_and_removing_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "VALUES_MAX", 2)
    monkeypatch.setattr(storage, "AREAS_MAX", 1)
    area = Area()
    for name in ("x", "y"):
        assert area.do(Put(name, b"1")) == Stored()
    area.fails(Put("z", b"1"), "2 names; the limit VALUES_MAX is 2")
    assert area.do(Get("z")) == Value(b"")
    assert area.do(Put("x", b"2")) == Stored()
    assert area.do(Put("y", b"")) == Stored()
    assert area.do(Put("z", b"1")) == Stored()
    other = Area(area.store, "other")
    for operation in (Put("x", b"1"), Append(ABC)):
        other.fails(operation, "1 areas; the limit AREAS_MAX is 1")
    assert other.do(Get("x")) == Value(b""), "looking needs no room"
    area.do(Drop())
    assert other.do(Append(ABC)) == Appended()


@pytest.mark.parametrize("name", ["x" * (NAME_BYTES_MAX + 1), "\ud800"])
def test_a_name_that_is_too_long_or_no_text_is_refused(name: str) -> None:
    area = Area()
    for operation in (Put(name, b"1"), Get(name)):
        area.fails(operation, "name")
    Area(name=name).fails(Append(ABC), "name")
    assert area.do(Names()) == NamesFound(())


STEPS = st.one_of(
    st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=3)), max_size=3).map(tuple),
    st.integers(0, 30).map(Trim),
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 5)).map(lambda parts: Read(*parts)),
)


@given(st.lists(STEPS, max_size=30))
def test_a_log_is_a_list_whose_beginning_is_forgotten(steps: list[object]) -> None:
    area, kept, last = Area(), list[tuple[int, bytes]](), 0
    for step in steps:
        match step:
            case Trim(upto):
                assert area.do(step) == Stored()
                kept = [entry for entry in kept if entry[0] > upto]
            case Read(first, end, count):
                found = [entry for entry in kept if first <= entry[0] <= end]
                assert area.do(step) == Entries(tuple(found[:count]), len(found) <= count)
            case tuple():
                entries = list[tuple[int, bytes]]()
                for gap, data in step:
                    last += gap
                    entries.append((last, data))
                assert area.do(Append(tuple(entries))) == Appended()
                kept += entries
    size = sum(len(data) for _, data in kept)
    assert area.do(Extent()) == LogExtent(kept[0][0] if kept else 0, last, size, len(kept))
    area.store.reopen()
    assert area.log() == Entries(tuple(kept), True)


# Questions.


def test_no_two_questions_of_a_node_share_a_ticket_and_each_belongs_to_its_service_once() -> None:
    tickets = StorageTickets()
    first, second = ServiceStorage("first", tickets), ServiceStorage("second", tickets)
    asks = [first.ask(Get("x")), second.ask(Get("x"), "orders/0"), first.ask(Get("y"))]
    assert asks == [Ask(1, "first", Get("x")), Ask(2, "second/orders/0", Get("x")), Ask(3, "first", Get("y"))]
    assert len(tickets) == 3
    assert [tickets.owner(ticket) for ticket in (2, 3, 1)] == ["second", "first", "first"]
    assert len(tickets) == 0
    with pytest.raises(KeyError):
        tickets.owner(2)

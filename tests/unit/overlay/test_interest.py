"""Interest: our subscriptions become numbered changes; another broker's changes and snapshots become its set again."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode

from penstock.content.bloom import EncodingScheme
from penstock.content.filter_bytes import FILTER_BYTES_MAX, filter_bytes, filter_from_bytes
from penstock.content.predicate import Equals, Filter, Like, OneOf, Range
from penstock.errors import InvalidEncoding
from penstock.overlay.interest import ENTRIES_PER_PACKET, OwnInterest, ReadEntry, RemoteInterest, read_entries, snapshot
from penstock.overlay.interest_form import EncodedForm, ExactForm
from penstock.overlay.packets import Interest

ORIGIN = 3


def as_entry(number: int) -> bytes:
    return filter_bytes(Filter((Equals("n", number),)))


def as_entries(numbers: Iterable[int]) -> tuple[bytes, ...]:
    return tuple(map(as_entry, numbers))


def an_own() -> OwnInterest:
    return OwnInterest(ORIGIN, 1, ExactForm())


def a_remote() -> RemoteInterest:
    return RemoteInterest(ORIGIN, ExactForm())


def read(numbers: Iterable[int]) -> list[ReadEntry]:
    return read_entries(as_entries(numbers), ExactForm())


def apply(remote: RemoteInterest, packet: Interest) -> tuple[Interest, ...]:
    return remote.apply(packet, read_entries(packet.added, remote._form))


def a_snapshot(version: int, numbers: Iterable[int]) -> list[Interest]:
    return snapshot(ORIGIN, 1, version, list(as_entries(numbers)))


def change(base: int, added: tuple[int, ...] = (), removed: tuple[int, ...] = ()) -> Interest:
    return Interest(ORIGIN, 1, base, base + 1, as_entries(added), as_entries(removed))


def state(remote: RemoteInterest) -> tuple[int, list[int], int]:
    """The version, the numbers that are wanted, and how many pairs the index holds."""
    return remote.version, sorted(map(number_of, remote.announced())), len(remote._form)


def number_of(entry: bytes) -> int:
    (constraint,) = filter_from_bytes(entry).constraints
    assert isinstance(constraint, Equals)
    return int(constraint.value)


def test_nothing_wanted_is_nothing_announced() -> None:
    assert list(an_own().changes()) == []


def test_a_subscription_is_announced_once_however_many_have_it() -> None:
    own = an_own()
    own.want(read([5, 6]))
    own.want(read([5]))
    assert list(own.changes()) == [change(0, (5, 6))]
    own.want(read([5]))
    assert list(own.changes()) == []


def test_a_subscription_is_withdrawn_with_the_last_who_had_it() -> None:
    own = an_own()
    own.want(read([5]))
    own.want(read([5]))
    list(own.changes())
    own.unwant(as_entries([5]))
    assert list(own.changes()) == []
    own.unwant(as_entries([5]))
    assert list(own.changes()) == [change(1, (), (5,))]
    assert len(own) == 0


def test_a_subscription_that_comes_and_goes_before_it_is_announced_costs_nothing() -> None:
    own = an_own()
    own.want(read([5]))
    own.unwant(as_entries([5]))
    assert list(own.changes()) == []
    assert own.version == 0


def test_a_change_too_large_for_a_packet_becomes_several_versions() -> None:
    own = an_own()
    own.want(read(range(ENTRIES_PER_PACKET + 1)))
    assert [(packet.base, packet.version, len(packet.added)) for packet in own.changes()] == [
        (0, 1, ENTRIES_PER_PACKET),
        (1, 2, 1),
    ]


def test_a_change_moves_the_set_on_and_is_news() -> None:
    remote = a_remote()
    first, second = change(0, (1, 2)), change(1, (3,), (1,))
    assert apply(remote, first) == (first,)
    assert apply(remote, second) == (second,)
    assert state(remote) == (2, [2, 3], 2)


def test_a_change_seen_before_is_no_news() -> None:
    remote = a_remote()
    apply(remote, change(0, (1,)))
    assert apply(remote, change(0, (1,))) == ()


def test_a_change_after_a_gap_is_ignored() -> None:
    remote = a_remote()
    apply(remote, change(0, (1,)))
    before = state(remote)
    assert apply(remote, change(5, (9,))) == ()
    assert state(remote) == before


def test_a_snapshot_replaces_the_set() -> None:
    remote = a_remote()
    apply(remote, change(0, (1, 2)))
    parts = a_snapshot(7, [2, 3])
    assert apply(remote, parts[0]) == tuple(parts)
    assert state(remote) == (7, [2, 3], 2)


def test_an_empty_snapshot_empties_the_set() -> None:
    remote = a_remote()
    apply(remote, change(0, (1, 2)))
    apply(remote, a_snapshot(7, [])[0])
    assert state(remote) == (7, [], 0)


def test_a_snapshot_in_parts_counts_only_when_it_is_whole_in_any_order() -> None:
    parts = a_snapshot(9, range(3 * ENTRIES_PER_PACKET))
    assert len(parts) == 3
    remote = a_remote()
    apply(remote, change(0, (10**6,)))
    assert apply(remote, parts[2]) == ()
    assert apply(remote, parts[0]) == ()
    assert state(remote) == (1, [10**6], 1)
    assert apply(remote, parts[1]) == tuple(parts)
    assert state(remote) == (9, list(range(3 * ENTRIES_PER_PACKET)), 3 * ENTRIES_PER_PACKET)


def test_a_part_that_was_lost_can_come_with_the_next_try() -> None:
    parts = a_snapshot(9, range(3 * ENTRIES_PER_PACKET))
    remote = a_remote()
    for part in (parts[0], parts[2], parts[0]):
        assert apply(remote, part) == ()
    assert apply(remote, parts[1]) == tuple(parts)


def test_parts_of_different_versions_are_not_mixed() -> None:
    old, new = a_snapshot(9, range(200)), a_snapshot(10, range(300, 500))
    remote = a_remote()
    apply(remote, old[0])
    apply(remote, new[0])
    assert apply(remote, old[1]) == ()
    assert remote.version == 0
    apply(remote, new[1])
    assert state(remote) == (10, list(range(300, 500)), 200)


def test_a_change_on_the_way_of_a_snapshot_makes_its_parts_obsolete() -> None:
    remote = a_remote()
    apply(remote, change(0, (1,)))
    parts = a_snapshot(2, range(200))
    apply(remote, parts[0])
    apply(remote, change(1, (2,)))
    assert apply(remote, parts[1]) == ()
    assert state(remote) == (2, [1, 2], 2)


BAD = {
    "nonsense": b"short",
    "another order": encode((Equals("b", 1), Equals("a", 1))),
    "twice": encode((Equals("n", 1), Equals("n", 1))),
    "never true": encode((Equals("n", 1), Equals("n", 2))),
    "a float for an integer": encode((Equals("n", 1.0),)),
    "no name": encode((Equals("", 1),)),
    "a list of one": encode((OneOf("n", (1,)),)),
    "infinite": encode((Range("n", math.inf, None),)),
    "two classes": encode((Range("n", 1, "x"),)),
    "a pattern that ends in its escape": encode((Like("n", "x" + chr(92)),)),
    "too long": encode((Equals("n", "x" * FILTER_BYTES_MAX),)),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_entry_changes_nothing(bad: bytes) -> None:
    remote = a_remote()
    apply(remote, change(0, (1,)))
    before = state(remote)
    for packet in (Interest(ORIGIN, 1, 1, 2, (as_entry(7), bad)), Interest(ORIGIN, 1, 0, 9, (as_entry(7), bad))):
        with pytest.raises(InvalidEncoding):
            apply(remote, packet)
        assert state(remote) == before


def test_removing_what_was_never_there_removes_nothing() -> None:
    remote = a_remote()
    apply(remote, change(0, (1,)))
    apply(remote, Interest(ORIGIN, 1, 1, 2, (), (b"nonsense",)))
    assert state(remote) == (2, [1], 1)


def test_an_encoding_of_a_wrong_size_or_too_full_changes_nothing() -> None:
    scheme = EncodingScheme()
    remote = RemoteInterest(ORIGIN, EncodedForm(scheme))
    for bad in (b"short", b"\xff" * (scheme.bits // 8)):
        with pytest.raises(InvalidEncoding):
            apply(remote, Interest(ORIGIN, 1, 0, 1, (scheme.to_bytes(7), bad)))
    assert len(remote) == remote.version == 0


def test_clear_forgets_everything_even_half_a_snapshot() -> None:
    remote = a_remote()
    apply(remote, change(0, (1,)))
    parts = a_snapshot(9, range(200))
    apply(remote, parts[0])
    remote.clear()
    assert state(remote) == (0, [], 0)
    assert apply(remote, parts[1]) == ()


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=6), max_size=12), st.data())
def test_whatever_is_lost_a_listener_agrees_after_the_next_snapshot(
    batches: list[list[tuple[bool, int]]], data: st.DataObject
) -> None:
    own, remote = an_own(), a_remote()
    wanted: list[int] = []
    for batch in batches:
        for more, encoding in batch:
            if more:
                own.want(read([encoding]))
                wanted.append(encoding)
            elif encoding in wanted:
                own.unwant(as_entries([encoding]))
                wanted.remove(encoding)
        for packet in own.changes():
            if data.draw(st.booleans()):
                apply(remote, packet)
        assert sorted(map(number_of, own.announced())) == sorted(set(wanted))
    if own.version:
        for packet in snapshot(ORIGIN, 1, own.version, own.announced()):
            apply(remote, packet)
    assert state(remote) == (own.version, sorted(set(wanted)), len(set(wanted)))

"""Interest: our subscriptions become numbered changes; another broker's changes and snapshots become its set again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.bloom import EncodingScheme
from penstock.content.matching.encoded_index import EncodingIndex
from penstock.errors import InvalidEncoding
from penstock.overlay.interest import ENCODINGS_PER_PACKET, OwnInterest, RemoteInterest, snapshot
from penstock.overlay.packets import Interest

SCHEME = EncodingScheme()
ORIGIN = 3


def an_own() -> OwnInterest:
    return OwnInterest(ORIGIN, 1, SCHEME)


def a_remote() -> RemoteInterest:
    return RemoteInterest(ORIGIN, EncodingIndex(bits=SCHEME.bits), SCHEME)


def a_snapshot(version: int, encodings: range | list[int]) -> list[Interest]:
    return snapshot(ORIGIN, 1, version, list(encodings), SCHEME)


def change(base: int, added: tuple[int, ...] = (), removed: tuple[int, ...] = ()) -> Interest:
    def as_bytes(encodings: tuple[int, ...]) -> tuple[bytes, ...]:
        return tuple(SCHEME.to_bytes(encoding) for encoding in encodings)

    return Interest(ORIGIN, 1, base, base + 1, as_bytes(added), as_bytes(removed))


def state(remote: RemoteInterest) -> tuple[int, list[int], int]:
    return remote.version, sorted(remote.announced()), len(remote._index)


def test_nothing_wanted_is_nothing_announced() -> None:
    assert list(an_own().changes()) == []


def test_a_subscription_is_announced_once_however_many_have_it() -> None:
    own = an_own()
    own.want([5, 6])
    own.want([5])
    assert list(own.changes()) == [change(0, (5, 6))]
    own.want([5])
    assert list(own.changes()) == []


def test_a_subscription_is_withdrawn_with_the_last_who_had_it() -> None:
    own = an_own()
    own.want([5])
    own.want([5])
    list(own.changes())
    own.unwant([5])
    assert list(own.changes()) == []
    own.unwant([5])
    assert list(own.changes()) == [change(1, (), (5,))]
    assert len(own) == 0


def test_a_subscription_that_comes_and_goes_before_it_is_announced_costs_nothing() -> None:
    own = an_own()
    own.want([5])
    own.unwant([5])
    assert list(own.changes()) == []
    assert own.version == 0


def test_a_change_too_large_for_a_packet_becomes_several_versions() -> None:
    own = an_own()
    own.want(range(ENCODINGS_PER_PACKET + 1))
    assert [(packet.base, packet.version, len(packet.added)) for packet in own.changes()] == [
        (0, 1, ENCODINGS_PER_PACKET),
        (1, 2, 1),
    ]


def test_a_change_moves_the_set_on_and_is_news() -> None:
    remote = a_remote()
    first, second = change(0, (1, 2)), change(1, (3,), (1,))
    assert remote.apply(first) == (first,)
    assert remote.apply(second) == (second,)
    assert state(remote) == (2, [2, 3], 2)


def test_a_change_seen_before_is_no_news() -> None:
    remote = a_remote()
    remote.apply(change(0, (1,)))
    assert remote.apply(change(0, (1,))) == ()


def test_a_change_after_a_gap_is_ignored() -> None:
    remote = a_remote()
    remote.apply(change(0, (1,)))
    before = state(remote)
    assert remote.apply(change(5, (9,))) == ()
    assert state(remote) == before


def test_a_snapshot_replaces_the_set() -> None:
    remote = a_remote()
    remote.apply(change(0, (1, 2)))
    parts = a_snapshot(7, [2, 3])
    assert remote.apply(parts[0]) == tuple(parts)
    assert state(remote) == (7, [2, 3], 2)


def test_an_empty_snapshot_empties_the_set() -> None:
    remote = a_remote()
    remote.apply(change(0, (1, 2)))
    remote.apply(a_snapshot(7, [])[0])
    assert state(remote) == (7, [], 0)


def test_a_snapshot_in_parts_counts_only_when_it_is_whole_in_any_order() -> None:
    parts = a_snapshot(9, range(3 * ENCODINGS_PER_PACKET))
    assert len(parts) == 3
    remote = a_remote()
    remote.apply(change(0, (10**6,)))
    assert remote.apply(parts[2]) == ()
    assert remote.apply(parts[0]) == ()
    assert state(remote) == (1, [10**6], 1)
    assert remote.apply(parts[1]) == tuple(parts)
    assert state(remote) == (9, list(range(3 * ENCODINGS_PER_PACKET)), 3 * ENCODINGS_PER_PACKET)


def test_a_part_that_was_lost_can_come_with_the_next_try() -> None:
    parts = a_snapshot(9, range(3 * ENCODINGS_PER_PACKET))
    remote = a_remote()
    for part in (parts[0], parts[2], parts[0]):
        assert remote.apply(part) == ()
    assert remote.apply(parts[1]) == tuple(parts)


def test_parts_of_different_versions_are_not_mixed() -> None:
    old, new = a_snapshot(9, range(200)), a_snapshot(10, range(300, 500))
    remote = a_remote()
    remote.apply(old[0])
    remote.apply(new[0])
    assert remote.apply(old[1]) == ()
    assert remote.version == 0
    remote.apply(new[1])
    assert state(remote) == (10, list(range(300, 500)), 200)


def test_a_change_on_the_way_of_a_snapshot_makes_its_parts_obsolete() -> None:
    remote = a_remote()
    remote.apply(change(0, (1,)))
    parts = a_snapshot(2, range(200))
    remote.apply(parts[0])
    remote.apply(change(1, (2,)))
    assert remote.apply(parts[1]) == ()
    assert state(remote) == (2, [1, 2], 2)


@pytest.mark.parametrize("bad", [b"short", b"\xff" * (SCHEME.bits // 8)], ids=["wrong size", "too full"])
def test_a_bad_encoding_changes_nothing(bad: bytes) -> None:
    remote = a_remote()
    remote.apply(change(0, (1,)))
    before = state(remote)
    good = SCHEME.to_bytes(7)
    for packet in (
        Interest(ORIGIN, 1, 1, 2, (good, bad)),
        Interest(ORIGIN, 1, 1, 2, (good,), (bad,)),
        Interest(ORIGIN, 1, 0, 9, (good, bad)),
    ):
        with pytest.raises(InvalidEncoding):
            remote.apply(packet)
        assert state(remote) == before


def test_clear_forgets_everything_even_half_a_snapshot() -> None:
    remote = a_remote()
    remote.apply(change(0, (1,)))
    parts = a_snapshot(9, range(200))
    remote.apply(parts[0])
    remote.clear()
    assert state(remote) == (0, [], 0)
    assert remote.apply(parts[1]) == ()


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=6), max_size=12), st.data())
def test_whatever_is_lost_a_listener_agrees_after_the_next_snapshot(
    batches: list[list[tuple[bool, int]]], data: st.DataObject
) -> None:
    own, remote = an_own(), a_remote()
    wanted: list[int] = []
    for batch in batches:
        for more, encoding in batch:
            if more:
                own.want([encoding])
                wanted.append(encoding)
            elif encoding in wanted:
                own.unwant([encoding])
                wanted.remove(encoding)
        for packet in own.changes():
            if data.draw(st.booleans()):
                remote.apply(packet)
        assert sorted(own.announced()) == sorted(set(wanted))
    if own.version:
        for packet in snapshot(ORIGIN, 1, own.version, own.announced(), SCHEME):
            remote.apply(packet)
    assert state(remote) == (own.version, sorted(set(wanted)), len(set(wanted)))

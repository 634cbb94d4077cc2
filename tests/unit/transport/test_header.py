"""The transport's header: bytes and back in both forms, sizes, and everything that is refused."""

from __future__ import annotations

from math import inf, nan
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.bloom import positions
from penstock.content.message import Value
from penstock.errors import InvalidHeader
from penstock.transport.config import RECORD_ENTRIES_TAKEN_MAX, papers_config
from penstock.transport.wire.flow_fields import FURTHER_MAX, Control, Followed
from penstock.transport.wire.header import (
    AGE_MAX,
    HEARTBEATS,
    SEQUENCE_MAX,
    SHARED,
    VERSION,
    Header,
    decode_header,
    encode_header,
    needs_own_bits,
    shared_entry,
    whole_entry,
)

FIXED_BYTES = 22
ENTRY_BYTES = st.sampled_from([8, 16, 32, 64, 128])


@st.composite
def records(draw: st.DrawFn) -> tuple[int, list[int], list[float], int]:
    """Bytes of an entry, the encodings newest first, their ages, and the encoding of the message itself."""
    entry_bytes = draw(ENTRY_BYTES)
    sparse = st.lists(st.integers(0, entry_bytes * 8 - 1), max_size=12).map(
        lambda bits: sum(1 << bit for bit in set(bits))
    )
    encoding = sparse | st.integers(0, (1 << entry_bytes * 8) - 1)
    encodings = draw(st.lists(encoding, max_size=8))
    steps = draw(st.lists(st.floats(0, 100), min_size=len(encodings), max_size=len(encodings)))
    ages = [sum(steps[: place + 1]) for place in range(len(steps))]
    return entry_bytes, encodings, ages, draw(encoding)


def written(encodings: list[int], own: int, entry_bytes: int, *, shared: bool) -> list[bytes]:
    if not shared:
        return [whole_entry(encoding, entry_bytes) for encoding in encodings]
    following = [own, *encodings][: len(encodings)]
    return [shared_entry(one, after, entry_bytes) for one, after in zip(encodings, following, strict=True)]


@given(records(), st.booleans(), st.integers(0, 1000), st.floats(-1e12, 1e12))
def test_a_record_comes_back_as_it_was(
    record: tuple[int, list[int], list[float], int], shared: bool, more: int, departure: float
) -> None:
    entry_bytes, encodings, ages, own = record
    entries = written(encodings, own, entry_bytes, shared=shared)
    sequence = len(encodings) + 1 + more
    data = encode_header(
        sequence, departure, ages, entries, flags=SHARED if shared else HEARTBEATS, entry_bytes=entry_bytes
    )
    assert needs_own_bits(data) == shared
    header = decode_header(data, own, entry_bits=entry_bytes * 8)
    assert (header.sequence, header.departure, header.heartbeats) == (sequence, departure, not shared)
    assert header.record_size == len(encodings)
    assert header.entries() == tuple(encodings)
    assert header.ages == pytest.approx(ages, abs=1e-6)


HASHES = st.integers(1, 0xFFFFFFFF)
FOLLOWED = st.builds(Followed, HASHES, st.floats(0, 60), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF))


@given(st.lists(FOLLOWED, max_size=1 + FURTHER_MAX), st.floats(0, 1e6, width=32))
def test_what_congestion_control_says_comes_back(flows: list[Followed], rate: float) -> None:
    control = Control(rate, *flows[0], tuple(flows[1:])) if flows else Control(rate)
    data = encode_header(7, 1.0, [0.5], [bytes(32)], flags=HEARTBEATS, entry_bytes=32, control=control)
    assert len(data) == FIXED_BYTES + 18 + 14 * max(0, len(flows) - 1) + 4 + 32
    header = decode_header(data, 0, entry_bits=256)
    assert header.heartbeats
    assert header.control is not None
    assert header.control.rate == rate
    assert header.control.names_all == (len(flows) <= FURTHER_MAX)
    for came, sent in zip(header.control.followed, flows, strict=True):
        assert came._replace(travel=0.0) == sent._replace(travel=0.0)
        assert came.travel == pytest.approx(sent.travel, abs=1e-6)


def test_further_flows_without_congestion_control_are_refused() -> None:
    data = bytearray(encode_header(7, 1.0, [0.5], [bytes(32)], flags=0, entry_bytes=32))
    data[1] |= 1 << 6
    with pytest.raises(InvalidHeader):
        decode_header(bytes(data), 0, entry_bits=256)


@given(records())
def test_a_shared_entry_is_at_most_one_byte_longer_than_a_whole_one(
    record: tuple[int, list[int], list[float], int],
) -> None:
    entry_bytes, encodings, _, own = record
    assert all(len(entry) <= entry_bytes + 1 for entry in written(encodings, own, entry_bytes, shared=True))


def test_the_sizes_are_those_of_the_papers() -> None:
    """Erratum B3: 5 entries of 16 bytes are 80 bytes, 25 are 400, 10 of 32 bytes are 320; times come on top."""
    for entries, entry_bytes, expected in ((5, 16, 80), (25, 16, 400), (10, 32, 320)):
        data = encode_header(
            100, 0.0, [0.0] * entries, [bytes(entry_bytes)] * entries, flags=0, entry_bytes=entry_bytes
        )
        assert len(data) == FIXED_BYTES + 4 * entries + expected


@pytest.mark.parametrize(
    ("attributes", "most"),
    [
        ({"symbol": "IBM", "price": 119.5, "exchange": "NYSE", "volume": 100}, 11),
        ({"symbol": "IBM", "price": 119.5}, 11),
    ],
)
def test_neighbours_that_share_values_make_short_entries(attributes: dict[str, Value], most: int) -> None:
    """One attribute of several changes from message to message: five bits go, five come."""
    scheme = papers_config().encoding
    lengths = []
    for price in range(50):
        one = scheme.encode_message({**attributes, "price": float(price)})
        after = scheme.encode_message({**attributes, "price": float(price + 1)})
        lengths.append(len(shared_entry(one, after, 32)))
    assert max(lengths) <= most, "of the 32 bytes of a whole one"


def test_equal_neighbours_cost_one_byte() -> None:
    assert shared_entry(0b1011, 0b1011, 32) == b"\x00"
    assert shared_entry(0, 0, 32) == b"\x00"


def test_ages_beyond_what_fits_and_below_nothing_are_clamped() -> None:
    data = encode_header(9, 0.0, [-1.0, 1e9], [bytes(8)] * 2, flags=0, entry_bytes=8)
    assert decode_header(data, 0, entry_bits=64).ages == (0.0, AGE_MAX * 1e-6)


def test_basic_mode_has_one_age_and_no_entries() -> None:
    header = decode_header(encode_header(2, 5.0, [0.25], [], flags=0, entry_bytes=32), 0, entry_bits=256)
    assert (header.record_size, header.ages, header.entries()) == (0, (0.25,), ())
    assert decode_header(encode_header(1, 5.0, [], [], flags=0, entry_bytes=32), 0, entry_bits=256).ages == ()


def test_who_has_no_record_understands_any_size_of_entries_that_are_not_there() -> None:
    """In basic mode the bits of an entry do not matter."""
    assert decode_header(encode_header(2, 5.0, [0.25], [], flags=0, entry_bytes=16), 0, entry_bits=256).sequence == 2


def test_a_header_made_in_memory_says_the_same() -> None:
    header = Header(7, 1.0, (0.1,), entries=(5,))
    assert (header.record_size, header.entries()) == (1, (5,))


def forged(
    *,
    version: int = VERSION,
    flags: int = 0,
    sequence: int = 10,
    departure: float = 1.0,
    hops: int = 0,
    ages: tuple[int, ...] = (5, 9),
    entries: int = 2,
    entry_bytes: int = 8,
    rest: bytes = bytes(16),
    says_ages: int | None = None,
) -> bytes:
    count = len(ages) if says_ages is None else says_ages
    fixed = pack("<BBQdBBBB", version, flags, sequence, departure, hops, count, entries, entry_bytes)
    return fixed + pack(f"<{len(ages)}I", *ages) + rest


FORGERIES = {
    "nothing": b"",
    "cut in the fixed part": forged()[:21],
    "cut in the times": forged()[:25],
    "cut in the entries": forged()[:-1],
    "a byte too many": forged() + b"\0",
    "another version": forged(version=2),
    "an unknown flag": forged(flags=4),
    "number zero": forged(sequence=0),
    "a number beyond all": forged(sequence=SEQUENCE_MAX + 1),
    "a departure that is no number": forged(departure=nan),
    "an endless departure": forged(departure=inf),
    "more entries than messages before it": forged(sequence=2),
    "too many entries": forged(sequence=1000, ages=(1,) * 200, entries=200, rest=bytes(1600)),
    "more entries than times": forged(ages=(1,)),
    "more times than entries": forged(ages=(1, 2, 3)),
    "several times and no entries": forged(ages=(1, 2), entries=0, rest=b""),
    "entries of another size": forged(entry_bytes=16, rest=bytes(32)),
    "entries of no size": forged(entry_bytes=0, rest=b""),
    "times that run backwards": forged(ages=(9, 5)),
    "times that are not there": forged(says_ages=200, entries=100),
    "a shared entry that is not there": forged(flags=SHARED, rest=b"\0"),
    "a shared entry of an unknown kind": forged(flags=SHARED, rest=b"\x81\0"),
    "a shared list that is cut off": forged(flags=SHARED, rest=b"\0\x05abc"),
    "a shared bit beyond the last": forged(flags=SHARED, rest=b"\0\x01\x40"),
    "shared entries with a byte too many": forged(flags=SHARED, rest=b"\0\0\0"),
    "a raw shared entry that is cut off": forged(flags=SHARED, rest=b"\0\x80" + bytes(7)),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_nobody_would_have_written_is_refused(name: str) -> None:
    with pytest.raises(InvalidHeader) as caught:
        decode_header(FORGERIES[name], 0, entry_bits=64)
    assert str(caught.value).strip()


def test_the_forgeries_differ_from_a_good_header_in_one_thing_only() -> None:
    assert decode_header(forged(), 0, entry_bits=64).sequence == 10
    assert decode_header(forged(flags=SHARED, rest=b"\0\x01\x3f"), 0, entry_bits=64).entries() == (0, 1 << 63)


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_any_bytes_are_a_header_or_refused(data: bytes, own_bits: int) -> None:
    try:
        header = decode_header(data, own_bits, entry_bits=64)
    except InvalidHeader:
        return
    assert header.record_size <= RECORD_ENTRIES_TAKEN_MAX
    assert all(encoding < 1 << 64 for encoding in header.entries())


@given(records(), st.booleans(), st.data())
def test_a_damaged_header_is_refused_or_still_holds_together(
    record: tuple[int, list[int], list[float], int], shared: bool, data: st.DataObject
) -> None:
    entry_bytes, encodings, ages, own = record
    entries = written(encodings, own, entry_bytes, shared=shared)
    good = encode_header(9, 1.0, ages, entries, flags=int(shared), entry_bytes=entry_bytes)
    place = data.draw(st.integers(0, len(good) - 1))
    bad = good[:place] + bytes([data.draw(st.integers(0, 255))]) + good[place + 1 :]
    try:
        header = decode_header(bad, own, entry_bits=entry_bytes * 8)
    except InvalidHeader:
        return
    assert len(header.entries()) == header.record_size < header.sequence
    assert all(encoding >> entry_bytes * 8 == 0 for encoding in header.entries())
    assert list(header.ages) == sorted(header.ages)


@given(st.integers(0, 2**256 - 1))
def test_positions_are_where_the_ones_are(encoding: int) -> None:
    assert sum(1 << place for place in positions(encoding)) == encoding
    assert positions(encoding) == sorted(positions(encoding))

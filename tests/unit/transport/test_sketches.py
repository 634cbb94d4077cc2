"""Sketches: codes are in the order of values, and a predicate never says no of a message that matches."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, make_message
from penstock.errors import InvalidHeader
from penstock.transport.ledgers.ledger import UNIT_MAX, decode_ledger, make_ledger
from penstock.transport.ledgers.packed_numbers import PackedNumbers, pack_numbers, unpack_numbers
from penstock.transport.ledgers.sketch import (
    LEDGER_BITS,
    RECORD_BITS,
    columns_of,
    common_columns,
    ledger_codes,
    number_code,
    number_codes,
    record_codes,
)
from penstock.transport.ledgers.sketch_predicate import CANNOT_TELL, NO, YES, SketchPredicate, text_columns
from penstock.transport.ledgers.version import VERSION_BYTE

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-300, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1000, 1000).map(lambda value: round(value, 2)),
    st.sampled_from([0.0, -0.0, 0.5, 1e39, -1e39, 5e-324]),
)
TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "x%", "it''s"])
VALUES = st.one_of(NUMBERS, TEXTS, st.booleans())
MESSAGES = st.dictionaries(st.sampled_from("xyz"), VALUES)


def written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else repr(value)


LITERALS = VALUES.map(written)
NAMES = st.sampled_from("xyz")
CONSTRAINTS = st.one_of(
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), LITERALS),
    st.builds("{} IN ({}, {})".format, NAMES, LITERALS, LITERALS),
    st.builds("{} BETWEEN {} AND {}".format, NAMES, NUMBERS.map(written), NUMBERS.map(written)),
    st.builds("{} {}LIKE {}".format, NAMES, st.sampled_from(["", "NOT "]), st.sampled_from(["'a%'", "'%b'", "'_b_'"])),
    st.builds("{} IS {}NULL".format, NAMES, st.sampled_from(["", "NOT "])),
)
PREDICATES = st.recursive(
    CONSTRAINTS,
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    ),
    max_leaves=5,
)


@given(st.lists(NUMBERS, min_size=2, max_size=20), st.sampled_from([RECORD_BITS, LEDGER_BITS]))
@settings(max_examples=150, deadline=None)
def test_codes_are_in_the_order_of_numbers(values, bits):
    codes = [number_code(value, bits) for value in sorted(values)]
    assert codes == sorted(codes)
    assert all(100 < code < (1 << bits) - 100 for code in codes), "there is room for what is no number"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
@settings(max_examples=100, deadline=None)
def test_many_numbers_have_the_codes_of_each(values):
    for bits in (RECORD_BITS, LEDGER_BITS):
        assert number_codes(np.array(values, float), bits).tolist() == [number_code(value, bits) for value in values]


def test_an_even_code_is_one_value():
    assert number_code(3, RECORD_BITS) % 2 == 0
    assert number_code(3.001, RECORD_BITS) == number_code(3, RECORD_BITS) + 1
    assert number_code(2.999, RECORD_BITS) < number_code(3, RECORD_BITS)
    assert number_code(0.0, RECORD_BITS) == number_code(-0.0, RECORD_BITS)


@given(PREDICATES, MESSAGES, MESSAGES)
@settings(max_examples=400, deadline=None)
def test_a_predicate_is_never_wrong_about_a_sketch(text, message, other):
    """Of a record, whose columns are another message's, and of a ledger of both."""
    predicate = parse_predicate(text)
    sketches = SketchPredicate(predicate.filters)
    columns = columns_of(other)
    check(predicate, message, sketches.form(columns, RECORD_BITS).verdict(record_codes(columns, message)))
    both = [message, other]
    shared, _, complete = common_columns(both, 64)
    codes = [ledger_codes(kind, [one.get(name) for one in both]).tolist() for name, kind in shared]
    form = sketches.form(shared, LEDGER_BITS, complete=complete)
    found = dict(form.verdicts(codes, [0, 1]))
    for place, one in enumerate(both):
        check(predicate, one, found.get(place, NO))
        assert form.verdict([column[place] for column in codes]) == found.get(place, NO)


def check(predicate, message, verdict):
    if predicate.matches(message):
        assert verdict != NO
    if verdict == YES:
        assert predicate.matches(message)


@pytest.mark.parametrize(
    ("where", "value", "verdict"),
    [
        ("x < 120", 119.5, YES),
        ("x < 120", 120, NO),
        ("x <= 120", 120, YES),
        ("x < 120.3", 120.29, CANNOT_TELL),
        ("x <> 3", 3, NO),
        ("x <> 3", 4, YES),
        ("x = 3", 3, YES),
        ("x = 3.001", 3.001, CANNOT_TELL),
        ("x = 'a'", "a", YES),
        ("x <> 'a'", "a", CANNOT_TELL),
        ("x LIKE 'a%'", "a", CANNOT_TELL),
        ("x < 5", "a", NO),
        ("x = TRUE", 1, NO),
        ("x IS NULL", 1, NO),
    ],
)
def test_what_a_record_says(where, value, verdict):
    columns = columns_of({"x": value})
    form = SketchPredicate(parse_predicate(where).filters).form(columns, RECORD_BITS)
    assert form.verdict(record_codes(columns, {"x": value})) == verdict


def test_texts_are_of_use_for_like_string_ranges_and_unequal_strings():
    predicate = parse_predicate("a LIKE 'x%' OR b < 'm' OR c <> 'z' OR d <> 4 OR e = 'q'")
    assert sorted(text_columns(predicate.filters)) == ["a", "b", "c"]


def test_a_ledger_with_texts_can_tell():
    messages = [
        (make_message(Identity("p", 1, count), {"t": text, "n": count}), 10.0 + count)
        for count, text in enumerate(["ab", "b"], 1)
    ]
    content = decode_ledger(make_ledger(1, 1, messages, texts={"t"}, last=2, sent_at=13.0))
    form = SketchPredicate(parse_predicate("t LIKE 'a%'").filters).form(content.columns, LEDGER_BITS, complete=True)
    assert form.verdicts(content, [0, 1]) == [(0, YES)]
    assert content.departures[0] == 11.0
    assert 12.0 <= content.departures[1] < 12.0 + UNIT_MAX * 1e-3, "rounded up"


def test_a_ledger_of_many_long_texts_can_be_read():
    contents = [
        {f"c{column:02}": f"{column:02}{number:05}" + "\U0001f600" * 57 for column in range(32)}
        for number in range(512)
    ]
    messages = [(make_message(Identity("p", 1, at + 1), content), 1.0) for at, content in enumerate(contents)]
    ledger = make_ledger(1, 1, messages, texts=set(contents[0]), last=512, sent_at=2.0)
    content = decode_ledger(ledger)
    assert content[0][7] == contents[7]["c00"]
    assert isinstance(content[31][7], int), "for this one there was no room"


@pytest.mark.parametrize("columns", [33, 100_000])
def test_a_ledger_of_too_many_columns_is_refused(columns):
    packed = msgspec.msgpack.encode((1, (0, 0, b""), [((5,), (0, 0, b""))] * columns))
    names = [f"n{column}" for column in range(columns)]
    with pytest.raises(InvalidHeader, match="length"):
        decode_ledger(VERSION_BYTE + msgspec.msgpack.encode((1, 1, 1, 1.0, 0, 0, names, True, packed)))
    with pytest.raises(InvalidHeader, match="length"):
        decode_ledger(VERSION_BYTE + msgspec.msgpack.encode((1, 1, 1, 1.0, 0, 0, names[:1], True, packed)))


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=50))
def test_packed_numbers_are_read_as_they_were_written(values):
    packed = pack_numbers(np.array(values, np.uint64))
    assert unpack_numbers(packed, len(values)).tolist() == values
    with pytest.raises(InvalidHeader):
        unpack_numbers(PackedNumbers(packed.least, packed.width, packed.bits + b"\0"), len(values))

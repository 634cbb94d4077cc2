"""Envelopes: what goes in comes out, sizes are those of the wire, and whatever is cut off is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import DATA, FLAG, HEADER_BYTES_MAX, control_message, kind_of, opened, wrap
from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS, Identity, Message, Value, make_message
from penstock.errors import InvalidMessage
from penstock.testing import a_message

values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
texts = st.text(st.characters(codec="utf-8"), max_size=20)
tables = st.dictionaries(texts.filter(lambda name: name != "" and not name.startswith("_")), values | texts, max_size=6)
identities = st.builds(Identity, texts, st.integers(0, 2**62), st.integers(0, 2**62))


@given(identities, tables, st.binary(max_size=50), st.binary(max_size=80))
def test_what_goes_in_comes_out(identity: Identity, attributes: dict[str, Value], body: bytes, header: bytes) -> None:
    message = make_message(identity, attributes, body)
    wrapped = wrap(message, header)
    assert kind_of(wrapped) == DATA
    assert opened(wrapped) == (header, message)


@given(identities, tables, st.binary(max_size=50), st.binary(max_size=80))
def test_an_envelope_is_as_large_as_a_message_made_from_its_parts(
    identity: Identity, attributes: dict[str, Value], body: bytes, header: bytes
) -> None:
    wrapped = wrap(make_message(identity, attributes, body), header)
    again = make_message(identity, wrapped.attributes, wrapped.body, reserved=True)
    assert wrapped.size_bytes == again.size_bytes, "a decoder counts again, and both must agree"


@given(identities, tables, st.binary(max_size=50), st.binary(max_size=80), st.sampled_from(["repair", "réponse"]))
def test_a_control_message_opens_like_data(
    identity: Identity, attributes: dict[str, Value], body: bytes, header: bytes, kind: str
) -> None:
    said = control_message(identity, kind, attributes, header, body)
    assert kind_of(said) == kind
    head, inside = opened(said)
    assert (head, inside.attributes, inside.body) == (header, attributes, body)


def test_brokers_see_the_same_content() -> None:
    """A predicate that matches the message matches its envelope, and the other way round."""
    message = a_message(1, {"symbol": "IBM", "price": 119.5})
    wrapped = wrap(message, b"header")
    for where in ("symbol = 'IBM' AND price < 120", "price > 120", "EXISTS symbol", "symbol IS NULL"):
        predicate = parse_predicate(where)
        assert predicate.matches(wrapped.attributes) == predicate.matches(message.attributes)


def test_a_message_without_an_envelope_has_no_kind() -> None:
    assert kind_of(a_message()) is None
    with pytest.raises(InvalidMessage):
        opened(a_message())


@pytest.mark.parametrize("flag", [1, True, 2.5])
def test_a_flag_that_is_no_text_is_no_kind(flag: Value) -> None:
    assert kind_of(Message(Identity("p", 1, 1), {FLAG: flag}, b"\0\0", 30)) is None


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x01", b"\x00\x05abcd", b"\xff\xff" + b"x" * 100])
def test_a_header_that_is_cut_off_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage, match="not all there"):
        opened(Message(Identity("p", 1, 1), {FLAG: DATA}, body, 30))


def test_a_message_with_all_its_attributes_taken_has_no_room_for_the_flag() -> None:
    full = a_message(1, {f"a{number}": number for number in range(DEFAULT_LIMITS.attributes_max)})
    with pytest.raises(InvalidMessage, match="at most 63"):
        wrap(full, b"")
    one_less = a_message(1, {f"a{number}": number for number in range(DEFAULT_LIMITS.attributes_max - 1)})
    assert opened(wrap(one_less, b"")) == (b"", one_less)


def test_a_body_or_a_header_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="body_bytes_max"):
        wrap(a_message(body=bytes(DEFAULT_LIMITS.body_bytes_max - 1)), b"")
    with pytest.raises(InvalidMessage, match="header"):
        wrap(a_message(), bytes(HEADER_BYTES_MAX + 1))
    just = a_message(body=bytes(DEFAULT_LIMITS.body_bytes_max - 2 - 10))
    assert opened(wrap(just, bytes(10)))[1] == just


def test_a_control_message_with_a_header_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="header"):
        control_message(Identity("~p", 1, 1), "repair", {}, bytes(HEADER_BYTES_MAX + 1))

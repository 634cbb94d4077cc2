"""Messages: what may be said, and that everything else is refused with the name of the limit."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.message import INTEGER_MAX, INTEGER_MIN, Identity, MessageLimits, make_message
from penstock.errors import InvalidMessage

IDENTITY = Identity("north", 1, 7)


def test_identity_reads_as_publisher_incarnation_count() -> None:
    assert str(IDENTITY) == "north/1/7"


def test_attributes_are_copied_so_the_caller_cannot_change_the_message() -> None:
    attributes = {"price": 1.5}
    message = make_message(IDENTITY, attributes)
    attributes["price"] = 9.9
    assert message.attributes == {"price": 1.5}


@pytest.mark.parametrize("value", [True, False, 0, INTEGER_MIN, INTEGER_MAX, -0.0, 1e308, "", "naïve", "x" * 4096])
def test_every_kind_of_value_is_taken(value: bool | int | float | str) -> None:
    assert make_message(IDENTITY, {"a": value}).attributes["a"] is value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_float_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InvalidMessage, match="finite"):
        make_message(IDENTITY, {"a": value})


@pytest.mark.parametrize("value", [INTEGER_MAX + 1, INTEGER_MIN - 1, 10**400])
def test_an_integer_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(InvalidMessage, match="64-bit"):
        make_message(IDENTITY, {"a": value})


@pytest.mark.parametrize("value", [None, b"x", [1], {"b": 1}, (1,), 1j])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidMessage, match="a value is a bool, int, float or str"):
        make_message(IDENTITY, {"a": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_must_be_a_string_with_characters(name: object) -> None:
    with pytest.raises(InvalidMessage, match="at least one character"):
        make_message(IDENTITY, {name: 1})  # type: ignore[dict-item]


def test_names_that_begin_with_an_underscore_are_reserved() -> None:
    with pytest.raises(InvalidMessage, match="reserved"):
        make_message(IDENTITY, {"_to": "me"})
    assert make_message(IDENTITY, {"_to": "me"}, reserved=True).attributes == {"_to": "me"}


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_a_lone_surrogate_is_refused_in_names_and_values(text: str) -> None:
    with pytest.raises(InvalidMessage, match="surrogate"):
        make_message(IDENTITY, {"a": text})
    with pytest.raises(InvalidMessage, match="surrogate"):
        make_message(IDENTITY, {text: 1})


@pytest.mark.parametrize(
    ("attributes", "body", "limit"),
    [
        ({f"a{i}": i for i in range(65)}, b"", "attributes_max"),
        ({"a" * 129: 1}, b"", "name_bytes_max"),
        ({"é" * 65: 1}, b"", "name_bytes_max"),
        ({"a": "x" * 4097}, b"", "string_bytes_max"),
        ({"a": "é" * 2049}, b"", "string_bytes_max"),
        ({}, b"x" * ((1 << 20) + 1), "body_bytes_max"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_the_limits_name(
    attributes: dict[str, int | str], body: bytes, limit: str
) -> None:
    with pytest.raises(InvalidMessage, match=limit):
        make_message(IDENTITY, attributes, body)


def test_everything_at_its_limit_is_taken() -> None:
    attributes = {f"{i:03}" + "n" * 125: "v" * 4096 for i in range(64)}
    assert len(make_message(IDENTITY, attributes, bytes(1 << 20)).attributes) == 64


def test_the_limits_can_be_set() -> None:
    with pytest.raises(InvalidMessage, match="body_bytes_max is 3"):
        make_message(IDENTITY, {}, b"four", limits=MessageLimits(body_bytes_max=3))


@pytest.mark.parametrize("wrong", ["a=1", None, [("a", 1)], 5])
def test_attributes_that_are_no_mapping_are_refused_with_advice(wrong: Any) -> None:
    with pytest.raises(InvalidMessage, match=f"the attributes are {type(wrong).__name__}; pass a dict, such as"):
        make_message(Identity("p", 1, 1), wrong)
    assert make_message(Identity("p", 1, 1), MappingProxyType({"a": 1})).attributes == {"a": 1}


def test_a_body_that_is_text_is_refused_with_advice() -> None:
    with pytest.raises(InvalidMessage, match="encode"):
        make_message(IDENTITY, {}, "text")  # type: ignore[arg-type]


@given(st.text(st.characters(codec="utf-8"), max_size=50), st.binary(max_size=50))
def test_the_size_grows_with_every_byte_of_content(text: str, body: bytes) -> None:
    empty = make_message(IDENTITY, {"a": ""}).size_bytes
    assert make_message(IDENTITY, {"a": text}, body).size_bytes == empty + len(text.encode()) + len(body)


def test_the_publishers_name_is_measured_in_bytes_too() -> None:
    assert make_message(Identity("é", 1, 1), {}).size_bytes == make_message(Identity("ee", 1, 1), {}).size_bytes
    with pytest.raises(InvalidMessage, match="surrogate"):
        make_message(Identity("\ud800", 1, 1), {})

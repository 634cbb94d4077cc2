"""A message: typed attributes, an opaque body, and one identity everywhere.

Attributes are what predicates see: booleans, 64-bit integers, finite floats and strings. The body is never looked
at. A message is made once, by `make_message`, which refuses whatever is over a limit; from then on every part may
rely on it, and nothing changes it.

The identity (publisher, incarnation, count) is given by the client library and is the same in every packet and
every trace record. Names that begin with `_` belong to Penstock itself (`_to` addresses an inbox).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from msgspec import Struct

from penstock.errors import InvalidMessage

Value = bool | int | float | str
Attributes = Mapping[str, Value]

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
RESERVED_PREFIX = "_"
INBOX = "_to"  # the attribute with the name of the client that a message is for


@dataclass(frozen=True, kw_only=True)
class MessageLimits:
    """Bounds on one message. Names and strings are measured in bytes of UTF-8, as they travel."""

    attributes_max: int = 64
    name_bytes_max: int = 128
    string_bytes_max: int = 4096
    body_bytes_max: int = 1 << 20


DEFAULT_LIMITS = MessageLimits()
SHAPES_MAX = 1_000
# The names of plain messages, with the bytes of a message of such names: anybody's, and those with reserved ones too.
_shapes: tuple[dict[tuple[str, ...], int], dict[tuple[str, ...], int]] = ({}, {})


class Identity(Struct, frozen=True, array_like=True, gc=False, order=True):
    """Who published it, in which life of that publisher, and the how-manieth it was (from 1)."""

    publisher: str
    incarnation: int
    count: int

    def __str__(self) -> str:
        return f"{self.publisher}/{self.incarnation}/{self.count}"


class Message(Struct, frozen=True, array_like=True, gc=False):
    """Content with attributes and a body. Make it with `make_message`. No message can be part of a cycle: gc=False."""

    identity: Identity
    attributes: dict[str, Value]
    body: bytes
    size_bytes: int  # on the wire, without any packet header; a decoder counts again and believes no peer


def make_message(
    identity: Identity,
    attributes: Attributes,
    body: bytes = b"",
    *,
    limits: MessageLimits = DEFAULT_LIMITS,
    reserved: bool = False,
) -> Message:
    """A checked message. `reserved=True` is for Penstock's own parts, which may use names that begin with `_`."""
    if not isinstance(attributes, dict) and not isinstance(attributes, Mapping):  # the first is the usual, and quick
        raise InvalidMessage(
            f"the attributes are {type(attributes).__name__}; pass a dict, such as {{'symbol': 'IBM'}}"
        )
    size = plain_size(identity, attributes, body, limits, reserved)
    if size:
        return Message(identity, dict(attributes), body, size)
    if len(attributes) > limits.attributes_max:
        raise InvalidMessage(f"{len(attributes)} attributes; the limit attributes_max is {limits.attributes_max}")
    if not isinstance(body, bytes):
        raise InvalidMessage(f"the body is {type(body).__name__}; pass bytes (text.encode() makes bytes of a string)")
    if len(body) > limits.body_bytes_max:
        raise InvalidMessage(f"the body has {len(body)} bytes; the limit body_bytes_max is {limits.body_bytes_max}")
    size = len(body) + 24 + _utf8_bytes(identity.publisher, "the publisher's name")
    for name, value in attributes.items():
        size += _checked_name_bytes(name, limits, reserved) + _checked_value_bytes(name, value, limits)
    return Message(identity, dict(attributes), body, size)


def plain_size(
    identity: Identity, attributes: Attributes, body: bytes, limits: MessageLimits, reserved: bool = False
) -> int:
    """The size of a message that is plainly within the limits; 0 if somebody must look closer.

    Nearly all messages are plain: their texts are ASCII. This loop runs for each attribute of each message, at clients
    and at brokers, so it is written flat, and its names, all together, are looked up among those that have been found
    plain before; what it does not say yes to, `make_message` checks step by step.
    """
    publisher = identity.publisher
    if len(attributes) > limits.attributes_max or body.__class__ is not bytes or len(body) > limits.body_bytes_max:
        return 0
    names = tuple(attributes)
    size = _shapes[reserved].get(names) or _shape_bytes(names, reserved)
    if not size or limits.name_bytes_max < DEFAULT_LIMITS.name_bytes_max or not publisher.isascii():
        return 0
    size += len(body) + len(publisher)
    string_max = limits.string_bytes_max
    for value in attributes.values():
        kind = value.__class__
        if kind is str:
            if not value.isascii() or len(value) > string_max:  # type: ignore[union-attr, arg-type]  # it is a string
                return 0
            size += 3 + len(value)  # type: ignore[arg-type]  # it is a string
        elif kind is int:
            if not INTEGER_MIN <= value <= INTEGER_MAX:  # type: ignore[operator]  # an integer
                return 0
            size += 9
        elif kind is float:
            if not isfinite(value):  # type: ignore[arg-type]  # a float
                return 0
            size += 9
        elif kind is bool:
            size += 1
        else:
            return 0
    return size


def _shape_bytes(names: tuple[str, ...], reserved: bool) -> int:
    """The bytes of a message of these names, but for publisher, values and body; 0 if one is not plain. Remembered."""
    size = 24
    for name in names:
        if name.__class__ is not str or not name.isascii() or not 0 < len(name) <= DEFAULT_LIMITS.name_bytes_max:
            return 0
        if name[0] == RESERVED_PREFIX and not reserved:
            return 0
        size += len(name) + 2
    known = _shapes[reserved]
    if len(known) >= SHAPES_MAX:
        known.clear()
    known[names] = size
    return size


def _checked_name_bytes(name: str, limits: MessageLimits, reserved: bool) -> int:
    if not isinstance(name, str) or not name:
        raise InvalidMessage(f"attribute name {name!r}: a name is a string of at least one character")
    if name.startswith(RESERVED_PREFIX) and not reserved:
        raise InvalidMessage(f"attribute name {name!r}: names that begin with '_' are reserved; choose another")
    size = _utf8_bytes(name, f"attribute name {name!r}")
    if size > limits.name_bytes_max:
        raise InvalidMessage(f"attribute name of {size} bytes; the limit name_bytes_max is {limits.name_bytes_max}")
    return size + 2


def _checked_value_bytes(name: str, value: Value, limits: MessageLimits) -> int:
    kind = type(value)
    if kind is str:
        assert isinstance(value, str)
        size = _utf8_bytes(value, f"attribute {name!r}")
        if size > limits.string_bytes_max:
            raise InvalidMessage(
                f"attribute {name!r} has {size} bytes; the limit string_bytes_max is {limits.string_bytes_max}"
            )
        return size + 3
    if kind is bool:
        return 1
    if kind is int:
        if not INTEGER_MIN <= value <= INTEGER_MAX:  # type: ignore[operator]  # kind says it is an integer
            raise InvalidMessage(f"attribute {name!r}: {value} does not fit a 64-bit integer")
        return 9
    if kind is float:
        if not isfinite(value):  # type: ignore[arg-type]  # kind says it is a float
            raise InvalidMessage(f"attribute {name!r} is {value}; a float must be finite: leave the attribute out")
        return 9
    raise InvalidMessage(f"attribute {name!r} is {kind.__name__}; a value is a bool, int, float or str")


def _utf8_bytes(text: str, what: str) -> int:
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidMessage(f"{what} holds a lone surrogate and has no UTF-8 form") from None

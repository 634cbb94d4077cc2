"""Filters as bytes: what brokers tell each other of what their clients want.

The bytes are the constraints of a filter in normal form, as MessagePack. `symbol = 'IBM' AND price < 120` takes 26
bytes, fewer than its text. Equal filters have equal bytes, because the normal form is canonical (`language.conjoin`);
bytes can therefore be compared and counted without being read.

Nothing that a peer sends is believed: `filter_from_bytes` takes only what `filter_bytes` could have made, so two
brokers never hold one filter under two names, and no filter holds values that a message cannot have. To read one, and
to match a message with it, has the same bounds as for a client's text.
"""

from __future__ import annotations

from math import isfinite

import msgspec

from penstock.content.language.budget import Budget
from penstock.content.language.conjoin import conjoin
from penstock.content.language.evaluate import gather, match_steps
from penstock.content.language.expression import conjunction
from penstock.content.language.parser import DEFAULT_PREDICATE_LIMITS
from penstock.content.message import DEFAULT_LIMITS, INTEGER_MAX, INTEGER_MIN, Value
from penstock.content.predicate import Constraint, Differs, Equals, Filter, Like, OneOf, Range, value_class
from penstock.errors import InvalidEncoding, InvalidPredicate

FILTER_BYTES_MAX = 16_384  # a text has at most 4,096 characters, but NOT IN repeats the name for each value
CONSTRAINTS_MAX = 1_024

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Constraint, ...])


def filter_bytes(selected: Filter) -> bytes:
    """The form on the wire of a filter in normal form."""
    return _encoder.encode(selected.constraints)


def filter_from_bytes(data: bytes) -> Filter:
    """The reverse, for bytes from a peer. Raises InvalidEncoding for whatever `filter_bytes` does not make."""
    if len(data) > FILTER_BYTES_MAX:
        raise InvalidEncoding(f"a filter of {len(data)} bytes; the limit FILTER_BYTES_MAX is {FILTER_BYTES_MAX}")
    try:
        constraints = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEncoding(f"no filter in these bytes: {error}") from None
    if len(constraints) > CONSTRAINTS_MAX or not all(map(_is_sound, constraints)):
        raise InvalidEncoding("a filter with a constraint that no text has")
    try:
        canonical = conjoin(constraints, Budget(DEFAULT_PREDICATE_LIMITS.steps_max))
        steps = match_steps(gather(conjunction(constraints)))
    except InvalidPredicate as error:
        raise InvalidEncoding(f"a filter that cannot be read: {error}") from None
    if canonical is None or _encoder.encode(canonical) != data:
        raise InvalidEncoding("a filter that is not in normal form")
    limit = DEFAULT_PREDICATE_LIMITS.match_steps_max
    if steps > limit:
        raise InvalidEncoding(f"a filter takes {steps} steps to match a message; the limit match_steps_max is {limit}")
    return Filter(constraints)


def _is_sound(constraint: Constraint) -> bool:
    if not 0 < len(constraint.name.encode()) <= DEFAULT_LIMITS.name_bytes_max:
        return False
    match constraint:
        case Equals() | Differs():
            return _is_value(constraint.value)
        case OneOf():
            return len(constraint.values) > 1 and all(map(_is_value, constraint.values))
        case Range():
            ends = [end for end in (constraint.low, constraint.high) if end is not None]
            return bool(ends) and all(map(_is_value, ends)) and len(set(map(value_class, ends))) == 1
        case Like():
            return len(constraint.escape) <= 1
    return True


def _is_value(value: Value) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return not isinstance(value, int) or INTEGER_MIN <= value <= INTEGER_MAX

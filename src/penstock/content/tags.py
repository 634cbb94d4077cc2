"""Tags: the features of messages and filters that Bloom bits stand for (002 section 3.2.6, erratum B2).

The contract is one sentence: if message m matches filter F, then tags(F) is a subset of tags(m). 002 leaves the choice
of tags open, and tags of values alone would break the contract for everything but equality. Here an attribute of a
message gives

    name                      it exists
    name=value                its value, by class; equal numbers give one tag, whatever their type
    name in an interval       for numbers: the dyadic intervals of widths 2^4, 2^8 and 2^12 that hold it
    name begins with          for strings: its first 2, 4 and 8 characters, as far as it has them

and a constraint asks for `name=value` if it is an equality; otherwise for `name`, and for the narrowest interval or
the longest beginning that all its values share, if there is one (a two-sided range, LIKE with a literal beginning, a
range of strings, IN). Missing asks for nothing: the absence of a tag cannot be asked for. A range that crosses the
border of two intervals has none in common with its values and must do with wider ones or with `name` alone; a union of
intervals cannot be written as a set of tags that a message must have.

An equality of a reserved name asks for `name` too. Hardly any message has an address (`_to`), but every client with a
transport asks for its own, and among so many equalities some would match by chance: with 758 clients one message in
twenty went where nobody wanted it, which was a quarter of what a full link carried.

A name such as `_b17` is reserved for a bit that is set in some other encoding (the transport's requests, erratum B6).
Its tags stand for that bit itself; hashing fifty of them, three bits each, would fill an encoding to the brim.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil, floor

from penstock.content.language.conjoin import constraint_class
from penstock.content.message import Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Filter,
    Like,
    Missing,
    OneOf,
    Range,
    value_class,
    value_key,
)
from penstock.content.relations import common_prefix

INTERVAL_LEVELS = (4, 8, 12)  # exponents of the widths, narrowest first
PREFIX_LENGTHS = (8, 4, 2)  # characters, narrowest first
OWN_PREFIX = "_"  # of all names that are reserved
BIT_PREFIX = "_b"  # of the names of bits

# A tag is bytes, ready for the hash: its kind, the name with its length before it, so that no other name and payload
# can give the same bytes, and the payload.
Tag = bytes
_EXISTENCE, _EQUALITY, _INTERVAL, _PREFIX = b"e", b"=", b"i", b"p"
_DIRECT = re.compile(rb"[e=ip](\d+):_b(\d{1,6})")


def is_wide(tag: Tag) -> bool:
    """Whether many values share it: an interval or a beginning."""
    return tag[:1] == _INTERVAL or tag[:1] == _PREFIX


def is_existence(tag: Tag) -> bool:
    """Whether it says no more than that the attribute is there."""
    return tag[:1] == _EXISTENCE


def direct_bit(tag: Tag) -> int | None:
    """The bit that the tag stands for, if its name is that of a bit."""
    found = _DIRECT.match(tag)
    if found is None or len(found[2]) != int(found[1]) - len(BIT_PREFIX):
        return None
    return int(found[2])


def existence_tag(name: str) -> Tag:
    """The attribute is there."""
    return _EXISTENCE + _name_part(name)


def value_tags(name: str, value: Value) -> list[Tag]:
    """The tag of the value itself, then those of what holds it, narrowest first."""
    return [exact_tag(name, value), *wide_tags(name, value)]


def exact_tag(name: str, value: Value) -> Tag:
    """The tag of the value itself."""
    part = _name_part(name)
    if isinstance(value, bool):
        return b"=%bb%d" % (part, value)
    if isinstance(value, str):
        return b"=%bs%b" % (part, _utf8(value))
    whole = floor(value)
    return b"=%bn%x" % (part, whole) if whole == value else b"=%bn%b" % (part, float(value).hex().encode())


def wide_tags(name: str, value: Value) -> list[Tag]:
    """The tags of what holds the value, narrowest first. Numbers with the same `narrowest_cell` share all of them."""
    part = _name_part(name)
    if isinstance(value, bool):
        return []
    if isinstance(value, str):
        return [_prefix_tag(part, value, length) for length in PREFIX_LENGTHS if len(value) >= length]
    whole = floor(value)
    return [_interval_tag(part, whole, level) for level in INTERVAL_LEVELS]


def narrowest_cell(value: int | float) -> int:
    """Which of the narrowest intervals the number lies in."""
    return floor(value) >> INTERVAL_LEVELS[0]


def filter_tags(selected: Filter) -> list[Tag]:
    """All tags of the filter, the most telling first: equalities, then intervals and beginnings, then existence."""
    asked = [tag for constraint in selected.constraints for tag in constraint_tags(constraint)]
    order = {_EQUALITY: 0, _PREFIX: 1, _INTERVAL: 1, _EXISTENCE: 2}
    return sorted(dict.fromkeys(asked), key=lambda tag: order[tag[:1]])


def constraint_tags(constraint: Constraint) -> list[Tag]:
    """The tags that every message has for which the constraint is true."""
    name = constraint.name
    match constraint:
        case Missing():
            return []
        case Equals():
            return [exact_tag(name, constraint.value), *([existence_tag(name)] if name.startswith(OWN_PREFIX) else [])]
        case OneOf():
            if len({value_class(value) for value in constraint.values}) == 1:
                ends = sorted(constraint.values, key=value_key)
                return constraint_tags(Range(name, ends[0], ends[-1]))
            return [existence_tag(name)]
        case Range() | Like():
            return [*_shared_tags(constraint), existence_tag(name)]
        case Exists() | Differs():
            return [existence_tag(name)]


def _shared_tags(constraint: Range | Like) -> list[Tag]:
    """The tag of the narrowest interval or the longest beginning that all its values share, if there is one."""
    if constraint_class(constraint) == "string":
        prefix = common_prefix(constraint) or ""
        lengths = [length for length in PREFIX_LENGTHS if length <= len(prefix)]
        return [_prefix_tag(_name_part(constraint.name), prefix, length) for length in lengths[:1]]
    match constraint:
        case Range(low=int() | float() as low, high=int() | float() as high) if not isinstance(low, bool):
            # An open integral end is not reached: the highest whole part below it is one less.
            first, last = floor(low), ceil(high) - 1 if constraint.high_open else floor(high)
            levels = [level for level in INTERVAL_LEVELS if first >> level == last >> level]
            return [_interval_tag(_name_part(constraint.name), first, level) for level in levels[:1]]
    return []


def _interval_tag(name_part: bytes, whole: int, level: int) -> Tag:
    return b"i%b%d:%x" % (name_part, level, whole >> level)


def _prefix_tag(name_part: bytes, text: str, length: int) -> Tag:
    return b"p%b%b" % (name_part, _utf8(text[:length]))


@lru_cache(maxsize=4096)
def _name_part(name: str) -> bytes:
    encoded = _utf8(name)
    return b"%d:%b" % (len(encoded), encoded)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def tag_text(tag: Tag) -> str:
    """What the tag says, for people."""
    length, _, rest = tag[1:].partition(b":")
    name, payload = (part.decode("utf-8", "surrogatepass") for part in (rest[: int(length)], rest[int(length) :]))
    match tag[:1]:
        case b"=":
            return f"{name} = {_payload_text(payload)}"
        case b"p":
            return f"{name} begins with {payload}"
        case b"i":
            level, index = payload.split(":")
            low = int(index, 16) << int(level)
            return f"{name} from {low} to below {low + (1 << int(level))}"
    return f"{name} exists"


def _payload_text(payload: str) -> str:
    sort, written = payload[0], payload[1:]
    match sort:
        case "b":
            return "TRUE" if written == "1" else "FALSE"
        case "n":
            return repr(float.fromhex(written)) if "." in written else str(int(written, 16))
    return written

"""Messages and filters as Bloom bits: what the network decides, without ever missing a match (002 sections 2.7, 3.2.6).

A message becomes a set of tags, a filter becomes tags that every matching message must have (see `tags`), and a tag
becomes a few of M bits. So m matches F implies bits(F) is a subset of bits(m): one AND decides. False positives cost
traffic, never a delivery, because brokers match exactly at the edge.

An encoding is a Python integer of M bits. Two relations look alike and run in opposite directions (erratum B1):

    matches(F, m)             bits(F) subset of bits(m)   the message "covers" the filter, in the words of 002 2.7
    encoding_covers(F, G)     bits(F) subset of bits(G)   filter F covers filter G: fewer demands, more messages

The second is no proof by itself: `price < 10` and `price > 20` have the same bits. It holds, but for hash collisions,
when F has equality constraints only and at most `filter_tags_max` of them; otherwise ask `relations.covers`.

Bits come from blake2b under the scheme's key, each by itself, so they are the same in every process and nobody who
lacks the key can aim at them. Existence and equality tags set `hashes` bits; the three interval or prefix tags of an
attribute set half as many, rounded up, since they come three at a time and a filter uses them beside an existence tag.
With the defaults 64 attributes, the most a message may have, then fill 0.78 of the bits, eight standard deviations
under the limit. With whole tags it would be 0.85, and one full message in some ten thousand would be refused.

Masks are remembered per (name, class, value), with a strict bound on their number, so a known attribute costs one OR.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any

from penstock.content.message import Attributes, Value
from penstock.content.predicate import Equals, Filter, OneOf, Predicate
from penstock.content.tags import (
    Tag,
    direct_bit,
    exact_tag,
    existence_tag,
    filter_tags,
    is_existence,
    is_wide,
    narrowest_cell,
    wide_tags,
)
from penstock.errors import InvalidEncoding

_HASHING = "independent bits"  # how tags become bits; brokers that do it otherwise have another fingerprint

# Values longer than this are encoded anew each time, so that the cache is bounded in bytes and not in entries only.
_CACHED_BYTES_MAX = 256


@dataclass(frozen=True, kw_only=True)
class EncodingScheme:
    """How messages and filters become bits. Brokers understand each other only if all of them use the same scheme."""

    bits: int = 512  # M; 002 uses 128 and 256 (erratum B3), for 10 attributes and without interval tags
    hashes: int = 3  # h, which 002 never gives (erratum B4)
    key: bytes | str = field(default=b"penstock", repr=False)  # of the hash; at most 64 bytes
    fill_limit: float = 0.9  # above this share of ones an encoding matches nearly everything and is refused
    existence_hashes: int = 0  # bits of an existence tag, which tells little where most messages have it; 0: `hashes`
    wide_tags: bool = True  # intervals and beginnings; without them a message is less full and ranges cost more traffic
    filter_tags_max: int = 8  # the most telling tags of a filter; bounds its fill
    encodings_max: int = 64  # per predicate
    cached_masks_max: int = 65_536  # of (name, class, value), as many of cells of numbers, and as many of single tags
    _key: bytes = field(init=False, repr=False, compare=False)
    _values: dict[tuple[str, type, Value], int] = field(init=False, repr=False, compare=False, default_factory=dict)
    _cells: dict[tuple[str, int], int] = field(init=False, repr=False, compare=False, default_factory=dict)
    _tags: dict[Tag, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        key = self.key.encode() if isinstance(self.key, str) else self.key
        object.__setattr__(self, "_key", key)
        problems = {
            "bits must be a multiple of 64 from 64 to 65536": 64 <= self.bits <= 65_536 and self.bits % 64 == 0,
            "hashes must be from 1 to 16": 1 <= self.hashes <= 16,
            "existence_hashes must be from 0 to 16": 0 <= self.existence_hashes <= 16,
            "key must have at most 64 bytes": len(key) <= 64,
            "fill_limit must be above 0 and at most 1": 0 < self.fill_limit <= 1,
            "filter_tags_max and encodings_max must be at least 1": min(self.filter_tags_max, self.encodings_max) >= 1,
            "cached_masks_max must be at least 1": self.cached_masks_max >= 1,
        }
        for problem, holds in problems.items():
            if not holds:
                raise InvalidEncoding(problem)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for schemes that encode alike; tells nothing about the key."""
        own = (self.existence_hashes,) if self.existence_hashes else ()
        alike = repr((_HASHING, self.bits, self.hashes, self.filter_tags_max, *own)).encode()
        return blake2b(alike, key=self._key, digest_size=8).hexdigest()

    @cached_property
    def attributes_always_fit(self) -> int:
        """So many attributes never fill an encoding beyond the limit, whatever their names and values are."""
        bits_per_attribute = 2 * self.hashes + (3 * ((self.hashes + 1) // 2) if self.wide_tags else 0)
        return int(self.fill_limit * self.bits / bits_per_attribute)

    def encode_message(self, attributes: Attributes) -> int:
        """The bits of a message. Raises InvalidEncoding if they would be fuller than the limit."""
        encoding = 0
        masks = self._values
        for name, value in attributes.items():
            mask = masks.get((name, value.__class__, value))
            encoding |= self._attribute_mask(name, value) if mask is None else mask
        if encoding.bit_count() > self.fill_limit * self.bits:
            raise InvalidEncoding(
                f"{len(attributes)} attributes fill {self.fill(encoding):.0%} of the {self.bits} bits of an encoding;"
                f" the limit fill_limit is {self.fill_limit:.0%}: use fewer attributes or a scheme with more bits"
            )
        return encoding

    def encode_filter(self, selected: Filter) -> int:
        """The bits that every message has which matches the filter."""
        encoding = 0
        for tag in self.used_tags(selected):
            encoding |= self._tag_mask(tag)
        return encoding

    def used_tags(self, selected: Filter) -> list[Tag]:
        """The tags that the bits of the filter stand for."""
        tags = [tag for tag in filter_tags(selected) if self.wide_tags or not is_wide(tag)]
        hashed = [tag for tag in tags if direct_bit(tag) is None]
        direct = [tag for tag in tags if direct_bit(tag) is not None]
        return hashed[: self.filter_tags_max] + direct[: self.hashes * self.filter_tags_max]

    def routing_encodings(self, predicate: Predicate) -> tuple[int, ...]:
        """The encodings to announce for a predicate, sorted: a matching message has all bits of at least one.

        IN becomes one equality per value while there is room for encodings_max; beyond that its existence must do.
        """
        filters = spread_lists(predicate.filters, self.encodings_max)
        return tuple(sorted({self.encode_filter(selected) for selected in filters}))

    def fill(self, encoding: int) -> float:
        """The share of ones."""
        return encoding.bit_count() / self.bits

    def to_bytes(self, encoding: int) -> bytes:
        """The form on the wire: bit 0 is the lowest bit of the first byte."""
        return encoding.to_bytes(self.bits // 8, "little")

    def from_bytes(self, data: bytes) -> int:
        """The reverse, for bytes from a peer. Raises InvalidEncoding for a wrong size or a fill above the limit."""
        if len(data) != self.bits // 8:
            raise InvalidEncoding(f"an encoding has {self.bits // 8} bytes ({self.bits} bits), this has {len(data)}")
        encoding = int.from_bytes(data, "little")
        if encoding.bit_count() > self.fill_limit * self.bits:
            raise InvalidEncoding(
                f"the encoding is {self.fill(encoding):.0%} full, the limit fill_limit is {self.fill_limit:.0%}:"
                f" it would match nearly everything"
            )
        return encoding

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles carry the parameters and none of what is remembered."""
        parameters = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        return _scheme_of, (parameters,)

    def _attribute_mask(self, name: str, value: Value) -> int:
        # The exact tag is not remembered by itself: what holds it is.
        mask = self._positions(exact_tag(name, value)) | self._holding_mask(name, value)
        if not isinstance(value, str) or len(value) <= _CACHED_BYTES_MAX:
            _make_room(self._values, self.cached_masks_max)
            self._values[name, value.__class__, value] = mask
        return mask

    def _holding_mask(self, name: str, value: Value) -> int:
        """The bits of the existence tag and of the wide tags; remembered for numbers, which seldom come twice."""
        cell = None if value.__class__ is bool or isinstance(value, str) else (name, narrowest_cell(value))
        mask = self._cells.get(cell) if cell is not None else None
        if mask is None:
            mask = self._tag_mask(existence_tag(name))
            for tag in wide_tags(name, value) if self.wide_tags else ():
                mask |= self._tag_mask(tag)
            if cell is not None:
                _make_room(self._cells, self.cached_masks_max)
                self._cells[cell] = mask
        return mask

    def _tag_mask(self, tag: Tag) -> int:
        mask = self._tags.get(tag)
        if mask is None:
            mask = self._positions(tag)
            if len(tag) <= _CACHED_BYTES_MAX:
                _make_room(self._tags, self.cached_masks_max)
                self._tags[tag] = mask
        return mask

    def _bits_of(self, tag: Tag) -> int:
        """How many bits a tag sets."""
        if is_wide(tag):
            return (self.hashes + 1) // 2
        return self.existence_hashes or self.hashes if is_existence(tag) else self.hashes

    def _positions(self, tag: Tag) -> int:
        """The bits of one tag, each from four bytes of a digest of its own.

        A first position and a step, as is usual for large filters, would not do here: in 256 bits many tags fall on
        each other's progressions, and more hashes then make a filter match by chance more often instead of less.
        """
        direct = direct_bit(tag)
        if direct is not None:
            return 1 << direct % self.bits
        digest = blake2b(tag, digest_size=4 * self._bits_of(tag), key=self._key).digest()
        mask = 0
        for start in range(0, len(digest), 4):
            mask |= 1 << int.from_bytes(digest[start : start + 4], "little") % self.bits
        return mask


def _scheme_of(parameters: dict[str, Any]) -> EncodingScheme:
    return EncodingScheme(**parameters)


DEFAULT_SCHEME = EncodingScheme()


def matches(filter_bits: int, message_bits: int) -> bool:
    """Whether a message with these bits may match a filter with those: bits(F) subset of bits(m)."""
    return filter_bits & ~message_bits == 0


def encoding_covers(general_bits: int, specific_bits: int) -> bool:
    """Whether one filter seems to cover the other: bits(general) subset of bits(specific), erratum B1."""
    return general_bits & ~specific_bits == 0


def positions(encoding: int) -> list[int]:
    """Where the ones are, lowest first."""
    found = []
    while encoding:
        lowest = encoding & -encoding
        found.append(lowest.bit_length() - 1)
        encoding ^= lowest
    return found


def spread_lists(filters: tuple[Filter, ...], filters_max: int) -> list[Filter]:
    """The filters with IN taken apart into equalities, as long as there are not more than `filters_max` of them."""
    done: list[Filter] = []
    for waiting, selected in zip(range(len(filters) - 1, -1, -1), filters, strict=True):
        parts = [selected]
        lists = sorted((c for c in selected.constraints if isinstance(c, OneOf)), key=lambda c: len(c.values))
        for constraint in lists:
            if len(done) + len(parts) * len(constraint.values) + waiting > filters_max:
                break
            parts = [_with_value(part, constraint, value) for part in parts for value in constraint.values]
        done += parts
    return done


def _with_value(selected: Filter, constraint: OneOf, value: Value) -> Filter:
    return Filter(tuple(Equals(c.name, value) if c is constraint else c for c in selected.constraints))


def _make_room(cache: dict[Any, int], entries_max: int) -> None:
    """Forgets the older half when the cache is full. A dictionary keeps the order in which entries came."""
    if len(cache) >= entries_max:
        for key in list(cache)[: max(1, entries_max // 2)]:
            del cache[key]

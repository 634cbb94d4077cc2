"""Which brokers may want a message with these bits? The index of a home broker over all advertised encodings.

An encoding of a filter covers a message if all its bits are among the message's bits (B-DRP, 002 section 3.2.6), and
the home broker needs every owner that has such an encoding. Each encoding is filed under its rarest bit, rare among
the encodings; a message looks only under the bits that it has, and tests what it finds there. The empty encoding has
no bit; it is filed apart and covers everything.

There are two tables for this:

* A small index, as brokers of a simulation have, keeps a dict for each bit and tests Python integers: a call with one
  message takes a few microseconds, and nothing has to be imported.
* Above `compiled_above` pairs, `encoded_table` keeps one array for each 64-bit word, and a compiled loop tests whole
  buckets at a time.

Pairs are kept for each owner, so that an owner that leaves takes its encodings with it. The bit of an encoding is
chosen when it is added and kept until it is removed, or until the table is built anew because it has become eight
times too large. Ties go to the lowest bit: no answer and no layout depends on a hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.content.matching.compiled import usable
from penstock.content.message import INTEGER_MAX, INTEGER_MIN
from penstock.errors import InvalidEncoding

if TYPE_CHECKING:
    from penstock.content.matching.encoded_table import KernelCover

WORD_BITS = 64
COMPILED_ABOVE = 300  # pairs; one message alone took 5.4 us (dicts) and 5.2 us (kernel) at 200, 7.8 and 5.9 us at 500
SHRINK_FACTOR = 8  # a table with this many times the room that it needs is built anew
ROOM_MIN = 1024


class EncodingIndex:
    """Distinct pairs of an owner and an encoding of `bits` bits, matched in batches."""

    def __init__(self, bits: int, *, compiled_above: int = COMPILED_ABOVE) -> None:
        if bits <= 0 or bits % WORD_BITS:
            raise ValueError(f"bits is {bits}; it must be a positive multiple of {WORD_BITS}")
        self._bits = bits
        self._compiled_above = compiled_above
        self._accesses: dict[int, dict[int, int]] = {}  # owner -> encoding -> the bit it is filed under, or `bits`
        self._pairs = 0
        self._popularity = [0] * (bits + 1)  # encodings that have the bit
        self._table: DictCover | KernelCover = DictCover(bits)

    def __len__(self) -> int:
        return self._pairs

    def add(self, owner: int, encoding: int) -> None:
        self._check(encoding)
        if not INTEGER_MIN <= owner <= INTEGER_MAX:
            raise ValueError(f"owner {owner} does not fit 64 bits")
        if encoding in self._accesses.get(owner, ()):
            raise ValueError(f"owner {owner} has this encoding already; remove it first")
        self._file(owner, encoding)
        self._use_kernels_if_large()

    def remove(self, owner: int, encoding: int) -> None:
        """KeyError if the owner does not have the encoding."""
        encodings = self._accesses[owner]
        access = encodings.pop(encoding)
        if not encodings:
            del self._accesses[owner]
        self._table.delete(owner, encoding, access)
        self._pairs -= 1
        for bit in bits_of(encoding):
            self._popularity[bit] -= 1
        if self._table.room > SHRINK_FACTOR * max(self._pairs, self._compiled_above, ROOM_MIN):
            self._build_anew()

    def remove_owner(self, owner: int) -> None:
        """Every encoding of the owner; none is no error."""
        for encoding in list(self._accesses.get(owner, ())):
            self.remove(owner, encoding)

    def match(self, encodings: Sequence[int]) -> list[tuple[int, ...]]:
        """For each message, given by its bits, the sorted owners that may want it."""
        for encoding in encodings:
            if encoding < 0 or encoding >> self._bits:
                self._check(encoding)
        self._use_kernels_if_large()
        return self._table.match(encodings)

    def _check(self, encoding: int) -> None:
        if encoding < 0 or encoding >> self._bits:
            raise InvalidEncoding(f"{encoding:#x} does not fit the {self._bits} bits of this index")

    def _file(self, owner: int, encoding: int) -> None:
        access, rarest = self._bits, self._pairs + 1
        popularity = self._popularity
        for bit in bits_of(encoding):
            if popularity[bit] < rarest:
                access, rarest = bit, popularity[bit]
            popularity[bit] += 1
        self._accesses.setdefault(owner, {})[encoding] = access
        self._table.insert(owner, encoding, access)
        self._pairs += 1

    def _build_anew(self) -> None:
        pairs = [(owner, encoding) for owner, encodings in self._accesses.items() for encoding in encodings]
        self._table = self._new_table()
        self._accesses = {}
        self._pairs = 0
        self._popularity = [0] * (self._bits + 1)
        for owner, encoding in pairs:
            self._file(owner, encoding)

    def _use_kernels_if_large(self) -> None:
        if self._pairs > self._compiled_above and type(self._table) is DictCover and usable():
            self._build_anew()

    def _new_table(self) -> DictCover | KernelCover:
        if self._pairs <= self._compiled_above or not usable():
            return DictCover(self._bits)
        from penstock.content.matching.encoded_table import KernelCover  # late: it imports numba

        return KernelCover(self._bits)


class DictCover:
    """Encodings filed under single-bit masks (0 for the empty encoding), each with its owners."""

    room = 0  # it is never too large

    def __init__(self, bits: int) -> None:
        self._empty = bits
        self._owners: dict[int, dict[int, dict[int, None]]] = {0: {}}  # mask -> encoding -> owners
        self._masks = 0  # the union of all masks with a bucket

    def insert(self, owner: int, encoding: int, access: int) -> None:
        mask = 0 if access == self._empty else 1 << access
        self._owners.setdefault(mask, {}).setdefault(encoding, {})[owner] = None
        self._masks |= mask

    def delete(self, owner: int, encoding: int, access: int) -> None:
        mask = 0 if access == self._empty else 1 << access
        bucket = self._owners[mask]
        del bucket[encoding][owner]
        if not bucket[encoding]:
            del bucket[encoding]
        if not bucket and mask:
            del self._owners[mask]
            self._masks &= ~mask

    def match(self, encodings: Sequence[int]) -> list[tuple[int, ...]]:
        return [self._match_one(encoding) for encoding in encodings]

    def _match_one(self, message: int) -> tuple[int, ...]:
        found: set[int] = set()
        buckets = self._owners
        found.update(*buckets[0].values())
        rest = message & self._masks
        outside = ~message
        while rest:
            mask = rest & -rest
            rest ^= mask
            for encoding, owners in buckets[mask].items():
                if not encoding & outside:
                    found.update(owners)
        return tuple(sorted(found))


def bits_of(encoding: int) -> Iterator[int]:
    """The places of the set bits, lowest first."""
    while encoding:
        low = encoding & -encoding
        yield low.bit_length() - 1
        encoding ^= low

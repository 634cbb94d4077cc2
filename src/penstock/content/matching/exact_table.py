"""The registrations of a large index in arrays, for the compiled loop.

    buckets   one record for each atom: where its entries start, how many there are, for how many there is room, and
              the column that the atom is written to
    entries   one record for each registration, contiguous within a bucket: the number of its record, and its first
              check (column, low, high). Scanning a bucket reads nothing but this, in order.
    records   one record for each registration: its key, whether its checks say everything, and three more checks.
              It fills one cache line; what that gains was not measured apart.
    places    where the entry of each registration lies, for removal

A bucket that is full moves to a segment of twice the size; the segments it leaves are kept by size and used again.
Removing an entry moves the last entry of the bucket into its place, so both changes cost a few writes. The records are
written with `struct`, one call for all fields of a record.

Arrays grow by doubling. They never shrink: the index builds a new table when this one has become too large.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.compiled_loops import match_messages
from penstock.content.matching.exact_plan import CHECKS, Check, Registration
from penstock.content.matching.vocabulary import CONSTANT_COLUMN, TranslatedBatch, Vocabulary

BUCKET = np.dtype([("start", "i4"), ("count", "i4"), ("room", "i4"), ("column", "i4")])
BUCKET_STRUCT = Struct("=4i")
ENTRY = np.dtype([("record", "i4"), ("column", "i4"), ("low", "f8"), ("high", "f8")])
ENTRY_STRUCT = Struct("=2i2d")
RECORD = np.dtype(
    [("key", "i8"), ("exact", "u2"), *((f"column_{i}", "u2") for i in (1, 2, 3))]
    + [(f"{end}_{i}", "f8") for i in (1, 2, 3) for end in ("low", "high")]
)
RECORD_STRUCT = Struct("=q4H6d")
COLUMN_MAX = 2**16 - 1  # a check of a column beyond passes, and the registration is not exact
PLACE = np.dtype([("entry", "i4"), ("bucket", "i4")])
PLACE_STRUCT = Struct("=2i")
CACHE_LINE_BYTES = 64
PASS = Check(CONSTANT_COLUMN, 0.0, 0.0)
BUCKET_ROOM_MIN = 4


class Records:
    """A growable array of records, written as bytes."""

    def __init__(self, dtype: np.dtype[Any], size: int = 64) -> None:
        self.array = _aligned(size, dtype)
        self.bytes = self.array.view(np.uint8).data

    def __len__(self) -> int:
        return len(self.array)

    def reserve(self, size: int) -> None:
        if size > len(self.array):
            grown = _aligned(max(size, 2 * len(self.array)), self.array.dtype)
            grown[: len(self.array)] = self.array
            self.array = grown
            self.bytes = self.array.view(np.uint8).data


def _aligned(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that begin at a cache line: a record of 64 bytes then costs one miss, not two."""
    whole = np.zeros(size * dtype.itemsize + CACHE_LINE_BYTES, np.uint8)
    skip = -whole.ctypes.data % CACHE_LINE_BYTES
    return whole[skip : skip + size * dtype.itemsize].view(dtype)


class KernelTable:
    """Registrations under slots. The vocabulary is the caller's; the table follows its atoms and columns."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._buckets = Records(BUCKET)
        self._entries = Records(ENTRY)
        self._entries_end = 0
        self._segments_free: dict[int, list[int]] = {}
        self._records = Records(RECORD)
        self._places = Records(PLACE)
        self._records_end = 0
        self._records_free: list[int] = []
        self._columns = np.full((2, 64), np.nan)
        self._columns[:, CONSTANT_COLUMN] = 0.0
        self._sure = np.zeros(4096, np.int64)
        self._unsure = np.zeros(1024, np.int64)
        self._candidates = np.zeros(64, np.int32)

    @property
    def size_bytes(self) -> int:
        arrays = [self._buckets.array, self._entries.array, self._records.array, self._places.array]
        return sum(array.nbytes for array in [*arrays, self._columns, self._sure, self._unsure, self._candidates])

    @property
    def room(self) -> int:
        """Registrations for which there is room; a small bucket may have room for four and hold one."""
        return max(len(self._records), self._entries_end // BUCKET_ROOM_MIN)

    def insert(self, key: int, registration: Registration) -> int:
        """File the registration; the slot removes it."""
        if self._records_free:
            slot = self._records_free.pop()
        else:
            slot = self._records_end
            self._records_end += 1
            self._records.reserve(self._records_end)
            self._places.reserve(self._records_end)
        first, *others = (*registration.checks, PASS, PASS, PASS, PASS)[:CHECKS]
        exact = registration.exact
        if self._vocabulary.columns_size > COLUMN_MAX:
            exact = exact and all(check.column <= COLUMN_MAX for check in others)
            others = [check if check.column <= COLUMN_MAX else PASS for check in others]
        second, third, fourth = others
        RECORD_STRUCT.pack_into(
            self._records.bytes, slot * RECORD.itemsize, key, exact, second[0], third[0], fourth[0],
            second[1], second[2], third[1], third[2], fourth[1], fourth[2],
        )  # fmt: skip
        bucket = registration.access
        entry = self._append(bucket, ENTRY_STRUCT.pack(slot, *first))
        PLACE_STRUCT.pack_into(self._places.bytes, slot * PLACE.itemsize, entry, bucket)
        for held in registration.held:
            if held >= 0 and held != bucket:
                self._set_column(held)
        return slot

    def delete(self, slot: int) -> None:
        entry, bucket = PLACE_STRUCT.unpack_from(self._places.bytes, slot * PLACE.itemsize)
        start, count, room, column = self._bucket(bucket)
        last = start + count - 1
        if entry != last:
            size, data = ENTRY.itemsize, self._entries.bytes
            data[entry * size : (entry + 1) * size] = data[last * size : (last + 1) * size]
            moved = ENTRY_STRUCT.unpack_from(data, entry * size)[0]
            PLACE_STRUCT.pack_into(self._places.bytes, moved * PLACE.itemsize, entry, bucket)
        if count == 1:
            self._segments_free.setdefault(room, []).append(start)
            start = room = 0
        self._set_bucket(bucket, start, count - 1, room, column)
        self._records_free.append(slot)

    def match(self, translated: TranslatedBatch) -> tuple[list[list[int]], list[list[int]] | None]:
        """For each message the keys that match, and those that may match (None: there are none); sorted, distinct."""
        messages = len(translated.atom_ends) - 1
        self._reserve_scratch()
        atoms = np.array(translated.atoms, np.int32)
        atom_ends = np.array(translated.atom_ends, np.int32)
        number_columns = np.array(translated.number_columns, np.int32)
        number_bounds = np.array((translated.number_lows, translated.number_highs), np.float64)
        number_ends = np.array(translated.number_ends, np.int32)
        inexact = np.zeros(messages, np.bool_)
        inexact[translated.inexact] = True
        sure_ends, unsure_ends = np.zeros((2, messages + 1), np.int64)
        place = 0
        while place < messages:
            place, needed = match_messages(
                place, atoms, atom_ends, number_columns, number_bounds, number_ends, inexact,
                self._columns[0], self._columns[1], self._buckets.array, self._entries.array, self._records.array,
                self._candidates, self._sure, sure_ends, self._unsure, unsure_ends,
            )  # fmt: skip
            self._sure = _with_room(self._sure, int(sure_ends[place]), needed)
            self._unsure = _with_room(self._unsure, int(unsure_ends[place]), needed)
        unsure = _split(self._unsure, unsure_ends) if unsure_ends[messages] else None
        return _split(self._sure, sure_ends), unsure

    def _reserve_scratch(self) -> None:
        self._buckets.reserve(self._vocabulary.atoms_size)
        if len(self._candidates) <= self._entries_end:
            self._candidates = np.zeros(len(self._entries) + 1, np.int32)
        if self._columns.shape[1] < self._vocabulary.columns_size:
            self._columns = np.full((2, 2 * self._vocabulary.columns_size), np.nan)
            self._columns[:, CONSTANT_COLUMN] = 0.0

    def _append(self, bucket: int, entry: bytes) -> int:
        self._buckets.reserve(bucket + 1)
        start, count, room, _ = self._bucket(bucket)
        if count == room:
            start, room = self._move(start, count, room)
        self._set_bucket(bucket, start, count + 1, room, self._vocabulary.column_of(bucket))
        place = start + count
        self._entries.bytes[place * ENTRY.itemsize : (place + 1) * ENTRY.itemsize] = entry
        return place

    def _move(self, start: int, count: int, room: int) -> tuple[int, int]:
        """The entries copied to a segment with twice the room; the new start and room."""
        new_room = max(BUCKET_ROOM_MIN, 2 * room)
        free = self._segments_free.get(new_room)
        if free:
            new_start = free.pop()
        else:
            new_start = self._entries_end
            self._entries_end += new_room
            self._entries.reserve(self._entries_end)
        if room:
            entries = self._entries.array
            entries[new_start : new_start + count] = entries[start : start + count]
            self._places.array["entry"][entries["record"][new_start : new_start + count]] += new_start - start
            self._segments_free.setdefault(room, []).append(start)
        return new_start, new_room

    def _set_column(self, atom: int) -> None:
        self._buckets.reserve(atom + 1)
        start, count, room, _ = self._bucket(atom)
        self._set_bucket(atom, start, count, room, self._vocabulary.column_of(atom))

    def _bucket(self, bucket: int) -> tuple[int, ...]:
        return BUCKET_STRUCT.unpack_from(self._buckets.bytes, bucket * BUCKET.itemsize)

    def _set_bucket(self, bucket: int, start: int, count: int, room: int, column: int) -> None:
        BUCKET_STRUCT.pack_into(self._buckets.bytes, bucket * BUCKET.itemsize, start, count, room, column)


def _with_room(buffer: NDArray[np.int64], used: int, needed: int) -> NDArray[np.int64]:
    if used + needed <= len(buffer):
        return buffer
    grown = np.zeros(2 * (used + needed), np.int64)
    grown[:used] = buffer[:used]
    return grown


def _split(keys: NDArray[np.int64], ends: NDArray[np.int64]) -> list[list[int]]:
    places = ends.tolist()
    flat = keys[: places[-1]].tolist()
    return [flat[start:end] for start, end in pairwise(places)]

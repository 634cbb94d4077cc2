"""The encodings of a large index in arrays, for the compiled loop.

    buckets   for each bit, and at the end for the empty encoding: where its entries start, how many there are, and
              for how many there is room
    words     one row for each 64-bit word, columns are entries: neighbouring entries are tested by one instruction
    numbers   for each entry the number of its owner; owners have small numbers so that a table can say who was found

Entries of a bucket are contiguous. A full bucket moves to a segment of twice the size and leaves its old one to others;
a removed entry is replaced by the last of its bucket. Owner numbers are used again. Arrays grow by doubling and never
shrink: the index builds a new table when this one has become too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.compiled_loops import cover_messages

BUCKET_ROOM_MIN = 8
BLOCK = 512  # entries tested at a time; their words and results stay in the nearest cache
SEEN_BYTES_MAX = 1 << 20  # bounds the table of messages and owners; longer batches are split


class KernelCover:
    """Encodings filed under bits."""

    def __init__(self, bits: int) -> None:
        self._size_bytes = bits // 8
        self._buckets = np.zeros((bits + 1, 3), np.int32)
        self._words = np.zeros((bits // 64, 64), np.uint64)
        self._numbers = np.zeros(64, np.int32)
        self._end = 0
        self._segments_free: dict[int, list[int]] = {}
        self._pairs: list[tuple[int, int] | None] = [None] * 64  # entry -> owner and encoding
        self._entries: dict[tuple[int, int], int] = {}  # owner and encoding -> entry
        self._number_of: dict[int, int] = {}
        self._encodings_of = [0] * 16  # owner number -> how many encodings it has
        self._numbers_free: list[int] = []
        self._owners = np.zeros(16, np.int64)
        self._missing = np.zeros(BLOCK, np.uint64)
        self._resize_scratch(1)

    @property
    def size_bytes(self) -> int:
        tables = self._buckets.nbytes + self._words.nbytes + self._numbers.nbytes + self._owners.nbytes
        return tables + self._missing.nbytes + self._seen.nbytes + self._found.nbytes

    @property
    def room(self) -> int:
        """Entries in use or between others in use."""
        return self._end

    def insert(self, owner: int, encoding: int, access: int) -> None:
        start, count, room = self._buckets[access].tolist()
        if count == room:
            start, room = self._move(start, count, room)
        self._buckets[access] = (start, count + 1, room)
        number = self._number_of.get(owner)
        if number is None:
            number = self._new_number(owner)
        self._encodings_of[number] += 1
        entry = start + count
        self._words[:, entry] = self._words_of([encoding])[0]
        self._numbers[entry] = number
        self._place((owner, encoding), entry)

    def delete(self, owner: int, encoding: int, access: int) -> None:
        start, count, room = self._buckets[access].tolist()
        entry, last = self._entries.pop((owner, encoding)), start + count - 1
        moved = self._pairs[last]
        self._pairs[last] = None
        if entry != last and moved is not None:
            self._words[:, entry] = self._words[:, last]
            self._numbers[entry] = self._numbers[last]
            self._place(moved, entry)
        if count == 1:
            self._segments_free.setdefault(room, []).append(start)
            start = room = 0
        self._buckets[access] = (start, count - 1, room)
        number = self._number_of[owner]
        self._encodings_of[number] -= 1
        if not self._encodings_of[number]:
            del self._number_of[owner]
            self._numbers_free.append(number)

    def match(self, encodings: Sequence[int]) -> list[tuple[int, ...]]:
        step = max(1, SEEN_BYTES_MAX // len(self._owners))
        if len(encodings) <= step:
            return self._match(encodings)
        return [one for i in range(0, len(encodings), step) for one in self._match(encodings[i : i + step])]

    def _match(self, encodings: Sequence[int]) -> list[tuple[int, ...]]:
        if len(encodings) > len(self._seen):
            self._resize_scratch(len(encodings))
        cover_messages(
            self._words_of(encodings), self._buckets, self._words, self._numbers, self._owners,
            self._missing, self._seen, self._found, self._ends,
        )  # fmt: skip
        ends = self._ends[: len(encodings) + 1].tolist()
        found = self._found[: ends[-1]].tolist()
        return [tuple(found[start:end]) for start, end in pairwise(ends)]

    def _words_of(self, encodings: Sequence[int]) -> NDArray[np.uint64]:
        data = b"".join([encoding.to_bytes(self._size_bytes, "little") for encoding in encodings])
        return np.frombuffer(data, "<u8").reshape(len(encodings), len(self._words))

    def _place(self, pair: tuple[int, int], entry: int) -> None:
        self._pairs[entry] = pair
        self._entries[pair] = entry

    def _move(self, start: int, count: int, room: int) -> tuple[int, int]:
        """The entries moved to a segment with twice the room; the new start and room."""
        new_room = max(BUCKET_ROOM_MIN, 2 * room)
        free = self._segments_free.get(new_room)
        if free:
            new_start = free.pop()
        else:
            new_start = self._end
            self._end += new_room
            self._reserve(self._end)
        self._words[:, new_start : new_start + count] = self._words[:, start : start + count]
        self._numbers[new_start : new_start + count] = self._numbers[start : start + count]
        for i in range(count):
            pair = self._pairs[start + i]
            assert pair is not None
            self._pairs[start + i] = None
            self._place(pair, new_start + i)
        if room:
            self._segments_free.setdefault(room, []).append(start)
        return new_start, new_room

    def _reserve(self, size: int) -> None:
        old = len(self._numbers)
        if size <= old:
            return
        new = max(size, 2 * old)
        words = np.zeros((len(self._words), new), np.uint64)
        words[:, :old] = self._words
        self._words = words
        self._numbers = np.concatenate((self._numbers, np.zeros(new - old, np.int32)))
        self._pairs += [None] * (new - old)

    def _new_number(self, owner: int) -> int:
        if self._numbers_free:
            number = self._numbers_free.pop()
        else:
            number = len(self._number_of)
            if number == len(self._owners):
                self._owners = np.concatenate((self._owners, np.zeros(number, np.int64)))
                self._encodings_of += [0] * number
                self._resize_scratch(1)
        self._owners[number] = owner
        self._number_of[owner] = number
        return number

    def _resize_scratch(self, messages: int) -> None:
        self._seen = np.zeros((messages, len(self._owners)), np.bool_)
        self._found = np.zeros(self._seen.size, np.int64)
        self._ends = np.zeros(messages + 1, np.int64)

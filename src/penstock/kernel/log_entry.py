"""How a store writes entries, values and the row of an area, so that damage is found when they are read.

An entry is framed as: checksum, key of the entry before it, how many entries and bytes the log has had up to and with
this one, data. The checksum also covers the area and the entry's own key. So a flipped bit, an entry in the wrong place
and an entry that is missing are all found; and the size of any part of a log is a subtraction.

A value is framed as: checksum over area, name and data; data. The row of an area says where its log ends and begins,
how many values there are, and the sum of their checksums: a value that has gone back to an older state, or is missing,
is found by that sum. A sum and not a bitwise one: equal changes of two values must not cancel each other.

Every store uses these frames: the one in memory too, so that the simulator can damage them.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple
from zlib import crc32

SUM_MODULUS = 1 << 64
KEY_MAX = (1 << 63) - 1

Block = bytes  # framed, as it is on disk

_CHAIN = Struct(">QQQQ")  # key, key before, count, total; all but the key stand in the frame
_HEAD = Struct(">IQQQ")  # checksum, key before, count, total
_KEY = Struct(">Q")
_ROW = Struct(">8Q")
HEAD_BYTES = _HEAD.size
_VALUE_HEAD_BYTES = 8


class Damaged(Exception):
    """What was read is not what was written."""


class Place(NamedTuple):
    """Where a log stands behind one of its entries: its key, and how much there has been up to and with it."""

    key: int = 0
    number: int = 0  # entries
    total: int = 0  # bytes of data


class Entry(NamedTuple):
    """An entry that was read."""

    place: Place
    previous: int  # the key of the entry before it, 0 if it was the first
    data: bytes


class AreaRow(NamedTuple):
    """What a store knows of an area without looking: where its log ends, what was trimmed, and its values."""

    last: Place = Place()
    trimmed: Place = Place()  # everything up to this key is forgotten
    values: int = 0
    values_sum: int = 0


def seed_of(area: str) -> int:
    """What the checksums of an area's entries begin with."""
    return crc32(area.encode())


def frame_entries(
    seed: int, after: Place, entries: Sequence[tuple[int, bytes]]
) -> tuple[list[tuple[int, Block]], Place]:
    """Their frames, behind this place of the log, and where it stands then."""
    previous, count, total = after
    blocks = []
    for key, data in entries:
        count += 1
        total += len(data)
        chain = _CHAIN.pack(key, previous, count, total)
        checksum = crc32(data, crc32(chain, seed))
        blocks.append((key, checksum.to_bytes(4, "big") + chain[8:] + data))
        previous = key
    return blocks, Place(previous, count, total)


def open_entry(seed: int, key: int, block: Block) -> Entry:
    """What stands in a frame; raises Damaged."""
    previous, count, data = open_link(seed, key, block)
    total = _HEAD.unpack_from(block)[3]
    return Entry(Place(key, count, total), previous, data)


def open_link(seed: int, key: int, block: Block) -> tuple[int, int, bytes]:
    """Of an entry the key before it, its number in the log and its data; raises Damaged. For who reads many."""
    if len(block) < HEAD_BYTES:
        raise Damaged(f"entry {key} has no frame")
    checksum, previous, count, _ = _HEAD.unpack_from(block)
    if checksum != crc32(block[4:], crc32(_KEY.pack(key), seed)):
        raise Damaged(f"entry {key} has a wrong checksum")
    return previous, count, block[HEAD_BYTES:]


def frame_value(area: str, name: str, data: bytes) -> Block:
    """The frame of a value."""
    return _value_checksum(area, name, data) + data


def open_value(area: str, name: str, block: Block) -> bytes:
    """What stands in the frame of a value; raises Damaged."""
    data = block[_VALUE_HEAD_BYTES:]
    if block[:_VALUE_HEAD_BYTES] != _value_checksum(area, name, data):
        raise Damaged(f"value '{name}' has a wrong checksum")
    return data


def sum_of(block: Block) -> int:
    """What a value's frame adds to the sum in the row."""
    return int.from_bytes(block[:_VALUE_HEAD_BYTES], "big")


def frame_row(area: str, row: AreaRow) -> Block:
    """The frame of a row."""
    numbers = _ROW.pack(*row.last, *row.trimmed, row.values, row.values_sum)
    return crc32(numbers, seed_of(area)).to_bytes(4, "big") + numbers


def open_row(area: str, block: Block) -> AreaRow:
    """What stands in the frame of a row; raises Damaged."""
    numbers = block[4:]
    if len(numbers) != _ROW.size or block[:4] != crc32(numbers, seed_of(area)).to_bytes(4, "big"):
        raise Damaged("the row of the area has a wrong checksum")
    found = _ROW.unpack(numbers)
    return AreaRow(Place(*found[:3]), Place(*found[3:6]), *found[6:])


def _value_checksum(area: str, name: str, data: bytes) -> bytes:
    place = f"{len(area)} {area} {name}".encode()
    checksum = blake2b(place, digest_size=_VALUE_HEAD_BYTES)
    checksum.update(len(place).to_bytes(8, "big"))
    checksum.update(data)
    return checksum.digest()

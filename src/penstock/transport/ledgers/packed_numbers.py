"""A row of whole numbers in as few bits as the largest difference to the least of them needs."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from penstock.errors import InvalidHeader
from penstock.transport.ledgers.sketch import Codes

WIDTH_MAX = 32


class PackedNumbers(Struct, frozen=True, array_like=True):
    """The row as it travels."""

    least: int
    width: int  # bits for each
    bits: bytes


def pack_numbers(values: Codes) -> PackedNumbers:
    """A row of at least one number, none below 0 or above 2^32 - 1."""
    least = int(values.min())
    width = (int(values.max()) - least).bit_length()
    bits = np.unpackbits((values - least).astype("<u4").view(np.uint8), bitorder="little").reshape(-1, WIDTH_MAX)
    return PackedNumbers(least, width, np.packbits(bits[:, :width]).tobytes())


def unpack_numbers(packed: PackedNumbers, count: int) -> Codes:
    """The row of so many numbers; raises InvalidHeader."""
    width, least = packed.width, packed.least
    if not 0 <= width <= WIDTH_MAX or not 0 <= least < 1 << 32 or len(packed.bits) != (count * width + 7) // 8:
        raise InvalidHeader(f"{len(packed.bits)} bytes for {count} numbers of {width} bits")
    bits = np.zeros((count, WIDTH_MAX), np.uint8)
    bits[:, :width] = np.unpackbits(np.frombuffer(packed.bits, np.uint8), count=count * width).reshape(count, width)
    values: Codes = np.packbits(bits, axis=1, bitorder="little").view("<u4")[:, 0].astype(np.uint64) + np.uint64(least)
    return values

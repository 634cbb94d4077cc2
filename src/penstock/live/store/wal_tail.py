"""What SQLite will not tell about its write-ahead log: whether it ends in the middle of something.

SQLite reads the log up to the last commit whose checksums are right, and overwrites the rest without a word. The rest
may be a transaction that a crash cut short: nobody was answered, and it is only reported. Or it may be commits that
were synced and answered, behind a damaged frame: then the file must not be opened, because the next change would
overwrite them. Each commit is synced before the next begins, so at most one was unfinished: a frame behind another
commit of the rest shows that it was not the last.

Frames of earlier rounds, before the log began anew, have another salt and count for nothing. The header is synced
before any frame of its round; so if it is not whole and there are frames, it is damaged. The format is described at
sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, unpack_from
from typing import NamedTuple

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24

_HEADER = Struct(">8I")  # magic, version, page size, number of the round, two salts, two checksums
_FRAME = Struct(">4I")  # page, size of the database if this ends a commit, two salts
_MAGIC = (0x377F0682, 0x377F0683)  # the last bit: checksums over big-endian words

ReadAt = Callable[[int, int], bytes]  # bytes, offset


class Tail(NamedTuple):
    """The log behind what SQLite takes."""

    frames: int = 0  # of an unfinished transaction, or of damaged ones
    damaged: bool = False


def tail(read_at: ReadAt, size_bytes: int, frames_taken: int) -> Tail:
    """What stands behind so many frames of the log."""
    if size_bytes < HEADER_BYTES + FRAME_HEADER_BYTES:
        return Tail()
    header = read_at(HEADER_BYTES, 0)
    magic, _, page_bytes, _, *salts, first_sum, second_sum = _HEADER.unpack(header)
    if magic not in _MAGIC or checksum(header[:24], big=bool(magic & 1)) != (first_sum, second_sum):
        return Tail(0, damaged=any(header))
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    frames, commits, damaged = 0, 0, False
    for offset in range(HEADER_BYTES + frames_taken * frame_bytes, size_bytes - FRAME_HEADER_BYTES + 1, frame_bytes):
        _, database_size, *found = _FRAME.unpack(read_at(_FRAME.size, offset))
        if found == salts:
            damaged |= commits > 0
            frames += 1
            commits += database_size > 0
    return Tail(frames, damaged)


def checksum(data: bytes, *, big: bool) -> tuple[int, int]:
    """SQLite's, over pairs of words."""
    first = second = 0
    words = unpack_from(f"{'>' if big else '<'}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second

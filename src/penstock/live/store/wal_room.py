"""Room in the write-ahead log of a SQLite file: the log's file is longer than what is written in it.

A sync of a file that has grown also syncs the file system's own books. On ext4 a commit of one message took 220 us at
the end of the log's file, and 100 us inside it, as long as a bare write and sync. So zeros are written ahead between
commits, and the next sync takes them along. SQLite takes zeros for the end of the log, like frames of an earlier round.

State: up to where there is room. Bound: STEP_MAX bytes ahead of what is used. If no room can be made, for example on a
full disk, the next commit makes its own.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import apsw

from penstock.live.store.free_pages import PAGE_BYTES
from penstock.live.store.wal_tail import FRAME_HEADER_BYTES, HEADER_BYTES

STEP_MIN = 64 << 10  # bytes: a store that is hardly used stays small
STEP_MAX = 1 << 20
_FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES


class WalRoom:
    """Keeps the log's file ahead of its frames."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._path = Path(f"{path}-wal")
        self._vfs = vfs
        self._size_bytes = 0  # that the file is known to have

    def forget(self) -> None:
        """The file may have been cut."""
        self._size_bytes = 0

    def make(self, frames: int) -> None:
        """Let there be room behind so many frames."""
        used = HEADER_BYTES + frames * _FRAME_BYTES
        step = min(STEP_MAX, max(STEP_MIN, used))
        if frames and self._size_bytes - used < step // 2:
            with suppress(apsw.Error, OSError):
                self._extend(used + step)

    def _extend(self, wanted_bytes: int) -> None:
        file = apsw.VFSFile(self._vfs, str(self._path), [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0])
        try:
            self._size_bytes = file.xFileSize()
            if self._size_bytes < wanted_bytes:
                file.xWrite(bytes(wanted_bytes - self._size_bytes), self._size_bytes)
                self._size_bytes = wanted_bytes
        finally:
            file.xClose()

"""The storage of a live node in a SQLite file."""

from __future__ import annotations

import logging
from pathlib import Path

from penstock.live.store.group_commit import Answered, GroupCommit
from penstock.live.store.sqlite_file import SqliteFile
from penstock.live.store.transactions import Sync

log = logging.getLogger(__name__)


class SqliteStore(GroupCommit):
    """One file, one thread."""

    def __init__(self, path: Path, answered: Answered, *, sync: Sync = "full", vfs: str = "") -> None:
        self._file = SqliteFile(path, sync=sync, vfs=vfs)
        self.cut = self._file.cut
        if self.cut:
            log.warning("%s: cut off %s", path, self.cut)
        super().__init__(self._file, answered)

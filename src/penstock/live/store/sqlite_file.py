"""One SQLite file as a store: opens it, and carries out groups of operations.

Opening. The file is locked for this process as long as it is open. SQLite finishes or undoes what a crash interrupted;
a write-ahead log that ends in an unfinished transaction is cut there, and that is reported (`cut`). A file that is
older than this format, or damaged in a way that concerns all of it, is refused; nothing is changed in it then.

Changing. A group is committed with one sync (`sync="full"`), and only then answered. With `sync="relaxed"` commits are
not synced: a power cut may take the last ones with it, though nothing is left half. The file remembers that it was
written so, because then nobody can tell a torn log from a damaged one.

A commit whose sync fails leaves its group in doubt (`transactions`), because what was written may turn up again after a
crash. A later commit overwrites it; then its operations fail.

The write-ahead log is copied into the file and begun anew when it has `CHECKPOINT_PAGES`. If that cannot be done and it
reaches `WAL_PAGES_MAX`, changes are refused. `tidy` does this, deletes what was trimmed, in slices, and keeps room in
the log (`wal_room`): between groups.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import apsw

from penstock.errors import NotPossibleHere
from penstock.kernel.areas import Areas, AreaVerdict
from penstock.kernel.log_entry import Damaged
from penstock.kernel.storage import Ask, StorageFailed
from penstock.live.store.free_pages import PAGE_BYTES, free_pages_agree
from penstock.live.store.sqlite_blocks import SqliteBlocks
from penstock.live.store.transactions import CommitUnknown, Sync, Transactions, only_reads
from penstock.live.store.wal_room import WalRoom
from penstock.live.store.wal_tail import Tail, tail

RETRY_INTERVAL = 1.0  # seconds before a disk that failed is tried again
LOCK_WITHIN = 1.0  # seconds for a process before us to let go of the file
CHECKPOINT_PAGES = 4_000
WAL_PAGES_MAX = 64_000
WAL_KEPT_BYTES = 32 << 20  # of the log's file when it begins anew
CACHE_KIB = 16_000
CHECKED_BYTES_MAX = 256 << 20  # a larger file takes too long to look for pages that are used twice
PROBLEMS_MAX = 1_000
SHOWN_MAX = 3
STATEMENTS_KEPT = 500

_FORMAT = (0x50535452, 2)  # application_id, user_version
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)


class SqliteFile(Transactions):
    """A store that does what it is asked at once. Raises NotPossibleHere if the file cannot be had."""

    _damage = _DAMAGE
    _blocks: SqliteBlocks

    def __init__(self, path: Path, *, sync: Sync = "full", vfs: str = "") -> None:
        super().__init__(str(path))
        self.path = path
        self.cut = ""  # what was cut off when it was opened
        self._vfs = vfs
        self._wal_pages = 0
        self._room = WalRoom(path, vfs)
        self._checkpoint_problem = ""
        try:
            self._connection = self._connect()
            try:
                self._open(sync)
            except BaseException:
                self._connection.close()
                raise
        except apsw.BusyError:
            remedy = "stop the broker that uses it, or name another folder with --data"
            raise NotPossibleHere(f"another process has {path} open", remedy) from None
        except (OSError, apsw.Error, Damaged) as error:
            raise NotPossibleHere(f"cannot store in {path}: {error}", "name another folder with --data") from None

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def verify(self) -> list[AreaVerdict]:
        """Read everything. What is wrong with the file itself stands first, without a name."""
        problems = page_problems(self._connection)
        of_file = [AreaVerdict("", 0, 0, 0, "; ".join(problems[:SHOWN_MAX]))] if problems else []
        return of_file + [self._areas.verify(area) for area in sorted(self._blocks.areas())]

    # Opening.

    def _connect(self) -> apsw.Connection:
        if not self._vfs:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        return apsw.Connection(str(self.path), vfs=self._vfs or None, statementcachesize=STATEMENTS_KEPT)

    def _open(self, sync: Sync) -> None:
        connection = self._connection
        connection.set_busy_timeout(round(1_000 * LOCK_WITHIN))
        # Closing would copy the log into the file, also if it is damaged.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("locking_mode", "EXCLUSIVE")  # before the log is opened: then no memory is shared
        is_new = not connection.execute("SELECT count(*) FROM sqlite_schema").get  # or was never finished
        if is_new:
            self._create(connection)
        self._check_format(connection)
        connection.pragma("journal_mode", "WAL")
        connection.execute("BEGIN EXCLUSIVE; ROLLBACK")  # whoever else has it open is found now, and kept out
        self._check_log(connection)
        self._configure(connection)
        self._check_pages(connection)
        self._set_sync(connection, sync)
        if is_new and not self._vfs:
            _sync_folder(self.path.parent)
        self._blocks = SqliteBlocks(connection)
        self._blocks.reload()
        self._areas = Areas(self._blocks)
        self._find_trimmed()
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.set_wal_hook(self._committed)

    def _create(self, connection: apsw.Connection) -> None:
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("auto_vacuum", "INCREMENTAL")
        connection.pragma("synchronous", "EXTRA")
        with connection:
            connection.pragma("application_id", _FORMAT[0])
            connection.pragma("user_version", _FORMAT[1])
            SqliteBlocks.create(connection)

    def _check_format(self, connection: apsw.Connection) -> None:
        found = (connection.pragma("application_id"), connection.pragma("user_version"))
        if found != _FORMAT:
            raise Damaged(f"it is no store of this version of Penstock (format {found[0]:#x} {found[1]})")

    def _check_log(self, connection: apsw.Connection) -> None:
        """Nothing that was answered stands in the write-ahead log behind something damaged."""
        _, frames, _ = connection.execute("PRAGMA wal_checkpoint(NOOP)").get
        found = self._tail(max(0, frames))
        if found.damaged and not connection.execute("SELECT relaxed FROM setting").get:
            raise Damaged(
                f"{self.path.name}-wal is damaged behind {frames} pages, and commits behind that were answered; "
                "bring it back from a backup"
            )
        if found.frames:
            self.cut = f"{found.frames} pages of a transaction that was never finished"

    def _tail(self, frames: int) -> Tail:
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READONLY, 0]
        try:
            file = apsw.VFSFile(self._vfs, f"{self.path}-wal", flags)
        except apsw.CantOpenError:
            return Tail()
        try:
            return tail(file.xRead, file.xFileSize(), frames)
        finally:
            file.xClose()

    def _set_sync(self, connection: apsw.Connection, sync: Sync) -> None:
        """As it is wanted from now on; the file says so before anything is left unsynced."""
        relaxed = int(sync == "relaxed")
        if connection.execute("SELECT relaxed FROM setting").get != relaxed:
            connection.execute("UPDATE setting SET relaxed = ?", (relaxed,))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.pragma("synchronous", "NORMAL" if relaxed else "FULL")

    def _configure(self, connection: apsw.Connection) -> None:
        connection.pragma("synchronous", "FULL")
        connection.pragma("fullfsync", 1)  # where a plain sync does not reach the disk
        connection.pragma("checkpoint_fullfsync", 1)
        connection.pragma("wal_autocheckpoint", 0)
        connection.pragma("journal_size_limit", WAL_KEPT_BYTES)
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("cell_size_check", 1)
        connection.pragma("temp_store", "MEMORY")

    def _check_pages(self, connection: apsw.Connection) -> None:
        """What is stored next overwrites nothing: the file knows all its pages, and which of them are free."""
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.FullError:  # then it stays in the log, which was checked
            return
        pages = connection.pragma("page_count")
        file = apsw.VFSFile(self._vfs, str(self.path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            agree = file.xFileSize() == pages * PAGE_BYTES and free_pages_agree(file.xRead, pages)
        finally:
            file.xClose()
        if agree and pages * PAGE_BYTES <= CHECKED_BYTES_MAX:
            agree = not any("2nd reference" in problem for problem in page_problems(connection))
        if not agree:
            raise Damaged("its list of pages is damaged; bring it back from a backup")

    # Changing, as Transactions wants it.

    @property
    def retry_after(self) -> float | None:
        return RETRY_INTERVAL if self._doubt is not None else None

    def _begin(self, group: Sequence[Ask]) -> None:
        if self._wal_pages > WAL_PAGES_MAX and not only_reads(group):
            raise OSError(f"the log cannot be copied into the file: {self._checkpoint_problem}")
        self._connection.execute("BEGIN")

    def _commit(self, group: Sequence[Ask]) -> None:
        try:
            self._connection.execute("COMMIT")
        except (apsw.FullError, *_DAMAGE):  # the end of the transaction was not written
            raise
        except Exception as error:
            raise CommitUnknown(error) from None

    def _mend(self) -> bool:
        """Overwrite a commit whose sync had failed."""
        try:
            with self._connection:
                self._connection.execute("UPDATE setting SET settled = settled + 1")
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._room.forget()
        except apsw.Error:
            self._undo()
            return False
        return True

    def _was_kept(self) -> bool:
        return False

    def _trouble(self) -> StorageFailed:
        return StorageFailed(f"{self._shown}: the disk fails")

    def _undo(self) -> None:
        if self._connection.in_transaction:
            with suppress(apsw.Error):  # tried again when the next transaction cannot begin
                self._connection.execute("ROLLBACK")
        self._areas.reload()
        with suppress(apsw.Error, Damaged):
            self._blocks.reload()

    # Between groups.

    def tidy(self) -> bool:
        """Do one of the things that wait to be done; whether there is more."""
        if self._doubt is not None:
            return False
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
        elif self._blocks.unclean:
            self._clean()
        if not self._checkpoint_problem:
            self._room.make(self._wal_pages)
        return self._blocks.unclean or (self._wal_pages >= CHECKPOINT_PAGES and not self._checkpoint_problem)

    def _clean(self) -> None:
        try:
            with self._connection:
                self._blocks.clean()
        except apsw.Error:
            self._blocks.skip()
            self._undo()

    def _checkpoint(self, mode: int) -> None:
        try:
            self._connection.wal_checkpoint(mode=mode)
            self._wal_pages, self._checkpoint_problem = 0, ""
        except apsw.Error as error:
            self._checkpoint_problem = str(error)

    def _committed(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


def page_problems(connection: apsw.Connection) -> list[str]:
    """What SQLite finds wrong with the pages of the file and their order."""
    found = [str(line) for (line,) in connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX})")]
    return [] if found == ["ok"] else [line for text in found for line in text.splitlines()]


def _sync_folder(folder: Path) -> None:
    """The file itself is in its folder, and the folder in its own, also after a power cut."""
    for place in (folder, folder.parent):
        if hasattr(os, "O_DIRECTORY"):
            opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

"""The storage of a live node: a SQLite file, written by a thread beside the event loop.

The loop only hands over operations; the thread takes all that wait, carries them out in one transaction, commits with a
full sync and answers: group commit, so a hundred operations cost one sync. An answer is given after the commit. If a
transaction fails (a full disk), each of its operations is answered with the reason and nothing of it is kept. The file
is locked as long as it is open: whoever opens it a second time is told so at once.

This is storage as `kernel.storage` words it and no more; the log of streams, with checksums and retention, builds on
the same interface.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from penstock.errors import NotPossibleHere
from penstock.kernel.storage import (
    READ_MAX,
    VALUES_MAX,
    Append,
    Appended,
    Ask,
    Entries,
    Get,
    Operation,
    Put,
    Read,
    StorageFailed,
    StorageResult,
    Stored,
    Ticket,
    Trim,
    Value,
    entries_problem,
)

GROUP_MAX = 1_000  # operations of one transaction
WAITING_MAX = 100_000  # operations that the thread has not got to; beyond it the disk cannot keep up

LOCK_WITHIN = 1.0  # seconds for a process before us to let go of the file

_TABLES = (  # with row ids where rows may be large: without, a row of 1 KB takes four
    "CREATE TABLE IF NOT EXISTS entry (area TEXT, position INTEGER, data BLOB NOT NULL, PRIMARY KEY (area, position))",
    "CREATE TABLE IF NOT EXISTS value (area TEXT, name TEXT, data BLOB NOT NULL, PRIMARY KEY (area, name))",
    "CREATE TABLE IF NOT EXISTS log (area TEXT PRIMARY KEY, start INTEGER NOT NULL, next INTEGER NOT NULL)",
)


class SqliteStore:
    """One file, one thread. `answered` is called on the event loop."""

    def __init__(self, path: Path, answered: Callable[[Ticket, StorageResult], None]) -> None:
        self._path = path
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[Ask | None] = SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._names: dict[str, int] = {}  # area -> how many names it has, as far as they were counted
        self._connection = self._open()
        self._thread = Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def ask(self, asked: Ask) -> None:
        """Carry this out; the answer comes later, once."""
        if self._waiting >= WAITING_MAX:
            problem = f"{self._waiting} operations wait for the disk; the limit WAITING_MAX is {WAITING_MAX}"
            self._waiting += 1
            answers: list[tuple[Ticket, StorageResult]] = [(asked.ticket, StorageFailed(problem))]
            self._loop.call_soon(self._answer, answers)
            return
        self._waiting += 1
        self._asked.put(asked)

    def close(self) -> None:
        """Carry out what was asked, and end; nobody is answered any more. Blocks."""
        self._closed = True
        self._asked.put(None)
        self._thread.join()

    def _open(self) -> sqlite3.Connection:
        connection = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=LOCK_WITHIN, check_same_thread=False, isolation_level=None)
            # One connection, so a rollback journal does; EXTRA also syncs the folder after a commit.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN EXCLUSIVE")  # whoever else has it open is found now, and kept out from now on
            for table in _TABLES:
                connection.execute(table)
            connection.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            if connection is not None:
                connection.close()
            raise NotPossibleHere(f"cannot store in {self._path}: {error}", "name another folder with --data") from None
        return connection

    # The thread.

    def _work(self) -> None:
        while (first := self._asked.get()) is not None:
            group, over = [first], False
            while len(group) < GROUP_MAX and not self._asked.empty():
                more = self._asked.get()
                if more is None:
                    over = True
                    break
                group.append(more)
            answers = self._carried_out(group)
            if not self._closed:
                self._loop.call_soon_threadsafe(self._answer, answers)
            if over:
                break
        self._connection.close()

    def _carried_out(self, group: Sequence[Ask]) -> list[tuple[Ticket, StorageResult]]:
        """One commit for all of them; one that fails is undone alone, and if the commit fails all are."""
        try:
            self._connection.execute("BEGIN")  # the file is ours alone, so what only reads needs no lock for writing
            answers = [(asked.ticket, self._alone(asked)) for asked in group]
            self._connection.execute("COMMIT")
        except Exception as error:  # whatever it was: everybody is answered, and the thread goes on
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):  # tried again when the next transaction cannot begin
                    self._connection.execute("ROLLBACK")
            self._names.clear()
            return [(asked.ticket, StorageFailed(f"{self._path}: {error}")) for asked in group]
        return answers

    def _alone(self, asked: Ask) -> StorageResult:
        self._connection.execute("SAVEPOINT one")
        try:
            result = self._do(asked.area, asked.operation)
        except Exception as error:
            self._connection.execute("ROLLBACK TO one")
            self._names.clear()
            result = StorageFailed(f"{self._path}: {error}")
        self._connection.execute("RELEASE one")
        return result

    def _do(self, area: str, operation: Operation) -> StorageResult:
        match operation:
            case Append(entries):
                return self._append(area, entries)
            case Read(start, count):
                return self._read(area, start, count)
            case Trim(start):
                return self._trim(area, start)
            case Put(name, value):
                return self._put(area, name, value)
            case Get(name):
                row = self._connection.execute(
                    "SELECT data FROM value WHERE area = ? AND name = ?", (area, name)
                ).fetchone()
                return Value(row[0] if row is not None else b"")

    def _append(self, area: str, entries: tuple[bytes, ...]) -> StorageResult:
        problem = entries_problem(entries)
        if problem:
            return StorageFailed(problem)
        start, position = self._log(area)
        rows = [(area, position + number, entry) for number, entry in enumerate(entries)]
        self._connection.executemany("INSERT INTO entry VALUES (?, ?, ?)", rows)
        self._set_log(area, start, position + len(entries))
        return Appended(position)

    def _read(self, area: str, start: int, count: int) -> StorageResult:
        begin, following = self._log(area)
        first = max(start, begin)
        if first >= following or count <= 0:
            return Entries(first, ())
        rows = self._connection.execute(
            "SELECT data FROM entry WHERE area = ? AND position >= ? ORDER BY position LIMIT ?",
            (area, first, min(count, READ_MAX)),
        )
        return Entries(first, tuple(row[0] for row in rows))

    def _trim(self, area: str, start: int) -> StorageResult:
        first, following = self._log(area)
        begin = min(max(first, start), following)
        self._connection.execute("DELETE FROM entry WHERE area = ? AND position < ?", (area, begin))
        self._set_log(area, begin, following)
        return Stored()

    def _put(self, area: str, name: str, value: bytes) -> StorageResult:
        count = self._count_names(area)
        if not value:
            gone = self._connection.execute("DELETE FROM value WHERE area = ? AND name = ?", (area, name)).rowcount
            self._names[area] = count - gone
            return Stored()
        problem = entries_problem((value,))
        known = self._connection.execute("SELECT 1 FROM value WHERE area = ? AND name = ?", (area, name)).fetchone()
        if not problem and known is None and count >= VALUES_MAX:
            problem = f"{count} names; the limit VALUES_MAX is {VALUES_MAX}"
        if problem:
            return StorageFailed(problem)
        self._connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?, ?)", (area, name, value))
        self._names[area] = count + (known is None)
        return Stored()

    def _count_names(self, area: str) -> int:
        if area not in self._names:
            row = self._connection.execute("SELECT count(*) FROM value WHERE area = ?", (area,)).fetchone()
            self._names[area] = row[0]
        return self._names[area]

    def _log(self, area: str) -> tuple[int, int]:
        """The first position that is kept, and the next one to be given."""
        row = self._connection.execute("SELECT start, next FROM log WHERE area = ?", (area,)).fetchone()
        return (row[0], row[1]) if row is not None else (0, 0)

    def _set_log(self, area: str, start: int, following: int) -> None:
        self._connection.execute("INSERT OR REPLACE INTO log VALUES (?, ?, ?)", (area, start, following))

    # The loop.

    def _answer(self, answers: list[tuple[Ticket, StorageResult]]) -> None:
        for ticket, result in answers:
            self._waiting -= 1
            if not self._closed:
                self._answered(ticket, result)

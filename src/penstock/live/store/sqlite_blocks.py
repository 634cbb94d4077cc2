"""Blocks in a SQLite file, as `kernel.areas` wants them.

Each log is a table of its own, with the key as row id: entries are added at its end, the cheapest thing that SQLite
can do, and damage of one log's pages is not that of another's. Rows of areas and values have a table each.

Deleting is never done at once, because a log may be long: what was trimmed or dropped is remembered, and `clean`
deletes a slice of it, in a transaction of the caller's. What waits to be deleted can be told from the file: keys up to
where the row says that the log was trimmed, and the ids in `garbage`. Pages that become free are used again; if there
are many, `clean` also gives some back to the file system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import apsw

from penstock.kernel.log_entry import Block, Damaged

SLICE_ENTRIES = 2_000  # deleted in one transaction
SLICE_BYTES = 4 << 20  # about
FREE_PAGES_MIN = 4_096  # so many free pages are kept for what comes
FREE_SHARE = 4  # and so many: one in four
VACUUM_PAGES = 512  # given back in one transaction
INSERT_ROWS = (256, 64, 16, 4, 1)  # of one statement: each is one turn at the interpreter's lock

_TABLES = """
CREATE TABLE area (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, row BLOB NOT NULL);
CREATE TABLE value (area INTEGER, name TEXT, data BLOB NOT NULL, PRIMARY KEY (area, name));
CREATE TABLE garbage (id INTEGER PRIMARY KEY);
CREATE TABLE setting (areas BLOB NOT NULL, settled INTEGER NOT NULL, relaxed INTEGER NOT NULL);
INSERT INTO setting VALUES (x'', 0, 0);
"""


class SqliteBlocks:
    """The blocks in one file; every change belongs to the transaction that its owner has begun."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}
        self._trimming: dict[int, int] = {}  # what this transaction adds to it
        self._trimmed: dict[int, int] = {}  # id -> up to which key entries wait to be deleted
        self._dropped: list[int] = []
        self._vacuum = False

    @staticmethod
    def create(connection: apsw.Connection) -> None:
        """Make the tables."""
        connection.execute(_TABLES)

    def reload(self) -> None:
        """A transaction failed, or the file was opened: what the file says counts."""
        self._trimming.clear()
        self._ids = dict(self._connection.execute("SELECT name, id FROM area ORDER BY id"))
        if self._connection.execute("SELECT areas FROM setting").get != self._list():
            raise Damaged("the list of areas is not the one that was stored")
        self._dropped = [number for (number,) in self._connection.execute("SELECT id FROM garbage")]

    def committed(self) -> None:
        """The transaction is on disk: what it trimmed can be deleted."""
        self._trimmed |= self._trimming
        self._trimming.clear()

    # As kernel.areas.Blocks.

    def areas(self) -> Sequence[str]:
        return list(self._ids)

    def row(self, area: str) -> Block | None:
        found = self._one("SELECT row FROM area WHERE id = ?", self._ids.get(area, 0))
        if found is None and area in self._ids:
            raise Damaged("its row is missing")
        return found[0] if found is not None else None

    def set_row(self, area: str, block: Block) -> None:
        self._connection.execute("UPDATE area SET row = ? WHERE id = ?", (block, self._number(area)))

    def add(self, area: str, blocks: Sequence[tuple[int, Block]]) -> None:
        table = f"entry_{self._number(area)}"
        at = 0
        for rows in INSERT_ROWS:
            text = f"INSERT INTO {table} VALUES " + ", ".join(["(?, ?)"] * rows)
            while len(blocks) - at >= rows:
                bindings = [part for block in blocks[at : at + rows] for part in block]
                self._connection.execute(text, bindings)
                at += rows

    def scan(self, area: str, first: int, last: int) -> Iterator[tuple[int, Block]]:
        if area in self._ids:
            text = f"SELECT key, data FROM entry_{self._ids[area]} WHERE key BETWEEN ? AND ? ORDER BY key"
            yield from self._rows(text, first, last)

    def highest(self, area: str, upto: int) -> tuple[int, Block] | None:
        if area not in self._ids:
            return None
        text = f"SELECT key, data FROM entry_{self._ids[area]} WHERE key <= ? ORDER BY key DESC LIMIT 1"
        found: tuple[int, Block] | None = self._one(text, upto)
        return found

    def forget(self, area: str, upto: int) -> None:
        if area in self._ids:
            self._trimming[self._ids[area]] = upto

    def value(self, area: str, name: str) -> Block | None:
        found = self._one("SELECT data FROM value WHERE area = ? AND name = ?", self._ids.get(area, 0), name)
        return found[0] if found is not None else None

    def set_value(self, area: str, name: str, block: Block | None) -> None:
        number = self._number(area)
        if block is None:
            self._connection.execute("DELETE FROM value WHERE area = ? AND name = ?", (number, name))
        else:
            self._connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?, ?)", (number, name, block))

    def values(self, area: str) -> Iterator[tuple[str, Block]]:
        yield from self._rows("SELECT name, data FROM value WHERE area = ?", self._ids.get(area, 0))

    def drop(self, area: str) -> None:
        number = self._ids.pop(area, None)
        if number is not None:
            self._connection.execute("DELETE FROM area WHERE id = ?", (number,))
            self._connection.execute("INSERT INTO garbage VALUES (?)", (number,))
            self._dropped.append(number)
            self._write_list()

    # Deleting, slice by slice.

    @property
    def unclean(self) -> bool:
        """Whether something waits to be deleted."""
        return bool(self._trimmed or self._dropped or self._vacuum)

    def clean(self) -> None:
        """Delete one slice, or give free pages back; the transaction is the caller's."""
        if self._trimmed:
            number, upto = next(iter(self._trimmed.items()))
            if not self._delete_slice(number, upto):
                del self._trimmed[number]
                self._vacuum = True
        elif self._dropped:
            self._clean_dropped(self._dropped[0])
        elif self._vacuum:
            self._vacuum = self._give_back()

    def skip(self) -> None:
        """The next slice cannot be deleted: leave it for the next opening."""
        if self._trimmed:
            del self._trimmed[next(iter(self._trimmed))]
        elif self._dropped:
            self._dropped.pop(0)
        else:
            self._vacuum = False

    def _delete_slice(self, number: int, upto: int) -> bool:
        """Whether there was one."""
        end, size_bytes = None, 0
        text = f"SELECT key, length(data) FROM entry_{number} WHERE key <= ? ORDER BY key LIMIT ?"
        for key, length in self._connection.execute(text, (upto, SLICE_ENTRIES)):
            end = key
            size_bytes += length
            if size_bytes >= SLICE_BYTES:
                break
        if end is not None:
            self._connection.execute(f"DELETE FROM entry_{number} WHERE key <= ?", (end,))
        return end is not None

    def _clean_dropped(self, number: int) -> None:
        if self._delete_slice(number, (1 << 63) - 1):
            return
        self._connection.execute(f"DROP TABLE entry_{number}")
        self._connection.execute("DELETE FROM value WHERE area = ?", (number,))
        self._connection.execute("DELETE FROM garbage WHERE id = ?", (number,))
        self._dropped.remove(number)
        self._vacuum = True

    def _give_back(self) -> bool:
        """Whether there is more."""
        free, pages = self._connection.pragma("freelist_count"), self._connection.pragma("page_count")
        surplus = free - max(FREE_PAGES_MIN, pages // FREE_SHARE)
        if surplus > 0:
            for _ in self._connection.execute(f"PRAGMA incremental_vacuum({min(surplus, VACUUM_PAGES)})"):
                pass
        return bool(surplus > VACUUM_PAGES)

    # SQLite.

    def _number(self, area: str) -> int:
        if area not in self._ids:
            self._connection.execute("INSERT INTO area (name, row) VALUES (?, x'')", (area,))
            number = self._connection.last_insert_rowid()
            self._connection.execute(f"CREATE TABLE entry_{number} (key INTEGER PRIMARY KEY, data BLOB NOT NULL)")
            self._ids[area] = number
            self._write_list()
        return self._ids[area]

    def _list(self) -> bytes:
        """A checksum over the areas: one that is missing, or has another name, would seem to be new."""
        names = b"".join(b"%d %d %s " % (number, len(name), name.encode()) for name, number in self._ids.items())
        return blake2b(names, digest_size=16).digest() if names else b""

    def _write_list(self) -> None:
        self._connection.execute("UPDATE setting SET areas = ?", (self._list(),))

    def _one(self, text: str, *values: Any) -> Any:
        return next(self._rows(text, *values), None)

    def _rows(self, text: str, *values: Any) -> Iterator[Any]:
        """Each ends in a block; the type of a damaged one may be another."""
        try:
            cursor: Iterable[Any] = self._connection.execute(text, values)
            for row in cursor:
                if type(row[-1]) is not bytes or type(row[0]) not in (int, str, bytes):
                    raise Damaged(f"a block is of another type in: {text}")
                yield row
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
            raise Damaged(str(error)) from None

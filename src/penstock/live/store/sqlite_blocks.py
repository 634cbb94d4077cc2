"""Blocks in a SQLite file: the tables of `sql_blocks`.

The key of an entry is its row id: adding at the end of such a table is the cheapest thing that SQLite can do. Pages
that become free are used again; if there are many, `clean` also gives some back to the file system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw

from penstock.kernel.log_entry import Block, Damaged
from penstock.live.store.sql_blocks import SqlBlocks

FREE_PAGES_MIN = 4_096  # so many free pages are kept for what comes
FREE_SHARE = 4  # and so many: one in four
VACUUM_PAGES = 512  # given back in one transaction
INSERT_ROWS = (256, 64, 16, 4, 1)  # of one statement: each is one turn at the interpreter's lock
_PLACES = {rows: ", ".join(["(?, ?)"] * rows) for rows in INSERT_ROWS}

_TABLES = """
CREATE TABLE area (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, row BLOB NOT NULL);
CREATE TABLE value (area INTEGER, name TEXT, data BLOB NOT NULL, PRIMARY KEY (area, name));
CREATE TABLE garbage (id INTEGER PRIMARY KEY);
CREATE TABLE setting (areas BLOB NOT NULL, settled INTEGER NOT NULL, relaxed INTEGER NOT NULL);
INSERT INTO setting VALUES (x'', 0, 0);
"""
_KEYS = (int, str, bytes)


class SqliteBlocks(SqlBlocks):
    """The blocks in one file."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._vacuum = False

    @staticmethod
    def create(connection: apsw.Connection) -> None:
        """Make the tables."""
        connection.execute(_TABLES)

    def add(self, area: str, blocks: Sequence[tuple[int, Block]]) -> None:
        table = f"entry_{self._number(area)}"
        at = 0
        for rows, places in _PLACES.items():
            if len(blocks) - at < rows:
                continue
            text = f"INSERT INTO {table} VALUES {places}"
            while len(blocks) - at >= rows:
                bindings = [part for block in blocks[at : at + rows] for part in block]
                self._connection.execute(text, bindings)
                at += rows

    def scan(self, area: str, first: int, last: int) -> Iterator[tuple[int, Block]]:
        if area not in self._ids:
            return iter(())
        text = f"SELECT key, data FROM entry_{self._ids[area]} WHERE key BETWEEN ? AND ? ORDER BY key"
        return self._rows(text, first, last)

    @property
    def unclean(self) -> bool:
        return super().unclean or self._vacuum

    def clean(self) -> None:
        """Delete one slice, or give free pages back."""
        if super().unclean:
            super().clean()
            self._vacuum = True
        elif self._vacuum:
            self._vacuum = self._give_back()

    def skip(self) -> None:
        if not super().unclean:
            self._vacuum = False
        super().skip()

    def _give_back(self) -> bool:
        """Whether there is more."""
        free, pages = self._connection.pragma("freelist_count"), self._connection.pragma("page_count")
        surplus = free - max(FREE_PAGES_MIN, pages // FREE_SHARE)
        if surplus > 0:
            for _ in self._connection.execute(f"PRAGMA incremental_vacuum({min(surplus, VACUUM_PAGES)})"):
                pass
        return bool(surplus > VACUUM_PAGES)

    def _insert_area(self, area: str) -> int:
        self._connection.execute("INSERT INTO area (name, row) VALUES (?, x'')", (area,))
        number = self._connection.last_insert_rowid()
        self._connection.execute(f"CREATE TABLE entry_{number} (key INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        return number

    def _execute(self, text: str, *values: Any) -> Iterable[Any]:
        return self._connection.execute(text, values)

    def _rows(self, text: str, *values: Any) -> Iterator[Any]:
        """Each ends in a block; the type of a damaged one may be another."""
        try:
            cursor: Iterable[Any] = self._connection.execute(text, values)
            for row in cursor:
                if row[-1].__class__ is not bytes or row[0].__class__ not in _KEYS:
                    raise Damaged(f"a block is of another type in: {text}")
                yield row
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
            raise Damaged(str(error)) from None

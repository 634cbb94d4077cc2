"""Blocks in a schema of a PostgreSQL server: the tables of `sql_blocks`.

Names are stored as bytes, because a text of PostgreSQL cannot hold every character. Entries are read in pages that
grow, and that the server keeps below `PAGE_BYTES`, because nobody knows beforehand how many are wanted. The log of an
area that was dropped is deleted at once: to PostgreSQL a table is a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import errors

from penstock.kernel.log_entry import KEY_MAX, Block, Damaged
from penstock.live.store.sql_blocks import SqlBlocks

PAGE_ROWS = (4, 64, 1_024)  # of the first page, the second, and all others
PAGE_BYTES = 4 << 20
COPIED_MIN = 20  # so many entries are copied in, five times as fast as with a statement; fewer are not
DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted)

TABLES = """
CREATE TABLE area (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name bytea NOT NULL, row bytea NOT NULL);
CREATE TABLE value (area bigint, name bytea, data bytea NOT NULL, PRIMARY KEY (area, name));
CREATE TABLE garbage (id bigint PRIMARY KEY);
CREATE TABLE setting (format bigint NOT NULL, areas bytea NOT NULL, owner bytea NOT NULL, committed bigint NOT NULL);
"""

_PAGE = """
SELECT key, data FROM (
    SELECT key, data, length(data) AS size, sum(length(data)) OVER (ORDER BY key) AS total
    FROM {table} WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?
) AS page WHERE total - size < ? ORDER BY key
"""


class PostgresBlocks(SqlBlocks):
    """The blocks in the schema that the connection's search path names."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: psycopg.Connection[Any] | None = None

    def add(self, area: str, blocks: Sequence[tuple[int, Block]]) -> None:
        table = f"entry_{self._number(area)}"
        if len(blocks) < COPIED_MIN:
            text = f"INSERT INTO {table} SELECT * FROM unnest(?::bigint[], ?::bytea[])"
            self._execute(text, [key for key, _ in blocks], [block for _, block in blocks])
            return
        text = f"COPY {table} FROM STDIN (FORMAT BINARY)"
        with self._connected().cursor() as cursor, cursor.copy(text.encode()) as copy:
            copy.set_types(("int8", "bytea"))
            for block in blocks:
                copy.write_row(block)

    def scan(self, area: str, first: int, last: int) -> Iterator[tuple[int, Block]]:
        if area not in self._ids:
            return
        text = _PAGE.format(table=f"entry_{self._ids[area]}")
        first, last, number, found = max(first, 0), min(last, KEY_MAX), 0, True
        while found and first <= last:
            found = False
            for key, block in self._rows(text, first, last, PAGE_ROWS[number], PAGE_BYTES):
                yield key, block
                first, found = key + 1, True
            number = min(number + 1, len(PAGE_ROWS) - 1)

    def _clean_dropped(self, number: int) -> None:
        self._delete_table(number)

    @staticmethod
    def _name(name: str) -> bytes:
        return name.encode()

    @staticmethod
    def _named(found: Any) -> str:
        return bytes(found).decode(errors="replace")

    def _insert_area(self, area: str) -> int:
        text = "INSERT INTO area (name, row) VALUES (?, '') RETURNING id"
        [(number,)] = self._execute(text, self._name(area))
        self._execute(f"CREATE TABLE entry_{number} (key bigint PRIMARY KEY, data bytea NOT NULL)")
        return int(number)

    def _rows(self, text: str, *values: Any) -> Iterator[Any]:
        try:
            yield from self._execute(text, *values)
        except DAMAGE as error:
            raise Damaged(str(error)) from None

    def _execute(self, text: str, *values: Any) -> Iterable[Any]:
        cursor = self._connected().execute(text.replace("?", "%s").encode(), values, binary=True)
        return cursor.fetchall() if cursor.description is not None else ()

    def _connected(self) -> psycopg.Connection[Any]:
        if self.connection is None:
            raise psycopg.OperationalError("there is no connection")
        return self.connection

"""Blocks in the tables of an SQL database, as `kernel.areas` wants them: what SQLite and PostgreSQL have in common.

Each log is a table of its own, `entry_ID`, with the key as primary key: entries are added at its end, and damage of one
log's pages is not that of another's. Rows of areas and values have a table each. A checksum over the list of areas
tells if one is missing.

Deleting is never done at once, because a log may be long: what was trimmed or dropped is remembered, and `clean`
deletes a slice of it, in a transaction of the caller's. What waits to be deleted can be told from the tables: keys up
to where the row says that the log was trimmed, and the ids in `garbage`.

Texts have `?` where a value goes. Names of areas and values are given as `_name` wants them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from penstock.kernel.log_entry import KEY_MAX, Block, Damaged

SLICE_ENTRIES = 2_000  # deleted in one transaction
SLICE_BYTES = 4 << 20  # about


class SqlBlocks(ABC):
    """The blocks of one store; every change belongs to the transaction that its owner has begun."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._trimming: dict[int, int] = {}  # what this transaction adds to it
        self._trimmed: dict[int, int] = {}  # id -> up to which key entries wait to be deleted
        self._dropped: list[int] = []

    # What a database does.

    @abstractmethod
    def _execute(self, text: str, *values: Any) -> Iterable[Any]:
        """The rows that a statement gives, if any; it is carried out at once."""

    @abstractmethod
    def _rows(self, text: str, *values: Any) -> Iterator[Any]:
        """The rows of a question about blocks."""

    @abstractmethod
    def _insert_area(self, area: str) -> int:
        """A row and a table for a new area; its id."""

    @abstractmethod
    def add(self, area: str, blocks: Sequence[tuple[int, Block]]) -> None: ...

    @abstractmethod
    def scan(self, area: str, first: int, last: int) -> Iterator[tuple[int, Block]]: ...

    @staticmethod
    def _name(name: str) -> str | bytes:
        """A name as the tables have it."""
        return name

    @staticmethod
    def _named(found: Any) -> str:
        """A name that stands in a table."""
        return str(found)

    def reload(self) -> None:
        """A transaction failed, or the store was opened: what the tables say counts."""
        self._trimming.clear()
        rows = self._execute("SELECT name, id FROM area ORDER BY id")
        self._ids = {self._named(name): number for name, number in rows}
        if [found for (found,) in self._execute("SELECT areas FROM setting")] != [self._list()]:
            raise Damaged("the list of areas is not the one that was stored")
        self._dropped = [number for (number,) in self._execute("SELECT id FROM garbage")]

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
        self._execute("UPDATE area SET row = ? WHERE id = ?", block, self._number(area))

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
        here = (self._ids.get(area, 0), self._name(name))
        found = self._one("SELECT data FROM value WHERE area = ? AND name = ?", *here)
        return found[0] if found is not None else None

    def set_value(self, area: str, name: str, block: Block | None) -> None:
        here = (self._number(area), self._name(name))
        if block is None:
            self._execute("DELETE FROM value WHERE area = ? AND name = ?", *here)
        else:
            text = "INSERT INTO value VALUES (?, ?, ?) ON CONFLICT (area, name) DO UPDATE SET data = excluded.data"
            self._execute(text, *here, block)

    def values(self, area: str) -> Iterator[tuple[str, Block]]:
        for name, block in self._rows("SELECT name, data FROM value WHERE area = ?", self._ids.get(area, 0)):
            yield self._named(name), block

    def drop(self, area: str) -> None:
        number = self._ids.pop(area, None)
        if number is not None:
            self._execute("DELETE FROM area WHERE id = ?", number)
            self._execute("INSERT INTO garbage VALUES (?)", number)
            self._dropped.append(number)
            self._write_list()

    # Deleting, slice by slice.

    @property
    def unclean(self) -> bool:
        """Whether something waits to be deleted."""
        return bool(self._trimmed or self._dropped)

    def clean(self) -> None:
        """Delete one slice; the transaction is the caller's."""
        if self._trimmed:
            number, upto = next(iter(self._trimmed.items()))
            if not self._delete_slice(number, upto):
                del self._trimmed[number]
        elif self._dropped:
            self._clean_dropped(self._dropped[0])

    def skip(self) -> None:
        """The next slice cannot be deleted: leave it for the next opening."""
        if self._trimmed:
            del self._trimmed[next(iter(self._trimmed))]
        elif self._dropped:
            self._dropped.pop(0)

    def _delete_slice(self, number: int, upto: int) -> bool:
        """Whether there was one."""
        end, size_bytes = None, 0
        text = f"SELECT key, length(data) FROM entry_{number} WHERE key <= ? ORDER BY key LIMIT ?"
        for key, length in self._execute(text, upto, SLICE_ENTRIES):
            end = key
            size_bytes += length
            if size_bytes >= SLICE_BYTES:
                break
        if end is not None:
            self._execute(f"DELETE FROM entry_{number} WHERE key <= ?", end)
        return end is not None

    def _clean_dropped(self, number: int) -> None:
        if not self._delete_slice(number, KEY_MAX):
            self._delete_table(number)

    def _delete_table(self, number: int) -> None:
        self._execute(f"DROP TABLE entry_{number}")
        self._execute("DELETE FROM value WHERE area = ?", number)
        self._execute("DELETE FROM garbage WHERE id = ?", number)
        self._dropped.remove(number)

    # The list of areas.

    def _number(self, area: str) -> int:
        if area not in self._ids:
            self._ids[area] = self._insert_area(area)
            self._write_list()
        return self._ids[area]

    def _list(self) -> bytes:
        """A checksum over the areas: one that is missing, or has another name, would seem to be new."""
        names = b"".join(b"%d %d %s " % (number, len(name), name.encode()) for name, number in self._ids.items())
        return blake2b(names, digest_size=16).digest() if names else b""

    def _write_list(self) -> None:
        self._execute("UPDATE setting SET areas = ?", self._list())

    def _one(self, text: str, *values: Any) -> Any:
        return next(self._rows(text, *values), None)

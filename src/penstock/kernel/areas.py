"""The rules of storage, over whatever keeps the blocks: memory, a SQLite file, a PostgreSQL server.

`Areas` carries out operations: it frames and checks (`log_entry`), keeps the bounds, and knows where each log begins
and ends. `Blocks` is all that a place to keep them must be able to do. Changes of one transaction are gathered and
written by `flush`; after a transaction that failed, `reload` forgets what was not kept. Both are the business of the
store that owns the blocks.

What is checked when. When an area is first used: its row, all its values, and that the log ends where the row says. On
each read: every entry, and that it follows the one before it; at the ends of what was asked for, that nothing is
missing there either. An area in which damage was found says so to every later operation but reads and its own deletion.

A log has entries beyond its row only if the row has gone back to an older state: both are written in one transaction.
So that is damage, and nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.kernel import storage
from penstock.kernel.log_entry import (
    KEY_MAX,
    SUM_MODULUS,
    AreaRow,
    Block,
    Damaged,
    Place,
    frame_entries,
    frame_row,
    frame_value,
    open_entry,
    open_link,
    open_row,
    open_value,
    seed_of,
    sum_of,
)
from penstock.kernel.storage import (
    Append,
    Appended,
    Drop,
    Entries,
    Extent,
    Get,
    LogExtent,
    Measure,
    Measured,
    Names,
    NamesFound,
    Operation,
    Put,
    Read,
    StorageFailed,
    StorageResult,
    Stored,
    Trim,
    Value,
)


class Blocks(Protocol):
    """Where blocks are kept, by area. Whatever it raises but `Damaged` is a failure of the whole transaction."""

    def areas(self) -> Sequence[str]:
        """Those that have a row."""

    def row(self, area: str) -> Block | None: ...

    def set_row(self, area: str, block: Block) -> None: ...

    def add(self, area: str, blocks: Sequence[tuple[int, Block]]) -> None:
        """Keep these entries; the keys are above all others of the area."""

    def scan(self, area: str, first: int, last: int) -> Iterator[tuple[int, Block]]:
        """The entries with these keys, both ends included, in order."""

    def highest(self, area: str, upto: int) -> tuple[int, Block] | None:
        """The entry with the highest key up to this one."""

    def forget(self, area: str, upto: int) -> None:
        """Delete the entries up to this key, now or later: nobody asks for them any more."""

    def value(self, area: str, name: str) -> Block | None: ...

    def set_value(self, area: str, name: str, block: Block | None) -> None:
        """Keep this value, or remove it."""

    def values(self, area: str) -> Iterator[tuple[str, Block]]: ...

    def drop(self, area: str) -> None:
        """Delete the row, the entries and the values, now or later: the area can be used again at once."""


class AreaVerdict(Struct, frozen=True):
    """What was found in an area, up to the first damage if there is a problem."""

    area: str
    entries: int
    bytes: int
    values: int
    problem: str = ""


class _Area:
    """What is known of an area that is in use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seed = seed_of(name)
        self.last = Place()
        self.trimmed = Place()
        self.values: dict[str, int] = {}  # name -> what its frame adds to the sum
        self.values_sum = 0
        self.stored = False  # whether there is a row for it
        self.changed = False  # whether the row must be written
        self.waiting: list[tuple[int, Block]] = []  # entries that are framed and not yet kept

    def row(self) -> AreaRow:
        return AreaRow(self.last, self.trimmed, len(self.values), self.values_sum)


class Areas:
    """Carries out operations."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._open: dict[str, _Area] = {}
        self._stored: int | None = None  # how many areas have a row, if they were counted
        self._damage: dict[str, str] = {}

    def carry_out(self, area: str, operation: Operation) -> StorageResult:
        """Do it, as part of the present transaction."""
        problem = _problem(area, operation)
        if problem:
            return StorageFailed(problem)
        if isinstance(operation, Drop):
            return self._drop(area)
        if area in self._damage and not isinstance(operation, Read):
            return StorageFailed(self._damage[area], damaged=True)
        try:
            return self._do(self._opened(area), operation)
        except Damaged as error:
            return self.condemn(area, str(error))

    def flush(self) -> None:
        """Write what was gathered; the transaction can be committed then."""
        for area in self._open.values():
            if area.changed:
                self._write(area)
                self._blocks.set_row(area.name, frame_row(area.name, area.row()))
                area.changed, area.stored = False, True

    def reload(self) -> None:
        """The transaction failed: what the blocks say counts. Damage that was found stays."""
        self._open.clear()
        self._stored = None

    def condemn(self, area: str, problem: str) -> StorageFailed:
        """The blocks of this area cannot be had any more: it is damaged."""
        return StorageFailed(self._damage.setdefault(area, f"{area} is damaged: {problem}"), damaged=True)

    def row(self, area: str) -> AreaRow:
        """What is known of an area; raises Damaged if that can be seen at once."""
        return self._opened(area).row()

    def verify(self, area: str) -> AreaVerdict:
        """Read the whole area, up to the first damage."""
        entries = size_bytes = values = 0
        problem = ""
        try:
            here = self._opened(area)
            values = len(here.values)
            for _, data in self._chain(here, here.trimmed.key + 1, KEY_MAX, here.trimmed.key):
                entries += 1
                size_bytes += len(data)
        except Damaged as error:
            problem = str(error)
        return AreaVerdict(area, entries, size_bytes, values, problem)

    def _do(self, here: _Area, operation: Operation) -> StorageResult:
        match operation:
            case Append(entries):
                return self._append(here, entries)
            case Read(first, last, count):
                return self._read(here, first, last, count)
            case Trim(upto):
                return self._trim(here, upto)
            case Measure():
                return self._measure(here, operation)
            case Put(name, value):
                return self._put(here, name, value)
            case Get(name):
                return self._get(here, name)
            case Names():
                return NamesFound(tuple(sorted(here.values)))
            case _:
                assert isinstance(operation, Extent)
                return self._extent(here)

    # Logs.

    def _append(self, here: _Area, entries: Sequence[tuple[int, bytes]]) -> StorageResult:
        previous = here.last.key
        for key, _ in entries:
            if not previous < key <= KEY_MAX:
                return StorageFailed(f"{here.name}: key {key} is not above {previous}")
            previous = key
        problem = self._no_room(here) if entries else ""
        if problem:
            return StorageFailed(problem)
        if entries:
            blocks, here.last = frame_entries(here.seed, here.last, entries)
            here.waiting += blocks
            here.changed = True
        return Appended()

    def _read(self, here: _Area, first: int, last: int, count: int) -> StorageResult:
        self._write(here)
        first, last = max(first, here.trimmed.key + 1), min(last, here.last.key)
        if first > last:
            return Entries((), True)
        count = min(count, storage.READ_MAX)
        found: list[tuple[int, bytes]] = []
        size_bytes = 0
        for entry in self._chain(here, first, last, first - 1):
            size_bytes += len(entry[1])
            if len(found) >= count or (found and size_bytes > storage.READ_BYTES_MAX):
                return Entries(tuple(found), False)
            found.append(entry)
        return Entries(tuple(found), True)

    def _chain(self, here: _Area, first: int, last: int, before: int) -> Iterator[tuple[int, bytes]]:
        """Entries in order, each checked to follow the one before it; at the end, that the last is the last.

        What stands before the first has a key of at most `before`.
        """
        previous = count = 0
        seed = here.seed
        for key, block in self._blocks.scan(here.name, first, last):
            last_key, number, data = open_link(seed, key, block)
            if (last_key != previous or number != count + 1) if previous else last_key > before:
                raise Damaged(f"something is missing before entry {key}")
            previous, count = key, number
            yield key, data
        if last < here.last.key:
            key, block = next(self._blocks.scan(here.name, last + 1, KEY_MAX), (0, b""))
            missing = not key or open_entry(here.seed, key, block).previous > max(previous, before)
        else:
            missing = here.last.key != previous if previous else here.last.key > before
        if missing:
            raise Damaged(f"something is missing behind entry {max(previous, before)}")

    def _trim(self, here: _Area, upto: int) -> StorageResult:
        self._write(here)
        upto = min(upto, here.last.key)
        if upto > here.trimmed.key:
            found = self._blocks.highest(here.name, upto)
            if found is not None and found[0] > here.trimmed.key:
                place = open_entry(here.seed, *found).place
                here.trimmed = Place(upto, place.number, place.total)
            else:
                here.trimmed = here.trimmed._replace(key=upto)
            self._blocks.forget(here.name, upto)
            here.changed = True
        return Stored()

    def _extent(self, here: _Area) -> StorageResult:
        self._write(here)
        kept, first = here.last.number - here.trimmed.number, 0
        for key, block in self._blocks.scan(here.name, here.trimmed.key + 1, KEY_MAX):
            if open_entry(here.seed, key, block).place.number == here.trimmed.number + 1:
                first = key
            break
        if bool(kept) != bool(first):
            raise Damaged(f"something is missing behind entry {here.trimmed.key}")
        return LogExtent(first, here.last.key, here.last.total - here.trimmed.total, kept)

    def _measure(self, here: _Area, asked: Measure) -> StorageResult:
        self._write(here)
        first, last = max(asked.first, here.trimmed.key + 1), min(asked.last, KEY_MAX)
        if first > last:
            return Measured((last,), 0, 0)
        before, end = self._place(here, first - 1), self._place(here, last)
        number, total = before.number + max(1, asked.entries_max), before.total + asked.bytes_max
        if end.number > number or end.total > total:
            last, end = self._furthest(here, first - 1, last, number, total, surely=before.number + 1)
        entries = end.number - before.number
        parts = max(1, min(asked.parts, storage.MARKS_MAX, entries))
        wanted = [before.number + entries * part // parts for part in range(1, parts)]
        marks = [self._furthest(here, first - 1, last, number)[1].key for number in wanted]
        return Measured((*marks, last), entries, end.total - before.total)

    def _furthest(
        self, here: _Area, low: int, high: int, number: int, total: int = KEY_MAX, *, surely: int = 0
    ) -> tuple[int, Place]:
        """The highest key from `low` to `high` up to which there are no more entries and bytes, and its place.

        Entry number `surely` counts in any case.
        """
        found = self._place(here, low)
        while low < high:
            middle = (low + high + 1) // 2
            place = self._place(here, middle)
            if place.number <= number and (place.total <= total or place.number <= surely):
                low, found = middle, place
            else:
                high = place.key - 1
        return low, found

    def _place(self, here: _Area, upto: int) -> Place:
        """Where the log stands behind its last entry up to this key."""
        if upto >= here.last.key:
            return here.last
        found = self._blocks.highest(here.name, upto) if upto > here.trimmed.key else None
        if found is None or found[0] <= here.trimmed.key:  # what was trimmed may be there for a while
            return here.trimmed
        return open_entry(here.seed, *found).place

    def _write(self, here: _Area) -> None:
        if here.waiting:
            self._blocks.add(here.name, here.waiting)
            here.waiting = []

    # Values.

    def _put(self, here: _Area, name: str, value: bytes) -> StorageResult:
        if not value and name not in here.values:
            return Stored()
        problem = self._no_room(here)
        if not problem and name not in here.values and len(here.values) >= storage.VALUES_MAX:
            problem = f"{here.name}: {len(here.values)} names; the limit VALUES_MAX is {storage.VALUES_MAX}"
        if problem:
            return StorageFailed(problem)
        block = frame_value(here.name, name, value) if value else None
        self._blocks.set_value(here.name, name, block)
        here.values_sum -= here.values.pop(name, 0)
        if block is not None:
            here.values[name] = sum_of(block)
            here.values_sum += here.values[name]
        here.values_sum %= SUM_MODULUS
        here.changed = True
        return Stored()

    def _get(self, here: _Area, name: str) -> StorageResult:
        block = self._blocks.value(here.name, name)
        if (None if block is None else sum_of(block)) != here.values.get(name):
            raise Damaged(f"value '{name}' is not the one that was stored")
        return Value(b"" if block is None else open_value(here.name, name, block))

    # Areas.

    def _drop(self, area: str) -> StorageResult:
        self.flush()
        self._blocks.drop(area)
        self._open.pop(area, None)
        self._damage.pop(area, None)
        self._stored = None
        return Stored()

    def _opened(self, name: str) -> _Area:
        if name not in self._open:
            here = _Area(name)
            self._load(here)
            self._open[name] = here
        return self._open[name]

    def _load(self, here: _Area) -> None:
        block = self._blocks.row(here.name)
        found = AreaRow()
        if block is not None:
            found = open_row(here.name, block)
            here.stored = True
        here.last, here.trimmed = found.last, found.trimmed
        self._check_end(here)
        for name, block in self._blocks.values(here.name):
            open_value(here.name, name, block)
            here.values[name] = sum_of(block)
        here.values_sum = sum(here.values.values()) % SUM_MODULUS
        if here.row() != found:
            raise Damaged(f"{len(here.values)} values are not the {found.values} that were stored")

    def _check_end(self, here: _Area) -> None:
        """The log ends where its row says, if anything of it is kept."""
        highest = self._blocks.highest(here.name, KEY_MAX)
        if highest is not None and highest[0] > here.last.key:
            raise Damaged(f"entry {highest[0]} stands behind {here.last.key}, the last that its row knows")
        if here.last.key > here.trimmed.key:
            if highest is None or highest[0] != here.last.key:
                raise Damaged(f"entry {here.last.key}, the last one, is missing")
            if open_entry(here.seed, *highest).place != here.last:
                raise Damaged(f"entry {here.last.key} is not the one that was stored")

    def _no_room(self, here: _Area) -> str:
        """Why this area cannot be stored; empty if it can. It is counted with its first change."""
        if here.stored or here.changed:
            return ""
        if self._stored is None:
            new = sum(area.changed and not area.stored for area in self._open.values())
            self._stored = len(self._blocks.areas()) + new
        if self._stored >= storage.AREAS_MAX:
            return f"{self._stored} areas; the limit AREAS_MAX is {storage.AREAS_MAX}"
        self._stored += 1
        return ""


def _problem(area: str, operation: Operation) -> str:
    """Why no store carries this out; empty if it does."""
    names, data = [area], list[bytes]()
    match operation:
        case Append(entries):
            data += (one for _, one in entries)
        case Put(name, value):
            names.append(name)
            data.append(value)
        case Get(name):
            names.append(name)
    return _name_problem(names) or _size_problem(data)


def _name_problem(names: Iterable[str]) -> str:
    for name in names:
        try:
            length = len(name.encode())
        except UnicodeEncodeError:
            return f"the name {name!r} is no text"
        if length > storage.NAME_BYTES_MAX:
            return f"a name of {length} bytes; the limit NAME_BYTES_MAX is {storage.NAME_BYTES_MAX}"
    return ""


def _size_problem(data: Iterable[bytes]) -> str:
    longest = max(map(len, data), default=0)
    if longest > storage.ENTRY_BYTES_MAX:
        return f"an entry of {longest} bytes; the limit ENTRY_BYTES_MAX is {storage.ENTRY_BYTES_MAX}"
    return ""

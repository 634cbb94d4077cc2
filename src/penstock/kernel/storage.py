"""What survives a crash: each service of a node has a log of entries and a small table of named values.

A machine asks with `Ask`; the host answers once through `completed`, when the change is on disk. A node that crashes
is never answered. So the rule for every machine is: what was answered is there after a restart; what was not answered
may be there, whole or not at all, and of several entries perhaps only the first ones. Entries that a store returns are
whole: cutting off a torn tail is the store's business.

    Append(entries)      -> Appended(position of the first), positions grow by one for each entry
    Read(start, count)   -> Entries(start of what is still kept, entries in order; fewer if they are long)
    Trim(start)          -> Stored(): nothing before `start` is needed any more
    Put(name, value)     -> Stored(); an empty value removes the name
    Get(name)            -> Value(value), empty if there is none
    anything             -> StorageFailed(problem): nothing was changed, for example because the disk is full

`MemoryStore` is these rules without a disk. The simulator keeps one for each node and adds the faults; the live hosts
have `live.store`; tests answer from one by hand. Bounds: `ENTRY_BYTES_MAX`, `VALUES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

Ticket = int

ENTRY_BYTES_MAX = 2 << 20  # the largest message, and room for the rest
VALUES_MAX = 10_000  # names of one service
READ_MAX = 10_000  # entries of one answer
READ_BYTES_MAX = 8 << 20  # and about so many bytes


class Append(Struct, frozen=True):
    """Write entries at the end of the service's log."""

    entries: tuple[bytes, ...]


class Read(Struct, frozen=True):
    """Read up to `count` entries from position `start` on."""

    start: int
    count: int


class Trim(Struct, frozen=True):
    """Forget all entries before position `start`."""

    start: int


class Put(Struct, frozen=True):
    """Keep a value under a name; an empty value removes it."""

    name: str
    value: bytes


class Get(Struct, frozen=True):
    """The value under a name."""

    name: str


Operation = Append | Read | Trim | Put | Get


class Appended(Struct, frozen=True):
    """All entries are on disk; the first has this position."""

    position: int


class Entries(Struct, frozen=True):
    """What was read: `entries[0]` has position `start`, which is later than asked for if the log was trimmed."""

    start: int
    entries: tuple[bytes, ...]


class Stored(Struct, frozen=True):
    """The change is on disk."""


class Value(Struct, frozen=True):
    """What stands under a name; empty if nothing does."""

    value: bytes


class StorageFailed(Struct, frozen=True):
    """Nothing was changed; `problem` says why."""

    problem: str


StorageResult = Appended | Entries | Stored | Value | StorageFailed


class Ask(Struct, frozen=True):
    """A request to storage, in the area of one service. The host answers once; after a crash it never does."""

    ticket: Ticket
    area: str
    operation: Operation


@dataclass
class _Area:
    """The log and the values of one service."""

    start: int = 0
    entries: list[bytes] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)


class MemoryStore:
    """The rules of storage, without a disk."""

    def __init__(self) -> None:
        self._areas: dict[str, _Area] = {}

    def carry_out(self, area: str, operation: Operation) -> StorageResult:
        """Do it at once."""
        here = self._areas.setdefault(area, _Area())
        match operation:
            case Append(entries):
                return self._append(here, entries)
            case Read(start, count):
                first = max(start, here.start)
                at = first - here.start
                return Entries(first, tuple(here.entries[at : at + max(0, min(count, READ_MAX))]))
            case Trim(start):
                forgotten = min(max(0, start - here.start), len(here.entries))
                del here.entries[:forgotten]
                here.start += forgotten
                return Stored()
            case Put(name, value):
                return self._put(here, name, value)
            case Get(name):
                return Value(here.values.get(name, b""))

    def size_bytes(self) -> int:
        """All entries and values together."""
        return sum(sum(map(len, area.entries)) + sum(map(len, area.values.values())) for area in self._areas.values())

    def _append(self, here: _Area, entries: tuple[bytes, ...]) -> StorageResult:
        problem = entries_problem(entries)
        if problem:
            return StorageFailed(problem)
        position = here.start + len(here.entries)
        here.entries += entries
        return Appended(position)

    def _put(self, here: _Area, name: str, value: bytes) -> StorageResult:
        if not value:
            here.values.pop(name, None)
            return Stored()
        problem = entries_problem((value,))
        if not problem and name not in here.values and len(here.values) >= VALUES_MAX:
            problem = f"{len(here.values)} names; the limit VALUES_MAX is {VALUES_MAX}"
        if problem:
            return StorageFailed(problem)
        here.values[name] = value
        return Stored()


def entries_problem(entries: tuple[bytes, ...]) -> str:
    """Why no store takes these entries; empty if it does."""
    longest = max(map(len, entries), default=0)
    return (
        f"an entry of {longest} bytes; the limit ENTRY_BYTES_MAX is {ENTRY_BYTES_MAX}"
        if longest > ENTRY_BYTES_MAX
        else ""
    )


def within(entries: Iterable[bytes]) -> tuple[bytes, ...]:
    """As many of these as one answer may hold, and at least one."""
    kept: list[bytes] = []
    size_bytes = 0
    for entry in entries:
        size_bytes += len(entry)
        if kept and size_bytes > READ_BYTES_MAX:
            break
        kept.append(entry)
    return tuple(kept)


class StorageTickets:
    """Which service each operation of a node belongs to: tickets are the node's, so that no two services share one."""

    def __init__(self) -> None:
        self._last = 0
        self._owners: dict[Ticket, str] = {}

    def take(self, service: str) -> Ticket:
        """A ticket for an operation of this service."""
        self._last += 1
        self._owners[self._last] = service
        return self._last

    def owner(self, ticket: Ticket) -> str:
        """Who asked; each ticket is answered once."""
        return self._owners.pop(ticket)

    def __len__(self) -> int:
        return len(self._owners)


class ServiceStorage:
    """The storage of one service: makes its requests."""

    def __init__(self, service: str, tickets: StorageTickets) -> None:
        self._service = service
        self._tickets = tickets

    def ask(self, operation: Operation) -> Ask:
        """The effect that asks for it; remember its ticket to know the answer."""
        return Ask(self._tickets.take(self._service), self._service, operation)

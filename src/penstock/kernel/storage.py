"""What survives a crash: each service of a node has named values, and logs of entries by name.

A machine asks with `Ask`; the host answers once through `completed`, when the change is on disk. A node that crashes
is never answered. So the rule for every machine is: what was answered is there after a restart; what was not answered
may be there, whole or not at all, and of several entries perhaps only the first ones. Entries that a store returns are
whole: cutting off a torn tail is the store's business. Operations of one node are carried out in the order asked.

An *area* is a log and a table of values: "streams" is the area of the service itself, "streams/orders/0" that of its
log "orders/0". Entries have keys that grow; the service chooses them, from 1 on.

    Append(entries)            -> Appended(); each key is above every key that the log ever had
    Read(first, last, count)   -> Entries(entries with first <= key <= last in order, complete)
    Trim(upto)                 -> Stored(): nothing up to this key is needed any more
    Extent()                   -> LogExtent(first, last, bytes, entries)
    Measure(first, last, ...)  -> Measured(marks, entries, bytes): how much is there, and keys that cut it into parts
    Put(name, value)           -> Stored(); an empty value removes the name
    Get(name)                  -> Value(value), empty if there is none
    Names()                    -> NamesFound(names): which have a value
    Drop()                     -> Stored(): the area is deleted; it begins anew if it is used again
    anything                   -> StorageFailed(problem, damaged): nothing was changed

A failure may pass, for example a full disk; not so if it is `damaged`: something that was answered is not there any
more, or not as it was. From then on nothing is changed in the area, and nothing deleted; what is whole may still be
read, and the whole area can be dropped. Other areas go on.

Bounds: `ENTRY_BYTES_MAX`, `VALUES_MAX`, `AREAS_MAX`; of one answer `READ_MAX`, `READ_BYTES_MAX` and `MARKS_MAX`.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.kernel.log_entry import KEY_MAX

Ticket = int

ENTRY_BYTES_MAX = 2 << 20  # the largest message, and room for the rest
NAME_BYTES_MAX = 1_024  # of a value's name, and of an area's
VALUES_MAX = 10_000  # names of one area
AREAS_MAX = 10_000  # of one node
READ_MAX = 10_000  # entries of one answer
READ_BYTES_MAX = 8 << 20  # and about so many bytes
MARKS_MAX = 64  # parts of one measurement


class Append(Struct, frozen=True):
    """Write entries, (key, data), at the end of the log."""

    entries: tuple[tuple[int, bytes], ...]


class Read(Struct, frozen=True):
    """Read up to `count` entries with keys from `first` to `last`, both included."""

    first: int
    last: int
    count: int


class Trim(Struct, frozen=True):
    """Forget all entries up to this key."""

    upto: int


class Extent(Struct, frozen=True):
    """How long the log is."""


class Measure(Struct, frozen=True):
    """How much there is from `first` to `last`, both included, without reading it; and where to cut it.

    What is measured ends early if it would have more entries or bytes than these, but never before the first entry. It
    is then cut into so many parts of about as many entries each; MARKS_MAX at most.
    """

    first: int
    last: int
    entries_max: int = KEY_MAX
    bytes_max: int = KEY_MAX
    parts: int = 1


class Put(Struct, frozen=True):
    """Keep a value under a name; an empty value removes it."""

    name: str
    value: bytes


class Get(Struct, frozen=True):
    """The value under a name."""

    name: str


class Names(Struct, frozen=True):
    """The names that have values."""


class Drop(Struct, frozen=True):
    """Delete the area: its log and its values."""


Operation = Append | Read | Trim | Extent | Measure | Put | Get | Names | Drop


class Appended(Struct, frozen=True):
    """All entries are on disk."""


class Entries(Struct, frozen=True):
    """What was read. If it is complete, there is no more up to the last key asked for."""

    entries: tuple[tuple[int, bytes], ...]
    complete: bool


class LogExtent(Struct, frozen=True):
    """The first key that is kept, the last that ever was, and the bytes and number of the entries that are kept.

    Without entries `first` is 0; `last` is 0 only if there never was one.
    """

    first: int
    last: int
    bytes: int
    entries: int


class Measured(Struct, frozen=True):
    """Keys that grow, one for each part and the last tick of it; and how much there is up to the last of them.

    There are fewer parts than were asked for if there are fewer entries, and one without any entry.
    """

    marks: tuple[int, ...]
    entries: int
    bytes: int


class Stored(Struct, frozen=True):
    """The change is on disk."""


class Value(Struct, frozen=True):
    """What stands under a name; empty if nothing does."""

    value: bytes


class NamesFound(Struct, frozen=True):
    """The names that have values, sorted."""

    names: tuple[str, ...]


class StorageFailed(Struct, frozen=True):
    """Nothing was changed; `problem` says why. Damage does not pass; a full disk does."""

    problem: str
    damaged: bool = False


StorageResult = Appended | Entries | LogExtent | Measured | Stored | Value | NamesFound | StorageFailed


class Ask(Struct, frozen=True):
    """A request to storage, in one area. The host answers once; after a crash it never does."""

    ticket: Ticket
    area: str
    operation: Operation


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

    def ask(self, operation: Operation, log: str = "") -> Ask:
        """The effect that asks for it, in the service's own area or that of a log; its ticket tells the answer."""
        area = f"{self._service}/{log}" if log else self._service
        return Ask(self._tickets.take(self._service), area, operation)

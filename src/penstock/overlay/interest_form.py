"""In which form brokers tell each other what their clients want: exact filters, or the paper's Bloom encodings.

Either way interest is a set of *entries*, each a few bytes; versions, floods, snapshots and repair (`interest`,
`routing`) do not look inside. The form says how a predicate becomes entries, reads the entries of others, and finds
the brokers that want a message.

    exact     an entry is a filter in normal form. Brokers route ranges as exactly as equality, and what a filter
              covers need not be told (`covering`).
    encoded   an entry is a Bloom encoding (B-DRP, 002 section 2.7). A message may go where nobody wants it, and no
              broker learns the filters of another one's clients.

All brokers of a network must use the same form: it is part of the fingerprint in every Hello.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.content.bloom import EncodingScheme
from penstock.content.filter_bytes import filter_bytes, filter_from_bytes
from penstock.content.matching.encoded_index import EncodingIndex
from penstock.content.matching.filter_index import FilterIndex
from penstock.content.message import Attributes
from penstock.content.predicate import OneOf, Predicate
from penstock.errors import InvalidEncoding
from penstock.overlay.covering import Covering
from penstock.overlay.packets import BrokerId

Entry = bytes
ENTRY_ROOM = 64  # bytes that an entry counts beside its own: 131,072 encodings then fill the room of a broker


class Advertised(Protocol):
    """Which of our own entries the network must hear of."""

    def begin(self) -> None:
        """What is added or removed from now on is one change, and shares one budget of work."""

    def add(self, entry: Entry, selected: Any) -> list[Entry]:
        """One that was not wanted before, and what it was read as; returns all that may have changed."""

    def remove(self, entry: Entry) -> list[Entry]:
        """One that is wanted no more; returns all that may have changed."""

    def advertises(self, entry: Entry) -> bool: ...


class InterestForm(Protocol):
    """How content becomes entries, and entries find brokers."""

    fingerprint: str  # equal in brokers that understand each other

    def entries(self, predicate: Predicate) -> tuple[Entry, ...]:
        """What to tell the network of a predicate; raises InvalidEncoding."""

    def read(self, entry: Entry) -> Any:
        """What the index takes; raises InvalidEncoding."""

    def room(self, entry: Entry, selected: Any) -> int:
        """How much of a broker's memory an entry takes, in bytes, roughly."""

    def advertised(self) -> Advertised:
        """An empty table of what we tell."""

    def __len__(self) -> int:
        """How many pairs of a broker and an entry there are."""

    def add(self, origin: BrokerId, entry: Entry, selected: Any) -> None: ...

    def remove(self, origin: BrokerId, entry: Entry, selected: Any) -> None: ...

    def wanting(self, batch: Sequence[Attributes]) -> tuple[list[tuple[BrokerId, ...]], dict[int, str]]:
        """For each message the brokers that may want it, in order; and by its place why one cannot be sent at all."""

    def count(self, selected: Any, by: int) -> None:
        """So many more, or fewer, name these attributes: entries of our own clients, which are not in the index."""

    def unused(self, names: Sequence[str]) -> tuple[str, ...]:
        """Of these names of attributes, those that no entry names, as far as we can tell."""


class ExactForm:
    """Filters, matched exactly."""

    fingerprint = "exact filters, 1"

    def __init__(self) -> None:
        self._index = FilterIndex()
        self._names: Counter[str] = Counter()  # of attributes, and how many constraints name them

    def entries(self, predicate: Predicate) -> tuple[Entry, ...]:
        return tuple(map(filter_bytes, predicate.filters))

    def room(self, entry: Entry, selected: Any) -> int:
        lists = (len(one.values) for one in selected.constraints if isinstance(one, OneOf))
        return len(entry) + ENTRY_ROOM * (1 + sum(lists))  # a list has a place in the index for each value

    def read(self, entry: Entry) -> Any:
        return filter_from_bytes(entry)

    def advertised(self) -> Advertised:
        return Covering()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, origin: BrokerId, entry: Entry, selected: Any) -> None:
        self._index.add(origin, entry, selected)
        self.count(selected, 1)

    def remove(self, origin: BrokerId, entry: Entry, selected: Any) -> None:
        self._index.remove(origin, entry)
        self.count(selected, -1)

    def count(self, selected: Any, by: int) -> None:
        names = self._names
        for constraint in selected.constraints:
            names[constraint.name] += by
            if not names[constraint.name]:
                del names[constraint.name]

    def unused(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple([name for name in names if name not in self._names])

    def wanting(self, batch: Sequence[Attributes]) -> tuple[list[tuple[BrokerId, ...]], dict[int, str]]:
        return (self._index.match(batch) if len(self._index) else [()] * len(batch)), {}


class EncodedForm:
    """Bloom encodings: entries are bits, and so are the questions."""

    def __init__(self, scheme: EncodingScheme) -> None:
        self.fingerprint = scheme.fingerprint
        self._scheme = scheme
        self._index = EncodingIndex(bits=scheme.bits)

    def entries(self, predicate: Predicate) -> tuple[Entry, ...]:
        encodings = self._scheme.routing_encodings(predicate)
        if max(map(self._scheme.fill, encodings), default=0.0) > self._scheme.fill_limit:
            limit = self._scheme.fill_limit
            raise InvalidEncoding(f"its encoding is fuller than fill_limit, {limit:.0%}: use fewer constraints")
        return tuple(map(self._scheme.to_bytes, encodings))

    def read(self, entry: Entry) -> Any:
        return self._scheme.from_bytes(entry)

    def room(self, entry: Entry, selected: Any) -> int:
        return len(entry) + ENTRY_ROOM

    def advertised(self) -> Advertised:
        return _All()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, origin: BrokerId, entry: Entry, selected: Any) -> None:
        self._index.add(origin, selected)

    def remove(self, origin: BrokerId, entry: Entry, selected: Any) -> None:
        self._index.remove(origin, selected)

    def count(self, selected: Any, by: int) -> None:
        pass

    def unused(self, names: Sequence[str]) -> tuple[str, ...]:
        return ()  # bits do not tell

    def wanting(self, batch: Sequence[Attributes]) -> tuple[list[tuple[BrokerId, ...]], dict[int, str]]:
        scheme = self._scheme
        if not len(self._index) and max(map(len, batch), default=0) <= scheme.attributes_always_fit:
            return [()] * len(batch), {}
        encodings: list[int] = []
        problems: dict[int, str] = {}
        for place, attributes in enumerate(batch):
            try:
                encodings.append(scheme.encode_message(attributes))
            except InvalidEncoding as error:
                encodings.append(0)
                problems[place] = str(error)
        found = self._index.match(encodings)
        for place in problems:
            found[place] = ()
        return found, problems


def interest_form(name: str, scheme: EncodingScheme) -> InterestForm:
    """The form of this name, with an index of its own."""
    return ExactForm() if name == "exact" else EncodedForm(scheme)


class _All:
    """Of encodings nobody knows which covers which."""

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}

    def begin(self) -> None:
        pass

    def add(self, entry: Entry, selected: Any) -> list[Entry]:
        self._entries[entry] = None
        return [entry]

    def remove(self, entry: Entry) -> list[Entry]:
        del self._entries[entry]
        return [entry]

    def advertises(self, entry: Entry) -> bool:
        return entry in self._entries

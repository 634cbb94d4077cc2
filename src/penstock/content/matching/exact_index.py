"""Which predicates does a message match? The exact index of a broker over its clients' predicates.

Trying 100,000 predicates on each message takes tens of milliseconds. Nearly all of them fail, and most for the same
reason: the message does not say the one rare thing that they ask for. So each filter of a predicate is filed under its
rarest constraint (its *access*, see `exact_plan`), a message looks only under what it says (`vocabulary`), and
the few candidates are checked.

Up to `ASKED_MAX` predicates are simply asked. Beyond that there are two tables for one plan:

* A small index keeps a dict for each access and asks `predicate.matches` for each candidate. It needs neither numpy
  nor numba, whose import takes seconds.
* Above `compiled_above` registrations, `exact_table` keeps arrays and a compiled loop checks the candidates. Its
  checks are exact for equality and for ranges of numbers; candidates whose filter has other constraints, and messages
  with integers that no float equals, are asked `predicate.matches` afterwards.

Either way the answer is what `predicate.matches` says of each message, in the order of the keys. The tables follow the
number of predicates down as well: what is no longer used is used again, and a table that has become eight times too
large is built anew, which also renews the choice of the accesses.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.content.matching.compiled import usable
from penstock.content.matching.exact_plan import Registration, give_back, register
from penstock.content.matching.vocabulary import TranslatedBatch, Vocabulary
from penstock.content.message import INTEGER_MAX, INTEGER_MIN, Attributes
from penstock.content.predicate import Predicate

if TYPE_CHECKING:
    from penstock.content.matching.exact_table import KernelTable

COMPILED_ABOVE = 200  # registrations; a choice, not a measured crossing: small indexes should not import numba
ASKED_MAX = 16  # asked in turn: ten cost 1.6 to 2.4 us, the index 3.6 to 4.3
SHRINK_FACTOR = 8  # a table with this many times the room that it needs is built anew


class PredicateIndex:
    """Predicates under integer keys of 64 bits, matched in batches."""

    def __init__(self, *, compiled_above: int = COMPILED_ABOVE) -> None:
        self._compiled_above = compiled_above
        self._predicates: dict[int, Predicate] = {}
        self._few: list[tuple[int, Callable[[Attributes], bool]]] | None = None  # in order, if few
        self._filed: dict[int, list[tuple[int, ...]]] = {}  # key -> for each registration its slot and what it holds
        self._registrations = 0
        self._vocabulary = Vocabulary()
        self._table: DictTable | KernelTable = DictTable()

    def __len__(self) -> int:
        return len(self._predicates)

    def add(self, key: int, predicate: Predicate) -> None:
        if key in self._predicates:
            raise ValueError(f"key {key} is in use; remove it first")
        if not INTEGER_MIN <= key <= INTEGER_MAX:
            raise ValueError(f"key {key} does not fit 64 bits")
        self._predicates[key] = predicate
        self._few = None
        self._file(key, predicate)
        self._use_kernels_if_large()

    def remove(self, key: int) -> None:
        del self._predicates[key]
        self._few = None
        for slot, *held in self._filed.pop(key):
            self._table.delete(slot)
            give_back(self._vocabulary, held)
            self._registrations -= 1
        if self._table.room > SHRINK_FACTOR * max(self._registrations, self._compiled_above, 64):
            self._build_anew()

    def match(self, batch: Sequence[Attributes]) -> list[list[int]]:
        """For each message the sorted keys of the predicates that are true of it."""
        if not self._predicates or not batch:
            return [[] for _ in batch]
        if len(self._predicates) <= ASKED_MAX:
            few = self._few
            if few is None:
                few = [(key, predicate.matches) for key, predicate in sorted(self._predicates.items(), key=_key_of)]
                self._few = few
            return [[key for key, matches in few if matches(message)] for message in batch]
        self._use_kernels_if_large()
        translated = self._vocabulary.translate(batch)
        sure, unsure = self._table.match(translated)
        predicates = self._predicates
        if sure is None:
            return [
                [key for key in candidates if predicates[key].matches(message)]
                for message, candidates in zip(batch, unsure or (), strict=True)
            ]
        if unsure is None:
            return sure
        for message, keys, candidates in zip(batch, sure, unsure, strict=True):
            for key in candidates:
                if not _contains(keys, key) and predicates[key].matches(message):
                    insort(keys, key)
        return sure

    def _file(self, key: int, predicate: Predicate) -> None:
        filed: list[tuple[int, ...]] = []
        for filter_ in predicate.filters:
            for registration in register(self._vocabulary, filter_):
                filed.append((self._table.insert(key, registration), *registration.held))
        self._filed[key] = filed
        self._registrations += len(filed)

    def _use_kernels_if_large(self) -> None:
        if self._registrations > self._compiled_above and type(self._table) is DictTable and usable():
            self._build_anew()

    def _build_anew(self) -> None:
        self._vocabulary = Vocabulary()
        self._table = self._new_table()
        self._registrations = 0
        for key, predicate in self._predicates.items():
            self._file(key, predicate)

    def _new_table(self) -> DictTable | KernelTable:
        if self._registrations <= self._compiled_above or not usable():
            return DictTable()
        from penstock.content.matching.exact_table import KernelTable  # late: it imports numba

        return KernelTable(self._vocabulary)


class DictTable:
    """Registrations filed under their access only; every candidate is left to the caller."""

    room = 0  # it is never too large

    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, int]] = {}  # access -> slot -> key
        self._access: dict[int, int] = {}  # slot -> access
        self._next = 0

    def insert(self, key: int, registration: Registration) -> int:
        self._next += 1
        self._buckets.setdefault(registration.access, {})[self._next] = key
        self._access[self._next] = registration.access
        return self._next

    def delete(self, slot: int) -> None:
        access = self._access.pop(slot)
        bucket = self._buckets[access]
        del bucket[slot]
        if not bucket:
            del self._buckets[access]

    def match(self, translated: TranslatedBatch) -> tuple[None, list[list[int]]]:
        candidates: list[list[int]] = []
        buckets, atoms = self._buckets, translated.atoms
        start = 0
        for end in translated.atom_ends[1:]:
            found: list[int] = []
            for atom in atoms[start:end]:
                if atom in buckets:
                    found += buckets[atom].values()
            candidates.append(sorted(set(found)) if len(found) > 1 else found)
            start = end
        return None, candidates


def _key_of(item: tuple[int, Predicate]) -> int:
    return item[0]


def _contains(keys: list[int], key: int) -> bool:
    place = bisect_left(keys, key)
    return place < len(keys) and keys[place] == key

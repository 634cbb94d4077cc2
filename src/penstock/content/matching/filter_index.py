"""Which brokers want a message? The exact index of a home broker over all advertised filters.

It is the index over predicates (`exact_index`) with one predicate for each distinct filter, however many brokers want
it. The owners of a filter are bits of an integer, so the owners of all filters that match are one OR each; which
brokers a set of bits stands for is remembered, because the same sets come again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.content.language.evaluate import compile_expression, filter_matches, gather
from penstock.content.language.expression import conjunction
from penstock.content.matching.exact_index import COMPILED_ABOVE, PredicateIndex
from penstock.content.message import Attributes
from penstock.content.predicate import Filter, Predicate

SETS_MAX = 10_000  # sets of owners that are remembered
COMPILED_AFTER = 8  # asked so often, a filter gets a function of its own; making it takes as long as 100 questions


class FilterIndex:
    """Distinct pairs of an owner and a filter, matched in batches."""

    def __init__(self, *, compiled_above: int = COMPILED_ABOVE) -> None:
        self._index = PredicateIndex(compiled_above=compiled_above)
        self._keys: dict[bytes, int] = {}  # the filter's bytes -> its key in the index
        self._wanted_by: dict[int, int] = {}  # key -> the bits of its owners
        self._held: dict[int, dict[bytes, None]] = {}  # owner -> its filters
        self._bits: dict[int, int] = {}  # owner -> its bit
        self._owners: dict[int, int] = {}  # its bit -> owner
        self._sets: dict[int, tuple[int, ...]] = {}
        self._next_key = 0
        self._pairs = 0

    def __len__(self) -> int:
        return self._pairs

    def add(self, owner: int, data: bytes, selected: Filter) -> None:
        """The owner wants what this filter selects; `data` is the filter as bytes."""
        held = self._held.setdefault(owner, {})
        if data in held:
            raise ValueError(f"owner {owner} has this filter already; remove it first")
        held[data] = None
        self._pairs += 1
        key = self._keys.get(data)
        if key is None:
            self._next_key += 1
            key = self._keys[data] = self._next_key
            self._wanted_by[key] = 0
            self._index.add(key, Predicate("", (selected,), _Asked(selected)))
        self._wanted_by[key] |= self._bit(owner)

    def remove(self, owner: int, data: bytes) -> None:
        """KeyError if the owner does not have the filter."""
        del self._held[owner][data]
        self._pairs -= 1
        key = self._keys[data]
        self._wanted_by[key] &= ~self._bits[owner]
        if not self._wanted_by[key]:
            del self._wanted_by[key], self._keys[data]
            self._index.remove(key)
        if not self._held[owner]:
            del self._held[owner]
            del self._owners[self._bits.pop(owner)]
            self._sets.clear()

    def remove_owner(self, owner: int) -> None:
        """Every filter of the owner; none is no error."""
        for data in list(self._held.get(owner, ())):
            self.remove(owner, data)

    def match(self, batch: Sequence[Attributes]) -> list[tuple[int, ...]]:
        """For each message the sorted owners that want it."""
        wanted_by, sets = self._wanted_by, self._sets
        found: list[tuple[int, ...]] = []
        for keys in self._index.match(batch):
            owners = 0
            for key in keys:
                owners |= wanted_by[key]
            known = sets.get(owners)
            found.append(self._remembered(owners) if known is None else known)
        return found

    def _bit(self, owner: int) -> int:
        bit = self._bits.get(owner)
        if bit is None:
            bit = 1
            while bit in self._owners:  # the lowest that is free: sets stay as short as there are owners
                bit <<= 1
            self._bits[owner] = bit
            self._owners[bit] = owner
        return bit

    def _remembered(self, owners: int) -> tuple[int, ...]:
        if len(self._sets) >= SETS_MAX:
            self._sets.clear()
        rest, names = owners, []
        while rest:
            lowest = rest & -rest
            names.append(self._owners[lowest])
            rest ^= lowest
        self._sets[owners] = tuple(sorted(names))
        return self._sets[owners]


class _Asked:
    """Whether a message matches one filter. Most filters of an index are hardly ever asked, so few are compiled."""

    __slots__ = ("_asked", "_filter", "_matches")

    def __init__(self, selected: Filter) -> None:
        self._filter = selected
        self._asked = 0
        self._matches: Callable[[Attributes], bool] = self._interpret

    def __call__(self, attributes: Attributes) -> bool:
        return self._matches(attributes)

    def _interpret(self, attributes: Attributes) -> bool:
        self._asked += 1
        if self._asked > COMPILED_AFTER:
            self._matches = compile_expression(gather(conjunction(self._filter.constraints)))
        return filter_matches(self._filter, attributes)

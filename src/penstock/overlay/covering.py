"""Which filters a broker need not advertise, because another one of its own covers them.

A filter that is covered waits under the one that covers it; when that one goes, those below it look for another, and
whoever finds none is advertised. What is advertised therefore selects exactly what all filters together select.

Finding out is bounded, not complete: a filter is compared with at most `COMPARED_MAX` others that can stand in that
relation at all, and one change takes at most `STEPS` of comparing. Candidates are found by *features*: the
names and the equalities of a filter. Whoever covers a filter has no name and no equality that the filter lacks. A
relation that is missed costs a few bytes of interest, and never a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from penstock.content.language.budget import Budget
from penstock.content.predicate import Equals, Filter, value_key
from penstock.content.relations import covers

COMPARED_MAX = 32
STEPS = 1_000  # about a millisecond; see `content.language.budget`
COVERED_MAX = 1_024  # filters below one other: so many must look for a new one at a time

_Feature = tuple[object, ...]
ANYTHING: _Feature = ()


class Covering:
    """Filters by their bytes: those that are advertised, and those that are covered."""

    def __init__(self) -> None:
        self._filters: dict[bytes, Filter] = {}
        self._above: dict[bytes, bytes] = {}  # covered -> the one that covers it
        self._below: dict[bytes, dict[bytes, None]] = {}  # advertised -> those that it covers
        self._by_access: dict[_Feature, dict[bytes, None]] = {}  # advertised, each under one feature
        self._by_feature: dict[_Feature, dict[bytes, None]] = {ANYTHING: {}}  # advertised, under each of its features
        self._budget = Budget(STEPS)

    def advertises(self, entry: bytes) -> bool:
        """Whether the filter is wanted, and not covered."""
        return entry in self._below

    def begin(self) -> None:
        """What is added or removed from now on is one change, with one budget."""
        self._budget = Budget(STEPS)

    def add(self, entry: bytes, selected: Filter) -> list[bytes]:
        """A filter that was not wanted before; returns all whose advertisement may have changed."""
        self._filters[entry] = selected
        return self._place(entry, selected)

    def _place(self, entry: bytes, selected: Filter) -> list[bytes]:
        """Put it below one that covers it; or advertise it, with those that it covers below it."""
        above = self._covering(selected)
        if above is not None:
            self._put_below(entry, above)
            return []
        changed = [entry]
        self._advertise(entry)
        for other in self._covered(entry, selected):
            if len(self._below[entry]) + len(self._below[other]) < COVERED_MAX:
                lower = self._withdraw(other)
                self._put_below(other, entry)
                for lowest in lower:
                    self._put_below(lowest, entry)
                changed.append(other)
        return changed

    def remove(self, entry: bytes) -> list[bytes]:
        """A filter that is wanted no more; returns all whose advertisement may have changed."""
        above = self._above.pop(entry, None)
        if above is not None:
            del self._below[above][entry]
            del self._filters[entry]
            return []
        changed = [entry]
        freed = self._withdraw(entry)
        del self._filters[entry]
        for other in freed:
            del self._above[other]
        for other in freed:
            changed += self._place(other, self._filters[other])
        return changed

    def _covering(self, selected: Filter) -> bytes | None:
        """An advertised filter that covers this one and has room below it."""
        features = (ANYTHING, *_features(selected))
        candidates = (entry for feature in features for entry in self._by_access.get(feature, ()))
        for entry in islice(candidates, COMPARED_MAX):
            if len(self._below[entry]) < COVERED_MAX and self._covers(self._filters[entry], selected):
                return entry
        return None

    def _covered(self, entry: bytes, selected: Filter) -> list[bytes]:
        """Advertised filters that this one, just advertised itself, covers."""
        candidates = (other for other in self._by_feature.get(_access(selected), ()) if other != entry)
        compared = islice(candidates, COMPARED_MAX)
        return [other for other in compared if self._covers(selected, self._filters[other])]

    def _covers(self, general: Filter, specific: Filter) -> bool:
        """False also when the budget is spent: then nothing more is compared."""
        return self._budget.spent < STEPS and covers(general, specific, self._budget)

    def _advertise(self, entry: bytes) -> None:
        selected = self._filters[entry]
        self._below[entry] = {}
        self._by_access.setdefault(_access(selected), {})[entry] = None
        for feature in (ANYTHING, *_features(selected)):
            self._by_feature.setdefault(feature, {})[entry] = None

    def _withdraw(self, entry: bytes) -> dict[bytes, None]:
        """Advertise it no longer; returns those below it, which still point to it."""
        selected = self._filters[entry]
        _unfile(self._by_access, _access(selected), entry)
        for feature in (ANYTHING, *_features(selected)):
            _unfile(self._by_feature, feature, entry)
        return self._below.pop(entry)

    def _put_below(self, entry: bytes, above: bytes) -> None:
        self._above[entry] = above
        self._below[above][entry] = None


def _features(selected: Filter) -> Iterator[_Feature]:
    last = None
    for constraint in selected.constraints:  # in the order of their names
        if constraint.name != last:
            last = constraint.name
            yield (last,)
        if isinstance(constraint, Equals):
            yield (last, value_key(constraint.value))


def _access(selected: Filter) -> _Feature:
    """The feature that tells most: an equality if there is one, else a name."""
    telling = ANYTHING
    for feature in _features(selected):
        if len(feature) == 2:
            return feature
        telling = feature
    return telling


def _unfile(table: dict[_Feature, dict[bytes, None]], feature: _Feature, entry: bytes) -> None:
    del table[feature][entry]
    if not table[feature] and feature is not ANYTHING:
        del table[feature]

"""The table of pending interests (PIT): which interests are known here, and from which interface each came.

The way back of an answer is the interface of its interest. A publication is matched against all interests, grouped by
interface, so that one copy goes to each. Receivers of this router have the interface LOCAL; when one has all that it
asked for, it moves to SATISFIED, where it stays until its deadline: what fits it now is left over (004 Figure 7).

An interest that is over before its deadline (an overload notification) leaves, but its identifier is remembered for
`linger` seconds, so that a copy that took a long way does not bring it back. Entries leave when their time is up, in
buckets of one second. Both are bounded by `size`; an interest for which there is no room is refused and counted.

Room. An interest takes one place, or more if `places` says so. An interface may have as many places as are free after
it: so one that asks for all there are gets half, two get a third each, and there is always room for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Protocol

from penstock.retrieval.interest import LOCAL, SATISFIED, Fits, InterestId, Interface, LooseInterest, PublishedItem


class InterestIndex(Protocol):
    """Finds the interests that a publication fits. A live broker's uses its matching engine."""

    def add(self, interest: LooseInterest, interface: Interface) -> None:
        """One more."""

    def remove(self, interest: LooseInterest, interface: Interface) -> None:
        """One less."""

    def matching(self, publication: PublishedItem) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """Those that it fits, by interface, which may come twice; freshness and deadline are not looked at."""


class InterestTable(Protocol):
    """What a router needs of its table. A fast run has one for all routers."""

    def add(self, interest: LooseInterest, interface: Interface) -> bool:
        """Note where it came from; False if it is known already, or there is no room."""

    def get(self, interest: InterestId) -> tuple[LooseInterest, Interface] | None:
        """The interest and its interface; None if it is not pending here."""

    def satisfied(self, interest: InterestId) -> None:
        """A receiver here has all that it asked for."""

    def over(self, interest: InterestId, now: float) -> bool:
        """It asks for nothing more; True if it was pending here."""

    def expire(self, now: float) -> object:
        """Forget those whose time is up."""

    def matching(
        self, publication: PublishedItem, *, pending: bool
    ) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """As an index does; refreshed ones, which refuse it, may be left out if the pending flag is off."""

    def receivers(self, publication: PublishedItem) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """Likewise, but of this router's own receivers alone: LOCAL and SATISFIED."""

    def gave(self, interest: InterestId, count: int) -> None:
        """So many publications were sent towards it."""

    def owed(self, interest: LooseInterest) -> int:
        """How many it still misses, as far as this router has seen."""


class ShelfIndex:
    """Looks at one shelf; `fits` decides on it, and without it everything on the shelf fits."""

    def __init__(self, fits: Fits | None = None) -> None:
        self._fits = fits
        self._shelves: dict[Hashable, dict[Interface, dict[InterestId, LooseInterest]]] = {}

    def add(self, interest: LooseInterest, interface: Interface) -> None:
        """One more."""
        shelf = self._shelves.get(interest.shelf)
        if shelf is None:
            shelf = self._shelves[interest.shelf] = {}
        group = shelf.get(interface)
        if group is None:
            shelf[interface] = {interest.id: interest}
        else:
            group[interest.id] = interest

    def remove(self, interest: LooseInterest, interface: Interface) -> None:
        """One less."""
        shelf = self._shelves[interest.shelf]
        group = shelf[interface]
        del group[interest.id]
        if not group:
            del shelf[interface]
            if not shelf:
                del self._shelves[interest.shelf]

    def matching(self, publication: PublishedItem) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """Those that it fits, by interface."""
        shelf = self._shelves.get(publication.shelf)
        if shelf is None:
            return ()
        fits = self._fits
        if fits is None:
            return [(interface, group.values()) for interface, group in shelf.items()]
        found = [
            (interface, [interest for interest in group.values() if fits(interest, publication)])
            for interface, group in shelf.items()
        ]
        return [(interface, interests) for interface, interests in found if interests]


class PendingInterests:
    """The table of one router."""

    def __init__(
        self, index: InterestIndex, *, size: int, linger: float, places: Callable[[LooseInterest], int] = lambda _: 1
    ) -> None:
        self.refused = 0
        self._index = index
        self._size = size
        self._linger = linger
        self._places = places
        self._taken = 0  # places
        self._taken_by: dict[Interface, int] = {}
        self._takes: dict[InterestId, tuple[Interface, int]] = {}  # each that is known
        self._known: dict[InterestId, tuple[LooseInterest, Interface] | None] = {}
        self._gave: dict[InterestId, int] = {}  # to those of others that are pending
        self._ends: dict[int, dict[InterestId, None]] = {}  # each that is known, in one of them
        self._buckets: list[int] = []  # a heap

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, interest: InterestId) -> bool:
        return interest in self._known

    def waits(self, interest: InterestId) -> bool:
        """Whether it is pending here; one whose time is up is not, but for the second in which it is forgotten."""
        return self._known.get(interest) is not None

    def names(self) -> list[InterestId]:
        """Those that are pending here."""
        return [interest for interest, found in self._known.items() if found is not None]

    def add(self, interest: LooseInterest, interface: Interface) -> bool:
        """Note where it came from; False if it is known already, or there is no room."""
        if interest.id in self._known:
            return False
        places = self._places(interest)
        if places > self.left(interface):
            self.refused += 1
            return False
        if interest.listed:
            interest = replace(interest, listed=())  # that was for whoever answers now
        self._take(interest.id, interface, places)
        self._known[interest.id] = (interest, interface)
        self._index.add(interest, interface)
        self._end_at(interest.deadline, interest.id)
        return True

    def left(self, interface: Interface) -> int:
        """How many places an interface may still take."""
        return self._size - self._taken - self._taken_by.get(interface, 0)

    def get(self, interest: InterestId) -> tuple[LooseInterest, Interface] | None:
        """The interest and its interface; None if it is not pending here."""
        return self._known.get(interest)

    def satisfied(self, interest: InterestId) -> None:
        """A receiver here has all that it asked for."""
        found = self._known.get(interest)
        if found is not None and found[1] == LOCAL:
            self._index.remove(found[0], LOCAL)
            self._index.add(found[0], SATISFIED)
            self._known[interest] = (found[0], SATISFIED)

    def over(self, interest: InterestId, now: float) -> bool:
        """It asks for nothing more; True if it was pending here."""
        found = self._known.get(interest)
        if found is None:
            return False
        self._index.remove(*found)
        self._known[interest] = None
        self._gave.pop(interest, None)
        interface = self._give_back(interest)
        self._take(interest, interface, 1)
        del self._ends[_bucket(found[0].deadline)][interest]
        self._end_at(min(found[0].deadline, now + self._linger), interest)
        return True

    def expire(self, now: float) -> list[tuple[LooseInterest, Interface]]:
        """Forget those whose time is up; returns those that were still pending."""
        ended = []
        while self._buckets and self._buckets[0] <= now:
            for interest in self._ends.pop(heappop(self._buckets)):
                found = self._known.pop(interest, None)
                self._gave.pop(interest, None)
                self._give_back(interest)
                if found is not None:
                    self._index.remove(*found)
                    ended.append(found)
        return ended

    def matching(
        self, publication: PublishedItem, *, pending: bool
    ) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """Those that it fits, by interface."""
        return self._index.matching(publication)

    def receivers(self, publication: PublishedItem) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """Those of this router's own receivers."""
        return [pair for pair in self._index.matching(publication) if pair[0] < 0]

    def gave(self, interest: InterestId, count: int) -> None:
        """So many publications were sent towards it."""
        if self._known.get(interest) is not None:
            self._gave[interest] = self._gave.get(interest, 0) + count

    def owed(self, interest: LooseInterest) -> int:
        """How many it still misses, as far as this router has seen."""
        return interest.max - self._gave.get(interest.id, 0)

    def _take(self, interest: InterestId, interface: Interface, places: int) -> None:
        self._takes[interest] = (interface, places)
        self._taken += places
        self._taken_by[interface] = self._taken_by.get(interface, 0) + places

    def _give_back(self, interest: InterestId) -> Interface:
        interface, places = self._takes.pop(interest)
        self._taken -= places
        self._taken_by[interface] -= places
        if not self._taken_by[interface]:
            del self._taken_by[interface]
        return interface

    def _end_at(self, time: float, interest: InterestId) -> None:
        bucket = _bucket(time)
        those = self._ends.get(bucket)
        if those is None:
            those = self._ends[bucket] = {}
            heappush(self._buckets, bucket)
        those[interest] = None


def _bucket(time: float) -> int:
    return int(time) + 1

"""Whom a publication is for: receivers of this router, and the interfaces from which interests came.

With delayed pushes nobody tells when an interest is satisfied, and still pushes go only to those that are not yet (004
section 3.3.4). So a router counts what has gone towards each: answers, and copies of multicasts that it may take. When
that is as much as the interest asked for when it came by, it misses nothing as far as this router has seen. Where
notifications tell, nothing is counted.

Addressed multicasts (ours): a copy names the homes it is for, and each of them is in one copy. By nonces alone every
router sends a publication to all who wait, by its own ways, and most copies meet a router that has had one. Interests
of one home may have come by different ways, so a copy goes the way of the youngest of them: its ways are those of one
flood and lead to the home, where ways of several would lead in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable
from math import inf

from penstock.retrieval.boxes import may_take
from penstock.retrieval.interest import LOCAL, InterestId, Interface, LooseInterest, PublishedItem
from penstock.retrieval.pending_interests import InterestTable

HomeOf = Callable[[LooseInterest], Hashable]


class Recipients:
    """Whom a publication fits, here and elsewhere."""

    __slots__ = ("homes", "local", "remote", "satisfied")

    def __init__(self) -> None:
        self.local: list[LooseInterest] = []
        self.satisfied = False
        self.remote: list[Interface] = []
        self.homes: dict[Interface, list[Hashable]] = {}  # addressed: whom the copy for an interface is for


class WaitingInterests:
    """Looks publications up in a router's table of pending interests."""

    def __init__(self, table: InterestTable, *, counting: bool, home_of: HomeOf | None = None) -> None:
        self._table = table
        self._counting = counting
        self._home_of = home_of  # set: multicasts are addressed

    def for_it(
        self,
        publication: PublishedItem,
        came_from: Interface,
        *,
        pending: bool,
        now: float,
        unused: bool = False,
        homes: Container[Hashable] | None = None,
    ) -> Recipients:
        """Whom it fits but those it came from; of those elsewhere, of `homes` alone."""
        recipients = Recipients()
        remote = recipients.remote
        ways: dict[Hashable, tuple[InterestId, Interface]] = {}
        for interface, interests in self._table.matching(publication, pending=pending):
            if interface < 0:
                _count_receivers(recipients, interface, interests, publication, pending, unused, now)
            elif interface != came_from and self._home_of is not None:
                for one in interests:
                    home = self._home_of(one)
                    if homes is not None and home not in homes:
                        continue
                    if home in ways and one.id < ways[home][0]:  # type: ignore[operator]  # names of one home
                        continue
                    if may_take(one, publication, pending=pending, now=now) and self._misses(one):
                        ways[home] = one.id, interface
            elif interface != came_from and interface not in remote:
                for one in interests:
                    if may_take(one, publication, pending=pending, now=now) and self._misses(one):
                        remote.append(interface)
                        break
        for home, (_, interface) in ways.items():
            recipients.homes.setdefault(interface, []).append(home)
        remote += recipients.homes
        remote.sort()
        return recipients

    def here(self, publication: PublishedItem, *, pending: bool, unused: bool, now: float) -> Recipients:
        """Whom it fits of the receivers here."""
        recipients = Recipients()
        for interface, interests in self._table.receivers(publication):
            _count_receivers(recipients, interface, interests, publication, pending, unused, now)
        return recipients

    def nearest_deadline(self, publication: PublishedItem, now: float) -> float:
        """Of those elsewhere that wait for it, with the pending flag on."""
        nearest = inf
        for interface, interests in self._table.matching(publication, pending=True):
            if interface >= 0:
                for one in interests:
                    if one.deadline < nearest and may_take(one, publication, pending=True, now=now):
                        nearest = one.deadline if self._misses(one) else nearest
        return nearest

    def answered(self, interest: InterestId, count: int) -> None:
        """So many answers went towards an interest."""
        if self._counting:
            self._table.gave(interest, count)

    def sent(self, publication: PublishedItem, came_from: Interface, *, pending: bool, now: float) -> None:
        """A copy went to all elsewhere that wait for it."""
        if not self._counting:
            return
        for interface, interests in self._table.matching(publication, pending=pending):
            if interface >= 0 and interface != came_from:
                for one in interests:
                    if may_take(one, publication, pending=pending, now=now):
                        self._table.gave(one.id, 1)

    def _misses(self, interest: LooseInterest) -> bool:
        return not self._counting or self._table.owed(interest) > 0


def _count_receivers(
    recipients: Recipients,
    interface: Interface,
    interests: Iterable[LooseInterest],
    publication: PublishedItem,
    pending: bool,
    unused: bool,
    now: float,
) -> None:
    if interface == LOCAL:
        recipients.local += [
            one for one in interests if may_take(one, publication, pending=pending, unused=unused, now=now)
        ]
    elif not recipients.satisfied:
        recipients.satisfied = any(one.deadline > now for one in interests)

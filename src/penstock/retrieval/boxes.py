"""The table of boxes (BT): what each local interest got in this lifetime (004 section 3.3.1).

A box knows which publications its receiver got, so that none comes twice within a lifetime, and when it has all it
asked for. It ends with the lifetime: what keeps publications from coming again in the next one is the cache's tables
and not a history (Req 1). With cursors (ours, rules.py) one number outlives it: the highest that any of its
publications had in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf

from penstock.retrieval.interest import InterestId, LooseInterest, PublicationId, PublishedItem


class InterestBox:
    """What one local interest got."""

    __slots__ = ("advertised", "cursor", "got", "interest", "probed")

    def __init__(self, interest: LooseInterest) -> None:
        self.interest = interest
        self.got: dict[PublicationId, None] = {}
        self.advertised = False  # other routers know of it
        self.probed = 0  # neighbours that were asked alone
        self.cursor = interest.cursor  # what was cached here after this number, the chain was never given

    @property
    def missing(self) -> int:
        """How many it still wants."""
        return self.interest.max - len(self.got)

    def put(self, publication: PublicationId, number: int) -> bool:
        """Note a delivery and its number in the cache; False if it has it already, or wants no more."""
        if publication in self.got or len(self.got) >= self.interest.max:
            return False
        self.got[publication] = None
        if number > self.cursor:
            self.cursor = number
        return True


class InterestGroup:
    """Boxes that look for the same, and what was asked for last on their behalf."""

    __slots__ = ("boxes", "max", "oldest", "until")

    def __init__(self) -> None:
        self.boxes: dict[InterestId, InterestBox] = {}
        self.max = 0
        self.oldest = inf
        self.until = -inf  # what others send may come until then

    def neediest(self, found: InterestBox, until: float) -> InterestBox:
        """Who misses most, waits until then and has not asked everybody yet."""
        for box in self.boxes.values():
            if not box.advertised and box.missing > found.missing and box.interest.deadline >= until:
                found = box
        return found

    def asks(self, box: InterestBox, until: float) -> None:
        """One of them has asked."""
        self.max, self.oldest, self.until = box.missing, box.interest.oldest, until

    def covers(self, box: InterestBox) -> bool:
        """Whether what was asked for is as much as this one misses, and as old."""
        return box.missing <= self.max and box.interest.oldest >= self.oldest


def _shelf_of(interest: LooseInterest) -> Hashable:
    return interest.shelf


class Boxes:
    """The boxes of one router's receivers."""

    def __init__(self, looks_for: Callable[[LooseInterest], Hashable] = _shelf_of) -> None:
        self._looks_for = looks_for
        self._boxes: dict[InterestId, InterestBox] = {}
        self._groups: dict[Hashable, InterestGroup] = {}

    def __len__(self) -> int:
        return len(self._boxes)

    def open(self, interest: LooseInterest) -> InterestBox:
        """A new box."""
        box = self._boxes[interest.id] = InterestBox(interest)
        self.group(box).boxes[interest.id] = box
        return box

    def group(self, box: InterestBox) -> InterestGroup:
        """Those that look for the same."""
        key = self._looks_for(box.interest)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = InterestGroup()
        return found

    def get(self, interest: InterestId) -> InterestBox | None:
        """The box of an interest."""
        return self._boxes.get(interest)

    def close(self, interest: InterestId) -> InterestBox | None:
        """Its lifetime is over."""
        box = self._boxes.pop(interest, None)
        if box is not None:
            group = self.group(box)
            del group.boxes[interest]
            if not group.boxes:
                del self._groups[self._looks_for(box.interest)]
        return box


def may_take(
    interest: LooseInterest,
    publication: PublishedItem,
    *,
    pending: bool,
    now: float,
    unused: bool = False,
    asked: bool = False,
) -> bool:
    """Whether an interest may be given a copy that passes: fresh enough, in time, and never given to its chain.

    A refreshed interest refuses copies with the pending flag off (E7): an earlier lifetime may have had them. A chain
    that came from another home refuses whatever was uploaded before it came, unless it is the answer to what it asked.
    """
    if publication.uploaded < interest.oldest or interest.deadline <= now:
        return False
    if not interest.refreshed:
        return True
    if publication.uploaded < interest.moved_at:
        return pending and asked
    return pending or unused

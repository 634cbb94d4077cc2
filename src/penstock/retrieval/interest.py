"""What a receiver asks for, and what a publication is to the caches (004 section 3.2).

An interest asks for at most `max` publications that fit it, until its deadline, and none older than it says. It has a
new identifier in each lifetime; one that is refreshed says so, for it must not get again what it got before (Req 1).
One that came from another home broker says since when it is here.

Times are those of the router that holds the object: a packet carries the time that is left and the age that is
allowed, and whoever receives it makes an object of its own by its own clock. What an interest looks for is opaque
here: `shelf` says which part of a cache and of a table can hold what fits, and `fits` of the router decides. A fast
run gives each topic a shelf of its own, and all on a shelf fits.

Freshness: the paper's printed rule (3.2) wants publications younger than `freshness` at the end of the lifetime, which
leaves nothing for freshness 0, though its text wants future ones (erratum E1). In the product an item is fresh enough
if it was uploaded at most `freshness` before the request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from math import inf, nextafter
from typing import Literal

EVERYTHING = 1 << 40  # max="all"
LISTED_MAX = 1_000  # identifiers that an interest carries along
LOCAL = -1  # the interface of this router's own receivers; those of links are not negative
SATISFIED = -2  # and of those that have all they asked for

InterestId = Hashable
PublicationId = Hashable
Interface = int
FreshnessRule = Literal["before request", "printed"]


@dataclass(slots=True, eq=False)
class LooseInterest:
    """One lifetime of a request. Never changed once made: routers share it."""

    id: InterestId
    max: int
    deadline: float
    oldest: float  # nothing uploaded before
    refreshed: bool = False
    shelf: Hashable = 0
    where: object = None  # for `fits`
    moved_at: float = -inf  # the chain had another home before
    listed: tuple[PublicationId, ...] = ()  # publications that were sent to it on this branch (PDD)
    cursor: int = 0  # of its box in the lifetime before, at this home; not sent to others

    def after(self, sent: tuple[PublicationId, ...], *, listing: bool) -> LooseInterest:
        """What is left to ask for when these have been sent to it."""
        return LooseInterest(
            self.id,
            self.max - len(sent),
            self.deadline,
            self.oldest,
            self.refreshed,
            self.shelf,
            self.where,
            self.moved_at,
            (self.listed + sent)[:LISTED_MAX] if listing else self.listed,
        )

    def shared(self, branches: int) -> LooseInterest:
        """What each of so many branches is asked for."""
        share = -(-self.max // max(branches, 1))
        return self if share >= self.max else replace(self, max=share)


@dataclass(slots=True, eq=False)
class PublishedItem:
    """What is cached and sent. `content` is the service's own: message, hash, size."""

    id: PublicationId
    uploaded: float
    shelf: Hashable = 0
    content: object = None


Fits = Callable[[LooseInterest, PublishedItem], bool]


def oldest_upload(rule: FreshnessRule, *, now: float, lifetime: float, freshness: float) -> float:
    """When a publication must have been uploaded, at the earliest, for a request made now."""
    if freshness <= 0.0:
        return now
    if rule == "before request":
        return now - freshness
    return nextafter(now + lifetime - freshness, inf)

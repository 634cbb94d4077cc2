"""The life of a publication in a router's cache, as two tables (004 Figures 6 and 7).

A cached publication is in one of three tables. *Pending*: uploaded here and never sent to another router; the
dispatched flag says whether receivers of this router got it. *Overflowing*: sent to others or left over from them, and
never used here. *Disseminated*: used here, and known elsewhere. They are what lets a refreshed interest be served
without a history of deliveries: what is overflowing or pending with the flag off at its home was never used there, and
what is pending elsewhere never left its router.

The figures are lost; the tables were made again from their legends (erratum E5). The rows "remote only, no en-route
caching" and "pending flag off, no match" are our completion: such a copy is passed on, or dropped, and not cached. The
legend does not say whether a home that only passes a copy on keeps it when its own receivers are satisfied already: it
keeps it as overflowing, for it is a recipient.

LIFE_CYCLE: (table, dispatched, who selected it) -> (table, dispatched).
ARRIVAL: (where it came from, used here, satisfied receivers here, wanted by others, pending flag, en-route caching)
-> what to do. None stands for any.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Table(IntEnum):
    """Where a cached publication is listed."""

    PENDING = 0
    OVERFLOWING = 1
    DISSEMINATED = 2


class CachePlace(NamedTuple):
    """The table, and the dispatched flag, which is on wherever receivers here got it."""

    table: Table
    dispatched: bool


PENDING = CachePlace(Table.PENDING, dispatched=False)
USED_PENDING = CachePlace(Table.PENDING, dispatched=True)
OVERFLOWING = CachePlace(Table.OVERFLOWING, dispatched=False)
DISSEMINATED = CachePlace(Table.DISSEMINATED, dispatched=True)
PLACES = (PENDING, USED_PENDING, OVERFLOWING, DISSEMINATED)


class Selector(IntEnum):
    """Who selects a cached publication."""

    LOCAL = 0
    REMOTE = 1


LIFE_CYCLE: dict[tuple[CachePlace, Selector], CachePlace] = {
    (PENDING, Selector.LOCAL): USED_PENDING,  # alpha
    (USED_PENDING, Selector.LOCAL): USED_PENDING,  # alpha
    (PENDING, Selector.REMOTE): OVERFLOWING,  # beta
    (OVERFLOWING, Selector.REMOTE): OVERFLOWING,  # gamma
    (OVERFLOWING, Selector.LOCAL): DISSEMINATED,  # delta
    (DISSEMINATED, Selector.LOCAL): DISSEMINATED,  # epsilon
    (DISSEMINATED, Selector.REMOTE): DISSEMINATED,  # epsilon
    (USED_PENDING, Selector.REMOTE): DISSEMINATED,  # mu
}


class CacheArrival(NamedTuple):
    """A publication that has just come, and whom it met."""

    uploaded: bool
    used: bool  # a local receiver takes it
    satisfied: bool  # it fits a local interest that has all it asked for
    remote: bool  # others want it
    pending: bool  # the flag of the message; an upload has it on
    en_route: bool  # this router caches what passes


class CacheDecision(NamedTuple):
    """Where it is cached, if at all, and whether it is sent on."""

    place: CachePlace | None
    forward: bool


ARRIVAL: tuple[tuple[tuple[bool | None, ...], CacheDecision], ...] = (
    # uploaded, used, satisfied, remote, pending, en_route
    ((True, True, None, True, None, None), CacheDecision(DISSEMINATED, forward=True)),
    ((True, False, None, True, None, None), CacheDecision(OVERFLOWING, forward=True)),
    ((True, True, None, False, None, None), CacheDecision(USED_PENDING, forward=False)),
    ((True, False, None, False, None, None), CacheDecision(PENDING, forward=False)),
    ((False, True, None, True, None, None), CacheDecision(DISSEMINATED, forward=True)),
    ((False, True, None, False, None, None), CacheDecision(DISSEMINATED, forward=False)),
    ((False, False, True, True, True, None), CacheDecision(OVERFLOWING, forward=True)),
    ((False, False, None, False, True, None), CacheDecision(OVERFLOWING, forward=False)),
    ((False, False, False, True, True, True), CacheDecision(OVERFLOWING, forward=True)),
    ((False, False, None, True, False, True), CacheDecision(DISSEMINATED, forward=True)),
    ((False, False, None, True, None, False), CacheDecision(None, forward=True)),
    ((False, False, None, False, False, None), CacheDecision(None, forward=False)),
)


def _rows(arrival: CacheArrival) -> list[CacheDecision]:
    return [
        decision
        for row, decision in ARRIVAL
        if all(wanted is None or wanted == found for wanted, found in zip(row, arrival, strict=True))
    ]


def _every_arrival() -> dict[CacheArrival, CacheDecision]:
    """The table with every None written out; the first row that fits decides."""
    found = {}
    for bits in range(1 << len(CacheArrival._fields)):
        arrival = CacheArrival(*(bool(bits >> place & 1) for place in range(len(CacheArrival._fields))))
        found[arrival] = _rows(arrival)[0]
    return found


_DECISIONS = _every_arrival()


def selected(place: CachePlace, by: Selector) -> CachePlace:
    """Where a cached publication is listed after it was selected."""
    return LIFE_CYCLE[place, by]


def arrived(arrival: CacheArrival) -> CacheDecision:
    """What to do with a publication that has just come."""
    return _DECISIONS[arrival]

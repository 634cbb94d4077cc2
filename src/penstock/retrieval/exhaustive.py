"""Exhaustive filtering (EF), the baseline of 004 section 4: every matching publication goes to everybody at once.

Interests are flooded to all routers and stay until their deadline; a publication is multicast when it is uploaded, and
no router caches anything. Interests of one home that ask for the same are one entry, which lives as long as the
longest of them: they travel the same ways. What receivers got and how many messages it took is counted as if each
interest had travelled alone, as the paper counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from penstock.retrieval.interest import LOCAL, Interface

Crowd = tuple[int, Hashable]  # home, shelf


class ExhaustiveOutlet(Protocol):
    """What a router wants done."""

    def advertise(self, crowd: Crowd, deadline: float, came_from: Interface) -> None:
        """Send it on every interface but this one (LOCAL: on all)."""

    def multicast(self, interfaces: Sequence[Interface], shelf: Hashable, nonce: Hashable) -> None:
        """One copy on each."""

    def deliver(self, shelf: Hashable, nonce: Hashable) -> None:
        """To all receivers here that ask for this."""


class ExhaustiveRouter:
    """One router that filters and caches nothing."""

    def __init__(self, outlet: ExhaustiveOutlet, *, nonces_max: int = 4_096) -> None:
        self._outlet = outlet
        self._nonces_max = nonces_max
        self._nonces: dict[Hashable, None] = {}
        self._crowds: dict[Hashable, dict[Hashable, tuple[Interface, float]]] = {}

    def interest(self, crowd: Crowd, deadline: float, came_from: Interface) -> None:
        """Somebody asks for everything on a shelf; known if the entry lives as long already."""
        known = self._crowds.setdefault(crowd[1], {})
        found = known.get(crowd)
        if found is not None and found[1] >= deadline:
            return
        known[crowd] = (came_from if found is None else found[0], deadline)
        self._outlet.advertise(crowd, deadline, came_from)

    def publication(self, shelf: Hashable, nonce: Hashable, came_from: Interface, now: float) -> None:
        """One is uploaded here (LOCAL), or comes by."""
        if nonce in self._nonces:
            return
        self._nonces[nonce] = None
        if len(self._nonces) > self._nonces_max:
            del self._nonces[next(iter(self._nonces))]
        ways: dict[Interface, None] = {}
        for interface, deadline in self._crowds.get(shelf, {}).values():
            if deadline > now:
                ways[interface] = None
        if LOCAL in ways:
            del ways[LOCAL]
            self._outlet.deliver(shelf, nonce)
        ways.pop(came_from, None)
        if ways:
            self._outlet.multicast(tuple(ways), shelf, nonce)

    def __len__(self) -> int:
        return sum(len(crowds) for crowds in self._crowds.values())

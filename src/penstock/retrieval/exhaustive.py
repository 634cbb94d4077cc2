"""Exhaustive filtering (EF), the baseline of 004 section 4: every matching publication goes to everybody at once.

Interests are flooded to all routers and stay until their deadline; a publication is multicast when it is uploaded, and
no router caches anything. So all that a router must know of the interests that came over an interface is until when
somebody waits there. What receivers got and how many messages it took is counted as if each interest had travelled
alone, as the paper counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from penstock.retrieval.interest import LOCAL, Interface


class ExhaustiveOutlet(Protocol):
    """What a router wants done."""

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
        self._ways: dict[Hashable, dict[Interface, float]] = {}  # of each shelf: until when somebody waits there

    def interest(self, shelf: Hashable, deadline: float, came_from: Interface) -> None:
        """Somebody asks for everything on a shelf."""
        ways = self._ways.get(shelf)
        if ways is None:
            ways = self._ways[shelf] = {}
        if deadline > ways.get(came_from, 0.0):
            ways[came_from] = deadline

    def publication(self, shelf: Hashable, nonce: Hashable, came_from: Interface, now: float) -> None:
        """One is uploaded here (LOCAL), or comes by."""
        if nonce in self._nonces:
            return
        self._nonces[nonce] = None
        if len(self._nonces) > self._nonces_max:
            del self._nonces[next(iter(self._nonces))]
        waiting = self._ways.get(shelf, {})
        if waiting.get(LOCAL, now) > now:
            self._outlet.deliver(shelf, nonce)
        ways = [way for way, until in waiting.items() if until > now and way != LOCAL and way != came_from]
        if ways:
            self._outlet.multicast(ways, shelf, nonce)

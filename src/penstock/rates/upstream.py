"""From where data comes in, and where it goes: so that word of a link gets to those who send over it, and to no others.

For each link over which copies come in, the brokers that they are meant for, and when the last one came.

State: for each link in, a time for each broker, and the sets of brokers that were noted lately. Bound: the brokers of
the map, SETS_MAX sets for each link.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.kernel.link import Link
from penstock.overlay.packets import BrokerId

NOTED_EVERY = 0.5  # seconds; a set of brokers is written down no more often
SEEN_FOR = 60.0  # who waits for its share of a slow link sends nothing for long, and must hear that link's rate
SETS_MAX = 1_024
BROKERS_MAX = 65_536


class Upstream:
    """All links in."""

    def __init__(self) -> None:
        self._sets: dict[Link, dict[tuple[BrokerId, ...], float]] = {}
        self._brokers: dict[Link, dict[BrokerId, float]] = {}

    def note(self, link: Link, destinations: tuple[BrokerId, ...], now: float) -> None:
        """A copy for these brokers has come in."""
        sets = self._sets.get(link)
        if sets is None:
            sets = self._sets[link] = {}
            self._brokers[link] = {}
        if 0.0 <= now - sets.get(destinations, -NOTED_EVERY) < NOTED_EVERY:
            return
        if len(sets) >= SETS_MAX:
            sets.clear()
        sets[destinations] = now
        brokers = self._brokers[link]
        for broker in destinations:
            if broker in brokers or len(brokers) < BROKERS_MAX:
                brokers[broker] = now

    def feeding(self, behind: Callable[[BrokerId], bool], now: float) -> list[Link]:
        """The links over which copies for such brokers have come lately."""
        found = []
        for link, brokers in self._brokers.items():
            if any(abs(now - at) < SEEN_FOR and behind(broker) for broker, at in brokers.items()):
                found.append(link)
        return found

    def link_down(self, link: Link) -> None:
        """Nothing comes over it any more."""
        self._sets.pop(link, None)
        self._brokers.pop(link, None)

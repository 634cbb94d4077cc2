"""How long the word of a link takes to its homes and back, on average: a change of rate shows no sooner.

The broker remembers when it told each version; a home answers now and then (`RateHeard`). What takes longer than
TRIP_MAX counts as that, so nobody can make a link wait for ever.

State: when the last versions were told, the latest round trip of each home. Bounds: VERSIONS_MAX, HOMES_MAX.
"""

from __future__ import annotations

from penstock.overlay.packets import BrokerId

VERSIONS_MAX = 32
HOMES_MAX = 256
TRIP_MAX = 2.0  # seconds
TRUSTED_FOR = 30.0


class RoundTrips:
    """Of one link."""

    def __init__(self) -> None:
        self._told: dict[int, float] = {}
        self._trips: dict[BrokerId, tuple[float, float]] = {}  # how long, and when that was found

    @property
    def homes(self) -> int:
        """How many have answered lately."""
        return len(self._trips)

    def told(self, version: int, now: float) -> None:
        """This version leaves now."""
        if len(self._told) >= VERSIONS_MAX:
            del self._told[next(iter(self._told))]
        self._told[version] = now

    def heard(self, version: int, home: BrokerId, now: float) -> None:
        """This home has heard it; of versions that are too old, or were never told, nothing follows."""
        told = self._told.get(version)
        if told is None or (home not in self._trips and len(self._trips) >= HOMES_MAX):
            return
        self._trips[home] = (min(TRIP_MAX, max(0.0, now - told)), now)

    def longest(self) -> float:
        """Seconds; 0 if nobody has answered lately."""
        return max((trip for trip, _ in self._trips.values()), default=0.0)

    def mean(self, now: float) -> float:
        """Seconds; 0 if nobody has answered lately."""
        self._trips = {home: trip for home, trip in self._trips.items() if abs(now - trip[1]) < TRUSTED_FOR}
        return sum((trip for trip, _ in self._trips.values()), 0.0) / max(1, len(self._trips))

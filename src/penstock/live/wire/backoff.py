"""Exponential backoff with jitter: how long to wait before dialling again.

The wait doubles from `FIRST` up to `LONGEST`, and each is drawn between half and one and a half of that, so that a
thousand clients of a broker that comes back do not all dial in the same instant.
"""

from __future__ import annotations

from random import Random

FIRST = 0.05
LONGEST = 2.0


class Backoff:
    """The waits between attempts to connect."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = FIRST

    def wait(self) -> float:
        """Seconds to wait before the next attempt."""
        wait = self._next * self._random.uniform(0.5, 1.5)
        self._next = min(LONGEST, 2.0 * self._next)
        return wait

    def reset(self) -> None:
        """It worked; the next failure starts small again."""
        self._next = FIRST

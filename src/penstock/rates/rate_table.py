"""The rates of other brokers' links, as they were told, and of our own.

What is told counts for `expire_after` and then no more: unknown means unlimited. A later version replaces an earlier
one of the same life; of another life the first word counts. A link may tell so often and no more (a budget for each).

State: an entry for each link. Bound: LINKS_MAX; beyond it links are not known, which means unlimited.
"""

from __future__ import annotations

from math import inf

from penstock.kernel.token_bucket import TokenBucket
from penstock.overlay.spanning_tree import Hop

LINKS_MAX = 4_096
NEW_FOR = 0.5  # seconds
WORDS_RATE, WORDS_BURST = 25.0, 50.0


class ToldRate:
    """What is known of one link."""

    __slots__ = ("answered_at", "at", "budget", "life", "rate", "since", "version")

    def __init__(self, now: float) -> None:
        self.life = self.version = -1
        self.rate = 0.0
        self.at = self.since = now
        self.answered_at = -inf  # when we last said that we have heard it
        self.budget = TokenBucket(WORDS_RATE, WORDS_BURST, now)


class RateTable:
    """All links that somebody limits."""

    def __init__(self, expire_after: float) -> None:
        self._expire_after = expire_after
        self._links: dict[Hop, ToldRate] = {}
        self.changes = 0  # how often a link has come or gone

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, hop: Hop) -> bool:
        return hop in self._links

    def links(self) -> dict[Hop, float]:
        """The rate of each link."""
        return {hop: told.rate for hop, told in self._links.items()}

    def rate(self, hop: Hop) -> float | None:
        """What each publisher may send over this link; None: as much as it likes."""
        told = self._links.get(hop)
        return told.rate if told is not None else None

    def is_new(self, hop: Hop, now: float) -> bool:
        """Whether this link has been limited for less than NEW_FOR: who sends now has sent before."""
        told = self._links.get(hop)
        return told is not None and 0.0 <= now - told.since < NEW_FOR

    def hear(self, hop: Hop, life: int, version: int, rate: float, now: float) -> bool:
        """Somebody has told this; says whether it is news."""
        told = self._links.get(hop)
        if told is None:
            if len(self._links) >= LINKS_MAX:
                return False
            told = self._links[hop] = ToldRate(now)
            self.changes += 1
        elif (told.life == life and version <= told.version) or not told.budget.take(now):
            return False
        told.life, told.version, told.rate, told.at = life, version, rate, now
        return True

    def answers(self, hop: Hop, every: float, now: float) -> bool:
        """Whether it is time to say that we have heard of this link; if so, we have."""
        told = self._links.get(hop)
        if told is None or abs(now - told.answered_at) < every:
            return False
        told.answered_at = now
        return True

    def expire(self, now: float) -> list[Hop]:
        """Forget what is too old; returns these links."""
        old = [hop for hop, told in self._links.items() if abs(now - told.at) > self._expire_after]
        for hop in old:
            self.forget(hop)
        return old

    def forget(self, hop: Hop) -> None:
        """Nobody limits this link any more."""
        del self._links[hop]
        self.changes += 1

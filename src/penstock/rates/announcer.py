"""When a link tells its rate.

It is told while the link is busy: when it has changed by CHANGE, and every `refresh` if it has not. Two words are
`announce_every` apart, and so far that word to all homes takes no more than WORD_SHARE of what the link
carries, but told again before the last one expires; a quarter as far if the rate has fallen by a tenth, and at once if
by three. A link that is not busy any more tells a rate that rises, as long as the old
one may be obeyed somewhere; then it falls silent, and what it told expires. So a network without busy links has no such
traffic.

State: what was told last, and when. No bound is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from penstock.rates.config import RatesConfig

CHANGE = 0.05  # what is worth telling
FALL, FALL_FAR = 0.9, 0.7  # what is worth telling soon, and at once
SOON = 0.25  # of the usual time between two words
LONGEST = 2 / 3  # of the time for which a word counts: one may be late
WORD_BYTES = 23.0  # of one word to one home
WORD_SHARE = 0.005  # of the link's capacity, that word of it may take elsewhere


class Announcer:
    """Of one link."""

    def __init__(self, config: RatesConfig, versions: Iterator[int]) -> None:
        self.version = 0
        self._versions = versions  # of all links of this life, so that one which begins anew does not count again
        self._config = config
        self._told = inf
        self._told_at = -inf
        self._spacing = config.announce_every

    def pace(self, homes: int, capacity: float) -> None:
        """A narrow link with many homes tells less often: its word must not cost more than it is worth."""
        needed = homes * WORD_BYTES / (WORD_SHARE * capacity)
        longest = max(self._config.refresh, LONGEST * self._config.expire_after)
        self._spacing = min(longest, max(self._config.announce_every, needed))

    def tells(self, rate: float, busy: bool, now: float) -> bool:
        """Whether this rate is told now; if so, it has been."""
        if not self._worth(rate, busy, now):
            return False
        self.version = next(self._versions)
        self._told, self._told_at = rate, now
        return True

    def in_force(self, now: float) -> bool:
        """Whether what was told last may still be obeyed somewhere."""
        return abs(now - self._told_at) < self._config.expire_after

    def _worth(self, rate: float, busy: bool, now: float) -> bool:
        since = abs(now - self._told_at)  # also by a clock that was set back
        if not self.in_force(now):
            return busy
        if busy and (rate < FALL_FAR * self._told or since >= max(self._config.refresh, self._spacing)):
            return True
        if busy and rate < FALL * self._told and since >= SOON * self._spacing:
            return True
        if since < self._spacing:
            return False
        risen = rate > (1.0 + CHANGE) * self._told
        return risen or (busy and rate < (1.0 - CHANGE) * self._told)

"""The random suppression timers of SRM, after which a client sends unless another has, and their tuning.

A timer is drawn uniformly from 2^i [first * d, (first + spread) * d], where d is a distance in seconds and i counts how
often the same thing had to be sent again (002 section 4.1.1: C1 and C2 for requests, D1 and D2 for repairs). `first`
lets the nearest send first; `spread` keeps those that are equally near apart.

Tuning (outside: SRM; 002 names it and leaves it out). A round is all that is sent about one lost message. Two running
means are kept over rounds: how many sent the same thing once more (duplicates), and how long it took until the first
was sent, in round trips. At the end of each round:

    duplicates at or above one per round          first + 0.1, spread + 0.5
    else, if that time is above one round trip    spread - 0.1, and first - 0.05 if duplicates are below a quarter

and who sent lowers its own `first` by 0.05, so that the one who is nearest to the losses is soon the only sender. SRM
bounds the spread by the size of the group; nobody knows that here, so the bound is a constant.

State: two constants, two means. `adaptive=False` keeps the constants as they were given.
"""

from __future__ import annotations

from random import Random

FIRST_MIN, FIRST_MAX = 0.5, 2.0  # outside: SRM
SPREAD_MIN, SPREAD_MAX = 1.0, 32.0  # outside: SRM, which takes the size of the group for the second
DUPLICATES_WANTED = 1.0  # per round
ROUND_TRIPS_WANTED = 1.0  # until the first is sent
DUPLICATES_FEW = 0.25
KEPT = 0.75  # of the means, from one round to the next (outside: SRM)
DOUBLINGS_MAX = 16  # no timer is doubled more often, whatever the count says


class SuppressionTimers:
    """The two constants of a suppression timer, fixed or tuned."""

    __slots__ = (
        "_adaptive",
        "_first_max",
        "_first_min",
        "_spread_max",
        "_spread_min",
        "duplicates",
        "first",
        "round_trips",
        "spread",
    )

    def __init__(self, first: float, spread: float, *, adaptive: bool) -> None:
        self.first = first
        self.spread = spread
        self._adaptive = adaptive
        # Who starts outside of the bounds may go back to where it started.
        self._first_min, self._first_max = min(first, FIRST_MIN), max(first, FIRST_MAX)
        self._spread_min, self._spread_max = min(spread, SPREAD_MIN), max(spread, SPREAD_MAX)
        self.duplicates = 0.0  # per round
        self.round_trips = ROUND_TRIPS_WANTED  # until the first is sent

    def draw(self, random: Random, distance: float, doublings: int = 0) -> float:
        """A timer, in seconds."""
        scale = distance * 2.0 ** min(doublings, DOUBLINGS_MAX)
        return random.uniform(self.first * scale, (self.first + self.spread) * scale)

    def first_sent(self, after: float, distance: float) -> None:
        """The first of a round was sent, by anybody, so many seconds after its beginning."""
        self.round_trips += (1.0 - KEPT) * (after / (2.0 * distance) - self.round_trips)

    def sent_here(self) -> None:
        """We sent it."""
        if self._adaptive:
            self._move(-0.05, 0.0)

    def ended(self, duplicates: int) -> None:
        """A round is over, in which it was sent so often more than once."""
        self.duplicates += (1.0 - KEPT) * (duplicates - self.duplicates)
        if not self._adaptive:
            return
        if self.duplicates >= DUPLICATES_WANTED:
            self._move(0.1, 0.5)
        elif self.round_trips > ROUND_TRIPS_WANTED:
            self._move(-0.05 if self.duplicates < DUPLICATES_FEW else 0.0, -0.1)

    def _move(self, first: float, spread: float) -> None:
        self.first = min(self._first_max, max(self._first_min, self.first + first))
        self.spread = min(self._spread_max, max(self._spread_min, self.spread + spread))

"""How long a sender waits between two tries, by what its way costs, and what its dearest link has cost lately.

Whoever can pay buys with probability 1/price, and otherwise tries again within one update interval. That alone makes
ten times as many senders ten times as dear: the buffers grow with their number. So a link that stays dearer than
COMFORTABLE makes everybody who crosses it wait longer between tries, ten times longer for each STEP dollars. What
counts is the price smoothed over SLOW seconds, at every broker alike: nobody is favoured, and prices, which change
within milliseconds, stay the fast part of control.

And where little is to be paid, an interval is long: a sender alone would leave its link idle meanwhile. So below
COMFORTABLE the wait is shorter in proportion to the price, down to EAGER of an interval.

003 has nothing of the kind; `patient = false` leaves it away.

State: a smoothed price for each link that somebody has wanted to cross. Bound: LINKS_MAX, and then it begins anew.
"""

from __future__ import annotations

from math import exp

from penstock.overlay.spanning_tree import Hop

COMFORTABLE = 7.0  # dollars; at a soft limit of 100, 42 messages wait then
STEP = 1.2
SLOW = 10.0  # seconds
EAGER = 0.02  # of an interval
LONGEST = 1.0  # seconds between two tries, about
LINKS_MAX = 10_000


def eagerness(cost: float) -> float:
    """The part of an interval to wait where the links of a way cost so much together."""
    return min(max(EAGER, cost / COMFORTABLE), 1.0)


class Patience:
    """Smoothed prices of links."""

    def __init__(self) -> None:
        self._lately: dict[Hop, tuple[float, float]] = {}  # smoothed price, and when

    def wait(self, hop: Hop, price: float, interval: float, now: float) -> float:
        """The longest time until the next try of somebody whose dearest link is this."""
        before, at = self._lately.get(hop, (price, now))
        if now > at:
            price += (before - price) * exp(-(now - at) / SLOW)
        else:
            price = before
        if len(self._lately) >= LINKS_MAX and hop not in self._lately:
            self._lately.clear()
        self._lately[hop] = (price, now)
        longer: float = 10.0 ** min(max(0.0, price - COMFORTABLE) / STEP, 6.0)
        return min(interval * longer, max(interval, LONGEST))

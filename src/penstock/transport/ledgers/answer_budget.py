"""How much repair traffic requesters may cause at a publisher: a budget for each, and one for all together.

A small request can cause a hundred times its size, and hours of comparing. So what an answer costs, its bytes and the
comparisons for it, is taken from the requester's budget and from that for all. Both fill with time, and with every byte
that is published: who loses most of a fast stream may have it again. A request is refused while its budget is
overdrawn, and whoever needs the messages asks again.

When the budget for all is below a half, those are refused first who have less than half of their own. And no request is
admitted that may cost more than half of what is left for all. So many who ask for everything leave something for the
one who asks for little.

State: budgets by requester, and refusals that nobody was told of. Bounds: REQUESTERS_MAX, the one who asked least
recently is forgotten. No messages, no timers.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.kernel.trace import Counted

REQUESTERS_MAX = 1_000
REQUEST_COST, NUMBER_COST = 100, 8  # bytes that any request, and each number that is looked at, counts for
ONE_RATE, ONE_DEPTH, ONE_SHARE = 128 << 10, 1 << 20, 1.0  # bytes/s; bytes; for each byte that is published
ALL_RATE, ALL_DEPTH, ALL_SHARE = 1 << 20, 8 << 20, 8.0


class _Budget:
    __slots__ = ("_at", "_depth", "_published", "_rate", "_share", "level")

    def __init__(self, rate: float, depth: float, share: float, now: float, published: int) -> None:
        self._rate, self._depth, self._share = rate, depth, share
        self.level = depth
        self._at, self._published = now, published

    def filled(self, now: float, published: int) -> float:
        """Which share of it is there now; below zero it is overdrawn."""
        more = self._rate * max(0.0, now - self._at) + self._share * (published - self._published)
        self.level = min(self._depth, self.level + more)
        self._at, self._published = now, published
        return self.level / self._depth


class AnswerBudget:
    """The budgets of one publisher's requesters."""

    def __init__(self) -> None:
        self._all: _Budget | None = None
        self._of: OrderedDict[str, _Budget] = OrderedDict()
        self._refused: dict[str, int] = {}  # requests, since somebody was told

    def admits(self, requester: str, cost: int, now: float, published: int) -> bool:
        """Whether a request that costs so much at most is answered; `published`: how many bytes have left in all."""
        if self._all is None:
            self._all = _Budget(ALL_RATE, ALL_DEPTH, ALL_SHARE, now, published)
        own = self._of.pop(requester, None) or _Budget(ONE_RATE, ONE_DEPTH, ONE_SHARE, now, published)
        self._of[requester] = own
        if len(self._of) > REQUESTERS_MAX:
            self._of.popitem(last=False)
        of_all, of_own = self._all.filled(now, published), own.filled(now, published)
        if of_own > 0.0 and self._all.level >= 2.0 * cost and (of_all > 0.5 or of_own > 0.5):
            return True
        if requester in self._refused or len(self._refused) < REQUESTERS_MAX:
            self._refused[requester] = self._refused.get(requester, 0) + 1
        return False

    def spend(self, requester: str, cost: int) -> None:
        """A request that was admitted has cost so many bytes."""
        assert self._all is not None
        self._all.level -= cost
        self._of[requester].level -= cost

    def refusals(self) -> list[Counted]:
        """How many requests of whom were refused since this was asked last."""
        found = [Counted("requests refused", requester, times) for requester, times in self._refused.items()]
        self._refused.clear()
        return found

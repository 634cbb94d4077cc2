"""Links that have cost more than anybody may save for longer than an honest one does.

A link above its soft limit costs more than can be saved, so nobody buys, its buffer drains, and it costs less again.
One that stays so dear is stuck, or its broker makes it up; then senders must not wait for ever. After DOUBTED_AFTER
seconds it is doubted and recorded, and a message that crosses it costs all that can be saved, not more: senders try
with all that they have, seldom, and lanes that are full hold them. Links that are dear together, none of them alone,
are not doubted: that a long way may cost more than anybody can save is 003's rule. A broker does not doubt its own
links.

State: since when a link has been so dear. Bound: LINKS_MAX, and then it begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.overlay.packets import BrokerId
from penstock.overlay.spanning_tree import Hop

DOUBTED_AFTER = 10.0  # seconds
LINKS_MAX = 10_000


class Doubts:
    """What other brokers say of their links, against time."""

    def __init__(self, limit: float, own: BrokerId, value: Callable[[Hop, float], float]) -> None:
        self._limit = limit  # a link that costs more than this nobody can cross
        self._own = own
        self._value = value
        self._since: dict[Hop, float] = {}
        self._told: dict[Hop, None] = {}

    def any_of(self, hops: Iterable[Hop], now: float) -> bool:
        """Whether one of these links is doubted; those that are too dear are watched from now on."""
        found = False
        for hop in hops:
            if hop[0] != self._own and self._value(hop, now) > self._limit:
                if len(self._since) >= LINKS_MAX and hop not in self._since:
                    self._since.clear()
                    self._told.clear()
                found |= abs(now - self._since.setdefault(hop, now)) > DOUBTED_AFTER
        return found

    def look(self, now: float) -> list[Hop]:
        """Watch those no longer that cost less now; returns links that are doubted, each once."""
        for hop in [hop for hop in self._since if self._value(hop, now) <= self._limit]:
            del self._since[hop]
            self._told.pop(hop, None)
        new = [hop for hop, at in self._since.items() if abs(now - at) > DOUBTED_AFTER and hop not in self._told]
        self._told.update(dict.fromkeys(new))
        return new

"""A warning that would come again and again comes once, then at growing intervals: after 1, 2, 4 ... minutes.

State: two numbers for each kind of warning. Bound: `KEYS_MAX` kinds; beyond it the one that began first is forgotten.
"""

from __future__ import annotations

from collections.abc import Hashable

INTERVAL_FIRST = 60.0  # seconds
INTERVAL_MAX = 3600.0
KEYS_MAX = 1_000


class QuietLog:
    """Says when a warning may be written."""

    def __init__(self) -> None:
        self._next: dict[Hashable, tuple[float, float, int]] = {}  # when, the interval after that, left out since

    def allows(self, key: Hashable, now: float) -> int | None:
        """How many were left out since the last one, or None: this one is left out too."""
        at, interval, left_out = self._next.get(key, (now, INTERVAL_FIRST, 0))
        if now < at:
            self._next[key] = (at, interval, left_out + 1)
            return None
        if key not in self._next and len(self._next) >= KEYS_MAX:
            del self._next[next(iter(self._next))]
        self._next[key] = (now + interval, min(2 * interval, INTERVAL_MAX), 0)
        return left_out

    def forget(self, key: Hashable) -> None:
        """It is over: the next one is the first again."""
        self._next.pop(key, None)


def left_out_text(left_out: int) -> str:
    """What to add to a warning."""
    return f" ({left_out} more such warnings were left out)" if left_out else ""

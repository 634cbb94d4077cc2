"""A warning that repeats is logged at once, and then at growing intervals: a log is for people.

    again = warnings.allows(("refused", name), now)
    if again is not None:
        log.warning("... (%d more like this since)", again)

State: a line for each key. Bound: `keys_max`; the key that was quiet for longest goes first.
"""

from __future__ import annotations

from collections.abc import Hashable


class GrowingIntervals:
    """Says of each warning whether it is time for it; whoever asks seldom hears yes."""

    def __init__(self, first: float = 1.0, longest: float = 600.0, keys_max: int = 256) -> None:
        self._first = first
        self._longest = longest
        self._keys_max = keys_max
        self._known: dict[Hashable, tuple[float, float, int]] = {}  # key -> logged at, interval, kept back since

    def allows(self, key: Hashable, now: float) -> int | None:
        """How many were kept back since the last one that was logged; None: keep this one back too.

        Each interval is twice the one before. After two intervals without any the key begins anew.
        """
        logged_at, interval, kept_back = self._known.pop(key, (now - 3.0 * self._first, self._first, 0))
        if now < logged_at + interval:
            self._known[key] = (logged_at, interval, kept_back + 1)
            return None
        while len(self._known) >= self._keys_max:
            del self._known[next(iter(self._known))]
        longer = self._first if now > logged_at + 2.0 * interval and not kept_back else 2.0 * interval
        self._known[key] = (now, min(longer, self._longest), 0)
        return kept_back

"""How long to wait for a message that should have come, before it is declared lost.

Links that repair themselves bring a message late, by their own round trip; so do queues. Whoever declares it lost
meanwhile asks for what is on its way. So the wait follows how late missed messages were that came by themselves: mean
and four deviations, as TCP does for its timeout, at least LOST_AFTER and at most LOST_AFTER_MAX.

State: mean and deviation, for all publishers of one client: late messages of one are few, and most links are shared.
"""

from __future__ import annotations

LOST_AFTER, LOST_AFTER_MAX = 0.050, 0.400  # seconds


class Lateness:
    """How late missed messages come by themselves."""

    __slots__ = ("_deviation", "_mean")

    def __init__(self) -> None:
        self._mean = self._deviation = 0.0

    def came(self, late: float) -> None:
        """A missed message has come by itself, so many seconds after it should have."""
        late = min(max(0.0, late), LOST_AFTER_MAX)
        if not self._mean:
            self._mean, self._deviation = late, late / 2.0
            return
        self._deviation += (abs(late - self._mean) - self._deviation) / 8.0
        self._mean += (late - self._mean) / 8.0

    @property
    def wait(self) -> float:
        """How long to wait before a message is lost."""
        return min(max(LOST_AFTER, self._mean + 4.0 * self._deviation), LOST_AFTER_MAX)

"""The timers of a TCP flow: retransmission and delayed acknowledgement, one alarm each.

The engine cancels nothing, so an alarm that is called too early goes back to sleep: a few events per round trip, not
one per packet.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.sim.engine import Engine


class Alarm:
    """Rings when it is due, unless `due` is set to None before. Only one of its events in the engine matters."""

    def __init__(self, engine: Engine, ring: Callable[[], None]) -> None:
        self._engine = engine
        self._ring = ring
        self.due: float | None = None
        self._armed: float | None = None  # when the engine will call us

    def set(self, time: float) -> None:
        """Ring then, and not before."""
        self.due = time
        if self._armed is None or time < self._armed:
            self._armed = time
            self._engine.at(time, self._wake, time)

    def _wake(self, armed: float) -> None:
        if armed != self._armed:
            return
        self._armed = None
        if self.due is not None and self.due > armed:
            self.set(self.due)
        elif self.due is not None:
            self.due = None
            self._ring()

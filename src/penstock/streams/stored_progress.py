"""Acknowledgements that are on disk, gathered: one packet to each edge for all pubends of this broker.

A reader of a stream with several pubends acknowledges all of them in one moment, each with a packet; they are on disk
by one commit. Told one by one the answers of small messages took a tenth of a narrow link. So an answer waits
CONFIRM_DELAY for others to the same edge. Readers of our own broker are told at once.

State: what waits, for each broker; of a session the newest tick. Timer: CONFIRM. Bound: NAMES_MAX for each broker, then
they go at once.
"""

from __future__ import annotations

from penstock.kernel.timers import ServiceTimers
from penstock.overlay.packets import BrokerId
from penstock.streams.packets import NAMES_MAX, ProgressStored, Tick
from penstock.streams.timers import StreamTimer

CONFIRM_DELAY = 0.005  # seconds


class StoredProgress:
    """What edges are about to be told."""

    def __init__(self, timers: ServiceTimers) -> None:
        self._timers = timers
        self._waiting: dict[BrokerId, dict[tuple[str, int], Tick]] = {}

    def gather(self, broker: BrokerId, packet: ProgressStored, *, now: float) -> ProgressStored | None:
        """Keep this for a moment; or all that waits for the broker, if it is much."""
        if not self._waiting:
            self._timers.set(StreamTimer.CONFIRM, now + CONFIRM_DELAY)
        those = self._waiting.setdefault(broker, {})
        those.update(((pubend, session), tick) for pubend, session, tick in packet.done)
        return _packet(self._waiting.pop(broker)) if len(those) >= NAMES_MAX else None

    def take(self) -> list[tuple[BrokerId, ProgressStored]]:
        """All that waits: its time has come."""
        waiting, self._waiting = self._waiting, {}
        return [(broker, _packet(those)) for broker, those in waiting.items()]


def _packet(those: dict[tuple[str, int], Tick]) -> ProgressStored:
    return ProgressStored(tuple((*which, tick) for which, tick in those.items()))

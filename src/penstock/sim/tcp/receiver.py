"""The receiving half of a TCP flow: takes segments in any order, and acknowledges all below the first that is missing.

Acknowledgements are delayed (RFC 5681). The receiver keeps the numbers of what came early, at most `receive_window`.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.sim.engine import Engine
from penstock.sim.tcp.alarm import Alarm
from penstock.sim.tcp.config import TcpConfig
from penstock.sim.tcp.packets import Path
from penstock.sim.tcp.statistics import TcpStatistics


class Receiver:
    """The other half: takes segments, and acknowledges up to the one it waits for."""

    def __init__(self, engine: Engine, path: Path, config: TcpConfig, statistics: TcpStatistics) -> None:
        self.expected = 0  # all segments below have arrived
        self.progress: Callable[[int], None] | None = None  # called with `expected` whenever it has grown
        self._early: dict[int, None] = {}  # segments that came before one that is missing
        self._unacknowledged = 0
        self._alarm = Alarm(engine, self._acknowledge)
        self._engine = engine
        self._path = path
        self._config = config
        self._statistics = statistics

    def take(self, number: int) -> None:
        """A segment has come. What is out of order, or ends such a time, is acknowledged at once (RFC 5681)."""
        if number == self.expected:
            self._statistics.delivered(self._engine.now)
            in_order = not self._early
            self._move_on()
            self._unacknowledged += 1
            if not in_order or self._unacknowledged >= self._config.acknowledge_every:
                self._acknowledge()
            else:
                self._alarm.set(self._engine.now + self._config.acknowledgement_delay)
            return
        if self.expected < number < self.expected + self._config.receive_window and number not in self._early:
            self._statistics.delivered(self._engine.now)
            self._early[number] = None
        self._acknowledge()

    def _move_on(self) -> None:
        self.expected += 1
        while self.expected in self._early:
            del self._early[self.expected]
            self.expected += 1
        if self.progress is not None:
            self.progress(self.expected)

    def _acknowledge(self) -> None:
        self._unacknowledged = 0
        self._alarm.due = None
        self._path.send(self.expected)

"""How much an edge asks for at once: SDCC (001 section 3.2, equations 9 and 10).

The NACK window is a length of ticks. Each round trip while the edge is recovering, the rate window / round trip is
compared with that at the last change: a gain of at least 10 % opens the window by a step, a loss of at least 30 %
closes it by one, never below one step. The first decision counts as a gain. While the round trip is constant growth
stops by itself, at about ten steps.

State: a window, a rate and a time.
"""

from __future__ import annotations

from penstock.streams.config import StreamsConfig
from penstock.streams.nacks import NackSchedule
from penstock.streams.packets import Tick

SECOND = 1_000_000  # ticks
FORGET_AFTER = 5.0  # seconds without an answer: what was learnt of the way is old


class NackWindow:
    """The NACK window of one pubend at one edge."""

    def __init__(self, config: StreamsConfig) -> None:
        self._first: Tick = int(config.nack_window_first * SECOND)
        self.ticks: Tick = self._first
        self._step = int(config.nack_window_step * SECOND)
        self._max = int(config.nack_window * SECOND)
        self._gain = config.nack_gain
        self._loss = config.nack_loss
        self._rate: float | None = None
        self._decided_at = 0.0

    def upto(self, position: Tick) -> Tick:
        """The last tick that may be asked for from a position: it moves on by whole NACKs (Table 1: 100 ms)."""
        size = min(self._step, self.ticks // 2)
        return (position + self.ticks) // size * size

    def answered(self, nacks: NackSchedule, horizon: Tick, *, now: float) -> None:
        """Something that was asked for has come; decide again, if a round trip has passed."""
        self.decide(nacks.round_trip, now=now)

    def decide(self, round_trip: float | None, *, now: float) -> None:
        """Decide again, if a round trip has passed."""
        passed = now - self._decided_at
        if round_trip is None or round_trip <= 0.0 or 0.0 <= passed < round_trip:
            return
        if passed > max(FORGET_AFTER, 10 * round_trip):  # another recovery
            self.ticks, self._rate = self._first, None
        rate, self._decided_at = self.ticks / round_trip, now
        if self._rate is None or rate >= (1.0 + self._gain) * self._rate:
            self.ticks, self._rate = min(self.ticks + self._step, max(self._max, self._step)), rate
        elif rate <= (1.0 - self._loss) * self._rate:
            self.ticks, self._rate = max(self.ticks - self._step, self._step), rate

"""How much an edge asks for at once: the product's rule of SDCC.

The NACK window is a length of ticks. For each window that has passed through it opens by a step, and closes by a share
that grows with the time that answers wait on their way: the round trip less the shortest one, both means over a window,
because some answers come from a cache nearby and some from the log. That time is kept near DELAY, which fills the link
and leaves it to live messages: an edge that keeps up is far from alerting (`lag_alert`). All pubends of an edge that
share a way see the same delay, open by the same step and close by the same share, so their windows become equal: they
recover side by side. A recovery begins with doubling, until answers wait at all. If answers still wait at the least
window, it is not we who make them wait: they come from further away than those before. What they took is the shortest
round trip from then on.

001 counts gains and losses of window / round trip instead (`nack_window`), which stops growing at ten steps however
long the round trip, and leaves each pubend the window that it had by chance.

State: a window, the shortest round trip and the last ones, a tick and a time. Bound: SAMPLES_MAX.
"""

from __future__ import annotations

from math import inf
from statistics import fmean

from penstock.streams.config import StreamsConfig
from penstock.streams.nacks import NackSchedule
from penstock.streams.packets import Tick

SECOND = 1_000_000  # ticks
DELAY = 0.08  # seconds that answers may wait, about
STEP = 0.02  # seconds of ticks, for each round trip
LEAST = 0.05
SHRINK_MAX = 0.5  # of the window
NACKS = 4  # in one window
SAMPLES_MAX = 64
FORGET_AFTER = 30.0  # seconds without an answer: what was learnt of the way is old


class ShortestRoundTrip:
    """Of answers to Nacks from one broker, whichever pubend they were for: it takes so long when nothing waits.

    Each pubend for itself would take for the shortest what it met first, perhaps behind the answers of others.
    """

    def __init__(self) -> None:
        self.seconds = inf
        self._measured_at = 0.0

    def measured(self, seconds: float, *, now: float) -> None:
        """Another one."""
        fresh = 0.0 <= now - self._measured_at <= FORGET_AFTER
        self.seconds = min(self.seconds, seconds) if fresh else seconds
        self._measured_at = now

    def longer(self, seconds: float) -> None:
        """The way has become longer."""
        self.seconds = seconds


class DelayWindow:
    """The NACK window of one pubend at one edge."""

    def __init__(self, config: StreamsConfig, shortest: ShortestRoundTrip) -> None:
        self._first: Tick = int(config.nack_window_first * SECOND)
        self._max = max(self._first, int(config.nack_window * SECOND))
        self.ticks: Tick = self._first
        self.shortest = shortest
        self._samples: list[float] = []  # of the round trip, since the last decision
        self._doubling = True
        self._decided_at: Tick = 0  # where the doubt horizon was
        self._answered_at = 0.0

    def answered(self, nacks: NackSchedule, horizon: Tick, *, now: float) -> None:
        """Something that was asked for has come; decide again, if a window has passed through since the last time."""
        sample = nacks.take_sample()
        if sample is not None:
            self._samples = [*self._samples[-SAMPLES_MAX + 1 :], sample]
        if not 0.0 <= now - self._answered_at <= FORGET_AFTER:  # another recovery
            self.ticks, self._doubling, self._decided_at = self._first, True, horizon
        self._answered_at = now
        if self._samples and horizon >= self._decided_at + self.ticks:
            took = fmean(self._samples)
            self.shortest.measured(took, now=now)
            waits = took - self.shortest.seconds
            if self.ticks <= LEAST * SECOND and waits > DELAY:
                self.shortest.longer(took)
            self._decide(waits)
            self._decided_at = horizon
            self._samples = []

    def _decide(self, waits: float) -> None:
        """Answers wait so many seconds on their way."""
        self._doubling = self._doubling and waits < DELAY / 4
        if self._doubling:
            ticks = 2 * self.ticks
        else:
            shrinks = min(1.0, max(0.0, waits - DELAY / 2) / DELAY) * SHRINK_MAX
            ticks = int(STEP * SECOND + self.ticks * (1.0 - shrinks))
        self.ticks = max(int(LEAST * SECOND), min(ticks, self._max))

    def upto(self, position: Tick) -> Tick:
        """The last tick that may be asked for from a position: it moves on by whole NACKs."""
        size = max(1, self.ticks // NACKS)
        return (position + self.ticks) // size * size

"""How fast an application takes its messages, while it is behind.

A subscription's queue is bounded; when it is full, messages are lost. Before that happens whoever sends should know
what the reader can take. So, once the queue is more than `BEHIND` of its bound, the reader's pace is measured again and
again and reported with a correction that brings the queue to `AIM` of its bound: less than the pace when it is fuller,
more when it is emptier. So little of the queue is used that the rest can take what is still under way. A reader that
has kept up for `CALM` seconds is no longer reported.

The pace is smoothed, because many read in batches, with pauses between them.

State: messages taken since the last look, its time, and the pace. No timers: whoever puts a message into the queue
looks.
"""

from __future__ import annotations

from math import exp, inf

BEHIND = 0.1  # of the queue's bound
AIM = 0.25
CORRECTION = 2.0  # share of the pace for each share of the queue that is too much or too little
LOOK_EVERY = 0.05  # seconds, at least
SMOOTHED_OVER = 0.5  # seconds
CALM = 1.0


class ReaderPace:
    """Watches the reader of one subscription."""

    __slots__ = ("_behind_at", "_looked_at", "_pace", "_queue_max", "_reported", "taken")

    def __init__(self, queue_max: int) -> None:
        self.taken = 0  # since the last look; whoever takes counts
        self._queue_max = queue_max
        self._looked_at = -inf
        self._pace = 0.0  # messages/s
        self._behind_at = -inf
        self._reported = False

    def look(self, queue: int, now: float) -> float | None:
        """With so many messages waiting: the rate to report, infinity when all is well again; None: nothing to
        report."""
        passed = now - self._looked_at
        if passed < LOOK_EVERY:
            return None
        self._pace += (1.0 - exp(-passed / SMOOTHED_OVER)) * (self.taken / passed - self._pace)
        self.taken, self._looked_at = 0, now
        fill = queue / self._queue_max
        if fill > BEHIND:
            self._behind_at = now
            self._reported = True
        if not self._reported:
            return None
        if now - self._behind_at > CALM:
            self._reported = False
            return inf
        return self._pace * min(1.5, max(0.1, 1.0 + CORRECTION * (AIM - fill)))

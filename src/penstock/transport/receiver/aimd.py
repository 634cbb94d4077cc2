"""A window instead of an equation: the rate grows by one message per round trip, and halves with every loss event.

002 section 6.2 (and 000 section II-C) ask how control by a window would do against control by the equation. There the
limiting receiver acknowledges every message, as in PGMCC; here the receiver keeps the window itself and sends the quota
that it means, once per round trip, like any other: so both can be compared with all else equal. It is
`loss_intervals` with another answer to the question what rate is fair:

    first event    the window is half of what comes in a round trip
    delivery       it grows by 1 / window, so by one message per round trip while it is used; it does not grow beyond
                   UNUSED_MAX times what comes, else a publisher that pauses would save up a burst (outside: TCP)
    loss event     it halves, at most once per round trip, and is never below one message

State: that of the loss history, and the window. No messages, no timers.
"""

from __future__ import annotations

from math import inf

from penstock.transport.receiver.loss_intervals import LossIntervals

UNUSED_MAX = 2.0  # times the messages of a round trip


class Aimd(LossIntervals):
    """The loss history of one session, and a window that follows it."""

    __slots__ = ("window",)

    def __init__(self, intervals: int = 8) -> None:
        super().__init__(intervals, "optimistic")
        self.window: float | None = None  # messages per round trip; None while nothing was lost

    def allowed(self, round_trip: float) -> float:
        """Messages/s; infinity while nothing was lost."""
        return inf if self.window is None else self.window / round_trip

    def delivered(
        self,
        gap: int,
        record_size: int,
        relevant_missing: bool,
        *,
        match_probability: float,
        round_trip: float,
        reception_rate: float,
        now: float,
    ) -> bool:
        """A message came after `gap` missing numbers; returns whether that was a loss event."""
        before = self.events
        begun = super().delivered(
            gap,
            record_size,
            relevant_missing,
            match_probability=match_probability,
            round_trip=round_trip,
            reception_rate=reception_rate,
            now=now,
        )
        if self.window is not None and self.events == before and not relevant_missing:
            self._grow(reception_rate * round_trip)
        return begun

    def _lost(self, round_trip: float, reception_rate: float, now: float) -> bool:
        begun = super()._lost(round_trip, reception_rate, now)
        if begun:
            used = reception_rate * round_trip
            self.window = max(1.0, 0.5 * (used if self.window is None else self.window))
        return begun

    def _grow(self, used: float) -> None:
        assert self.window is not None
        if self.window < max(1.0, UNUSED_MAX * used):
            self.window += 1.0 / self.window

"""How often a subscriber loses messages of one publisher: loss events and the intervals between them.

A *loss event* is one or more losses within a round trip; the *loss interval* is how many messages lie between two
events, and the loss event rate p is one by the mean interval (000 sections II-A and III-C, 002 section 5.2.3). It goes
into TCP's response function. What makes it hard: a gap in the sequence may be messages that nobody wanted here. The
record covers the last k of a gap of g; about the others one must guess. A delivery after a gap without a known loss:

    g <= k         the record covers the gap: the interval grows by 1
    probable       otherwise by (1 - rho)^(g - k), the chance that none of the others mattered; rho is the match
                   probability. Estimated from what arrived it is too low under loss, so p comes out low (erratum C13)
    optimistic     otherwise by 1: none of them mattered (p too low)
    conservative   otherwise it is a loss (p far too high where matches are rare)

Counting (erratum C4, which the papers leave open). A loss sets the interval to 1, for the lost message itself, and the
delivery that revealed it counts like any other, also if it is the same event still. So p equals the share of lost
messages if losses are isolated, and is at most that share otherwise.

Mean (outside: TFRC). The last eight intervals with weights 1, 1, 1, 1, .8, .6, .4, .2, newest first; the running one
counts only if it raises the mean. The first event says little about the interval before it, so the history begins with
the interval at which half of the present rate is allowed; or with what was counted, if that is longer and the rate is
not our own doing (a thin flow within one that somebody else limits would be halved for nothing). `discounting` lets old
intervals fade while the running one is more than twice the mean, so that freed capacity is found sooner; it is off.

State: at most eight intervals, the running one, the time of the last event. No messages, no timers. Repairs are not
shown to this part. A clock that steps back lets no time pass.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Literal

from penstock.transport.receiver.tcp_equation import allowed_rate, loss_event_rate_for

GapRule = Literal["probable", "optimistic", "conservative"]
DISCOUNT_MIN = 0.25  # of one interval's reach (outside: TFRC)


class LossIntervals:
    """The loss history of one session."""

    __slots__ = (
        "_closed",
        "_discount",
        "_discounting",
        "_event_at",
        "_rule",
        "_running",
        "_weights",
        "events",
        "held_by_others",
    )

    def __init__(self, intervals: int = 8, rule: GapRule = "probable", *, discounting: bool = False) -> None:
        if intervals < 1:
            raise ValueError(f"a history of {intervals} intervals; it must have at least 1")
        self._weights = tfrc_weights(intervals)
        self._rule: GapRule = rule
        self._discounting = discounting
        self._running = 1.0
        self._closed: deque[tuple[float, float]] = deque(maxlen=intervals)  # interval and its fading, newest first
        self._discount = 1.0  # what the running interval does to the closed ones
        self._event_at: float | None = None
        self.events = 0
        self.held_by_others = False  # the rate is what others let through, and says nothing about our own way

    @property
    def rate(self) -> float:
        """The loss event rate p; 0 while nothing was lost."""
        return min(1.0, 1.0 / self.mean_interval()) if self._closed else 0.0

    def allowed(self, round_trip: float) -> float:
        """Messages/s that TCP would send; infinity while nothing was lost."""
        return allowed_rate(self.rate, round_trip) if self._closed else inf

    @property
    def running_interval(self) -> float:
        """Messages since the last event."""
        return self._running

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
        """A message came after `gap` missing numbers; returns whether that was a loss event.

        `relevant_missing`: the record names one that was wanted and has not come, nor was dropped here.
        """
        uncovered = gap - record_size
        begun = False
        if relevant_missing or (uncovered > 0 and self._rule == "conservative"):
            begun = self._lost(round_trip, reception_rate, now)
            self._running += 1.0
        elif uncovered > 0 and self._rule == "probable":
            self._running += (1.0 - min(1.0, max(0.0, match_probability))) ** uncovered
        else:
            self._running += 1.0
        self._fade()
        return begun

    def came(self, messages: int) -> None:
        """So many came, one after the other, and nothing was missing."""
        self._running += messages
        self._fade()

    def dropped_here(self, *, round_trip: float, reception_rate: float, now: float) -> bool:
        """A message came as far as our own receive queue and was dropped there: a loss as any other."""
        begun = self._lost(round_trip, reception_rate, now)
        self._fade()
        return begun

    def mean_interval(self) -> float:
        """The weighted mean, with the running interval if that raises it; 1 while there is no history."""
        if not self._closed:
            return 1.0
        others = list(self._closed)[:-1]  # the oldest gives way to the running one
        older = zip(self._weights[1:], others, strict=False)
        with_running = [(weight * fading * self._discount, interval) for weight, (interval, fading) in older]
        return max(self._closed_mean(), _mean([(self._weights[0], self._running), *with_running]))

    def _closed_mean(self) -> float:
        closed = zip(self._weights, self._closed, strict=False)
        return _mean([(weight * fading, interval) for weight, (interval, fading) in closed])

    def _lost(self, round_trip: float, reception_rate: float, now: float) -> bool:
        """A loss: a new event, unless the last one is less than a round trip old."""
        if self._event_at is not None:
            self._event_at = min(self._event_at, now)
            if now - self._event_at < round_trip:
                return False
        interval = self._running if self._closed else self._first_interval(round_trip, reception_rate)
        faded = [(length, fading * self._discount) for length, fading in self._closed]
        self._closed.clear()
        self._closed.extend([(interval, 1.0), *faded][: len(self._weights)])
        self._running, self._discount = 1.0, 1.0
        self._event_at = now
        self.events += 1
        return True

    def _first_interval(self, round_trip: float, reception_rate: float) -> float:
        """At which half of the present rate is allowed; with no rate to go by, what was counted."""
        if not reception_rate > 0.0:
            return self._running
        half = 1.0 / loss_event_rate_for(reception_rate / 2.0, round_trip)
        return max(half, self._running) if self.held_by_others else half

    def _fade(self) -> None:
        if self._discounting and self._closed:
            self._discount = max(DISCOUNT_MIN, min(1.0, 2.0 * self._closed_mean() / self._running))


def tfrc_weights(intervals: int) -> tuple[float, ...]:
    """How much each interval counts, newest first: the newer half fully, then less and less."""
    flat = intervals // 2
    return tuple(1.0 if i < flat else (intervals - i) / (intervals - flat + 1.0) for i in range(intervals))


def _mean(weighted: list[tuple[float, float]]) -> float:
    return sum((weight * value for weight, value in weighted), 0.0) / sum((weight for weight, _ in weighted), 0.0)

"""A loss probe: how a subscriber finds out whether messages of a flow were lost (beyond the papers; erratum C8).

A record has bits, and bits cannot represent a range: with `price < 10` every message with a price looks like one that
should have come. Nor do they show much where messages have so many attributes that most bits are set. Taken for losses,
those would slow down content that nobody is short of. So they are only possible losses. What is lost for sure shows in
the flow's sequence, and that is for those whom the publisher follows (`flow_sequence`). Hence a subscriber probes: it
asks for the flow at a quota that nobody reaches (ANYTHING); twice what comes would be in the way of the next burst. The
publisher names it as the limiting receiver, and from then on losses are exact. It goes on probing, so that the flow
does not become free, for as long as records give reason to.

    how often     once per half of the time after which a receiver without feedback is forgotten
    somebody else may be followed already for a lower quota. Then it is asked for only SPARING times what comes: who
                  loses more than a sixth of the flow has the lower quota and is followed. Who loses less is not, and
                  does not react to its losses while that lasts (a flow that is limited already, so much is sure)
    unanswered    each time the interval doubles, up to WAITS_MAX times: a thousand who probe and are not followed
                  because others are must not be a flood

A probe that no possible loss has renewed for that time ends. State: a few numbers for each flow. No messages, no
timers.
"""

from __future__ import annotations

from math import inf

ANYTHING = 1e6  # messages/s; a flow with such a quota is counted and not limited
SPARING = 1.2  # times the rate that comes
WAITS_MAX = 16.0


class LossProbe:
    """The probe of one flow of one publisher."""

    __slots__ = ("_sent_at", "_timeout", "_unanswered", "_until")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout  # after which a publisher forgets who sends no feedback
        self._until = -inf
        self._sent_at = -inf
        self._unanswered = 0

    def possible_loss(self, now: float) -> None:
        """A record has shown what may be a loss."""
        self._until = now + self._timeout

    def lasts(self, now: float) -> bool:
        """Whether there is still reason for it; of times of the future, after a step of the clock, there is none."""
        return 0.0 <= self._until - now <= self._timeout

    def answered(self) -> None:
        """The publisher follows us: losses of the flow are exact."""
        self._unanswered = 0

    def quota(self, rate: float, *, limiting: bool, followed: bool, floor: float, now: float) -> float | None:
        """What to ask for now, if anything; `limiting`: the publisher follows us, `followed`: it follows anybody."""
        if not rate > 0.0 or not self.lasts(now):
            return None
        wait = self._timeout / 2.0 * min(WAITS_MAX, 2.0**self._unanswered)
        if 0.0 <= now - self._sent_at < wait:
            return None
        return max(floor, SPARING * rate) if followed and not limiting and self._unanswered else ANYTHING

    def sent(self, now: float) -> None:
        """It was sent."""
        self._sent_at = now
        self._unanswered = min(self._unanswered + 1, 10)

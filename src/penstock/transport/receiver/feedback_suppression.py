"""Feedback suppression: who sends when many are short of the same flow (002 section 6.2; outside: TFMCC, SRM).

A hundred equal subscribers behind one bottleneck lose the same messages and would all ask for the same quota, again and
again. One of them is enough: the limiting receiver, who always sends. Anybody else who wants less than comes

    does not send   if somebody limits the flow already and its quota is at most TOLERANCE below what comes: it is as
                    good as granted, and half of those who measure the same thing always measure a little less
    sets a timer    otherwise, of at most `patience` round trips; drawn so that of many only few are early (exponential:
                    a ten-thousandth of all in the first tenth or so of the time), and the shorter the more urgent the
                    request is. Whoever sees meanwhile that the publisher has begun to follow somebody else does not
                    send and looks again a round trip later

Patience is learned, because nobody can know how many others there are: who sent and was not followed has company and
grows more patient, by GROWS round trips up to the bound; who sent and was followed halves its patience. It begins at
0, so a subscriber that is alone never waits, and a first loss is reported at once, by all. Departure: the papers have
no suppression; TFMCC's publisher repeats the lowest rate that it received, ours names only the limiting receiver.

State per session: patience, when to send, whom the publisher followed at that time, whether we sent and wait for the
effect. No timers of its own: `send_at` says when to look again.
"""

from __future__ import annotations

from math import log
from random import Random

TOLERANCE = 0.1  # of the rate (outside: TFMCC)
GROWS = 2.0  # round trips
SEEN_AFTER = 1.5  # round trips
FORGOTTEN_AFTER = 2.0  # round trips: whoever had nothing to send when its timer expired sets a new one for the next
COMPANY = 10_000.0  # the most who may be suppressed together (outside: TFMCC)


class FeedbackSuppression:
    """When a subscriber that is not the limiting receiver sends feedback."""

    __slots__ = ("_before", "_max", "_random", "_send_at", "_sent_at", "patience", "silent")

    def __init__(self, patience_max: float, random: Random) -> None:
        self._max = patience_max
        self._random = random
        self._send_at: float | None = None
        self._before: tuple[int, ...] = ()  # whom the publisher followed when the timer was set
        self._sent_at: float | None = None
        self.patience = 0.0  # round trips
        self.silent = 0  # feedbacks that were suppressed

    def look(self, *, limiting: bool, round_trip: float, now: float) -> None:
        """If we have sent, see whether we were followed; it takes a round trip and a message to know."""
        if limiting:
            self._send_at = None
        if self._sent_at is None or not (limiting or now - self._sent_at > SEEN_AFTER * round_trip):
            return
        self.patience = self.patience / 2.0 if limiting else min(self._max, self.patience + GROWS)
        self._sent_at = None

    def send_at(self, share: float, followed: tuple[int, ...], round_trip: float, now: float) -> float:
        """When to send: now, or look again at this time.

        `share` is what we want of what comes; `followed` says who limits each of these flows, 0 if nobody does.
        """
        if not self._max:
            return now
        overtaken = self._send_at is not None and followed != self._before
        if all(followed) and (share >= 1.0 - TOLERANCE or overtaken):
            self.silent += 1
            self._send_at = None
            return now + round_trip
        if self._send_at is None or now - self._send_at > FORGOTTEN_AFTER * round_trip:
            self._before = followed
            self._send_at = now + self._draw(share) * round_trip
        if self._send_at > now:
            return self._send_at
        self._send_at = None
        self._sent_at = now if self._sent_at is None else self._sent_at
        return now

    def _draw(self, share: float) -> float:
        """Round trips: of many who draw, only few draw little."""
        urgency = 0.5 + 0.5 * min(1.0, max(0.0, share))
        chance = max(1.0 / COMPANY, self._random.random())
        return self.patience * urgency * (1.0 + log(chance) / log(COMPANY))

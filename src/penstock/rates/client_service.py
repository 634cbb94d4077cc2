"""A client that reads slowly says so to its broker, before its own queues are full.

Every subscription that no other service serves has a pace (`kernel.reader_pace`): from when half of its queue is used,
and while it is long, what the application takes is told, with a correction that brings the queue back to a quarter. It
is told when it has changed, and every REFRESH seconds; and once more when the reader keeps up again.

State: the pace of each subscription that was read, and what was told. Bound: the client's subscriptions.
"""

from __future__ import annotations

from math import inf, isinf

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.reader_pace import ReaderPace
from penstock.kernel.service import Context, Reading
from penstock.rates.config import RatesClientConfig
from penstock.rates.packets import ReaderRate

RATE_LEAST = 0.1  # messages per second; 0 would mean any number
CHANGE = 0.1
EVERY, REFRESH = 0.1, 1.0
SLOW_FROM = 0.5  # of the queue
SUBSCRIPTIONS_MAX = 10_000
NEVER = (0.0, -inf)


class RatesClient:
    """The machine of clients."""

    def __init__(self, context: Context) -> None:
        self._config = context.settings(RatesClientConfig)
        self._link: Link | None = None
        self._paces: dict[int, ReaderPace] = {}
        self._told: dict[int, tuple[float, float]] = {}  # rate, and when

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self._link = link if up else None
        self._told.clear()
        return []

    def read(self, number: int, reading: Reading, *, now: float) -> list[Effect]:
        """How the application takes its messages."""
        if not self._config.enabled or self._link is None:
            return []
        pace = self._paces.get(number)
        if pace is None:
            if len(self._paces) >= SUBSCRIPTIONS_MAX:
                self._paces.clear()
            pace = self._paces[number] = ReaderPace(reading.queue_max)
        pace.taken += reading.taken
        rate = pace.look(reading.waiting, now)
        if rate is None or (number not in self._told and reading.waiting < SLOW_FROM * reading.queue_max):
            return []  # a program that does other things for a moment is not slow
        if not self._worth(number, rate, now):
            return []
        if isinf(rate):
            del self._told[number]
        packet = ReaderRate(number, 0.0 if isinf(rate) else max(RATE_LEAST, rate), self._config.keep == "newest")
        return [Send((self._link,), packet, Lane.CONTROL)]

    def _worth(self, number: int, rate: float, now: float) -> bool:
        """Whether this is told now; if so, it has been."""
        told, at = self._told.get(number, NEVER)
        since = abs(now - at)
        changed = isinf(told) or abs(rate - told) > CHANGE * told
        if not (isinf(rate) or since >= REFRESH or (changed and since >= EVERY)):
            return False
        self._told[number] = (rate, now)
        return True

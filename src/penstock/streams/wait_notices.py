"""What publishers are told while their messages wait for the rate of a pubend (`publish_queue`).

An acknowledgement that is withheld looks like one that was lost. So whoever would wait long for the rate gets a notice:
when its message comes, when it asks again, and every NOTICE_EVERY seconds for all that wait. A client that has one
neither gives up nor sends the message again, until the next notice is overdue. A publisher whose messages wait for a
moment only gets one notice in that time too, so that it can say why it is slow.

Messages: PublishWaits, to the brokers whose clients wait, many publications in one packet.
Timer: PUBEND_WAITING, while something waits for the rate.
State: whether the timer is set, and who was told since it expired last.
Bounds: TOLD_MAX; one number for each publication that waits, every NOTICE_EVERY seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.kernel.machine import Effect
from penstock.overlay.packets import BrokerId
from penstock.streams.packets import WAITING_MAX, PublishWaits, WaitNotice
from penstock.streams.pubend_core import PubendCore
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.publish_turns import Asker, PendingPublication
from penstock.streams.timers import StreamTimer

NOTICE_AFTER = 0.25  # seconds to wait: half of what a client waits before it asks again
NOTICE_EVERY = 5.0  # seconds
TOLD_MAX = 10_000  # publishers; beyond that they may hear it twice


class WaitNotices:
    """Tells those who wait at one pubend."""

    def __init__(self, core: PubendCore) -> None:
        self._core = core
        self._timer_set = False
        self._told: dict[str, None] = {}

    def added(
        self, limited: PublishLimit | None, publication: PendingPublication, waiting: int, now: float
    ) -> list[Effect]:
        """One more waits for the rate, of so many."""
        publisher = publication.publisher
        if limited is None or (publisher in self._told and waiting < NOTICE_AFTER * limited.rate):
            return []
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told[publisher] = None
        return self.told(limited, publication.askers[0], now)

    def told(self, limited: PublishLimit | None, asker: Asker, now: float) -> list[Effect]:
        """Tell this one, if there is a limit."""
        if limited is None:
            return []
        self._watch(now)
        return self._core.send(asker[0], PublishWaits((asker[1],), self._notice(limited, now)), now)

    def tell_all(self, limited: PublishLimit | None, waiting: Iterable[PendingPublication], now: float) -> list[Effect]:
        """It is time again: tell all who wait."""
        self._timer_set = False
        self._told.clear()
        if limited is None:
            return []
        requests: dict[BrokerId, list[int]] = {}
        for publication in waiting:
            broker, request = publication.askers[-1]
            requests.setdefault(broker, []).append(request)
        if requests:
            self._watch(now)
        notice = self._notice(limited, now)
        effects: list[Effect] = []
        for broker, numbers in requests.items():
            for at in range(0, len(numbers), WAITING_MAX):
                effects += self._core.send(broker, PublishWaits(tuple(numbers[at : at + WAITING_MAX]), notice), now)
        return effects

    def _watch(self, now: float) -> None:
        if not self._timer_set:
            self._timer_set = True
            self._core.set_timer(StreamTimer.PUBEND_WAITING, now + NOTICE_EVERY)

    def _notice(self, limited: PublishLimit, now: float) -> WaitNotice:
        since, why = max(0.0, now - limited.since), (limited.edge, limited.recovering, limited.pace)
        return WaitNotice(self._core.name, limited.rate, since, *why, NOTICE_EVERY)

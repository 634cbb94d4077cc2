"""A client that begins to send, or sends much more than before, doubles its rate from step to step.

A burst of thousands would leave before any link can say that it is too much. So for each link out of the home broker
a client may send FIRST_MESSAGES per second, or twice what it has sent lately, whichever is more; what is faster waits
here. Nothing is ever withheld for that: if more waits than may, the first goes out early. What a client has sent lately
is the most that left within STEP seconds, and halves every HALVED_IN while it sends less.

State: for each client and link out a bucket and what waits. Bounds: WAITING_MAX messages and WAITING_BYTES_MAX of one
client and link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from penstock.rates.purse import Purse

FIRST_MESSAGES = 20.0  # per second
STEP = 0.1
HALVED_IN = 5.0
GROWTH = 2.0
WAITING_MAX = 8_000  # as many as come in the 0.9 s in which the rate grows to 10,000 per second
WAITING_BYTES_MAX = 4 << 20
Item = TypeVar("Item")


class SlowStart(Generic[Item]):
    """Of one client towards one link."""

    __slots__ = ("_most", "_purse", "_sent", "_step_at", "_waiting", "_waiting_bytes")

    def __init__(self, size_bytes: int, now: float) -> None:
        self._most = 0.0  # bytes per second that it has sent lately
        self._purse = Purse(FIRST_MESSAGES * size_bytes, size_bytes, now)
        self._sent = 0  # bytes, in this step
        self._step_at = now
        self._waiting: deque[tuple[Item, int]] = deque()
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def rate(self) -> float:
        """Bytes per second that it may send."""
        return self._purse.rate

    def offer(self, item: Item, size_bytes: int, now: float) -> list[Item]:
        """A message: what leaves now, in order; it waits if it is not among them."""
        self._step(size_bytes, now)
        if not self._waiting and self._purse.can_pay(now):
            self.pay(size_bytes, size_bytes, now)
            return [item]
        self._waiting.append((item, size_bytes))
        self._waiting_bytes += size_bytes
        leaving = self.serve(now)
        while len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            leaving.append(self._take(now))
        return leaving

    def passes(self, size_bytes: int, last_bytes: int, now: float) -> bool:
        """Whether messages of so many bytes together, the last one of so many or less, may all leave at once."""
        self._step(last_bytes, now)
        return not self._waiting and self._purse.tokens(now) > size_bytes - last_bytes

    def pay(self, size_bytes: int, last_bytes: int, now: float) -> None:
        """They leave."""
        self._purse.pay(size_bytes, now, last_bytes)
        self._sent += size_bytes

    def serve(self, now: float) -> list[Item]:
        """What may leave by now."""
        leaving = []
        while self._waiting:
            self._step(self._waiting[0][1], now)
            if not self._purse.can_pay(now):
                break
            leaving.append(self._take(now))
        return leaving

    def ready_at(self) -> float:
        """When the next may leave, or a faster step begins."""
        return min(self._purse.solvent_at(), self._step_at + STEP)

    def withdraw(self, item: Item) -> bool:
        """It waits no longer; says whether it did."""
        found = next((entry for entry in self._waiting if entry[0] is item), None)
        if found is not None:
            self._waiting.remove(found)
            self._waiting_bytes -= found[1]
        return found is not None

    def __iter__(self) -> Iterator[Item]:
        return (item for item, _ in self._waiting)

    def clear(self) -> list[Item]:
        """Take out all that waits."""
        left = [item for item, _ in self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        return left

    def _take(self, now: float) -> Item:
        item, size_bytes = self._waiting.popleft()
        self._waiting_bytes -= size_bytes
        self.pay(size_bytes, size_bytes, now)
        return item

    def _step(self, size_bytes: int, now: float) -> None:
        """If a step is over, the next one may send twice as much as this one did, or as the most did lately."""
        if self._step_at <= now < self._step_at + STEP:  # the same sum as `ready_at`: a timer must find the step over
            return
        seconds = now - self._step_at
        sent = self._sent / max(seconds, STEP)
        self._most = max(sent, self._most * 0.5 ** (max(0.0, seconds) / HALVED_IN))
        self._purse.set_pace(max(FIRST_MESSAGES * size_bytes, GROWTH * self._most), now)
        self._sent, self._step_at = 0, now

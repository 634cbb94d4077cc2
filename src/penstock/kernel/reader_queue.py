"""What waits for an application: a bounded queue for one subscription, and how fast the application takes from it.

When the queue is full the oldest message goes, so that a reader who has fallen behind finds the present and not the
past; it is counted. Every `READING_EVERY` seconds in which something came, whoever drives the application gives the
machine a `Reading`: what was taken, what waits, what was dropped. The same in virtual and in real time.
"""

from __future__ import annotations

from collections import deque

from penstock.content.message import Message
from penstock.kernel.packet import Lane
from penstock.kernel.service import Reading
from penstock.kernel.trace import Dropped, dropped_record

PLACE = "reader"  # of a drop
READING_EVERY = 0.05  # seconds
DROPPED_KEPT_MAX = 1_000  # of the messages dropped since the last reading; more are only counted


class ReaderQueue:
    """The messages of one subscription that its application has not taken yet."""

    __slots__ = ("_dropped_lately", "_taken", "dropped", "messages", "queue_max", "received")

    def __init__(self, queue_max: int) -> None:
        if queue_max < 1:
            raise ValueError("queue_max must be at least 1")
        self.queue_max = queue_max
        self.messages: deque[Message] = deque()
        self.received = 0
        self.dropped = 0
        self._taken = 0  # since the last reading
        self._dropped_lately: list[Message] = []

    def put(self, message: Message) -> Message | None:
        """A message has come; returns the one that had to go for it, if any."""
        self.received += 1
        oldest = None
        if len(self.messages) >= self.queue_max:
            oldest = self.messages.popleft()
            self.dropped += 1
            if len(self._dropped_lately) < DROPPED_KEPT_MAX:
                self._dropped_lately.append(oldest)
        self.messages.append(message)
        return oldest

    def take(self, count_max: int) -> list[Message]:
        """The application takes so many, or all that there are."""
        messages = self.messages
        if len(messages) <= count_max:
            taken = list(messages)
            messages.clear()
        else:
            taken = [messages.popleft() for _ in range(count_max)]
        self._taken += len(taken)
        return taken

    def reading(self) -> Reading:
        """What happened since the last reading."""
        dropped, self._dropped_lately = tuple(self._dropped_lately), []
        taken, self._taken = self._taken, 0
        return Reading(taken, len(self.messages), self.queue_max, dropped)


def reader_drop(message: Message) -> Dropped:
    """The record of a message that its application was too slow for; its lane is not known any more."""
    return dropped_record(PLACE, "queue full", "", Lane.BEST_EFFORT, "Delivery", message, 1)

"""The storage of a live node: a thread beside the event loop that works on a place to store.

The loop only hands over operations; the thread takes all that wait, at most `GROUP_MAX` and about `GROUP_BYTES_MAX`,
carries them out in one transaction, commits with a full sync and answers: group commit, so a hundred operations cost
one sync. An answer is given after the commit. When nothing waits, the thread tidies up, for example deletes what was
trimmed; under load it does so after every `TIDY_EVERY` groups. While the place fails it is tried again from time to
time, also if nobody asks for anything.

How a group becomes a transaction is in `transactions`; the rules are those of `kernel.areas`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol

from penstock.kernel.storage import Append, Ask, StorageFailed, StorageResult, Ticket

GROUP_MAX = 1_000  # operations of one transaction
GROUP_BYTES_MAX = 8 << 20  # of entries, about
WAITING_MAX = 100_000  # operations that the thread has not got to; beyond it the disk cannot keep up
TIDY_EVERY = 8

Answers = list[tuple[Ticket, StorageResult]]
Answered = Callable[[Ticket, StorageResult], None]

log = logging.getLogger(__name__)


class StorePlace(Protocol):
    """Where things are stored; only the thread uses it."""

    def carry_out(self, group: Sequence[Ask]) -> Answers:
        """All of them; the answers that can be given now, of earlier groups too."""

    def settle(self) -> Answers:
        """If something failed: try to get over it; the answers that can be given then."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which to try it; None if nothing is wrong."""

    def tidy(self) -> bool:
        """Do one of the things that wait to be done; whether there is more."""

    def close(self) -> None: ...


class GroupCommit:
    """One place, one thread. `answered` is called on the event loop."""

    close_within: float | None = None  # seconds for what was asked, if the place may hang

    def __init__(self, place: StorePlace, answered: Answered) -> None:
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[Ask | None] = SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._over = False  # the thread has seen the end
        self._place = place
        self._thread = Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def ask(self, asked: Ask) -> None:
        """Carry this out; the answer comes later, once."""
        if self._waiting >= WAITING_MAX:
            problem = f"{self._waiting} operations wait for the disk; the limit WAITING_MAX is {WAITING_MAX}"
            self._waiting += 1
            answers: Answers = [(asked.ticket, StorageFailed(problem))]
            self._loop.call_soon(self._answer, answers)
            return
        self._waiting += 1
        self._asked.put(asked)

    def close(self) -> None:
        """Carry out what was asked, and end; nobody is answered any more. Blocks."""
        self._closed = True
        self._asked.put(None)
        self._thread.join(self.close_within)
        if self._thread.is_alive():
            log.warning("storage does not answer: what was asked last may not be stored")

    # The thread.

    def _work(self) -> None:
        groups, more = 0, self._place.tidy()
        while not self._over:
            group = self._next_group(0.0 if more else self._place.retry_after)
            answers = self._place.carry_out(group) if group else self._place.settle()
            if answers and not self._closed:
                self._loop.call_soon_threadsafe(self._answer, answers)
            groups += 1
            if not group or groups % TIDY_EVERY == 0 or self._asked.empty():
                more = self._place.tidy()
        self._place.close()

    def _next_group(self, patience: float | None) -> list[Ask]:
        """What waits; if nothing does, wait so long for something."""
        group: list[Ask] = []
        size_bytes = 0
        try:
            asked = self._asked.get(timeout=patience) if patience != 0.0 else self._asked.get_nowait()
            while asked is not None:
                group.append(asked)
                if isinstance(asked.operation, Append):
                    size_bytes += sum(len(data) for _, data in asked.operation.entries)
                if len(group) >= GROUP_MAX or size_bytes >= GROUP_BYTES_MAX:
                    return group
                asked = self._asked.get_nowait()
        except Empty:
            return group
        self._over = True
        return group

    # The loop.

    def _answer(self, answers: Answers) -> None:
        for ticket, result in answers:
            self._waiting -= 1
            if not self._closed:
                self._answered(ticket, result)

"""Where sessions were when they ended, so that a publisher that goes on is followed from there and nothing comes twice.

State: for each publisher and life the first number that its session had not seen. Bound: `sessions_max`; the oldest is
forgotten first, and then its publisher counts as new.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.transport.ledgers.number_window import SPAN
from penstock.transport.ledgers.session import LedgerSession


class EndedSessions:
    """Publishers that were forgotten."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._next: OrderedDict[tuple[str, int], int] = OrderedDict()

    def __contains__(self, life: tuple[str, int]) -> bool:
        return life in self._next

    def add(self, session: LedgerSession) -> None:
        """This one has ended."""
        self._next[session.publisher, session.incarnation] = session.window.top + 1
        if len(self._next) > self._size:
            self._next.popitem(last=False)

    def take(self, publisher: str, incarnation: int, first: int) -> int:
        """What its next session begins with at the earliest: so far all is delivered or reported."""
        known = self._next.pop((publisher, incarnation), 1)
        return 1 if known > first + SPAN else known  # so far ahead, it was no number of this publisher's

"""What a broker dropped on the way to each client, until it has been reported to that client.

A client that has taken nothing since its last report gets no other: reports would pile up in front of its socket.

State: two numbers for each client that missed something. Bound: the number of clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.kernel.machine import Link
from penstock.live.host import LivePort


class LossReports:
    """Counts lost deliveries by link."""

    def __init__(self) -> None:
        self._losses: dict[Link, int] = {}  # not yet reported
        self._reported_at: dict[Link, int] = {}  # how many packets had been sent to a client at its last report

    def count(self, link: Link) -> None:
        """One delivery to this client was dropped."""
        self._losses[link] = self._losses.get(link, 0) + 1

    def due(self, ports: Mapping[Link, LivePort]) -> Iterator[tuple[Link, int]]:
        """Whom to report to now, and how many losses; they count as reported."""
        for link, count in list(self._losses.items()):
            port = ports.get(link)
            if port is not None and port.packets_sent != self._reported_at.get(link):
                self._reported_at[link] = port.packets_sent
                del self._losses[link]
                yield link, count

    def forget(self, link: Link) -> None:
        """The client has gone."""
        self._losses.pop(link, None)
        self._reported_at.pop(link, None)

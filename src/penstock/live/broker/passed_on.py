"""When a broker acknowledges what came in: when all that came of it has gone on, or is recorded.

A broker that is killed takes with it what it holds. Its neighbours and clients can count that only if they have not
been told that it arrived. So a broker acknowledges in rounds: it notes how many packets have come on each connection,
waits until nothing of before waits in its queues and until its neighbours and clients have acknowledged what it wrote,
and then acknowledges what it noted. On a quiet network that takes a few milliseconds more than the slowest of them.

A client that does not read would hold up the round for all. So a round ends after `PASSED_WITHIN` in any case: what has
waited longer in a broker that is killed is in nobody's count (docs/guarantees.md).

State: one round, with a number for each connection that something came in on and for each link that something waits
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.kernel.link import Link
from penstock.live.wire.connection import Connection
from penstock.live.wire.datagram_port import DatagramPort
from penstock.overlay.egress import Egress

ROUND_EVERY = 0.05  # seconds between two looks
PASSED_WITHIN = 2.0  # seconds


class PassedOn:
    """The rounds of one broker."""

    def __init__(self) -> None:
        self._came: dict[Connection, None] = {}  # on which something has come since the round began
        self._noted: dict[Connection, tuple[int, int]] = {}  # packets and datagrams that had come when it began
        self._queued: dict[Link, tuple[Connection, int]] = {}  # where something of before waits; how many must leave
        self._written: dict[Connection, tuple[int, int]] = {}  # how many packets and datagrams must arrive there
        self._began = 0.0
        self._number = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to acknowledge."""
        return not self._came and not self._noted

    def came(self, connection: Connection) -> None:
        """Packets have come in."""
        self._came[connection] = None

    def look(self, egress: Egress, ports: Mapping[Link, Any], now: float) -> None:
        """See how far the round is; acknowledge and begin the next one if it is over. All ports have just written."""
        if not self._noted:
            self._begin(egress, ports, now)
        for link, (connection, must_leave) in list(self._queued.items()):
            port = ports.get(link)
            if port is None or port.connection is not connection:  # recorded, and counted
                del self._queued[link]
            elif egress.oldest_round(link) > self._number and _left(port) >= must_leave:
                del self._queued[link]
                self._written[connection] = _totals(connection)
        for connection, (packets, datagrams) in list(self._written.items()):
            arrived = connection.handed_over.packets_arrived >= packets
            if connection.closing or (arrived and connection.datagrams_over.packets_arrived >= datagrams):
                del self._written[connection]
        if self._noted and ((not self._queued and not self._written) or now - self._began > PASSED_WITHIN):
            for connection, (packets, datagrams) in self._noted.items():
                connection.acknowledge(packets, datagrams)
            self._noted, self._queued, self._written = {}, {}, {}

    def _begin(self, egress: Egress, ports: Mapping[Link, Any], now: float) -> None:
        self._noted = {one: (one.packets_in, one.datagrams_in) for one in self._came if not one.closing}
        self._came = {}
        if not self._noted:
            return
        self._began = now
        self._number = egress.next_round()
        for link, port in ports.items():
            connection: Connection = port.connection
            below = port.queued_packets() if isinstance(port, DatagramPort) else 0
            if below or egress.waiting_packets(link):
                self._queued[link] = (connection, _left(port) + below)
            elif connection.messages_unknown:
                self._written[connection] = _totals(connection)


def _left(port: Any) -> int:
    """How many packets have left the queue of a datagram port; 0 for others, whose queue is the egress's."""
    return port.data_sent if isinstance(port, DatagramPort) else 0


def _totals(connection: Connection) -> tuple[int, int]:
    return connection.handed_over.packets, connection.datagrams_over.packets

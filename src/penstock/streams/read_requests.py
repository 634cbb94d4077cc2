"""A client's questions for ranges of the log, on their way over its home broker to the pubend, and the answers back.

State: who waits for which slice. Nothing is tried again here: the client does that. Bound: WAITING_MAX; the oldest are
forgotten, and their clients ask again.
"""

from __future__ import annotations

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.streams.home_broker import HomeBroker
from penstock.streams.packets import LogSlice, ReadLog, stream_of

WAITING_MAX = 1_000


class ReadRequests:
    """Between clients here and pubends anywhere."""

    def __init__(self, broker: HomeBroker) -> None:
        self._broker = broker
        self._waiting: dict[int, tuple[Link, int]] = {}  # our number -> the client and its number

    def ask(self, packet: ReadLog, link: Link, *, now: float) -> list[Effect]:
        """A client wants a slice."""
        _, problem, again = self._broker.pubends(stream_of(packet.pubend))
        host = None if problem else self._broker.host(packet.pubend)
        if host is None:
            problem, again = (problem, again) if problem else (self._broker.unreachable(packet.pubend), True)
            return [_to_client(link, LogSlice(packet.request, packet.pubend, problem=problem, again=again))]
        request = self._broker.next_request()
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[request] = (link, packet.request)
        asked = (packet.pubend, packet.epoch, packet.first, packet.last, packet.where, packet.bytes_max)
        return self._broker.send_to(host, ReadLog(request, *asked), now=now)

    def answered(self, packet: LogSlice) -> list[Effect]:
        """The pubend has answered."""
        link, request = self._waiting.pop(packet.request, (None, 0))
        if link is None:
            return []
        found = (packet.upto, packet.gone, packet.ticks, packet.entries, packet.problem, packet.again)
        return [_to_client(link, LogSlice(request, packet.pubend, *found))]

    def link_down(self, link: Link) -> None:
        """A client is gone."""
        self._waiting = {request: who for request, who in self._waiting.items() if who[0] != link}


def _to_client(link: Link, packet: LogSlice) -> Effect:
    return Send((link,), packet, Lane.STREAM)

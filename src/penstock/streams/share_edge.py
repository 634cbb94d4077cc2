"""Members of shared names at their home broker: what is handed to them goes through, and what they say goes back.

Members are readers of the edge like others: it registers them at every pubend, keeps their sessions, and forgets them
when they leave. But they do not walk: a pubend chooses what they get. So the edge knows nothing of what they hold; what
gets lost between pubend and client is sent again by either of them. When a client's connection is lost its members do
not leave: they come back, here or elsewhere, and have what they had, or their lease runs out.

State: none of its own.
"""

from __future__ import annotations

from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.streams.edge import Edge
from penstock.streams.home_broker import HomeBroker
from penstock.streams.packets import (
    ShareDelivery,
    SharedHandout,
    ShareSettle,
    ShareSettled,
    Verdicts,
    VerdictsStored,
)


class ShareEdge:
    """Between members here and pubends anywhere."""

    def __init__(self, broker: HomeBroker, edge: Edge) -> None:
        self._broker = broker
        self._edge = edge

    def handed_out(self, packet: SharedHandout) -> list[Effect]:
        """A pubend hands messages to a member of ours."""
        reader, cursor = self._edge.sessions.get((packet.pubend, packet.session), (None, None))
        if reader is None or cursor is None or (reader.name, cursor.epoch) != (packet.name, packet.epoch):
            return []
        delivery = ShareDelivery(reader.number, packet.pubend, packet.epoch, packet.items, packet.gap)
        return [Send((reader.link,), delivery, Lane.STREAM)]

    def settle(self, packet: ShareSettle, link: int, *, now: float) -> list[Effect]:
        """A client says what became of messages."""
        reader, cursor = self._edge.cursor(link, packet.subscription, packet.pubend)
        host = self._broker.host(packet.pubend)
        if reader is None or cursor is None or reader.share is None or host is None:
            return []
        if not cursor.session or cursor.epoch != packet.epoch:
            return []
        verdicts = Verdicts(packet.pubend, packet.epoch, reader.name, cursor.session, packet.verdicts)
        return self._broker.send_to(host, verdicts, now=now)

    def stored(self, packet: VerdictsStored) -> list[Effect]:
        """That is on disk."""
        reader, cursor = self._edge.sessions.get((packet.pubend, packet.session), (None, None))
        if reader is None or cursor is None or (reader.name, cursor.epoch) != (packet.name, packet.epoch):
            return []
        settled = ShareSettled(reader.number, packet.pubend, packet.epoch, packet.handouts)
        return [Send((reader.link,), settled, Lane.CONTROL)]

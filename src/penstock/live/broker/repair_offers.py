"""Whether a datagram link repairs itself: agreed in the handshake, link by link.

Who dials offers it, if its plan says so. Who accepts says yes only to an offer. So a neighbour that knows nothing of
repair, and leaves the field out, gets a handshake of the form that it knows when it dials us. When we dial it, it
cannot read ours; then we dial once more without the offer.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.kernel.link import Link, LinkKind
from penstock.live.broker.plan import Neighbour
from penstock.live.wire.frames import HANDSHAKE_UNREADABLE, Handshake


class RepairOffers:
    """What this broker has said on each link."""

    def __init__(self, neighbours: Mapping[Link, Neighbour]) -> None:
        self._wanted = {
            link: neighbour.kind is LinkKind.DATAGRAM and neighbour.spec.repair
            for link, neighbour in neighbours.items()
        }
        self._said: dict[Link, bool] = {}
        self._not_understood: dict[Link, None] = {}

    def say(self, link: Link, peer: Handshake | None) -> bool:
        """What our next handshake says; `peer` is the one that it answers, if it answers any."""
        plain = link in self._not_understood
        self._not_understood.pop(link, None)
        said = self._wanted.get(link, False) and (not plain if peer is None else peer.repairs)
        self._said[link] = said
        return said

    def agreed(self, link: Link, peer: Handshake | None) -> bool:
        """Whether both have said yes."""
        return self._said.get(link, False) and peer is not None and peer.repairs

    def refused(self, neighbour: str, links: Mapping[Link, Neighbour], problem: str) -> None:
        """A neighbour that we dialled closed the connection before it sent a handshake."""
        if problem.startswith(HANDSHAKE_UNREADABLE):
            for link, one in links.items():
                if one.name == neighbour and self._said.get(link):
                    self._not_understood[link] = None

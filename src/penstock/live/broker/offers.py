"""What a broker offers in the handshake: its services, and that a datagram link repairs itself.

Who dials offers. Who accepts answers in the form in which it was dialled: its services if the other end named its own,
repair if that was offered and its plan wants it too. So a neighbour that knows nothing of one or the other gets a
handshake of the form that it knows when it dials us. When we dial it, it cannot read ours; then we dial once more
without any offer. A neighbour that does not name its services is sent no packets of those that are
younger than that.

State: what was said on each link. Bound: the neighbours of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.kernel.link import Link, LinkKind
from penstock.live.broker.plan import Neighbour
from penstock.live.wire.frames import HANDSHAKE_UNREADABLE, Handshake


class Offer(NamedTuple):
    """The part of a handshake that older peers do not know."""

    repairs: bool
    services: tuple[str, ...]


class Offers:
    """What this broker has said on each link."""

    def __init__(self, neighbours: Mapping[Link, Neighbour], services: tuple[str, ...]) -> None:
        self._wanted = {
            link: neighbour.kind is LinkKind.DATAGRAM and neighbour.spec.repair
            for link, neighbour in neighbours.items()
        }
        self._services = services
        self._said: dict[Link, Offer] = {}
        self._not_understood: dict[Link, None] = {}

    def say(self, link: Link, peer: Handshake | None) -> Offer:
        """What our next handshake says; `peer` is the one that it answers, if it answers any."""
        plain = link in self._not_understood
        self._not_understood.pop(link, None)
        repairs = self._wanted.get(link, False) and (not plain if peer is None else peer.repairs)
        names = not plain if peer is None else bool(peer.services)
        offer = Offer(repairs, self._services if names else ())
        if link in self._wanted:
            self._said[link] = offer
        return offer

    def agreed(self, link: Link, peer: Handshake | None) -> bool:
        """Whether both have said that the link repairs itself."""
        said = self._said.get(link)
        return said is not None and said.repairs and peer is not None and peer.repairs

    def refused(self, neighbour: str, links: Mapping[Link, Neighbour], problem: str) -> None:
        """A neighbour that we dialled closed the connection before it sent a handshake."""
        if problem.startswith(HANDSHAKE_UNREADABLE):
            for link, one in links.items():
                said = self._said.get(link)
                if one.name == neighbour and said is not None and (said.repairs or said.services):
                    self._not_understood[link] = None

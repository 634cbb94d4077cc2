"""What a mediation router wants done: its effects, as calls that a service, a simulator or a test carries out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from penstock.retrieval.interest import InterestId, Interface, LooseInterest, PublicationId, PublishedItem

Nonce = Hashable


class AddressedNonce(NamedTuple):
    """The nonce of a copy that is for some homes alone."""

    nonce: Nonce
    homes: tuple[Hashable, ...]


class RouterOutlet(Protocol):
    """What a router wants done. Calls come in the order in which things must happen."""

    def advertise(self, interest: LooseInterest, came_from: Interface) -> None:
        """Send an interest on every interface but this one (LOCAL: on all)."""

    def probe(self, interface: Interface, interest: LooseInterest) -> None:
        """Ask one neighbour alone, which calls probe()."""

    def proceed_at(self, interest: InterestId, at: float) -> None:
        """Call proceed() then."""

    def room(self, interface: Interface) -> int:
        """How many answers it takes now; the others stay where they are."""

    def answer(self, interface: Interface, interest: InterestId, publication: PublishedItem, pending: bool) -> None:
        """Send a publication one hop towards the home of an interest."""

    def multicast(
        self, interfaces: Sequence[Interface], publication: PublishedItem, pending: bool, nonce: Nonce
    ) -> None:
        """Send one copy on each of these."""

    def overload(self, interest: InterestId, came_from: Interface) -> None:
        """Tell every interface but this one that an interest is satisfied (LOCAL: all)."""

    def deliver(self, interest: LooseInterest, publication: PublishedItem) -> None:
        """Give it to the receiver, once its place in the cache is safe."""

    def schedule(self, publication: PublicationId, at: float) -> None:
        """Call push() then."""

    def flush(self, publication: PublishedItem) -> None:
        """Hand it to one neighbour, which calls flushed()."""

    def drop(self, publication: PublishedItem, reason: str) -> None:
        """Count a copy that went nowhere."""

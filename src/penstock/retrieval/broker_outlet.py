"""What a broker's mediation router wants done, as packets to neighbours and clients.

Interfaces are the ids of neighbours. Before a publication leaves a cache its hash is looked at; one that does not fit
is dropped, and the cache forgets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import inf

from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import dropped_record
from penstock.overlay.routing import Routing
from penstock.retrieval.chains import RetrievalChains
from penstock.retrieval.contents import content_of
from penstock.retrieval.forwarding import score_of_answer, score_of_copy
from penstock.retrieval.interest import (
    LISTED_MAX,
    InterestId,
    Interface,
    LooseInterest,
    PublicationId,
    PublishedItem,
)
from penstock.retrieval.interest_index import predicate_of
from penstock.retrieval.link_recovery import Header, LinkRecovery, Make, PublicationInLine
from penstock.retrieval.outlet import AddressedNonce, Nonce
from penstock.retrieval.packets import (
    NumberedPacket,
    RetrievalAnswer,
    RetrievalFlush,
    RetrievalInterest,
    RetrievalMulticast,
    RetrievalOverload,
    RetrievedItem,
)
from penstock.retrieval.pending_interests import PendingInterests
from penstock.retrieval.timers import RetrievalTimer

DAMAGED = "content does not fit its hash"


class BrokerOutlet:
    """A RouterOutlet that gathers effects."""

    def __init__(
        self,
        routing: Routing,
        recovery: LinkRecovery,
        chains: RetrievalChains,
        timers: ServiceTimers,
        forget: Callable[[PublicationId], None],
        pending: PendingInterests,
    ) -> None:
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self._effects: list[Effect] = []
        self._routing = routing
        self._recovery = recovery
        self._chains = chains
        self._timers = timers
        self._forget = forget
        self._pending = pending

    def take(self) -> list[Effect]:
        """What has been gathered."""
        effects, self._effects = self._effects, []
        return effects

    def put(self, effects: Sequence[Effect]) -> None:
        """Something else, in order."""
        self._effects += effects

    # What the router calls.

    def advertise(self, interest: LooseInterest, came_from: Interface) -> None:
        """To all neighbours but one."""
        make = _maker_of_interest(interest)
        for broker in self._others(came_from):
            self._send(broker, "interests", make)

    def probe(self, interface: Interface, interest: LooseInterest) -> None:
        """The rules of brokers have no probes."""
        raise AssertionError("nobody has asked for probes")

    def proceed_at(self, interest: InterestId, at: float) -> None:
        """Let the router ask then."""
        self._timers.set(RetrievalTimer.ASK, at, *interest)  # type: ignore[misc]  # a name

    def room(self, interface: Interface) -> int:
        """What the line to a neighbour still takes; half of it is left for what cannot wait."""
        return self._recovery.room(interface)

    def answer(self, interface: Interface, interest: InterestId, publication: PublishedItem, pending: bool) -> None:
        """One hop back."""
        if not self._whole(publication):
            return
        content, uploaded = content_of(publication), publication.uploaded

        def make(head: Header, now: float) -> NumberedPacket:
            parts = (content.message, content.content_hash, now - uploaded, pending)
            return RetrievalAnswer(*head, *parts, interest)  # type: ignore[arg-type]  # a name

        table, now = self._pending, self.now
        in_line = PublicationInLine(
            content.message.size_bytes,
            pending,
            wanted=lambda: table.waits(interest),
            score=lambda: score_of_answer(table, interest, now),
        )
        self._send(interface, "answers", make, in_line)

    def multicast(
        self, interfaces: Sequence[Interface], publication: PublishedItem, pending: bool, nonce: Nonce
    ) -> None:
        """A copy for each."""
        if not self._whole(publication):
            return
        content, uploaded = content_of(publication), publication.uploaded

        name: Nonce = nonce
        homes: tuple[Hashable, ...] = ()
        if isinstance(nonce, AddressedNonce):
            name, homes = nonce.nonce, tuple(sorted(nonce.homes))  # type: ignore[type-var]  # ids of brokers

        def make(head: Header, now: float) -> NumberedPacket:
            parts = (content.message, content.content_hash, now - uploaded, pending)
            return RetrievalMulticast(*head, *parts, name, homes)  # type: ignore[arg-type]  # names

        for broker in interfaces:
            self._send(broker, "multicasts", make, self._in_line(publication, pending, broker))

    def overload(self, interest: InterestId, came_from: Interface) -> None:
        """To all neighbours but one."""

        def make(head: Header, now: float) -> NumberedPacket:
            return RetrievalOverload(*head, interest)  # type: ignore[arg-type]  # a name

        for broker in self._others(came_from):
            self._send(broker, "overloads", make)

    def deliver(self, interest: LooseInterest, publication: PublishedItem) -> None:
        """To the client."""
        chain = self._chains.holder(interest.id)
        if chain is None or not self._whole(publication):
            return
        self.counts["delivered"] += 1
        item = RetrievedItem(chain.subscription, chain.lifetime, content_of(publication).message)
        self._effects.append(Send((chain.link,), item, Lane.BEST_EFFORT))

    def schedule(self, publication: PublicationId, at: float) -> None:
        """Let the router push it then."""
        self._timers.set(RetrievalTimer.PUSH, at, *_key(publication))

    def flush(self, publication: PublishedItem) -> None:
        """To the neighbour with the lowest id."""
        content, uploaded = content_of(publication), publication.uploaded

        def make(head: Header, now: float) -> NumberedPacket:
            return RetrievalFlush(*head, content.message, content.content_hash, now - uploaded, True)

        broker = min(self._routing.link_to, default=None)
        if broker is None:
            self.drop(publication, "evicted, and no neighbour to take it")
        elif self._whole(publication):
            self._send(broker, "flushed", make, self._in_line(publication, True, broker))

    def drop(self, publication: PublishedItem, reason: str) -> None:
        """It goes no further."""
        self.counts[reason] += 1
        message = content_of(publication).message
        self._effects.append(dropped_record("route", reason, "", Lane.BEST_EFFORT, "RetrievalAnswer", message, 1))

    # Parts.

    def _others(self, came_from: Interface) -> list[Interface]:
        return sorted(broker for broker in self._routing.link_to if broker != came_from)

    def _send(self, broker: Interface, what: str, make: Make, in_line: PublicationInLine | None = None) -> None:
        self.counts[what] += 1
        self._effects += self._recovery.send(broker, make, self.now, in_line)

    def _in_line(self, publication: PublishedItem, pending: bool, broker: Interface) -> PublicationInLine:
        """A copy for whoever waits behind a neighbour."""
        table, now = self._pending, self.now

        def points() -> float:
            return score_of_copy(table, publication, lambda way: way == broker, pending=pending, now=now)

        return PublicationInLine(content_of(publication).message.size_bytes, pending, lambda: True, points)

    def _whole(self, publication: PublishedItem) -> bool:
        if content_of(publication).whole:
            return True
        self.drop(publication, DAMAGED)
        self._forget(publication.id)
        return False


def _maker_of_interest(interest: LooseInterest) -> Make:
    def make(head: Header, now: float) -> NumberedPacket:
        return RetrievalInterest(
            *head,
            interest.id,  # type: ignore[arg-type]  # a name
            predicate_of(interest).text,
            interest.max,
            interest.deadline - now,
            now - interest.oldest,
            interest.refreshed,
            None if interest.moved_at == -inf else now - interest.moved_at,
            interest.listed[:LISTED_MAX],  # type: ignore[arg-type]  # identities
        )

    return make


def _key(publication: PublicationId) -> tuple[str, int, int]:
    identity = publication
    return identity.publisher, identity.incarnation, identity.count  # type: ignore[attr-defined]  # an identity

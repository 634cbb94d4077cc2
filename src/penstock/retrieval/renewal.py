"""Asking anew: what a chain still misses is asked for again, under a new identifier.

There are two reasons to. The map has changed: ways are broken, and brokers that restarted know of no interest; every
chain that was told to neighbours is asked for anew, ASKED_ANEW_MAX of them in each TICK. Or items that were on their
way to a client were held back when the store failed: those do not count as delivered, and as many others come.

What the lifetime has brought so far is listed in the new interest, so that nothing comes twice.

State: the chains that wait for their turn; each is there once. Bound: as many as there are chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.kernel.link import Link
from penstock.retrieval.chains import RetrievalChain, RetrievalChains
from penstock.retrieval.interest import LOCAL
from penstock.retrieval.interest_index import places_of
from penstock.retrieval.mediation import MediationRouter
from penstock.retrieval.packets import InterestName, RetrievedItem
from penstock.retrieval.pending_interests import PendingInterests

ASKED_ANEW_MAX = 200  # interests in each TICK


class Renewal:
    """The chains of one broker that are asked for anew."""

    def __init__(
        self,
        router: MediationRouter,
        chains: RetrievalChains,
        pending: PendingInterests,
        next_name: Callable[[], InterestName],
    ) -> None:
        self._router = router
        self._chains = chains
        self._pending = pending
        self._next_name = next_name
        self._waiting: dict[RetrievalChain, None] = {}

    def map_changed(self) -> None:
        """All that neighbours were told of waits for its turn."""
        self._waiting = {chain: None for chain in self._chains if self._is_advertised(chain)}

    def tick(self, now: float) -> None:
        """The turn of the next ones."""
        turn = list(self._waiting)[:ASKED_ANEW_MAX]
        for chain in turn:
            del self._waiting[chain]
            self._ask_anew(chain, now)

    def take_back(self, withheld: Sequence[tuple[Link, RetrievedItem]], now: float) -> None:
        """These did not go out: whoever was to get them still misses as many."""
        short: dict[RetrievalChain, None] = {}
        for link, packet in withheld:
            chain = self._chains.get(link, packet.subscription)
            if chain is None or chain.lifetime != packet.lifetime:
                continue
            box = self._router.boxes.get(chain.interest.id)
            if box is not None and packet.message.identity in box.got:
                del box.got[packet.message.identity]
                short[chain] = None
        for chain in short:
            self._ask_anew(chain, now)

    def _is_advertised(self, chain: RetrievalChain) -> bool:
        box = self._router.boxes.get(chain.interest.id)
        return box is not None and box.advertised

    def _ask_anew(self, chain: RetrievalChain, now: float) -> None:
        before = self._router.boxes.get(chain.interest.id)
        if before is None or before.missing <= 0 or chain.interest.deadline <= now:
            return
        if places_of(chain.interest) > self._pending.left(LOCAL):
            self._waiting[chain] = None  # there is no room to ask twice
            return
        self._router.finish(chain.interest.id, now)
        old = chain.interest
        listed = tuple(before.got)
        interest = replace(old, id=self._next_name(), max=before.missing, listed=listed, cursor=before.cursor)
        self._chains.renew(chain, interest)
        box = self._router.register(interest, now)
        if box is not None:
            box.got = {**before.got, **box.got}
            box.interest = replace(interest, max=chain.most)

"""The subscriptions that a broker's clients retrieve with: which lifetime of which subscription an interest belongs to.

State: one chain for each, while its lifetime lasts and its client is connected. Bound: `interests_per_client_max`.
Between two lifetimes one number is kept: the cursor of the chain (`boxes`), for CURSORS_MAX subscriptions of a client.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.kernel.link import Link
from penstock.retrieval.interest import InterestId, LooseInterest

CURSORS_MAX = 1_000


class RetrievalChain:
    """One lifetime of a client's subscription."""

    __slots__ = ("interest", "lifetime", "link", "most", "moved", "subscription")

    def __init__(self, link: Link, subscription: int, lifetime: int, interest: LooseInterest, moved: bool) -> None:
        self.link = link
        self.subscription = subscription
        self.lifetime = lifetime
        self.interest = interest  # as it is asked for now: after a change of the map it has another identifier
        self.most = interest.max  # in the lifetime
        self.moved = moved  # from another home, when this lifetime began


class RetrievalChains:
    """Those of one broker."""

    def __init__(self) -> None:
        self._by_client: dict[Link, dict[int, RetrievalChain]] = {}
        self._by_interest: dict[InterestId, RetrievalChain] = {}
        self._cursors: dict[Link, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._by_interest)

    def __iter__(self) -> Iterator[RetrievalChain]:
        return iter(list(self._by_interest.values()))

    def of(self, link: Link) -> list[RetrievalChain]:
        """Those of the client at this link."""
        return list(self._by_client.get(link, {}).values())

    def get(self, link: Link, subscription: int) -> RetrievalChain | None:
        """The chain of a subscription."""
        return self._by_client.get(link, {}).get(subscription)

    def holder(self, interest: InterestId) -> RetrievalChain | None:
        """The chain that an interest belongs to."""
        return self._by_interest.get(interest)

    def cursor(self, link: Link, subscription: int) -> int | None:
        """Of the chain of this subscription, if it had a lifetime over this connection."""
        return self._cursors.get(link, {}).get(subscription)

    def keep_cursor(self, link: Link, subscription: int, cursor: int) -> None:
        """For its next lifetime."""
        those = self._cursors.setdefault(link, {})
        those.pop(subscription, None)
        those[subscription] = cursor
        if len(those) > CURSORS_MAX:
            del those[next(iter(those))]

    def forget_cursor(self, link: Link, subscription: int) -> None:
        """It has no next lifetime."""
        self._cursors.get(link, {}).pop(subscription, None)

    def forget_cursors(self, link: Link) -> None:
        """The client has left."""
        self._cursors.pop(link, None)

    def add(self, chain: RetrievalChain) -> None:
        """One more."""
        self._by_client.setdefault(chain.link, {})[chain.subscription] = chain
        self._by_interest[chain.interest.id] = chain

    def renew(self, chain: RetrievalChain, interest: LooseInterest) -> None:
        """It is asked for under another identifier."""
        del self._by_interest[chain.interest.id]
        chain.interest = interest
        self._by_interest[interest.id] = chain

    def remove(self, chain: RetrievalChain) -> None:
        """One less."""
        del self._by_interest[chain.interest.id]
        those = self._by_client[chain.link]
        del those[chain.subscription]
        if not those:
            del self._by_client[chain.link]

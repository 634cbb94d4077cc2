"""The clients of one broker that send priced content, by link; and those that are gone, while they left something.

What a client published plainly, so that nobody waits for it, is bought also when the client has gone: it has been told
that its message is on its way. Such a client stays here, under a number that no link has, until all is bought. If it
comes back meanwhile it finds its accounts as they are, so that going and coming wins nothing.

State: senders by link. Bound: the clients of the broker, and DEPARTED_MAX that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.kernel.link import Link
from penstock.overlay.egress import OURSELVES
from penstock.pricing.sender import PricedSender

DEPARTED_MAX = 1_000


class PricedSenders:
    """Who has something to buy here."""

    def __init__(self, flows_max: int) -> None:
        self._flows_max = flows_max
        self._by_link: dict[Link, PricedSender] = {}
        self._departed: dict[str, Link] = {}  # by name: the numbers of those that are gone
        self._last = OURSELVES  # number given to one that is gone; they go down

    def __len__(self) -> int:
        return len(self._by_link)

    def items(self) -> Iterator[tuple[Link, PricedSender]]:
        """All of them as they are now; some may end meanwhile."""
        return iter(list(self._by_link.items()))

    def get(self, link: Link) -> PricedSender | None:
        return self._by_link.get(link)

    def open(self, link: Link, name: str) -> tuple[PricedSender, Link | None]:
        """The sender at this link; if it is one that has come back, also the number that it had meanwhile."""
        before = self._departed.pop(name, None)
        sender = PricedSender(name, self._flows_max) if before is None else self._by_link.pop(before)
        self._by_link[link] = sender
        return sender, before

    def close(self, link: Link) -> PricedSender | None:
        """The client at this link is gone; returns what there was of it."""
        return self._by_link.pop(link, None)

    def keep(self, sender: PricedSender) -> Link | None:
        """It is gone, and has left something to buy; returns its number, or nothing if there are too many such."""
        if len(self._departed) >= DEPARTED_MAX or sender.name in self._departed:
            return None
        self._last -= 1
        self._by_link[self._last] = sender
        self._departed[sender.name] = self._last
        return self._last

    def tidy(self, link: Link) -> None:
        """Forget one that is gone, once all is bought."""
        sender = self._by_link.get(link)
        if sender is not None and self._departed.get(sender.name) == link and not any(sender.held):
            del self._by_link[link], self._departed[sender.name]

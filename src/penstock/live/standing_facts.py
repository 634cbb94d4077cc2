"""What holds of a node now, and was recorded when it began: that it lives, what it is subscribed to, who is near.

A trace that begins in the middle of a node's life lacks the records of what began before. So the host remembers the
few that say something that lasts, each until another one ends it, with the time at which it was first true; whoever
begins to listen is told them first. As many as the node has subscriptions and neighbours, which other bounds limit.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.kernel.trace import NodeStarted, Record, Subscribed, Unsubscribed
from penstock.overlay.records import NeighbourChanged
from penstock.streams.records import DurableBegan, DurableStopped, SharingBegan

LASTING: frozenset[type[Record]] = frozenset(
    {NodeStarted, Subscribed, Unsubscribed, DurableBegan, DurableStopped, SharingBegan, NeighbourChanged}
)


class StandingFacts:
    """The records of one node that still hold."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str | int, ...], tuple[float, Record]] = {}

    def saw(self, time: float, record: Record) -> None:
        """A record of one of the kinds in LASTING."""
        match record:
            case NodeStarted():
                self._facts[("life",)] = (time, record)
            case Subscribed(subscription=number):
                self._facts["subscribed", number] = (time, record)
            case DurableBegan(subscription=number, pubend=pubend) | SharingBegan(subscription=number, pubend=pubend):
                self._facts["stream", number, pubend] = (time, record)
            case Unsubscribed(subscription=number) | DurableStopped(subscription=number):
                for key in [key for key in self._facts if key[1:2] == (number,) and key[0] != "near"]:
                    del self._facts[key]
            case NeighbourChanged(neighbour=neighbour, up=up):
                self._facts.pop(("near", neighbour), None)
                if up:
                    self._facts["near", neighbour] = (time, record)

    def all(self) -> Iterable[tuple[float, Record]]:
        """Each with its time, in the order in which they began."""
        return sorted(self._facts.values(), key=lambda fact: fact[0])

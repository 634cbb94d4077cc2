"""What a checker is: it watches a whole run and reports in words what is wrong.

A host of checkers calls the hooks as things happen, in order of time. The simulator is one; a test in real time may be
another, for the hooks that it can serve.
"""

from __future__ import annotations

from typing import Any

from penstock.content.message import Identity, Message
from penstock.kernel.trace import Dropped, Record
from penstock.overlay.packets import BrokerId, Publication
from penstock.pricing.packets import PricedPublication
from penstock.pricing.records import MessageBought
from penstock.rates.records import ReaderThinned, Thinned
from penstock.retrieval.packets import CarriedPublication
from penstock.scenario.spec import Scenario
from penstock.scenario.stream_facts import StreamFact
from penstock.transport.records import LossDetected, LossWithheld

PROBLEMS_MAX = 20  # enough to see what is wrong


class Checker:
    """Watches a run; the subclass overrides what it wants to see and calls `problem`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        """Something is wrong."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)

    def subscribed(self, time: float, client: str, subscription: int, where: str) -> None:
        """The client asked for something."""

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        """The client no longer wants it; perhaps it is dead, or never asked for it."""

    def published(self, time: float, client: str, message: Message) -> None:
        """The message left its publisher's client library."""

    def awaited(self, time: float, client: str, identity: Identity) -> None:
        """An application waits until this message of its own has left."""

    def answered(self, time: float, client: str, identity: Identity, accepted: bool) -> None:
        """It knows what became of it: that it has left, or that it has not, or that nobody can say."""

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        """The message reached an application."""

    def sent(self, time: float, packet: Publication) -> None:
        """A copy was put on a link between two brokers."""

    def arrived(self, time: float, broker: BrokerId, packet: Publication) -> None:
        """A broker handled a copy."""

    def dropped(self, time: float, record: Dropped) -> None:
        """A packet ended somewhere on the way."""

    def declared_lost(self, time: float, client: str, record: LossDetected | LossWithheld) -> None:
        """A client's transport has named a message as lost."""

    def reported(self, time: float, client: str, subscription: int, service: str, report: Any) -> None:
        """What a service reports of a subscription when it is closed, or the run is over."""

    def bought(self, time: float, broker: str, record: MessageBought) -> None:
        """A home broker bought a message its way."""

    def copy_sent(self, time: float, packet: PricedPublication) -> None:
        """A copy that was paid for was put on a link between two brokers."""

    def copy_arrived(self, time: float, broker: BrokerId, packet: PricedPublication) -> None:
        """A broker handled such a copy."""

    def thinned(self, time: float, broker: str, record: Thinned) -> None:
        """A home broker has withheld messages from a destination behind a full link."""

    def reader_thinned(self, time: float, broker: str, record: ReaderThinned) -> None:
        """A broker has withheld messages from a client of its own that reads slowly."""

    def retrieval(self, time: float, node: str, record: Record) -> None:
        """A record of retrieval, at a broker or a client; or a broker started, and its cache is empty."""

    def item_sent(self, time: float, broker: str, neighbour: str, packet: CarriedPublication) -> None:
        """A publication was put on a link between two brokers, for those who retrieve it; perhaps again."""

    def stream_fact(self, time: float, fact: StreamFact) -> None:
        """Something has happened to a stream."""

    def finish(self) -> None:
        """The run is over and the network has been drained."""

"""What an application can ask of its client node: publish, subscribe, unsubscribe, and say how it reads.

Each verb goes to the service whose options it sets, else to the first in the list that claims it, else to best effort.
A message without options goes first of all to a service that claims its content.
The effects come back through the node's egress, like those of any other input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.content.message import DEFAULT_LIMITS, Message, MessageLimits
from penstock.kernel.machine import Done, Effect, Refused
from penstock.kernel.service import (
    CarriesPublications,
    ClaimsContent,
    HasLastWords,
    Reading,
    ServesSubscriptions,
    Service,
    WatchesReaders,
    WithdrawsPublications,
    can,
)
from penstock.kernel.storage import Ticket
from penstock.overlay.client import Client
from penstock.overlay.node import Node


class Verbs:
    """The application's side of one client node."""

    def __init__(self, node: Node, client: Client, services: Sequence[Service]) -> None:
        self._node = node
        self._client = client
        self._carriers: list[tuple[Service, CarriesPublications]] = []
        self._by_content: list[tuple[ClaimsContent, CarriesPublications]] = []  # carriers that claim some content
        self._servers: list[tuple[Service, ServesSubscriptions]] = []
        self._serving: dict[int, ServesSubscriptions] = {}  # the subscriptions that a service serves
        self._watchers: list[Any] = []  # who watches the readers of the others
        for rank, service in enumerate(services):
            machine: Any = node.machines.get(service.name)
            if can(machine, CarriesPublications):
                self._carriers.append((service, machine))
                if can(machine, ClaimsContent):
                    self._by_content.append((machine, machine))
                    machine.set_pass_on(self._pass_on)
            if can(machine, ServesSubscriptions):
                self._servers.append((service, machine))
                client.serve(rank, machine)
            elif can(machine, WatchesReaders):
                self._watchers.append(machine)

    def limits(self, options: Any = None) -> MessageLimits:
        """What a message may be like so that whoever sends it can."""
        carrier = self.carrier(options)
        return DEFAULT_LIMITS if carrier is None else carrier.limits

    def publish(
        self,
        messages: Sequence[Message],
        options: Any = None,
        *,
        tickets: Sequence[Ticket] = (),
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        """Send messages to whoever wants them; tickets, one for each or none at all, are answered when they left.

        `began` says of each when the application called publish(); without it, now.
        """
        effects: list[Effect] = []
        first = 0
        carriers = [self.carrier(options, message) for message in messages] if self.claims_content() else []
        for upto in range(1, len(messages) + 1):
            if upto == len(messages) or (carriers and carriers[upto] is not carriers[first]):
                carrier = carriers[first] if carriers else self.carrier(options)
                part = slice(first, upto)
                some, asked = messages[part], tickets[part]
                if carrier is None:
                    effects += self._client.publish(some, tickets=asked, now=now, began=began[part])
                else:
                    effects += carrier.publish(some, options, tickets=asked, now=now, began=began[part])
                first = upto
        return self._node.route(effects)

    def is_held(self) -> bool:
        """Whether the home broker holds what we publish, as we asked it to: an application that can wait does."""
        return self._client.home is not None and self._node.is_held(self._client.home)

    def withdraw(self, ticket: Ticket, *, now: float) -> list[Effect]:
        """Whoever published under this ticket waits no longer: the message does not leave, unless it has already."""
        waiting: list[Any] = [machine for _, machine in self._carriers if can(machine, WithdrawsPublications)]
        return self._node.route([effect for machine in waiting for effect in machine.withdraw(ticket, now=now)])

    def leaving(self, *, now: float) -> list[Effect]:
        """The application closes its network: what services have to say before."""
        talkers: list[Any] = [machine for _, machine in self._carriers if can(machine, HasLastWords)]
        return self._node.route([effect for machine in talkers for effect in machine.leaving(now=now)])

    def carrier(self, options: Any = None, message: Message | None = None) -> CarriesPublications | None:
        """The service that sends this message, or any, if it is published with these options; None: best effort."""
        asked = [machine for service, machine in self._carriers if service.asked_by(options, "publication_options")]
        if asked:
            return asked[0]
        if message is not None:
            for claimant, carrier in self._by_content:
                if claimant.claims_message(message):
                    return carrier
        return self._any_carrier()

    def _any_carrier(self) -> CarriesPublications | None:
        """The service that sends what asks for nothing, whatever it says."""
        return next((machine for _, machine in self._carriers if machine.claims_publication()), None)

    def _pass_on(
        self, messages: Sequence[Message], *, tickets: Sequence[Ticket], now: float, began: Sequence[float]
    ) -> list[Effect]:
        carrier = self._any_carrier()
        if carrier is None:
            return self._client.publish(messages, tickets=tickets, now=now, began=began)
        return carrier.publish(messages, None, tickets=tickets, now=now, began=began)

    def claims_content(self) -> bool:
        """Whether it depends on the content of a message who sends it."""
        for claimant, _ in self._by_content:  # noqa: SIM110  # asked for every message, and a generator costs more
            if claimant.claims_content():
                return True
        return False

    def subscribe(self, number: int, where: str, options: Any = None, *, ticket: Ticket, now: float) -> list[Effect]:
        """Ask for all messages that match `where`, under a number not in use, with what the options say."""
        serving = self._serving.get(number)
        if serving is not None and serving.report(number) is not None:  # none any more if a broker has refused it
            return [Done(ticket, Refused(f"subscription {number} exists; choose another number"))]
        asked = [machine for service, machine in self._servers if service.asked_by(options, "subscription_options")]
        claiming = (machine for _, machine in self._servers if machine.claims_subscription())
        server = asked[0] if asked else next(claiming, None)
        if server is None:
            self._serving.pop(number, None)
            return self._node.route(self._client.subscribe(number, where, ticket=ticket, now=now))
        effects = server.subscribe(number, where, options, ticket=ticket, now=now)
        if not any(isinstance(effect, Done) and isinstance(effect.outcome, Refused) for effect in effects):
            self._serving[number] = server
        return self._node.route(effects)

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        """Ask for no more."""
        server = self._serving.pop(number, None)
        if server is None:
            return self._node.route(self._client.unsubscribe(number, ticket=ticket, now=now))
        return self._node.route(server.unsubscribe(number, ticket=ticket, now=now))

    def await_ready(self, within: float, *, ticket: Ticket) -> list[Effect]:
        """Answer the ticket when all brokers know our subscriptions, or after `within` seconds with who does not."""
        return self._node.route(self._client.await_ready(within, ticket=ticket))

    def forget_ready(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._client.forget_ready(ticket)

    def read(self, number: int, reading: Reading, *, now: float) -> list[Effect]:
        """How the application has taken the messages of a subscription lately."""
        server = self._serving.get(number)
        watchers: list[Any] = [server] if server is not None and can(server, WatchesReaders) else []
        if server is None or getattr(server, "lets_thin", False):
            watchers += self._watchers
        effects = [effect for watcher in watchers for effect in watcher.read(number, reading, now=now)]
        return self._node.route(effects) if effects else []

    def reports(self, number: int) -> dict[str, Any]:
        """What the services report of one subscription, by the name of the service."""
        found = {service.name: machine.report(number) for service, machine in self._servers}
        return {name: report for name, report in found.items() if report is not None}

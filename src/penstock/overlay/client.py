"""The client's end of the network: publish, subscribe, unsubscribe, and what comes back.

State: the subscriptions that the application holds. They belong to the application, not to the connection: whenever
the link to the home broker comes up, the client says who it is and subscribes again. A ticket is answered when the
broker has answered; a subscription made while the link is down is answered later. Publishing while the link is down
is refused at once, because best effort stores nothing.

A service of the client (the transport) uses `carry`, `listen` and `ignore`: the same three verbs, without tickets and
without a place in the trace, because what services say to each other is nothing that an application published or
wants. Messages in an envelope go to the service, if there is one; otherwise the envelope is taken off here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.content.envelope import DATA, FLAG, opened
from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel.facts import published_record
from penstock.kernel.machine import (
    SERVICE_SUBSCRIPTIONS,
    Accepted,
    Deliver,
    Done,
    Effect,
    Lane,
    Link,
    Packet,
    Refused,
    Send,
    Ticket,
)
from penstock.kernel.timers import TimerName
from penstock.kernel.trace import InputRefused, Subscribed, Unsubscribed
from penstock.overlay.egress import dropped
from penstock.overlay.packets import Answer, Attach, Delivery, Hello, Publish, Subscribe, Unsubscribe

Taker = Callable[[tuple[int, ...], Message, float], list[Effect]]
NOT_CONNECTED = "not connected to a broker; best effort keeps nothing, so publish again once the link is up"


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Bounds of one client."""

    subscriptions_max: int = 1_000


class Client:
    """The service that gives an application its verbs."""

    name = "client"
    packet_kinds: tuple[type[Packet], ...] = (Answer, Delivery, Hello)

    def __init__(self, client: str, incarnation: int, config: ClientConfig) -> None:
        self.client = client
        self.incarnation = incarnation
        self._config = config
        self._home: Link | None = None
        self._where: dict[int, str] = {}  # subscription -> text
        self._asked: dict[int, int] = {}  # ticket on the wire -> subscription
        self._next_wire_ticket = 0
        self._unanswered: dict[int, Ticket] = {}  # subscription -> ticket whose Subscribe has not been answered
        self.refused: Callable[[int, float], list[Effect]] | None = None  # the service that must know of it
        self.taker: Taker | None = None  # the service that takes all that arrives, as soon as there is one

    # Application verbs.

    def publish(self, message: Message, *, ticket: Ticket, now: float) -> list[Effect]:
        """Send a message to whoever wants it."""
        if not self.connected:
            return self.refuse(message, ticket)
        return [published_record(message), *self.carry(message), Done(ticket, Accepted())]

    def refuse(self, message: Message, ticket: Ticket) -> list[Effect]:
        """There is nobody to give the message to."""
        return [*self.carry(message), Done(ticket, Refused(NOT_CONNECTED))]

    def publish_all(self, messages: Sequence[Message]) -> list[Effect]:
        """Send messages for which nobody holds a ticket or keeps a trace; while the link is down they are dropped."""
        home = self._home
        if home is None:
            return [dropped("egress", "not connected", "", Lane.BEST_EFFORT, Publish(message)) for message in messages]
        to = (home,)
        return [Send(to, Publish(message), Lane.BEST_EFFORT) for message in messages]

    def subscribe(self, subscription: int, where: str, *, ticket: Ticket, now: float) -> list[Effect]:
        """Ask for all messages that match `where`, under a number not in use."""
        if subscription in self._where:
            return [Done(ticket, Refused(f"subscription {subscription} exists; choose another number"))]
        if subscription >= SERVICE_SUBSCRIPTIONS:
            return [Done(ticket, Refused(f"numbers from {SERVICE_SUBSCRIPTIONS} on are taken; choose a smaller one"))]
        if sum(number < SERVICE_SUBSCRIPTIONS for number in self._where) >= self._config.subscriptions_max:
            return [Done(ticket, Refused(f"the limit subscriptions_max is {self._config.subscriptions_max}"))]
        self._where[subscription] = where
        self._unanswered[subscription] = ticket
        return [Subscribed(subscription, where), *self._send_subscribe(subscription)]

    def unsubscribe(self, subscription: int, *, ticket: Ticket, now: float) -> list[Effect]:
        """Ask for no more; deliveries stop at once, whatever is still on its way."""
        if self._where.pop(subscription, None) is None:
            return [Done(ticket, Refused(f"there is no subscription {subscription}"))]
        effects: list[Effect] = [Unsubscribed(subscription), Done(ticket, Accepted())]
        # An answer that is still on its way must not be taken for that of a later subscription under this number.
        self._asked = {wire: asked for wire, asked in self._asked.items() if asked != subscription}
        waiting = self._unanswered.pop(subscription, None)
        if waiting is not None:
            effects.append(Done(waiting, Refused("unsubscribed before the broker had answered")))
        if self._home is not None:
            effects.append(Send((self._home,), Unsubscribe(0, subscription), Lane.CONTROL))
        return effects

    # The same for services.

    @property
    def connected(self) -> bool:
        """Whether there is a broker to talk to."""
        return self._home is not None

    def carry(self, message: Message) -> list[Effect]:
        """Send a message; while the link is down it is dropped."""
        if self._home is None:
            return [dropped("egress", "not connected", "", Lane.BEST_EFFORT, Publish(message))]
        return [Send((self._home,), Publish(message), Lane.BEST_EFFORT)]

    def listen(self, subscription: int, where: str) -> list[Effect]:
        """Subscribe under a number of a service."""
        assert subscription >= SERVICE_SUBSCRIPTIONS, f"{subscription} is an application's number"
        self._where[subscription] = where
        return self._send_subscribe(subscription)

    def ignore(self, subscription: int) -> list[Effect]:
        """Unsubscribe under a number of a service."""
        if self._where.pop(subscription, None) is None or self._home is None:
            return []
        return [Send((self._home,), Unsubscribe(0, subscription), Lane.CONTROL)]

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        held = self._where
        for packet in packets:
            if isinstance(packet, Delivery):
                if self.taker is None and FLAG not in packet.message.attributes:  # by far the most, where there is none
                    for subscription in packet.subscriptions:
                        if subscription in held:
                            effects.append(Deliver(subscription, packet.message))
                else:
                    effects += self._delivered(packet, now)
            elif isinstance(packet, Answer):
                effects += self._answered(packet, now)
        return effects

    def _delivered(self, packet: Delivery, now: float) -> list[Effect]:
        """A message for a service, or in an envelope that nobody here has a use for."""
        held, message = self._where, packet.message
        if self.taker is not None:
            return self.taker(tuple([number for number in packet.subscriptions if number in held]), message, now)
        inside, problems = without_envelope(message)
        if inside is None:
            return problems
        return [Deliver(number, inside) for number in packet.subscriptions if number in held]

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if not up:
            if link == self._home:
                self._home = None
                self._asked.clear()
            return []
        self._home = link
        effects: list[Effect] = [Send((link,), Attach(self.client, self.incarnation), Lane.CONTROL)]
        for subscription in self._where:
            effects += self._send_subscribe(subscription)
        return effects

    def expired(self, timer: TimerName, *, now: float) -> list[Effect]:
        raise AssertionError(f"the client sets no timer, yet {timer} expired")

    # Subscriptions on the wire.

    def _send_subscribe(self, subscription: int) -> list[Effect]:
        if self._home is None:
            return []
        self._next_wire_ticket += 1
        self._asked[self._next_wire_ticket] = subscription
        packet = Subscribe(self._next_wire_ticket, subscription, self._where[subscription])
        return [Send((self._home,), packet, Lane.CONTROL)]

    def _answered(self, packet: Answer, now: float) -> list[Effect]:
        subscription = self._asked.pop(packet.ticket, None)
        if subscription is None or subscription not in self._where:
            return []
        ticket = self._unanswered.pop(subscription, None)
        effects: list[Effect] = []
        if packet.problem:
            del self._where[subscription]
            effects = [InputRefused(sender=self.client, problem=packet.problem)]
            if subscription < SERVICE_SUBSCRIPTIONS:
                effects.append(Unsubscribed(subscription))
                effects += self.refused(subscription, now) if self.refused is not None else []
        if ticket is not None:
            effects.append(Done(ticket, Refused(packet.problem) if packet.problem else Accepted()))
        return effects


def without_envelope(message: Message) -> tuple[Message | None, list[Effect]]:
    """The application's message in an envelope; none if it is a control message between services, or no good."""
    if message.attributes[FLAG] != DATA:
        return None, []
    try:
        return opened(message)[1], []
    except InvalidMessage as error:
        return None, [InputRefused(sender=message.identity.publisher, problem=str(error))]

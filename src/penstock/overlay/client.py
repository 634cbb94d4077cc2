"""The client's end of the network: publish, subscribe, unsubscribe, and what comes back.

State: the subscriptions that the application holds. They belong to the application, not to the connection: whenever
the link to the home broker comes up, the client says who it is and subscribes again. A ticket is answered when the
broker has answered; a subscription made while the link is down is answered later. Publishing while the link is down
is refused at once, because best effort stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from penstock.content.message import Message
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Lane, Link, Packet, Refused, Send, Ticket
from penstock.kernel.timers import TimerName
from penstock.kernel.trace import InputRefused, Published, Subscribed, Unsubscribed
from penstock.overlay.egress import dropped
from penstock.overlay.packets import Answer, Attach, Delivery, Hello, Publish, Subscribe, Unsubscribe

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

    # Application verbs.

    def publish(self, message: Message, *, ticket: Ticket, now: float) -> list[Effect]:
        """Send a message to whoever wants it."""
        if self._home is None:
            lost = dropped("egress", "not connected", "", Lane.BEST_EFFORT, Publish(message))
            return [lost, Done(ticket, Refused(NOT_CONNECTED))]
        fact = published_record(message)
        return [fact, Send((self._home,), Publish(message), Lane.BEST_EFFORT), Done(ticket, Accepted())]

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
        if len(self._where) >= self._config.subscriptions_max:
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

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        held = self._where
        for packet in packets:
            if isinstance(packet, Delivery):
                for subscription in packet.subscriptions:
                    if subscription in held:
                        effects.append(Deliver(subscription, packet.message))
            elif isinstance(packet, Answer):
                effects += self._answered(packet)
        return effects

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

    def _answered(self, packet: Answer) -> list[Effect]:
        subscription = self._asked.pop(packet.ticket, None)
        if subscription is None or subscription not in self._where:
            return []
        ticket = self._unanswered.pop(subscription, None)
        effects: list[Effect] = []
        if packet.problem:
            del self._where[subscription]
            effects = [InputRefused(sender=self.client, problem=packet.problem), Unsubscribed(subscription)]
        if ticket is not None:
            effects.append(Done(ticket, Refused(packet.problem) if packet.problem else Accepted()))
        return effects


def published_record(message: Message) -> Published:
    """The trace record of a publication."""
    identity = message.identity
    return Published(
        publisher=identity.publisher,
        incarnation=identity.incarnation,
        count=identity.count,
        attributes=msgspec.json.encode(message.attributes, order="sorted").decode(),
        body_bytes=len(message.body),
    )

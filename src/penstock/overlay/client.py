"""The client's end of the network: publish, subscribe, unsubscribe, and what comes back.

State: the subscriptions that the application and its services hold. They belong to them, not to the connection:
whenever the link to the home broker comes up, the client attaches and subscribes again. A ticket is answered when the
broker has answered; a subscription made while the link is down is answered later. Publishing while the link is down is
refused at once, because best effort stores nothing.

A broker that has accepted a subscription tells the others of it. `await_ready` asks to be told when all of them know:
from then on messages published anywhere find it.

Services use `carry`, `listen` and `ignore`: the same three verbs, without tickets and without a place in the trace,
because what services send each other is nothing that an application published or wants. A service cannot do without
what it listens to, so if a broker refuses that (it has too many clients for the moment, say), the client asks again, at
intervals that grow from AGAIN_FIRST to AGAIN_MAX; where nothing at all was accepted it attaches again first. An
application is told of a refusal, and decides for itself.

Each subscription has one owner: a service that serves it, or nobody, which is best effort. A delivery goes first to the
application for those that nobody owns (an envelope of some service is taken off), then to the owners in the order of
the list of services.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from penstock.content.envelope import DATA, FLAG, opened
from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel.link import Link
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Accepted, Deliver, Done, Effect, Refused, Reported, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context, ServesSubscriptions
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.kernel.trace import InputRefused, Subscribed, Unsubscribed, published_records
from penstock.overlay.config import ClientConfig
from penstock.overlay.egress import dropped
from penstock.overlay.packets import Answer, Attach, Delivery, Publish, Ready, ReadyRequest, Subscribe, Unsubscribe
from penstock.overlay.records import ServiceSubscriptionRefused
from penstock.overlay.timers import ForwardingTimer

NOT_CONNECTED = "not connected to a broker; best effort keeps nothing, so publish again once the link is up"
AGAIN_FIRST, AGAIN_MAX = 1.0, 60.0  # seconds before a refused subscription of a service is tried again


class Client:
    """The machine that gives an application its verbs."""

    packet_kinds: tuple[type[Packet], ...] = (Answer, Ready, Delivery)

    def __init__(self, context: Context) -> None:
        self.client = context.name
        self.incarnation = context.incarnation
        self._config = context.settings(ClientConfig)
        self._traced = context.traced
        self._timers = context.timers
        self._home: Link | None = None
        self._where: dict[int, str] = {}  # subscription -> text
        self._owners: dict[int, int] = {}  # subscription -> rank of the service that owns it
        self._services: dict[int, ServesSubscriptions] = {}  # by rank: the order of the list of services
        self._opens: dict[int, bool] = {}  # whether that service opens envelopes itself
        self._asked: dict[int, int] = {}  # ticket on the wire -> subscription
        self._next_wire_ticket = 0
        self._attached = False  # whether the broker has accepted anything since the link came up
        self._again: dict[int, float] = {}  # subscription of a service that was refused -> seconds to wait
        self._unanswered: dict[int, Ticket] = {}  # subscription -> ticket whose Subscribe has not been answered
        self._awaiting: dict[int, tuple[Ticket, float]] = {}  # ticket on the wire -> whose, and how long at most

    def serve(self, rank: int, service: ServesSubscriptions) -> None:
        """Deliveries for the subscriptions of this service go to it; called when the node is assembled."""
        self._services[rank] = service
        self._opens[rank] = getattr(service, "opens_envelopes", False)

    # Application verbs.

    def publish(
        self,
        messages: Sequence[Message],
        *,
        tickets: Sequence[Ticket],
        now: float,
        lane: Lane = Lane.BEST_EFFORT,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        """Send messages to whoever wants them; tickets, if there are any, are answered one for each."""
        effects = self.sent(messages, lane, [now - one for one in began])
        if tickets:
            outcome = Accepted() if self.connected else Refused(NOT_CONNECTED)
            effects += [Done(ticket, outcome) for ticket in tickets]
        return effects

    def sent(self, messages: Sequence[Message], lane: Lane, waited: Sequence[float] = ()) -> list[Effect]:
        """The messages of the application leave now, in this lane; while the link is down they are dropped."""
        if self._home is None:
            return [dropped("egress", "not connected", "", lane, Publish(message, lane)) for message in messages]
        to = (self._home,)
        effects: list[Effect] = [Send(to, Publish(message, lane), lane) for message in messages]
        if self._traced:
            facts = map(published_records, repeat(self._traced), messages, waited or repeat(0.0))
            effects = [part for fact, send in zip(facts, effects, strict=True) for part in (*fact, send)]
        return effects

    def subscribe(
        self, number: int, where: str, *, ticket: Ticket, now: float, owner: int | None = None
    ) -> list[Effect]:
        """Ask for all messages that match `where`, under a number not in use."""
        if number in self._where:
            return [Done(ticket, Refused(f"subscription {number} exists; choose another number"))]
        if number >= SERVICE_SUBSCRIPTIONS:
            return [Done(ticket, Refused(f"numbers from {SERVICE_SUBSCRIPTIONS} on are taken; choose a smaller one"))]
        if sum(number < SERVICE_SUBSCRIPTIONS for number in self._where) >= self._config.subscriptions_max:
            return [Done(ticket, Refused(f"the limit subscriptions_max is {self._config.subscriptions_max}"))]
        self._where[number] = where
        if owner is not None:
            self._owners[number] = owner
        self._unanswered[number] = ticket
        return [Subscribed(number, where), *self._send_subscribe(number)]

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        """Ask for no more; deliveries stop at once, whatever is still on its way."""
        if self._where.pop(number, None) is None:
            return [Done(ticket, Refused(f"there is no subscription {number}"))]
        self._owners.pop(number, None)
        effects: list[Effect] = [Unsubscribed(number), Done(ticket, Accepted())]
        # An answer that is still on its way must not be taken for that of a later subscription under this number.
        self._asked = {wire: asked for wire, asked in self._asked.items() if asked != number}
        waiting = self._unanswered.pop(number, None)
        if waiting is not None:
            effects.append(Done(waiting, Refused("unsubscribed before the broker had answered")))
        if self._home is not None:
            effects.append(Send((self._home,), Unsubscribe(0, number), Lane.CONTROL))
        return effects

    def await_ready(self, within: float, *, ticket: Ticket) -> list[Effect]:
        """Answer the ticket when all brokers know our subscriptions, or after `within` seconds with who does not."""
        self._next_wire_ticket += 1
        self._awaiting[self._next_wire_ticket] = (ticket, within)
        if self._home is None:
            return []
        return [Send((self._home,), ReadyRequest(self._next_wire_ticket, within), Lane.CONTROL)]

    def forget_ready(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._awaiting = {wire: asked for wire, asked in self._awaiting.items() if asked[0] != ticket}

    # The same for services.

    @property
    def connected(self) -> bool:
        """Whether there is a broker at the other end."""
        return self._home is not None

    @property
    def home(self) -> Link | None:
        """The link to our broker."""
        return self._home

    def carry(self, message: Message, lane: Lane) -> Effect:
        """Send a message of a service; while the link is down it is dropped."""
        packet = Publish(message, lane)
        if self._home is None:
            return dropped("egress", "not connected", "", lane, packet)
        return Send((self._home,), packet, lane)

    def listen(self, number: int, where: str, owner: int) -> list[Effect]:
        """Subscribe under a number of a service."""
        assert number >= SERVICE_SUBSCRIPTIONS, f"{number} is an application's number"
        self._ask_no_more(number)
        self._where[number] = where
        self._owners[number] = owner
        return self._send_subscribe(number)

    def ignore(self, number: int) -> list[Effect]:
        """Unsubscribe under a number of a service."""
        self._ask_no_more(number)
        self._owners.pop(number, None)
        if self._where.pop(number, None) is None or self._home is None:
            return []
        return [Send((self._home,), Unsubscribe(0, number), Lane.CONTROL)]

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        held, owners = self._where, self._owners
        for packet in packets:
            if isinstance(packet, Delivery):
                numbers, message = packet.subscriptions, packet.message
                rank = owners.get(numbers[0], -1) if len(numbers) == 1 else -1
                if rank >= 0 and self._opens[rank]:  # by far the most, where a service has any
                    effects += self._services[rank].delivered(numbers, message, now=now)
                elif not owners and FLAG not in message.attributes:  # and where none has
                    for number in numbers:
                        if number in held:
                            effects.append(Deliver(number, message))
                else:
                    effects += self._delivered(packet, now)
            elif isinstance(packet, Answer):
                effects += self._answered(packet, now)
            elif isinstance(packet, Ready) and packet.ticket in self._awaiting:
                ticket, _ = self._awaiting.pop(packet.ticket)
                effects.append(Done(ticket, Reported({"unconfirmed": packet.unconfirmed})))
        return effects

    def _delivered(self, packet: Delivery, now: float) -> list[Effect]:
        """For the application what nobody owns, then for each service what is its own."""
        message = packet.message
        plain: list[int] = []
        owned: dict[int, list[int]] = {}
        for number in packet.subscriptions:
            if number in self._owners:
                owned.setdefault(self._owners[number], []).append(number)
            elif number in self._where:
                plain.append(number)
        effects: list[Effect] = []
        inside: Message | None = message
        if FLAG in message.attributes and (plain or not all(self._opens[rank] for rank in owned)):
            inside, effects = _without_envelope(message)
        if inside is not None:
            effects += [Deliver(number, inside) for number in plain]
        for rank in sorted(owned):
            content = message if self._opens[rank] else inside
            if content is not None:
                effects += self._services[rank].delivered(tuple(owned[rank]), content, now=now)
        return effects

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        if self._attached or self._home is None:
            return self._send_subscribe(int(key[0]))
        for number in self._again:  # all are asked for now
            self._timers.cancel(ForwardingTimer.SUBSCRIBE_AGAIN, number)
        return self._attach(self._home)

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if not up:
            if link == self._home:
                self._home = None
                self._asked.clear()
                for number in list(self._again):  # a new link begins with asking for all
                    self._ask_no_more(number)
            return []
        self._home = link
        self._attached = False
        return self._attach(link)

    # Subscriptions on the wire.

    def _attach(self, link: Link) -> list[Effect]:
        effects: list[Effect] = [Send((link,), Attach(self.client, self.incarnation), Lane.CONTROL)]
        for number in self._where:
            effects += self._send_subscribe(number)
        for wire, (_, within) in self._awaiting.items():
            effects.append(Send((link,), ReadyRequest(wire, within), Lane.CONTROL))
        return effects

    def _send_subscribe(self, number: int) -> list[Effect]:
        if self._home is None:
            return []
        self._next_wire_ticket += 1
        self._asked[self._next_wire_ticket] = number
        packet = Subscribe(self._next_wire_ticket, number, self._where[number])
        return [Send((self._home,), packet, Lane.CONTROL)]

    def _answered(self, packet: Answer, now: float) -> list[Effect]:
        number = self._asked.pop(packet.ticket, None)
        if number is None or number not in self._where:
            return []
        ticket = self._unanswered.pop(number, None)
        effects: list[Effect] = []
        if packet.problem:
            refused = self._refused if number < SERVICE_SUBSCRIPTIONS else self._refused_to_service
            effects = refused(number, packet.problem, now)
        else:
            self._attached = True
            self._again.pop(number, None)
        if ticket is not None:
            effects.append(Done(ticket, Refused(packet.problem) if packet.problem else Accepted()))
        return effects

    def _refused(self, number: int, problem: str, now: float) -> list[Effect]:
        """The broker does not take a subscription, now or after a reconnection."""
        del self._where[number]
        owner = self._owners.pop(number, None)
        effects: list[Effect] = [InputRefused(sender=self.client, problem=problem), Unsubscribed(number)]
        if owner is not None:
            effects += self._services[owner].refused(number, now=now)
        return effects

    def _refused_to_service(self, number: int, problem: str, now: float) -> list[Effect]:
        """The broker does not take what a service listens to: ask again later."""
        wait = self._again[number] = min(AGAIN_MAX, 2 * self._again.get(number, AGAIN_FIRST / 2))
        self._timers.set(ForwardingTimer.SUBSCRIBE_AGAIN, now + wait, number)
        refusal = InputRefused(sender=self.client, problem=problem)
        return [refusal, ServiceSubscriptionRefused(self._where[number], problem, wait)]

    def _ask_no_more(self, number: int) -> None:
        if self._again.pop(number, None) is not None:
            self._timers.cancel(ForwardingTimer.SUBSCRIBE_AGAIN, number)


def _without_envelope(message: Message) -> tuple[Message | None, list[Effect]]:
    """The message in the envelope of a service; none if services sent it to each other, or if it is no good."""
    if message.attributes[FLAG] != DATA:
        return None, []
    try:
        return opened(message)[1], []
    except InvalidMessage as error:
        return None, [InputRefused(sender=message.identity.publisher, problem=str(error))]

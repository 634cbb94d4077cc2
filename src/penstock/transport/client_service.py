"""A client with a transport: the application's verbs pass through it, and its own verbs go to the client below.

The overlay knows nothing of all this: to its brokers, headers are part of a message's body, and requests, repairs,
heartbeats and echoes are messages like any others. As long as nothing asks for the transport (no configuration, no
subscription with order or recovery), messages take the short way past it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Message
from penstock.errors import InvalidMessage, InvalidPredicate
from penstock.kernel.machine import Done, Effect, Link, Packet, Refused, Ticket
from penstock.kernel.timers import TimerName, Timers
from penstock.overlay.client import NOT_CONNECTED
from penstock.overlay.egress import LinkInfo
from penstock.overlay.node import ClientNode, NodeConfig, Service
from penstock.transport.bearer import BearerPublish, BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.report import TransportReport
from penstock.transport.transport import Transport


class TransportClientNode(ClientNode):
    """A client node whose subscriptions may ask for order and recovery."""

    def __init__(
        self,
        client: str,
        incarnation: int,
        links: Mapping[Link, LinkInfo],
        config: NodeConfig,
        services: Sequence[Service] = (),
        *,
        transport: TransportConfig | None,
        random: Random,
    ) -> None:
        timers = Timers()
        self.transport = Transport(
            client, incarnation, transport or TransportConfig(), timers, random, publishes=transport is not None
        )
        below = _Below(self)
        super().__init__(client, incarnation, links, config, (below, *services), timers)

    def publish(self, message: Message, *, ticket: Ticket, now: float) -> list[Effect]:
        if not self.transport.publishes:
            return super().publish(message, ticket=ticket, now=now)
        if not self.client.connected:
            return self.egress.route(self.client.refuse(message, ticket))
        try:
            return self.egress.route(self.carried_out(self.transport.publish(message, ticket=ticket, now=now)))
        except InvalidMessage as error:
            return [Done(ticket, Refused(str(error)))]

    def publish_all(self, messages: Sequence[Message], *, now: float) -> list[Effect]:
        if not self.transport.publishes:
            return super().publish_all(messages, now=now)
        effects: list[Effect] = []
        for message in messages:
            effects += self.carried_out(self.transport.publish(message, now=now))
        return self.egress.route(effects)

    def subscribe(
        self,
        subscription: int,
        where: str,
        *,
        ticket: Ticket,
        now: float,
        ordered: bool = False,
        recover: bool = False,
        priority: float = 1.0,
    ) -> list[Effect]:
        """Ask for all messages that match `where`; in order, or with lost ones asked for again, if so wanted."""
        if not (ordered or recover or self.transport.config.congestion):
            return super().subscribe(subscription, where, ticket=ticket, now=now)
        try:
            predicate = parse_predicate(where)
        except InvalidPredicate as error:
            return [Done(ticket, Refused(str(error)))]
        effects = self.client.subscribe(subscription, where, ticket=ticket, now=now)
        if not any(isinstance(effect, Done) for effect in effects):
            more = self.transport.subscribe(
                subscription, predicate, ordered=ordered, recover=recover, now=now, priority=priority
            )
            self.client.taker = self._taken
            self.client.refused = self._refused
            effects += self.carried_out(more)
        return self.egress.route(effects)

    def unsubscribe(self, subscription: int, *, ticket: Ticket, now: float) -> list[Effect]:
        effects = self.client.unsubscribe(subscription, ticket=ticket, now=now)
        return self.egress.route(effects + self.carried_out(self.transport.unsubscribe(subscription, now=now)))

    def report(self, subscription: int) -> TransportReport | None:
        """How the transport serves this subscription; None if it is a plain one."""
        return self.transport.report(subscription) if self.transport.looks_after(subscription) else None

    def carried_out(self, effects: list[TransportEffect]) -> list[Effect]:
        """What the transport wants, with its verbs turned into those of the client below."""
        done: list[Effect] = []
        for effect in effects:
            if isinstance(effect, BearerPublish):
                done += self.client.carry(effect.message)
            elif isinstance(effect, BearerSubscribe):
                done += self.client.listen(effect.number, effect.where)
            elif isinstance(effect, BearerUnsubscribe):
                done += self.client.ignore(effect.number)
            else:
                done.append(effect)
        return done

    def _refused(self, subscription: int, now: float) -> list[Effect]:
        """The broker does not take a subscription, now or after it was connected again."""
        return self.carried_out(self.transport.unsubscribe(subscription, now=now))

    def _taken(self, subscriptions: tuple[int, ...], message: Message, now: float) -> list[Effect]:
        return self.carried_out(self.transport.arrived(subscriptions, message, now=now))


class _Below:
    """The transport as a service of its node: it has timers, and no packets of its own."""

    name = "transport"
    packet_kinds: tuple[type[Packet], ...] = ()

    def __init__(self, node: TransportClientNode) -> None:
        self._node = node
        self._started = False

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        raise AssertionError("the transport takes no packets")

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        """The first time that there is a network, a publisher asks it for what it needs; without one nobody waits."""
        if not up and not self._node.client.connected:
            return self._node.carried_out(self._node.transport.close(NOT_CONNECTED))
        if not up or self._started or not self._node.transport.publishes:
            return []
        self._started = True
        self._node.client.taker = self._node._taken
        return self._node.carried_out(self._node.transport.start())

    def expired(self, timer: TimerName, *, now: float) -> list[Effect]:
        return self._node.carried_out(self._node.transport.expired(timer, now=now))

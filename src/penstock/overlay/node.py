"""One node: services side by side, over one egress and one heap of timers.

A service is a machine that handles some kinds of packets under a name of its own. To add one, give it `name`,
`packet_kinds`, `receive`, `link_changed` and `expired`, and register it in `broker_node` or `client_node`. The node
hands each packet to the service that handles its kind, each expired timer to the service whose name it bears, and
lets all packets out through the egress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import Protocol

from penstock.content.bloom import EncodingScheme
from penstock.content.message import Message
from penstock.kernel.machine import Effect, Link, Packet, StorageResult, Ticket
from penstock.kernel.queue import QueueConfig
from penstock.kernel.timers import TimerName, Timers
from penstock.kernel.trace import InputRefused
from penstock.overlay.broker import Broker, BrokerConfig
from penstock.overlay.client import Client, ClientConfig
from penstock.overlay.egress import Egress, LinkInfo
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing, RoutingConfig


class Service(Protocol):
    """A machine that lives in a node."""

    name: str  # first element of the names of its timers
    packet_kinds: tuple[type[Packet], ...]

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]: ...

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]: ...

    def expired(self, timer: TimerName, *, now: float) -> list[Effect]: ...


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """All settings of a node; every broker of a network must have the same `scheme`."""

    scheme: EncodingScheme = field(default_factory=EncodingScheme)
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    egress: QueueConfig = field(default_factory=QueueConfig)


class Node:
    """What a host drives: implements `kernel.machine.Machine`."""

    def __init__(
        self, services: Sequence[Service], links: Mapping[Link, LinkInfo], timers: Timers, egress: QueueConfig
    ) -> None:
        self.egress = Egress(links, egress)
        self._services = services
        self._timers = timers
        self._by_name = {service.name: service for service in services}
        self._by_kind = {kind: service for service in services for kind in service.packet_kinds}

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        if len(packets) == 1 or len(set(map(type, packets))) == 1:  # nearly always: alone, or among its like
            service = self._by_kind.get(type(packets[0]))
            if service is not None:
                return self.egress.route(service.receive(packets, sender=sender, now=now))
        effects: list[Effect] = []
        for service, batch in groupby(packets, lambda packet: self._by_kind.get(type(packet))):
            if service is None:
                kinds = ", ".join(sorted({type(packet).__name__ for packet in batch}))
                effects.append(InputRefused(self.egress.peer(sender), f"no service here takes packets of kind {kinds}"))
            else:
                effects += service.receive(list(batch), sender=sender, now=now)
        return self.egress.route(effects)

    def link_ready(self, link: Link, *, room_bytes: int, now: float) -> list[Effect]:
        return self.egress.link_ready(link, room_bytes)

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        effects = self.egress.link_changed(link, up=up)
        for service in self._services:
            effects += self.egress.route(service.link_changed(link, up=up, now=now))
        return effects

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        raise AssertionError(f"no service of this node asks storage for anything, yet ticket {ticket} came back")

    def wake(self, *, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while (timer := self._timers.pop_due(now)) is not None:
            effects += self._by_name[str(timer[0])].expired(timer, now=now)
        return self.egress.route(effects)

    def deadline(self) -> float | None:
        return self._timers.deadline()


class BrokerNode(Node):
    """A broker: its picture of the network, and the forwarding built on it."""

    def __init__(
        self,
        broker: BrokerId,
        incarnation: int,
        links: Mapping[Link, LinkInfo],
        random: Random,
        config: NodeConfig,
        services: Sequence[Service] = (),  # of the host's own, beside the protocol's
    ) -> None:
        timers = Timers()
        self.routing = Routing(
            broker,
            incarnation,
            scheme=config.scheme,
            timers=timers,
            random=random,
            link_costs={link: info.cost for link, info in links.items()},
            config=config.routing,
        )
        self.broker = Broker(self.routing, config.scheme, config.broker)
        super().__init__((self.routing, self.broker, *services), links, timers, config.egress)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self.routing.heard(sender, now=now)
        return super().receive(packets, sender=sender, now=now)


class ClientNode(Node):
    """A client: the application's verbs, passed on to the service and let out through the egress."""

    def __init__(
        self,
        client: str,
        incarnation: int,
        links: Mapping[Link, LinkInfo],
        config: NodeConfig,
        services: Sequence[Service] = (),
        timers: Timers | None = None,
    ) -> None:
        self.client = Client(client, incarnation, config.client)
        super().__init__((self.client, *services), links, Timers() if timers is None else timers, config.egress)

    def publish(self, message: Message, *, ticket: Ticket, now: float) -> list[Effect]:
        return self.egress.route(self.client.publish(message, ticket=ticket, now=now))

    def publish_all(self, messages: Sequence[Message], *, now: float) -> list[Effect]:
        return self.egress.route(self.client.publish_all(messages))

    def subscribe(self, subscription: int, where: str, *, ticket: Ticket, now: float) -> list[Effect]:
        return self.egress.route(self.client.subscribe(subscription, where, ticket=ticket, now=now))

    def unsubscribe(self, subscription: int, *, ticket: Ticket, now: float) -> list[Effect]:
        return self.egress.route(self.client.unsubscribe(subscription, ticket=ticket, now=now))

"""From the list of services to a node: the same for the simulator, the live hosts and tests.

Every service that has a machine for the role gets one, in the order of the list, made from a context of its own: its
settings, its timers, its random generators, its storage. A service that stores something needs a host that can; if it
cannot, the error comes here and not with the first message, unless the service can do without (`storage_optional`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from penstock.content.bloom import EncodingScheme
from penstock.errors import InvalidService, NotPossibleHere
from penstock.kernel.link import Link, LinkInfo, LinkLoad
from penstock.kernel.packet import BROKER, CLIENT
from penstock.kernel.queue import HOLD_BYTES, Overflow, QueueConfig
from penstock.kernel.service import (
    CarriesPublications,
    Context,
    HasTimers,
    ServesSubscriptions,
    Service,
    TakesPackets,
    UsesStorage,
    can,
    missing,
)
from penstock.kernel.storage import ServiceStorage
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import TraceSwitch
from penstock.overlay.client import Client
from penstock.overlay.node import Node
from penstock.overlay.packets import BrokerId
from penstock.overlay.verbs import Verbs


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """All settings of a node; every broker of a network must have the same `scheme`."""

    scheme: EncodingScheme = field(default_factory=EncodingScheme)
    queues: QueueConfig = field(default_factory=QueueConfig)
    services: Mapping[str, Any] = field(default_factory=dict)  # service -> its settings; defaults for all others


@dataclass(frozen=True, kw_only=True)
class Life:
    """Which node, and which life of it."""

    name: str
    incarnation: int
    seed: int
    number: BrokerId = 0
    traced: TraceSwitch | bool = True  # whether anybody keeps the records
    storage: bool = False  # whether the host has storage
    host_view: Callable[[], dict[str, Any]] = dict  # what the host adds to a report
    host_load: Callable[[Link], LinkLoad] = lambda link: LinkLoad()  # what the host knows of a link
    brokers: Mapping[str, BrokerId] | None = None  # the ids of all brokers of the plan, by name; None: there is no plan


def broker_node(
    services: Sequence[Service], life: Life, links: Mapping[Link, LinkInfo], config: NodeConfig | None = None
) -> Node:
    """A broker."""
    return _assemble(services, BROKER, life, links, config or NodeConfig())


def client_node(
    services: Sequence[Service], life: Life, links: Mapping[Link, LinkInfo], config: NodeConfig | None = None
) -> tuple[Node, Verbs]:
    """A client, and the verbs of its application."""
    node = _assemble(services, CLIENT, life, links, config or NodeConfig())
    return node, Verbs(node, node.machine(Client), services)


def _assemble(
    services: Sequence[Service], role: str, life: Life, links: Mapping[Link, LinkInfo], config: NodeConfig
) -> Node:
    node = Node(links, _queues(services, config), life.host_view, life.host_load)
    for rank, service in enumerate(services):
        make = service.make(role)
        if make is None:
            continue
        if role in service.stores and not (life.storage or service.storage_optional):
            remedy = "give the broker a folder to store in (--data), or leave the service out"
            raise NotPossibleHere(f"service '{service.name}' stores data, and {role} '{life.name}' cannot", remedy)
        context = Context(
            name=life.name,
            role=role,
            incarnation=life.incarnation,
            number=life.number,
            seed=life.seed,
            service=service.name,
            lane=service.lane,
            rank=rank,
            links=links,
            timers=ServiceTimers(service.name, node.timers, service.timers or IntEnum),
            storage=ServiceStorage(service.name, node.storage),
            has_storage=life.storage,
            config=config.services.get(service.name),
            scheme=config.scheme,
            machines=dict(node.machines),
            traced=life.traced,
            node=node,
            brokers=life.brokers,
        )
        machine = make(context)
        _check(service, role, machine)
        node.install(service.name, machine)
    return node


def _queues(services: Sequence[Service], config: NodeConfig) -> QueueConfig:
    """The lanes as configured, and held where the service of the lane says so."""
    held = dict.fromkeys(service.lane for service in services if service.overflow is Overflow.HOLD)
    lanes = dict(config.queues.lanes)
    for lane in held:
        if lanes[lane].overflow is Overflow.DROP:
            bytes_max = min(HOLD_BYTES, lanes[lane].bytes_max)
            lanes[lane] = replace(lanes[lane], overflow=Overflow.HOLD, bytes_max=bytes_max)
    return QueueConfig(lanes=lanes)


def _check(service: Service, role: str, machine: Any) -> None:
    """What a machine does, its declaration says; raises InvalidService."""
    problems = []
    kinds = machine.packet_kinds if can(machine, TakesPackets) else ()
    undeclared = [kind.__name__ for kind in kinds if kind not in service.packets]
    if undeclared:
        problems.append(f"takes {', '.join(undeclared)} and does not declare it")
    if service.timers is None and can(machine, HasTimers):
        problems.append("has timers and does not declare their enumeration")
    if can(machine, UsesStorage) != (role in service.stores):
        problems.append("uses storage and does not say so in `stores`, or the other way round")
    if role == CLIENT:
        kind: Any = type(machine)
        for options, capability in (
            (service.subscription_options, ServesSubscriptions),
            (service.publication_options, CarriesPublications),
        ):
            lacks = missing(kind, capability)
            if options is not None and lacks:
                problems.append(f"has options and lacks {', '.join(lacks)} to serve them")
    for problem in problems:
        raise InvalidService(service.name, f"its machine for {role}s {problem}")

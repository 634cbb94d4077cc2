"""What one broker process must know of a scenario: its own id, where it listens, and who its neighbours are.

Of two linked brokers the one that the file names first dials the other; so each pair has one connection, and a broker
needs the addresses of those it dials only. Rates, queues and delays of the file are kept, so a bottleneck or a long way
can be shown on one machine; `applied` says what else is and what is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import InvalidScenario, choose_one
from penstock.kernel.link import LinkKind
from penstock.live.wire.addresses import DEFAULT_PORT, LOOPBACK, Address, free_ports, parse_address
from penstock.overlay.assembly import NodeConfig
from penstock.scenario.node_config import broker_config
from penstock.scenario.spec import ClientSpec, LinkSpec, Scenario

DEFAULT_ADDRESS = Address(LOOPBACK, DEFAULT_PORT)

UNSAID_DELAY = LinkSpec(between=("", "")).delay


@dataclass(frozen=True)
class Neighbour:
    """A broker at the other end of a link."""

    name: str
    broker: int
    spec: LinkSpec
    dials: Address | None  # where we dial it; None: it dials us

    @property
    def kind(self) -> LinkKind:
        return self.spec.link_kind

    @property
    def delay(self) -> float:
        """Seconds to add on reception; the millisecond that a file gives without saying so stands for no distance."""
        return self.spec.delay if self.spec.delay > UNSAID_DELAY else 0.0


@dataclass(frozen=True, kw_only=True)
class BrokerPlan:
    """One broker, ready to be started."""

    name: str
    broker: int = 0
    listen: Address = DEFAULT_ADDRESS
    neighbours: tuple[Neighbour, ...] = ()
    config: NodeConfig = field(default_factory=NodeConfig)
    clients: Mapping[str, ClientSpec] = field(default_factory=dict)  # those of the file, for their rates and queues
    brokers: Mapping[str, int] | None = None  # the ids of all brokers of the file, by name; None: there is no file
    without: tuple[str, ...] = ()  # services that it does not have


def plan_for(scenario: Scenario, name: str, addresses: Mapping[str, Address]) -> BrokerPlan:
    """What the broker of this name must know; `addresses` names at least itself and those it dials."""
    numbers = {broker.name: number for number, broker in enumerate(scenario.broker)}
    if name not in numbers:
        raise InvalidScenario("", f"there is no broker '{name}'; {choose_one(name, numbers)}")
    neighbours = []
    for link in scenario.link:
        if name in link.between:
            dialer, dialled = link.between
            other = dialled if name == dialer else dialer
            dials = addresses[other] if name == dialer else None
            neighbours.append(Neighbour(other, numbers[other], link, dials))
    return BrokerPlan(
        name=name,
        broker=numbers[name],
        listen=addresses[name],
        neighbours=tuple(neighbours),
        config=broker_config(scenario, scenario.broker[numbers[name]]),
        clients={client.name: client for client in scenario.client if client.broker == name},
        brokers=numbers,
        without=scenario.broker[numbers[name]].without,
    )


def assign_addresses(
    scenario: Scenario, *, host: str = LOOPBACK, base_port: int | None = DEFAULT_PORT
) -> dict[str, Address]:
    """Where each broker listens: as the file says, else at consecutive ports, or at free ones if `base_port` is None.

    Ports that the file gives out are passed over.
    """
    given = {broker.name: parse_address(broker.listen) for broker in scenario.broker if broker.listen is not None}
    taken = {address.port for address in given.values()}
    if base_port is None:
        ports = iter(free_ports(len(scenario.broker), host))
    else:
        ports = (port for port in range(base_port, 65_536) if port not in taken)
    addresses = {}
    for broker in scenario.broker:
        if broker.name in given:
            addresses[broker.name] = given[broker.name]
        else:
            port = next(ports, None)
            if port is None:
                raise InvalidScenario("", f"not enough ports from {base_port} for all brokers; choose a smaller one")
            addresses[broker.name] = Address(host, port)
    return addresses

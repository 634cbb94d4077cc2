"""Any set-up with a transport on every client.

A scenario says per client with which settings it publishes, and per subscription what the transport does for it. The
experiments use the same for all, and compare the same network and workload with and without.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.scenario.spec import ClientSpec, Scenario
from penstock.transport.config import TransportConfig
from penstock.transport.service import TRANSPORT


def with_transport(
    scenario: Scenario, transport: TransportConfig, *, ordered: bool = False, recover: bool = False
) -> Scenario:
    """The same scenario, with this transport on every client and these services for every subscription."""
    clients = tuple(_with_transport(client, transport, ordered, recover) for client in scenario.client)
    return replace(scenario, client=clients)


def _with_transport(client: ClientSpec, transport: TransportConfig, ordered: bool, recover: bool) -> ClientSpec:
    options = {"ordered": ordered, "recover": recover}
    subscriptions = tuple(replace(subscription, options=options) for subscription in client.subscribe)
    return replace(client, services=with_transport_settings(transport), subscribe=subscriptions)


def with_transport_settings(transport: TransportConfig | None) -> dict[str, TransportConfig]:
    """The settings of a client's services: this transport, or none."""
    return {} if transport is None else {TRANSPORT.name: transport}

"""Any set-up with a transport on every client.

A scenario says per client with which settings it publishes, and per subscription what the transport does for it. The
experiments use the same for all, and compare the same network and workload with and without.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.scenario.spec import ClientSpec, Scenario
from penstock.transport.config import TransportConfig


def with_transport(
    scenario: Scenario, transport: TransportConfig, *, ordered: bool = False, recover: bool = False
) -> Scenario:
    """The same scenario, with this transport on every client and these services for every subscription."""
    clients = tuple(_with_transport(client, transport, ordered, recover) for client in scenario.client)
    return replace(scenario, client=clients)


def _with_transport(client: ClientSpec, transport: TransportConfig, ordered: bool, recover: bool) -> ClientSpec:
    subscriptions = tuple(replace(subscription, ordered=ordered, recover=recover) for subscription in client.subscribe)
    return replace(client, transport=transport, subscribe=subscriptions)

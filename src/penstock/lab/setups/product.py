"""A paper's set-up with the product's own settings: what a user who sets nothing would have got there.

Network, workload and what subscriptions ask for stay. Instead of the paper's settings brokers and clients have their
defaults: exact interest, fair rates of links, links that repair themselves, and the transport with its own scheme. A
run without a transport is what the paper compares with, and stays as it is.

Fair rates withhold messages at their publisher's broker, which the papers' control does at the publisher; neither is
counted as lost (`papers/congestion/setting.py`).
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.lab.setups.transported import with_transport_settings
from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.spec import ClientSpec, LinkSpec, Scenario
from penstock.transport.config import TransportConfig
from penstock.transport.service import TRANSPORT

_REPAIRS = LinkSpec(between=("a", "b")).repair


def has_transport(scenario: Scenario) -> bool:
    """Whether any client has settings of the transport."""
    return any(TRANSPORT.name in client.services for client in scenario.client)


def rates_enabled(scenario: Scenario) -> bool:
    """Whether its brokers hold publishers to fair rates of links."""
    settings = scenario.services.get(RATES.name)
    return isinstance(settings, RatesConfig) and settings.enabled


def with_product_defaults(scenario: Scenario) -> Scenario:
    """The same scenario as a user would have it who sets nothing; one without a transport as it is."""
    if not has_transport(scenario):
        return scenario
    return replace(
        scenario,
        name=f"{scenario.name}-product",
        services={RATES.name: RatesConfig(enabled=True)},
        link=tuple(replace(link, repair=_REPAIRS) for link in scenario.link),
        client=tuple(_default(client) for client in scenario.client),
    )


def _default(client: ClientSpec) -> ClientSpec:
    return replace(client, services=with_transport_settings(TransportConfig()))

"""A paper's set-up with the product's own settings: what a user who sets nothing would have got there.

Network, workload and what subscriptions ask for stay. Instead of the paper's settings brokers and clients have their
defaults: exact interest, fair rates of links, links that repair themselves, and the transport with its own scheme.
Streams (001) and priced sending (003) have the product's rules: each of their settings that is the paper's becomes the
default, and what an experiment varies stays. A run without a transport, without control of its streams or without
priced content is what the paper compares with, and stays as it is.

Fair rates withhold messages at their publisher's broker, which the papers' control does at the publisher; neither is
counted as lost (`papers/congestion/setting.py`).
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.lab.setups.gryphon import PAPER_CONTROL
from penstock.lab.setups.spread import PAPER_PRICING, PAPER_REPORTS
from penstock.lab.setups.transported import with_transport_settings
from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.spec import ClientSpec, LinkSpec, Scenario
from penstock.streams.config import StreamsConfig
from penstock.transport.config import TransportConfig
from penstock.transport.service import TRANSPORT

_REPAIRS = LinkSpec(between=("a", "b")).repair
_PAPERS: dict[str, Any] = {"streams": PAPER_CONTROL, "pricing": PAPER_PRICING, "reports": PAPER_REPORTS}
Settings = TypeVar("Settings", bound=Struct)


def changes_with_product(scenario: Scenario) -> bool:
    """Whether anything in it is a paper's setting that the product has otherwise."""
    return with_product_defaults(scenario) is not scenario


def rates_enabled(scenario: Scenario) -> bool:
    """Whether its brokers hold publishers to fair rates of links."""
    settings = scenario.services.get(RATES.name)
    return isinstance(settings, RatesConfig) and settings.enabled


def with_product_defaults(scenario: Scenario) -> Scenario:
    """The same scenario as a user would have it who sets nothing; one without anything of a paper's as it is."""
    if any(TRANSPORT.name in client.services for client in scenario.client):
        return _named(
            scenario,
            services={},
            link=tuple(replace(link, repair=_REPAIRS) for link in scenario.link),
            client=tuple(_default(client) for client in scenario.client),
        )
    streams = scenario.services.get("streams")
    controlled = isinstance(streams, StreamsConfig) and streams.pubend_control and streams.edge_control
    if not controlled and not scenario.classes:
        return scenario
    papers = {name: paper for name, paper in _PAPERS.items() if name in scenario.services}
    ours = {name: _without(scenario.services[name], paper) for name, paper in papers.items()}
    if all(ours[name] == scenario.services[name] for name in ours):
        return scenario
    return _named(scenario, services=ours)


def _named(scenario: Scenario, *, services: dict[str, Any], **fields: Any) -> Scenario:
    services = {RATES.name: RatesConfig(enabled=True), **services}
    return replace(scenario, name=f"{scenario.name}-product", services=services, **fields)


def _without(settings: Settings, paper: Settings) -> Settings:
    """Each setting that is the paper's is the product's; the others stay."""
    default = type(settings)()
    names = settings.__struct_fields__
    papers = {name: getattr(default, name) for name in names if getattr(settings, name) == getattr(paper, name)}
    return replace(settings, **papers)


def _default(client: ClientSpec) -> ClientSpec:
    return replace(client, services=with_transport_settings(TransportConfig()))

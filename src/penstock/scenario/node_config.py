"""From a scenario to the settings of its nodes: encoding, lanes, and the services of brokers and of each client."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from penstock.content.bloom import EncodingScheme
from penstock.kernel.link import LinkKind
from penstock.kernel.packet import BROKER, CLIENT, Lane
from penstock.kernel.queue import HOLD_BYTES, Overflow, QueueConfig
from penstock.overlay.assembly import NodeConfig
from penstock.pricing.config import PricingClientConfig, PricingConfig
from penstock.rates.config import RatesClientConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, Scenario
from penstock.services import typed_settings
from penstock.streams.config import StreamsConfig


def broker_config(scenario: Scenario, broker: BrokerSpec | None = None) -> NodeConfig:
    """The settings of a broker, or those of all that have none of their own."""
    own = broker.services if broker is not None else {}
    services = typed_settings(BROKER, {**scenario.services, **own})
    if scenario.stream:
        declared = {stream.name: stream.at for stream in scenario.stream}
        services["streams"] = msgspec.structs.replace(services.get("streams", StreamsConfig()), declared=declared)
    if scenario.classes:
        services["pricing"] = msgspec.structs.replace(
            services.get("pricing", PricingConfig()), classes=scenario.classes, lines=reliable_lines(scenario)
        )
    return NodeConfig(scheme=_scheme(scenario), queues=_queues(scenario, bool(scenario.classes)), services=services)


def client_config(scenario: Scenario, client: ClientSpec) -> NodeConfig:
    """The settings of one client."""
    services = typed_settings(CLIENT, client.services)
    if not scenario.classes:  # then there is nothing to wait for
        pricing = services.get("pricing", PricingClientConfig())
        services["pricing"] = msgspec.structs.replace(pricing, waits_for_classes=False)
    rates = typed_settings(BROKER, scenario.services).get("rates")
    if rates is not None and "rates" not in services:  # clients say how fast they read where brokers want to know
        services["rates"] = RatesClientConfig(enabled=rates.enabled)
    return NodeConfig(scheme=_scheme(scenario), queues=_queues(scenario, False), services=services)


def reliable_lines(scenario: Scenario) -> tuple[tuple[int, int], ...]:
    """The pairs of brokers that reliable links join, as ids, the smaller one first: priced messages take no others."""
    numbers = {broker.name: number for number, broker in enumerate(scenario.broker)}
    reliable = [link.between for link in scenario.link if link.link_kind is LinkKind.RELIABLE]
    return tuple(sorted((min(ends), max(ends)) for a, b in reliable if (ends := (numbers[a], numbers[b]))))


def _scheme(scenario: Scenario) -> EncodingScheme:
    return EncodingScheme(bits=scenario.encoding.bits, hashes=scenario.encoding.hashes)


def _queues(scenario: Scenario, priced: bool) -> QueueConfig:
    """The lanes; brokers hold the priced one, where anything is priced."""
    lanes = dict(QueueConfig().lanes)
    if priced:
        lanes[Lane.PRICED] = replace(lanes[Lane.PRICED], bytes_max=HOLD_BYTES, overflow=Overflow.HOLD)
    for name, spec in scenario.lanes.items():
        lane = Lane[name.upper()]
        overflow = Overflow(spec.overflow)
        usual = HOLD_BYTES if overflow is Overflow.HOLD else lanes[lane].bytes_max
        lanes[lane] = replace(lanes[lane], bytes_max=spec.bytes_max or usual, weight=spec.weight, overflow=overflow)
    return QueueConfig(lanes=lanes)

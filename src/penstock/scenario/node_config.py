"""From a scenario to the settings of its nodes: encoding, lanes, and the services of brokers and of each client."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from penstock.content.bloom import EncodingScheme
from penstock.kernel.packet import BROKER, CLIENT, Lane
from penstock.kernel.queue import HOLD_BYTES, Overflow, QueueConfig
from penstock.overlay.assembly import NodeConfig
from penstock.scenario.spec import ClientSpec, Scenario
from penstock.services import typed_settings
from penstock.streams.config import StreamsConfig


def broker_config(scenario: Scenario) -> NodeConfig:
    """The settings of every broker."""
    services = typed_settings(BROKER, scenario.services)
    if scenario.stream:
        declared = {stream.name: stream.at for stream in scenario.stream}
        services["streams"] = msgspec.structs.replace(services.get("streams", StreamsConfig()), declared=declared)
    return NodeConfig(scheme=_scheme(scenario), queues=_queues(scenario), services=services)


def client_config(scenario: Scenario, client: ClientSpec) -> NodeConfig:
    """The settings of one client."""
    services = typed_settings(CLIENT, client.services)
    return NodeConfig(scheme=_scheme(scenario), queues=_queues(scenario), services=services)


def _scheme(scenario: Scenario) -> EncodingScheme:
    return EncodingScheme(bits=scenario.encoding.bits, hashes=scenario.encoding.hashes)


def _queues(scenario: Scenario) -> QueueConfig:
    lanes = dict(QueueConfig().lanes)
    for name, spec in scenario.lanes.items():
        lane = Lane[name.upper()]
        overflow = Overflow(spec.overflow)
        usual = HOLD_BYTES if overflow is Overflow.HOLD else lanes[lane].bytes_max
        lanes[lane] = replace(lanes[lane], bytes_max=spec.bytes_max or usual, weight=spec.weight, overflow=overflow)
    return QueueConfig(lanes=lanes)

"""The town (`networks/town.toml`) with its twins: two flows over equally narrow ways, to the warehouse and the depot.

Neither has end-to-end control here. The file belongs to the project's folder; elsewhere there is no such row.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.reader import NETWORKS, read_scenario
from penstock.scenario.spec import ClientSpec, Scenario
from penstock.transport.service import TRANSPORT

FILE = NETWORKS / "town.toml"
TWINS = ("archive", "warehouse", "annex", "depot")


def town_is_here() -> bool:
    """Whether the file can be found."""
    return FILE.exists()


def town(*, controlled: bool) -> Scenario:
    """The town, with the control of rates or without it."""
    scenario = read_scenario(FILE)
    return replace(
        scenario,
        name=f"rates-town-{'controlled' if controlled else 'free'}",
        services={**scenario.services, RATES.name: RatesConfig(enabled=controlled)},
        client=tuple(_plain(client) for client in scenario.client),
    )


def _plain(client: ClientSpec) -> ClientSpec:
    """The client without the transport, if it is one of the twins."""
    services = {name: settings for name, settings in client.services.items() if name != TRANSPORT.name}
    return replace(client, services=services) if client.name in TWINS else client
